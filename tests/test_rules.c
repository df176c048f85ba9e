/* The rules that have more vectors per token than q, k and v: RWKV-6, which reads before it writes;
   RWKV-7, any diagonal plus low rank; and the delta rule with an erase gate. */
#include "oracle.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const la_variant rules[] = {LA_RWKV6, LA_RWKV7, LA_GDN2};
enum { RULES = sizeof rules / sizeof rules[0] };

static void all_rules(Spec spec, const char *note) {
    int i;
    for (i = 0; i < RULES; i++) {
        spec.variant = rules[i];
        problem_all_ways(&spec, note);
    }
}

/* ---------------------------------------------------------------- every form, any gate */

TEST(rules_gates) {
    static const Gate gates[] = {GATE_NONE,  GATE_HEAD,  GATE_MILD, GATE_STRONG, GATE_ANY,
                                 GATE_MIXED, GATE_EDGES, GATE_SLOW, GATE_ZERO};
    int i, channel;
    for (i = 0; i < 9; i++) {
        for (channel = 0; channel < (gates[i] != GATE_NONE ? 2 : 1); channel++) {
            Spec spec = {.T = 37, .B = 2, .H = 5, .dk = 13, .dv = 19, .beta = BETA_TOKEN};
            spec.gate = gates[i];
            spec.gate_channel = channel;
            spec.layout = i % 2 ? LA_VK : LA_KV;
            all_rules(spec, "gates");
            spec.B = spec.H = 1;
            spec.T = 67;
            spec.dk = 48;
            spec.dv = 64;
            spec.beta = BETA_CHANNEL;
            spec.layout = !spec.layout;
            all_rules(spec, "gates, 16 columns and more");
        }
    }
}

TEST(rules_lengths) {
    static const int64_t lengths[] = {0, 1, 2, 3, 5, 6, 7, 8, 15, 16, 17, 31, 32, 33, 53, 100};
    int i;
    for (i = 0; i < 16; i++) {
        Spec spec = {.gate = GATE_MILD, .gate_channel = 1, .H = 2, .dk = 7, .dv = 11};
        spec.T = lengths[i];
        spec.layout = i % 2 ? LA_VK : LA_KV;
        all_rules(spec, "lengths");
    }
}

TEST(rules_sizes) {
    static const int64_t sizes[][2] = {{1, 1},   {1, 16}, {16, 1},  {15, 17}, {16, 32},
                                       {17, 33}, {8, 48}, {64, 64}, {65, 31}};
    int i, layout;
    for (i = 0; i < 9; i++) {
        for (layout = 0; layout < 2; layout++) {
            Spec spec = {.T = 21, .gate = GATE_MIXED, .gate_channel = 1, .beta = BETA_TOKEN};
            spec.dk = sizes[i][0];
            spec.dv = sizes[i][1];
            spec.layout = layout;
            all_rules(spec, "sizes");
        }
    }
}

/* More panels than chunk 0 takes at a time, and more tokens than it prepares at once. */
TEST(rules_large) {
    int i;
    for (i = 0; i < 4; i++) {
        Spec spec = {.T = 131, .H = 1, .dk = 130, .dv = 101, .gate_channel = 1};
        spec.gate = i % 2 ? GATE_MIXED : GATE_MILD;
        spec.beta = i % 2 ? BETA_CHANNEL : BETA_TOKEN;
        spec.Hq = i < 2 ? 1 : 2 + i;
        spec.layout = i % 2 ? LA_KV : LA_VK;
        spec.skip = spec.out_gate = i / 2;
        all_rules(spec, "many columns");
    }
}

TEST(rules_settings) {
    Spec spec = {.T = 40,
                 .H = 4,
                 .dk = 12,
                 .dv = 20,
                 .gate = GATE_MILD,
                 .gate_channel = 1,
                 .beta = BETA_TOKEN};
    Spec s = spec;
    s.bare = 1;
    all_rules(s, "neither erase gate nor bonus");
    s = spec;
    s.token_bonus = 1;
    all_rules(s, "a bonus for each token");
    s = spec;
    s.scale = 0.25f;
    all_rules(s, "scale");
    s = spec;
    s.Hq = 12;
    all_rules(s, "three query heads to a state");
    s.Hq = 8;
    s.layout = LA_VK;
    s.gate = GATE_MIXED;
    all_rules(s, "two query heads to a state");
    s.Hq = 2;
    s.Hk = 1;
    s.head_map = LA_TILED;
    all_rules(s, "states share queries and keys");
    s = spec;
    s.l2_mode = LA_L2_SUM;
    all_rules(s, "l2");
    s = spec;
    s.zero_keys = 1;
    all_rules(s, "no keys");
    s = spec;
    s.B = 5;
    s.ragged = 1;
    all_rules(s, "lengths of their own");
}

