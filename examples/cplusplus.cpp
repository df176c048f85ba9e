/* The header in C++11: a layer of RetNet in a class, its buffers in vectors, and prefill followed
 * by decoding. The implementation may be compiled as C or, as here, as C++. */
#define LA_IMPLEMENTATION
#include "linear_attention.h"

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

typedef std::vector<float> floats;

class retnet {
public:
    retnet(int64_t heads, int64_t dk, int64_t dv) : decay(static_cast<size_t>(heads)) {
        must(la_layer_init(&layer, LA_RETNET, heads, dk, dv));
        must(la_retnet_log_decay(decay.data(), heads));
        state.assign(la_state_floats(&layer), 0.0f);
    }

    /* Rows [tokens][heads][width]; the state goes on where the last call ended. */
    floats forward(const floats &q, const floats &k, const floats &v) {
        const int64_t row = layer.heads * layer.dim_v;
        const int64_t tokens = static_cast<int64_t>(v.size()) / row;
        floats out(v.size());
        la_call call;
        must(la_call_init(&call, &layer, 1, tokens));
        call.q = la_bthd(q.data(), tokens, layer.heads, layer.dim_k);
        call.k = la_bthd(k.data(), tokens, layer.heads, layer.dim_k);
        call.v = la_bthd(v.data(), tokens, layer.heads, layer.dim_v);
        call.log_decay = la_per_head(decay.data());
        call.out = la_bthd_out(out.data(), tokens, layer.heads, layer.dim_v);
        call.state_in = call.state_out = state.data();
        workspace.resize(la_workspace_size(&layer, &call)); /* keeps what it has */
        call.workspace = workspace.data();
        call.workspace_size = workspace.size();
        must(la_forward(&layer, &call));
        return out;
    }

private:
    static void must(la_status status) {
        if (status != LA_OK) throw std::runtime_error(la_status_text(status));
    }

    la_layer layer;
    floats decay, state;
    std::vector<unsigned char> workspace;
};

static floats waves(size_t count, float speed) {
    floats x(count);
    for (size_t i = 0; i < count; ++i) x[i] = std::sin(speed * static_cast<float>(i));
    return x;
}

static floats part(const floats &x, size_t token, size_t tokens, size_t row) {
    const floats::const_iterator first = x.begin() + static_cast<std::ptrdiff_t>(token * row);
    return floats(first, first + static_cast<std::ptrdiff_t>(tokens * row));
}

int main() {
    const size_t tokens = 100, prompt = 90, heads = 4, dk = 16, dv = 32;
    const floats q = waves(tokens * heads * dk, 0.7f), k = waves(tokens * heads * dk, 1.3f);
    const floats v = waves(tokens * heads * dv, 0.3f);
    retnet whole(heads, dk, dv), pieces(heads, dk, dv);
    const floats want = whole.forward(q, k, v);
    floats got;
    float worst = 0;
    for (size_t t = 0, n = prompt; t < tokens; t += n, n = 1) { /* the prompt, then one by one */
        const floats out = pieces.forward(part(q, t, n, heads * dk), part(k, t, n, heads * dk),
                                          part(v, t, n, heads * dv));
        got.insert(got.end(), out.begin(), out.end());
    }
    for (size_t i = 0; i < want.size(); ++i) worst = std::fmax(worst, std::fabs(got[i] - want[i]));
    std::printf("%zu tokens at once and as %zu + %zu single ones: largest difference %.1e\n",
                tokens, prompt, tokens - prompt, static_cast<double>(worst));
    return got.size() == want.size() && worst < 1e-3f ? 0 : 1;
}