TEST(rules_general_pairs) {
    int channel;
    for (channel = 0; channel < 2; channel++) {
        Spec spec = {.T = 45, .H = 2, .dk = 24, .dv = 18, .gate = GATE_MILD, .general = 1};
        spec.gate_channel = channel;
        all_rules(spec, "any a and b, erase gates up to 2");
        spec.gate = GATE_ANY;
        all_rules(spec, "any a and b, any gates");
    }
}

/* An erase gate on features of keys: erase . (elu(k) + 1), whose length is below 1 here. */
TEST(rules_erase_gates_of_features) {
    int i, layout;
    for (layout = 0; layout < 2; layout++) {
        Spec spec = {.variant = LA_GDN2, .T = 39, .H = 4, .Hq = 2, .Hk = 2, .dk = 13, .dv = 21};
        Problem *problem;
        Way way;
        int64_t t, h, n;
        spec.gate = GATE_MIXED;
        spec.gate_channel = layout;
        spec.beta = BETA_TOKEN;
        spec.layout = spec.head_map = layout;
        problem = problem_new(&spec);
        problem->note = "erase, elu + 1";
        problem->layer.feature = LA_FEATURE_ELU1;
        for (t = 0; t < spec.T; t++) {
            for (h = 0; h < spec.Hk; h++) {
                for (n = 0; n < spec.dk; n++) {
                    out_row(&problem->k, 0, t, h)[n] -= 2;
                }
            }
        }
        problem_oracle(problem);
        for (i = 0; way_number(i, &way); i++) {
            if (problem_run(problem, &way)) {
                problem_check(problem);
            }
        }
        problem_free(problem);
    }
}

TEST(rules_states) {
    int states, strides;
    for (states = STATES_BOTH; states <= STATES_NONE; states++) {
        for (strides = STRIDES_BTHD; strides <= STRIDES_BROADCAST; strides++) {
            Spec spec = {.T = 19,
                         .B = 2,
                         .H = 3,
                         .dk = 9,
                         .dv = 20,
                         .gate = GATE_MILD,
                         .gate_channel = 1,
                         .beta = BETA_TOKEN};
            spec.states = (States)states;
            spec.strides = (Strides)strides;
            spec.shift = strides;
            spec.layout = strides % 2 ? LA_VK : LA_KV;
            all_rules(spec, "states and strides");
        }
    }
}

/* A gate no float holds acts on a state so large that what is left is an ordinary number. */
TEST(rules_deep_gates) {
    static const float gates[] = {-81, -95, -120, -170, -239};
    int i, channel, layout;
    for (i = 0; i < 5; i++) {
        for (channel = 0; channel < 2; channel++) {
            for (layout = 0; layout < 2; layout++) {
                Spec spec = {.T = 3, .Hq = 3, .dk = 9, .dv = 37, .gate = GATE_FILLED};
                spec.gate_value = gates[i];
                spec.gate_channel = channel;
                spec.layout = layout;
                spec.state_size = 1e28f;
                spec.bare = 1;
                all_rules(spec, "deep gates");
            }
        }
    }
}

TEST(rules_exact) {
    int layout;
    for (layout = 0; layout < 2; layout++) {
        Spec spec = {.T = 41,
                     .H = 3,
                     .Hq = 6,
                     .dk = 11,
                     .dv = 21,
                     .gate = GATE_HALVES,
                     .exact = 1,
                     .beta = BETA_TOKEN,
                     .scale = 0.5f};
        spec.layout = layout;
        spec.gate_channel = layout;
        all_rules(spec, "exact data");
    }
}

/* ---------------------------------------------------------------- skip and output gate */

/* Of every rule, in every form: D by head or by channel, z for each output, or only one of them. */
TEST(rules_finished_outputs) {
    static const la_variant variants[] = {LA_MAMBA2, LA_RETNET, LA_GATED_DELTANET, LA_KDA,
                                          LA_ELU,    LA_RWKV6,  LA_RWKV7};
    int i;
    for (i = 0; i < 2 * 7; i++) {
        Spec spec = {.T = 41, .B = 2, .H = 2, .Hq = 6, .Hk = 1, .dk = 17, .dv = 37};
        spec.variant = variants[i % 7];
        spec.gate = spec.variant == LA_ELU ? GATE_NONE : GATE_MIXED;
        spec.gate_channel = spec.variant == LA_KDA;
        spec.beta = BETA_TOKEN;
        spec.layout = i % 2 ? LA_VK : LA_KV;
        spec.strides = i % 3 ? STRIDES_PADDED : STRIDES_BHTD;
        spec.skip = i % 3;
        spec.out_gate = i % 3 != 1;
        problem_all_ways(&spec, "skip and out_gate");
    }
}

TEST(rules_finished_outputs_bidirectional) {
    Spec spec = {.variant = LA_ELU, .T = 35, .keys = 20, .H = 2, .dk = 17, .dv = 33};
    spec.bidirectional = spec.out_gate = 1;
    problem_all_ways(&spec, "out_gate");
}

/* z of -100 and below closes an output, which exp(-z) overflowing must not spoil */
TEST(rules_closed_outputs) {
    Spec spec = {.variant = LA_MAMBA2, .T = 9, .dk = 5, .dv = 20, .out_gate = 1};
    Problem *problem = problem_new(&spec);
    Way way;
    int i;
    int64_t j;
    for (j = 0; j < spec.dv; j++) {
        out_row(&problem->out_gate, 0, 4, 0)[j] = j % 2 ? -100 : -1e30f;
    }
    problem_oracle(problem);
    for (i = 0; way_number(i, &way); i++) {
        if (problem_run(problem, &way)) {
            problem_check(problem);
            for (j = 0; j < spec.dv; j++) {
                float o = out_row(&problem->call.out, 0, 4, 0)[j];
                CHECK(fabsf(o) < 1e-30f, "closed, but %g", (double)o);
            }
        }
    }
    problem_free(problem);
}

/* v z / (1 + exp(-z)) alone, nothing having been written, for every size of z that leaves a normal
   number; and what the formula says of numbers that are none. */
TEST(rules_output_gates_of_any_size) {
    static const float odd[4] = {INFINITY, -INFINITY, NAN, 0};
    Spec spec = {.variant = LA_FWP, .T = 96, .H = 1, .dk = 1, .dv = 35, .zero_keys = 1, .skip = 1};
    Problem *problem;
    Way way;
    int i;
    int64_t t, j;
    spec.states = STATES_NONE;
    spec.out_gate = 1;
    problem = problem_new(&spec);
    out_row(&problem->skip, 0, 0, 0)[0] = 1;
    for (t = 0; t < spec.T; t++) {
        for (j = 0; j < spec.dv; j++) {
            float z = random_uniform(-86, 100);
            out_row(&problem->v, 0, t, 0)[j] = random_uniform(0.5f, 2);
            out_row(&problem->out_gate, 0, t, 0)[j] = t < 4 ? odd[t] : t % 2 ? z : z / 1000;
        }
    }
    for (i = 0; way_number(i, &way); i++) {
        double worst = 0;
        if (!problem_run(problem, &way)) {
            continue;
        }
        for (t = 4; t < spec.T; t++) {
            for (j = 0; j < spec.dv; j++) {
                double z = (double)out_row(&problem->out_gate, 0, t, 0)[j];
                double want = (double)out_row(&problem->v, 0, t, 0)[j] * z / (1 + exp(-z));
                double got = (double)out_row(&problem->call.out, 0, t, 0)[j];
                worst = fmax(worst, fabs(got - want) / fabs(want));
                worst = isnan(got) ? HUGE_VAL : worst;
            }
        }
        CHECK(worst < 4e-7, "relative error %g: %s", worst, problem_text(problem));
        for (j = 0; j < spec.dv; j++) {
            const float *o = problem->call.out.data + j;
            CHECK(o[0] > 3e38f && isnan(o[35]) && isnan(o[70]) && o[105] == 0, "%g, %g, %g, %g",
                  (double)o[0], (double)o[35], (double)o[70], (double)o[105]);
        }
    }
    problem_free(problem);
}

TEST(rules_finished_outputs_refuse) {
    Spec spec = {.variant = LA_ELU, .T = 3, .H = 2, .dk = 4, .dv = 6, .skip = 1, .out_gate = 1};
    Problem *problem = problem_new(&spec);
    const char *field = "";
    la_call call = problem->call;
    char workspace[1 << 16];
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    CHECK(la_check(&problem->layer, &call, &field) == LA_OK, "%s", field ? field : "");
    call.skip.width = 5;
    CHECK(la_check(&problem->layer, &call, &field) == LA_E_SHAPE, "width");
    CHECK(strcmp(field, "skip.width") == 0, "%s", field);
    call.skip = problem->call.skip;
    call.out_gate.width = 1;
    CHECK(la_check(&problem->layer, &call, &field) == LA_E_SHAPE, "width");
    CHECK(strcmp(field, "out_gate.width") == 0, "%s", field);
    call.out_gate = problem->call.out_gate;
    call.out_gate.data = call.out.data;
    CHECK(la_check(&problem->layer, &call, &field) == LA_E_OVERLAP, "out");
    CHECK(strcmp(field, "out") == 0, "%s", field);
    call.out_gate = problem->call.out_gate;
    call.out_gate.type = 7;
    CHECK(la_check(&problem->layer, &call, &field) == LA_E_TYPE, "type");
    CHECK(strcmp(field, "out_gate.type") == 0, "%s", field);
    call.out_gate = problem->call.out_gate;
    problem->layer.bidirectional = 1;
    CHECK(la_check(&problem->layer, &call, &field) == LA_E_UNSUPPORTED, "bidirectional");
    CHECK(strcmp(field, "skip") == 0, "%s", field);
    problem_free(problem);
}
