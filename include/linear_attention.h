/* linear_attention.h - linear attention for C: every form, any gate, at the speed of the machine
 * Version 0.1.0. MIT licence, at the end. C99 (and C++11), libc and libm, no other files.
 *
 * [LA-0] QUICK START
 *
 * In exactly one source file, before the include, `#define LA_IMPLEMENTATION`. Then, for a layer
 * of 4 heads with keys of 64 and values of 64 channels, over one sequence of T tokens, all packed
 * [T][4][64]:
 *
 *     #define LA_IMPLEMENTATION
 *     #include "linear_attention.h"
 *
 *     la_layer layer;                       what the layer is
 *     la_call call;                         one forward
 *     la_layer_init(&layer, LA_GATED_DELTANET, 4, 64, 64);
 *     la_call_init(&call, &layer, 1, T);
 *     call.q = la_bthd(q, T, 4, 64);
 *     call.k = la_bthd(k, T, 4, 64);
 *     call.v = la_bthd(v, T, 4, 64);
 *     call.log_decay = la_bthd(g, T, 4, 1); one gate per token and head: the logarithm, <= 0
 *     call.beta = la_bthd(beta, T, 4, 1);   after the sigmoid
 *     call.out = la_bthd_out(out, T, 4, 64);
 *     call.state_in = call.state_out = state;               la_state_floats(&layer) floats
 *     call.workspace_size = la_workspace_size(&layer, &call);
 *     call.workspace = malloc(call.workspace_size);         once: prefill and decoding share it
 *     if (la_forward(&layer, &call) != LA_OK) ...           T = 1 is a decode step
 *
 * CONTENTS (search for the tag)
 *
 *     [LA-0]  QUICK START         [LA-4]  INSTRUCTION SETS    [LA-8]   DISPATCH
 *     [LA-1]  MANUAL              [LA-5]  VECTOR LAYER        [LA-9]   PUBLIC FUNCTIONS
 *     [LA-2]  DECLARATIONS        [LA-6]  PRIMITIVES          [LA-10]  REFERENCES, LICENCE
 *     [LA-3]  IMPLEMENTATION      [LA-7]  ENGINE
 *
 * ================================================================================================
 * [LA-1] MANUAL
 * ================================================================================================
 *
 * THE RECURRENCE. Per head, with features f(q), f(k) of r numbers, a state S [r][dv] and alpha_t =
 * exp(log_decay_t):
 *
 *     S'  = alpha_t S                                   forget first
 *     u_t = beta_t v_t                                  additive write
 *     u_t = beta_t (v_t - S'^T f(k_t))                  delta write: the error of the DECAYED state
 *     u_t = beta_t v_t - S'^T (erase_t . k_t)           the same with an erase gate
 *     S   = S' + f(k_t) u_t^T
 *     S   = S' + b_t (S^T a_t)^T + beta_t k_t v_t^T     DPLR: a reads the state before it decays
 *     o_t = scale S^T f(q_t)                            read AFTER the write
 *     o_t = scale (S + (bonus . k_t) u_t^T)^T q_t       read BEFORE: S is as the last token left it
 *     o_t = scale S^T f(q_t) / (scale z . f(q_t) + eps) normalised, with z = alpha_t z + f(k_t)
 *
 * VARIANTS are settings of these axes; la_layer_init knows the table.
 *
 *     variant             features  write     decay        normalised  source (arXiv)
 *     LA_ELU              elu + 1   additive  none         yes         2006.16236
 *     LA_FAVOR            random    additive  none         yes         2009.14794, lemma 1
 *     LA_COSFORMER        cosine    additive  none         yes         2202.08791
 *     LA_RETNET           identity  additive  per head     no          2307.08621, eq. 6
 *     LA_LIGHTNING        identity  additive  per head     no          2401.04658
 *     LA_GLA              identity  additive  per channel  no          2312.06635
 *     LA_DELTANET         identity  delta     none         no          2406.06484, 2102.11174
 *     LA_GATED_DELTANET   identity  delta     per token    no          2412.06464, eq. 10
 *     LA_KDA              identity  delta     per channel  no          2510.26692, section 3
 *     LA_MAMBA2           identity  additive  per token    no          2405.21060
 *     LA_FWP              identity  additive  none         no          2102.11174, section 2
 *     LA_DPFP             DPFP      delta     none         no          2102.11174, section 5
 *     LA_BASED            Taylor    additive  none         yes         2402.18668
 *     LA_HEDGEHOG         softmax   additive  none         yes         2402.04347
 *     LA_RFF              Fourier   additive  none         yes         2103.02143
 *     LA_MAPPED           identity  additive  none         yes         2006.16236
 *     LA_RWKV6            identity  additive  per channel  no, before  2404.05892
 *     LA_RWKV7            identity  DPLR      per channel  no          2503.14456
 *     LA_GDN2             identity  delta     per channel  no          2605.22791
 *
 * The decay column is what is usual: a call may bring any granularity, or none, except that RetNet
 * and Lightning require one, and that decay per channel needs features that are channels: the
 * identity or elu + 1. GLA, Mamba-2 and fast weight programmers are one rule by three names, and so
 * are DeltaNet, Gated DeltaNet and Kimi Delta Attention: the decay that a call brings is what
 * differs. A layer's axes may be changed after la_layer_init: normalised = 1 gives any additive
 * variant the denominator, and write = LA_WRITE_DELTA with normalised = 0 makes a delta rule of any
 * features but FAVOR+'s.
 *
 * KIMI DELTA ATTENTION (LA_KDA) is the delta rule with a gate per channel:
 *
 *     S_t = (I - beta_t k_t k_t^T) Diag(alpha_t) S_{t-1} + beta_t k_t v_t^T,  o_t = scale S_t^T q_t
 *
 * with log_decay [B][T][H][dk], which la_kda_log_decay makes of a model's raw gates. Kimi Linear
 * normalises q and k (LA_L2_SUM), and its scale is dk^-1/2.
 *
 * MAMBA-2 (LA_MAMBA2, the state space duality), with states of N = dk and heads of P = dv:
 *
 *     S_t = exp(dt_t A) S_{t-1} + dt_t B_t x_t^T,   y_t = S_t^T C_t
 *
 * q = C and k = B, both [B][T][groups][N] with q_heads = k_heads = groups; v = x [B][T][H][P];
 * log_decay = dt A and beta = dt, both [B][T][H], which la_mamba2_gates makes. The state [P][N] of
 * the peers is the layout LA_VK. call.skip = D and call.out_gate = z finish the outputs:
 * y_t = (S_t^T C_t + D x_t) z_t / (1 + exp(-z_t)).
 *
 * RWKV-6 (LA_RWKV6) is read before the token's own decay and write, of which it sees a bonus:
 *
 *     o_t = scale (S_{t-1}^T q_t + (q_t . (bonus . k_t)) beta_t v_t)
 *     S_t = Diag(alpha_t) S_{t-1} + k_t (beta_t v_t)^T
 *
 * q is the receptance r, bonus [H][dk] is the model's u (time_faaaa), by la_per_channel; a bonus
 * per token, [B][T][H][dk], is possible. Absent it counts as 1; a row of zeros leaves the token
 * itself out. log_decay = -exp(w), which la_rwkv_log_decay makes. The model's scale is 1.
 *
 * RWKV-7 (LA_RWKV7) and every other diagonal plus low rank (LA_WRITE_DPLR):
 *
 *     S_t = Diag(alpha_t) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t (beta_t v_t)^T
 *     o_t = scale S_t^T q_t
 *
 * a and b are required, [B][T][H][dk]. Of the model's vectors they are a = -kk and b = kk . lr,
 * with the removal key kk of length 1 and the learning rates lr in 0 .. 1; k is the key that the
 * model has already multiplied by 1 + (lr - 1) k_a. Its code has w = -softplus(-x) - 0.5, of which
 * la_rwkv_log_decay makes log_decay = -exp(w), never below -0.61. The state of that code is the
 * layout LA_VK, its scale 1.
 *
 * GATED DELTANET 2 (LA_GDN2) erases by one gate, per key channel, and writes by another, beta, per
 * value channel [B][T][H][dv]:
 *
 *     S_t = (I - k_t (erase_t . k_t)^T) Diag(alpha_t) S_{t-1} + k_t (beta_t . v_t)^T
 *
 * erase is [B][T][H][dk], after the sigmoid. Any delta rule of the identity or elu + 1 may have
 * one; without, beta gates both, which is KDA.
 *
 * FAST WEIGHT PROGRAMMERS (LA_FWP) write the outer products of keys and values, S_t = S_{t-1} +
 * k_t v_t^T, o_t = S_t^T q_t: linear attention without features, decay or denominator. With one it
 * is LA_MAPPED: q and k are features that the caller has mapped, by an MLP or otherwise; where they
 * are not negative, outputs are averages.
 *
 * FEATURES, r of them, at most 2^21. elu + 1: x + 1 for x > 0, else exp(x); relative error below
 * 1e-6 down to x = -87. r = dk.
 *
 * cosine: [relu(x) cos(theta), relu(x) sin(theta)], theta = pi i / (2 M), r = 2 dk. i is the
 * position, from call.positions[b] on (0 where null), M is layer.horizon and required; positions
 * lie in [0, M].
 *
 * random (FAVOR+), with m = layer.features rows w_j of layer.projection and y = sqrt(scale) x,
 * where scale enters and nowhere else: it is that of the softmax which is estimated, 1 or
 * dk^-1/2.
 *
 *     LA_FAVOR_POSITIVE     r = m:  m^-1/2 (exp(w_j . y - |y|^2 / 2) + feature_eps)
 *     LA_FAVOR_HYPERBOLIC   r = 2m: the same with (2m)^-1/2 for all w_j, then for all -w_j
 *     LA_FAVOR_RELU         r = m:  max(w_j . y, 0) + feature_eps
 *
 * FAVOR+'s exponents are kept in range by a maximum: of the query's own, and for keys the running
 * maximum of all tokens so far, decayed as they are, which is part of the state. The result is
 * that of the formula; later keys change nothing before them. eps and feature_eps mean the plain
 * features.
 *
 * softmax (Hedgehog), with the learned map y = W x + b of m = layer.features rows, r = 2m, the half
 * of y first. No feature is less than feature_eps (0; the authors' code has 1e-12, there and as
 * eps).
 *
 *     LA_HEDGEHOG_SPLIT     softmax(y), softmax(-y)
 *     LA_HEDGEHOG_JOINT     softmax([2y, -2y])
 *     LA_HEDGEHOG_EXP       exp(y - max y), exp(min y - y)
 *
 * Fourier (RFF): m^-1/2 [cos(y), sin(y)], y = W sqrt(scale) x + b, m = layer.features, r = 2m. For
 * rows W of normal numbers (la_favor_projection) f(q) . f(k) estimates exp(-scale |q - k|^2 / 2);
 * with LA_L2_SUM that is the softmax of scale q . k. Features have signs, and so have estimates:
 * the denominator may come out small or negative, and outputs as large as that makes them; more
 * features or an eps by LA_EPS_MAX help. |W x| beyond 1e6 counts as that, infinite or not.
 *
 * W is layer.projection [m][dk], for state h projection_head_stride h further on. Queries use
 * q_projection, with the same stride, where it is not null. b is 0 unless projection_bias = 1 (not
 * for FAVOR+): then m biases follow each [m][dk].
 *
 * Taylor (Based): 1, y, and y_i y_j for all j <= i, row by row, over sqrt(2) where j = i, with y =
 * sqrt(scale) x: f(q) . f(k) = 1 + s + s^2 / 2, s = scale q . k. r = 1 + dk + dk (dk + 1) / 2: code
 * that keeps all dk^2 products has the same outputs, but twice the cost and other states.
 *
 * DPFP: x' = [relu(x), relu(-x)], then for i = 1 .. nu x'_j x'_(j - i mod 2 dk), r = 2 dk nu, over
 * the sum of them all; 0 where that is 0 (below 1e-37 of the largest |x_j|^2). The size of x has no
 * influence, nor has L2 normalisation. layer.nu is 1.
 *
 * NORMALISATION. eps (0) is added to the denominator, or is its lower bound (LA_EPS_MAX). A
 * denominator of exactly 0 gives 0, one below 1e-37 counts as that.
 *
 * TENSORS are float32 views: a pointer, strides in elements, and the width of a row, whose
 * elements are contiguous. la_bthd and la_bhtd make packed views. Strides may be anything, 0 (the
 * row repeats) and negative included; for `out` they must keep its rows apart. No pointer needs
 * any alignment beyond a float's.
 *
 *     q             [B][T][Hq][dk]
 *     k, v          [B][S][Hk][dk], [B][S][H][dv]; H states a sequence, S = T unless bidirectional
 *     out           [B][T][max(H, Hq)][dv]
 *     log_decay     width 1 ([B][S][H], or [H] by la_per_head) or dk (a gate per channel; for
 *                   the identity and elu + 1); the natural logarithm, -inf .. 0
 *     beta          width 1 ([B][S][H]) or dv ([B][S][H][dv]), after the sigmoid, usually 0 .. 2;
 *                   absent = 1
 *     erase, a, b   [B][S][H][dk], of the rules that have them
 *     bonus         [H][dk], or [B][S][H][dk]; absent = 1
 *     skip          D, width 1 ([H] by la_per_head) or dv: D v_t is added to each output of its
 *                   state; absent = 0. Not for bidirectional layers
 *     out_gate      z, [B][T][max(H, Hq)][dv]: outputs, skip included, are multiplied by
 *                   z / (1 + exp(-z)); absent = none
 *     lengths       [B]: tokens of each sequence; rows beyond are neither read nor written
 *     offsets       [B + 1], instead: the sequences stand one after the other in one token axis of
 *                   call.tokens, sequence b being its tokens offsets[b] .. offsets[b + 1] - 1;
 *                   views have no batch then. Ascending; a sequence may be empty
 *
 * A gate of -inf multiplies by exactly 0 (a NaN in the state stays: IEEE rules). Positive gates
 * grow and NaN gates poison their head from that token on: neither is an error.
 *
 * ONNX. The operator LinearAttention of opset 27 is a layer and a call, of float32:
 *
 *     update_rule linear           LA_FWP; forbids decay and beta
 *     update_rule gated            LA_GLA; requires decay, forbids beta
 *     update_rule delta            LA_DELTANET; requires beta, forbids decay
 *     update_rule gated_delta      LA_KDA; requires both, and is the rule where none is named
 *     q_num_heads                  layer.q_heads, a multiple of
 *     kv_num_heads                 layer.heads = layer.k_heads
 *     scale                        layer.scale; where 0 or absent: 1 / sqrt(dk), not 1
 *     chunk_size                   a hint, without influence on results: leave call.chunk at 0
 *     query [B,T,Hq*dk]            call.q = la_bthd(query, T, Hq, dk)
 *     key [B,T,H*dk]               call.k = la_bthd(key, T, H, dk)
 *     value [B,T,H*dv]             call.v = la_bthd(value, T, H, dv)
 *     decay [B,T,H]                call.log_decay = la_bthd(decay, T, H, 1): logarithms there, too
 *     decay [B,T,H*dk]             call.log_decay = la_bthd(decay, T, H, dk)
 *     beta [B,T,H], after sigmoid  call.beta = la_bthd(beta, T, H, 1)
 *     beta [B,T,1]                 call.beta = la_bthd(beta, T, 1, 1), its head_stride = 0
 *     past_state [B,H,dk,dv]       call.state_in (absent: null), layer.state_layout LA_KV
 *     output [B,T,Hq*dv]           call.out = la_bthd_out(output, T, Hq, dv)
 *     present_state                call.state_out, like past_state
 *
 * An importer checks what its rule forbids and that beta is there; layer.decay_required = 1 has
 * la_check see to decay.
 *
 * BIDIRECTIONAL (layer.bidirectional, for normalised layers): all keys for all queries, in every
 * form alike. Decay, if any, runs along the keys, and every query reads the final state. call.keys
 * may differ from call.tokens, and key_lengths [B] says how many are there.
 * With keys = 0 it queries the state that state_in holds; k and v have their widths all the same.
 *
 * HEADS. Hk divides H; Hq divides H or is a multiple of it. State h uses key head floor(h Hk / H)
 * and query head floor(h Hq / H) (LA_GROUPED), or h mod Hk and h mod Hq (LA_TILED, as in ggml
 * files). With Hq > H several query heads read one state: query head j reads state floor(j H /
 * Hq), in both maps.
 *
 * SCALE multiplies q . k, alike in every form. It is 1 unless set: Qwen3-Next, Kimi, GLA and ONNX
 * use dk^-1/2, and there the caller sets layer.scale. L2 NORMALISATION of q and k (before scale)
 * is off unless set: LA_L2_SUM is x / sqrt(sum x^2 + l2_eps), LA_L2_MAX is x / max(|x|, l2_eps)
 * as in ggml.
 *
 * STATE. One per sequence: H heads, each S [r][dv] (LA_KV, the default) or [dv][r] (LA_VK, as in
 * ggml, Mamba and mlx files; the better one for decoding), then, where the layer is normalised,
 * z [r], then, for FAVOR+ with exponentials, the running maximum m that S and z are relative to
 * (they are exp(-m) times the plain sums; where z is all 0, m counts as -inf). la_state_floats says
 * how many floats that is, the strides of the call how far apart two sequences' states are;
 * la_state_convert turns one layout into the other. state_in null is an empty state, state_out null
 * discards it, and both may be the same buffer. slots_in and slots_out [B] make them pools:
 * sequence b continues state slots_in[b] and leaves state slots_out[b], negative meaning none. No
 * two sequences may write one slot, and in one pool none may read what another writes (beyond 1024
 * sequences that are not in ascending order, this is not checked).
 *
 * SNAPSHOTS, for callers who verify W draft tokens and keep j of them: the recurrent form leaves in
 * snapshots [B][snapshot_count = W + 1] the states before each of the last W tokens and after them:
 * snapshot j is the one that continues with j of them accepted, and not a bit differs from a call
 * that had only those. (A sequence of fewer than W tokens fills its last ones.) la_state_save and
 * la_state_load keep states as bytes, la_state_reset empties them.
 *
 * FORMS all compute the same; results agree to rounding, and any form continues any other.
 *
 *     LA_RECURRENT    token by token, the state in place; splitting a sequence over calls changes
 *                     no bit.
 *     LA_CHUNKWISE    chunk = 0: the fastest kernel, two tokens to a visit of the state (of DPLR,
 *                     which writes twice, one). chunk = C in 1 .. 1024: C tokens share one, all
 *                     C (C + 1) / 2 scores are formed.
 *     LA_PARALLEL     all tokens in one chunk: T^2 work, and a workspace that grows with T.
 *     LA_AUTO         the fastest, as measured: recurrent for a few tokens, parallel for short
 *                     inputs with no state to read, else chunkwise.
 *
 * A flop is a multiplication or an addition. Per token and head an additive rule needs 4 r dv, a
 * delta rule 6 r dv, DPLR 8 r dv, and 2 r dv more for each query head beyond the first; the
 * recurrent form needs r dv more for its decay. Projections add 4 m dk.
 * Inputs of many megabytes in pages of 4 KiB also wait for addresses to be translated: in huge
 * pages (madvise), RetNet with d = 128 and T = 8192 took a tenth less time on a virtual Zen 4.
 *
 * MEMORY. No heap: the caller brings a workspace of la_workspace_size bytes per thread. That of the
 * recurrent and chunkwise forms (and LA_AUTO) does not grow with batch or tokens. At most 4 KiB of
 * stack at -O2. Outputs may not overlap inputs, each other or the workspace, by the ranges of
 * addresses that they span, but for state_out == state_in.
 *
 * THREADS. The library owns none. A call with thread_count = n is made by n threads, each with its
 * own thread_index 0 .. n - 1 and its own workspace, all else alike; they need no order, no lock.
 * The unit of work is (sequence, head, block of value columns), so one head can occupy several
 * threads; for normalised layers it is (sequence, head).
 *
 *     #pragma omp parallel num_threads(n)
 *     { la_call mine = call; mine.thread_index = omp_get_thread_num(); mine.thread_count = n;
 *       mine.workspace = workspaces + mine.thread_index * size; la_forward(&layer, &mine); }
 *
 * la_forward_openmp is that, compiled in with -fopenmp. Different calls may run at the same time.
 *
 * ERRORS. Everything is checked before anything is written: an error means that nothing was.
 * la_check names the field. T = 0 is no error; it hands the state through (FAVOR+ with its maximum
 * as -inf where z is all 0).
 *
 * SIMD. Plain `cc -O2` builds the AVX2+FMA and AVX-512 kernels (x86) or the NEON kernels (aarch64)
 * next to the portable ones; the processor chooses at run time, call.isa can. Floating-point
 * control bits are the caller's and are never changed. No Arm machine was timed, and neither MSVC
 * nor Apple's tools were tried.
 *
 * NUMERICS. For any gate in [-inf, 0], as long as no magnitude exceeds 1e30, no denominator lies
 * in (0, 1e-30), and beta |f(k)|^2 <= 2 (delta rules; with an erase gate in 0 .. 1, |k| <= 1), a =
 * -kk and b = kk . lr with |kk| <= 1 and lr in 0 .. 1, or |a| |b| <= 0.4 (DPLR), |y|^2 <= 100
 * (FAVOR+) or |w_j| |x| <= 50 (Hedgehog, RFF), every form keeps, per sequence and head, |o - o64|
 * <= c max(|o64|, N) and |S - S64| <= c |S64|. o64 is a float64 recurrence on the same float32
 * inputs; c = 1e-6 sqrt(T), at least 6e-8 T where a gate lies in (-1e-5, 0), at least 5e-8
 * sqrt(r), and 5e-6 for projections; N, the size of the output without cancellation, is the root
 * of the sum over t of (scale |f(q_t)| |S_t| / denominator_t)^2 / r.
 *
 *   - Decays are products over the tokens between, never differences of sums: strong gates lose
 *     nothing of the weak ones behind them.
 *   - o_t does not depend, in any bit, on later tokens; nor on threads, other sequences, strides,
 *     alignment or what the buffers held before. (LA_AUTO and chunk = 0 may look at T.)
 *   - Decay per channel (and any decay of RWKV, DPLR and erase gates) with chunk = 0: what a
 *     channel keeps over two tokens counts as 0 below e^-71, which only a state of 1e10 and more
 *     would notice; no other form does that.
 *   - Numbers of a state below 1.2e-38 may count as 0, so that none lingers where arithmetic is
 *     slow. They do under gates > -0.7, at tokens whose key or value is all below 1e-18, and where
 *     another form than LA_RECURRENT is given them.
 *   - Delta rules with one key over and over and beta |k|^2 next to 2 reflect the state at it, and
 *     with it the rounding of k . k: c is at least 5e-7 T there.
 *   - A NaN or infinity reaches its own head, from its token on (bidirectional: all outputs of its
 *     sequence), and nothing else. An infinite entry of the state may become NaN.
 *   - A state that cancels to far less than its terms has their error, not its own; so has a
 *     denominator of features with signs (RFF), where it is far less than |f(q)| |z|.
 *   - Without decay, features that hardly change are added with the same rounding again and again
 *     (RFF with small angles, one key over and over): c is at least 3e-8 T there.
 *   - Where FAVOR+'s maximum grows past what a float resolves (positive gates beyond 80, |y|^2
 *     beyond 1e7) all of z may underflow: within a call such a state goes on, stored it is empty.
 *
 * SOFTMAX AND SIGMOID ATTENTION (LA_EXTRAS), for models that have them beside linear layers. The
 * weights of the keys j that a query sees, and its output:
 *
 *     s_j = scale q . k_j + logits_j
 *     LA_SOFTMAX   o = sum of w_j v_j,  w_j = exp(s_j) / sum of exp(s_i)     1706.03762, eq. 1
 *     LA_SIGMOID   o = sum of w_j v_j,  w_j = 1 / (1 + exp(-(s_j + bias)))   2409.04431
 *
 *     q             [B][T][Hq][dk]
 *     k, v          [B][S][Hkv][dk], [B][S][Hkv][dv]; Hkv divides Hq. Query head h reads head
 *                   floor(h Hkv / Hq) (LA_GROUPED) or h mod Hkv (LA_TILED)
 *     logits        [B][T][Hq][S]: a bias of positions, a mask of 0 and -inf; where dk = 0 all of
 *                   the logits, q and k being absent; or absent
 *     out           [B][T][Hq][dv]
 *     lse           [B][T][Hq]: ln of the sum of exp(s_j), LA_SOFTMAX only; absent = not wanted
 *     lengths       [B]: queries of each sequence
 *     key_lengths   [B]: its keys. Absent: S, but for causal layers with lengths S - T + length
 *     positions     [B]: of its first query among its keys; below 0 and beyond them, too. Absent:
 *                   the last query stands at the last key, which is right for a cache
 *
 * A query at position p sees the keys j <= p (bidirectional: all); with a window only those with
 * |p - j| < window, and the first `sinks` keys of the call (2309.17453). One that sees none, or
 * none but logits of -inf, gives 0, and lse = -inf. A logit of NaN gives NaN, and +inf, too, but
 * for LA_SIGMOID, where it is a weight of 1.
 *
 * A decode step over a cache [slots][Hkv][..] is a call of T = 1. With a window the cache is a ring
 * of sinks + window slots, in any order of its keys but for the sinks in front:
 *
 *     slot = la_attention_slot(&layer, position);         the token's k and v go there
 *     call.keys = la_attention_slots(&layer, position + 1);
 *
 * Keys in parts, on several machines or as they come: a call for each part, with positions relative
 * to its first key; la_attention_merge joins out and lse of two. A query's logits exist for 192
 * keys at a time, relative to the largest so far (1805.02867, 2205.14135): the workspace does not
 * grow with tokens or keys.
 *
 * Bits do not depend on threads, nor outputs on later keys; a NaN reaches only what sees it.
 * |o - o64| <= (2e-6 + 4e-7 m) sum of |w_j v_j|, m being the largest |scale| sum of |q_i k_ji| +
 * |logits_j|; lse is right to 2e-6 + 4e-7 m + 1e-7 |lse|. Measured are 1.5e-7 |o64| for normal q
 * and k. Weights below e^-87 of the largest one (LA_SIGMOID: of 1) count as 0. 2 (dk + dv) flops
 * and an exponential for each key that a query head sees. The unit of work is (sequence, head of
 * keys, 192 rows), heads that share keys being rows.
 *
 * INFINI-ATTENTION (la_infini_forward, LA_EXTRAS): softmax attention within segments of N
 * tokens, and a memory of what came before them. Per head and segment, with f = elu + 1, and M
 * [dk][dv] and z [dk] as they were before the segment:
 *
 *     o_t = g M^T f(q_t) / (z . f(q_t)) + (1 - g) softmax(scale q_t . k) v,    g = sigmoid(beta)
 *     M   = M + sum of f(k_t) v_t^T                                       LA_WRITE_ADD
 *     M   = M + sum of f(k_t) (v_t - M^T f(k_t) / (z . f(k_t)))^T         LA_WRITE_DELTA
 *     z   = z + sum of f(k_t)
 *
 * beta, [H] or [H][dv] and before the sigmoid, weighs the MEMORY: so in the paper and in its
 * users' code, though texts print it the other way round. 0 / 0 is 0: an empty memory says 0,
 * which is mixed in all the same. The z to begin with is the caller's (state_in; absent = 0), the
 * paper leaves it open: some begin with 1 / dk. Every call begins a segment and may end within
 * one, which then counts as whole: calls of whole segments are bit for bit one call. All else is
 * as for the layer `memory`, whose scale, eps and l2_mode act on the memory alone: it is asked for
 * scale M^T f / (scale z . f + eps), of normalised q and k. log_decay, skip and out_gate are
 * refused. What it says is right to (4e-6 + 1e-6 sqrt(T)) times the same of absolute values, the
 * softmax as above. LA_WRITE_DELTA has a workspace that grows with the segment. 4 dk dv flops per
 * token and head (delta: 6 dk dv), and the attention's. arXiv 2404.07143.
 *
 * LINFORMER (la_linformer_forward, LA_EXTRAS): attention to k rows that are made of all keys,
 *
 *     K' = E^T K [k][dk],   V' = F^T V [k][dv],   o_t = softmax(scale q_t . K') V'
 *
 * E and F are [n][k], the transposes of the paper's, the same for all heads or each key head's by
 * head_stride; F absent is E. Fewer keys than n use the first rows; more are LA_E_SIZE. Each row of
 * K' has a part of every key: there is no causal form (LA_E_DIRECTION) and no recurrence, and the
 * call has neither logits nor positions. Errors are at most twice those above, with |E|^T |K| and
 * |F|^T |V| as keys and values. 2 k (dk + dv) flops per key and as many per query. arXiv
 * 2006.04768.
 *
 * SYNTHESIZER (la_synthesizer_forward, LA_EXTRAS): o_t = softmax(A_t) v, with logits A [T][S]
 * that no key takes part in; x [B][T][H][dx] is the call's q.
 *
 *     LA_DENSE              A_t = W2 relu(W1 x_t + b1) + b2     w1 [rank1][dx], w2 [L][rank1]
 *     LA_FACTORISED_DENSE   A_ts = p_t[s mod a] r_t[s mod b],   w1 [a][dx], w2 [b][dx], a = rank1,
 *                           p = W1 x + b1, r = W2 x + b2        b = rank2
 *     LA_RANDOM             A = R                               w1 [L][L]
 *     LA_FACTORISED_RANDOM  A = R1 R2^T                         w1, w2 [L][rank1]
 *
 * Weights are the same for all heads (la_matrix) or each one's by head_stride; b1 is a row of
 * rank1, b2 one of L or of rank2. (How the two dense factors become L numbers the paper leaves
 * open: here both are repeated.) T <= S <= L, and the tokens are the last ones of the keys: with
 * lengths there are S - T + length of these, whatever the direction. attention.bidirectional = 0
 * masks what comes later; a recurrence there is none, the values of all tokens so far are needed.
 * attention.kind, window and sinks may be any, too; its scale is not used, kv_heads are q_heads,
 * and the call has no logits, positions or key_lengths. Errors are at most twice those above, m
 * being the largest sum that a logit is made of, in absolute terms. arXiv 2005.00743.
 *
 * RWKV-4 and HGRN (la_scan_forward, LA_EXTRAS) are recurrences of single channels:
 *
 *     o = (a + exp(bonus + k_t) v_t) / (b + exp(bonus + k_t)),                     LA_SCAN_RWKV4
 *         then a = exp(w_t) a + exp(k_t) v_t,   b = exp(w_t) b + exp(k_t)
 *     o = h = exp(w_t) h + v_t                                                     LA_SCAN_HGRN
 *
 * w = log_decay, -exp(time_decay) of RWKV-4's models, whose time_first is bonus; what they multiply
 * o by is the caller's. So is HGRN's v = (1 - exp(w)) silu(i). RWKV-4's state is [3][C], a and b
 * relative to exp(p), then p: the peers' aa, bb and pp. Where b is 0, p counts as -inf: zeros are
 * an empty state. Any k is stable: the result is that of the formula to 1e-6 sqrt(T) max |v|, at
 * least 6e-8 T max |v|, up to |k| = 8000; 0 / 0 is 0, and k = -inf is a token that says nothing.
 * Splitting a sequence over calls changes no bit. Two exponentials per channel and token, or one:
 * 2 ns and 0.7 ns with AVX2 on a shared virtual EPYC. arXiv 2305.13048, 2311.04823.
 *
 * OPTIONS, each to be defined before the include that has LA_IMPLEMENTATION; LA_STATIC in every
 * file that includes this one, LA_EXTRAS in every file that uses what it declares.
 *
 *     LA_IMPLEMENTATION    compile the implementation here; plain includes may come before or after
 *     LA_STATIC            all functions static: a private copy; one program can hold several
 *     LA_NO_SIMD           only the portable kernels; nothing is included twice
 *     LA_NO_FEATURES       without features other than the identity: of all maps only LA_MAPPED
 *     LA_NO_CHANNELS       without decay, erase gate or bonus per channel, and without DPLR
 *     LA_NO_CHUNKS         only the recurrent form, which LA_AUTO is then; nothing bidirectional
 *     LA_SELF              this file's name in quotes, for a renamed copy: it includes itself
 *     LA_EXTRAS            with softmax and sigmoid attention, Infini-attention, Linformer,
 *                          Synthesizer, RWKV-4 and HGRN
 *
 * What a build leaves out is answered by LA_E_UNSUPPORTED. The code of gcc 12 -O2 for x86-64 takes
 * 410 KB, LA_EXTRAS 65 KB more; 168 KB with LA_NO_SIMD, and 63 KB with all four.
 *
 * C++ compiles it as it is (C++11 and later), declarations being extern "C".
 */

#if defined(LAI_PASS) && LA_VERSION != 100 /* the file that is including itself was another one */
#error "linear_attention.h found another version of itself: see LA_SELF"
#endif

/* ================================================================================================
 * [LA-2] DECLARATIONS
 * ============================================================================================== */

#ifndef LA_H
#define LA_H

#include <stddef.h>
#include <stdint.h>

#define LA_VERSION 100 /* major * 10000 + minor * 100 + patch */

#ifndef LA_STATIC
#define LA_DEF extern
#elif defined(__GNUC__) || defined(__clang__)
#define LA_DEF static __attribute__((unused))
#else
#define LA_DEF static
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a call answers. 0 is success; an error means that nothing at all was written. */
typedef enum la_status {
    LA_OK = 0,
    LA_E_NULL = -1,         /* a required pointer is null                                        */
    LA_E_STRUCT = -2,       /* struct_size is not this version's: use the initialiser            */
    LA_E_VARIANT = -3,      /* no such variant, or no such axis                                  */
    LA_E_SIZE = -4,         /* a size is negative, zero where it may not be, or absurd           */
    LA_E_OVERFLOW = -5,     /* sizes or strides whose product does not fit the address space     */
    LA_E_HEADS = -6,        /* head counts that do not divide                                    */
    LA_E_SHAPE = -7,        /* a view's width does not fit the layer                             */
    LA_E_VALUE = -8,        /* a setting is out of its range: scale NaN, eps < 0, unknown choice */
    LA_E_TYPE = -9,         /* an element type that is not supported                             */
    LA_E_FORM = -10,        /* no such form                                                      */
    LA_E_CHUNK = -11,       /* chunk is outside 0 .. 1024                                        */
    LA_E_ISA = -12,         /* an instruction set that this build or this machine lacks          */
    LA_E_DECAY = -13,       /* this variant needs log_decay                                      */
    LA_E_OVERLAP = -14,     /* an output overlaps an input, another output or itself             */
    LA_E_WORKSPACE = -15,   /* the workspace is shorter than la_workspace_size                   */
    LA_E_THREADS = -16,     /* thread_index is outside 0 .. thread_count - 1                     */
    LA_E_DIRECTION = -17,   /* this layer exists only in the other direction, causal or not      */
    LA_E_UNSUPPORTED = -18, /* not part of this version, or left out of this build              */
    LA_E_BLOB = -19         /* not a saved state, cut short, or one of another layer            */
} la_status;

/* The presets: each is one setting of the axes below. */
typedef enum la_variant {
    LA_ELU = 1,
    LA_FAVOR,
    LA_COSFORMER,
    LA_RETNET,
    LA_LIGHTNING,
    LA_GLA,
    LA_DELTANET,
    LA_GATED_DELTANET,
    LA_KDA,
    LA_MAMBA2,
    LA_FWP,
    LA_RWKV6,
    LA_RWKV7,
    LA_GDN2,
    LA_DPFP,
    LA_BASED,
    LA_HEDGEHOG,
    LA_RFF,
    LA_MAPPED
} la_variant;

/* The axes and switches. The fields that hold them are plain int: any value can be checked. */
/* clang-format off */
enum { LA_FEATURE_IDENTITY = 0, LA_FEATURE_ELU1, LA_FEATURE_COSFORMER, LA_FEATURE_FAVOR,
       LA_FEATURE_DPFP, LA_FEATURE_TAYLOR, LA_FEATURE_HEDGEHOG, LA_FEATURE_RFF };
enum { LA_WRITE_ADD = 0, LA_WRITE_DELTA, LA_WRITE_DPLR };
enum { LA_READ_AFTER = 0, LA_READ_BEFORE };    /* the token's own decay and write */
enum { LA_GROUPED = 0, LA_TILED };             /* head map: floor(h Hk / H), or h mod Hk */
enum { LA_KV = 0, LA_VK };                     /* state layout: [dk][dv], or [dv][dk] */
enum { LA_EPS_ADD = 0, LA_EPS_MAX };           /* eps is added to the denominator, or bounds it */
enum { LA_L2_OFF = 0, LA_L2_SUM, LA_L2_MAX };  /* x / sqrt(|x|^2 + l2_eps), x / max(|x|, l2_eps) */
enum { LA_FAVOR_POSITIVE = 0, LA_FAVOR_HYPERBOLIC, LA_FAVOR_RELU };
enum { LA_HEDGEHOG_SPLIT = 0, LA_HEDGEHOG_JOINT, LA_HEDGEHOG_EXP };
enum { LA_AUTO = 0, LA_PARALLEL, LA_RECURRENT, LA_CHUNKWISE };
enum { LA_ISA_AUTO = 0, LA_ISA_SCALAR, LA_ISA_AVX2, LA_ISA_AVX512, LA_ISA_NEON };
enum { LA_GAUSSIAN = 0, LA_ORTHOGONAL, LA_ORTHOGONAL_SPHERE };
enum { LA_F32 = 0 };                           /* element type */
/* clang-format on */

/* What the layer IS. la_layer_init sets every field; change afterwards what differs. */
/* clang-format off */
typedef struct la_layer {
    size_t struct_size;
    int feature, write, normalised;
    int decay_required;       /* 1: a call without log_decay is an error */
    int bidirectional;        /* 1: all keys for all queries; 0: causal */
    int64_t heads;            /* H: of v, of the gates and of the state */
    int64_t q_heads, k_heads; /* Hq divides H or is a multiple of it; Hk divides H */
    int64_t dim_k, dim_v;
    int head_map, state_layout;
    float scale;              /* multiplies q . k; 1 */
    float eps;                /* of the denominator; 0 */
    int eps_mode;
    int l2_mode;
    float l2_eps;             /* 1e-6 */
    const float *projection;  /* FAVOR+, Hedgehog, RFF: [features][dk]; per head by the stride */
    int64_t projection_head_stride, features;
    int favor_kernel;
    float feature_eps;
    double horizon;           /* cosFormer: M */
    int read;
    const float *q_projection; /* of queries, where keys have another one; null: the same */
    int projection_bias;      /* 1: [features] biases behind each [features][dk]; not FAVOR+ */
    int hedgehog_kernel;
    int64_t nu;               /* DPFP: 1 */
} la_layer;
/* clang-format on */

/* A tensor: rows of `width` contiguous elements, and the strides, in elements, from row to row. */
typedef struct la_in {
    const float *data;
    int64_t batch_stride, token_stride, head_stride;
    int64_t width;
    int type;
} la_in;

typedef struct la_out {
    float *data;
    int64_t batch_stride, token_stride, head_stride;
    int64_t width;
    int type;
} la_out;

/* One forward over `batch` sequences. la_call_init sets every field; then fill in the tensors. */
/* clang-format off */
typedef struct la_call {
    size_t struct_size;
    int form, isa;
    int64_t chunk;                             /* of LA_CHUNKWISE: 0 = automatic, or 1 .. 1024 */
    int64_t thread_index, thread_count;        /* this call is slice thread_index of thread_count */
    int64_t batch, tokens, keys;               /* keys = tokens unless bidirectional */
    la_in q, k, v;
    la_in log_decay, beta;                     /* data null: absent */
    la_out out;
    const float *state_in;                     /* null: empty */
    float *state_out;                          /* null: discarded; may be state_in */
    int64_t state_in_stride, state_out_stride; /* floats from one sequence's state to the next's */
    const int64_t *lengths, *key_lengths;      /* [B]: of each sequence; null: all are full */
    const int64_t *positions;                  /* [B]: of the first token, cosFormer; null: 0 */
    const int64_t *offsets;                    /* [B + 1]: sequences in one packed token axis */
    const int64_t *slots_in, *slots_out;       /* [B]: which state of a pool; negative: none */
    float *snapshots;                          /* recurrent form: states along the way, or null */
    int64_t snapshot_count;                    /* for each sequence, la_state_floats apart */
    void *workspace;
    size_t workspace_size;
    la_in erase;                               /* of delta rules; data null: beta's */
    la_in bonus;                               /* of LA_READ_BEFORE; data null: 1 */
    la_in a, b;                                /* of LA_WRITE_DPLR */
    la_in skip;                                /* D, times v: added to out; data null: none */
    la_in out_gate;                            /* z: out is multiplied by z / (1 + exp(-z)) */
} la_call;
/* clang-format on */

/* What a call would run, and the least that it costs. */
/* clang-format off */
typedef struct la_plan {
    int form, isa;
    int64_t chunk;         /* tokens that share one visit of the state */
    const char *kernel;
    double flops;          /* the fewest of any form */
    double bytes;          /* of the inputs, the output and the states, each once */
    size_t workspace_size; /* per thread */
    int64_t units;         /* independent pieces of work */
} la_plan;
/* clang-format on */

/* Set every field for a variant: q_heads = k_heads = heads, scale 1, grouped heads, LA_KV, no L2,
 * nu 1. What cosFormer (horizon) and FAVOR+, Hedgehog and RFF (projection, features) need besides
 * is the caller's to set. Returns LA_E_VARIANT, LA_E_NULL, or what is wrong with the sizes, each
 * 1 .. 2^20; the struct is then one that every function refuses. The same goes for la_call_init. */
LA_DEF la_status la_layer_init(la_layer *layer, la_variant variant, int64_t heads, int64_t dim_k,
                               int64_t dim_v);

/* Set every field for `batch` >= 1 sequences of `tokens` >= 0: no tensors yet, LA_AUTO, one
 * thread, packed states. The layer is to be complete by then. */
LA_DEF la_status la_call_init(la_call *call, const la_layer *layer, int64_t batch, int64_t tokens);

/* Packed views: [B][T][H][width], [B][H][T][width]; [H] and [H][width], the same for every
 * token. */
LA_DEF la_in la_bthd(const float *data, int64_t tokens, int64_t heads, int64_t width);
LA_DEF la_in la_bhtd(const float *data, int64_t tokens, int64_t heads, int64_t width);
LA_DEF la_in la_per_head(const float *data);
LA_DEF la_in la_per_channel(const float *data, int64_t width);
LA_DEF la_out la_bthd_out(float *data, int64_t tokens, int64_t heads, int64_t width);
LA_DEF la_out la_bhtd_out(float *data, int64_t tokens, int64_t heads, int64_t width);

/* Floats of one sequence's state; 0 for a layer that la_check would refuse. */
LA_DEF size_t la_state_floats(const la_layer *layer);

/* Bytes of workspace for each thread of the call, at any alignment; 0 where la_check would
 * refuse. Needs the sizes, the form and the chunk, not the tensors. */
LA_DEF size_t la_workspace_size(const la_layer *layer, const la_call *call);

/* What la_forward would answer, without doing it; *field (where not null) names what is wrong. */
LA_DEF la_status la_check(const la_layer *layer, const la_call *call, const char **field);

/* Run the call, or its slice. Writes out and state_out, and the workspace. */
LA_DEF la_status la_forward(const la_layer *layer, const la_call *call);

#ifdef _OPENMP
/* All thread_count slices at once; the workspace holds thread_count times la_workspace_size. */
LA_DEF la_status la_forward_openmp(const la_layer *layer, const la_call *call);
#endif

/* What would run, for a sequence of call.tokens. Needs no tensors. */
LA_DEF la_status la_describe(const la_layer *layer, const la_call *call, la_plan *plan);

/* `count` packed states from one layout to another; `to` may not overlap `from`. */
LA_DEF la_status la_state_convert(const la_layer *layer, int64_t count, int from_layout,
                                  const float *from, int to_layout, float *to);

/* `count` packed states emptied, whatever they held: by clearing, since 0 * NaN is NaN. */
LA_DEF la_status la_state_reset(const la_layer *layer, int64_t count, float *states);

/* `count` packed states to bytes and back, the same on every machine: 64 bytes that say what they
 * are (magic, version, rule, sizes, layout), then the floats, all little-endian. A blob that is
 * anything else, of another layer, or short, is LA_E_BLOB, and nothing is written; so is a buffer
 * of less than la_state_blob_size bytes. That is 0 where la_check would refuse the layer. */
LA_DEF size_t la_state_blob_size(const la_layer *layer, int64_t count);
LA_DEF la_status la_state_save(const la_layer *layer, int64_t count, const float *states,
                               void *blob, size_t size);
LA_DEF la_status la_state_load(const la_layer *layer, int64_t count, const void *blob, size_t size,
                               float *states);

/* RetNet's gates: log_decay[h] = ln(1 - 2^(-5-h)), eq. 8 of 2307.08621. */
LA_DEF la_status la_retnet_log_decay(float *log_decay, int64_t heads);

/* Lightning's gates, for heads first .. first + count - 1 of `heads`: log_decay = -slope factor,
 * with the ALiBi slopes 2^(-8 (h + 1) / heads) (where `heads` is no power of two: those of the
 * power below, then every other one of the power above), and MiniMax-01's factor 1 - layer /
 * (layers - 1) + 1e-5 for the 0-based layer, or 1 where layers <= 1. arXiv 2401.04658,
 * 2501.08313. */
LA_DEF la_status la_lightning_log_decay(float *log_decay, int64_t count, int64_t first,
                                        int64_t heads, int64_t layer, int64_t layers);

/* FAVOR+'s projection [features][dim_k]: rows of normal numbers, independent (LA_GAUSSIAN) or
 * orthogonal in blocks of dim_k rows, each with the length of an independent normal row
 * (LA_ORTHOGONAL) or sqrt(dim_k) (LA_ORTHOGONAL_SPHERE). The generator is splitmix64 from `seed`;
 * a uniform number is the upper 53 bits, plus 1/2, times 2^-53, the same on every platform; two
 * of them make two normal numbers by Box and Muller (cosine first) in double; each row begins with
 * a new pair. Orthogonal rows are such rows orthogonalised one after the other; their lengths are
 * those of a further dim_k normal numbers each. arXiv 2009.14794, section 3. */
LA_DEF la_status la_favor_projection(float *projection, int64_t features, int64_t dim_k, int kind,
                                     uint64_t seed);

/* Gates of Gated DeltaNet from what a model computes, for `rows` x `heads`:
 *     log_decay[i][h] = -exp(A_log[h]) softplus(a[i][h] + dt_bias[h])
 * taken in logarithms: right for any finite input. log_decay may be a. */
LA_DEF la_status la_gate_log_decay(float *log_decay, const float *a, const float *A_log,
                                   const float *dt_bias, int64_t rows, int64_t heads);

/* Gates of KDA, for `rows` x `heads` x `dim_k`, A_log being [heads] and dt_bias [heads][dim_k]:
 *     lower_bound = 0: log_decay[i][h][c] = -exp(A_log[h]) softplus(a[i][h][c] + dt_bias[h][c])
 *     lower_bound < 0: lower_bound / (1 + exp(-exp(A_log[h]) (a[i][h][c] + dt_bias[h][c])))
 * The second one lies in lower_bound .. 0; flash-linear-attention has -5 there. Right for any
 * finite input; log_decay may be a. LA_E_VALUE: a lower_bound above 0 or not finite. arXiv
 * 2510.26692. */
LA_DEF la_status la_kda_log_decay(float *log_decay, const float *a, const float *A_log,
                                  const float *dt_bias, float lower_bound, int64_t rows,
                                  int64_t heads, int64_t dim_k);

/* Steps and gates of Mamba-2, for `rows` x `heads`:
 *     dt[i][h] = softplus(a[i][h] + dt_bias[h]), then at least dt_min and at most dt_max
 *     log_decay[i][h] = -exp(A_log[h]) dt[i][h]
 * dt is the layer's beta. dt_min = 0 and dt_max = 0 (or infinity) set no limit. Right for any
 * finite input; either output may be a, but not both. LA_E_VALUE: limits below 0, a NaN, or dt_min
 * > dt_max; LA_E_OVERLAP: dt == log_decay. arXiv 2405.21060. */
LA_DEF la_status la_mamba2_gates(float *dt, float *log_decay, const float *a, const float *A_log,
                                 const float *dt_bias, float dt_min, float dt_max, int64_t rows,
                                 int64_t heads);

/* RWKV's gates, of RWKV-6 and 7, from the raw w that their kernels take: log_decay[i] =
 * -exp(w[i]). log_decay may be w. arXiv 2404.05892, 2503.14456. */
LA_DEF la_status la_rwkv_log_decay(float *log_decay, const float *w, int64_t count);

/* y = 1 / (1 + exp(-x)), for beta; y may be x. */
LA_DEF la_status la_sigmoid(float *y, const float *x, int64_t count);

LA_DEF const char *la_status_text(la_status status);
LA_DEF const char *la_variant_name(la_variant variant); /* "retnet"; null where unknown */
LA_DEF la_status la_variant_find(const char *name, la_variant *variant);
LA_DEF int la_isa_available(int isa);    /* can this build, on this processor, run it? */
LA_DEF const char *la_isa_name(int isa); /* "avx2"; null where unknown */

#ifdef __cplusplus
}
#endif
#endif /* LA_H */

/* ---- extras: what an engine needs beside the linear layers ----------------------------------- */

#if defined(LA_EXTRAS) && !defined(LA_EXTRAS_H)
#define LA_EXTRAS_H

#ifdef __cplusplus
extern "C" {
#endif

enum { LA_SOFTMAX = 0, LA_SIGMOID }; /* kinds of attention */
enum { LA_DENSE = 0, LA_FACTORISED_DENSE, LA_RANDOM, LA_FACTORISED_RANDOM }; /* of Synthesizers */
enum { LA_SCAN_RWKV4 = 0, LA_SCAN_HGRN };

/* Initialisers set every field; change what differs, and fill in the tensors. As with
 * la_layer_init, a struct that got an error is one that every function refuses. */
/* clang-format off */

/* What an attention layer IS. */
typedef struct la_attention {
    size_t struct_size;
    int kind;
    int bidirectional;         /* 1: all keys for all queries; 0: causal */
    int64_t q_heads, kv_heads; /* Hq, a multiple of Hkv */
    int64_t dim_k, dim_v;      /* dim_k = 0: logits are given, and there are no q and k */
    int64_t window;            /* the keys that a query sees, its own included; 0: all */
    int64_t sinks;             /* the first keys, which stay visible outside the window */
    int head_map;
    float scale;               /* multiplies q . k; dk^-1/2 */
    float bias;                /* LA_SIGMOID: added to each logit; 0 */
} la_attention;

/* One forward over `batch` sequences. */
typedef struct la_attention_call {
    size_t struct_size;
    int isa;
    int64_t thread_index, thread_count;
    int64_t batch, tokens, keys;
    la_in q, k, v;
    la_in logits;                         /* added to scale q . k; data null: absent */
    la_out out;
    la_out lse;                           /* ln of each query's sum; data null: not wanted */
    const int64_t *lengths, *key_lengths; /* [B]: of each sequence; null: all are full */
    const int64_t *positions;             /* [B]: of the first query among the keys */
    void *workspace;
    size_t workspace_size;
} la_attention_call;

/* What an Infini-attention layer IS. */
typedef struct la_infini {
    size_t struct_size;
    la_layer memory;   /* LA_ELU: its heads, sizes, eps and state are the layer's */
    int64_t segment;   /* tokens of a segment; the last one of a call may be shorter */
    int write;         /* LA_WRITE_ADD, or LA_WRITE_DELTA */
    int bidirectional; /* 1: the softmax sees all of the segment; 0: causal */
    float scale;       /* of the softmax; dk^-1/2 */
} la_infini;

/* What a Linformer layer IS. */
typedef struct la_linformer {
    size_t struct_size;
    la_attention attention; /* LA_SOFTMAX, and only bidirectional */
    int64_t length, rank;   /* n, the most keys; and k, the rows that become of them */
    la_in E, F;             /* [n][k]: la_matrix; F.data null: E, too */
} la_linformer;

/* What a Synthesizer layer IS; the manual says what w1 .. b2 are in each kind. */
typedef struct la_synthesizer {
    size_t struct_size;
    int kind;
    la_attention attention; /* its dim_k: the width of x, which is q; 0 of random kinds */
    int64_t length;         /* L: the most keys */
    int64_t rank1, rank2;
    la_in w1, b1, w2, b2;   /* la_matrix, or for each head; b1.data, b2.data null: 0 */
} la_synthesizer;

/* One pass of an element-wise recurrence over `batch` sequences. */
typedef struct la_scan {
    size_t struct_size;
    int kind, isa;
    int64_t thread_index, thread_count;
    int64_t batch, tokens, channels;
    la_in k, v;             /* [B][T][C], as la_bthd(v, T, 1, C); HGRN has no k */
    la_in log_decay;        /* [B][T][C], or [C] by la_per_channel */
    const float *bonus;     /* [C]; HGRN has none */
    la_out out;
    const float *state_in;  /* [B][3][C] of RWKV-4, [B][C] of HGRN; null: empty */
    float *state_out;       /* null: discarded; may be state_in */
    const int64_t *lengths; /* [B]; null: all are full */
} la_scan;
/* clang-format on */

/* A layer: causal, q_heads = kv_heads = heads, grouped heads, no window. dim_k may be 0. And a
 * call of `batch` >= 1 sequences of `tokens` >= 0 and as many keys, one thread. The layer is to be
 * complete by then. */
LA_DEF la_status la_attention_init(la_attention *layer, int kind, int64_t heads, int64_t dim_k,
                                   int64_t dim_v);
LA_DEF la_status la_attention_call_init(la_attention_call *call, const la_attention *layer,
                                        int64_t batch, int64_t tokens);

/* As la_workspace_size, la_check and la_forward. The workspace grows with dim_k and dim_v alone;
 * a forward writes out, lse and the workspace. */
LA_DEF size_t la_attention_workspace_size(const la_attention *layer, const la_attention_call *call);
LA_DEF la_status la_attention_check(const la_attention *layer, const la_attention_call *call,
                                    const char **field);
LA_DEF la_status la_attention_forward(const la_attention *layer, const la_attention_call *call);

/* Two results of LA_SOFTMAX for the same queries and different keys become one, in the first:
 *     lse = ln(e^lse + e^more_lse),   out = out e^(lse before - lse) + more_out e^(more_lse - lse)
 * for packed rows, out [rows][dim_v] and lse [rows]. (Results of LA_SIGMOID are added up.) */
LA_DEF la_status la_attention_merge(float *out, float *lse, const float *more_out,
                                    const float *more_lse, int64_t rows, int64_t dim_v);

/* A cache that keeps what a layer with a window still sees, in sinks + window slots: the slot for
 * the token at `position`, and how many slots are filled after `tokens` tokens. Without a window
 * every token has its own. -1 where an argument, the window or the sinks are negative. */
LA_DEF int64_t la_attention_slot(const la_attention *layer, int64_t position);
LA_DEF int64_t la_attention_slots(const la_attention *layer, int64_t tokens);

/* Rows of `width` one after the other, the same for every sequence and head. */
LA_DEF la_in la_matrix(const float *data, int64_t width);

/* Calls are those of the memory: la_call_init(&call, &infini.memory, ..), with beta the logits of
 * the memory's share, [H] by la_per_head or [H][dv] by la_per_channel, and form left alone. */
LA_DEF la_status la_infini_init(la_infini *infini, int64_t heads, int64_t dim_k, int64_t dim_v,
                                int64_t segment);
LA_DEF size_t la_infini_workspace_size(const la_infini *infini, const la_call *call);
LA_DEF la_status la_infini_check(const la_infini *infini, const la_call *call, const char **field);
LA_DEF la_status la_infini_forward(const la_infini *infini, const la_call *call);

/* Calls are those of the attention: la_attention_call_init(&call, &layer.attention, ..). */
LA_DEF la_status la_linformer_init(la_linformer *layer, int64_t heads, int64_t dim_k, int64_t dim_v,
                                   int64_t length, int64_t rank);
LA_DEF size_t la_linformer_workspace_size(const la_linformer *layer, const la_attention_call *call);
LA_DEF la_status la_linformer_check(const la_linformer *layer, const la_attention_call *call,
                                    const char **field);
LA_DEF la_status la_linformer_forward(const la_linformer *layer, const la_attention_call *call);

/* The same, with x as q, and no k. */
LA_DEF la_status la_synthesizer_init(la_synthesizer *layer, int kind, int64_t heads, int64_t dim_x,
                                     int64_t dim_v, int64_t length, int64_t rank1, int64_t rank2);
LA_DEF size_t la_synthesizer_workspace_size(const la_synthesizer *layer,
                                            const la_attention_call *call);
LA_DEF la_status la_synthesizer_check(const la_synthesizer *layer, const la_attention_call *call,
                                      const char **field);
LA_DEF la_status la_synthesizer_forward(const la_synthesizer *layer, const la_attention_call *call);

LA_DEF la_status la_scan_init(la_scan *scan, int kind, int64_t batch, int64_t tokens,
                              int64_t channels);
LA_DEF la_status la_scan_check(const la_scan *scan, const char **field);
LA_DEF la_status la_scan_forward(const la_scan *scan);

#ifdef __cplusplus
}
#endif
#endif /* LA_EXTRAS */

/* ================================================================================================
 * [LA-3] IMPLEMENTATION
 * ============================================================================================== */

#if defined(LA_IMPLEMENTATION) && !defined(LAI_PASS) && !defined(LAI_IMPLEMENTED)
#define LAI_IMPLEMENTED

#include <math.h>
#include <string.h>

#if !defined(LA_NO_SIMD) && (defined(__GNUC__) || defined(__clang__)) &&                           \
    (defined(__x86_64__) || defined(__i386__)) && !defined(__MINGW32__)
#define LAI_HAS_AVX2 1
#include <cpuid.h>
#if !defined(__clang__) /* gcc 12 warns of its own AVX-512 header */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#else
#define LAI_HAS_AVX2 0
#endif

#if !defined(LA_NO_SIMD) && (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__) &&   \
    defined(__ARM_NEON)
#define LAI_HAS_NEON 1
#include <arm_neon.h>
#else
#define LAI_HAS_NEON 0
#endif

/* What is left out: conditions that are never true, so that compilers drop what is behind them. */
#ifdef LA_NO_FEATURES
#define LAI_HAS_FEATURES 0
#else
#define LAI_HAS_FEATURES 1
#endif
#ifdef LA_NO_CHANNELS
#define LAI_HAS_CHANNELS 0
#else
#define LAI_HAS_CHANNELS 1
#endif
#ifdef LA_NO_CHUNKS
#define LAI_HAS_CHUNKS 0
#else
#define LAI_HAS_CHUNKS 1
#endif

#if defined(__GNUC__) || defined(__clang__)
#define LAI_INLINE            static inline __attribute__((always_inline))
#define LAI_NOINLINE          static __attribute__((noinline))
#define LAI_LIKELY(x)         __builtin_expect(!!(x), 1)
#define LAI_PREFETCH(p)       __builtin_prefetch(p)
#define LAI_PREFETCH_L2(p)    __builtin_prefetch(p, 0, 2)
#define LAI_PREFETCH_WRITE(p) __builtin_prefetch(p, 1)
#else
#define LAI_INLINE            static inline
#define LAI_NOINLINE          static
#define LAI_LIKELY(x)         (x)
#define LAI_PREFETCH(p)       ((void)(p))
#define LAI_PREFETCH_L2(p)    ((void)(p))
#define LAI_PREFETCH_WRITE(p) ((void)(p))
#endif

/* vectors of the compiler's own; x86 without SSE has no registers for them, and gcc says so */
#if (defined(__GNUC__) || defined(__clang__)) && (!defined(__i386__) || defined(__SSE__))
#define LAI_HAS_VECTORS 1
#else
#define LAI_HAS_VECTORS 0
#endif

#define LAI_PASTE2(a, b) lai_##a##_##b
#define LAI_PASTE(a, b)  LAI_PASTE2(a, b)
#define LAI_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define LAI_MAX(a, b)    ((a) > (b) ? (a) : (b))
#define LAI_RING         16 /* pairs prepared at once */
#define LAI_SLOT(p)      ((p) & (LAI_RING - 1))
#define LAI_STAGE(p)     ((p) & (2 * LAI_RING - 1)) /* decays are known a ring earlier */
#define LAI_SOON         8 /* tokens from a pair to the one whose v and out are asked for with it */
#define LAI_TOKENS       16 /* tokens prepared at once by the other forms */
#define LAI_TILE         6  /* rows of a tile */
#define LAI_FEW          2  /* tokens of a decode step, which reads its states once */
#define LAI_ALIGN        64 /* of the workspace's own start */
#define LAI_ROUND16(n)   (((n) + 15) / 16 * 16)
#define LAI_ROUND8(n)    (((n) + 7) / 8 * 8)

/* f(first) .. f(first + 3) */
#define LAI_UNROLL4(i, first, f)                                                                   \
    do {                                                                                           \
        (void)(i);                                                                                 \
        f(first);                                                                                  \
        f((first) + 1);                                                                            \
        f((first) + 2);                                                                            \
        f((first) + 3);                                                                            \
    } while (0)
#define LAI_LOOP4(i, first, f)                                                                     \
    for ((i) = (first); (i) < (first) + 4; ++(i)) f(i)

/* x * y + z in the scalar pass: one rounding where the target has the instruction, two where it has
 * not. Either way there is nothing left for a compiler to contract. */
#if defined(FP_FAST_FMAF) || defined(__FP_FAST_FMAF) || defined(__FMA__) ||                        \
    defined(__ARM_FEATURE_FMA) || defined(__aarch64__)
#define LAI_HAS_FMA       1
#define LAI_MADD(x, y, z) fmaf(x, y, z)
#else
#define LAI_HAS_FMA       0
#define LAI_MADD(x, y, z) ((x) * (y) + (z))
#endif

/* ---- the table of variants ------------------------------------------------------------------- */

/* clang-format off */
typedef struct lai_preset {
    const char *name;
    int feature, write, normalised, decay_required, read;
} lai_preset;

static const lai_preset lai_presets[] = {
    /* name            feature               write           normalised  decay required  read */
    {"elu",            LA_FEATURE_ELU1,      LA_WRITE_ADD,   1, 0, LA_READ_AFTER},
    {"favor",          LA_FEATURE_FAVOR,     LA_WRITE_ADD,   1, 0, LA_READ_AFTER},
    {"cosformer",      LA_FEATURE_COSFORMER, LA_WRITE_ADD,   1, 0, LA_READ_AFTER},
    {"retnet",         LA_FEATURE_IDENTITY,  LA_WRITE_ADD,   0, 1, LA_READ_AFTER},
    {"lightning",      LA_FEATURE_IDENTITY,  LA_WRITE_ADD,   0, 1, LA_READ_AFTER},
    {"gla",            LA_FEATURE_IDENTITY,  LA_WRITE_ADD,   0, 0, LA_READ_AFTER},
    {"deltanet",       LA_FEATURE_IDENTITY,  LA_WRITE_DELTA, 0, 0, LA_READ_AFTER},
    {"gated-deltanet", LA_FEATURE_IDENTITY,  LA_WRITE_DELTA, 0, 0, LA_READ_AFTER},
    {"kda",            LA_FEATURE_IDENTITY,  LA_WRITE_DELTA, 0, 0, LA_READ_AFTER},
    {"mamba2",         LA_FEATURE_IDENTITY,  LA_WRITE_ADD,   0, 0, LA_READ_AFTER},
    {"fwp",            LA_FEATURE_IDENTITY,  LA_WRITE_ADD,   0, 0, LA_READ_AFTER},
    {"rwkv6",          LA_FEATURE_IDENTITY,  LA_WRITE_ADD,   0, 0, LA_READ_BEFORE},
    {"rwkv7",          LA_FEATURE_IDENTITY,  LA_WRITE_DPLR,  0, 0, LA_READ_AFTER},
    {"gdn2",           LA_FEATURE_IDENTITY,  LA_WRITE_DELTA, 0, 0, LA_READ_AFTER},
    {"dpfp",           LA_FEATURE_DPFP,      LA_WRITE_DELTA, 0, 0, LA_READ_AFTER},
    {"based",          LA_FEATURE_TAYLOR,    LA_WRITE_ADD,   1, 0, LA_READ_AFTER},
    {"hedgehog",       LA_FEATURE_HEDGEHOG,  LA_WRITE_ADD,   1, 0, LA_READ_AFTER},
    {"rff",            LA_FEATURE_RFF,       LA_WRITE_ADD,   1, 0, LA_READ_AFTER},
    {"mapped",         LA_FEATURE_IDENTITY,  LA_WRITE_ADD,   1, 0, LA_READ_AFTER},
};
/* clang-format on */
enum { LAI_PRESETS = sizeof lai_presets / sizeof *lai_presets };

static const lai_preset *lai_find_preset(int variant) {
    return variant >= 1 && variant <= (int)LAI_PRESETS ? &lai_presets[variant - 1] : NULL;
}

static const struct {
    la_status status;
    const char *text;
} lai_texts[] = {
    {LA_OK, "success"},
    {LA_E_NULL, "a required pointer is null"},
    {LA_E_STRUCT, "struct_size is not this version's: use the initialiser"},
    {LA_E_VARIANT, "no such variant, or no such axis"},
    {LA_E_SIZE, "a size is negative, zero where it may not be, or absurd"},
    {LA_E_OVERFLOW, "sizes or strides whose product does not fit the address space"},
    {LA_E_HEADS, "head counts that do not divide"},
    {LA_E_SHAPE, "a view's width does not fit the layer"},
    {LA_E_VALUE, "a setting is out of its range"},
    {LA_E_TYPE, "an element type that is not supported"},
    {LA_E_FORM, "no such form"},
    {LA_E_CHUNK, "chunk is outside 0 .. 1024"},
    {LA_E_ISA, "an instruction set that this build or this machine lacks"},
    {LA_E_DECAY, "this variant needs log_decay"},
    {LA_E_OVERLAP, "an output overlaps an input, another output or itself"},
    {LA_E_WORKSPACE, "the workspace is shorter than la_workspace_size"},
    {LA_E_THREADS, "thread_index is outside 0 .. thread_count - 1"},
    {LA_E_DIRECTION, "this layer exists only in the other direction, causal or not"},
    {LA_E_UNSUPPORTED, "not part of this version, or left out of this build"},
    {LA_E_BLOB, "not a saved state, cut short, or one of another layer"},
};

/* ---- sizes ----------------------------------------------------------------------------------- */

#define LAI_MAX_DIM    ((int64_t)1 << 20)
#define LAI_MAX_COUNT  ((int64_t)1 << 48)
#define LAI_MAX_PAIRED 1024 /* sequences whose slots are compared with each other */

/* a * b + c for numbers that are not negative; -1 where that is no int64_t, or an operand is -1 */
static int64_t lai_muladd(int64_t a, int64_t b, int64_t c) {
#if defined(__GNUC__) || defined(__clang__) /* a division takes longer than the rest of a check */
    int64_t product, sum;
    const int over = __builtin_mul_overflow(a, b, &product);
    if (a < 0 || b < 0 || c < 0 || over || __builtin_add_overflow(product, c, &sum)) return -1;
    return sum;
#else
    if (a < 0 || b < 0 || c < 0 || (b > 0 && a > (INT64_MAX - c) / b)) return -1;
    return a * b + c;
#endif
}

static int64_t lai_abs(int64_t a) {
    return a >= 0 ? a : a == INT64_MIN ? INT64_MAX : -a;
}

/* rows of the state: the features of one key */
static int64_t lai_features(const la_layer *layer) {
    const int64_t n = layer->dim_k, m = layer->features;
    switch (layer->feature) {
    case LA_FEATURE_COSFORMER: return 2 * n;
    case LA_FEATURE_FAVOR: return layer->favor_kernel == LA_FAVOR_HYPERBOLIC ? 2 * m : m;
    case LA_FEATURE_DPFP: return 2 * n * layer->nu;
    case LA_FEATURE_TAYLOR: return 1 + n + n * (n + 1) / 2;
    case LA_FEATURE_HEDGEHOG:
    case LA_FEATURE_RFF: return 2 * m;
    default: return n;
    }
}

/* are features functions of W x, for a matrix W that the layer brings? */
static int lai_projects(const la_layer *layer) {
    return layer->feature == LA_FEATURE_FAVOR || layer->feature == LA_FEATURE_HEDGEHOG ||
           layer->feature == LA_FEATURE_RFF;
}

/* is the scale part of the features, those of sqrt(scale) x? */
static int lai_scales_inputs(const la_layer *layer) {
    return layer->feature == LA_FEATURE_FAVOR || layer->feature == LA_FEATURE_TAYLOR ||
           layer->feature == LA_FEATURE_RFF;
}

/* are features key channels, which numbers per channel can act on? */
static int lai_has_channels(const la_layer *layer) {
    return LAI_HAS_CHANNELS &&
           (layer->feature == LA_FEATURE_IDENTITY || layer->feature == LA_FEATURE_ELU1);
}

/* numbers of one head's projection */
static int64_t lai_projection_floats(const la_layer *layer) {
    return layer->features * (layer->dim_k + layer->projection_bias);
}

/* are features anything but q and k as they are? */
static int lai_maps(const la_layer *layer) {
    return layer->feature != LA_FEATURE_IDENTITY || layer->l2_mode != LA_L2_OFF;
}

static int lai_has_maximum(const la_layer *layer) {
    return LAI_HAS_FEATURES && layer->feature == LA_FEATURE_FAVOR &&
           layer->favor_kernel != LA_FAVOR_RELU;
}

/* floats of one head's state: S, then z and the maximum where the layer has them */
static int64_t lai_head_floats(const la_layer *layer) {
    const int64_t features = lai_features(layer);
    const int64_t more = layer->normalised ? features + lai_has_maximum(layer) : 0;
    return lai_muladd(features, layer->dim_v, more);
}

static int64_t lai_queries(const la_layer *layer) /* query heads per state */
{
    return layer->q_heads > layer->heads ? layer->q_heads / layer->heads : 1;
}
static int64_t lai_out_heads(const la_layer *layer) {
    return LAI_MAX(layer->heads, layer->q_heads);
}

/* outer products that a token adds to the state: b e^T comes before k u^T */
static int64_t lai_writes(const la_layer *layer) {
    return layer->write == LA_WRITE_DPLR ? 2 : 1;
}

/* ---- checks: each answers a status and, where it is not LA_OK, names the field --------------- */

typedef struct lai_check {
    la_status status;
    const char *field;
} lai_check;

static int lai_fail(lai_check *c, int bad, la_status status, const char *field) {
    if (bad && c->status == LA_OK) {
        c->status = status;
        c->field = field;
    }
    return c->status != LA_OK;
}

/* Is it there, and this version's? Each struct begins with its size. */
static int lai_check_struct(lai_check *c, const void *x, size_t size, const char *name,
                            const char *size_name) {
    return !lai_fail(c, !x, LA_E_NULL, name) &&
           !lai_fail(c, *(const size_t *)x != size, LA_E_STRUCT, size_name);
}
#define LAI_CHECK_STRUCT(c, x, name) lai_check_struct(c, x, sizeof *(x), name, name ".struct_size")

static void lai_check_size(lai_check *c, int64_t n, int64_t least, int64_t most,
                           const char *field) {
    lai_fail(c, n < least || n > most, LA_E_SIZE, field);
}
static void lai_check_choice(lai_check *c, int value, int count, la_status status,
                             const char *field) {
    lai_fail(c, value < 0 || value >= count, status, field);
}
/* by its bits: -ffast-math lets compilers assume that there is no NaN */
static int lai_is_finite(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits >> 52 & 0x7ff) != 0x7ff;
}
static void lai_check_number(lai_check *c, float x, int negative_too, const char *field) {
    lai_fail(c, !lai_is_finite((double)x) || (!negative_too && x < 0.0f), LA_E_VALUE, field);
}

static void lai_check_sizes(lai_check *c, const la_layer *l) {
    lai_check_size(c, l->heads, 1, LAI_MAX_DIM, "heads");
    lai_check_size(c, l->q_heads, 1, LAI_MAX_DIM, "q_heads");
    lai_check_size(c, l->k_heads, 1, LAI_MAX_DIM, "k_heads");
    lai_check_size(c, l->dim_k, 1, LAI_MAX_DIM, "dim_k");
    lai_check_size(c, l->dim_v, 1, LAI_MAX_DIM, "dim_v");
    lai_fail(c, l->heads > 0 && lai_muladd(l->dim_k, l->dim_v, 0) > PTRDIFF_MAX / 16 / l->heads,
             LA_E_OVERFLOW, "dim_v");
}

static void lai_check_projection(lai_check *c, const la_layer *l) {
    lai_check_size(c, l->features, 1, LAI_MAX_DIM, "features");
    lai_fail(c, !l->projection, LA_E_NULL, "projection");
    lai_check_choice(c, l->projection_bias, 2, LA_E_VALUE, "projection_bias");
    lai_fail(c, l->projection_bias && l->feature == LA_FEATURE_FAVOR, LA_E_UNSUPPORTED,
             "projection_bias");
    lai_check_number(c, l->feature_eps, 0, "feature_eps");
}

static void lai_check_features(lai_check *c, const la_layer *l) {
    if (l->feature == LA_FEATURE_COSFORMER)
        lai_fail(c, !lai_is_finite(l->horizon) || !(l->horizon > 0.0 && l->horizon <= 1e15),
                 LA_E_VALUE, "horizon");
    if (l->feature == LA_FEATURE_DPFP) lai_check_size(c, l->nu, 1, LAI_MAX_DIM, "nu");
    if (lai_projects(l)) lai_check_projection(c, l);
    lai_fail(c, lai_scales_inputs(l) && l->scale < 0.0f, LA_E_VALUE, "scale"); /* of its root */
    lai_fail(c, l->feature == LA_FEATURE_FAVOR && !l->normalised, LA_E_UNSUPPORTED, "normalised");
    lai_fail(c, c->status == LA_OK && lai_features(l) > 2 * LAI_MAX_DIM, LA_E_SIZE,
             l->feature == LA_FEATURE_DPFP ? "nu" : "dim_k");
}

/* what has numbers per key channel beside the keys, and a layer that reads first */
static void lai_check_read(lai_check *c, const la_layer *l) {
    const int plain = l->feature == LA_FEATURE_IDENTITY && l->write == LA_WRITE_ADD;
    lai_fail(c, l->write == LA_WRITE_DPLR && !LAI_HAS_CHANNELS, LA_E_UNSUPPORTED, "write");
    lai_fail(c, l->read == LA_READ_BEFORE && (!LAI_HAS_CHANNELS || !plain || l->normalised),
             LA_E_UNSUPPORTED, "read");
}

static void lai_check_layer(lai_check *c, const la_layer *l) {
    if (!LAI_CHECK_STRUCT(c, l, "layer")) return;
    lai_check_sizes(c, l);
    lai_check_choice(c, l->feature, 8, LA_E_VARIANT, "feature");
    lai_check_choice(c, l->write, 3, LA_E_VARIANT, "write");
    lai_check_choice(c, l->read, 2, LA_E_VARIANT, "read");
    lai_check_choice(c, l->normalised, 2, LA_E_VARIANT, "normalised");
    lai_check_choice(c, l->decay_required, 2, LA_E_VALUE, "decay_required");
    lai_check_choice(c, l->bidirectional, 2, LA_E_VALUE, "bidirectional");
    lai_check_choice(c, l->head_map, 2, LA_E_VALUE, "head_map");
    lai_check_choice(c, l->state_layout, 2, LA_E_VALUE, "state_layout");
    lai_check_choice(c, l->eps_mode, 2, LA_E_VALUE, "eps_mode");
    lai_check_choice(c, l->l2_mode, 3, LA_E_VALUE, "l2_mode");
    lai_check_choice(c, l->favor_kernel, 3, LA_E_VALUE, "favor_kernel");
    lai_check_choice(c, l->hedgehog_kernel, 3, LA_E_VALUE, "hedgehog_kernel");
    lai_check_number(c, l->scale, 1, "scale");
    lai_check_number(c, l->eps, 0, "eps");
    lai_check_number(c, l->l2_eps, 0, "l2_eps");
    if (c->status != LA_OK) return;
    lai_fail(c, l->heads % l->k_heads != 0, LA_E_HEADS, "k_heads");
    lai_fail(c, l->heads % l->q_heads != 0 && l->q_heads % l->heads != 0, LA_E_HEADS, "q_heads");
    lai_fail(c, !LAI_HAS_FEATURES && l->feature != LA_FEATURE_IDENTITY, LA_E_UNSUPPORTED,
             "feature");
    lai_fail(c, !LAI_HAS_CHUNKS && l->bidirectional, LA_E_UNSUPPORTED, "bidirectional");
    lai_fail(c, l->bidirectional && l->write != LA_WRITE_ADD, LA_E_DIRECTION, "bidirectional");
    lai_fail(c, l->bidirectional && l->read != LA_READ_AFTER, LA_E_DIRECTION, "bidirectional");
    lai_fail(c, l->bidirectional && !l->normalised, LA_E_DIRECTION, "bidirectional");
    lai_fail(c, l->feature != LA_FEATURE_IDENTITY && l->write == LA_WRITE_DPLR, LA_E_UNSUPPORTED,
             "feature");
    lai_fail(c, l->normalised && l->write != LA_WRITE_ADD, LA_E_UNSUPPORTED, "normalised");
    lai_check_read(c, l);
    lai_check_features(c, l);
    if (c->status != LA_OK) return;
    lai_fail(c, lai_muladd(lai_head_floats(l), l->heads, 0) > PTRDIFF_MAX / 16, LA_E_OVERFLOW,
             "dim_v");
}

/* bytes that a view spans, as addresses; empty where it has no rows */
typedef struct lai_range {
    uintptr_t begin, end;
} lai_range;

static int lai_overlap(lai_range a, lai_range b) {
    return a.begin < b.end && b.begin < a.end;
}

/* the range of counts[i] steps of strides[i] elements, each a row of `width`, around `data` */
static lai_range lai_span(lai_check *c, const float *data, const int64_t counts[3],
                          const int64_t strides[3], int64_t width, const char *field) {
    const int64_t limit = PTRDIFF_MAX / (int64_t)sizeof *data;
    const lai_range none = {0, 0};
    int64_t below = 0, above = width;
    lai_range r;
    int i;
    for (i = 0; i < 3; ++i)
        if (counts[i] == 0) return none;
    if (lai_fail(c, !data, LA_E_NULL, field)) return none;
    for (i = 0; i < 3; ++i) {
        int64_t *side = strides[i] < 0 ? &below : &above;
        *side = lai_muladd(counts[i] - 1, lai_abs(strides[i]), *side);
        if (lai_fail(c, *side < 0 || *side > limit, LA_E_OVERFLOW, field)) return none;
    }
    r.begin = (uintptr_t)data - (uintptr_t)below * sizeof *data;
    r.end = (uintptr_t)data + (uintptr_t)above * sizeof *data;
    lai_fail(c, r.begin > (uintptr_t)data || r.end < (uintptr_t)data, LA_E_OVERFLOW, field);
    return r;
}

typedef struct lai_names {
    const char *view, *width, *type;
} lai_names;
#define LAI_NAMES(view)                                                                            \
    { #view, #view ".width", #view ".type" }

static lai_range lai_check_in(lai_check *c, const la_in *x, int64_t batch, int64_t tokens,
                              int64_t heads, int64_t width, int64_t other_width, lai_names names) {
    const int64_t counts[3] = {batch, tokens, heads};
    int64_t strides[3];
    strides[0] = x->batch_stride;
    strides[1] = x->token_stride;
    strides[2] = x->head_stride;
    lai_fail(c, x->type != LA_F32, LA_E_TYPE, names.type);
    lai_fail(c, x->width != width && x->width != other_width, LA_E_SHAPE, names.width);
    return lai_span(c, x->data, counts, strides, x->width < 1 ? 1 : x->width, names.view);
}

/* rows that are written must not touch each other: every stride passes over all that is inside it
 */
static int lai_self_overlap(const int64_t counts[3], const int64_t strides[3], int64_t width) {
    int64_t extent = width;
    int done[3] = {0, 0, 0}, turn, i;
    for (turn = 0; turn < 3; ++turn) {
        int least = -1;
        for (i = 0; i < 3; ++i)
            if (!done[i] && (least < 0 || lai_abs(strides[i]) < lai_abs(strides[least]))) least = i;
        done[least] = 1;
        if (counts[least] > 1 && lai_abs(strides[least]) < extent) return 1;
        extent += (counts[least] - 1) * lai_abs(strides[least]);
    }
    return 0;
}

static lai_range lai_check_out(lai_check *c, const la_out *x, int64_t batch, int64_t tokens,
                               int64_t heads, int64_t width, lai_names names) {
    const int64_t counts[3] = {batch, tokens, heads};
    int64_t strides[3];
    lai_range r;
    strides[0] = x->batch_stride;
    strides[1] = x->token_stride;
    strides[2] = x->head_stride;
    lai_fail(c, x->type != LA_F32, LA_E_TYPE, names.type);
    lai_fail(c, x->width != width, LA_E_SHAPE, names.width);
    r = lai_span(c, x->data, counts, strides, width, names.view);
    lai_fail(c, r.begin < r.end && c->status == LA_OK && lai_self_overlap(counts, strides, width),
             LA_E_OVERLAP, names.view);
    return r;
}

/* the number of states that slots reach, from the first of the pool on */
static int64_t lai_check_pool(lai_check *c, const int64_t *slots, int64_t batch,
                              const char *field) {
    int64_t b, most = slots ? -1 : batch - 1;
    for (b = 0; slots && b < batch; ++b) {
        if (lai_fail(c, slots[b] > LAI_MAX_COUNT, LA_E_SIZE, field)) return 0;
        most = LAI_MAX(most, slots[b]);
    }
    return most + 1;
}

static lai_range lai_check_state(lai_check *c, const la_layer *layer, int64_t batch,
                                 const float *state, int64_t stride, const int64_t *slots,
                                 const char *field, const char *slots_field) {
    const int64_t floats = layer->heads * lai_head_floats(layer);
    const lai_range none = {0, 0};
    int64_t counts[3] = {0, 1, 1}, strides[3] = {0, 0, 0};
    lai_fail(c, slots && !state, LA_E_NULL, field);
    if (!state) return none;
    counts[0] = lai_check_pool(c, slots, batch, slots_field);
    strides[0] = stride;
    return lai_span(c, state, counts, strides, floats, field);
}

/* what every call says of its size and of the thread that makes it */
static void lai_check_run(lai_check *c, int isa, int64_t thread, int64_t threads, int64_t batch,
                          int64_t tokens) {
    lai_fail(c, isa != LA_ISA_AUTO && !la_isa_available(isa), LA_E_ISA, "isa");
    lai_fail(c, threads < 1, LA_E_THREADS, "thread_count");
    lai_fail(c, thread < 0 || thread >= threads, LA_E_THREADS, "thread_index");
    lai_check_size(c, batch, 1, LAI_MAX_COUNT, "batch");
    lai_check_size(c, tokens, 0, LAI_MAX_COUNT, "tokens");
}

static void lai_check_options(lai_check *c, const la_layer *layer, const la_call *call) {
    lai_check_choice(c, call->form, 4, LA_E_FORM, "form");
    lai_fail(c, !LAI_HAS_CHUNKS && call->form != LA_AUTO && call->form != LA_RECURRENT,
             LA_E_UNSUPPORTED, "form");
    lai_fail(c, call->chunk < 0 || call->chunk > 1024, LA_E_CHUNK, "chunk");
    lai_check_run(c, call->isa, call->thread_index, call->thread_count, call->batch, call->tokens);
    if (layer->bidirectional)
        lai_check_size(c, call->keys, 0, LAI_MAX_COUNT, "keys");
    else
        lai_check_size(c, call->keys, call->tokens, call->tokens, "keys");
    lai_fail(c, call->key_lengths && !layer->bidirectional, LA_E_UNSUPPORTED, "key_lengths");
    lai_fail(c, lai_muladd(lai_muladd(call->batch, layer->heads, 0), layer->dim_v, 0) < 0,
             LA_E_OVERFLOW, "batch");
    lai_fail(c, call->snapshots && (call->form != LA_RECURRENT || layer->bidirectional), LA_E_FORM,
             "snapshots");
    lai_check_size(c, call->snapshot_count, 0, LAI_MAX_COUNT, "snapshot_count");
    lai_fail(c, call->offsets && call->lengths, LA_E_VALUE, "lengths");
    lai_fail(c, call->offsets && call->keys != call->tokens, LA_E_SIZE, "keys");
    lai_fail(c, call->offsets && call->key_lengths, LA_E_VALUE, "key_lengths");
    lai_fail(c, call->positions && layer->feature != LA_FEATURE_COSFORMER, LA_E_UNSUPPORTED,
             "positions");
    lai_fail(c, layer->decay_required && !call->log_decay.data, LA_E_DECAY, "log_decay");
}

/* tokens and keys of a sequence */
static int64_t lai_tokens_of(const la_call *call, int64_t b) {
    if (call->offsets) return call->offsets[b + 1] - call->offsets[b];
    return call->lengths ? call->lengths[b] : call->tokens;
}
static int64_t lai_keys_of(const la_layer *layer, const la_call *call, int64_t b) {
    if (!layer->bidirectional || call->offsets) return lai_tokens_of(call, b);
    return call->key_lengths ? call->key_lengths[b] : call->keys;
}

static void lai_check_sequence(lai_check *c, const la_layer *layer, const la_call *call,
                               int64_t b) {
    const double first = call->positions ? (double)call->positions[b] : 0.0;
    int64_t most;
    if (call->offsets) {
        lai_check_size(c, call->offsets[b], 0, call->tokens, "offsets");
        lai_check_size(c, call->offsets[b + 1], call->offsets[b], call->tokens, "offsets");
    }
    if (call->lengths) lai_check_size(c, call->lengths[b], 0, call->tokens, "lengths");
    if (call->key_lengths) lai_check_size(c, call->key_lengths[b], 0, call->keys, "key_lengths");
    if (c->status != LA_OK || layer->feature != LA_FEATURE_COSFORMER) return;
    most = LAI_MAX(lai_tokens_of(call, b), lai_keys_of(layer, call, b));
    lai_fail(c, first < 0.0 || (most > 0 && first + (double)(most - 1) > layer->horizon),
             LA_E_VALUE, "positions");
}

static void lai_check_sequences(lai_check *c, const la_layer *layer, const la_call *call) {
    const int alike = !call->offsets && !call->positions && !call->lengths && !call->key_lengths;
    int64_t b;
    for (b = 0; b < (alike ? 1 : call->batch) && c->status == LA_OK; ++b)
        lai_check_sequence(c, layer, call, b);
}

/* the state that a sequence reads or writes; negative: none */
static int64_t lai_slot(const int64_t *slots, int64_t b) {
    return slots ? slots[b] : b;
}

/* No two sequences may write one state, and where input and output are one pool, none may read what
 * another one writes. Slots in ascending order show that at once; of others, pairs are compared,
 * but for batches beyond LAI_MAX_PAIRED, where it is the caller's word. */
static void lai_check_slots(lai_check *c, const la_call *call) {
    const int shared = call->state_in && call->state_in == call->state_out;
    int64_t b, other, last = -1;
    int ascending = 1;
    for (b = 0; b < call->batch && ascending; ++b) {
        const int64_t to = lai_slot(call->slots_out, b), from = lai_slot(call->slots_in, b);
        ascending = (to < 0 || to > last) && (!shared || from < 0 || from == to);
        last = LAI_MAX(last, to);
    }
    if (ascending || !call->state_out || call->batch > LAI_MAX_PAIRED) return;
    for (b = 0; b < call->batch; ++b) {
        const int64_t to = lai_slot(call->slots_out, b);
        for (other = 0; to >= 0 && other < call->batch; ++other) {
            if (other == b) continue;
            lai_fail(c, to == lai_slot(call->slots_out, other), LA_E_OVERLAP, "slots_out");
            lai_fail(c, shared && to == lai_slot(call->slots_in, other), LA_E_OVERLAP, "slots_in");
        }
    }
}

enum { LAI_INPUTS = 20, LAI_OUTPUTS = 4 };

/* No output overlaps an input or another output; in[own] may be out[1] itself, a state in place. */
static void lai_check_apart(lai_check *c, const lai_range in[LAI_INPUTS], const lai_range *out,
                            int outputs, int own, const char *const *names) {
    int i, j;
    for (i = 0; i < outputs; ++i) {
        if (out[i].begin == out[i].end) continue; /* most calls have no snapshots */
        for (j = 0; j < LAI_INPUTS; ++j)
            if (i != 1 || j != own) lai_fail(c, lai_overlap(out[i], in[j]), LA_E_OVERLAP, names[i]);
        for (j = 0; j < i; ++j) lai_fail(c, lai_overlap(out[i], out[j]), LA_E_OVERLAP, names[i]);
    }
}

static lai_range lai_list(const int64_t *list, int64_t count) {
    lai_range r = {0, 0};
    if (list) {
        r.begin = (uintptr_t)list;
        r.end = r.begin + (uintptr_t)count * sizeof *list;
    }
    return r;
}

static lai_range lai_check_snapshots(lai_check *c, const la_layer *layer, const la_call *call) {
    const int64_t floats = layer->heads * lai_head_floats(layer);
    const int64_t counts[3] = {call->batch, call->snapshot_count, 1};
    const lai_range none = {0, 0};
    int64_t strides[3] = {0, 0, 0};
    if (!call->snapshots) return none;
    strides[0] = lai_muladd(floats, call->snapshot_count, 0);
    strides[1] = floats;
    if (lai_fail(c, strides[0] < 0, LA_E_OVERFLOW, "snapshots")) return none;
    return lai_span(c, call->snapshots, counts, strides, floats, "snapshots");
}

/* what stands beside the keys: [B][S][H][dk], for the rules that have it */
static void lai_check_partners(lai_check *c, const la_layer *layer, const la_call *call,
                               lai_range in[4]) {
    static const lai_names names[4] = {LAI_NAMES(erase), LAI_NAMES(bonus), LAI_NAMES(a),
                                       LAI_NAMES(b)};
    const la_in *views[4];
    const int dplr = layer->write == LA_WRITE_DPLR;
    int fits[4], i;
    views[0] = &call->erase, fits[0] = lai_has_channels(layer) && layer->write == LA_WRITE_DELTA;
    views[1] = &call->bonus, fits[1] = layer->read == LA_READ_BEFORE;
    views[2] = &call->a, fits[2] = dplr;
    views[3] = &call->b, fits[3] = dplr;
    for (i = 0; i < 4; ++i) {
        lai_fail(c, views[i]->data && !fits[i], LA_E_UNSUPPORTED, names[i].view);
        if (views[i]->data || (i >= 2 && dplr))
            in[i] = lai_check_in(c, views[i], call->offsets ? 1 : call->batch, call->keys,
                                 layer->heads, layer->dim_k, layer->dim_k, names[i]);
    }
}

/* what outputs are finished with */
static void lai_check_finish(lai_check *c, const la_layer *layer, const la_call *call,
                             lai_range in[2]) {
    static const lai_names names[2] = {LAI_NAMES(skip), LAI_NAMES(out_gate)};
    const int64_t batch = call->offsets ? 1 : call->batch, dv = layer->dim_v;
    lai_fail(c, call->skip.data && layer->bidirectional, LA_E_UNSUPPORTED, "skip");
    if (call->skip.data)
        in[0] = lai_check_in(c, &call->skip, batch, call->keys, layer->heads, 1, dv, names[0]);
    if (call->out_gate.data)
        in[1] = lai_check_in(c, &call->out_gate, batch, call->tokens, lai_out_heads(layer), dv, dv,
                             names[1]);
}

static void lai_check_tensors(lai_check *c, const la_layer *layer, const la_call *call,
                              lai_range in[LAI_INPUTS], lai_range out[LAI_OUTPUTS]) {
    static const lai_names names[6] = {LAI_NAMES(q),         LAI_NAMES(k),    LAI_NAMES(v),
                                       LAI_NAMES(log_decay), LAI_NAMES(beta), LAI_NAMES(out)};
    const int64_t floats = layer->heads * lai_head_floats(layer), dk = layer->dim_k,
                  dv = layer->dim_v;
    const int64_t batch = call->batch, b = call->offsets ? 1 : batch;
    const int64_t counts[3] = {1, 1, layer->heads};
    int64_t strides[3] = {0, 0, 0};
    strides[2] = layer->projection_head_stride;
    memset(in, 0, LAI_INPUTS * sizeof *in);
    in[0] = lai_check_in(c, &call->q, b, call->tokens, layer->q_heads, dk, dk, names[0]);
    in[1] = lai_check_in(c, &call->k, b, call->keys, layer->k_heads, dk, dk, names[1]);
    in[2] = lai_check_in(c, &call->v, b, call->keys, layer->heads, dv, dv, names[2]);
    if (call->log_decay.data)
        in[3] = lai_check_in(c, &call->log_decay, b, call->keys, layer->heads, 1, dk, names[3]);
    if (call->beta.data)
        in[4] = lai_check_in(c, &call->beta, b, call->keys, layer->heads, 1, dv, names[4]);
    in[5] = lai_check_state(c, layer, batch, call->state_in, call->state_in_stride, call->slots_in,
                            "state_in", "slots_in");
    if (lai_projects(layer)) {
        const int64_t own = lai_projection_floats(layer);
        in[6] = lai_span(c, layer->projection, counts, strides, own, "projection");
        if (layer->q_projection)
            in[19] = lai_span(c, layer->q_projection, counts, strides, own, "q_projection");
    }
    in[7] = lai_list(call->lengths, batch);
    in[8] = lai_list(call->key_lengths, batch);
    in[9] = lai_list(call->positions, batch);
    in[10] = lai_list(call->offsets, batch + 1);
    in[11] = lai_list(call->slots_in, batch);
    in[12] = lai_list(call->slots_out, batch);
    lai_check_partners(c, layer, call, in + 13);
    lai_check_finish(c, layer, call, in + 17);
    out[0] = lai_check_out(c, &call->out, b, call->tokens, lai_out_heads(layer), dv, names[5]);
    out[1] = lai_check_state(c, layer, batch, call->state_out, call->state_out_stride,
                             call->slots_out, "state_out", "slots_out");
    if (call->slots_in || call->slots_out) lai_check_slots(c, call);
    out[3] = lai_check_snapshots(c, layer, call);
    lai_fail(c,
             call->state_out && (call->batch > 1 || call->slots_in || call->slots_out) &&
                 lai_abs(call->state_out_stride) < floats,
             LA_E_OVERLAP, "state_out");
    lai_fail(c, call->log_decay.data && call->log_decay.width > 1 && !lai_has_channels(layer),
             LA_E_UNSUPPORTED, "log_decay.width");
}

/* ---- the plan -------------------------------------------------------------------------------- */

static int lai_choose_isa(int wanted) {
    if (wanted != LA_ISA_AUTO) return wanted;
    if (la_isa_available(LA_ISA_NEON)) return LA_ISA_NEON;
    if (la_isa_available(LA_ISA_AVX512)) return LA_ISA_AVX512;
    return la_isa_available(LA_ISA_AVX2) ? LA_ISA_AVX2 : LA_ISA_SCALAR;
}

/* What LA_AUTO's limits are multiples of: r dv / (r + dv), half of d where all are d. */
static double lai_mean_size(const la_layer *layer) {
    const double r = (double)lai_features(layer), dv = (double)layer->dim_v;
    return r * dv / (r + dv);
}

/* Up to how many tokens LA_AUTO takes the parallel form where there is no state to read: it has
 * T (r + dv) instead of 4 r dv flops then (delta rules twice that instead of 6 r dv), and 2 r dv
 * more for a state that is kept. So the limit is a multiple of r dv / (r + dv), less what the
 * better kernel gains; decays per channel cost it more. Measured for d = 32 .. 128 on a Zen 5
 * core. */
static int64_t lai_parallel_limit(const la_layer *layer, int isa, int kept, int wide) {
    const double x = lai_mean_size(layer);
    double limit = 4.3 * x - 66.0;
    if (kept) limit = lai_projects(layer) ? 0.0 : 4.0 * x - 190.0;
    if (layer->write != LA_WRITE_ADD) limit = kept ? 3.2 * x - 105.0 : 2.9 * x - 31.0;
    if (wide) limit = kept ? 0.0 : 1.2 * x - 30.0;
    if (layer->write == LA_WRITE_DPLR) limit = kept ? 0.0 : 0.78 * x - 9.0;
    if (limit > 512.0) limit = 512.0; /* its workspace is everybody's */
    return (int64_t)(limit * (isa == LA_ISA_AVX512 ? 0.85 : 1.0));
}

/* From so many tokens on the chunkwise form repays moving the state to panels and back: where d is
 * below 64, below 128, and more, and for LA_VK, where it is sooner if there is no state to read.
 * First AVX2 (a Zen 4 core, and an Emerald Rapids), then AVX-512 (the latter). */
static int64_t lai_recurrent_limit(const la_layer *layer, int isa, int wide, int read) {
    static const signed char limits[8][2][4] = {
        {{7, 9, 7, 14}, {7, 9, 9, 14}},      /* projections, which are tiles */
        {{8, 7, 5, 17}, {11, 11, 5, 16}},    /* DPLR */
        {{13, 12, 11, 28}, {11, 12, 8, 28}}, /* what reads first */
        {{8, 8, 8, 18}, {9, 11, 6, 16}},     /* delta, a decay for all channels */
        {{8, 8, 6, 18}, {11, 11, 6, 16}},    /* and for each */
        {{9, 13, 13, 28}, {12, 14, 10, 28}}, /* normalised */
        {{9, 12, 12, 28}, {15, 16, 10, 28}}, /* additive, a decay for all channels */
        {{9, 8, 8, 28}, {14, 13, 9, 28}},    /* and for each */
    };
    const int vk = layer->state_layout == LA_VK, large = lai_mean_size(layer) >= 64.0;
    int row = wide ? 7 : layer->normalised ? 5 : 6, limit;
    if (layer->write != LA_WRITE_ADD) row = 3 + wide;
    if (layer->read == LA_READ_BEFORE) row = 2;
    if (layer->write == LA_WRITE_DPLR) row = 1;
    if (lai_projects(layer)) row = 0;
    limit = limits[row][isa == LA_ISA_AVX512][vk ? 3 : (lai_mean_size(layer) >= 32.0) + large];
    return vk && !read ? LAI_MIN(limit, large ? 12 : 18) : limit;
}

/* Rules that have anything else per key channel take their gates so, too: one for all channels is
 * that of each. */
static int lai_by_channel(const la_layer *layer, const la_call *call) {
    return layer->write == LA_WRITE_DPLR || layer->read == LA_READ_BEFORE || call->erase.data;
}

/* read, kept: is there a state to begin with, and to leave? */
static int lai_choose_form(const la_layer *layer, const la_call *call, int64_t tokens, int read,
                           int kept) {
    const int wide = call->log_decay.width > 1 || lai_by_channel(layer, call);
    const int isa = lai_choose_isa(call->isa);
    int64_t least = 3;
    if (call->form != LA_AUTO) return call->form;
    if (!LAI_HAS_CHUNKS) return LA_RECURRENT;
    if (layer->write != LA_WRITE_ADD || layer->normalised || lai_mean_size(layer) >= 64.0)
        least = lai_projects(layer) ? 5 : 2;
    if (!read && tokens >= (kept ? 17 : least) &&
        tokens <= lai_parallel_limit(layer, isa, kept, wide))
        return LA_PARALLEL;
    return tokens < lai_recurrent_limit(layer, isa, wide, read) ? LA_RECURRENT : LA_CHUNKWISE;
}

/* the chunk that runs; LA_AUTO never asks for one */
static int64_t lai_choose_chunk(const la_layer *layer, const la_call *call, int form) {
    if (call->form == LA_AUTO && form == LA_PARALLEL) {
        const int64_t most = LAI_MAX(1, lai_parallel_limit(layer, LA_ISA_AUTO, 0, 0));
        return LAI_MAX(most, lai_parallel_limit(layer, LA_ISA_AUTO, 1, 0));
    }
    if (call->form == LA_AUTO) return 0;
    return form == LA_PARALLEL ? call->tokens : call->chunk;
}

/* Floats of workspace of a form: an upper bound of how the engine lays it out; -1 where it
 * overflows. */
static int64_t lai_form_floats(const la_layer *layer, const la_call *call, int form) {
    const int64_t rows = LAI_ROUND16(lai_features(layer)), columns = LAI_ROUND16(layer->dim_v);
    const int64_t more = lai_queries(layer) + 1; /* query heads and the key */
    const int64_t partner = layer->write != LA_WRITE_ADD || layer->read == LA_READ_BEFORE;
    const int64_t writes = lai_writes(layer), chunk = lai_choose_chunk(layer, call, form);
    int64_t floats = lai_muladd(rows, columns, 0);
    if (lai_projects(layer))
        floats = lai_muladd(LAI_ROUND16(layer->features) * (layer->q_projection ? 2 : 1),
                            layer->dim_k, floats);
    if (form == LA_RECURRENT && !layer->bidirectional)
        return lai_muladd(rows + 2, LAI_TOKENS * (more + partner) + 5,
                          lai_muladd(3, columns, floats));
    if ((form == LA_CHUNKWISE && chunk == 0) || layer->bidirectional)
        return lai_muladd(rows + 4, LAI_RING * (4 * more + 2 * partner + 3) + 11,
                          lai_muladd(2, columns, lai_muladd(LAI_RING, 32, floats)));
    floats = lai_muladd(LAI_ROUND16(chunk * writes), 2 * rows + columns + 6 * more + 1, floats);
    floats = lai_muladd(more * partner, columns, floats);
    return lai_muladd(rows + 2, 12 * more + 6 * partner + 32, floats);
}

/* bytes with room to align; LA_AUTO has enough for any form that it may take; 0 = overflow */
static size_t lai_workspace_bytes(const la_layer *layer, const la_call *call) {
    int64_t floats = 0;
    int form;
    for (form = LA_PARALLEL; form <= LA_CHUNKWISE; ++form)
        if (call->form == form ||
            (call->form == LA_AUTO && (LAI_HAS_CHUNKS || form == LA_RECURRENT))) {
            const int64_t own = lai_form_floats(layer, call, form);
            floats = floats < 0 || own < 0 ? -1 : LAI_MAX(floats, own);
        }
    if (floats < 0 || floats > PTRDIFF_MAX / (int64_t)sizeof(float) - LAI_ALIGN) return 0;
    return (size_t)floats * sizeof(float) + LAI_ALIGN;
}

/* Blocks of value columns per head: one, unless that leaves threads idle. Columns are
 * independent, so this changes no bit. */
static int64_t lai_blocks(const la_layer *layer, const la_call *call) {
    const int64_t heads = call->batch * layer->heads, threads = call->thread_count;
    if (layer->normalised) return 1; /* columns share their denominators */
    if (heads % threads == 0 || heads / threads >= 8) return 1;
    return LAI_MIN(threads, (layer->dim_v + 15) / 16);
}

/* what a workspace of so many slices spans; bytes = 0: there are too many */
static lai_range lai_check_workspace(lai_check *c, const void *workspace, size_t size, size_t bytes,
                                     int64_t slices) {
    lai_range r = {0, 0};
    if (lai_fail(c, bytes == 0, LA_E_OVERFLOW, "workspace") ||
        lai_fail(c, !workspace, LA_E_NULL, "workspace") ||
        lai_fail(c, size / bytes < (size_t)slices, LA_E_WORKSPACE, "workspace_size"))
        return r;
    r.begin = (uintptr_t)workspace;
    r.end = r.begin + bytes * (size_t)slices;
    return r;
}

/* the workspace, and that nothing overlaps */
static void lai_check_room(lai_check *c, const la_call *call, size_t bytes, int64_t slices,
                           const lai_range in[LAI_INPUTS], lai_range out[LAI_OUTPUTS]) {
    static const char *const names[LAI_OUTPUTS] = {"out", "state_out", "workspace", "snapshots"};
    const int pooled = call->slots_in || call->slots_out;
    const int in_place =
        call->state_in == call->state_out &&
        ((call->batch == 1 && !pooled) || call->state_in_stride == call->state_out_stride);
    out[2] = lai_check_workspace(c, call->workspace, call->workspace_size, bytes, slices);
    lai_check_apart(c, in, out, LAI_OUTPUTS, in_place ? 5 : -1, names);
}

static lai_check lai_check_all(const la_layer *layer, const la_call *call, int64_t slices) {
    lai_check c = {LA_OK, NULL};
    lai_range in[LAI_INPUTS], out[LAI_OUTPUTS];
    lai_check_layer(&c, layer);
    if (!LAI_CHECK_STRUCT(&c, call, "call")) return c;
    lai_check_options(&c, layer, call);
    if (c.status != LA_OK) return c;
    lai_check_sequences(&c, layer, call);
    lai_check_tensors(&c, layer, call, in, out);
    if (c.status != LA_OK) return c;
    lai_check_room(&c, call, lai_workspace_bytes(layer, call), slices, in, out);
    return c;
}

/* One head of one sequence, for a block of its columns: what a pass works on. Pointers stand at
 * the head's first token; step is the distance to the next token. No gate and no beta are a
 * constant 0 and 1 with step 0, so that the kernels know no absence. */
typedef struct lai_rows {
    const float *at;
    int64_t step;
} lai_rows;

typedef struct lai_head {
    lai_rows q, k, v, log_decay, beta;
    lai_rows factor;         /* of the keys that meet state or query: erase or bonus; or null     */
    lai_rows skip, out_gate; /* or null */
    int64_t gate_next;       /* from one query head's out_gate to the next one's */
    int skip_wide;           /* a number per channel */
    lai_rows a, b;           /* DPLR */
    int64_t q_next;          /* from one query head of this state to the next */
    int64_t queries;         /* query heads that read this state              */
    float *out;
    int64_t out_step, out_next;
    const float *state_in; /* S, then z and the maximum where the layer has them; or null */
    float *state_out;      /* the same; or null                                           */
    float *snapshots;      /* of the last tokens: `count` states, `step` apart; or null   */
    int64_t snapshot_count, snapshot_step;
    int64_t tokens, keys; /* of queries, of keys: differ only if bidirectional           */
    int64_t dim_k, dim_v;
    int64_t features;       /* r: rows of the state                                        */
    int64_t first, columns; /* the block of value columns                                  */
    int64_t chunk;          /* 0: the pair pass                                            */
    int64_t position;       /* of the first token                                          */
    int form, layout, delta, dplr, normalised, bidirectional;
    int erases, before;        /* delta rule with a gate of its own; LA_READ_BEFORE        */
    float scale;               /* 1 where it is part of the features               */
    int decay_wide, beta_wide; /* a number per channel                                     */
    int gates_wide;            /* 0: one gate stands for those of all channels             */
    const la_layer *layer;
    const float *projection, *q_projection; /* of this head's keys and queries; or null */
    float *work;
} lai_head;

static const float lai_no_gate = 0.0f, lai_no_beta = 1.0f; /* an absent tensor's only row */

/* What the pair pass does to the state: nothing, its scale being held aside; multiply by a number
 * for each row; by two for all, a decay that no single float holds; or only read it. */
enum { LAI_KEEP = 0, LAI_ROWS, LAI_TWICE, LAI_LOOK };

/* How a token's gate acts on the state of the recurrent form: not at all; as x + x expm1(g); as
 * x exp(g); one way or the other for each row, which is also what rules do that read first, or
 * write twice. */
enum { LAI_STAY = 0, LAI_STEP, LAI_SCALE, LAI_MIXED, LAI_FIRST, LAI_BOTH };

#define LAI_WINDOW 16.0       /* the logarithm of a scale held aside stays within +-16 */
#define LAI_DEEP   (-80.0)    /* below it, exp of a gate as one float is denormal, or 0 too early */
#define LAI_FORGET (-60.0)    /* what a chunk may forget before it is folded into the state */
#define LAI_WEAK   (-0.7f)    /* gates above it act as x + x expm1(g): what they leave is > x / 2 */
#define LAI_NEVER  (-1000.0f) /* exp of it is 0; sums of it stay finite */

static float lai_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The float arguments for exp(g): x and the rest lo. Below LAI_DEEP they are those of g / 2, and
 * the result is 1: exp is to be applied twice. */
static int lai_split(double g, float *x, float *lo) {
    const int deep = g < LAI_DEEP && g > 3.0 * LAI_DEEP; /* below that it is 0 for any state */
    if (g < (double)LAI_NEVER) g = (double)LAI_NEVER;
    if (deep) g *= 0.5;
    *x = (float)g;
    *lo = fabsf(*x) < 200.0f ? (float)(g - (double)*x) : 0.0f;
    return deep;
}

/* 1 / denominator, by the layer's eps; exactly 0 gives 0, and what is smaller than 1e-37 counts as
 * 1e-37, so that nothing overflows. `shift` is the logarithm that stabilised features leave out. */
static float lai_inverse(const lai_head *h, float denominator, double shift) {
    double d = (double)denominator, eps;
    if (!(h->layer->eps > 0.0f) && denominator >= 1e-37f) return 1.0f / denominator; /* usual */
    eps = h->layer->eps > 0.0f ? (double)h->layer->eps * exp(shift < -600.0 ? 600.0 : -shift) : 0.0;
    if (h->layer->eps_mode == LA_EPS_ADD)
        d += eps;
    else
        d = d < eps ? eps : d;
    if (d == 0.0) return 0.0f;
    if (fabs(d) < 1e-37) d = d < 0.0 ? -1e-37 : 1e-37;
    return (float)(1.0 / d);
}

/* ---- what the forms keep, the same for every instruction set: see ENGINE --------------------- */

/* 1 / the length whose square is given, or 1 where off; a row of zeros stays zero. */
LAI_INLINE float lai_inverse_length(double square, int mode, float eps) {
    if (mode == LA_L2_OFF) return 1.0f;
    if (mode == LA_L2_SUM)
        square = sqrt(square + (double)eps);
    else
        square = sqrt(square) <= (double)eps ? (double)eps : sqrt(square); /* NaN stays */
    return square == 0.0 ? 0.0f : (float)(1.0 / square);
}

/* Features of a block of tokens, and for FAVOR+ the running maximum that its keys are relative
 * to and the maximum of each query. What meets the state or the query in the key's place is p:
 * erase k, bonus k, or a of DPLR; else the key. */
typedef struct lai_mapped {
    lai_rows k, q, p;
    int64_t q_next;
    float *k_max, *q_max; /* [count], [queries][count] */
    int64_t count;
} lai_mapped;

/* what is carried from block to block */
typedef struct lai_stream {
    const float *panels, *q_panels; /* of the projections of keys and queries, or null */
    float *scratch;
    double root;                   /* of the scale, where it is part of the features */
    float unit, maximum;           /* of random features: 1 / sqrt(r); of the keys so far */
    double anchor[2], turns[8][2]; /* cosFormer: see lai_angle */
    int64_t anchored, turned;
} lai_stream;

static void lai_unmapped(const lai_head *h, int64_t t, int64_t count, lai_mapped *y) {
    y->k = h->k;
    y->q = h->q;
    y->k.at += t * y->k.step;
    y->q.at += t * y->q.step;
    y->p = y->k;
    y->q_next = h->q_next;
    y->count = count;
}

/* row i of those to be mapped: `keys` keys, then the queries, head by head */
static const float *lai_input(const lai_mapped *y, int64_t keys, int64_t i) {
    if (i < keys) return y->k.at + i * y->k.step;
    i -= keys;
    return y->q.at + i / y->count * y->q_next + i % y->count * y->q.step;
}

/* the projection as panels [m/16][dk][16] */
static void lai_pack_projection(const lai_head *h, const float *projection, float *panels) {
    const int64_t n = h->dim_k, m = h->layer->features;
    int64_t i, j;
    for (j = 0; j < LAI_ROUND16(m); ++j)
        for (i = 0; i < n; ++i)
            panels[(j / 16 * n + i) * 16 + j % 16] = j < m ? projection[j * n + i] : 0.0f;
}

/* floats of scratch for `count` tokens */
static int64_t lai_scratch_floats(const lai_head *h, int64_t rows, int64_t count) {
    return (h->queries + 1) * count * (rows + 1) + (h->factor.at ? count * rows : 0);
}

/* the logarithm that FAVOR+ leaves out of the denominator of query head m at the block's token i */
LAI_INLINE double lai_left_out(const lai_head *h, const lai_mapped *y, int64_t m, int64_t i) {
    if (!lai_has_maximum(h->layer)) return 0.0;
    return (double)y->q_max[m * y->count + i] + (double)y->k_max[i];
}

/* what FAVOR+ state_in is relative to: -inf where z is all 0, whatever is stored */
static float lai_first_maximum(const lai_head *h) {
    const float *z = h->state_in ? h->state_in + h->features * h->dim_v : NULL;
    int64_t i;
    for (i = 0; z && i < h->features; ++i)
        if (!(z[i] == 0.0f)) return z[h->features];
    return -HUGE_VALF;
}

static void lai_begin_stream(const lai_head *h, lai_stream *s, float *scratch, float *panels) {
    s->scratch = scratch;
    s->panels = s->q_panels = LAI_HAS_FEATURES && h->projection ? panels : NULL;
    s->maximum = lai_has_maximum(h->layer) ? lai_first_maximum(h) : 0.0f;
    s->root = lai_scales_inputs(h->layer) ? sqrt((double)h->layer->scale) : 1.0;
    s->unit =
        1.0f / sqrtf((float)h->features * (h->layer->feature == LA_FEATURE_RFF ? 0.5f : 1.0f));
    s->anchored = -1;
    s->turned = 0;
    if (!s->panels) return;
    lai_pack_projection(h, h->projection, panels);
    if (h->q_projection == h->projection) return;
    s->q_panels = panels += LAI_ROUND16(h->layer->features) * h->dim_k;
    lai_pack_projection(h, h->q_projection, panels);
}

/* what a key's maximum does to the state before it: exp of this, also where there was nothing */
LAI_INLINE double lai_shift(const lai_head *h, float before, float now) {
    return lai_has_maximum(h->layer) && before != now ? (double)before - (double)now : 0.0;
}

static void lai_store_z(const lai_head *h, const float *z, const lai_stream *s) {
    float *to = h->state_out ? h->state_out + h->features * h->dim_v : NULL;
    int64_t i;
    for (i = 0; h->normalised && to && i < h->features; ++i) to[i] = z[i];
    if (to && lai_has_maximum(h->layer)) to[h->features] = s->maximum;
}

/* panels of 16 columns, [features][16] each; the rows up to a multiple of 4 are zeros */
LAI_INLINE float *lai_panel(const lai_head *h, float *panels, int64_t column) {
    return panels + (column - h->first) * LAI_ROUND8(h->features);
}

LAI_INLINE float *lai_output(const lai_head *h, int64_t query, int64_t t, int64_t column) {
    return h->out + query * h->out_next + t * h->out_step + column;
}

typedef struct lai_pair_info {
    float read[2], late[2];     /* decay up to a and b, as a product of two factors */
    float write[2], write_late; /* factors of u_a and u_b */
    float rho[2];
    float B, kk; /* b's decay; B (k_b . k_a) */
    int rescale; /* LAI_TWICE where one of the second factors is not 1 */
    int silent;  /* it rescales, and writes next to nothing: what it leaves may be denormal */
} lai_pair_info;

/* for each query head: its dot products with the pair's keys, the factors of what it reads; */
typedef struct lai_pair_query {
    float aa, ba, bb, read[2];
} lai_pair_query;

typedef struct lai_pairs {
    float *panels, *K, *Q, *R, *rho, *predicted, *zeros, *z;
    float *room;       /* where R is not needed: arguments and results of exp */
    float *sum, *rest; /* ln G of decay per channel: [rows] each */
    float *held;       /* G itself, [rows], where queries read before the decay */
    float *gates;      /* [2][rows]: see lai_gate_row */
    lai_pair_info *info;
    lai_pair_query *query;
    lai_stream stream;
    lai_mapped staged; /* features of the pairs `first` .. `end` - 1 */
    int64_t first, end;
    int64_t rows, panel_rows, count, queries; /* queries: 0 to absorb keys only */
    int64_t width;                            /* columns of the panels that stay in L1 */
    int64_t tokens;                           /* of a pair: 2, of DPLR 1 */
    lai_rows ask[6];  /* k and what else has rows of dk: what is prefetched, */
    int asked;        /* how many these are, */
    int64_t ahead;    /* and tokens from a pair to the one whose rows are asked for with it */
    int ragged;       /* some begin within a line: see lai_pair_ends */
    int gated, light; /* light: features are made with a pair's coefficients, not staged */
    double log_scale; /* ln G of one decay for all rows */
} lai_pairs;

/* the gate of token t, with what FAVOR+ rescales by; 0 beyond the end */
LAI_INLINE double lai_gate(const lai_head *h, const lai_mapped *y, int64_t i, int64_t t,
                           float before) {
    if (t >= h->keys) return 0.0;
    return (double)h->log_decay.at[t * h->log_decay.step] +
           (lai_has_maximum(h->layer) ? lai_shift(h, i > 0 ? y->k_max[i - 1] : before, y->k_max[i])
                                      : 0.0);
}

/* the rows of one pair; a missing second token is zeros */
typedef struct lai_pair_rows {
    const float *ka, *kb, *qa, *qb, *pa, *pb;
    int64_t qa_next, qb_next;
} lai_pair_rows;

/* sums of a query head's products with the pair's keys and with z */
typedef struct lai_pair_dots {
    float aa, ba, bb, za, zb;
} lai_pair_dots;

/* The rows of one pair are made at once, so several query heads are not light. */
static int lai_is_light(const lai_head *h, const lai_pairs *c) {
    const int feature = h->layer->feature;
    if (c->queries > 1 || h->dplr || h->factor.at) return 0;
    return lai_maps(h->layer) && (feature == LA_FEATURE_IDENTITY || feature == LA_FEATURE_ELU1);
}

/* the last token of pair p */
LAI_INLINE int64_t lai_pair_last(const lai_head *h, const lai_pairs *c, int64_t p) {
    return LAI_MIN(c->tokens * (p + 1), h->keys) - 1;
}

/* no decay at all: what lai_pair_decays would find, for all pairs */
static void lai_no_decays(lai_pairs *c) {
    int64_t p;
    for (p = 0; p < 2 * LAI_RING; ++p) {
        static const lai_pair_info none = {{1, 1}, {1, 1}, {1, 1}, 1, {1, 1}, 1, 0, LAI_KEEP, 0};
        c->info[p] = none;
    }
}

/* what a pass reads beside a panel: see THE pair pass */
typedef struct lai_pass {
    const float *Q, *K, *R, *rho;
} lai_pass;

typedef struct lai_beside { /* the second of two panels: how far M and y of a tile are behind */
    int64_t m, y;           /* those of the first; y = 0: there is no second */
} lai_beside;
LAI_INLINE lai_beside lai_second(int there, int64_t m, int64_t y) {
    const lai_beside next = {m, there ? y : 0};
    return next;
}

/* A pair as the panels see it: its slot, and its tokens' rows from the block's first column on.
 * What later steps will read and write is asked for evenly, a line of each row per panel: rows are
 * short and far apart, so hardware does not foresee them. Into L2, since rows whose distance is a
 * power of two share few sets of L1 (into L1, 4 heads of 128 took a fifth longer on a Zen 4). */
typedef struct lai_pair_view {
    const lai_pair_info *info;
    const lai_pair_query *query;
    lai_pass pass;
    const float *v[2], *beta[2];
    float *out[2];
    const float *ahead[16]; /* rows to ask for: v, v, out, out, and those of dk */
    const float **asked;    /* behind the last of them */
    int both;               /* 0: there is no token b, at an odd end */
} lai_pair_view;
typedef void (*lai_pair_pass)(const lai_head *h, const lai_pairs *c, const lai_pair_view *x,
                              int64_t column, int64_t stop);

/* do rows begin within a line? */
LAI_INLINE int lai_is_ragged(const float *at, int64_t step) {
    return (((uintptr_t)at | (uintptr_t)step * sizeof *at) & 63) != 0;
}
/* What has rows of dk, to be asked for; returns how many these are. Inline, since code without AVX
 * waits on Intel for the multiply-adds around it: it took a fifth of the time of chunk 64. */
LAI_INLINE int lai_rows_to_ask(const lai_head *h, int reads, lai_rows ask[6]) {
    const lai_rows *const all[6] = {&h->k, &h->q, &h->log_decay, &h->factor, &h->a, &h->b};
    const int there[6] = {1, reads, h->gates_wide, h->factor.step != 0, h->dplr, h->dplr};
    int i, n;
    for (i = n = 0; i < 6; ++i)
        if (there[i]) ask[n++] = *all[i];
    return n;
}
static void lai_begin_asking(const lai_head *h, lai_pairs *c) {
    int i;
    c->asked = lai_rows_to_ask(h, c->queries > 0 && !h->bidirectional, c->ask);
    c->ragged = lai_is_ragged(h->v.at, h->v.step) || lai_is_ragged(h->out, h->out_step);
    for (i = 0; i < c->asked; ++i) c->ragged |= lai_is_ragged(c->ask[i].at, c->ask[i].step);
}
/* of pairs that follow: v and out soon, the rest when their coefficients are made */
LAI_INLINE void lai_view_ahead(const lai_head *h, const lai_pairs *c, int64_t t, lai_pair_view *x) {
    const int64_t left = LAI_MAX(h->keys - c->tokens - t, 0), second = x->both ? c->tokens - 1 : 0;
    const int64_t soon = t + LAI_MIN(LAI_SOON, left), later = t + LAI_MIN(c->ahead, left);
    int i;
    x->ahead[0] = h->v.at + soon * h->v.step + h->first;
    x->ahead[1] = x->ahead[0] + second * h->v.step;
    x->ahead[2] = c->queries > 0 ? lai_output(h, 0, soon, h->first) : x->ahead[0];
    x->ahead[3] = x->ahead[2] + second * (c->queries > 0 ? h->out_step : h->v.step);
    for (i = 0; i < c->asked; ++i) {
        x->ahead[4 + 2 * i] = c->ask[i].at + later * c->ask[i].step;
        x->ahead[5 + 2 * i] = x->ahead[4 + 2 * i] + second * c->ask[i].step;
    }
    x->asked = x->ahead + 4 + 2 * i;
}
LAI_INLINE void lai_pair_prefetch(const lai_head *h, const lai_pair_view *x, int64_t column,
                                  int tokens) {
    const float *const *row;
    LAI_PREFETCH_L2(x->ahead[0] + column);
    LAI_PREFETCH_L2(x->ahead[2] + column);
    if (tokens == 2) LAI_PREFETCH_L2(x->ahead[1] + column);
    if (tokens == 2) LAI_PREFETCH_L2(x->ahead[3] + column);
    for (; column < h->dim_k; column += h->columns)
        for (row = x->ahead + 4; row < x->asked; row += 2) {
            LAI_PREFETCH_L2(row[0] + column);
            if (tokens == 2) LAI_PREFETCH_L2(row[1] + column);
        }
}

/* Rows that begin within a line end in one more than their panels ask for: 5 % where malloc's
 * blocks, 16 bytes off, were used as they are (AVX2, d = 128, Zen 4). */
LAI_INLINE void lai_pair_ends(const lai_head *h, const lai_pair_view *x) {
    const float *const *row;
    for (row = x->ahead; row < x->asked; ++row)
        LAI_PREFETCH_L2(*row + (row < x->ahead + 4 ? h->columns : h->dim_k) - 1);
}

LAI_INLINE void lai_ask_line(const float *row, int64_t column, int64_t width) {
    LAI_PREFETCH_L2(row + column);
    if (column == 0) LAI_PREFETCH_L2(row + width - 1); /* see lai_pair_ends */
}

LAI_INLINE void lai_view_pair(const lai_head *h, const lai_pairs *c, int64_t p, lai_pair_view *x) {
    const int64_t slot = LAI_SLOT(p), next = p + 1 < c->count ? LAI_SLOT(p + 1) : slot;
    const int64_t t = c->tokens * p, both = t + 1 < h->keys;
    x->info = c->info + LAI_STAGE(p);
    x->query = c->query + slot * c->queries;
    x->pass.K = c->K + slot * 2 * c->rows;
    x->pass.R = c->R + next * 2 * c->rows;
    x->pass.Q = c->queries > 0 ? c->Q + slot * c->queries * 2 * c->rows : x->pass.K;
    if (h->dplr) x->pass.R = x->pass.Q;
    x->pass.rho = x->info->rescale == LAI_TWICE ? x->info->rho : c->rho + slot * c->rows;
    x->both = (int)both;
    x->v[0] = h->v.at + t * h->v.step + h->first;
    x->v[1] = x->v[0] + both * h->v.step;
    x->beta[0] = h->beta.at + t * h->beta.step + (h->beta_wide ? h->first : 0);
    x->beta[1] = x->beta[0] + both * h->beta.step;
    x->out[0] = c->queries > 0 ? lai_output(h, 0, t, h->first) : NULL;
    x->out[1] = both && c->queries > 0 ? x->out[0] + h->out_step : NULL;
    lai_view_ahead(h, c, t, x);
}

typedef struct lai_gate_rows {
    const float *value, *step; /* [rows], or where one gate is for all, [16] */
    int64_t all;               /* 1: each row has its own; else 0 */
    int times;                 /* 1 or 2 */
    int mode;                  /* LAI_STAY .. LAI_BOTH, for what acts once */
} lai_gate_rows;

/* one token: its vectors, what predicts (it reads the state before that is decayed, so it is p
 * decayed, or a), its gates, and for each query head the factors of what it reads and, reading
 * first, of the token's own write */
typedef struct lai_token {
    const float *k, *b, *predictor, *q, *factor, *own;
    float *u, *e, *y; /* of all columns, for [r][dv]: written, predicted and read */
    float *spare;     /* a row of zeros: what rows that do not exist are, for [dv][r] */
    int64_t q_next, t;
    int silent;    /* it writes next to nothing */
    int early;     /* something reads before the state decays: the first query, or a */
    int apart;     /* and the first query does so on its own */
    int64_t ahead; /* floats from here to what comes next, if it is to be prefetched; else 0 */
    lai_gate_rows gate, stay; /* stay: of gate 0, where rules write twice in two passes */
} lai_token;
typedef void (*lai_columns_pass)(const lai_token *x, float *S, int64_t stride, int64_t n,
                                 int64_t columns);
typedef void (*lai_rows_pass)(const lai_token *x, float *S, int64_t n, int64_t rows,
                              const float u[16], const float e[16], float y[16]);

/* an address that may lie outside of any buffer: for prefetching only */
LAI_INLINE const float *lai_from(const float *p, int64_t floats) {
    return (const float *)((uintptr_t)p + (uintptr_t)floats * sizeof *p);
}
LAI_INLINE void lai_prefetch_fours(const float *p) { /* 64 floats */
    LAI_PREFETCH(p);
    LAI_PREFETCH(lai_from(p, 16));
    LAI_PREFETCH(lai_from(p, 32));
    LAI_PREFETCH(lai_from(p, 48));
}

/* What a block of columns is in memory: `runs` of `length` floats, `stride` apart */
static float *lai_state_block(const lai_head *h, float *S, int64_t first, int64_t columns,
                              int64_t *runs, int64_t *length, int64_t *stride) {
    const int kv = h->layout == LA_KV;
    *runs = kv ? h->features : columns;
    *length = kv ? columns : h->features;
    *stride = kv ? h->dim_v : h->features;
    return S + (kv ? first : first * h->features);
}

static void lai_begin_state(const lai_head *h, float *S) {
    int64_t runs, length, stride, i;
    float *to = lai_state_block(h, S, h->first, h->columns, &runs, &length, &stride);
    const float *from = h->state_in ? h->state_in + (to - S) : NULL;
    if (from == to) return;
    for (i = 0; i < runs; ++i) {
        if (!from)
            memset(to + i * stride, 0, (size_t)length * sizeof *to);
        else
            memcpy(to + i * stride, from + i * stride, (size_t)length * sizeof *to);
    }
}

typedef struct lai_tokens {
    float *u, *e, *y, *spare, *z, *gates, *predictor, *factor, *own, *S;
    float stay[32];
    lai_stream stream;
} lai_tokens;

/* the state after t tokens, if it is one of the last that are asked for; S may be the caller's */
static void lai_take_snapshot(const lai_head *h, const lai_tokens *c, int64_t t, float maximum) {
    const int64_t place = t - h->keys + h->snapshot_count - 1, n = h->features;
    int64_t runs, length, stride, i;
    float *S, *to;
    if (place < 0 || place >= h->snapshot_count) return;
    to = h->snapshots + place * h->snapshot_step;
    S = lai_state_block(h, c->S, h->first, h->columns, &runs, &length, &stride);
    for (i = 0; i < runs; ++i)
        memcpy(to + (S - c->S) + i * stride, S + i * stride, (size_t)length * sizeof *to);
    if (h->normalised) memcpy(to + n * h->dim_v, c->z, (size_t)n * sizeof *to);
    if (lai_has_maximum(h->layer)) to[n * h->dim_v + n] = maximum;
}

typedef struct lai_chunk {
    float *panels, *kappa, *transposed, *U; /* S0; keys [C][rows], [C/16][rows][16]; u by panels */
    float *first;      /* [streams][columns]: what a chunk's first token reads early */
    float *P, *factor; /* scores [streams][6][length]; [streams][6] */
    float *decay;      /* [length]: the row D_t; one decay for all channels */
    float *x, *gamma;  /* [streams][6][rows]: decayed x; [1 + 6][rows], from the token before on, */
                       /* and per channel the same since the tile began, and its gate [2][rows] */
    float *sum, *rest; /* [rows] each: the logarithm of gamma; per channel */
    float *gates, *z;  /* [6][2][rows], [rows] */
    double log_gamma;  /* of one decay for all channels */
    lai_stream stream;
    int64_t rows, size, length; /* of a feature vector, a chunk and a row of scores */
    int64_t count, streams;     /* tokens so far; what reads S0: what predicts, the queries */
    int64_t writes, predicts;   /* of a token: 1, or 2 of DPLR; streams that predict: 0 or 1 */
    int gated, empty;           /* empty: S0 is 0 */
    int64_t silent;             /* the last token if it wrote next to nothing, else -1 */
} lai_chunk;

/* up to six tokens: their features, gates as lai_store_gate has them, and decays of S0 */
typedef struct lai_tile {
    const lai_mapped *mapped;
    float value[16], step[16], gamma[LAI_TILE];
    int64_t t, rows;
} lai_tile;

static float *lai_score_row(const lai_chunk *c, int64_t stream, int64_t r) {
    return c->P + (stream * LAI_TILE + r) * c->length;
}

/* features of row r for a stream: 0 is what predicts, then the query heads */
static const float *lai_stream_row(const lai_chunk *c, const lai_mapped *y, int64_t stream,
                                   int64_t r) {
    if (stream < c->predicts) return y->p.at + r * y->p.step;
    return y->q.at + r * y->q.step + (stream - c->predicts) * y->q_next;
}

/* does it read before the token's own gate acts? */
static int lai_is_early(const lai_head *h, int64_t stream) {
    return h->before || (h->dplr && stream == 0);
}

/* what FAVOR+ rescales the state by at row r of the tile, as a logarithm */
static double lai_tile_shift(const lai_head *h, const lai_mapped *y, int64_t r, float before) {
    if (!lai_has_maximum(h->layer)) return 0.0;
    return lai_shift(h, r > 0 ? y->k_max[r - 1] : before, y->k_max[r]);
}

#ifdef LA_EXTRAS
/* ---- attention ------------------------------------------------------------------------------- */

#define LAI_BLOCK_ROWS 192 /* queries of a block: whole panels of 16 and whole tiles */
#define LAI_BLOCK_KEYS 192 /* keys of a block: whole tiles. 96 .. 288 of both are within 4 % */
#define LAI_FEW_ROWS   4   /* so few queries read keys and values where they are */
#define LAI_LOWEST     (-3.40282347e+38f)
#define LAI_LINEAR     2 /* a kind of attention whose weights are given, as rows of the keys */

static void lai_check_attention(lai_check *c, const la_attention *l) {
    if (!LAI_CHECK_STRUCT(c, l, "layer")) return;
    lai_check_choice(c, l->kind, 2, LA_E_VARIANT, "kind");
    lai_check_choice(c, l->bidirectional, 2, LA_E_VALUE, "bidirectional");
    lai_check_size(c, l->q_heads, 1, LAI_MAX_DIM, "q_heads");
    lai_check_size(c, l->kv_heads, 1, LAI_MAX_DIM, "kv_heads");
    lai_check_size(c, l->dim_k, 0, LAI_MAX_DIM, "dim_k");
    lai_check_size(c, l->dim_v, 1, LAI_MAX_DIM, "dim_v");
    lai_check_size(c, l->window, 0, LAI_MAX_COUNT, "window");
    lai_check_size(c, l->sinks, 0, LAI_MAX_COUNT, "sinks");
    lai_check_choice(c, l->head_map, 2, LA_E_VALUE, "head_map");
    lai_check_number(c, l->scale, 1, "scale");
    lai_check_number(c, l->bias, 1, "bias");
    if (c->status == LA_OK) lai_fail(c, l->q_heads % l->kv_heads != 0, LA_E_HEADS, "q_heads");
}

static int64_t lai_attention_tokens(const la_attention_call *call, int64_t b) {
    return call->lengths ? call->lengths[b] : call->tokens;
}

/* Keys of sequence b. What pads causal queries at the end is missing from the keys, too. */
static int64_t lai_attention_keys(const la_attention *layer, const la_attention_call *call,
                                  int64_t b) {
    if (call->key_lengths) return call->key_lengths[b];
    if (layer->bidirectional || !call->lengths) return call->keys;
    return LAI_MAX(call->keys - (call->tokens - call->lengths[b]), 0);
}

static void lai_check_attention_call(lai_check *c, const la_attention *layer,
                                     const la_attention_call *call) {
    int64_t b;
    if (!LAI_CHECK_STRUCT(c, call, "call")) return;
    lai_check_run(c, call->isa, call->thread_index, call->thread_count, call->batch, call->tokens);
    lai_check_size(c, call->keys, 0, LAI_MAX_COUNT, "keys");
    if (c->status != LA_OK) return;
    lai_fail(c, lai_muladd(lai_muladd(call->batch, layer->q_heads, 0), call->tokens, 0) < 0,
             LA_E_OVERFLOW, "batch");
    for (b = 0; b < call->batch && call->lengths; ++b)
        lai_check_size(c, call->lengths[b], 0, call->tokens, "lengths");
    for (b = 0; b < call->batch && call->key_lengths; ++b)
        lai_check_size(c, call->key_lengths[b], 0, call->keys, "key_lengths");
    for (b = 0; b < call->batch && call->positions; ++b)
        lai_check_size(c, call->positions[b], -LAI_MAX_COUNT, LAI_MAX_COUNT, "positions");
}

/* Bytes of its workspace, behind `more` floats of a layer that is built on it; 0 where that is too
 * much. */
static size_t lai_attention_bytes(int64_t dim_k, int64_t dim_v, int64_t more) {
    const int64_t row = dim_k + LAI_ROUND16(dim_v) + LAI_BLOCK_KEYS + 3;
    const int64_t floats = lai_muladd(LAI_BLOCK_ROWS, row, LAI_BLOCK_KEYS * 32);
    if (more < 0 || more > PTRDIFF_MAX / 8) return 0;
    return (size_t)(floats + more) * sizeof(float) + LAI_ALIGN;
}

/* The rest of a check. in[7] and on are those of a layer that is built on attention. */
static void lai_check_attention_tensors(lai_check *c, const la_attention *layer,
                                        const la_attention_call *call, lai_range in[LAI_INPUTS],
                                        size_t bytes) {
    static const lai_names names[6] = {LAI_NAMES(q),      LAI_NAMES(k),   LAI_NAMES(v),
                                       LAI_NAMES(logits), LAI_NAMES(out), LAI_NAMES(lse)};
    static const char *const outputs[3] = {"out", "lse", "workspace"};
    const int64_t B = call->batch, T = call->tokens, S = call->keys, dk = layer->dim_k,
                  dv = layer->dim_v, heads = layer->q_heads, kv_heads = layer->kv_heads;
    lai_range out[3];
    memset(out, 0, sizeof out);
    if (dk > 0) in[0] = lai_check_in(c, &call->q, B, T, heads, dk, dk, names[0]);
    if (dk > 0) in[1] = lai_check_in(c, &call->k, B, S, kv_heads, dk, dk, names[1]);
    in[2] = lai_check_in(c, &call->v, B, S, kv_heads, dv, dv, names[2]);
    if (call->logits.data && S > 0)
        in[3] = lai_check_in(c, &call->logits, B, T, heads, S, S, names[3]);
    in[4] = lai_list(call->lengths, B);
    in[5] = lai_list(call->key_lengths, B);
    in[6] = lai_list(call->positions, B);
    out[0] = lai_check_out(c, &call->out, B, T, heads, dv, names[4]);
    lai_fail(c, call->lse.data && layer->kind != LA_SOFTMAX, LA_E_UNSUPPORTED, "lse");
    if (call->lse.data) out[1] = lai_check_out(c, &call->lse, B, T, heads, 1, names[5]);
    out[2] = lai_check_workspace(c, call->workspace, call->workspace_size, bytes, 1);
    lai_check_apart(c, in, out, 3, -1, outputs);
}

/* A block of the query heads that read one head of keys, as rows: row r of them all is query head
 * r % group of token r / group. Of the block of keys that is at work, a row sees begin .. end - 1;
 * both ascend with the row. */
typedef struct lai_attend {
    const la_attention *layer;
    int isa;
    lai_rows q, k, v, logits;
    lai_rows beta; /* sigmoid(beta): the share of what out holds already; or null: none */
    int beta_wide; /* a number per channel */
    int64_t q_next, logits_next, out_step, out_next, lse_step, lse_next;
    float *out, *lse;
    int64_t group, position, keys;
    int64_t first, rows;        /* of the block; rows behind the last one repeat it */
    float *Q, *S, *V, *O;       /* see the engine */
    float *most, *sum, *shrink; /* of each row: largest logit, sum, what its O is multiplied by */
    int16_t begin[LAI_BLOCK_ROWS], end[LAI_BLOCK_ROWS];
} lai_attend;
LAI_INLINE void lai_attend_prefetch(const float *x, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i += 16) LAI_PREFETCH(x + i);
}

LAI_INLINE const float *lai_attend_query(const lai_attend *a, int64_t r) {
    const int64_t row = a->first + LAI_MIN(r, a->rows - 1);
    return a->q.at + row / a->group * a->q.step + row % a->group * a->q_next;
}

/* logits that are given, for keys from `key` on */
static void lai_attend_logits(const lai_attend *a, int64_t key) {
    int64_t r, j;
    for (r = 0; r < a->rows; ++r) {
        const int64_t row = a->first + r, token = row / a->group, head = row % a->group;
        const float *x = a->logits.at + token * a->logits.step + head * a->logits_next + key;
        float *S = a->S + r / 16 * 16 * LAI_BLOCK_KEYS + r % 16;
        for (j = a->begin[r]; j < a->end[r]; ++j) S[16 * j] += x[j];
    }
}

/* what a row does not see, of the keys that its panel sees */
static void lai_attend_mask(const lai_attend *a) {
    int64_t r, j;
    for (r = 0; r < LAI_ROUND16(a->rows); ++r) {
        const int64_t p = r / 16 * 16;
        float *S = a->S + p * LAI_BLOCK_KEYS + r % 16;
        for (j = a->begin[p]; j < a->begin[r]; ++j) S[16 * j] = -HUGE_VALF;
        for (j = a->end[r]; j < a->end[p + 15]; ++j) S[16 * j] = -HUGE_VALF;
    }
}

typedef struct lai_keys {
    int64_t begin, end;
} lai_keys;

/* which keys a token sees: of those that stay outside the window, or of the others */
static lai_keys lai_attend_keys(const lai_attend *a, int64_t token, int sinks) {
    const la_attention *l = a->layer;
    const int64_t at = a->position + token;
    const int64_t last = l->bidirectional ? a->keys : LAI_MIN(at + 1, a->keys);
    const int64_t kept = l->window ? l->sinks : 0;
    lai_keys seen;
    seen.begin = l->window ? LAI_MAX(at - l->window + 1, kept) : 0;
    seen.end = l->window ? LAI_MIN(at + l->window, last) : last;
    if (sinks) seen.begin = 0, seen.end = LAI_MIN(kept, last);
    seen.end = LAI_MAX(seen.end, 0);
    seen.begin = LAI_MIN(seen.begin, seen.end);
    return seen;
}

/* ---- element-wise recurrences: what a pass works on ------------------------------------------ */

#define LAI_SCAN 64 /* channels that are taken along all tokens at once */

typedef struct lai_scan {
    lai_rows k, v, log_decay;
    const float *bonus;
    float *out;
    int64_t out_step;
    int64_t tokens, channels;
    float state[3][LAI_SCAN]; /* numerator, denominator and maximum; or the state alone */
} lai_scan;

#define LAI_FINE (1.0f / 64.0f) /* what a maximum's rounding may leave to the sums */
#endif

/* ================================================================================================
 * [LA-4] INSTRUCTION SETS
 *
 * VECTOR LAYER, PRIMITIVES and ENGINE are compiled once per instruction set: the file includes
 * itself inside a target region, so plain `cc` builds the fast kernels and a debugger can step
 * through them. The scalar pass follows in place.
 * ============================================================================================== */

#define LAI_PASS_SCALAR 1
#define LAI_PASS_AVX2   2
#define LAI_PASS_AVX512 3
#define LAI_PASS_NEON   4

/* What differs between passes, but for registers. Panels of a visit; sums of several rows that the
 * pair pass keeps apart, for two and for four chains of multiply-adds a row, as many as keep the
 * units busy and as registers allow; APART: fewer kernels of the recurrent form. */
#define LAI_PANELS    (LAI_PASS == LAI_PASS_AVX512 ? 2 : 1)
#define LAI_SPAN      (16 * LAI_PANELS) /* columns of a visit */
#define LAI_TWO_SETS  (LAI_PASS == LAI_PASS_AVX2 || LAI_PASS == LAI_PASS_AVX512 ? 2 : 1)
#define LAI_FOUR_SETS (LAI_PASS == LAI_PASS_AVX512 ? 2 : 1)
#define LAI_APART     (LAI_PASS == LAI_PASS_SCALAR)

#ifndef LA_SELF
#define LA_SELF "linear_attention.h" /* this file's own name, for a renamed copy */
#endif

#if LAI_HAS_AVX2
#define LAI_PASS   LAI_PASS_AVX2
#define LAI_SUFFIX avx2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#include LA_SELF
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef LAI_PASS
#undef LAI_SUFFIX

#define LAI_PASS   LAI_PASS_AVX512
#define LAI_SUFFIX avx512
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx2,fma"))),                 \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx2,fma")
#endif
#include LA_SELF
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef LAI_PASS
#undef LAI_SUFFIX
#endif

#if LAI_HAS_NEON /* part of every aarch64 processor: no target region */
#define LAI_PASS   LAI_PASS_NEON
#define LAI_SUFFIX neon
#include LA_SELF
#undef LAI_PASS
#undef LAI_SUFFIX
#endif

#define LAI_PASS   LAI_PASS_SCALAR
#define LAI_SUFFIX scalar
#define LAI_IN_PLACE

#endif /* LA_IMPLEMENTATION */

#ifdef LAI_PASS /* the implementation's first part has been seen, here or by the including file */

/* ------------------------------------------------------------------------------------------------
 * [LA-5] VECTOR LAYER
 *
 * Two levels. A register, lai_r, is what the instruction set has: each one brings about 16
 * operations. A vector, lai_v, is 16 lanes of as many registers as that takes, in every pass: 16
 * columns of a state are its lanes, which never mix, so results do not depend on the width of a
 * register. All kernels are written on lai_v. n counts the lanes that exist in memory: the others
 * load as 0 and are not stored. A product reaches an addition only through fma, so that no
 * compiler's contraction can change bits.
 * ---------------------------------------------------------------------------------------------- */

#define LAI_NAME(x) LAI_PASTE(LAI_SUFFIX, x)

/* The names of a pass: lai_x is lai_avx2_x, lai_scalar_x, .. until the end of the ENGINE. What only
 * one pass has keeps its name. */
#define lai_r                 LAI_NAME(r)
#define lai_lanes             LAI_NAME(lanes)
#define lai_r_times_pow2      LAI_NAME(r_times_pow2)
#define lai_r_sum4            LAI_NAME(r_sum4)
#define lai_r_load_n          LAI_NAME(r_load_n)
#define lai_r_store_n         LAI_NAME(r_store_n)
#define lai_v                 LAI_NAME(v)
#define lai_make              LAI_NAME(make)
#define lai_add               LAI_NAME(add)
#define lai_sub               LAI_NAME(sub)
#define lai_mul               LAI_NAME(mul)
#define lai_div               LAI_NAME(div)
#define lai_fma               LAI_NAME(fma)
#define lai_fnma              LAI_NAME(fnma)
#define lai_max               LAI_NAME(max)
#define lai_min               LAI_NAME(min)
#define lai_exponent          LAI_NAME(exponent)
#define lai_times_pow2        LAI_NAME(times_pow2)
#define lai_greater           LAI_NAME(greater)
#define lai_not_less          LAI_NAME(not_less)
#define lai_keep              LAI_NAME(keep)
#define lai_set               LAI_NAME(set)
#define lai_zero              LAI_NAME(zero)
#define lai_load              LAI_NAME(load)
#define lai_load_n            LAI_NAME(load_n)
#define lai_load_fours        LAI_NAME(load_fours)
#define lai_store             LAI_NAME(store)
#define lai_store_n           LAI_NAME(store_n)
#define lai_store_eights      LAI_NAME(store_eights)
#define lai_turn4             LAI_NAME(turn4)
#define lai_sum4              LAI_NAME(sum4)
#define lai_any_greater       LAI_NAME(any_greater)
#define lai_fma1              LAI_NAME(fma1)
#define lai_sum               LAI_NAME(sum)
#define lai_exp_parts         LAI_NAME(exp_parts)
#define lai_exp               LAI_NAME(exp)
#define lai_exp_low           LAI_NAME(exp_low)
#define lai_decay             LAI_NAME(decay)
#define lai_flush             LAI_NAME(flush)
#define lai_flush_all         LAI_NAME(flush_all)
#define lai_read              LAI_NAME(read)
#define lai_two               LAI_NAME(two)
#define lai_load_two          LAI_NAME(load_two)
#define lai_store_two         LAI_NAME(store_two)
#define lai_madd              LAI_NAME(madd)
#define lai_times             LAI_NAME(times)
#define lai_tile6             LAI_NAME(tile6)
#define lai_tile_set          LAI_NAME(tile_set)
#define lai_tile_add          LAI_NAME(tile_add)
#define lai_dot4              LAI_NAME(dot4)
#define lai_dot               LAI_NAME(dot)
#define lai_pair_row          LAI_NAME(pair_row)
#define lai_sum_sets          LAI_NAME(sum_sets)
#define lai_pair              LAI_NAME(pair)
#define lai_look              LAI_NAME(look)
#define lai_pair_passes       LAI_NAME(pair_passes)
#define lai_largest           LAI_NAME(largest)
#define lai_add_square        LAI_NAME(add_square)
#define lai_square            LAI_NAME(square)
#define lai_identity16        LAI_NAME(identity16)
#define lai_elu16             LAI_NAME(elu16)
#define lai_sincos            LAI_NAME(sincos)
#define lai_angle             LAI_NAME(angle)
#define lai_project           LAI_NAME(project)
#define lai_project_row       LAI_NAME(project_row)
#define lai_favor_relu        LAI_NAME(favor_relu)
#define lai_favor_exp         LAI_NAME(favor_exp)
#define lai_exp_row           LAI_NAME(exp_row)
#define lai_cos_sin           LAI_NAME(cos_sin)
#define lai_affine            LAI_NAME(affine)
#define lai_softmax           LAI_NAME(softmax)
#define lai_hedgehog          LAI_NAME(hedgehog)
#define lai_fourier           LAI_NAME(fourier)
#define lai_taylor            LAI_NAME(taylor)
#define lai_dpfp              LAI_NAME(dpfp)
#define lai_dpfp_run          LAI_NAME(dpfp_run)
#define lai_map_row           LAI_NAME(map_row)
#define lai_map_rows          LAI_NAME(map_rows)
#define lai_map               LAI_NAME(map)
#define lai_map_partners      LAI_NAME(map_partners)
#define lai_gate_row          LAI_NAME(gate_row)
#define lai_load_z            LAI_NAME(load_z)
#define lai_load_panels       LAI_NAME(load_panels)
#define lai_store_panels      LAI_NAME(store_panels)
#define lai_value             LAI_NAME(value)
#define lai_finish            LAI_NAME(finish)
#define lai_written           LAI_NAME(written)
#define lai_pair_decays       LAI_NAME(pair_decays)
#define lai_finish_query      LAI_NAME(finish_query)
#define lai_pair_z            LAI_NAME(pair_z)
#define lai_pair_narrow       LAI_NAME(pair_narrow)
#define lai_sum_exactly       LAI_NAME(sum_exactly)
#define lai_rows_leave        LAI_NAME(rows_leave)
#define lai_pair_wide_keys    LAI_NAME(pair_wide_keys)
#define lai_pair_light        LAI_NAME(pair_light)
#define lai_pair_products     LAI_NAME(pair_products)
#define lai_pair_wide         LAI_NAME(pair_wide)
#define lai_pair_dplr         LAI_NAME(pair_dplr)
#define lai_stage_pairs       LAI_NAME(stage_pairs)
#define lai_pair_coefficients LAI_NAME(pair_coefficients)
#define lai_pair_silent       LAI_NAME(pair_silent)
#define lai_may_keep          LAI_NAME(may_keep)
#define lai_prepare_pair      LAI_NAME(prepare_pair)
#define lai_pair_beta         LAI_NAME(pair_beta)
#define lai_pair_part         LAI_NAME(pair_part)
#define lai_pair_error        LAI_NAME(pair_error)
#define lai_pair_output       LAI_NAME(pair_output)
#define lai_pair_looks        LAI_NAME(pair_looks)
#define lai_pair_before       LAI_NAME(pair_before)
#define lai_pair_behind       LAI_NAME(pair_behind)
#define lai_pair_panels       LAI_NAME(pair_panels)
#define lai_dplr_output       LAI_NAME(dplr_output)
#define lai_pair_block        LAI_NAME(pair_block)
#define lai_settle_pairs      LAI_NAME(settle_pairs)
#define lai_layout_pairs      LAI_NAME(layout_pairs)
#define lai_absorb_pairs      LAI_NAME(absorb_pairs)
#define lai_begin_pairs       LAI_NAME(begin_pairs)
#define lai_end_pairs         LAI_NAME(end_pairs)
#define lai_run_pairs         LAI_NAME(run_pairs)
#define lai_read_pair         LAI_NAME(read_pair)
#define lai_run_bidirectional LAI_NAME(run_bidirectional)
#define lai_store_gate        LAI_NAME(store_gate)
#define lai_stay              LAI_NAME(stay)
#define lai_gates             LAI_NAME(gates)
#define lai_decay_as          LAI_NAME(decay_as)
#define lai_decay_row         LAI_NAME(decay_row)
#define lai_decay_rows        LAI_NAME(decay_rows)
#define lai_decay_all         LAI_NAME(decay_all)
#define lai_is_tiny           LAI_NAME(is_tiny)
#define lai_is_silent         LAI_NAME(is_silent)
#define lai_flush_rows        LAI_NAME(flush_rows)
#define lai_token_row         LAI_NAME(token_row)
#define lai_token_columns     LAI_NAME(token_columns)
#define lai_token_16          LAI_NAME(token_16)
#define lai_token_rows        LAI_NAME(token_rows)
#define lai_columns_passes    LAI_NAME(columns_passes)
#define lai_rows_passes       LAI_NAME(rows_passes)
#define lai_token_rows_block  LAI_NAME(token_rows_block)
#define lai_query_rows        LAI_NAME(query_rows)
#define lai_read_columns      LAI_NAME(read_columns)
#define lai_token_output      LAI_NAME(token_output)
#define lai_columns_output    LAI_NAME(columns_output)
#define lai_query_columns     LAI_NAME(query_columns)
#define lai_write_columns     LAI_NAME(write_columns)
#define lai_token_kv          LAI_NAME(token_kv)
#define lai_read_rows         LAI_NAME(read_rows)
#define lai_token_vk          LAI_NAME(token_vk)
#define lai_sweep_block       LAI_NAME(sweep_block)
#define lai_sweep             LAI_NAME(sweep)
#define lai_token_factors     LAI_NAME(token_factors)
#define lai_begin_tokens      LAI_NAME(begin_tokens)
#define lai_run_token         LAI_NAME(run_token)
#define lai_token_prefetch    LAI_NAME(token_prefetch)
#define lai_run_recurrent     LAI_NAME(run_recurrent)
#define lai_read_first        LAI_NAME(read_first)
#define lai_decay_chunk       LAI_NAME(decay_chunk)
#define lai_open_chunk        LAI_NAME(open_chunk)
#define lai_chunk_gate        LAI_NAME(chunk_gate)
#define lai_update_panels     LAI_NAME(update_panels)
#define lai_close_chunk       LAI_NAME(close_chunk)
#define lai_forgets           LAI_NAME(forgets)
#define lai_begin_tile        LAI_NAME(begin_tile)
#define lai_append_keys       LAI_NAME(append_keys)
#define lai_transpose_keys    LAI_NAME(transpose_keys)
#define lai_narrow_scores     LAI_NAME(narrow_scores)
#define lai_wide_scores       LAI_NAME(wide_scores)
#define lai_past_scores       LAI_NAME(past_scores)
#define lai_near_scores       LAI_NAME(near_scores)
#define lai_decay_stream      LAI_NAME(decay_stream)
#define lai_tile_factors      LAI_NAME(tile_factors)
#define lai_tile_read         LAI_NAME(tile_read)
#define lai_tile_writes       LAI_NAME(tile_writes)
#define lai_tile_outputs      LAI_NAME(tile_outputs)
#define lai_tile_panels       LAI_NAME(tile_panels)
#define lai_ask_tile          LAI_NAME(ask_tile)
#define lai_begin_chunks      LAI_NAME(begin_chunks)
#define lai_run_chunks        LAI_NAME(run_chunks)
#define lai_run_form          LAI_NAME(run_form)
#define lai_attend_queries    LAI_NAME(attend_queries)
#define lai_attend_scores     LAI_NAME(attend_scores)
#define lai_attend_dots       LAI_NAME(attend_dots)
#define lai_attend_given      LAI_NAME(attend_given)
#define lai_attend_softmax    LAI_NAME(attend_softmax)
#define lai_attend_sigmoid    LAI_NAME(attend_sigmoid)
#define lai_attend_pack       LAI_NAME(attend_pack)
#define lai_attend_sum        LAI_NAME(attend_sum)
#define lai_attend_tile       LAI_NAME(attend_tile)
#define lai_attend_values     LAI_NAME(attend_values)
#define lai_attend_reads      LAI_NAME(attend_reads)
#define lai_attend_weights    LAI_NAME(attend_weights)
#define lai_attend_block      LAI_NAME(attend_block)
#define lai_attend_finish     LAI_NAME(attend_finish)
#define lai_run_attend        LAI_NAME(run_attend)
#define lai_logistic16        LAI_NAME(logistic16)
#define lai_attend_mix        LAI_NAME(attend_mix)
#define lai_infini_errors     LAI_NAME(infini_errors)
#define lai_dense_rows        LAI_NAME(dense_rows)
#define lai_pick              LAI_NAME(pick)
#define lai_two_weights       LAI_NAME(two_weights)
#define lai_wkv_decay         LAI_NAME(wkv_decay)
#define lai_wkv               LAI_NAME(wkv)
#define lai_hgrn              LAI_NAME(hgrn)
#define lai_run_scan          LAI_NAME(run_scan)

#if LAI_PASS == LAI_PASS_SCALAR
#define LAI_WHOLE 0.0f         /* bits are not used; -ffast-math would take sums with it apart */
#define LAI_LARGE LAI_NOINLINE /* half the code, and half the time to compile it */
#define LAI_ROWS4 LAI_LOOP4
#else
#define LAI_WHOLE 12582912.0f /* 1.5 * 2^23: see lai_exponent */
#define LAI_LARGE LAI_INLINE  /* what the scalar pass needs many instructions for */
#define LAI_ROWS4 LAI_UNROLL4
#endif

#if LAI_PASS == LAI_PASS_AVX2

#define LAI_LANES 8
typedef __m256 lai_r;
#define LAI_FENCE_SUM(x)  ((void)0)
#define LAI_LEAVE()       _mm256_zeroupper() /* compilers forget it on some paths */
#define LAI_R_SET(x)      _mm256_set1_ps(x)
#define LAI_R_LOAD(p)     _mm256_loadu_ps(p)
#define LAI_R_STORE(p, x) _mm256_storeu_ps(p, x)
#define LAI_R_LOAD_FOURS(p)                                                                        \
    _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps((p) + 4), 1)
#define LAI_R_ADD(x, y)      _mm256_add_ps(x, y)
#define LAI_R_SUB(x, y)      _mm256_sub_ps(x, y)
#define LAI_R_MUL(x, y)      _mm256_mul_ps(x, y)
#define LAI_R_DIV(x, y)      _mm256_div_ps(x, y)
#define LAI_R_FMA(x, y, z)   _mm256_fmadd_ps(x, y, z)
#define LAI_R_FMA1(s, y, z)  LAI_R_FMA(LAI_R_SET(s), y, z) /* s: a number */
#define LAI_R_FNMA(x, y, z)  _mm256_fnmadd_ps(x, y, z)
#define LAI_R_MAX(x, y)      _mm256_max_ps(x, y)
#define LAI_R_MIN(x, y)      _mm256_min_ps(x, y)
#define LAI_R_GREATER(x, y)  _mm256_cmp_ps(x, y, _CMP_GT_OQ)
#define LAI_R_NOT_LESS(x, y) _mm256_cmp_ps(x, y, _CMP_NLT_UQ)
#define LAI_R_KEEP(x, mask)  _mm256_and_ps(x, mask)
#define LAI_R_ANY(mask)      (_mm256_movemask_ps(mask) != 0)

/* Nothing of x is computed before this point: keeps compilers from interleaving unrolled rows
 * until the registers no longer suffice. */
#define LAI_FENCE(x) __asm__ volatile("" : "+x"((x).a), "+x"((x).b))

LAI_INLINE __m256i lai_lanes(int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
#define LAI_R_LOAD_N(p, n)     _mm256_maskload_ps(p, lai_lanes(n))
#define LAI_R_STORE_N(p, x, n) lai_r_store_n(p, x, n)

/* in parts: a masked store takes a Zen 4 more than ten cycles */
LAI_INLINE void lai_r_store_n(float *p, lai_r x, int64_t n) {
    __m128 part = _mm256_castps256_ps128(x);
    if (n >= 8) {
        _mm256_storeu_ps(p, x);
        return;
    }
    if (n <= 0) return;
    if (n & 4) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps(x, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)(void *)p, part);
        part = _mm_movehl_ps(part, part);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, part);
}

LAI_INLINE lai_r lai_r_times_pow2(lai_r x, lai_r n) {
    const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), power));
}

LAI_INLINE void lai_r_sum4(float s[4], lai_r x, lai_r y, lai_r z, lai_r w) {
    const __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(x, y), _mm256_hadd_ps(z, w));
    _mm_storeu_ps(s, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
}

#elif LAI_PASS == LAI_PASS_AVX512

#define LAI_LANES          16
typedef __m512 lai_r;
#define LAI_FENCE_SUM(x)   ((void)0)
#define LAI_LEAVE()        _mm256_zeroupper()
#define LAI_R_SET(x)       _mm512_set1_ps(x)
#define LAI_R_LOAD(p)      _mm512_loadu_ps(p)
#define LAI_R_LOAD_N(p, n) _mm512_maskz_loadu_ps(lai_lanes(n), p)
#define LAI_R_STORE(p, x)  _mm512_storeu_ps(p, x)
#define LAI_R_LOAD_FOURS(p)                                                                        \
    _mm512_insertf32x4(                                                                            \
        _mm512_insertf32x4(                                                                        \
            _mm512_insertf32x4(_mm512_castps128_ps512(_mm_loadu_ps(p)), _mm_loadu_ps((p) + 4), 1), \
            _mm_loadu_ps((p) + 8), 2),                                                             \
        _mm_loadu_ps((p) + 12), 3)
#define LAI_R_STORE_N(p, x, n) _mm512_mask_storeu_ps(p, lai_lanes(n), x)
#define LAI_R_ADD(x, y)        _mm512_add_ps(x, y)
#define LAI_R_SUB(x, y)        _mm512_sub_ps(x, y)
#define LAI_R_MUL(x, y)        _mm512_mul_ps(x, y)
#define LAI_R_DIV(x, y)        _mm512_div_ps(x, y)
#define LAI_R_FMA(x, y, z)     _mm512_fmadd_ps(x, y, z)
#define LAI_R_FMA1(s, y, z)    LAI_R_FMA(LAI_R_SET(s), y, z)
#define LAI_R_FNMA(x, y, z)    _mm512_fnmadd_ps(x, y, z)
#define LAI_R_MAX(x, y)        _mm512_max_ps(x, y)
#define LAI_R_MIN(x, y)        _mm512_min_ps(x, y)
#define LAI_R_GREATER(x, y)                                                                        \
    _mm512_castsi512_ps(_mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(x, y, _CMP_GT_OQ), -1))
#define LAI_R_NOT_LESS(x, y)                                                                       \
    _mm512_castsi512_ps(_mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(x, y, _CMP_NLT_UQ), -1))
#define LAI_R_KEEP(x, mask)                                                                        \
    _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_castps_si512(mask)))
#define LAI_R_ANY(mask)                                                                            \
    (_mm512_test_epi32_mask(_mm512_castps_si512(mask), _mm512_castps_si512(mask)) != 0)
#define LAI_FENCE(x) __asm__ volatile("" : "+v"((x).a))

LAI_INLINE __mmask16 lai_lanes(int64_t n) {
    return (__mmask16)((1u << (n < 0 ? 0 : n > 16 ? 16 : n)) - 1u);
}

LAI_INLINE lai_r lai_r_times_pow2(lai_r x, lai_r n) {
    const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(n), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), power));
}

/* the upper half of x */
LAI_INLINE __m256 lai_r_upper(lai_r x) {
    return _mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(x), 1));
}

LAI_INLINE __m256 lai_r_half(lai_r x) { /* the sum of the halves of x */
    return _mm256_add_ps(_mm512_castps512_ps256(x), lai_r_upper(x));
}
LAI_INLINE void lai_r_sum4(float s[4], lai_r x, lai_r y, lai_r z, lai_r w) {
    const __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(lai_r_half(x), lai_r_half(y)),
                                    _mm256_hadd_ps(lai_r_half(z), lai_r_half(w)));
    _mm_storeu_ps(s, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
}

#elif LAI_PASS == LAI_PASS_NEON

#define LAI_LANES              4
typedef float32x4_t lai_r;
#define LAI_LEAVE()            ((void)0)
#define LAI_R_SET(x)           vdupq_n_f32(x)
#define LAI_R_LOAD(p)          vld1q_f32(p)
#define LAI_R_LOAD_N(p, n)     lai_r_load_n(p, n)
#define LAI_R_STORE(p, x)      vst1q_f32(p, x)
#define LAI_R_LOAD_FOURS(p)    LAI_R_LOAD(p)
#define LAI_R_STORE_N(p, x, n) lai_r_store_n(p, x, n)
#define LAI_R_ADD(x, y)        vaddq_f32(x, y)
#define LAI_R_SUB(x, y)        vsubq_f32(x, y)
#define LAI_R_MUL(x, y)        vmulq_f32(x, y)
#define LAI_R_DIV(x, y)        vdivq_f32(x, y)
#define LAI_R_FMA(x, y, z)     vfmaq_f32(z, x, y)
#define LAI_R_FMA1(s, y, z)    vfmaq_n_f32(z, y, s)
#define LAI_R_FNMA(x, y, z)    vfmsq_f32(z, x, y)
#define LAI_R_MAX(x, y)        vbslq_f32(vcgtq_f32(x, y), x, y)
#define LAI_R_MIN(x, y)        vbslq_f32(vcltq_f32(x, y), x, y)
#define LAI_R_GREATER(x, y)    vreinterpretq_f32_u32(vcgtq_f32(x, y))
#define LAI_R_NOT_LESS(x, y)   vreinterpretq_f32_u32(vmvnq_u32(vcltq_f32(x, y)))
#define LAI_R_KEEP(x, mask)                                                                        \
    vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), vreinterpretq_u32_f32(mask)))
#define LAI_R_ANY(mask)  (vmaxvq_u32(vreinterpretq_u32_f32(mask)) != 0)
#define LAI_FENCE(x)     __asm__ volatile("" : "+w"((x).a), "+w"((x).b), "+w"((x).c), "+w"((x).d))
#define LAI_FENCE_SUM(x) LAI_FENCE(x)

LAI_INLINE lai_r lai_r_load_n(const float *p, int64_t n) {
    float lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int i;
    if (n >= 4) return vld1q_f32(p);
    for (i = 0; i < (int)n; ++i) lanes[i] = p[i];
    return vld1q_f32(lanes);
}

LAI_INLINE void lai_r_store_n(float *p, lai_r x, int64_t n) {
    float lanes[4];
    int i;
    vst1q_f32(lanes, x);
    for (i = 0; i < 4 && i < (int)n; ++i) p[i] = lanes[i];
}

LAI_INLINE lai_r lai_r_times_pow2(lai_r x, lai_r n) {
    const int32x4_t power = vshlq_n_s32(vreinterpretq_s32_f32(n), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x), power));
}

LAI_INLINE void lai_r_sum4(float s[4], lai_r x, lai_r y, lai_r z, lai_r w) {
    vst1q_f32(s, vpaddq_f32(vpaddq_f32(x, y), vpaddq_f32(z, w)));
}

#else /* the scalar pass: four floats, in whatever registers the compiler has for them */

#define LAI_LANES        4
#define LAI_FENCE_SUM(x) ((void)0)
#if LAI_HAS_VECTORS
#define LAI_FENCE(x)         __asm__ volatile("" : : : "memory")
typedef float lai_r __attribute__((vector_size(16)));
typedef int32_t lai_r_bits __attribute__((vector_size(16)));
#define LAI_LANE(x, i)       (x)[i]
#define LAI_R_ADD(x, y)      ((x) + (y))
#define LAI_R_SUB(x, y)      ((x) - (y))
#define LAI_R_MUL(x, y)      ((x) * (y))
#define LAI_R_DIV(x, y)      ((x) / (y))
#define LAI_R_GREATER(x, y)  ((lai_r)((x) > (y)))
#define LAI_R_NOT_LESS(x, y) ((lai_r)(~(lai_r_bits)((x) < (y))))
#define LAI_R_KEEP(x, mask)  ((lai_r)((lai_r_bits)(x) & (lai_r_bits)(mask)))
#define LAI_R_PICK(mask, x, y)                                                                     \
    ((lai_r)(((lai_r_bits)(x) & (lai_r_bits)(mask)) | ((lai_r_bits)(y) & ~(lai_r_bits)(mask))))
#define LAI_R_MAX(x, y) LAI_R_PICK((x) > (y), x, y)
#define LAI_R_MIN(x, y) LAI_R_PICK((x) < (y), x, y)
#else
#define LAI_FENCE(x)         ((void)(x))
typedef struct lai_r {
    float lane[4];
} lai_r;
#define LAI_LANE(x, i)       (x).lane[i]
#define LAI_R_ADD(x, y)      lai_r_add(x, y)
#define LAI_R_SUB(x, y)      lai_r_sub(x, y)
#define LAI_R_MUL(x, y)      lai_r_mul(x, y)
#define LAI_R_DIV(x, y)      lai_r_div(x, y)
#define LAI_R_GREATER(x, y)  lai_r_greater(x, y)
#define LAI_R_NOT_LESS(x, y) lai_r_not_less(x, y)
#define LAI_R_KEEP(x, mask)  lai_r_keep(x, mask)
#define LAI_R_MAX(x, y)      lai_r_max(x, y)
#define LAI_R_MIN(x, y)      lai_r_min(x, y)
#endif
#if !LAI_HAS_FMA && LAI_HAS_VECTORS
#define LAI_R_FMA(x, y, z)  ((x) * (y) + (z))
#define LAI_R_FNMA(x, y, z) ((z) - (x) * (y))
#else
#define LAI_R_FMA(x, y, z)  lai_r_fma(x, y, z)
#define LAI_R_FNMA(x, y, z) lai_r_fnma(x, y, z)
#endif
#define LAI_LEAVE()            ((void)0)
#define LAI_R_SET(x)           lai_r_set(x)
#define LAI_R_FMA1(s, y, z)    LAI_R_FMA(LAI_R_SET(s), y, z)
#define LAI_R_LOAD(p)          lai_r_load(p)
#define LAI_R_LOAD_N(p, n)     lai_r_load_n(p, n)
#define LAI_R_STORE(p, x)      lai_r_store(p, x)
#define LAI_R_LOAD_FOURS(p)    LAI_R_LOAD(p)
#define LAI_R_STORE_N(p, x, n) lai_r_store_n(p, x, n)
#define LAI_R_ANY(mask)        lai_r_any(mask)

/* a function of registers x, y, z in terms of their lanes i */
#define LAI_BY_LANE(inlined, name, parameters, expression)                                         \
    inlined lai_r name parameters {                                                                \
        float lanes[4];                                                                            \
        lai_r r;                                                                                   \
        int i;                                                                                     \
        for (i = 0; i < 4; ++i) lanes[i] = (expression);                                           \
        memcpy(&r, lanes, sizeof r);                                                               \
        return r;                                                                                  \
    }
#define LAI_X LAI_LANE(x, i)
#define LAI_Y LAI_LANE(y, i)
#define LAI_Z LAI_LANE(z, i)
LAI_BY_LANE(LAI_INLINE, lai_r_set, (float s), s)
LAI_BY_LANE(LAI_LARGE, lai_r_load_n, (const float *p, int64_t n), i < (int)n ? p[i] : 0.0f)
LAI_BY_LANE(LAI_INLINE, lai_r_exponent, (lai_r x), floorf(LAI_MADD(LAI_X, 1.44269504f, 0.5f)))
LAI_BY_LANE(LAI_INLINE, lai_r_times_pow2, (lai_r x, lai_r y),
            LAI_X *lai_from_bits((uint32_t)((int32_t)LAI_Y + 127) << 23))
#if !LAI_HAS_VECTORS
LAI_BY_LANE(LAI_INLINE, lai_r_max, (lai_r x, lai_r y), LAI_X > LAI_Y ? LAI_X : LAI_Y)
LAI_BY_LANE(LAI_INLINE, lai_r_min, (lai_r x, lai_r y), LAI_X < LAI_Y ? LAI_X : LAI_Y)
LAI_BY_LANE(LAI_INLINE, lai_r_add, (lai_r x, lai_r y), LAI_X + LAI_Y)
LAI_BY_LANE(LAI_INLINE, lai_r_sub, (lai_r x, lai_r y), LAI_X - LAI_Y)
LAI_BY_LANE(LAI_INLINE, lai_r_mul, (lai_r x, lai_r y), (LAI_X) * (LAI_Y))
LAI_BY_LANE(LAI_INLINE, lai_r_div, (lai_r x, lai_r y), (LAI_X) / (LAI_Y))
LAI_BY_LANE(LAI_INLINE, lai_r_not_less, (lai_r x, lai_r y), LAI_X < LAI_Y ? 0.0f : 1.0f)
LAI_BY_LANE(LAI_INLINE, lai_r_greater, (lai_r x, lai_r y), LAI_X > LAI_Y ? 1.0f : 0.0f)
LAI_BY_LANE(LAI_INLINE, lai_r_keep, (lai_r x, lai_r y), LAI_Y > 0.0f ? LAI_X : 0.0f)
#endif
#if LAI_HAS_FMA || !LAI_HAS_VECTORS
LAI_BY_LANE(LAI_INLINE, lai_r_fma, (lai_r x, lai_r y, lai_r z), LAI_MADD(LAI_X, LAI_Y, LAI_Z))
LAI_BY_LANE(LAI_INLINE, lai_r_fnma, (lai_r x, lai_r y, lai_r z), LAI_MADD(-LAI_X, LAI_Y, LAI_Z))
#endif
#undef LAI_BY_LANE
#undef LAI_X
#undef LAI_Y
#undef LAI_Z

LAI_INLINE lai_r lai_r_load(const float *p) {
    lai_r r;
    memcpy(&r, p, sizeof r);
    return r;
}
LAI_INLINE void lai_r_store(float *p, lai_r x) {
    memcpy(p, &x, sizeof x);
}
LAI_LARGE void lai_r_store_n(float *p, lai_r x, int64_t n) {
    int i;
    for (i = 0; i < 4; ++i)
        if (i < (int)n) p[i] = LAI_LANE(x, i);
}

LAI_INLINE int lai_r_any(lai_r mask) {
    uint32_t bits[4];
    memcpy(bits, &mask, sizeof bits);
    return (bits[0] | bits[1] | bits[2] | bits[3]) != 0;
}

LAI_INLINE float lai_r_sum(lai_r x) {
    return (LAI_LANE(x, 0) + LAI_LANE(x, 1)) + (LAI_LANE(x, 2) + LAI_LANE(x, 3));
}
LAI_INLINE void lai_r_sum4(float s[4], lai_r x, lai_r y, lai_r z, lai_r w) {
    s[0] = lai_r_sum(x);
    s[1] = lai_r_sum(y);
    s[2] = lai_r_sum(z);
    s[3] = lai_r_sum(w);
}

#endif /* instruction sets */

/* From registers to vectors, once for all: MAPn applies an operation of n operands to each
 * register. */
#if LAI_LANES == 16
typedef struct lai_v {
    lai_r a;
} lai_v;
LAI_INLINE lai_v lai_make(lai_r a) {
    lai_v v;
    v.a = a;
    return v;
}
#define LAI_MAP1(op, x)            lai_make(op((x).a))
#define LAI_MAP2(op, x, y)         lai_make(op((x).a, (y).a))
#define LAI_MAP3(op, x, y, z)      lai_make(op((x).a, (y).a, (z).a))
#define LAI_MAP_MEMORY(op, p)      lai_make(op(p, 0))
#define LAI_STORE_MEMORY(op, p, x) op(p, 0, (x).a)
#define LAI_FOLD(op, x)            (x).a
#define LAI_ANY(x)                 LAI_R_ANY((x).a)
#elif LAI_LANES == 8
typedef struct lai_v {
    lai_r a, b;
} lai_v;
LAI_INLINE lai_v lai_make(lai_r a, lai_r b) {
    lai_v v;
    v.a = a;
    v.b = b;
    return v;
}
#define LAI_MAP1(op, x)            lai_make(op((x).a), op((x).b))
#define LAI_MAP2(op, x, y)         lai_make(op((x).a, (y).a), op((x).b, (y).b))
#define LAI_MAP3(op, x, y, z)      lai_make(op((x).a, (y).a, (z).a), op((x).b, (y).b, (z).b))
#define LAI_MAP_MEMORY(op, p)      lai_make(op(p, 0), op(p, 8))
#define LAI_STORE_MEMORY(op, p, x) (op(p, 0, (x).a), op(p, 8, (x).b))
#define LAI_FOLD(op, x)            op((x).a, (x).b)
#define LAI_ANY(x)                 (LAI_R_ANY((x).a) || LAI_R_ANY((x).b))
#else
typedef struct lai_v {
    lai_r a, b, c, d;
} lai_v;
LAI_INLINE lai_v lai_make(lai_r a, lai_r b, lai_r c, lai_r d) {
    lai_v v;
    v.a = a;
    v.b = b;
    v.c = c;
    v.d = d;
    return v;
}
#define LAI_MAP1(op, x) lai_make(op((x).a), op((x).b), op((x).c), op((x).d))
#define LAI_MAP2(op, x, y)                                                                         \
    lai_make(op((x).a, (y).a), op((x).b, (y).b), op((x).c, (y).c), op((x).d, (y).d))
#define LAI_MAP3(op, x, y, z)                                                                      \
    lai_make(op((x).a, (y).a, (z).a), op((x).b, (y).b, (z).b), op((x).c, (y).c, (z).c),            \
             op((x).d, (y).d, (z).d))
#define LAI_MAP_MEMORY(op, p) lai_make(op(p, 0), op(p, 4), op(p, 8), op(p, 12))
#define LAI_STORE_MEMORY(op, p, x)                                                                 \
    (op(p, 0, (x).a), op(p, 4, (x).b), op(p, 8, (x).c), op(p, 12, (x).d))
#define LAI_FOLD(op, x) op(op((x).a, (x).b), op((x).c, (x).d))

#define LAI_ANY(x) (LAI_R_ANY((x).a) || LAI_R_ANY((x).b) || LAI_R_ANY((x).c) || LAI_R_ANY((x).d))
#endif

/* clang-format off */
LAI_INLINE lai_v lai_add(lai_v x, lai_v y) { return LAI_MAP2(LAI_R_ADD, x, y); }
LAI_INLINE lai_v lai_sub(lai_v x, lai_v y) { return LAI_MAP2(LAI_R_SUB, x, y); }
LAI_INLINE lai_v lai_mul(lai_v x, lai_v y) { return LAI_MAP2(LAI_R_MUL, x, y); }
LAI_INLINE lai_v lai_div(lai_v x, lai_v y) { return LAI_MAP2(LAI_R_DIV, x, y); }
/* x y + z */
LAI_INLINE lai_v lai_fma(lai_v x, lai_v y, lai_v z) { return LAI_MAP3(LAI_R_FMA, x, y, z); }
/* z - x y */
LAI_INLINE lai_v lai_fnma(lai_v x, lai_v y, lai_v z) { return LAI_MAP3(LAI_R_FNMA, x, y, z); }
/* x > y ? x : y, so y where one is NaN */
LAI_INLINE lai_v lai_max(lai_v x, lai_v y) { return LAI_MAP2(LAI_R_MAX, x, y); }
LAI_INLINE lai_v lai_min(lai_v x, lai_v y) { return LAI_MAP2(LAI_R_MIN, x, y); }
/* x 2^n, of LAI_WHOLE + n, where x and the result are normal numbers, or NaN; x = 1, n = -127: 0 */
LAI_INLINE lai_v lai_times_pow2(lai_v x, lai_v n) { return LAI_MAP2(lai_r_times_pow2, x, n); }
/* a mask */
LAI_INLINE lai_v lai_greater(lai_v x, lai_v y) { return LAI_MAP2(LAI_R_GREATER, x, y); }
/* a mask of x >= y or NaN */
LAI_INLINE lai_v lai_not_less(lai_v x, lai_v y) { return LAI_MAP2(LAI_R_NOT_LESS, x, y); }
/* x where the mask is set, else 0 */
LAI_INLINE lai_v lai_keep(lai_v x, lai_v mask) { return LAI_MAP2(LAI_R_KEEP, x, mask); }
/* clang-format on */

LAI_INLINE lai_v lai_set(float s) {
    const lai_r r = LAI_R_SET(s);
#define LAI_AT(p, i) r
    return LAI_MAP_MEMORY(LAI_AT, p);
#undef LAI_AT
}
LAI_INLINE lai_v lai_zero(void) {
    return lai_set(0.0f);
}

LAI_INLINE lai_v lai_load(const float *p) {
#define LAI_AT(p, i) LAI_R_LOAD((p) + (i))
    return LAI_MAP_MEMORY(LAI_AT, p);
#undef LAI_AT
}
LAI_INLINE lai_v lai_load_n(const float *p, int64_t n) {
    if (LAI_LIKELY(n >= 16)) return lai_load(p);
#define LAI_AT(p, i) LAI_R_LOAD_N((p) + (i), n - (i))
    return LAI_MAP_MEMORY(LAI_AT, p);
#undef LAI_AT
}
/* 16 floats just stored in fours: a wider load would wait until those stores are through */
LAI_INLINE lai_v lai_load_fours(const float *p) {
#define LAI_AT(p, i) LAI_R_LOAD_FOURS((p) + (i))
    return LAI_MAP_MEMORY(LAI_AT, p);
#undef LAI_AT
}
LAI_INLINE void lai_store(float *p, lai_v x) {
#define LAI_AT(p, i, x) LAI_R_STORE((p) + (i), x)
    LAI_STORE_MEMORY(LAI_AT, p, x);
#undef LAI_AT
}
LAI_INLINE void lai_store_n(float *p, lai_v x, int64_t n) {
#define LAI_AT(p, i, x) LAI_R_STORE_N((p) + (i), x, n - (i))
    if (LAI_LIKELY(n >= 16))
        lai_store(p, x);
    else
        LAI_STORE_MEMORY(LAI_AT, p, x);
#undef LAI_AT
}
/* x0 .. x7 y0 .. y7 x8 .. x15 y8 .. y15: how the pair pass has its coefficients */
LAI_INLINE void lai_store_eights(float *p, lai_v x, lai_v y) {
#if LAI_LANES == 16
    _mm256_storeu_ps(p, _mm512_castps512_ps256(x.a));
    _mm256_storeu_ps(p + 8, _mm512_castps512_ps256(y.a));
    _mm256_storeu_ps(p + 16, lai_r_upper(x.a));
    _mm256_storeu_ps(p + 24, lai_r_upper(y.a));
#elif LAI_LANES == 8
    LAI_R_STORE(p, x.a);
    LAI_R_STORE(p + 8, y.a);
    LAI_R_STORE(p + 16, x.b);
    LAI_R_STORE(p + 24, y.b);
#else
    LAI_R_STORE(p, x.a);
    LAI_R_STORE(p + 4, x.b);
    LAI_R_STORE(p + 8, y.a);
    LAI_R_STORE(p + 12, y.b);
    LAI_R_STORE(p + 16, x.c);
    LAI_R_STORE(p + 20, x.d);
    LAI_R_STORE(p + 24, y.c);
    LAI_R_STORE(p + 28, y.d);
#endif
}
/* four columns of four rows, times s, become rows that are 16 apart */
LAI_INLINE void lai_turn4(float *to, const float *const x[4], int64_t i, float s) {
#if LAI_PASS == LAI_PASS_AVX2 || LAI_PASS == LAI_PASS_AVX512
    const __m128 scale = _mm_set1_ps(s);
    __m128 a = _mm_mul_ps(_mm_loadu_ps(x[0] + i), scale);
    __m128 b = _mm_mul_ps(_mm_loadu_ps(x[1] + i), scale);
    __m128 c = _mm_mul_ps(_mm_loadu_ps(x[2] + i), scale);
    __m128 d = _mm_mul_ps(_mm_loadu_ps(x[3] + i), scale);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + 16, b);
    _mm_storeu_ps(to + 32, c);
    _mm_storeu_ps(to + 48, d);
#else
    int64_t j, r;
    for (j = 0; j < 4; ++j)
        for (r = 0; r < 4; ++r) to[16 * j + r] = x[r][i + j] * s;
#endif
}
LAI_INLINE void lai_sum4(float s[4], lai_v x, lai_v y, lai_v z,
                         lai_v w) /* the sums of four vectors */
{
    lai_r_sum4(s, LAI_FOLD(LAI_R_ADD, x), LAI_FOLD(LAI_R_ADD, y), LAI_FOLD(LAI_R_ADD, z),
               LAI_FOLD(LAI_R_ADD, w));
}
/* is there a lane with x > limit? */
LAI_INLINE int lai_any_greater(lai_v x, float limit) {
    return LAI_ANY(lai_greater(x, lai_set(limit)));
}

/* ------------------------------------------------------------------------------------------------
 * [LA-6] PRIMITIVES
 * ---------------------------------------------------------------------------------------------- */

LAI_INLINE lai_v lai_fma1(float x, lai_v y, lai_v z) {
#define LAI_BY_X(y, z) LAI_R_FMA1(x, y, z)
    return LAI_MAP2(LAI_BY_X, y, z);
#undef LAI_BY_X
}
LAI_INLINE float lai_sum(lai_v x) {
    float s[4];
    lai_sum4(s, x, x, x, x);
    return s[0];
}

/* LAI_WHOLE + n, with the whole number n that is nearest to x / ln 2: added to a float it leaves no
 * fraction, and n in the low bits. At most LAI_WHOLE + most, NaN included, whose bits so do not
 * reach lai_times_pow2. */
LAI_INLINE lai_v lai_exponent(lai_v x, float most) {
#if LAI_PASS == LAI_PASS_SCALAR /* there may be no fma, and more digits than a float's */
    return lai_min(LAI_MAP1(lai_r_exponent, x), lai_set(LAI_WHOLE + most));
#else
    return lai_min(lai_fma(x, lai_set(1.44269504f), lai_set(LAI_WHOLE)), lai_set(LAI_WHOLE + most));
#endif
}

/* exp(x + lo) = s + s e and exp(x + lo) - 1 = (s - 1) + s e, with s = 2^n and e = exp(r) - 1 for
 * |r| <= ln(2) / 2 as r + r^2 p(r), p being the best polynomial of its degree: relative error 3e-9.
 * lo, if any, is a small correction: exp of a sum that a float cannot hold. Below -87.7 s = 0 and
 * e is finite; n stops at 127, from where on r grows until the result is infinite; NaN stays. */
LAI_LARGE lai_v lai_exp_parts(lai_v x, const lai_v *lo, lai_v *s) {
    lai_v power, n, r, p;
    x = lai_max(lai_set(-88.0f), x); /* the second operand is what a NaN yields */
    power = lai_exponent(x, 127.0f);
    n = lai_sub(power, lai_set(LAI_WHOLE));
    r = lai_fnma(n, lai_set(0.693145752f), x); /* ln 2 in two parts: the first has 15 bits */
    r = lai_fnma(n, lai_set(1.42860677e-6f), r);
    if (lo) r = lai_add(r, *lo);
    p = lai_fma(r, lai_set(0.00138145394f), lai_set(0.00836874545f));
    p = lai_fma(p, r, lai_set(0.0416683890f));
    p = lai_fma(p, r, lai_set(0.166665211f));
    p = lai_fma(p, r, lai_set(0.49999994f));
    *s = lai_times_pow2(lai_set(1.0f), power);
    return lai_fma(lai_mul(r, r), p, r);
}

LAI_LARGE lai_v lai_exp(lai_v x, const lai_v *lo) {
    lai_v s, e = lai_exp_parts(x, lo, &s);
    return lai_fma(s, e, s);
}

/* exp(x + lo) for x <= 0, and below -87 either 0 or exp(-87): the power of two is added to the
 * exponent, and ln 2 is one number (relative error 2e-7 at -80, 1e-7 near 0). A quarter fewer
 * multiply-adds. */
LAI_LARGE lai_v lai_exp_low(lai_v x, const lai_v *lo, int zero) {
    const lai_v least = lai_set(-87.0f), there = lai_not_less(x, least);
    lai_v power, n, r, p;
    x = lai_max(least, x);
    power = lai_exponent(x, 0.0f);
    n = lai_sub(power, lai_set(LAI_WHOLE));
    if (LAI_PASS != LAI_PASS_SCALAR) {
        r = lai_fnma(n, lai_set(0.693147181f), x);
    } else { /* without fma the product is rounded: ln 2 in two parts */
        r = lai_fnma(n, lai_set(1.42860677e-6f), lai_fnma(n, lai_set(0.693145752f), x));
    }
    if (lo) r = lai_add(r, *lo);
    p = lai_fma(r, lai_set(0.00138145394f), lai_set(0.00836874545f));
    p = lai_fma(p, r, lai_set(0.0416683890f));
    p = lai_fma(p, r, lai_set(0.166665211f));
    p = lai_fma(p, r, lai_set(0.49999994f));
    p = lai_fma(lai_fma(p, r, lai_set(1.0f)), r, lai_set(1.0f));
    p = lai_times_pow2(p, power);
    return zero ? lai_keep(p, there) : p;
}

/* cos x and sin x to 1e-7: x less the nearest n pi, whose sign is -1 where n is odd, and the best
 * polynomials of their degrees. pi is three numbers, of which n times the first two are exact up to
 * 1e4. Beyond 1e6, where floats no longer resolve an angle, x counts as 1e6; NaN stays. */
LAI_LARGE lai_v lai_cos_sin(lai_v x, lai_v *sine) {
    const lai_v one = lai_set(1.0f), whole = lai_set(LAI_WHOLE);
    lai_v n, odd, r, z, c, s;
    x = lai_max(lai_set(-1e6f), lai_min(lai_set(1e6f), x));
    n = lai_sub(lai_exponent(lai_mul(x, lai_set(0.220635593f)), 1e6f), whole); /* ln 2 / pi */
    odd = lai_sub(lai_exponent(lai_mul(n, lai_set(0.346573591f)), 1e6f), whole);
    odd = lai_fnma(lai_set(2.0f), odd, n); /* -1, 0 or 1 */
    r = lai_fnma(n, lai_set(3.140625f), x);
    r = lai_fnma(n, lai_set(9.67502594e-4f), r);
    r = lai_fnma(n, lai_set(1.50995803e-7f), r);
    z = lai_mul(r, r);
    c = lai_fma(z, lai_set(-2.60768161e-7f), lai_set(2.476187e-5f));
    c = lai_fma(z, c, lai_set(-1.38884038e-3f));
    c = lai_fma(z, c, lai_set(0.0416666418f));
    c = lai_fma(z, lai_fma(z, c, lai_set(-0.5f)), one);
    s = lai_fma(z, lai_set(2.60890397e-6f), lai_set(-1.98111011e-4f));
    s = lai_fma(z, s, lai_set(8.3330879e-3f));
    s = lai_fma(lai_mul(r, z), lai_fma(z, s, lai_set(-0.166666597f)), r);
    odd = lai_fnma(lai_mul(lai_set(2.0f), odd), odd, one);
    *sine = lai_mul(odd, s);
    return lai_mul(odd, c);
}

/* x decayed by one token: x exp(g), from (expm1(g), on) or (exp(g), off), see the recurrent form */
LAI_INLINE lai_v lai_decay(lai_v x, lai_v gate, lai_v step) {
    return lai_fma(x, gate, lai_keep(x, step));
}

/* x, or 0 instead of a denormal number where `value` is that of a weak gate, expm1(g) < 0: a state
 * that nobody writes decays into these, which are slow on many machines, and rounding would keep it
 * there for ever. NaN stays. */
LAI_INLINE lai_v lai_flush(lai_v x, lai_v value) {
    const lai_v size = lai_max(x, lai_sub(lai_zero(), x)), weak = lai_greater(lai_zero(), value);
    const lai_v normal = lai_keep(x, lai_not_less(size, lai_set(1.17549435e-38f)));
    return lai_add(lai_keep(normal, weak), lai_sub(x, lai_keep(x, weak)));
}

/* all denormal numbers of x become 0; n is a multiple of 16 */
static void lai_flush_all(float *x, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i += 16) lai_store(x + i, lai_flush(lai_load(x + i), lai_set(-1.0f)));
}

/* y = sum over i < n of c[i] M[i], rows of `cols` <= 16 columns, `stride` apart; four sums hide the
 * latency of the multiply-add */
LAI_INLINE lai_v lai_read(const float *M, int64_t stride, int64_t cols, const float *c, int64_t n) {
    lai_v y0 = lai_zero(), y1 = y0, y2 = y0, y3 = y0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4, M += 4 * stride, c += 4) {
        y0 = lai_fma1(c[0], lai_load_n(M, cols), y0);
        y1 = lai_fma1(c[1], lai_load_n(M + stride, cols), y1);
        y2 = lai_fma1(c[2], lai_load_n(M + 2 * stride, cols), y2);
        y3 = lai_fma1(c[3], lai_load_n(M + 3 * stride, cols), y3);
    }
    for (; i < n; ++i, M += stride, ++c) y0 = lai_fma1(c[0], lai_load_n(M, cols), y0);
    return lai_add(lai_add(y0, y1), lai_add(y2, y3));
}

/* A vector of two panels side by side, `next` apart, or of one: a. Two share what is loaded of
 * coefficients, for which only AVX-512 has registers enough: 7 - 15 % (pairs), 25 % (tiles). */
typedef struct lai_two {
    lai_v a, b;
} lai_two;

LAI_INLINE lai_two lai_load_two(const float *p, int64_t next, int panels) {
    lai_two x = {lai_load(p), panels == 2 ? lai_load(p + next) : lai_zero()};
    return x;
}
LAI_INLINE void lai_store_two(float *p, int64_t next, const lai_two *x, int panels) {
    lai_store(p, x->a);
    if (panels == 2) lai_store(p + next, x->b);
}
LAI_INLINE void lai_madd(float s, const lai_two *x, lai_two *y, int panels) {
    y->a = lai_fma1(s, x->a, y->a);
    if (panels == 2) y->b = lai_fma1(s, x->b, y->b);
}
LAI_INLINE void lai_times(float s, lai_two *x, int panels) {
    x->a = lai_mul(x->a, lai_set(s));
    if (panels == 2) x->b = lai_mul(x->b, lai_set(s));
}

/* THE tile: six rows of coefficients times a panel M [n][16], each sum in its own register:
 *
 *     y[t] = (or +=) sum over i < n of x[t][i * step] M[i]
 *
 * 12 multiply-adds for two loads and six broadcasts on AVX2, and with two panels on AVX-512. The
 * order of a row's sum is that of i, whatever the other rows are. */
LAI_INLINE void lai_tile6(const float *const x[6], int64_t step, const float *M, int64_t n,
                          float *const y[6], lai_beside next, int add, int panels) {
    const float *xa = x[0], *xb = x[1], *xc = x[2], *xd = x[3], *xe = x[4], *xf = x[5];
    const lai_two zero = {lai_zero(), lai_zero()};
    lai_two a = add ? lai_load_two(y[0], next.y, panels) : zero;
    lai_two b = add ? lai_load_two(y[1], next.y, panels) : zero;
    lai_two c = add ? lai_load_two(y[2], next.y, panels) : zero;
    lai_two d = add ? lai_load_two(y[3], next.y, panels) : zero;
    lai_two e = add ? lai_load_two(y[4], next.y, panels) : zero;
    lai_two f = add ? lai_load_two(y[5], next.y, panels) : zero;
    int64_t i;
    for (i = 0; i < n * step; i += step, M += 16) {
        const lai_two m = lai_load_two(M, next.m, panels);
        lai_madd(xa[i], &m, &a, panels);
        lai_madd(xb[i], &m, &b, panels);
        lai_madd(xc[i], &m, &c, panels);
        lai_madd(xd[i], &m, &d, panels);
        lai_madd(xe[i], &m, &e, panels);
        lai_madd(xf[i], &m, &f, panels);
    }
    lai_store_two(y[0], next.y, &a, panels);
    lai_store_two(y[1], next.y, &b, panels);
    lai_store_two(y[2], next.y, &c, panels);
    lai_store_two(y[3], next.y, &d, panels);
    lai_store_two(y[4], next.y, &e, panels);
    lai_store_two(y[5], next.y, &f, panels);
}

/* the same with functions of their own, as the pair passes are: what is inlined into much else
 * spills */
static void lai_tile_set(const float *const x[6], const float *M, int64_t n, float *const y[6],
                         lai_beside next) {
    if (LAI_PANELS == 2 && next.y)
        lai_tile6(x, 1, M, n, y, next, 0, 2);
    else
        lai_tile6(x, 1, M, n, y, next, 0, 1);
}
static void lai_tile_add(const float *const x[6], int64_t step, const float *M, int64_t n,
                         float *const y[6], lai_beside next) {
    if (LAI_PANELS == 2 && next.y)
        lai_tile6(x, step, M, n, y, next, 1, 2);
    else
        lai_tile6(x, step, M, n, y, next, 1, 1);
}

/* s[j] = S[j] . x for four rows */
static void lai_dot4(float s[4], const float *const S[4], const float *x, int64_t n) {
    const float *a = S[0], *b = S[1], *c = S[2], *d = S[3];
    lai_v sa = lai_zero(), sb = sa, sc = sa, sd = sa;
    int64_t i;
    for (i = 0; i < n; i += 16) {
        const lai_v y = lai_load_n(x + i, n - i);
        sa = lai_fma(lai_load_n(a + i, n - i), y, sa);
        sb = lai_fma(lai_load_n(b + i, n - i), y, sb);
        sc = lai_fma(lai_load_n(c + i, n - i), y, sc);
        sd = lai_fma(lai_load_n(d + i, n - i), y, sd);
    }
    lai_sum4(s, sa, sb, sc, sd);
}

LAI_LARGE float lai_dot(const float *x, const float *y, int64_t n) {
    lai_v sum = lai_zero();
    int64_t i;
    for (i = 0; i < n; i += 16)
        sum = lai_fma(lai_load_n(x + i, n - i), lai_load_n(y + i, n - i), sum);
    return lai_sum(sum);
}

/* THE pair pass: two tokens a, b in one visit of a panel, 16 columns of a state, or of two.
 *
 *     S  [n][16]      the panel, in L1; n is a multiple of 8
 *     Q  [n/8][2][8]  reads the OLD state:    o_a, o_b = sum of Q_i S_i
 *     K  [n/8][2][8]  writes:                 S_i = rho_i S_i + K_ia u_a + K_ib u_b
 *     R  [n/8][2][8]  reads the NEW state:    r_c, r_d, what the delta rule of the NEXT pair
 *                     predicts
 *
 * DPLR has ONE token a visit, that writes b and k, e and u being u_a and u_b, and reads the NEW
 * state: its output, and the e of the next token. Q is not read then.
 *
 * rescale: what rho is, see the constants. Every vector of the state is loaded and stored once
 * for two tokens: 4 multiply-adds for an additive rule, 6 for a delta rule, 4 for one token of
 * DPLR, which is all the arithmetic there is. Eight rows a turn: with two, the loop itself took
 * a fifth of the instructions. */
LAI_INLINE void lai_pair_row(float *S, int64_t next, const float *Q, const float *K, const float *R,
                             const float *rho, int rescale, int write, int panels,
                             const lai_two u[2], lai_two o[2], lai_two r[2]) {
    lai_two x = lai_load_two(S, next, panels);
    LAI_FENCE(x.a);
    if (panels == 2) LAI_FENCE(x.b);
    if (write != LA_WRITE_DPLR) {
        lai_madd(Q[0], &x, o, panels);
        lai_madd(Q[8], &x, o + 1, panels);
        LAI_FENCE_SUM(o[0].a);
        LAI_FENCE_SUM(o[1].a);
    }
    if (rescale == LAI_LOOK) return;
    if (rescale != LAI_KEEP) lai_times(rho[0], &x, panels);
    if (rescale == LAI_TWICE) lai_times(rho[1], &x, panels);
    lai_madd(K[0], u, &x, panels);
    LAI_FENCE_SUM(x.a);
    lai_madd(K[8], u + 1, &x, panels);
    lai_store_two(S, next, &x, panels);
    if (write != LA_WRITE_ADD) {
        lai_madd(R[0], &x, r, panels);
        lai_madd(R[8], &x, r + 1, panels);
        LAI_FENCE_SUM(r[0].a);
        LAI_FENCE_SUM(r[1].a);
    }
}

LAI_INLINE lai_two lai_sum_sets(lai_two x[2][2], int i, int sets) {
    lai_two sum = x[0][i];
    if (sets == 2) sum.a = lai_add(sum.a, x[1][i].a), sum.b = lai_add(sum.b, x[1][i].b);
    return sum;
}

/* The sums of several rows are kept apart, as many as it takes to keep the multiply-add units busy
 * and as registers allow; as many for two panels as for one, which so have the same bits. */
LAI_INLINE void lai_pair(float *S, int64_t n, const lai_pass *pass, int panels, const lai_two u[2],
                         lai_two sum[2], lai_two predicted[2], int rescale, int write) {
    const lai_two zero = {lai_zero(), lai_zero()};
    const int sets = write == LA_WRITE_ADD ? LAI_TWO_SETS : LAI_FOUR_SETS;
    const int r_sets = write == LA_WRITE_DPLR ? LAI_TWO_SETS : LAI_FOUR_SETS;
    const int64_t next = rescale == LAI_ROWS; /* a rho for every row */
    const float *Q = pass->Q, *K = pass->K, *R = pass->R, *rho = pass->rho;
    lai_two o[2][2] = {{zero, zero}, {zero, zero}}, r[2][2] = {{zero, zero}, {zero, zero}};
    int64_t i, j;
#define LAI_ROW(j)                                                                                 \
    lai_pair_row(S + 16 * (j), 16 * n, Q + (j), K + (j), R + (j), rho + (j)*next, rescale, write,  \
                 panels, u, o[(j) % sets], r[(j) % r_sets])
    for (i = 0; i < n; i += 8, S += 128, Q += 16, K += 16, R += 16, rho += 8 * next) {
        LAI_ROWS4(j, 0, LAI_ROW);
        LAI_ROWS4(j, 4, LAI_ROW);
    }
#undef LAI_ROW
    sum[0] = lai_sum_sets(o, 0, sets);
    sum[1] = lai_sum_sets(o, 1, sets);
    if (write == LA_WRITE_ADD) return;
    predicted[0] = lai_sum_sets(r, 0, r_sets);
    predicted[1] = lai_sum_sets(r, 1, r_sets);
}

/* o = sum of Q_i S_i, [2][16] of each panel, and nothing written */
LAI_NOINLINE void lai_look(float *S, int64_t n, const float *Q, int panels, float *o) {
    const lai_two none[2] = {{lai_zero(), lai_zero()}, {lai_zero(), lai_zero()}};
    const lai_pass pass = {Q, Q, Q, Q};
    lai_two sum[2];
    if (LAI_PANELS == 2 && panels == 2)
        lai_pair(S, n, &pass, 2, none, sum, sum, LAI_LOOK, LA_WRITE_ADD);
    else
        lai_pair(S, n, &pass, 1, none, sum, sum, LAI_LOOK, LA_WRITE_ADD);
    lai_store_two(o, 32, sum, panels);
    lai_store_two(o + 16, 32, sum + 1, panels);
}

/* ------------------------------------------------------------------------------------------------
 * [LA-7] ENGINE
 * ---------------------------------------------------------------------------------------------- */

/* ---- feature maps: y = f(x) for `count` rows, y_step apart ----------------------------------- */

/* the largest of y[j], or of |y[j]| */
static float lai_largest(const float *y, int64_t n, int absolute) {
    lai_v most = lai_set(-HUGE_VALF);
    float lanes[16], top = -HUGE_VALF;
    int64_t j;
    for (j = 0; j + 16 <= n; j += 16) {
        const lai_v v = lai_load(y + j);
        most = lai_max(most, v);
        if (absolute) most = lai_max(most, lai_sub(lai_zero(), v));
    }
    for (; j < n; ++j) top = LAI_MAX(top, absolute ? fabsf(y[j]) : y[j]);
    LAI_R_STORE(lanes, LAI_FOLD(LAI_R_MAX, most));
    for (j = 0; j < LAI_LANES; ++j) top = LAI_MAX(top, lanes[j]);
    return top;
}

/* sum + x^2, where what is too large for a float's square counts as 1e15, */
LAI_LARGE lai_v lai_add_square(lai_v sum, lai_v x) {
    const lai_v most = lai_set(1e15f);
    x = lai_max(lai_sub(lai_zero(), most), lai_min(most, x)); /* NaN stays */
    return lai_fma(x, x, sum);
}
/* so that it shows in the sum: is that of squares that are floats, or too small to count? */
#define LAI_IS_SQUARE(sum) ((double)(sum) > 1e-24 && (double)(sum) < 1e29)

/* |x|^2, the lanes' sums added in double; all in double where squares are outside float's range */
static double lai_square(const float *x, int64_t n) {
    lai_v sum = lai_zero();
    double even = 0.0, odd = 0.0;
    float lanes[16];
    int64_t i;
    for (i = 0; i < n; i += 16) sum = lai_add_square(sum, lai_load_n(x + i, n - i));
    LAI_R_STORE(lanes, LAI_FOLD(LAI_R_ADD, sum));
    for (i = 0; i < LAI_LANES; i += 2) even += (double)lanes[i], odd += (double)lanes[i + 1];
    if (LAI_IS_SQUARE(even + odd)) return even + odd;
    for (even = 0.0, i = 0; i < n; ++i) even = fma((double)x[i], (double)x[i], even);
    return even;
}

static void lai_identity16(float *y, const float *x, float norm, int64_t left) {
    lai_store_n(y, lai_mul(lai_set(norm), lai_load_n(x, left)), left);
}

/* x > 0: x + 1, else exp(x), as exp(min(x, 0)) + max(x, 0): exact at 0, and NaN stays */
LAI_INLINE void lai_elu16(float *y, const float *x, float norm, int64_t left) {
    const lai_v v = lai_mul(lai_set(norm), lai_load_n(x, left));
    const lai_v low = lai_exp_low(lai_min(lai_zero(), v), NULL, 0);
    lai_store_n(y, lai_add(low, lai_max(lai_zero(), v)), left);
}

static void lai_sincos(const lai_head *h, int64_t position, double angle[2]) {
    const double theta = 1.57079632679489662 * ((double)position / h->layer->horizon);
    angle[0] = cos(theta);
    angle[1] = sin(theta);
}

/* cos and sin of pi position / (2 M): those of the multiple of 8 before it, turned by the rest, so
 * that libm is asked once in 8 tokens, and a position has the same bits wherever a call begins */
static void lai_angle(const lai_head *h, lai_stream *s, int64_t position, float angle[2]) {
    const int64_t rest = position & 7;
    double c, d;
    if (position - rest != s->anchored) lai_sincos(h, s->anchored = position - rest, s->anchor);
    for (; s->turned <= rest; ++s->turned) lai_sincos(h, s->turned, s->turns[s->turned]);
    c = s->turns[rest][0];
    d = s->turns[rest][1];
    angle[0] = (float)fma(s->anchor[0], c, -(s->anchor[1] * d));
    angle[1] = (float)fma(s->anchor[1], c, s->anchor[0] * d);
}

/* y[i][j] = w_j . x_i for all m rows of the projection and inputs first .. total - 1: six of them
 * at a time on packed panels, in sums of 64 (one long sum would lose what exp then makes visible)
 */
static void lai_project(const lai_head *h, const lai_mapped *in, int64_t keys, int64_t first,
                        int64_t total, const float *panels, float *y, int64_t y_step) {
    const int64_t n = h->dim_k, m = h->layer->features;
    int64_t t, i, j, k;
    for (t = first; t < total; t += 6) {
        const float *rows[6], *x[6];
        float part[6][LAI_SPAN], *to[6], *parts[6];
        for (k = 0; k < 6; ++k) { /* rows that do not exist repeat the last one, to no effect */
            rows[k] = lai_input(in, keys, LAI_MIN(t + k, total - 1));
            parts[k] = part[k];
        }
        for (j = 0; j < m; j += LAI_SPAN) {
            const lai_beside next = lai_second(j + 16 < m, 16 * n, 16);
            for (k = 0; k < 6; ++k) to[k] = t + k < total ? y + (t + k) * y_step + j : part[k];
            lai_tile_set(rows, panels + j * n, LAI_MIN(64, n), to, next);
            for (i = 64; i < n; i += 64) {
                for (k = 0; k < 6; ++k) x[k] = rows[k] + i;
                lai_tile_set(x, panels + j * n + 16 * i, LAI_MIN(64, n - i), parts, next);
                for (k = 0; t + k < total && k < 6; ++k) {
                    lai_store(to[k], lai_add(lai_load(to[k]), lai_load(part[k])));
                    if (LAI_PANELS == 2 && next.y)
                        lai_store(to[k] + 16,
                                  lai_add(lai_load(to[k] + 16), lai_load(part[k] + 16)));
                }
            }
        }
    }
}

/* the same for one input, row by row, without packing: for single tokens */
static void lai_project_row(const lai_head *h, const float *projection, const float *x, float *y) {
    const int64_t n = h->dim_k, m = h->layer->features;
    int64_t i, j;
    for (j = 0; j < m; j += 4) {
        const float *rows[4];
        float s[4];
        for (i = 0; i < 4; ++i) rows[i] = projection + LAI_MIN(j + i, m - 1) * n;
        lai_dot4(j + 4 <= m ? y + j : s, rows, x, n);
        for (i = 0; j + 4 > m && j + i < m; ++i) y[j + i] = s[i];
    }
}

/* y has the m projections of x and gets max(w . y, 0) + feature_eps, where y = sqrt(scale) x */
static void lai_favor_relu(const lai_head *h, float *y, float norm) {
    const lai_v root = lai_set(norm * sqrtf(h->layer->scale)), eps = lai_set(h->layer->feature_eps);
    const int64_t m = h->layer->features;
    int64_t j;
    for (j = 0; j < m; j += 16)
        lai_store_n(y + j,
                    lai_add(lai_max(lai_zero(), lai_mul(root, lai_load_n(y + j, m - j))), eps),
                    m - j);
}

/* to[i] = c exp(root y[i] + shift + rest) + low */
static void lai_exp_row(float *to, const float *y, int64_t n, float root, double shift, float c,
                        float low) {
    const lai_v first = lai_set((float)shift), factor = lai_set(root);
    const lai_v rest = lai_set(fabs(shift) < 1e30 ? (float)(shift - (double)(float)shift) : 0.0f);
    int64_t i;
    for (i = 0; i < n; i += 16) {
        const lai_v e = lai_exp_low(lai_fma(lai_load_n(y + i, n - i), factor, first), &rest, 1);
        lai_store_n(to + i, lai_fma(lai_set(c), e, lai_set(low)), n - i);
    }
}

/* Exponential features of one row: y has its m projections and gets c (exp(+-w . y - |y|^2 / 2 -
 * max) + feature_eps exp(-max)), where *maximum, of all exponents so far, grows by this row's. */
static void lai_favor_exp(const lai_head *h, const lai_stream *s, float *y, const float *x,
                          float norm, float *maximum) {
    const int64_t m = h->layer->features;
    const int both = h->layer->favor_kernel == LA_FAVOR_HYPERBOLIC;
    const double size = s->root * (double)norm;
    const double eps = (double)h->layer->feature_eps;
    const double half = 0.5 * size * size * lai_square(x, h->dim_k);
    const double top = fma(size, (double)lai_largest(y, m, both), -half);
    double shift;
    float low;
    if (top > (double)*maximum) *maximum = (float)top;
    if (eps > 0.0 && log(eps) > (double)*maximum) *maximum = (float)log(eps);
    shift = -half - (double)*maximum;
    low = s->unit * (eps > 0.0 ? (float)(eps * exp(-(double)*maximum)) : 0.0f);
    if (both) lai_exp_row(y + m, y, m, -(float)size, shift, s->unit, low); /* while y is there */
    lai_exp_row(y, y, m, (float)size, shift, s->unit, low);
}

/* y has the m projections of a row and gets those of factor x, with the bias */
static void lai_affine(const lai_head *h, float *y, float factor, int key) {
    const int64_t m = h->layer->features;
    const float *bias = (key ? h->projection : h->q_projection) + m * h->dim_k;
    int64_t i;
    for (i = 0; i < m; i += 16) {
        const lai_v more = h->layer->projection_bias ? lai_load_n(bias + i, m - i) : lai_zero();
        lai_store_n(y + i, lai_fma(lai_set(factor), lai_load_n(y + i, m - i), more), m - i);
    }
}

/* y = exp(factor (y - max y)), over their sum if asked, at least `least` */
static void lai_softmax(float *y, int64_t n, float factor, int divide, float least) {
    const double top = (double)lai_largest(y, n, 0);
    lai_v sum = lai_zero(), inverse = lai_set(1.0f);
    int64_t i;
    lai_exp_row(y, y, n, factor, -(double)factor * top, 1.0f, 0.0f);
    for (i = 0; divide && i < n; i += 16) sum = lai_add(sum, lai_load_n(y + i, n - i));
    if (divide) inverse = lai_set(1.0f / lai_sum(sum));
    for (i = 0; i < n; i += 16)
        lai_store_n(y + i, lai_max(lai_set(least), lai_mul(inverse, lai_load_n(y + i, n - i))),
                    n - i);
}

/* y has m numbers, and gets 2m features of them and of their negatives */
static void lai_hedgehog(const lai_head *h, float *y) {
    const la_layer *l = h->layer;
    const int64_t m = l->features;
    const int divide = l->hedgehog_kernel != LA_HEDGEHOG_EXP;
    int64_t i;
    for (i = 0; i < m; i += 16)
        lai_store_n(y + m + i, lai_sub(lai_zero(), lai_load_n(y + i, m - i)), m - i);
    if (l->hedgehog_kernel == LA_HEDGEHOG_JOINT) {
        lai_softmax(y, 2 * m, 2.0f, 1, l->feature_eps);
    } else {
        lai_softmax(y, m, 1.0f, divide, l->feature_eps);
        lai_softmax(y + m, m, 1.0f, divide, l->feature_eps);
    }
}

/* y has m angles, and gets unit times their cosines, then their sines */
static void lai_fourier(float *y, int64_t m, float unit) {
    int64_t i;
    for (i = 0; i < m; i += 16) {
        lai_v sine, cosine = lai_cos_sin(lai_load_n(y + i, m - i), &sine);
        lai_store_n(y + m + i, lai_mul(lai_set(unit), sine), m - i);
        lai_store_n(y + i, lai_mul(lai_set(unit), cosine), m - i);
    }
}

/* 1, x = root x, and the products x_i x_j for j <= i, over sqrt(2) where j = i. Rows of products
 * are stored in whole vectors: what is too much belongs to the next row, which comes later. */
static void lai_taylor(float *y, const float *x, int64_t n, float root) {
    const float *const end = y + 1 + n + n * (n + 1) / 2;
    float *linear = y + 1, *to = linear + n;
    int64_t i, j;
    y[0] = 1.0f;
    for (i = 0; i < n; i += 16)
        lai_store_n(linear + i, lai_mul(lai_set(root), lai_load_n(x + i, n - i)), n - i);
    for (i = 0; i < n; to += ++i) {
        const lai_v own = lai_set(linear[i]);
        for (j = 0; j <= i; j += 16)
            lai_store_n(to + j, lai_mul(own, lai_load_n(linear + j, n - j)), end - (to + j));
        to[i] *= 0.707106781f;
    }
}

/* y = relu(fa a) relu(fb b), and their sum; `room` as in lai_taylor */
static lai_v lai_dpfp_run(float *y, const float *a, float fa, const float *b, float fb, int64_t n,
                          int64_t room, lai_v sum) {
    int64_t i;
    for (i = 0; i < n; i += 16) {
        const lai_v p = lai_max(lai_zero(), lai_mul(lai_set(fa), lai_load_n(a + i, n - i)));
        const lai_v q = lai_max(lai_zero(), lai_mul(lai_set(fb), lai_load_n(b + i, n - i)));
        lai_store_n(y + i, lai_mul(p, q), room - i);
        sum = lai_fma(p, q, sum);
    }
    return sum;
}

/* The features do not depend on the size of x: its largest number counts as 1, so that no product
 * leaves the range of floats. Of [relu(x), relu(-x)], and of it rolled, neither is stored: they are
 * runs of x, or of -x. */
static void lai_dpfp(const lai_head *h, float *y, const float *x) {
    const int64_t n = h->dim_k, r = h->features;
    const float unit = 1.0f / LAI_MAX(lai_largest(x, n, 1), 1e-37f);
    lai_v sum = lai_zero();
    float total;
    int64_t roll, i, at, run;
    for (roll = 1, at = 0; roll <= h->layer->nu; ++roll) {
        const int64_t turn = roll % (2 * n);
        for (i = 0; i < 2 * n; i += run, at += run) {
            const int64_t other = i < turn ? i - turn + 2 * n : i - turn;
            const int64_t a = i < n ? i : i - n, b = other < n ? other : other - n;
            run = n - LAI_MAX(a, b);
            sum = lai_dpfp_run(y + at, x + a, i < n ? unit : -unit, x + b, other < n ? unit : -unit,
                               run, r - at, sum);
        }
    }
    total = lai_sum(sum);
    total = total <= 1e-37f ? 0.0f : 1.0f / total; /* NaN stays */
    for (i = 0; i < r; i += 16)
        lai_store_n(y + i, lai_mul(lai_set(total), lai_load_n(y + i, r - i)), r - i);
}

/* the features of one row x at y, which has its projections, if any; key: of a key, whose gate
 * FAVOR+'s running maximum decays by, like all that it is relative to */
static void lai_map_row(const lai_head *h, lai_stream *s, float *y, const float *x,
                        int64_t position, double gate, float *max, int key) {
    const la_layer *l = h->layer;
    const int64_t n = h->dim_k;
    const int off = l->l2_mode == LA_L2_OFF;
    const float norm = lai_inverse_length(off ? 0.0 : lai_square(x, n), l->l2_mode, l->l2_eps);
    float angle[2];
    int64_t i;
    if (!LAI_HAS_FEATURES || l->feature == LA_FEATURE_IDENTITY) {
        for (i = 0; i < n; i += 16) lai_identity16(y + i, x + i, norm, n - i);
    } else if (l->feature == LA_FEATURE_ELU1) {
        for (i = 0; i < n; i += 16) lai_elu16(y + i, x + i, norm, n - i);
    } else if (l->feature == LA_FEATURE_COSFORMER) {
        lai_angle(h, s, position, angle);
        for (i = 0; i < n; i += 16) { /* relu(x) cos(theta), and n further on relu(x) sin(theta) */
            const lai_v v = lai_max(lai_zero(), lai_mul(lai_set(norm), lai_load_n(x + i, n - i)));
            lai_store_n(y + i, lai_mul(v, lai_set(angle[0])), n - i);
            lai_store_n(y + n + i, lai_mul(v, lai_set(angle[1])), n - i);
        }
    } else if (l->feature == LA_FEATURE_DPFP) {
        lai_dpfp(h, y, x);
    } else if (l->feature == LA_FEATURE_TAYLOR) {
        lai_taylor(y, x, n, (float)(s->root * (double)norm));
    } else if (l->feature == LA_FEATURE_HEDGEHOG) {
        lai_affine(h, y, norm, key);
        lai_hedgehog(h, y);
    } else if (l->feature == LA_FEATURE_RFF) {
        lai_affine(h, y, (float)(s->root * (double)norm), key);
        lai_fourier(y, l->features, s->unit);
    } else if (l->favor_kernel == LA_FAVOR_RELU) {
        lai_favor_relu(h, y, norm);
    } else {
        *max = key ? (float)((double)s->maximum + gate) : -HUGE_VALF; /* what is forgotten goes */
        lai_favor_exp(h, s, y, x, norm, max);
        s->maximum = key ? *max : s->maximum;
    }
}

static void lai_map_rows(const lai_head *h, lai_stream *s, int64_t t, int64_t count, lai_rows x,
                         int keys, float *y, float *max) {
    const int64_t rows = LAI_ROUND16(h->features);
    int64_t i;
    for (i = 0; i < count; ++i) {
        const double gate = keys ? (double)h->log_decay.at[(t + i) * h->log_decay.step] : 0.0;
        float *to = y + i * rows;
        if (LAI_HAS_FEATURES && h->projection && !s->panels)
            lai_project_row(h, keys ? h->projection : h->q_projection, x.at + i * x.step, to);
        lai_map_row(h, s, to, x.at + i * x.step, h->position + t + i, gate, max + i, keys);
    }
}

/* p of `count` tokens from t on, at `to` where it is a product */
static void lai_map_partners(const lai_head *h, int64_t t, int64_t count, float *to,
                             lai_mapped *y) {
    const int64_t rows = LAI_ROUND16(h->features), n = h->features;
    int64_t i, j;
    y->p = h->dplr ? h->a : y->k;
    if (h->dplr) y->p.at += t * h->a.step;
    if (!h->factor.at) return;
    for (i = 0; i < count; ++i) {
        const float *x = h->factor.at + (t + i) * h->factor.step, *k = y->k.at + i * y->k.step;
        for (j = 0; j < n; j += 16)
            lai_store(to + i * rows + j,
                      lai_mul(lai_load_n(x + j, n - j), lai_load_n(k + j, n - j)));
    }
    y->p.at = to;
    y->p.step = rows;
}

/* Features of `count` tokens from t on, of the keys, the queries or both. The identity is the input
 * itself; anything else goes to scratch: maxima first, then a row for each of lai_input's. */
LAI_NOINLINE void lai_map(const lai_head *h, lai_stream *s, int64_t t, int64_t count, int keys,
                          int queries, lai_mapped *y) {
    const int64_t rows = LAI_ROUND16(h->features), own = keys ? count : 0;
    const int64_t total = own + (queries ? h->queries * count : 0);
    float *at = s->scratch + (h->queries + 1) * count;
    int64_t m;
    lai_unmapped(h, t, count, y);
    y->k_max = s->scratch;
    y->q_max = s->scratch + count;
    if (!lai_maps(h->layer)) {
        if (keys) lai_map_partners(h, t, count, at, y);
        return;
    }
    if (LAI_HAS_FEATURES && s->panels && total > 0) {
        const int64_t alike = s->panels == s->q_panels ? total : own; /* inputs of one projection */
        lai_project(h, y, own, 0, alike, s->panels, at, rows);
        lai_project(h, y, own, alike, total, s->q_panels, at, rows);
    }
    if (keys) lai_map_rows(h, s, t, count, y->k, 1, at, y->k_max);
    for (m = 0; queries && m < h->queries; ++m) {
        const lai_rows q = {y->q.at + m * y->q_next, y->q.step};
        lai_map_rows(h, s, t, count, q, 0, at + (own + m * count) * rows, y->q_max + m * count);
    }
    if (keys) y->k.at = at;
    if (keys) y->k.step = rows;
    if (keys) lai_map_partners(h, t, count, at + total * rows, y);
    if (queries) {
        y->q.at = at + own * rows;
        y->q.step = rows;
        y->q_next = count * rows;
    }
}

/* ---- the state ------------------------------------------------------------------------------- */

/* the gates of token t by channel: its row, or `room` with the one that is for all */
static const float *lai_gate_row(const lai_head *h, int64_t t, float *room) {
    const float *at = h->log_decay.at + t * h->log_decay.step;
    int64_t i;
    if (h->gates_wide) return at;
    for (i = 0; i < h->features; i += 16) lai_store(room + i, lai_set(*at));
    return room;
}

static void lai_load_z(const lai_head *h, float *z) {
    const float *from = h->state_in ? h->state_in + h->features * h->dim_v : NULL;
    int64_t i;
    for (i = 0; h->normalised && i < LAI_ROUND16(h->features); ++i)
        z[i] = from && i < h->features ? from[i] : 0.0f;
    if (from && h->normalised) lai_flush_all(z, LAI_ROUND16(h->features));
}

/* Without denormal numbers: a pass over those takes an Intel core up to 130 times as long. */
static void lai_load_panels(const lai_head *h, float *panels) {
    const int64_t end = h->first + h->columns, n = h->features;
    int64_t c, i, j;
    for (c = h->first; c < end; c += 16) {
        float *S = lai_panel(h, panels, c);
        const int64_t cols = LAI_MIN(end - c, 16);
        for (i = 0; i < LAI_ROUND8(n); ++i)
            if (!h->state_in || i >= n)
                lai_store(S + 16 * i, lai_zero());
            else if (h->layout == LA_KV)
                lai_store(S + 16 * i, lai_load_n(h->state_in + i * h->dim_v + c, cols));
            else
                for (j = 0; j < 16; ++j)
                    S[16 * i + j] = j < cols ? h->state_in[(c + j) * n + i] : 0.0f;
        if (h->state_in) lai_flush_all(S, 16 * LAI_ROUND8(n));
    }
}

static void lai_store_panels(const lai_head *h, float *panels) {
    const int64_t end = h->first + h->columns, n = h->features;
    int64_t c, i, j;
    for (c = h->first; h->state_out && c < end; c += 16) {
        const float *S = lai_panel(h, panels, c);
        const int64_t cols = LAI_MIN(end - c, 16);
        for (i = 0; h->layout == LA_KV && i < n; ++i)
            lai_store_n(h->state_out + i * h->dim_v + c, lai_load(S + 16 * i), cols);
        for (j = 0; h->layout == LA_VK && j < cols; ++j)
            for (i = 0; i < n; ++i) h->state_out[(c + j) * n + i] = S[16 * i + j];
    }
}

LAI_INLINE lai_v lai_value(const lai_head *h, int64_t t, int64_t column, int64_t cols) {
    return lai_load_n(h->v.at + t * h->v.step + column, cols);
}
/* what a token writes, with what the state predicts where that counts: beta v, beta (v - r), or
 * with an erase gate, which is beta's part in r, beta v - r */
LAI_LARGE lai_v lai_written(const lai_head *h, lai_v v, lai_v r, const float *beta, int64_t column,
                            int64_t cols) {
    const lai_v factor = h->beta_wide ? lai_load_n(beta + column, cols) : lai_set(*beta);
    if (h->erases) return lai_fma(v, factor, lai_sub(lai_zero(), r));
    return lai_mul(h->delta ? lai_sub(v, r) : v, factor);
}

/* what is left to do for the outputs of `count` tokens from t on, columns column .. stop - 1 of the
 * block: (o + skip v) z / (1 + exp(-z)) */
static void lai_finish(const lai_head *h, int64_t t, int64_t count, int64_t column, int64_t stop) {
    int64_t i, m, c;
    if (!h->skip.at && !h->out_gate.at) return;
    for (i = t; i < t + count; ++i)
        for (m = 0; m < h->queries; ++m)
            for (c = h->first + column; c < h->first + stop; c += 16) {
                const int64_t left = h->first + stop - c;
                float *out = lai_output(h, m, i, c);
                lai_v o = lai_load_n(out, left);
                if (h->skip.at) {
                    const float *D = h->skip.at + i * h->skip.step;
                    o = lai_fma(h->skip_wide ? lai_load_n(D + c, left) : lai_set(*D),
                                lai_value(h, i, c, left), o);
                }
                if (h->out_gate.at) {
                    const float *at = h->out_gate.at + m * h->gate_next + i * h->out_gate.step + c;
                    const lai_v z = lai_load_n(at, left);
                    const lai_v e = lai_exp(lai_sub(lai_zero(), z), NULL);
                    o = lai_mul(o, lai_div(z, lai_add(lai_set(1.0f), e)));
                }
                lai_store_n(out, o, left);
            }
}

/* are all of x below 1e-18? Usually the first 16 tell */
static int lai_is_tiny(const float *x, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i += 16) {
        const lai_v v = lai_load_n(x + i, n - i);
        if (lai_any_greater(lai_max(v, lai_sub(lai_zero(), v)), 1e-18f)) return 0;
    }
    return 1;
}

/* Does a token write next to nothing? Then what it leaves is cleared of denormal numbers: by the
 * recurrent form at once, by the others where they rescale the state. That goes by the token alone:
 * results of the recurrent form do not depend on where a call begins. */
static int lai_is_silent(const lai_head *h, const float *k, const float *v) {
    return lai_is_tiny(k, h->features) || lai_is_tiny(v, h->dim_v);
}

/* Clears x [features][width], 16 or 1, of denormal numbers, in the rows where the gates of tokens t
 * and last are weak: strong ones end them without that, and 0 leaves all as it is. */
static void lai_flush_rows(const lai_head *h, int64_t t, int64_t last, float *x, int64_t width) {
    const float *a = h->log_decay.at + t * h->log_decay.step;
    const float *b = h->log_decay.at + last * h->log_decay.step;
    int64_t i, own = h->gates_wide;
    for (i = 0; i < h->features; ++i, x += width) {
        if (!(a[i * own] > LAI_WEAK && b[i * own] > LAI_WEAK && b[i * own] < 0.0f)) continue;
        if (width == 16) lai_flush_all(x, 16);
        if (width == 1 && fabsf(*x) < 1.17549435e-38f) *x = 0.0f;
    }
}

/* ---- chunkwise, chunk 0: the pair pass ----------------------------------------------------------
 *
 * For tokens a, b with decays A, B and the state S0 before them
 *
 *     o_a = A S0^T q_a + (q_a . k_a) u_a
 *     o_b = AB S0^T q_b + B (q_b . k_a) u_a + (q_b . k_b) u_b
 *     S2  = AB S0 + B k_a u_a^T + k_b u_b^T
 *     u_a = beta_a (v_a - A S0^T k_a)              (additive: beta v)
 *     u_b = beta_b (v_b - AB S0^T k_b - B (k_b . k_a) u_a)
 *
 * The panel holds S / G: a decay only changes G, and the numbers around the pass: reads are
 * multiplied by G, writes divided. G is exp of a running sum of gates that loses nothing (a
 * double; for decay per channel, where G is a vector over the rows, a pair of floats), so that
 * nothing accumulates. When it would leave [1e-7, 1e7] (1e30 / 1e-7 is still a float) the pass
 * multiplies S and G becomes 1. Whether it does depends on b, but it only concerns the new state:
 * o_a never does. */

LAI_NOINLINE void lai_pair_decays(const lai_head *h, lai_pairs *c, const lai_mapped *y,
                                  float before, int64_t first, int64_t end) {
    float *x = c->room, *lo = x + 3 * LAI_RING, *e = lo + 3 * LAI_RING;
    int deep[3 * LAI_RING], j;
    int64_t p;
    memset(x, 0, 6 * LAI_RING * sizeof *x);
    for (p = first, j = 0; p < end; ++p, ++j) {
        const double A = lai_gate(h, y, 2 * (p - first), 2 * p, before);
        const double B = lai_gate(h, y, 2 * (p - first) + 1, 2 * p + 1, before);
        const double a = c->log_scale + A, b = a + B;
        lai_pair_info *info = c->info + LAI_STAGE(p);
        info->rescale = fabs(a) > LAI_WINDOW || fabs(b) > LAI_WINDOW ? LAI_ROWS : LAI_KEEP;
        c->log_scale = info->rescale ? 0.0 : b;
        deep[j] = lai_split(a, x + j, lo + j);
        deep[LAI_RING + j] = lai_split(b, x + LAI_RING + j, lo + LAI_RING + j);
        deep[2 * LAI_RING + j] = lai_split(B, x + 2 * LAI_RING + j, lo + 2 * LAI_RING + j);
    }
    for (j = 0; j < 3 * LAI_RING; j += 16) {
        const lai_v rest = lai_load(lo + j);
        lai_store(e + j, lai_exp(lai_load(x + j), &rest));
    }
    for (p = first, j = 0; p < end; ++p, ++j) {
        lai_pair_info *info = c->info + LAI_STAGE(p);
        const float a = e[j], b = e[LAI_RING + j], B = e[2 * LAI_RING + j];
        const float B_late = deep[2 * LAI_RING + j] ? B : 1.0f;
        info->read[0] = a;
        info->late[0] = deep[j] ? a : 1.0f;
        info->read[1] = info->rho[0] = b;
        info->late[1] = info->rho[1] = deep[LAI_RING + j] ? b : 1.0f;
        if (deep[j] || deep[LAI_RING + j] || deep[2 * LAI_RING + j]) info->rescale = LAI_TWICE;
        info->write[0] = info->rescale ? B : 1.0f / a;
        info->write[1] = info->rescale ? 1.0f : 1.0f / b;
        info->write_late = info->rescale ? B_late : 1.0f;
        info->B = B * B_late;
    }
}

/* the sums with scale, decay and the denominators of a and b; i is a's place in the block */
static void lai_finish_query(const lai_head *h, const lai_pair_info *info, const lai_mapped *y,
                             int64_t i, int64_t m, float B, const lai_pair_dots *s,
                             lai_pair_query *query) {
    const float scale = h->scale;
    query->aa = scale * s->aa;
    query->ba = scale * s->ba * B;
    query->bb = scale * s->bb;
    query->read[0] = scale * info->read[0];
    query->read[1] = scale * info->read[1];
    if (h->normalised) {
        const int second = i + 1 < y->count;
        const float a = fmaf(query->read[0], s->za * info->late[0], query->aa);
        const float b = fmaf(scale, s->bb, fmaf(query->read[1], s->zb * info->late[1], query->ba));
        const float ia = lai_inverse(h, a, lai_left_out(h, y, m, i));
        const float ib = second ? lai_inverse(h, b, lai_left_out(h, y, m, i + 1)) : 0.0f;
        query->aa *= ia;
        query->read[0] *= ia;
        query->ba *= ib;
        query->bb *= ib;
        query->read[1] *= ib;
    }
}

/* Features that cost little are made for one pair at a time, in rows that stay in L1: with l2_mode
 * Gated DeltaNet takes 0.95 times as long as where they are staged (AVX2, d = 64). */
static void lai_pair_light(const lai_head *h, const lai_pairs *c, lai_pair_rows *x) {
    const float **const rows[4] = {&x->ka, &x->kb, &x->qa, &x->qb};
    const la_layer *l = h->layer;
    const int64_t n = h->dim_k;
    lai_v a = lai_zero(), b = a, d = a, e = a;
    float s[4];
    int64_t i, j;
    for (i = 0; l->l2_mode != LA_L2_OFF && i < n; i += 16) {
        a = lai_add_square(a, lai_load_n(x->ka + i, n - i));
        b = lai_add_square(b, lai_load_n(x->kb + i, n - i));
        d = lai_add_square(d, lai_load_n(x->qa + i, n - i));
        e = lai_add_square(e, lai_load_n(x->qb + i, n - i));
    }
    lai_sum4(s, a, b, d, e);
    for (j = 0; j < 4; ++j) {
        const float *from = *rows[j];
        float *to = c->stream.scratch + j * c->rows;
        const int sure = LAI_IS_SQUARE(s[j]) || l->l2_mode == LA_L2_OFF;
        const float norm =
            lai_inverse_length(sure ? (double)s[j] : lai_square(from, n), l->l2_mode, l->l2_eps);
        if (from == c->zeros) continue; /* ELU + 1 of what is not there would be 1 */
        for (i = 0; LAI_HAS_FEATURES && l->feature == LA_FEATURE_ELU1 && i < n; i += 16)
            lai_elu16(to + i, from + i, norm, n - i);
        for (i = 0; l->feature == LA_FEATURE_IDENTITY && i < n; i += 16)
            lai_identity16(to + i, from + i, norm, n - i);
        *rows[j] = to;
    }
    x->pa = x->ka;
    x->pb = x->kb;
}

/* a pair's four products with each other, of `left` or 16 rows, and its coefficients */
LAI_INLINE void lai_pair_products(const float *ka, const float *kb, const float *qa,
                                  const float *qb, int64_t left, float *K, float *Q, lai_v s[4]) {
    const lai_v a = lai_load_n(ka, left), b = lai_load_n(kb, left);
    const lai_v c = lai_load_n(qa, left), d = lai_load_n(qb, left);
    lai_store_eights(K, a, b);
    lai_store_eights(Q, c, d);
    s[0] = lai_fma(c, a, s[0]);
    s[1] = lai_fma(d, a, s[1]);
    s[2] = lai_fma(d, b, s[2]);
    s[3] = lai_fma(b, a, s[3]);
}

/* z is held like S: its products with q_a and q_b before the pair, and, if asked, z after it */
static void lai_pair_z(const lai_head *h, lai_pairs *c, const lai_pair_info *info,
                       const lai_pair_rows *x, int64_t m, int update, lai_pair_dots *dots) {
    const float *qa = x->qa + m * x->qa_next, *qb = x->qb + m * x->qb_next;
    const lai_v wa = lai_set(info->write[0] * info->write_late), wb = lai_set(info->write[1]);
    lai_v za = lai_zero(), zb = za;
    int64_t i, n = h->features;
    float s[4];
    for (i = 0; i < n; i += 16) {
        lai_v z = lai_load(c->z + i);
        za = lai_fma(lai_load_n(qa + i, n - i), z, za);
        zb = lai_fma(lai_load_n(qb + i, n - i), z, zb);
        if (!update) continue;
        if (info->rescale) z = lai_mul(lai_mul(z, lai_set(info->rho[0])), lai_set(info->rho[1]));
        z = lai_fma(wa, lai_load_n(x->ka + i, n - i), z);
        lai_store(c->z + i, lai_fma(wb, lai_load_n(x->kb + i, n - i), z));
    }
    lai_sum4(s, za, zb, za, zb);
    dots->za = s[0], dots->zb = s[1];
}

/* Coefficients of a pair under one decay for all rows: plain features. */
LAI_NOINLINE void lai_pair_narrow(const lai_head *h, lai_pairs *c, const lai_mapped *y, int64_t p,
                                  int64_t at, const lai_pair_rows *x) {
    const int64_t slot = LAI_SLOT(p), n = h->features;
    lai_pair_info *info = c->info + LAI_STAGE(p);
    const float B = info->B;
    const lai_v zero = lai_zero();
    float *K = c->K + slot * 2 * c->rows, s[4];
    int64_t m, i;
    for (i = 0; info->rescale == LAI_ROWS && i < n; i += 16)
        lai_store(c->rho + slot * c->rows + i, lai_set(info->rho[0]));
    for (m = 0; m == 0 || m < c->queries; ++m) {
        const float *ka = x->ka, *qa = x->qa + m * x->qa_next;
        const float *kb = x->kb, *qb = x->qb + m * x->qb_next;
        float *Q = c->Q + (slot * c->queries + m) * 2 * c->rows;
        lai_v sums[4] = {zero, zero, zero, zero};
        lai_pair_dots dots = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        for (i = 0; i < n; i += 16)
            lai_pair_products(ka + i, kb + i, qa + i, qb + i, n - i, K + 2 * i, Q + 2 * i, sums);
        lai_sum4(s, sums[0], sums[1], sums[2], sums[3]);
        dots.aa = s[0], dots.ba = s[1], dots.bb = s[2];
        info->kk = s[3] * B;
        if (h->normalised) lai_pair_z(h, c, info, x, m, m + 1 >= c->queries, &dots);
        if (c->queries > 0)
            lai_finish_query(h, info, y, at, m, B, &dots, c->query + slot * c->queries + m);
    }
}

/* s + x with the rounding error added to *rest */
LAI_INLINE lai_v lai_sum_exactly(lai_v s, lai_v x, lai_v *rest) {
    const lai_v t = lai_add(s, x), part = lai_sub(t, s);
    *rest = lai_add(*rest, lai_add(lai_sub(s, lai_sub(t, part)), lai_sub(x, part)));
    return t;
}

/* does the running sum of some channel's gates leave the window within the pair? b may be null */
static int lai_rows_leave(const lai_head *h, const lai_pairs *c, const float *a, const float *b) {
    const int64_t n = h->features;
    const lai_v never = lai_set(LAI_NEVER);
    lai_v most = lai_zero();
    int64_t i;
    for (i = 0; i < n; i += 16) {
        const lai_v x = lai_add(lai_load(c->sum + i), lai_max(never, lai_load_n(a + i, n - i)));
        const lai_v y = b ? lai_add(x, lai_max(never, lai_load_n(b + i, n - i))) : x;
        most = lai_max(lai_mul(x, x), lai_max(lai_mul(y, y), most)); /* NaN does not count */
    }
    return lai_any_greater(most, (float)(LAI_WINDOW * LAI_WINDOW));
}

static int lai_pair_silent(const lai_head *h, const lai_pairs *c, int64_t p) {
    const float *k = c->staged.k.at + c->tokens * (p - c->first) * c->staged.k.step;
    int64_t t;
    for (t = c->tokens * p; t <= lai_pair_last(h, c, p); ++t, k += c->staged.k.step)
        if (!lai_is_silent(h, k, h->v.at + t * h->v.step)) return 0;
    return 1;
}

/* Where gates are in the coefficients, a state that dies makes denormal numbers of all that is read
 * from it: in silence some pairs rescale, so that it is cleared in time. */
static int lai_may_keep(const lai_head *h, const lai_pairs *c, int64_t p, const float *a,
                        const float *b) {
    return !lai_rows_leave(h, c, a, b) && !(p % 8 == 0 && lai_pair_silent(h, c, p));
}

/* Decay per channel: G is a vector and goes into the coefficients, which are products and
 * quotients of features and decays; the numbers around the pass are 1. Leaves in `room` [4][rows]
 * the decays up to a and b, B k_a, and z after the pair. The decay up to b is a product of two
 * roundings, but the next pair starts from the sum. */
static void lai_pair_wide_keys(const lai_head *h, lai_pairs *c, int64_t p, const lai_pair_rows *x,
                               float *room) {
    const int64_t slot = LAI_SLOT(p), n = h->features, t = 2 * p;
    const float *a = lai_gate_row(h, t, c->gates);
    const float *b = t + 1 < h->keys ? lai_gate_row(h, t + 1, c->gates + c->rows) : NULL;
    const lai_v never = lai_set(LAI_NEVER), zero = lai_zero(), one = lai_set(1.0f);
    float *K = c->K + slot * 2 * c->rows, *R = c->R + slot * 2 * c->rows,
          *rho = c->rho + slot * c->rows;
    const int keep = lai_may_keep(h, c, p, a, b);
    lai_v kk = zero;
    int64_t i;
    c->info[LAI_STAGE(p)].rescale = keep ? LAI_KEEP : LAI_ROWS;
    for (i = 0; i < n; i += 16) {
        const lai_v ka = lai_load_n(x->ka + i, n - i), kb = lai_load_n(x->kb + i, n - i);
        const lai_v ga = lai_max(never, lai_load_n(a + i, n - i));
        const lai_v gb = b ? lai_max(never, lai_load_n(b + i, n - i)) : zero;
        lai_v rest = lai_load(c->rest + i);
        const lai_v sum = lai_sum_exactly(lai_load(c->sum + i), ga, &rest);
        const lai_v A = lai_exp(sum, &rest), B = lai_exp(gb, NULL), AB = lai_mul(A, B);
        const lai_v ka_late = lai_mul(ka, B), inverse = keep ? lai_div(one, AB) : one;
        const lai_v wa = lai_mul(ka_late, inverse), wb = lai_mul(kb, inverse);
        const lai_v both_sum = lai_sum_exactly(sum, gb, &rest);
        lai_store_eights(K + 2 * i, wa, wb);
        lai_store(c->sum + i, keep ? both_sum : zero);
        lai_store(c->rest + i, keep ? rest : zero);
        lai_store(rho + i, AB);
        lai_store(room + i, A);
        lai_store(room + c->rows + i, AB);
        lai_store(room + 2 * c->rows + i, ka_late);
        if (h->delta) {
            const lai_v pa = lai_load_n(x->pa + i, n - i), pb = lai_load_n(x->pb + i, n - i);
            lai_store_eights(R + 2 * i, lai_mul(pa, A), lai_mul(pb, AB));
            kk = lai_fma(pb, ka_late, kk);
        }
        if (h->normalised)
            lai_store(room + 3 * c->rows + i,
                      lai_fma(lai_load(c->z + i), keep ? one : AB, lai_fma(kb, inverse, wa)));
    }
    c->info[LAI_STAGE(p)].kk = lai_sum(kk);
}

LAI_NOINLINE void lai_pair_wide(const lai_head *h, lai_pairs *c, const lai_mapped *y, int64_t p,
                                int64_t at, const lai_pair_rows *x, float *room) {
    const int64_t slot = LAI_SLOT(p), n = h->features;
    lai_pair_info *info = c->info + LAI_STAGE(p);
    const float *A = room, *AB = room + c->rows, *ka_late = room + 2 * c->rows;
    const float *seen_a = h->before ? c->held : A, *seen_b = h->before ? A : AB;
    const float *own_a = h->before ? x->pa : x->ka, *own_b = h->before ? x->pb : x->kb;
    const float *past = h->before ? x->ka : ka_late; /* of a, as b's query sees it */
    float s[4];
    int64_t m, i;
    info->read[0] = info->read[1] = info->late[0] = info->late[1] = 1.0f;
    info->write[0] = info->write[1] = info->write_late = 1.0f;
    lai_pair_wide_keys(h, c, p, x, room);
    for (m = 0; m < c->queries; ++m) {
        const float *qa = x->qa + m * x->qa_next, *qb = x->qb + m * x->qb_next;
        float *Q = c->Q + (slot * c->queries + m) * 2 * c->rows;
        lai_v aa = lai_zero(), ba = aa, bb = aa, za = aa, zb = aa;
        lai_pair_dots dots;
        for (i = 0; i < n; i += 16) {
            const lai_v va = lai_load_n(qa + i, n - i), vb = lai_load_n(qb + i, n - i);
            const lai_v ra = lai_mul(va, lai_load(seen_a + i));
            const lai_v rb = lai_mul(vb, lai_load(seen_b + i));
            lai_store_eights(Q + 2 * i, ra, rb);
            aa = lai_fma(va, lai_load_n(own_a + i, n - i), aa);
            ba = lai_fma(vb, lai_load_n(past + i, n - i), ba);
            bb = lai_fma(vb, lai_load_n(own_b + i, n - i), bb);
            if (h->normalised) {
                za = lai_fma(ra, lai_load(c->z + i), za);
                zb = lai_fma(rb, lai_load(c->z + i), zb);
            }
        }
        lai_sum4(s, aa, ba, bb, za);
        dots.aa = s[0], dots.ba = s[1], dots.bb = s[2], dots.za = s[3];
        dots.zb = h->normalised ? lai_sum(zb) : 0.0f;
        lai_finish_query(h, info, y, at, m, 1.0f, &dots, c->query + slot * c->queries + m);
    }
    for (i = 0; h->normalised && i < n; i += 16)
        lai_store(c->z + i, lai_load(room + 3 * c->rows + i));
    for (i = 0; h->before && i < n; i += 16)
        lai_store(c->held + i, info->rescale == LAI_KEEP ? lai_load(AB + i) : lai_set(1.0f));
}

/* One token of DPLR: b and k over G, and times G what reads the state after it, two rows a visit:
 * the first query with the a of the next token, then the other queries. */
LAI_NOINLINE void lai_pair_dplr(const lai_head *h, lai_pairs *c, const lai_mapped *y, int64_t t,
                                float *G) {
    const int64_t slot = LAI_SLOT(t), n = h->features, at = t - c->first;
    const float *k = y->k.at + at * y->k.step, *b = h->b.at + t * h->b.step;
    const float *a = t + 1 < h->keys ? h->a.at + (t + 1) * h->a.step : c->zeros;
    const float *q = y->q.at + at * y->q.step, *gates = lai_gate_row(h, t, c->gates);
    const int keep = lai_may_keep(h, c, t, gates, NULL);
    const lai_v one = lai_set(1.0f), never = lai_set(LAI_NEVER), zero = lai_zero();
    float *K = c->K + slot * 2 * c->rows, *Q = c->Q + slot * c->queries * 2 * c->rows;
    float *rho = c->rho + slot * c->rows;
    int64_t i, m;
    c->info[LAI_STAGE(t)].rescale = keep ? LAI_KEEP : LAI_ROWS;
    for (i = 0; i < n; i += 16) {
        lai_v rest = lai_load(c->rest + i), g = lai_max(never, lai_load_n(gates + i, n - i));
        const lai_v sum = lai_sum_exactly(lai_load(c->sum + i), g, &rest);
        const lai_v now = lai_exp(sum, &rest), inverse = keep ? lai_div(one, now) : one;
        const lai_v late = keep ? now : one;
        lai_store_eights(K + 2 * i, lai_mul(lai_load_n(b + i, n - i), inverse),
                         lai_mul(lai_load_n(k + i, n - i), inverse));
        lai_store_eights(Q + 2 * i, lai_mul(lai_load_n(q + i, n - i), late),
                         lai_mul(lai_load_n(a + i, n - i), late));
        lai_store(c->sum + i, keep ? sum : zero);
        lai_store(c->rest + i, keep ? rest : zero);
        lai_store(rho + i, now);
        lai_store(G + i, late);
    }
    for (m = 1; m < c->queries; m += 2) {
        const float *first = q + m * y->q_next;
        const float *second = m + 1 < c->queries ? first + y->q_next : c->zeros;
        Q += 2 * c->rows;
        for (i = 0; i < n; i += 16)
            lai_store_eights(Q + 2 * i, lai_mul(lai_load_n(first + i, n - i), lai_load(G + i)),
                             lai_mul(lai_load_n(second + i, n - i), lai_load(G + i)));
    }
}

/* Pairs are prepared in two steps: features and decays for many at once, which their exponentials
 * and projections need to be fast; */
static void lai_stage_pairs(const lai_head *h, lai_pairs *c, int64_t first, int64_t end) {
    const int64_t t = c->tokens * first, count = LAI_MIN(c->tokens * end, h->keys) - t;
    const float before = c->stream.maximum;
    c->first = first;
    c->end = end;
    if (LAI_HAS_CHUNKS && c->light)
        lai_unmapped(h, t, count, &c->staged);
    else
        lai_map(h, &c->stream, t, count, 1, c->queries > 0, &c->staged);
    if (!h->decay_wide && c->gated) lai_pair_decays(h, c, &c->staged, before, first, end);
}

/* and coefficients for one at a time, between two pairs' passes, whose limit is multiply-adds. */
static void lai_pair_coefficients(const lai_head *h, lai_pairs *c, int64_t p) {
    const lai_mapped *y = &c->staged;
    const int64_t i = 2 * (p - c->first);
    const int both = i + 1 < y->count;
    lai_pair_rows x;
    if (LAI_HAS_CHANNELS && h->dplr) {
        lai_pair_dplr(h, c, y, p, c->zeros + c->rows);
        return;
    }
    x.ka = y->k.at + i * y->k.step;
    x.kb = both ? x.ka + y->k.step : c->zeros;
    x.qa = c->queries > 0 ? y->q.at + i * y->q.step : c->zeros;
    x.qb = c->queries > 0 && both ? x.qa + y->q.step : c->zeros;
    x.qa_next = y->q_next;
    x.qb_next = both ? y->q_next : 0;
    x.pa = y->p.at + i * y->p.step;
    x.pb = both ? x.pa + y->p.step : c->zeros;
    if (LAI_HAS_CHUNKS && c->light) lai_pair_light(h, c, &x);
    if (LAI_HAS_CHANNELS && h->decay_wide)
        lai_pair_wide(h, c, y, p, i, &x, c->zeros + c->rows);
    else
        lai_pair_narrow(h, c, y, p, i, &x);
}

static void lai_prepare_pair(const lai_head *h, lai_pairs *c, int64_t p) {
    lai_pair_info *info = c->info + LAI_STAGE(p);
    if (p >= c->count) return;
    if (p == c->end) lai_stage_pairs(h, c, p, LAI_MIN(p + LAI_RING, c->count));
    lai_pair_coefficients(h, c, p);
    info->silent = info->rescale != LAI_KEEP && lai_pair_silent(h, c, p);
    if (info->silent && h->normalised)
        lai_flush_rows(h, c->tokens * p, lai_pair_last(h, c, p), c->z, 1);
}

LAI_INLINE lai_v lai_pair_beta(const lai_head *h, const lai_pair_view *x, int i, int64_t column,
                               int64_t left, lai_v v) {
    if (LAI_LIKELY(!h->beta_wide)) return lai_mul(v, lai_set(*x->beta[i]));
    return lai_mul(v, lai_load_n(x->beta[i] + column, left));
}

/* what counts of a prediction: y of it, times beta unless an erase gate is beta's part there */
LAI_INLINE lai_v lai_pair_part(const lai_head *h, const lai_pair_view *x, int i, int64_t column,
                               int64_t left, float y) {
    return h->erases ? lai_set(y) : lai_pair_beta(h, x, i, column, left, lai_set(y));
}

/* beta v of token i without what the state predicts for it (delta rules) */
LAI_INLINE lai_v lai_pair_error(const lai_head *h, const lai_pairs *c, const lai_pair_view *x,
                                int i, int64_t column, int64_t left, int rescale, int write) {
    const lai_v u = lai_pair_beta(h, x, i, column, left, lai_load_n(x->v[i] + column, left));
    lai_v r;
    if (write == LA_WRITE_ADD) return u;
    r = lai_load(c->predicted + 2 * column + 16 * i);
    if (rescale == LAI_TWICE) r = lai_mul(r, lai_set(x->info->late[i]));
    return lai_fnma(lai_pair_part(h, x, i, column, left, x->info->read[i]), r, u);
}

/* o of query head m, from what the pass read (a, b) and the tokens' own writes (u) */
LAI_INLINE void lai_pair_output(const lai_head *h, const lai_pair_view *x, int64_t m,
                                int64_t column, int64_t left, int rescale, const lai_v u[2],
                                lai_v a, lai_v b) {
    const lai_pair_query *query = x->query + m;
    const int64_t at = m * h->out_next + column;
    if (rescale == LAI_TWICE) a = lai_mul(a, lai_set(x->info->late[0]));
    if (rescale == LAI_TWICE) b = lai_mul(b, lai_set(x->info->late[1]));
    a = lai_fma1(query->read[0], a, lai_mul(lai_set(query->aa), u[0]));
    lai_store_n(x->out[0] + at, a, left);
    if (!x->both) return;
    b = lai_fma1(query->read[1], b, lai_mul(lai_set(query->ba), u[0]));
    lai_store_n(x->out[1] + at, lai_fma1(query->bb, u[1], b), left);
}

/* what query heads behind the first one read */
LAI_NOINLINE void lai_pair_looks(const lai_head *h, const lai_pairs *c, const lai_pair_view *x,
                                 int64_t column, int panels, int rescale, const lai_v *u) {
    float *const S = c->panels + column * c->panel_rows, look[32 * LAI_PANELS];
    int64_t m, i;
    for (m = 1; m < c->queries; ++m) {
        lai_look(S, c->panel_rows, x->pass.Q + m * 2 * c->rows, panels, look);
        for (i = 0; i < panels; ++i)
            lai_pair_output(h, x, m, column + 16 * i, h->columns - column - 16 * i, rescale,
                            u + 2 * i, lai_load(look + 32 * i), lai_load(look + 32 * i + 16));
    }
}

/* one token of DPLR; all decay is in the coefficients: its outputs, and e of the next token */
LAI_INLINE void lai_dplr_output(const lai_head *h, const lai_pairs *c, const lai_pair_view *x,
                                int64_t column, int64_t left, lai_v o, lai_v e) {
    const int64_t n = c->panel_rows;
    const lai_v scale = lai_set(h->scale);
    float *out = x->out[0] + column, look[32];
    int64_t m;
    lai_store(c->predicted + 2 * column, e);
    lai_store_n(out, lai_mul(scale, o), left);
    for (m = 1; m < c->queries; ++m) {
        const int second = m % 2 == 0;
        if (!second) lai_look(c->panels + column * n, n, x->pass.R + (m + 1) * c->rows, 1, look);
        lai_store_n(out + m * h->out_next, lai_mul(scale, lai_load(look + 16 * second)), left);
    }
}

/* before the pass over a panel: u of both tokens, and w, which is what the pass writes with */
LAI_INLINE void lai_pair_before(const lai_head *h, const lai_pairs *c, const lai_pair_view *x,
                                int64_t column, int64_t left, int rescale, int write, lai_v u[2],
                                lai_v *wa, lai_v *wb) {
    const lai_pair_info *info = x->info;
    const int delta = write == LA_WRITE_DELTA;
    if (write == LA_WRITE_DPLR) {
        lai_pair_prefetch(h, x, column, 1);
        *wa = lai_load(c->predicted + 2 * column);
        *wb = lai_pair_beta(h, x, 0, column, left, lai_load_n(x->v[0] + column, left));
        return;
    }
    /* additive rules ask behind the multiply-adds, which still have enough to do then: 2 % */
    if (delta) lai_pair_prefetch(h, x, column, 2);
    u[0] = lai_pair_error(h, c, x, 0, column, left, rescale, write);
    u[1] = lai_zero();
    if (LAI_LIKELY(x->both)) {
        u[1] = lai_pair_error(h, c, x, 1, column, left, rescale, write);
        if (delta) u[1] = lai_fnma(lai_pair_part(h, x, 1, column, left, info->kk), u[0], u[1]);
    }
    *wa = lai_mul(u[0], lai_set(info->write[0]));
    if (rescale == LAI_TWICE) *wa = lai_mul(*wa, lai_set(info->write_late));
    *wb = lai_mul(u[1], lai_set(info->write[1]));
}

/* and behind it: the outputs, and what the state predicts for the next pair */
LAI_INLINE void lai_pair_behind(const lai_head *h, const lai_pairs *c, const lai_pair_view *x,
                                int64_t column, int64_t left, int rescale, int write,
                                const lai_v u[2], lai_v oa, lai_v ob, lai_v ra, lai_v rb) {
    const int delta = write == LA_WRITE_DELTA;
    if (write == LA_WRITE_DPLR) {
        lai_dplr_output(h, c, x, column, left, ra, rb);
        return;
    }
    if (!delta) lai_pair_prefetch(h, x, column, 2);
    if (delta) lai_store(c->predicted + 2 * column, ra);
    if (delta) lai_store(c->predicted + 2 * column + 16, rb);
    if (c->queries > 0) lai_pair_output(h, x, 0, column, left, rescale, u, oa, ob);
}

/* one pair, one panel, or two whole ones */
LAI_INLINE void lai_pair_panels(const lai_head *h, const lai_pairs *c, const lai_pair_view *x,
                                int64_t column, int rescale, int write, int panels) {
    const int64_t n = c->panel_rows, next = column + 16;
    const int64_t left = panels == 2 ? 16 : h->columns - column;
    const lai_two none = {lai_zero(), lai_zero()};
    lai_two w[2] = {none, none}, o[2], r[2] = {none, none};
    lai_v u[2] = {none.a, none.a}, u_next[2] = {none.a, none.a};
    lai_pair_before(h, c, x, column, left, rescale, write, u, &w[0].a, &w[1].a);
    if (panels == 2) lai_pair_before(h, c, x, next, left, rescale, write, u_next, &w[0].b, &w[1].b);
    if (write != LA_WRITE_DPLR && !LAI_LIKELY(c->queries <= 1)) {
        lai_v own[2 * LAI_PANELS];
        own[0] = u[0], own[1] = u[1];
        if (panels == 2) own[2 * LAI_PANELS - 2] = u_next[0], own[2 * LAI_PANELS - 1] = u_next[1];
        lai_pair_looks(h, c, x, column, panels, rescale, own);
    }
    lai_pair(c->panels + column * n, n, &x->pass, panels, w, o, r, rescale, write);
    lai_pair_behind(h, c, x, column, left, rescale, write, u, o[0].a, o[1].a, r[0].a, r[1].a);
    if (panels == 1) return;
    lai_pair_behind(h, c, x, next, left, rescale, write, u_next, o[0].b, o[1].b, r[0].b, r[1].b);
}

/* The pass with what is around it, once per kind: with the pass a function of its own, what then
 * went through memory cost 4 %. Pairs with deep gates are rare: a panel at a time. */
#define LAI_PAIR(name, rescale, write)                                                             \
    static void LAI_NAME(name)(const lai_head *h, const lai_pairs *c, const lai_pair_view *x,      \
                               int64_t column, int64_t stop) {                                     \
        for (; column < stop; column += 16)                                                        \
            if (LAI_PANELS == 2 && rescale != LAI_TWICE && column + 32 <= stop)                    \
                lai_pair_panels(h, c, x, column, rescale, write, 2), column += 16;                 \
            else                                                                                   \
                lai_pair_panels(h, c, x, column, rescale, write, 1);                               \
    }
LAI_PAIR(add_keep, LAI_KEEP, LA_WRITE_ADD)
LAI_PAIR(add_twice, LAI_TWICE, LA_WRITE_ADD)
LAI_PAIR(add_rows, LAI_ROWS, LA_WRITE_ADD)
LAI_PAIR(delta_keep, LAI_KEEP, LA_WRITE_DELTA)
LAI_PAIR(delta_twice, LAI_TWICE, LA_WRITE_DELTA)
LAI_PAIR(delta_rows, LAI_ROWS, LA_WRITE_DELTA)
LAI_PAIR(dplr_keep, LAI_KEEP, LA_WRITE_DPLR)
LAI_PAIR(dplr_rows, LAI_ROWS, LA_WRITE_DPLR)
#undef LAI_PAIR

/* [write][rescale] */
static const lai_pair_pass lai_pair_passes[3][3] = {
    {LAI_NAME(add_keep), LAI_NAME(add_rows), LAI_NAME(add_twice)},
    {LAI_NAME(delta_keep), LAI_NAME(delta_rows), LAI_NAME(delta_twice)},
    {LAI_HAS_CHANNELS ? LAI_NAME(dplr_keep) : NULL, LAI_HAS_CHANNELS ? LAI_NAME(dplr_rows) : NULL,
     NULL},
};

/* Pairs first .. end - 1 over all panels, as many panels at a time as stay in L1. The last panels
 * leave a pair's slot to one that is prepared behind it, between two passes. */
static void lai_pair_block(const lai_head *h, lai_pairs *c, int64_t first, int64_t end) {
    int64_t column, p, i;
    for (column = 0; column < h->columns; column += c->width)
        for (p = first; p < end; ++p) {
            const int64_t stop = LAI_MIN(column + c->width, h->columns);
            lai_pair_view x;
            lai_view_pair(h, c, p, &x);
            if (column == 0 && c->ragged) lai_pair_ends(h, &x);
            lai_pair_passes[h->layer->write][x.info->rescale](h, c, &x, column, stop);
            for (i = column; x.info->silent && i < stop; i += 16)
                lai_flush_rows(h, c->tokens * p, lai_pair_last(h, c, p),
                               c->panels + i * c->panel_rows, 16);
            if (c->queries > 0)
                lai_finish(h, c->tokens * p, LAI_MIN(c->tokens, h->keys - c->tokens * p), column,
                           stop);
            if (stop == h->columns) lai_prepare_pair(h, c, p + LAI_RING);
        }
}

/* multiply S and z by G */
static void lai_settle_pairs(const lai_head *h, lai_pairs *c) {
    float G = (float)exp(c->log_scale);
    int64_t i, column;
    for (i = 0; i < h->features; ++i) {
        if (h->decay_wide) G = (float)exp((double)c->sum[i] + (double)c->rest[i]);
        for (column = 0; column < h->columns; column += 16) {
            float *S = lai_panel(h, c->panels, h->first + column) + 16 * i;
            lai_store(S, lai_mul(lai_set(G), lai_load(S)));
        }
        if (h->normalised) c->z[i] *= G;
    }
}

/* lay out the workspace; returns its end */
static float *lai_layout_pairs(const lai_head *h, lai_pairs *c) {
    const int64_t rows = LAI_ROUND16(h->features), columns = LAI_ROUND16(h->columns);
    const int64_t block = 2 * LAI_RING;
    float *at = h->work;
    int64_t i;
    c->rows = rows;
    c->panel_rows = LAI_ROUND8(h->features);
    c->panels = at, at += columns * c->panel_rows;
    c->K = at, at += block * rows;
    c->Q = at, at += block * rows * h->queries;
    c->room = at, at += block * rows;
    c->R = h->decay_wide ? c->room : c->K;
    c->rho = at, at += LAI_RING * rows;
    c->zeros = at, at += 5 * rows; /* and room for lai_pair_wide behind the zeros */
    c->z = at, at += rows;
    c->sum = at, at += rows;
    c->rest = at, at += rows;
    c->held = at, at += rows;
    c->gates = at, at += 2 * rows;
    c->predicted = at, at += 2 * columns;
    c->info = (lai_pair_info *)(void *)at, at += 16 * 2 * LAI_RING;
    c->query = (lai_pair_query *)(void *)at, at += 5 * LAI_RING * h->queries;
    memset(c->zeros, 0, (size_t)rows * sizeof *at);
    memset(c->z, 0, (size_t)rows * 3 * sizeof *at);
    for (i = 0; i < rows; ++i) c->held[i] = 1.0f;
    return at;
}

static void lai_absorb_pairs(const lai_head *h, lai_pairs *c) {
    int64_t p, column, i;
    for (p = 0; p < LAI_RING; ++p) lai_prepare_pair(h, c, p);
    for (i = 0; h->dplr && c->count && i < h->features; i += 16) /* its first token reads by a */
        lai_store_eights(c->R + 2 * i, lai_load_n(h->a.at + i, h->features - i), lai_zero());
    for (column = 0; (h->delta || h->dplr) && c->count && column < h->columns; column += 16) {
        float *S = lai_panel(h, c->panels, h->first + column);
        lai_look(S, c->panel_rows, c->R, 1, c->predicted + 2 * column);
    }
    for (p = 0; p < c->count; p += LAI_RING - 1) /* a pass reads with the next pair's keys, too */
        lai_pair_block(h, c, p, LAI_MIN(p + LAI_RING - 1, c->count));
}

static void lai_begin_pairs(const lai_head *h, lai_pairs *c) {
    float *scratch = lai_layout_pairs(h, c);
    c->queries = h->queries;
    c->tokens = h->dplr ? 1 : 2;
    c->count = (h->keys + c->tokens - 1) / c->tokens;
    c->gated = lai_has_maximum(h->layer) || h->log_decay.at != &lai_no_gate;
    c->log_scale = 0.0;
    c->light = lai_is_light(h, c);
    c->width = 16 * LAI_MAX(2, 256 / c->panel_rows); /* two hide each other's latency */
    c->ahead = !c->light && (lai_maps(h->layer) || h->factor.at) ? 2 * LAI_RING : LAI_RING + 2;
    c->ahead *= c->tokens;
    c->end = 0;
    lai_begin_asking(h, c);
    if (!c->gated) lai_no_decays(c);
    lai_begin_stream(h, &c->stream, scratch,
                     scratch + lai_scratch_floats(h, c->rows, 2 * LAI_RING));
    lai_load_panels(h, c->panels);
    lai_load_z(h, c->z);
}

static void lai_end_pairs(const lai_head *h, lai_pairs *c) {
    lai_settle_pairs(h, c);
    lai_store_panels(h, c->panels);
    lai_store_z(h, c->z, &c->stream);
}

LAI_NOINLINE void lai_run_pairs(const lai_head *h) {
    lai_pairs c;
    lai_begin_pairs(h, &c);
    lai_absorb_pairs(h, &c);
    lai_end_pairs(h, &c);
}

/* ---- bidirectional ------------------------------------------------------------------------------
 *
 * All keys for all queries: the pair pass without queries makes the state, then each query reads
 * it. The forms do not differ; with no keys it is a read-only query of state_in. */

static void lai_read_pair(const lai_head *h, lai_pairs *c, const lai_mapped *y, int64_t t,
                          int64_t i, int64_t m) {
    const int64_t n = h->features, both = i + 1 < y->count;
    const float *qa = y->q.at + m * y->q_next + i * y->q.step;
    const float *qb = both ? qa + y->q.step : c->zeros;
    const float scale = h->scale;
    const float za = scale * lai_dot(qa, c->z, n), zb = scale * lai_dot(qb, c->z, n);
    const float a = scale * lai_inverse(h, za, lai_left_out(h, y, m, i));
    const float b = both ? scale * lai_inverse(h, zb, lai_left_out(h, y, m, i + 1)) : 0.0f;
    int64_t column;
    for (column = 0; column < n; column += 16)
        lai_store_eights(c->K + 2 * column, lai_load_n(qa + column, n - column),
                         lai_load_n(qb + column, n - column));
    for (column = h->first; column < h->first + h->columns; column += 16) {
        const int64_t cols = LAI_MIN(h->first + h->columns - column, 16);
        float o[32];
        lai_look(lai_panel(h, c->panels, column), c->panel_rows, c->K, 1, o);
        lai_store_n(lai_output(h, m, t, column), lai_mul(lai_set(a), lai_load(o)), cols);
        if (!both) continue;
        lai_store_n(lai_output(h, m, t + 1, column), lai_mul(lai_set(b), lai_load(o + 16)), cols);
    }
}

LAI_NOINLINE void lai_run_bidirectional(const lai_head *h) {
    lai_pairs c;
    lai_mapped *const y = &c.staged; /* it is free by then, and stack is scarce */
    int64_t t, i, m, count;
    lai_begin_pairs(h, &c);
    c.queries = 0;
    lai_absorb_pairs(h, &c);
    lai_end_pairs(h, &c);
    for (t = 0; t < h->tokens; t += count) {
        count = LAI_MIN(2 * LAI_RING, h->tokens - t);
        lai_map(h, &c.stream, t, count, 0, 1, y);
        for (i = 0; i < count; ++i) y->k_max[i] = c.stream.maximum;
        for (i = 0; i < count; i += 2)
            for (m = 0; m < h->queries; ++m) lai_read_pair(h, &c, y, t + i, i, m);
        lai_finish(h, t, count, 0, h->columns);
    }
}

/* ---- gates of the forms that apply them token by token ------------------------------------------
 *
 * A float32 alpha near 1 is wrong by up to 6e-8 in the same direction at every step, x + x
 * expm1(g) is not: so a gate is a pair of rows for lai_decay, (expm1(g), on) or (exp(g), off). A
 * gate that is so strong that no float holds it, though its effect on a large state is an
 * ordinary number, is halved and acts twice. */

/* value and step of 16 rows whose gates are g, or g + lo */
LAI_LARGE void lai_store_gate(float *value, float *step, lai_v g, const lai_v *lo) {
    lai_v s, e = lai_exp_parts(g, lo, &s), on = lai_greater(g, lai_set(LAI_WEAK));
    lai_store(value, lai_fma(s, e, lai_add(s, lai_keep(lai_set(-1.0f), on))));
    lai_store(step, on);
}

/* the gates of token t into room [2][rows]; shift is what FAVOR+ rescales by */
static void lai_gates(const lai_head *h, int64_t t, double shift, float *room, lai_gate_rows *g) {
    const float *at = h->log_decay.at + t * h->log_decay.step;
    const int64_t rows = LAI_ROUND16(h->features), n = h->features;
    const float one = (float)((double)at[0] + shift);
    const lai_v same = lai_set(one), lowest = lai_set(3.0f * (float)LAI_DEEP);
    lai_v half;
    int64_t i;
    g->value = room;
    g->step = room + rows;
    g->times = 1;
    g->all = h->decay_wide;
    for (i = 0; i == 0 || (h->gates_wide && i < n); i += 16) {
        /* exp of such a gate is in no float, but what it leaves may be an ordinary number */
        const lai_v x = h->gates_wide ? lai_load_n(at + i, n - i) : same;
        const lai_v deep = lai_greater(lai_set((float)LAI_DEEP), x);
        if (lai_any_greater(lai_keep(lai_sub(x, lowest), deep), 0.0f)) g->times = 2;
    }
    half = lai_set(1.0f / (float)g->times);
    for (i = 0; i == 0 || (g->all && i < rows); i += 16)
        lai_store_gate(room + i, room + rows + i,
                       lai_mul(half, h->gates_wide ? lai_load_n(at + i, n - i) : same), NULL);
    g->mode = one == 0.0f ? LAI_STAY : one / (float)g->times > LAI_WEAK ? LAI_STEP : LAI_SCALE;
    if (LAI_APART) g->mode = LAI_STEP; /* any gate, there */
    if (g->all)
        g->mode = LAI_APART ? LAI_MIXED : h->dplr ? LAI_BOTH : h->before ? LAI_FIRST : LAI_MIXED;
}
/* the gate 0, which leaves everything as it is, into room [2][16] */
static void lai_stay(float *room, lai_gate_rows *g) {
    lai_store_gate(room, room + 16, lai_zero(), NULL);
    g->value = room;
    g->step = room + 16;
    g->all = 0;
    g->times = 1;
    g->mode = LAI_STEP;
}
LAI_INLINE lai_v lai_decay_as(int mode, lai_v x, lai_v value, lai_v step) {
    if (LAI_APART) return lai_decay(x, value, step);
    if (mode == LAI_STAY) return x;
    if (mode == LAI_STEP) return lai_fma(x, value, x);
    return mode == LAI_SCALE ? lai_mul(x, value) : lai_decay(x, value, step);
}
/* one row, many columns */
LAI_INLINE lai_v lai_decay_row(lai_v x, const lai_gate_rows *g, int64_t i) {
    return lai_decay(x, lai_set(g->value[i * g->all]), lai_set(g->step[i * g->all]));
}
/* 16 rows */
LAI_INLINE lai_v lai_decay_rows(lai_v x, const lai_gate_rows *g, int64_t i) {
    return lai_decay(x, lai_load(g->value + i * g->all), lai_load(g->step + i * g->all));
}
static void lai_decay_all(float *x, const lai_gate_rows *g, int64_t rows) {
    int64_t i;
    for (i = 0; i < rows; i += 16) lai_store(x + i, lai_decay_rows(lai_load(x + i), g, i));
}

/* ---- recurrent ----------------------------------------------------------------------------------
 *
 * The definition as it stands: S = alpha S, u = beta (v - S^T k), S += k u^T, o = scale S^T q, on
 * the state where the caller has it. A token's arithmetic is the same at every T, so splitting a
 * sequence over calls changes no bit. */

/* Two layouts, two kernels, each compiled for every way in which a gate acts: on a state in cache
 * the multiply-adds are what takes the time. For states that are not, what comes next is asked for,
 * the next head's included: a fifth faster beyond L2 and 1.5 times in memory, for 2 % in L2. */

/* [r][dv]: one row, `cols` <= 16 columns: decayed, written, and read into y. w[0] is u, w[1] e. */
LAI_INLINE void lai_token_row(float *S, int64_t cols, float k, float b, float q, lai_v value,
                              lai_v step, int mode, const lai_v w[2], lai_v *y) {
    lai_v s = lai_load_n(S, cols);
    if (mode == LAI_FIRST) *y = lai_fma1(q, s, *y);
    s = lai_decay_as(mode, s, value, step);
    if (mode == LAI_BOTH) s = lai_fma1(b, w[1], s);
    s = lai_fma1(k, w[0], s);
    lai_store_n(S, s, cols);
    if (mode != LAI_FIRST) *y = lai_fma1(q, s, *y);
}

/* Row i of a head's block of columns and the three after it (count 4), or row i alone: S is row i.
 * The sums of what is read stay in memory, so the state is visited in the order in which it is
 * stored: with 32 columns at a time, RetNet's 128 x 128 took 1.2 times as long in L3, twice in
 * memory (AVX2, Zen 4). */
LAI_INLINE void lai_token_columns(const lai_token *x, float *S, int64_t stride, int64_t i,
                                  int count, int64_t columns, int mode, lai_v v, lai_v s) {
    const float *k = x->k + i, *b = x->b + i, *q = x->q + i, *u = x->u, *e = x->e;
    const int64_t more = count == 4, ahead = x->ahead, own = mode >= LAI_MIXED ? i : 0;
    const float *value = x->gate.value + own, *step = x->gate.step + own;
    const lai_v v0 = mode >= LAI_MIXED ? lai_set(value[0]) : v;
    const lai_v v1 = mode >= LAI_MIXED ? lai_set(value[more]) : v;
    const lai_v v2 = mode >= LAI_MIXED ? lai_set(value[2 * more]) : v;
    const lai_v v3 = mode >= LAI_MIXED ? lai_set(value[3 * more]) : v;
    const lai_v s0 = mode >= LAI_MIXED ? lai_set(step[0]) : s;
    const lai_v s1 = mode >= LAI_MIXED ? lai_set(step[more]) : s;
    const lai_v s2 = mode >= LAI_MIXED ? lai_set(step[2 * more]) : s;
    const lai_v s3 = mode >= LAI_MIXED ? lai_set(step[3 * more]) : s;
    float *y = x->y;
    int64_t c;
#define LAI_ROW(r, left)                                                                           \
    lai_token_row(S + (r)*stride + c, left, k[r], mode == LAI_BOTH ? b[r] : 0.0f, q[r], v##r,      \
                  s##r, mode, w, &sum)
#define LAI_COLUMNS(left)                                                                          \
    do {                                                                                           \
        const lai_v w[2] = {lai_load(u + c), mode == LAI_BOTH ? lai_load(e + c) : lai_zero()};     \
        lai_v sum = lai_zero();                                                                    \
        LAI_ROW(0, left);                                                                          \
        if (count == 4) {                                                                          \
            LAI_ROW(1, left);                                                                      \
            LAI_ROW(2, left);                                                                      \
            LAI_ROW(3, left);                                                                      \
        }                                                                                          \
        lai_store(y + c, lai_add(lai_load(y + c), sum));                                           \
    } while (0)
    for (c = 0; c + 16 <= columns; c += 16) {
        if (ahead) lai_prefetch_fours(lai_from(S, ahead + 4 * c));
        LAI_COLUMNS(16);
    }
    if (c < columns) LAI_COLUMNS(columns - c);
#undef LAI_COLUMNS
#undef LAI_ROW
}

/* [dv][r]: rows are value channels. `left` or 16 of the channels of one row, at S: decayed, written
 * with k u and b e, and read. */
LAI_INLINE lai_v lai_token_16(float *S, int64_t left, lai_v k, lai_v b, lai_v q, lai_v value,
                              lai_v step, int mode, float u, float e, lai_v y) {
    lai_v s = lai_load_n(S, left);
    if (mode == LAI_FIRST) y = lai_fma(s, q, y);
    s = lai_decay_as(mode, s, value, step);
    if (mode == LAI_BOTH) s = lai_fma(lai_set(e), b, s);
    s = lai_fma(lai_set(u), k, s);
    lai_store_n(S, s, left);
    return mode == LAI_FIRST ? y : lai_fma(s, q, y);
}

/* Up to 16 rows, four at a time: what each writes, u and e, and what is read from it, y. Rows that
 * do not exist are room whose results are dropped. */
LAI_INLINE void lai_token_rows(const lai_token *x, float *S, int64_t n, int64_t rows, int mode,
                               const float u[16], const float e[16], float y[16]) {
    const float *k = x->k, *q = x->q, *value = x->gate.value, *step = x->gate.step;
    const lai_v v = lai_set(value[0]), s = lai_set(step[0]);
    const int64_t ahead = x->ahead;
    int64_t r, i;
    for (r = 0; r < rows; r += 4) {
        float *a = S + r * n, *b = r + 1 < rows ? a + n : x->spare;
        float *c = r + 2 < rows ? a + 2 * n : x->spare, *d = r + 3 < rows ? a + 3 * n : x->spare;
        lai_v y0 = lai_zero(), y1 = y0, y2 = y0, y3 = y0;
#define LAI_FOUR(left)                                                                             \
    do {                                                                                           \
        const lai_v ki = lai_load_n(k + i, left), qi = lai_load_n(q + i, left);                    \
        const lai_v bi = mode == LAI_BOTH ? lai_load_n(x->b + i, left) : ki;                       \
        const lai_v vi = mode >= LAI_MIXED ? lai_load(value + i) : v;                              \
        const lai_v si = mode >= LAI_MIXED ? lai_load(step + i) : s;                               \
        if (ahead) lai_prefetch_fours(lai_from(a, ahead + 4 * i));                                 \
        y0 = lai_token_16(a + i, left, ki, bi, qi, vi, si, mode, u[r], e[r], y0);                  \
        y1 = lai_token_16(b + i, left, ki, bi, qi, vi, si, mode, u[r + 1], e[r + 1], y1);          \
        y2 = lai_token_16(c + i, left, ki, bi, qi, vi, si, mode, u[r + 2], e[r + 2], y2);          \
        y3 = lai_token_16(d + i, left, ki, bi, qi, vi, si, mode, u[r + 3], e[r + 3], y3);          \
    } while (0)
        for (i = 0; i + 16 <= n; i += 16) LAI_FOUR(16);
        if (i < n) LAI_FOUR(n - i);
#undef LAI_FOUR
        lai_sum4(y + r, y0, y1, y2, y3);
    }
}

#define LAI_TOKEN(name, mode)                                                                      \
    static void LAI_NAME(columns_##name)(const lai_token *x, float *S, int64_t stride, int64_t n,  \
                                         int64_t columns) {                                        \
        const lai_v v = lai_set(*x->gate.value), s = lai_set(*x->gate.step);                       \
        int64_t i;                                                                                 \
        for (i = 0; i + 4 <= n; i += 4)                                                            \
            lai_token_columns(x, S + i * stride, stride, i, 4, columns, mode, v, s);               \
        for (; i < n; ++i)                                                                         \
            lai_token_columns(x, S + i * stride, stride, i, 1, columns, mode, v, s);               \
    }                                                                                              \
    static void LAI_NAME(rows_##name)(const lai_token *x, float *S, int64_t n, int64_t rows,       \
                                      const float u[16], const float e[16], float y[16]) {         \
        lai_token_rows(x, S, n, rows, mode, u, e, y);                                              \
    }
LAI_TOKEN(stay, LAI_STAY)
LAI_TOKEN(step, LAI_STEP)
LAI_TOKEN(scale, LAI_SCALE)
LAI_TOKEN(mixed, LAI_MIXED)
LAI_TOKEN(first, LAI_FIRST)
LAI_TOKEN(both, LAI_BOTH)
#undef LAI_TOKEN
/* by way of LAI_STAY .. LAI_BOTH; LAI_STEP in place of those that a build or a pass does without */
#define LAI_PASSES(by)                                                                             \
    {                                                                                              \
        LAI_APART ? LAI_NAME(by##step) : LAI_NAME(by##stay), LAI_NAME(by##step),                   \
            LAI_APART ? LAI_NAME(by##step) : LAI_NAME(by##scale),                                  \
            LAI_HAS_CHANNELS ? LAI_NAME(by##mixed) : LAI_NAME(by##step),                           \
            LAI_HAS_CHANNELS && !LAI_APART ? LAI_NAME(by##first) : LAI_NAME(by##step),             \
            LAI_HAS_CHANNELS && !LAI_APART ? LAI_NAME(by##both) : LAI_NAME(by##step)               \
    }
static const lai_columns_pass lai_columns_passes[6] = LAI_PASSES(columns_);
static const lai_rows_pass lai_rows_passes[6] = LAI_PASSES(rows_);
#undef LAI_PASSES

/* A block swept on its own: decayed once, by a gate that acts twice, or cleared of denormal
 * numbers where that is a weak one. */
static void lai_sweep_block(const lai_head *h, float *S, int64_t first, int64_t columns,
                            const lai_gate_rows *g, int flush) {
    int64_t runs, length, stride, i, j;
    float *at = lai_state_block(h, S, first, columns, &runs, &length, &stride);
    for (i = 0; i < runs; ++i, at += stride)
        for (j = 0; j < length; j += 16) {
            const int kv = h->layout == LA_KV; /* a gate for the run, or for each of its elements */
            const lai_v value =
                kv ? lai_set(g->value[i * g->all]) : lai_load(g->value + j * g->all);
            const lai_v step = kv ? lai_set(g->step[i * g->all]) : lai_load(g->step + j * g->all);
            const lai_v x = lai_load_n(at + j, length - j);
            lai_store_n(at + j, flush ? lai_flush(x, value) : lai_decay(x, value, step),
                        length - j);
        }
}

/* What few tokens need before their pass: cleared before anything reads, decayed in time. */
LAI_INLINE void lai_sweep(const lai_head *h, const lai_token *x, float *S, int64_t first,
                          int64_t columns, int reading) {
    if (x->silent && reading) lai_sweep_block(h, S, first, columns, &x->gate, 1);
    if (x->gate.times == 2 && x->early != reading)
        lai_sweep_block(h, S, first, columns, &x->gate, 0);
}

/* what query head m gets: of what it read, y, and, where that came first, of the token's own u */
LAI_LARGE void lai_token_output(const lai_head *h, const lai_token *x, int64_t m, int64_t column,
                                int64_t cols, lai_v y, const float *u) {
    y = lai_mul(lai_set(x->factor[m]), y);
    if (h->before) y = lai_fma1(x->own[m], lai_load(u), y);
    lai_store_n(lai_output(h, m, x->t, column), y, cols);
}

/* y = S^T x: `columns` of [n][stride], in the order of memory */
static void lai_read_columns(const float *S, int64_t stride, int64_t n, int64_t columns,
                             const float *x, int64_t ahead, float *y) {
    int64_t i, c;
    for (c = 0; c < columns; c += 16) lai_store(y + c, lai_zero());
    for (i = 0; i + 4 <= n; i += 4, S += 4 * stride, x += 4)
        for (c = 0; c < columns; c += 16) {
            const int64_t left = columns - c;
            lai_v sum = lai_fma1(x[0], lai_load_n(S + c, left), lai_zero());
            if (ahead) lai_prefetch_fours(lai_from(S, ahead + 4 * c));
            sum = lai_fma1(x[1], lai_load_n(S + stride + c, left), sum);
            sum = lai_fma1(x[2], lai_load_n(S + 2 * stride + c, left), sum);
            sum = lai_fma1(x[3], lai_load_n(S + 3 * stride + c, left), sum);
            lai_store(y + c, lai_add(lai_load(y + c), sum));
        }
    for (; i < n; ++i, S += stride, ++x)
        for (c = 0; c < columns; c += 16)
            lai_store(y + c, lai_fma1(*x, lai_load_n(S + c, columns - c), lai_load(y + c)));
}

/* what has been read for query head m */
static void lai_columns_output(const lai_head *h, const lai_token *x, int64_t m) {
    int64_t c;
    for (c = 0; c < h->columns; c += 16)
        lai_token_output(h, x, m, h->first + c, h->columns - c, lai_load(x->y + c), x->u + c);
}

/* query heads m and on */
static void lai_query_columns(const lai_head *h, const lai_token *x, const float *S, int64_t m) {
    for (; m < h->queries; ++m) {
        lai_read_columns(S, h->dim_v, h->features, h->columns, x->q + m * x->q_next, 0, x->y);
        lai_columns_output(h, x, m);
    }
}

/* the write that comes first, of b e^T, and the decay, in a pass of its own; x is left without */
static void lai_write_columns(const lai_head *h, lai_token *x, float *S) {
    lai_token first = *x;
    int64_t c;
    first.k = x->b;
    first.u = x->e;
    for (c = 0; c < h->columns; c += 16) lai_store(x->y + c, lai_zero());
    lai_columns_passes[x->gate.mode](&first, S, h->dim_v, h->features, h->columns);
    x->gate = x->stay;
}

static void lai_token_kv(const lai_head *h, lai_token *x, float *state) {
    const int64_t n = h->features, stride = h->dim_v, first = h->first, columns = h->columns;
    const float *beta = h->beta.at + x->t * h->beta.step;
    float *S = state + first;
    int64_t c;
    x->ahead = h->keys > LAI_FEW ? 0 : 8 * stride;
    lai_sweep(h, x, state, first, columns, 1);
    if (x->predictor) {
        lai_read_columns(S, stride, n, columns, x->predictor, x->ahead, x->e);
        x->ahead = 0;
    }
    for (c = 0; c < columns; c += 16) {
        const lai_v v = lai_value(h, x->t, first + c, columns - c);
        const lai_v r = x->predictor ? lai_load(x->e + c) : lai_zero();
        lai_store(x->u + c, lai_written(h, v, r, beta, first + c, columns - c));
    }
    if (h->before) lai_query_columns(h, x, S, x->apart ? 0 : 1);
    lai_sweep(h, x, state, first, columns, 0);
    if (LAI_APART && LAI_HAS_CHANNELS && h->dplr) lai_write_columns(h, x, S);
    for (c = 0; c < columns; c += 16) lai_store(x->y + c, lai_zero());
    lai_columns_passes[x->gate.mode](x, S, stride, n, columns);
    if (!x->apart) lai_columns_output(h, x, 0);
    if (!h->before) lai_query_columns(h, x, S, 1);
}

/* y = S x for up to 16 rows */
static void lai_read_rows(const lai_token *x, const float *S, const float *v, int64_t n,
                          int64_t rows, float y[16]) {
    int64_t r, i;
    for (r = 0; r < rows; r += 4) {
        const float *four[4];
        for (i = 0; i < 4; ++i) four[i] = r + i < rows ? S + (r + i) * n : x->spare;
        lai_dot4(y + r, four, v, n);
    }
}

/* query heads m and on read rows row .. row + rows - 1 of the state, up to 16 */
static void lai_query_rows(const lai_head *h, const lai_token *x, const float *S, int64_t row,
                           int64_t rows, int64_t m, const float *u) {
    for (; m < h->queries; ++m) {
        float y[16] = {0.0f};
        lai_read_rows(x, S, x->q + m * x->q_next, h->features, rows, y);
        lai_token_output(h, x, m, row, rows, lai_load_fours(y), u);
    }
}

/* the same for [dv][r], up to 16 rows */
static void lai_token_rows_block(const lai_head *h, const lai_token *x, float *state, int64_t row,
                                 int64_t rows) {
    const int64_t n = h->features;
    const float *beta = h->beta.at + x->t * h->beta.step;
    float *S = state + row * n, u[16], e[16], y[16];
    lai_v r = lai_zero();
    lai_store(e, r);
    lai_store(y, r);
    lai_sweep(h, x, state, row, rows, 1);
    if (x->predictor) {
        lai_read_rows(x, S, x->predictor, n, rows, e);
        r = lai_load_fours(e);
    }
    lai_store(u, lai_written(h, lai_value(h, x->t, row, rows), r, beta, row, rows));
    if (h->before) lai_query_rows(h, x, S, row, rows, x->apart ? 0 : 1, u);
    lai_sweep(h, x, state, row, rows, 0);
    if (LAI_APART && LAI_HAS_CHANNELS && h->dplr) {
        lai_token first = *x, second = *x;
        first.k = x->b;
        second.gate = x->stay;
        lai_rows_passes[x->gate.mode](&first, S, n, rows, e, e, y);
        lai_rows_passes[x->stay.mode](&second, S, n, rows, u, e, y);
    } else {
        lai_rows_passes[x->gate.mode](x, S, n, rows, u, e, y);
    }
    if (!x->apart) lai_token_output(h, x, 0, row, rows, lai_load_fours(y), u);
    if (!h->before) lai_query_rows(h, x, S, row, rows, 1, u);
}

static void lai_token_vk(const lai_head *h, lai_token *x, float *state) {
    const int64_t end = h->first + h->columns, n = h->features;
    int64_t row, rows;
    x->ahead = h->keys > LAI_FEW
                   ? 0
                   : (x->predictor ? 16 : 8) * n; /* rows, and whole blocks if read twice */
    for (row = h->first; row < end; row += rows) {
        rows = LAI_MIN(end - row, 16);
        lai_token_rows_block(h, x, state, row, rows);
    }
}

/* z after the token, and the factors of each query head's output */
static void lai_token_factors(const lai_head *h, const lai_mapped *y, const lai_token *x, int64_t i,
                              float *z, float *factor, float *own) {
    const float scale = h->scale;
    int64_t m, j;
    for (j = 0; h->normalised && j < h->features; j += 16) {
        const lai_v k = lai_load_n(x->k + j, h->features - j);
        lai_store(z + j, lai_add(k, lai_decay_rows(lai_load(z + j), &x->gate, j)));
    }
    for (m = 0; m < h->queries; ++m) {
        const float *p = y->p.at + i * y->p.step;
        if (h->before) own[m] = scale * lai_dot(x->q + m * x->q_next, p, h->features);
        factor[m] = scale;
        if (h->normalised) {
            const float d = scale * lai_dot(x->q + m * x->q_next, z, h->features);
            factor[m] *= lai_inverse(h, d, lai_left_out(h, y, m, i));
        }
    }
}

static void lai_begin_tokens(const lai_head *h, lai_tokens *c) {
    const int64_t rows = LAI_ROUND16(h->features);
    const int64_t columns = LAI_ROUND16(h->columns);
    float *at = h->work;
    c->u = at, at += columns;
    c->e = at, at += columns;
    c->y = at, at += columns;
    c->spare = at, at += rows;
    c->z = at, at += rows;
    c->gates = at, at += 2 * rows;
    c->predictor = at, at += rows;
    c->factor = at, at += h->queries;
    c->own = at, at += h->queries;
    lai_begin_stream(h, &c->stream, at, NULL);
    at += lai_scratch_floats(h, rows, LAI_TOKENS);
    c->S = h->state_out ? h->state_out : at;
    memset(c->spare, 0, (size_t)rows * sizeof *at);
    lai_load_z(h, c->z);
    lai_begin_state(h, c->S);
}

static void lai_run_token(const lai_head *h, lai_tokens *c, const lai_mapped *y, int64_t t,
                          int64_t i, float before) {
    const int64_t rows = LAI_ROUND16(h->features);
    const float *p = y->p.at + i * y->p.step;
    lai_token x;
    int64_t j;
    if (lai_has_maximum(h->layer)) before = i > 0 ? y->k_max[i - 1] : before;
    lai_gates(h, t, lai_has_maximum(h->layer) ? lai_shift(h, before, y->k_max[i]) : 0.0, c->gates,
              &x.gate);
    if (LAI_APART && LAI_HAS_CHANNELS && h->dplr) lai_stay(c->stay, &x.stay);
    x.t = t;
    x.k = y->k.at + i * y->k.step;
    x.q = y->q.at + i * y->q.step;
    x.q_next = y->q_next;
    x.factor = c->factor;
    x.own = c->own;
    x.b = h->dplr ? h->b.at + t * h->b.step : x.k;
    x.predictor = h->dplr ? p : h->delta ? c->predictor : NULL;
    x.u = c->u;
    x.e = c->e;
    x.y = c->y;
    x.spare = c->spare;
    for (j = 0; h->delta && j < rows; j += 16)
        lai_store(c->predictor + j, lai_decay_rows(lai_load_n(p + j, h->features - j), &x.gate, j));
    x.silent = lai_is_silent(h, x.k, h->v.at + t * h->v.step);
    x.early = h->before || h->dplr;
    x.apart = h->before && (LAI_APART || x.gate.times == 2); /* it would see the state decayed */
    if (x.gate.times == 2) lai_decay_all(c->z, &x.gate, rows);
    for (j = 0; x.silent && h->normalised && j < rows; j += 16)
        lai_store(c->z + j, lai_flush(lai_load(c->z + j), lai_load(x.gate.value + j * x.gate.all)));
    lai_token_factors(h, y, &x, i, c->z, c->factor, c->own);
    if (h->layout == LA_VK)
        lai_token_vk(h, &x, c->S);
    else
        lai_token_kv(h, &x, c->S);
    lai_finish(h, t, 1, 0, h->columns);
}

/* What later tokens read and write. Inputs beyond the caches, T = 8192: RetNet 1.07 (d = 128) and
 * 1.17 times (d = 64) as fast on a Zen 5 core, delta rules the same. */
static void lai_token_prefetch(const lai_head *h, int64_t t) {
    const int64_t soon = t + 4;
    const int64_t later = soon + (lai_maps(h->layer) ? LAI_TOKENS : 0); /* mapped at once */
    int64_t i;
    for (i = 0; soon < h->keys && i < h->columns; i += 16) {
        LAI_PREFETCH(h->v.at + soon * h->v.step + h->first + i);
        LAI_PREFETCH_WRITE(lai_output(h, 0, soon, h->first + i));
    }
    for (i = 0; later < h->keys && i < h->dim_k; i += 16) {
        LAI_PREFETCH(h->k.at + later * h->k.step + i);
        LAI_PREFETCH(h->q.at + later * h->q.step + i);
    }
}

LAI_NOINLINE void lai_run_recurrent(const lai_head *h) {
    lai_tokens c;
    lai_mapped y;
    int64_t t, i, count;
    lai_begin_tokens(h, &c);
    lai_take_snapshot(h, &c, 0, c.stream.maximum);
    for (t = 0; t < h->keys; t += count) {
        const float before = c.stream.maximum;
        count = LAI_MIN(LAI_TOKENS, h->keys - t);
        lai_map(h, &c.stream, t, count, 1, 1, &y);
        for (i = 0; i < count; ++i) {
            lai_token_prefetch(h, t + i);
            lai_run_token(h, &c, &y, t + i, i, before);
            lai_take_snapshot(h, &c, t + i + 1, lai_has_maximum(h->layer) ? y.k_max[i] : 0.0f);
        }
    }
    lai_store_z(h, c.z, &c.stream);
}

/* ---- larger chunks and the parallel form --------------------------------------------------------
 *
 * A chunk of C tokens shares the state S0 before it. With D_ts, the decay between its tokens s and
 * t, and the scores P_ts = (q_t . k_s) D_ts and L_ts = (k_t . k_s) D_ts,
 *
 *     u_t = beta_t (v_t - D_t0 S0^T k_t - sum over s < t of L_ts u_s)        (additive: beta v)
 *     o_t = scale (D_t0 S0^T q_t + sum over s <= t of P_ts u_s)
 *     S   = D_C0 S0 + sum over s of D_Cs k_s u_s^T
 *
 * in tiles of six tokens, 16 or 32 columns. The first token's gate acts on S0 itself; the row D_t
 * steps on from token to token, so decays are products over the tokens between, and no gate
 * overflows or cancels. For decay per channel the keys step on instead of D: kappa_s is k_s decayed
 * up to the tile, and P_ts = kappa_s . q_t times the decay since; within the tile kappa_s steps on
 * with each token. Only products with s <= t are ever added up. A gate that would take the chunk's
 * decay below e^-60 begins a new chunk: what is left of a large state may still be an ordinary
 * number. The parallel form is one chunk.
 *
 * What reads early, before the token's own gate acts, sees D of the token before: the queries of
 * LA_READ_BEFORE, whose own score P_tt then is q_t . bonus k_t, and a_t, which gives DPLR's e_t.
 * Its tokens write twice: rows 2 s and 2 s + 1 of kappa, U and the scores are b and e, k and u.
 * The first token of a chunk reads S0 before its gate becomes part of that. */

/* what early streams of a chunk's first token read */
static void lai_read_first(const lai_head *h, lai_chunk *c, const lai_mapped *y) {
    int64_t stream, column;
    for (stream = 0; stream < c->streams && lai_is_early(h, stream); ++stream)
        for (column = 0; column < h->columns; column += 16)
            lai_store(c->first + stream * LAI_ROUND16(h->columns) + column,
                      lai_read(lai_panel(h, c->panels, h->first + column), 16, 16,
                               lai_stream_row(c, y, stream, 0), h->features));
}

/* S0 and z decayed by g, which acts `times` times */
static void lai_decay_chunk(const lai_head *h, lai_chunk *c, const lai_gate_rows *g) {
    int64_t column, i;
    int k;
    for (k = 0; k < g->times; ++k) {
        for (column = h->first; column < h->first + h->columns; column += 16) {
            float *S = lai_panel(h, c->panels, column);
            for (i = 0; i < h->features; ++i)
                lai_store(S + 16 * i, lai_decay_row(lai_load(S + 16 * i), g, i));
        }
        if (h->normalised) lai_decay_all(c->z, g, c->rows);
    }
}

/* the gate of a chunk's first token, which is part of S0 */
static void lai_open_chunk(const lai_head *h, lai_chunk *c, int64_t t, double shift) {
    lai_gate_rows g;
    int64_t i;
    lai_gates(h, t, shift, c->gates, &g);
    lai_decay_chunk(h, c, &g);
    for (i = 0; c->empty && i < h->features; ++i) /* a NaN gate makes something of nothing */
        c->empty = c->panels[16 * i] == 0.0f;
    memset(c->sum, 0, (size_t)c->rows * sizeof *c->sum);
    memset(c->rest, 0, (size_t)c->rows * sizeof *c->rest);
    c->log_gamma = 0.0;
}

/* the decay of the whole chunk for S0, without the rounding that would add up over chunks */
static lai_gate_rows lai_chunk_gate(const lai_head *h, lai_chunk *c) {
    lai_gate_rows g;
    int64_t i;
    g.value = c->gates;
    g.step = c->gates + c->rows;
    g.times = 1;
    g.mode = LAI_MIXED;
    g.all = h->decay_wide;
    for (i = 0; i == 0 || (g.all && i < c->rows); i += 16) {
        const lai_v sum = h->decay_wide ? lai_load(c->sum + i) : lai_set((float)c->log_gamma);
        const lai_v rest = h->decay_wide
                               ? lai_load(c->rest + i)
                               : lai_set((float)(c->log_gamma - (double)(float)c->log_gamma));
        lai_store_gate(c->gates + i, c->gates + c->rows + i, sum, &rest);
    }
    return g;
}

/* S0 = gamma S0 + K^T U for LAI_SPAN columns, six rows of the state at a time; g may be null */
static void lai_update_panels(const lai_head *h, const lai_chunk *c, const lai_gate_rows *g,
                              int64_t column) {
    const int64_t tall = LAI_ROUND8(h->features), own = 16 * c->size * c->writes;
    const lai_beside next = lai_second(column + 16 < h->columns, own, 16 * tall);
    const float *U = c->U + column / 16 * own;
    float *S = lai_panel(h, c->panels, h->first + column);
    int64_t i, r;
    for (i = 0; i < h->features; i += LAI_TILE) {
        const float *x[6];
        float *y[6];
        for (r = 0; r < LAI_TILE; ++r) { /* rows that do not exist repeat the last one */
            const int64_t row = LAI_MIN(i + r, h->features - 1);
            x[r] = c->kappa + row;
            y[r] = S + 16 * row;
            if (!g || row != i + r) continue;
            lai_store(y[r], lai_decay_row(lai_load(y[r]), g, row));
            if (LAI_PANELS == 2 && next.y)
                lai_store(y[r] + next.y, lai_decay_row(lai_load(y[r] + next.y), g, row));
        }
        lai_tile_add(x, c->rows, U, c->count * c->writes, y, next);
    }
}

/* the state after the chunk, which becomes S0 of the next one */
LAI_NOINLINE void lai_close_chunk(const lai_head *h, lai_chunk *c) {
    const lai_gate_rows g = lai_chunk_gate(h, c);
    const int narrow = c->gated && !h->decay_wide;
    int64_t column, s, i;
    if (c->gated && h->normalised) lai_decay_all(c->z, &g, c->rows);
    for (column = 0; narrow && column < h->columns; column += 16)
        for (s = 0; s < c->count; ++s) {
            float *u = c->U + column * c->size + 16 * s;
            lai_store(u, lai_mul(lai_set(c->decay[s]), lai_load(u)));
        }
    for (column = 0; column < h->columns; column += LAI_SPAN)
        lai_update_panels(h, c, c->gated ? &g : NULL, column);
    for (s = 0; h->normalised && s < c->count; ++s)
        for (i = 0; i < c->rows; i += 16)
            lai_store(c->z + i, lai_fma1(narrow ? c->decay[s] : 1.0f,
                                         lai_load(c->kappa + s * c->rows + i), lai_load(c->z + i)));
    for (column = 0; c->silent >= 0 && column < h->columns; column += 16)
        lai_flush_rows(h, c->silent, c->silent, lai_panel(h, c->panels, h->first + column), 16);
    if (c->silent >= 0 && h->normalised) lai_flush_rows(h, c->silent, c->silent, c->z, 1);
    c->count = 0;
    c->empty = 0;
}

/* does the gate of token t take some channel's decay below e^-60? If not, it counts, and *gamma is
 * the decay since the chunk began. */
static int lai_forgets(const lai_head *h, lai_chunk *c, int64_t t, float *gamma) {
    const float *at = lai_gate_row(h, t, c->gates);
    const lai_v never = lai_set(LAI_NEVER);
    lai_v least = lai_zero();
    int64_t i;
    for (i = 0; i < c->rows; i += 16) {
        const lai_v g = lai_max(never, lai_load_n(at + i, h->features - i));
        least = lai_min(g, lai_min(lai_add(lai_load(c->sum + i), g), least));
    }
    if (lai_any_greater(lai_sub(lai_zero(), least), (float)-LAI_FORGET)) return 1;
    for (i = 0; i < c->rows; i += 16) {
        const lai_v g = lai_max(never, lai_load_n(at + i, h->features - i));
        lai_v rest = lai_load(c->rest + i);
        const lai_v sum = lai_sum_exactly(lai_load(c->sum + i), g, &rest);
        lai_store(c->sum + i, sum);
        lai_store(c->rest + i, rest);
        lai_store(gamma + i, lai_exp(sum, &rest));
    }
    return 0;
}

/* How many of the `count` mapped tokens from t on still belong to the chunk, and their gates */
static void lai_begin_tile(const lai_head *h, lai_chunk *c, lai_tile *x, int64_t t, int64_t count,
                           float before) {
    float gates[16] = {0.0f};
    int64_t r, i;
    for (r = 0; r < count; ++r) {
        const double shift = lai_tile_shift(h, x->mapped, r, before);
        float *gamma = c->gamma + (r + 1) * c->rows;
        if (!c->gated) continue;
        if (c->count + r == 0) {
            lai_read_first(h, c, x->mapped);
            lai_open_chunk(h, c, t, shift);
            for (i = 0; i < c->rows; ++i) gamma[i] = 1.0f;
        } else if (h->decay_wide) {
            if (lai_forgets(h, c, t + r, gamma)) break;
        } else {
            const double g = (double)h->log_decay.at[(t + r) * h->log_decay.step] + shift;
            if (g < LAI_FORGET || c->log_gamma + g < LAI_FORGET) break;
            c->log_gamma += g;
            gates[r] = (float)g;
        }
    }
    lai_store_gate(x->value, x->step, lai_load(gates), NULL);
    x->t = t;
    x->rows = r;
}

/* Keys begin .. end - 1, and those before them in their four, into panels of 16. What is behind the
 * last repeats it: nothing reads its scores. */
static void lai_transpose_keys(const lai_head *h, lai_chunk *c, int64_t begin, int64_t end) {
    int64_t s, i, j;
    for (s = begin / 4 * 4; s < end; s += 4) {
        float *to = c->transposed + s / 16 * 16 * c->rows + s % 16;
        const float *k[4];
        for (j = 0; j < 4; ++j) k[j] = c->kappa + LAI_MIN(s + j, end - 1) * c->rows;
        if (s % 16 == 0 && s + 16 > end) memset(to, 0, (size_t)(16 * c->rows) * sizeof *to);
        for (i = 0; i < h->features; i += 4) lai_turn4(to + 16 * i, k, i, 1.0f);
    }
}

/* the tile's keys, as rows and transposed; of DPLR b comes before them */
static void lai_append_keys(const lai_head *h, lai_chunk *c, const lai_tile *x) {
    const int64_t n = h->features;
    int64_t r, i;
    for (r = 0; r < x->rows; ++r) {
        const float *k = x->mapped->k.at + r * x->mapped->k.step;
        const int64_t s = (c->count + r) * c->writes;
        float *kappa = c->kappa + (s + c->writes - 1) * c->rows;
        for (i = 0; i < n; i += 16) lai_store(kappa + i, lai_load_n(k + i, n - i));
        for (i = 0; h->dplr && i < n; i += 16)
            lai_store(kappa - c->rows + i, lai_load_n(h->b.at + (x->t + r) * h->b.step + i, n - i));
    }
    if (!h->decay_wide) lai_transpose_keys(h, c, c->count, c->count + x->rows);
}

/* one decay for all rows: plain scores of the tile's rows with all keys so far, then D */
LAI_NOINLINE void lai_narrow_scores(const lai_head *h, lai_chunk *c, lai_tile *x) {
    const int64_t keys = c->count + x->rows;
    int64_t stream, r, s;
    for (stream = 0; stream < c->streams; ++stream) {
        const float *rows[6];
        float *y[6];
        for (r = 0; r < LAI_TILE; ++r)
            rows[r] = lai_stream_row(c, x->mapped, stream, LAI_MIN(r, x->rows - 1));
        for (s = 0; s < keys; s += LAI_SPAN) {
            for (r = 0; r < LAI_TILE; ++r) y[r] = lai_score_row(c, stream, r) + s;
            lai_tile_set(rows, c->transposed + s * c->rows, h->features, y,
                         lai_second(s + 16 < keys, 16 * c->rows, 16));
        }
    }
    for (r = 0; r < x->rows; ++r) {
        const int64_t end = c->count + r;
        const lai_v value = lai_set(x->value[r]), step = lai_set(x->step[r]);
        x->gamma[r] = 1.0f;
        if (!c->gated) continue;
        for (s = 0; s < end; s += 16)
            lai_store(c->decay + s, lai_decay(lai_load(c->decay + s), value, step));
        c->decay[end] = 1.0f;
        x->gamma[r] = c->decay[0];
        for (stream = 0; stream < c->streams; ++stream) {
            float *P = lai_score_row(c, stream, r);
            for (s = 0; s <= end; s += 16)
                lai_store(P + s, lai_mul(lai_load(P + s), lai_load(c->decay + s)));
        }
    }
}

/* The rows x of a stream times their decay, since the chunk began (gamma) or the tile did. What is
 * early sees that of the token before. */
static void lai_decay_stream(const lai_head *h, lai_chunk *c, const lai_tile *x, int64_t stream,
                             const float *decay) {
    int64_t r, i;
    if (!lai_is_early(h, stream)) decay += c->rows;
    for (r = 0; r < x->rows; ++r, decay += c->rows) {
        const float *row = lai_stream_row(c, x->mapped, stream, r);
        float *to = c->x + (stream * LAI_TILE + r) * c->rows;
        for (i = 0; i < h->features; i += 16)
            lai_store(to + i, lai_mul(lai_load_n(row + i, h->features - i), lai_load(decay + i)));
    }
}

/* Decay per channel: scores with the keys before the tile, which are decayed up to it, while the
 * rows hold the decay since. Then those keys step on to the tile's end, by the sum of its gates. */
static void lai_past_scores(const lai_head *h, lai_chunk *c, const lai_tile *x) {
    const int64_t past = c->count * c->writes, width = c->rows;
    float *since = c->gamma + (LAI_TILE + 1) * width;
    float *value = since + (LAI_TILE + 1) * width, *step = value + width;
    const lai_gate_rows all = {value, step, 1, 1, LAI_MIXED};
    const float *rows[6];
    int64_t stream, r, s, i;
    for (r = 0; r < x->rows; ++r) rows[r] = lai_gate_row(h, x->t + r, c->x + r * width);
    for (i = 0; i < width; i += 16) {
        lai_v sum = lai_zero(), rest = sum;
        lai_store(since + i, lai_set(1.0f));
        for (r = 0; r < x->rows; ++r) {
            sum = lai_sum_exactly(sum, lai_load_n(rows[r] + i, h->features - i), &rest);
            lai_store(since + (r + 1) * width + i, lai_exp(sum, &rest));
        }
        lai_store_gate(value + i, step + i, sum, &rest);
    }
    for (stream = 0; stream < c->streams; ++stream) {
        lai_decay_stream(h, c, x, stream, since);
        for (r = 0; r < LAI_TILE; ++r)
            rows[r] = c->x + (stream * LAI_TILE + LAI_MIN(r, x->rows - 1)) * width;
        for (s = 0; s < past; s += LAI_SPAN) {
            float *y[6];
            for (r = 0; r < LAI_TILE; ++r) y[r] = lai_score_row(c, stream, r) + s;
            lai_tile_set(rows, c->transposed + s * width, h->features, y,
                         lai_second(s + 16 < past, 16 * width, 16));
        }
    }
    for (s = 0; s < past; ++s) lai_decay_all(c->kappa + s * width, &all, width);
}

/* scores of the tile's row r with its keys before that, as they are now */
static void lai_near_scores(const lai_head *h, const lai_chunk *c, const lai_tile *x, int64_t r,
                            int early) {
    int64_t stream, s;
    for (stream = 0; stream < c->streams; ++stream)
        for (s = c->count * c->writes; s < (c->count + r) * c->writes; ++s)
            if (lai_is_early(h, stream) == early)
                lai_score_row(c, stream, r)[s] = lai_dot(lai_stream_row(c, x->mapped, stream, r),
                                                         c->kappa + s * c->rows, h->features);
}

/* decay per channel: within the tile the keys before a row step on with each row */
LAI_NOINLINE void lai_wide_scores(const lai_head *h, lai_chunk *c, lai_tile *x) {
    const int64_t writes = c->writes, past = c->count * writes;
    lai_gate_rows g[LAI_TILE];
    int64_t stream, r, s;
    for (r = 0; r < x->rows; ++r) lai_gates(h, x->t + r, 0.0, c->gates + 2 * r * c->rows, g + r);
    if (past > 0) lai_past_scores(h, c, x);
    for (r = 0; r < x->rows; ++r) {
        const int64_t end = past + r * writes;
        const float *own = c->kappa + end * c->rows;
        if (h->before) own = x->mapped->p.at + r * x->mapped->p.step;
        lai_near_scores(h, c, x, r, 1);
        for (s = past; s < end; ++s) lai_decay_all(c->kappa + s * c->rows, g + r, c->rows);
        lai_near_scores(h, c, x, r, 0);
        for (stream = 0; stream < c->streams; ++stream)
            for (s = 0; s < writes; ++s)
                lai_score_row(c, stream, r)[end + s] = lai_dot(
                    lai_stream_row(c, x->mapped, stream, r), own + s * c->rows, h->features);
    }
    for (stream = 0; stream < c->streams; ++stream) lai_decay_stream(h, c, x, stream, c->gamma);
    memcpy(c->gamma, c->gamma + r * c->rows, (size_t)c->rows * sizeof *c->gamma);
    lai_transpose_keys(h, c, 0, past + r * writes);
}

/* the factor of each row of each query head: scale over the denominator */
static void lai_tile_factors(const lai_head *h, const lai_chunk *c, const lai_tile *x) {
    int64_t m, r, s;
    for (m = 0; m < h->queries; ++m)
        for (r = 0; r < x->rows; ++r) {
            const int64_t stream = m + c->predicts, end = c->count + r + 1;
            const float *P = lai_score_row(c, stream, r);
            const float *q = h->decay_wide ? c->x + (stream * LAI_TILE + r) * c->rows
                                           : lai_stream_row(c, x->mapped, stream, r);
            float *factor = c->factor + stream * LAI_TILE + r;
            double past; /* the product is exact there: contraction changes nothing */
            lai_v sum = lai_zero();
            *factor = h->scale;
            if (!h->normalised) continue;
            for (s = 0; s < end; s += 16) sum = lai_add(sum, lai_load_n(P + s, end - s));
            past =
                (double)lai_dot(q, c->z, h->features) * (h->decay_wide ? 1.0 : (double)x->gamma[r]);
            *factor *= lai_inverse(h, h->scale * (float)((double)lai_sum(sum) + past),
                                   lai_left_out(h, x->mapped, m, r));
        }
}

/* w = what stream's rows read from S0 and from the u before the tile, for one panel or two */
static void lai_tile_read(const lai_head *h, const lai_chunk *c, const lai_tile *x, int64_t column,
                          int64_t stream, float w[LAI_TILE][LAI_SPAN]) {
    const int64_t own = 16 * c->size * c->writes, tall = LAI_ROUND8(h->features);
    const int two = LAI_PANELS == 2 && column + 16 < h->columns;
    const float *rows[6], *P[6];
    float *y[6];
    int64_t r, i;
    for (r = 0; r < LAI_TILE; ++r) { /* rows that do not exist repeat the last one */
        const int64_t last = LAI_MIN(r, x->rows - 1);
        rows[r] = h->decay_wide ? c->x + (stream * LAI_TILE + last) * c->rows
                                : lai_stream_row(c, x->mapped, stream, last);
        P[r] = lai_score_row(c, stream, last);
        y[r] = w[r];
        for (i = 0; c->empty && i < LAI_SPAN; i += 16) lai_store(w[r] + i, lai_zero());
    }
    if (!c->empty)
        lai_tile_set(rows, lai_panel(h, c->panels, h->first + column), h->features, y,
                     lai_second(two, 16 * tall, 16));
    for (r = 0; !c->empty && c->gated && !h->decay_wide && r < x->rows; ++r)
        for (i = 0; i <= 16 * two; i += 16)
            lai_store(w[r] + i, lai_mul(lai_set(x->gamma[r]), lai_load(w[r] + i)));
    for (i = 0; c->count == 0 && lai_is_early(h, stream) && i <= 16 * two; i += 16)
        lai_store(w[0] + i, lai_load(c->first + stream * LAI_ROUND16(h->columns) + column + i));
    if (c->count > 0)
        lai_tile_add(P, 1, c->U + column / 16 * own, c->count * c->writes, y,
                     lai_second(two, own, 16));
}

/* What the next tile, from t on, reads and writes, a line of each row per panel: values first; keys
 * behind the panel's work, for more at once wait for each other. */
LAI_NOINLINE void lai_ask_tile(const lai_head *h, int64_t t, int64_t column, int keys) {
    const int64_t end = LAI_MIN(t + LAI_TILE, h->keys);
    lai_rows ask[6];
    const int asked = keys ? lai_rows_to_ask(h, 1, ask) : 0;
    int64_t m, i;
    for (; t < end; ++t) {
        if (!keys) lai_ask_line(h->v.at + t * h->v.step + h->first, column, h->columns);
        for (m = 0; !keys && m < h->queries; ++m)
            lai_ask_line(lai_output(h, m, t, h->first), column, h->columns);
        for (i = column; keys && i < h->dim_k; i += h->columns) {
            for (m = 0; m < asked; ++m) lai_ask_line(ask[m].at + t * ask[m].step, i, h->dim_k);
            for (m = 1; m < h->queries; ++m)
                lai_ask_line(h->q.at + m * h->q_next + t * h->q.step, i, h->dim_k);
        }
    }
}

/* one tile, one panel: the u of its tokens, row by row within the tile, */
static void lai_tile_writes(const lai_head *h, const lai_chunk *c, const lai_tile *x,
                            int64_t column, float w[LAI_TILE][LAI_SPAN], int64_t i) {
    const int64_t cols = h->columns - column, writes = c->writes;
    float *const U = c->U + column * c->size * writes + 16 * c->count * writes, *u = U;
    int64_t r, s;
    for (r = 0; r < x->rows; ++r, u += 16 * writes) {
        const float *L = lai_score_row(c, 0, r) + c->count * writes;
        const int64_t t = x->t + r;
        lai_v v = lai_value(h, t, h->first + column, cols), sum = lai_zero();
        if (c->predicts) {
            sum = lai_load(w[r] + i);
            for (s = 0; s < r * writes; ++s) sum = lai_fma1(L[s], lai_load(U + 16 * s), sum);
        }
        v = lai_written(h, v, sum, h->beta.at + t * h->beta.step, h->first + column, cols);
        lai_store(u + 16 * (writes - 1), v);
        if (h->dplr) lai_store(u, sum);
    }
}

/* and what a stream's queries read */
static void lai_tile_outputs(const lai_head *h, const lai_chunk *c, const lai_tile *x,
                             int64_t column, int64_t stream, float w[LAI_TILE][LAI_SPAN],
                             int64_t i) {
    const int64_t cols = h->columns - column, writes = c->writes;
    const float *const U = c->U + column * c->size * writes + 16 * c->count * writes;
    int64_t r, s;
    for (r = 0; r < x->rows; ++r) {
        const float *P = lai_score_row(c, stream, r) + c->count * writes;
        const lai_v factor = lai_set(c->factor[stream * LAI_TILE + r]);
        lai_v sum = lai_load(w[r] + i);
        for (s = 0; s < (r + 1) * writes; ++s) sum = lai_fma1(P[s], lai_load(U + 16 * s), sum);
        lai_store_n(lai_output(h, stream - c->predicts, x->t + r, h->first + column),
                    lai_mul(factor, sum), cols);
    }
}

/* one tile, LAI_SPAN columns */
LAI_NOINLINE void lai_tile_panels(const lai_head *h, const lai_chunk *c, const lai_tile *x,
                                  int64_t column) {
    const int64_t span = LAI_MIN(LAI_SPAN, h->columns - column);
    float w[LAI_TILE][LAI_SPAN];
    int64_t stream, i;
    for (i = 0; i < span; i += 16) lai_ask_tile(h, x->t + LAI_TILE, column + i, 0);
    if (c->predicts) lai_tile_read(h, c, x, column, 0, w);
    for (i = 0; i < span; i += 16) lai_tile_writes(h, c, x, column + i, w, i);
    for (stream = c->predicts; stream < c->streams; ++stream) {
        lai_tile_read(h, c, x, column, stream, w);
        for (i = 0; i < span; i += 16) lai_tile_outputs(h, c, x, column + i, stream, w, i);
    }
    for (i = 0; i < span; i += 16) lai_ask_tile(h, x->t + LAI_TILE, column + i, 1);
}

static void lai_begin_chunks(const lai_head *h, lai_chunk *c) {
    const int64_t rows = LAI_ROUND16(h->features), columns = LAI_ROUND16(h->columns);
    float *at = h->work;
    c->rows = rows;
    c->size = h->form == LA_PARALLEL ? h->keys : h->chunk;
    c->writes = lai_writes(h->layer);
    c->length = LAI_ROUND16(c->size * c->writes);
    c->predicts = h->delta || h->dplr;
    c->streams = c->predicts + h->queries;
    c->gated = lai_has_maximum(h->layer) || h->log_decay.at != &lai_no_gate || h->decay_wide;
    c->empty = !h->state_in && !h->erases; /* what erases may be NaN */
    c->count = 0;
    c->log_gamma = 0.0;
    c->panels = at, at += columns * LAI_ROUND8(h->features);
    c->kappa = at, at += c->size * c->writes * rows;
    c->transposed = at, at += c->length * rows;
    c->U = at, at += columns * c->size * c->writes;
    c->first = at, at += h->before || h->dplr ? c->streams * columns : 0;
    c->P = at, at += c->streams * LAI_TILE * c->length;
    c->factor = at, at += c->streams * LAI_TILE;
    c->decay = at, at += c->length;
    c->x = at, at += c->streams * LAI_TILE * rows;
    c->gamma = at, at += (2 * LAI_TILE + 4) * rows;
    c->sum = at, at += rows;
    c->rest = at, at += rows;
    c->gates = at, at += 2 * LAI_TILE * rows;
    c->z = at, at += rows;
    memset(c->gates, 0, (size_t)(2 * LAI_TILE * rows) * sizeof *at);
    memset(c->decay, 0, (size_t)c->length * sizeof *at); /* lanes behind the last token */
    memset(c->gamma, 0, (size_t)rows * sizeof *at);      /* of no token before the first */
    lai_begin_stream(h, &c->stream, at, at + lai_scratch_floats(h, rows, LAI_TILE));
    lai_load_panels(h, c->panels);
    lai_load_z(h, c->z);
}

LAI_NOINLINE void lai_run_chunks(const lai_head *h) {
    lai_chunk c;
    lai_mapped y;
    lai_tile x;
    int64_t t, count, column;
    lai_begin_chunks(h, &c);
    x.mapped = &y;
    for (t = 0; t < h->keys; t += x.rows) {
        const float before = c.stream.maximum;
        if (c.count == c.size) lai_close_chunk(h, &c);
        count = LAI_MIN(LAI_MIN(LAI_TILE, c.size - c.count), h->keys - t);
        lai_map(h, &c.stream, t, count, 1, 1, &y);
        lai_begin_tile(h, &c, &x, t, count, before);
        if (x.rows > 0) {
            lai_append_keys(h, &c, &x);
            if (LAI_HAS_CHANNELS && h->decay_wide)
                lai_wide_scores(h, &c, &x);
            else
                lai_narrow_scores(h, &c, &x);
            lai_tile_factors(h, &c, &x);
            for (column = 0; column < h->columns; column += LAI_SPAN)
                lai_tile_panels(h, &c, &x, column);
            lai_finish(h, t, x.rows, 0, h->columns);
            c.count += x.rows;
            c.silent = t + x.rows - 1;
            if (!lai_is_silent(h, c.kappa + (c.count * c.writes - 1) * c.rows,
                               h->v.at + c.silent * h->v.step))
                c.silent = -1;
        }
        if (x.rows == count) continue;
        if (lai_has_maximum(h->layer)) /* the rest will be mapped again */
            c.stream.maximum = x.rows > 0 ? y.k_max[x.rows - 1] : before;
        lai_close_chunk(h, &c);
    }
    if (!h->state_out) return;
    if (c.count > 0) lai_close_chunk(h, &c);
    lai_store_panels(h, c.panels);
    lai_store_z(h, c.z, &c.stream);
}

static void lai_run_form(const lai_head *h) {
    if (!LAI_HAS_CHUNKS || (h->form == LA_RECURRENT && !h->bidirectional))
        lai_run_recurrent(h);
    else if (h->bidirectional)
        lai_run_bidirectional(h);
    else if (h->form == LA_CHUNKWISE && h->chunk == 0)
        lai_run_pairs(h);
    else
        lai_run_chunks(h);
    LAI_LEAVE();
}

#ifdef LA_EXTRAS
/* ---- attention ----------------------------------------------------------------------------------
 *
 * A block of queries meets one block of keys after the other. In S = K Q^T the rows of keys are the
 * coefficients of a tile, which it reads where they are, and 16 queries its columns, so that all
 * that happens to the logits of a query stays in its lane. In O = S^T V the columns of S are the
 * coefficients.
 *
 *     Q  [192 / 16][dk][16]    scale q, transposed; for few rows [rows][dk]
 *     S  [192 / 16][192][16]   logits of a block of keys, then weights
 *     V  [2][192][16]          a panel of the block's values, or two
 *     O  [dv / 16][192][16]    weights times values, summed so far
 *
 * Weights are relative to the largest logit of the row so far; when that rises, the row's sum and O
 * shrink. It begins with the lowest float: minus infinity would be no number to be relative to.
 * A row of O adds its keys in their order, and only those it sees, whatever rows are beside it. */

static void lai_attend_queries(const lai_attend *a) {
    const int64_t dk = a->layer->dim_k, few = a->rows <= LAI_FEW_ROWS;
    const float scale = a->layer->scale;
    const float *q[16];
    int64_t p, r, i;
    for (r = 0; few && r < a->rows; ++r) {
        q[r] = lai_attend_query(a, r);
        for (i = 0; i < dk; ++i) a->Q[r * dk + i] = q[r][i] * scale;
    }
    for (p = 0; !few && p < a->rows; p += 16) {
        float *to = a->Q + p * dk;
        for (r = 0; r < 16; ++r) {
            q[r] = lai_attend_query(a, p + r);
            lai_attend_prefetch(lai_attend_query(a, p + r + 16), dk);
        }
        for (i = 0; i + 4 <= dk; i += 4)
            for (r = 0; r < 16; r += 4) lai_turn4(to + 16 * i + r, q + r, i, scale);
        for (; i < dk; ++i)
            for (r = 0; r < 16; ++r) to[16 * i + r] = q[r][i] * scale;
    }
}

/* S = K Q^T for n keys from k on; their values are next */
static void lai_attend_scores(const lai_attend *a, const float *k, const float *v, int64_t n) {
    const int64_t dk = a->layer->dim_k;
    int64_t j, p, t, c;
    for (j = 0; j < n; j += 6) {
        const float *x[6];
        float *y[6];
        for (t = 0; t < 6; ++t) {
            const int64_t row = LAI_MIN(j + t, n - 1), soon = LAI_MIN(j + t + 6, n - 1);
            x[t] = k + row * a->k.step;
            lai_attend_prefetch(k + soon * a->k.step, dk);
            for (c = 0; c < a->layer->dim_v; c += 16) LAI_PREFETCH_L2(v + row * a->v.step + c);
        }
        for (p = 0; p < a->rows; p += LAI_SPAN) {
            const int two = LAI_PANELS == 2 && p + 16 < a->rows;
            if (j + 6 <= a->begin[p] || j >= a->end[p + 16 * two + 15]) continue;
            for (t = 0; t < 6; ++t) y[t] = a->S + p * LAI_BLOCK_KEYS + 16 * (j + t);
            lai_tile_set(x, a->Q + p * dk, dk, y, lai_second(two, 16 * dk, 16 * LAI_BLOCK_KEYS));
        }
    }
}

/* the same for few queries */
static void lai_attend_dots(const lai_attend *a, const float *k, const float *v, int64_t n) {
    const int64_t dk = a->layer->dim_k;
    const float *x[4];
    float s[4];
    int64_t j, r, t;
    for (j = 0; j < n; j += 4) {
        for (t = 0; t < 4; ++t) {
            x[t] = k + LAI_MIN(j + t, n - 1) * a->k.step;
            lai_attend_prefetch(k + LAI_MIN(j + t + 16, n - 1) * a->k.step, dk);
            for (r = 0; r < a->layer->dim_v; r += 16)
                LAI_PREFETCH_L2(v + LAI_MIN(j + t, n - 1) * a->v.step + r);
        }
        for (r = 0; r < a->rows; ++r) {
            lai_dot4(s, x, a->Q + r * dk, dk);
            for (t = 0; t < 4; ++t) a->S[16 * (j + t) + r] = s[t];
        }
    }
}

/* weights that are given: a row of them for each key */
static void lai_attend_given(const lai_attend *a, int64_t key, int64_t n) {
    int64_t p, j;
    for (p = 0; p < a->rows; p += 16) {
        const float *x = a->logits.at + key * a->logits.step + a->first + p;
        float *S = a->S + p * LAI_BLOCK_KEYS;
        for (j = 0; j < n; ++j, x += a->logits.step)
            lai_store(S + 16 * j, lai_load_n(x, a->rows - p));
    }
}

/* logits to weights, for the panel of rows from p on */
static void lai_attend_softmax(const lai_attend *a, int64_t p) {
    float *S = a->S + p * LAI_BLOCK_KEYS;
    const lai_v before = lai_load(a->most + p);
    lai_v most = before, sum = lai_zero(), shrink;
    int64_t j;
    for (j = a->begin[p]; j < a->end[p + 15]; ++j) most = lai_max(lai_load(S + 16 * j), most);
    for (j = a->begin[p]; j < a->end[p + 15]; ++j) {
        const lai_v w = lai_exp_low(lai_sub(lai_load(S + 16 * j), most), NULL, 1);
        lai_store(S + 16 * j, w);
        sum = lai_add(sum, w);
    }
    shrink = lai_exp_low(lai_sub(before, most), NULL, 1);
    lai_store(a->most + p, most);
    lai_store(a->sum + p, lai_fma(shrink, lai_load(a->sum + p), sum));
    lai_store(a->shrink + p, shrink);
}

/* 1 / (1 + e^-x), or e^x / (1 + e^x) for x < 0, where nothing overflows; NaN stays */
LAI_INLINE lai_v lai_logistic16(lai_v x) {
    const lai_v zero = lai_zero(), one = lai_set(1.0f);
    const lai_v e = lai_exp_low(lai_min(x, lai_sub(zero, x)), NULL, 1);
    const lai_v upper = lai_keep(one, lai_not_less(x, zero));
    const lai_v lower = lai_keep(e, lai_greater(zero, x));
    return lai_div(lai_add(upper, lower), lai_add(one, e));
}
static void lai_attend_sigmoid(const lai_attend *a, int64_t p) {
    const lai_v bias = lai_set(a->layer->bias);
    float *S = a->S + p * LAI_BLOCK_KEYS;
    int64_t j;
    for (j = a->begin[p]; j < a->end[p + 15]; ++j) {
        lai_store(S + 16 * j, lai_logistic16(lai_add(lai_load(S + 16 * j), bias)));
    }
}

/* V: a panel of columns of n rows from v on; the next panel is asked for */
static void lai_attend_pack(const lai_attend *a, const float *v, int64_t n, int64_t c, float *V) {
    const int64_t dv = a->layer->dim_v, next = LAI_MIN(16, dv - c - 1);
    int64_t j;
    for (j = 0; j < n; ++j) {
        const float *row = v + j * a->v.step;
        LAI_PREFETCH(row + c + next);
        lai_store(V + 16 * j, lai_load_n(row + c, dv - c));
    }
}

/* x + sum of s[16 j] V[j], begin <= j < end */
LAI_INLINE lai_v lai_attend_sum(lai_v x, const float *s, const float *V, int64_t begin,
                                int64_t end) {
    int64_t j;
    for (j = begin; j < end; ++j) x = lai_fma1(s[16 * j], lai_load(V + 16 * j), x);
    return x;
}

/* O = shrink O + S^T V, for a tile of rows from r on: what they all see, and each one's own keys
 * before and behind that */
static void lai_attend_tile(const lai_attend *a, int64_t r, int64_t c) {
    const int two = LAI_PANELS == 2 && c + 16 < a->layer->dim_v;
    const lai_beside next = lai_second(two, 16 * LAI_BLOCK_KEYS, 16 * LAI_BLOCK_ROWS);
    const int64_t begin = a->begin[r + 5], end = LAI_MAX(begin, a->end[r]);
    const float *x[6], *s[6];
    float *y[6];
    int64_t t;
    int i;
    for (t = 0; t < 6; ++t) {
        const int64_t row = r + t, own = LAI_MIN(begin, a->end[row]);
        const int64_t from = LAI_MIN(row, a->rows - 1); /* what is in no panel repeats the last */
        s[t] = a->S + from / 16 * 16 * LAI_BLOCK_KEYS + from % 16;
        x[t] = s[t] + 16 * begin;
        y[t] = a->O + c * LAI_BLOCK_ROWS + 16 * row;
        for (i = 0; i <= two; ++i) {
            float *const O = y[t] + i * next.y;
            const lai_v shrunk = lai_mul(lai_load(O), lai_set(a->shrink[row]));
            lai_store(O, lai_attend_sum(shrunk, s[t], a->V + i * next.m, a->begin[row], own));
        }
    }
    lai_tile_add(x, 16, a->V + 16 * begin, end - begin, y, next);
    for (t = 0; t < 6; ++t)
        for (i = 0; i <= two && end < a->end[r + t]; ++i)
            lai_store(y[t] + i * next.y, lai_attend_sum(lai_load(y[t] + i * next.y), s[t],
                                                        a->V + i * next.m, end, a->end[r + t]));
}

static void lai_attend_values(const lai_attend *a, const float *v, int64_t n) {
    const int64_t dv = a->layer->dim_v;
    int64_t c, r, i;
    for (c = 0; c < dv; c += LAI_SPAN) {
        for (i = 0; i < LAI_MIN(LAI_SPAN, dv - c); i += 16)
            lai_attend_pack(a, v, n, c + i, a->V + i * LAI_BLOCK_KEYS);
        for (r = 0; r < a->rows; r += 6) lai_attend_tile(a, r, c);
    }
}

/* the same for few rows: 16 keys at a time, whose values stay in L1 while all rows read them */
static void lai_attend_reads(const lai_attend *a, const float *v, int64_t n) {
    const int64_t dv = a->layer->dim_v, step = a->v.step;
    int64_t r, c, j, i;
    for (r = 0; r < a->rows; ++r)
        for (c = 0; c < dv; c += 16) {
            float *O = a->O + c * LAI_BLOCK_ROWS + 16 * r;
            lai_store(O, lai_mul(lai_load(O), lai_set(a->shrink[r])));
        }
    for (j = 0; j < n; j += 16) {
        for (i = j + 16; i < j + 32 && i < n; ++i) lai_attend_prefetch(v + i * step, dv);
        for (r = 0; r < a->rows; ++r) {
            const int64_t begin = LAI_MAX(j, a->begin[r]), end = LAI_MIN(j + 16, a->end[r]);
            float weights[16];
            for (i = begin; i < end; ++i) weights[i - begin] = a->S[16 * i + r];
            for (c = 0; c < dv && begin < end; c += 16) {
                float *O = a->O + c * LAI_BLOCK_ROWS + 16 * r;
                /* a single row may have any stride */
                const lai_v sum = lai_read(v + begin * step + c, end - begin > 1 ? step : 0, dv - c,
                                           weights, end - begin);
                lai_store(O, lai_add(lai_load(O), sum));
            }
        }
    }
}

/* weights of n keys from `key` on, by what the rows see of them */
static void lai_attend_weights(const lai_attend *a, int64_t key, int64_t n) {
    const float *k = a->k.at + key * a->k.step, *v = a->v.at + key * a->v.step;
    int64_t p;
    if (a->rows <= LAI_FEW_ROWS)
        lai_attend_dots(a, k, v, n);
    else
        lai_attend_scores(a, k, v, n);
    if (a->logits.at) lai_attend_logits(a, key);
    lai_attend_mask(a);
    for (p = 0; p < a->rows; p += 16)
        if (a->layer->kind == LA_SOFTMAX)
            lai_attend_softmax(a, p);
        else
            lai_attend_sigmoid(a, p);
}

/* the block's n keys from `key` on */
static void lai_attend_block(lai_attend *a, int64_t key, int64_t n, int sinks) {
    const float *v = a->v.at + key * a->v.step;
    int64_t token = a->first / a->group, next = (token + 1) * a->group - a->first, r;
    for (r = 0; r < LAI_MIN(LAI_BLOCK_ROWS, LAI_ROUND16(a->rows + 5)); ++r) {
        lai_keys seen;
        if (r == next && r < a->rows) ++token, next += a->group;
        seen = lai_attend_keys(a, token, sinks);
        a->begin[r] = (int16_t)LAI_MIN(LAI_MAX(seen.begin - key, 0), n);
        a->end[r] = (int16_t)LAI_MIN(LAI_MAX(seen.end - key, 0), n);
    }
    if (a->layer->kind == LAI_LINEAR)
        lai_attend_given(a, key, n);
    else
        lai_attend_weights(a, key, n);
    if (a->rows <= LAI_FEW_ROWS)
        lai_attend_reads(a, v, n);
    else
        lai_attend_values(a, v, n);
}

/* g of out and 1 - g of y, for n columns; 1 - g keeps nothing of y where g is almost 1, and the
 * memory may be empty */
LAI_INLINE lai_v lai_attend_mix(const lai_attend *a, const float *beta, const float *out, lai_v y,
                                int64_t n) {
    const lai_v x = a->beta_wide ? lai_load_n(beta, n) : lai_set(beta[0]);
    const lai_v rest = lai_mul(lai_logistic16(lai_sub(lai_zero(), x)), y);
    return lai_fma(lai_logistic16(x), lai_load_n(out, n), rest);
}

static void lai_attend_finish(const lai_attend *a) {
    const int64_t dv = a->layer->dim_v;
    int64_t r, c;
    for (r = 0; r < a->rows; ++r) {
        const int64_t row = a->first + r, token = row / a->group, head = row % a->group;
        float *out = a->out + token * a->out_step + head * a->out_next, inverse = 1.0f;
        const float sum = a->sum[r];
        if (a->layer->kind == LA_SOFTMAX) inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
        for (c = 0; c < dv; c += 16) {
            const float *beta = a->beta.at ? a->beta.at + token * a->beta.step : NULL;
            lai_v y = lai_mul(lai_load(a->O + c * LAI_BLOCK_ROWS + 16 * r), lai_set(inverse));
            if (beta) y = lai_attend_mix(a, a->beta_wide ? beta + c : beta, out + c, y, dv - c);
            lai_store_n(out + c, y, dv - c);
        }
        if (a->lse)
            a->lse[token * a->lse_step + head * a->lse_next] =
                sum == 0.0f ? -HUGE_VALF : (float)((double)a->most[r] + log((double)sum));
    }
}

static void lai_run_attend(lai_attend *a) {
    const int64_t rows = LAI_MIN(LAI_ROUND16(a->rows + 5), LAI_BLOCK_ROWS); /* whole tiles, too */
    int64_t i;
    int sinks;
    lai_attend_queries(a);
    for (i = 0; i < a->layer->dim_v; i += 16)
        memset(a->O + i * LAI_BLOCK_ROWS, 0, (size_t)(16 * rows) * sizeof *a->O);
    for (i = 0; i < rows; ++i) a->most[i] = LAI_LOWEST, a->sum[i] = 0.0f, a->shrink[i] = 1.0f;
    if (a->rows <= LAI_FEW_ROWS) /* also of rows that do not exist, whose lanes nobody sets */
        memset(a->S, 0, 16 * (size_t)LAI_MIN(LAI_ROUND8(a->keys), LAI_BLOCK_KEYS) * sizeof *a->S);
    for (sinks = 1; sinks >= 0; --sinks) {
        const int64_t last = (a->first + a->rows - 1) / a->group;
        const int64_t end = lai_attend_keys(a, last, sinks).end;
        int64_t key = lai_attend_keys(a, a->first / a->group, sinks).begin;
        for (; key < end; key += LAI_BLOCK_KEYS)
            lai_attend_block(a, key, LAI_MIN(LAI_BLOCK_KEYS, end - key), sinks);
    }
    lai_attend_finish(a);
    LAI_LEAVE();
}

/* ---- Infini-attention, Synthesizer: what is beside the attention ----------------------------- */

/* n rows of what the memory says become what the values differ from it */
static void lai_infini_errors(const lai_head *h, int64_t n, float *rows) {
    int64_t t, c;
    for (t = 0; t < n; ++t, rows += h->dim_v)
        for (c = 0; c < h->dim_v; c += 16) {
            const int64_t cols = h->dim_v - c;
            const lai_v v = lai_load_n(h->v.at + t * h->v.step + c, cols);
            lai_store_n(rows + c, lai_sub(v, lai_load_n(rows + c, cols)), cols);
        }
}

/* to [n][units] = W x + b for n rows x; relu: negative numbers become 0 */
static void lai_dense_rows(lai_rows W, lai_rows b, int64_t units, lai_rows x, int64_t n,
                           int64_t width, int relu, float *to) {
    int64_t t, i, j;
    for (t = 0; t < n; ++t, to += units)
        for (i = 0; i < units; i += 4) {
            const float *rows[4];
            float y[4];
            for (j = 0; j < 4; ++j) rows[j] = W.at + LAI_MIN(i + j, units - 1) * W.step;
            lai_dot4(y, rows, x.at + t * x.step, width);
            for (j = 0; j < 4 && i + j < units; ++j) {
                const float sum = y[j] + (b.at ? b.at[i + j] : 0.0f);
                to[i + j] = relu && sum < 0.0f ? 0.0f : sum;
            }
        }
}

/* ---- element-wise recurrences ------------------------------------------------------------------
 *
 * 16 channels by one token. Of two exponentials with a common maximum one is 1, so each sum takes
 * one exponential. */

/* x where the first number is greater than the second, else y */
LAI_INLINE lai_v lai_pick(lai_v first, lai_v second, lai_v x, lai_v y) {
    return lai_add(lai_keep(x, lai_greater(first, second)),
                   lai_keep(y, lai_not_less(second, first)));
}

/* Weights of two terms whose exponents differ by d = new - old, relative to the greater one. */
LAI_INLINE void lai_two_weights(lai_v d, lai_v *old, lai_v *new_one) {
    const lai_v zero = lai_zero(), one = lai_set(1.0f);
    const lai_v e = lai_exp_low(lai_min(d, lai_sub(zero, d)), NULL, 1);
    *old = lai_pick(d, zero, e, one);
    *new_one = lai_pick(d, zero, one, e);
}

/* The maximum p takes the decay, and what its rounding leaves of that goes to the sums: a weak
 * decay is not lost beside a large key. Where the sum of weights has fallen below 1/2, the sums
 * are doubled, so that they never underflow. */
LAI_INLINE void lai_wkv_decay(lai_v w, lai_v *a, lai_v *b, lai_v *p) {
    const lai_v least = lai_set(LAI_LOWEST), fine = lai_set(LAI_FINE), zero = lai_zero();
    const lai_v gone = lai_greater(least, w); /* a decay of -inf leaves nothing */
    const lai_v low = lai_greater(lai_set(0.5f), *b);
    lai_v rest = zero;
    const lai_v sum = lai_sum_exactly(*p, lai_sub(w, lai_keep(lai_set(0.693147181f), low)), &rest);
    rest = lai_min(lai_max(rest, lai_sub(zero, fine)), fine);
    rest = lai_fma(lai_mul(rest, lai_set(0.5f)), rest, rest); /* exp(rest) - 1 */
    rest = lai_sub(rest, lai_keep(lai_add(lai_set(1.0f), rest), gone));
    *a = lai_add(*a, lai_keep(*a, low));
    *b = lai_add(*b, lai_keep(*b, low));
    *a = lai_fma(*a, rest, *a);
    *b = lai_fma(*b, rest, *b);
    *p = lai_max(least, sum);
}

LAI_INLINE void lai_wkv(lai_scan *x, int64_t t, int64_t i) {
    const int64_t n = x->channels - i;
    const lai_v k = lai_load_n(x->k.at + t * x->k.step + i, n);
    const lai_v v = lai_load_n(x->v.at + t * x->v.step + i, n);
    const lai_v w = lai_load_n(x->log_decay.at + t * x->log_decay.step + i, n);
    const lai_v bonus = lai_load_n(x->bonus + i, n);
    lai_v a = lai_load(x->state[0] + i), b = lai_load(x->state[1] + i);
    lai_v p = lai_load(x->state[2] + i), old, now, sum, weights;
    lai_two_weights(lai_add(lai_sub(k, p), bonus), &old, &now);
    sum = lai_fma(old, a, lai_mul(now, v));
    weights = lai_max(lai_set(1e-37f), lai_fma(old, b, now));
    lai_store_n(x->out + t * x->out_step + i, lai_div(sum, weights), n);
    lai_wkv_decay(w, &a, &b, &p);
    lai_two_weights(lai_sub(k, p), &old, &now);
    lai_store(x->state[0] + i, lai_fma(old, a, lai_mul(now, v)));
    lai_store(x->state[1] + i, lai_fma(old, b, now));
    lai_store(x->state[2] + i, lai_max(p, k));
}

LAI_INLINE void lai_hgrn(lai_scan *x, int64_t t, int64_t i) {
    const int64_t n = x->channels - i;
    const lai_v g = lai_load_n(x->log_decay.at + t * x->log_decay.step + i, n);
    const lai_v v = lai_load_n(x->v.at + t * x->v.step + i, n);
    lai_v s, e = lai_exp_parts(g, NULL, &s), on = lai_greater(g, lai_set(LAI_WEAK)), h;
    const lai_v gate = lai_fma(s, e, lai_add(s, lai_keep(lai_set(-1.0f), on)));
    h = lai_add(lai_decay(lai_load(x->state[0] + i), gate, on), v);
    lai_store(x->state[0] + i, h);
    lai_store_n(x->out + t * x->out_step + i, h, n);
}

static void lai_run_scan(int kind, lai_scan *x) {
    int64_t t, i;
    for (t = 0; t < x->tokens; ++t)
        for (i = 0; i < x->channels; i += 16) {
            if (kind == LA_SCAN_RWKV4)
                lai_wkv(x, t, i);
            else
                lai_hgrn(x, t, i);
        }
    LAI_LEAVE();
}
#endif

#undef LAI_LEAVE
#undef LAI_R_SET
#undef LAI_R_LOAD
#undef LAI_R_LOAD_N
#undef LAI_R_STORE
#undef LAI_R_LOAD_FOURS
#undef LAI_R_STORE_N
#undef LAI_R_ADD
#undef LAI_R_SUB
#undef LAI_R_MUL
#undef LAI_R_DIV
#undef LAI_R_FMA
#undef LAI_R_FMA1
#undef LAI_R_FNMA
#undef LAI_R_MAX
#undef LAI_R_MIN
#undef LAI_R_GREATER
#undef LAI_R_NOT_LESS
#undef LAI_R_KEEP
#undef LAI_R_PICK
#undef LAI_R_ANY
#undef LAI_FENCE
#undef LAI_FENCE_SUM
#undef LAI_LANES
#undef LAI_LANE
#undef LAI_MAP1
#undef LAI_MAP2
#undef LAI_MAP3
#undef LAI_MAP_MEMORY
#undef LAI_STORE_MEMORY
#undef LAI_FOLD
#undef LAI_ANY
#undef LAI_WHOLE
#undef LAI_LARGE
#undef LAI_ROWS4
#undef lai_r
#undef lai_lanes
#undef lai_r_times_pow2
#undef lai_r_sum4
#undef lai_r_load_n
#undef lai_r_store_n
#undef lai_v
#undef lai_make
#undef lai_add
#undef lai_sub
#undef lai_mul
#undef lai_div
#undef lai_fma
#undef lai_fnma
#undef lai_max
#undef lai_min
#undef lai_exponent
#undef lai_times_pow2
#undef lai_greater
#undef lai_not_less
#undef lai_keep
#undef lai_set
#undef lai_zero
#undef lai_load
#undef lai_load_n
#undef lai_load_fours
#undef lai_store
#undef lai_store_n
#undef lai_store_eights
#undef lai_turn4
#undef lai_sum4
#undef lai_any_greater
#undef lai_fma1
#undef lai_sum
#undef lai_exp_parts
#undef lai_exp
#undef lai_exp_low
#undef lai_decay
#undef lai_flush
#undef lai_flush_all
#undef lai_read
#undef lai_two
#undef lai_load_two
#undef lai_store_two
#undef lai_madd
#undef lai_times
#undef lai_tile6
#undef lai_tile_set
#undef lai_tile_add
#undef lai_dot4
#undef lai_dot
#undef lai_pair_row
#undef lai_sum_sets
#undef lai_pair
#undef lai_look
#undef lai_pair_passes
#undef lai_largest
#undef lai_add_square
#undef lai_square
#undef lai_identity16
#undef lai_elu16
#undef lai_sincos
#undef lai_angle
#undef lai_project
#undef lai_project_row
#undef lai_favor_relu
#undef lai_favor_exp
#undef lai_exp_row
#undef lai_cos_sin
#undef lai_affine
#undef lai_softmax
#undef lai_hedgehog
#undef lai_fourier
#undef lai_taylor
#undef lai_dpfp
#undef lai_dpfp_run
#undef lai_map_row
#undef lai_map_rows
#undef lai_map
#undef lai_map_partners
#undef lai_gate_row
#undef lai_load_z
#undef lai_load_panels
#undef lai_store_panels
#undef lai_value
#undef lai_finish
#undef lai_written
#undef lai_pair_decays
#undef lai_finish_query
#undef lai_pair_z
#undef lai_pair_narrow
#undef lai_sum_exactly
#undef lai_rows_leave
#undef lai_pair_wide_keys
#undef lai_pair_light
#undef lai_pair_products
#undef lai_pair_wide
#undef lai_pair_dplr
#undef lai_stage_pairs
#undef lai_pair_coefficients
#undef lai_pair_silent
#undef lai_may_keep
#undef lai_prepare_pair
#undef lai_pair_beta
#undef lai_pair_part
#undef lai_pair_error
#undef lai_pair_output
#undef lai_pair_looks
#undef lai_pair_before
#undef lai_pair_behind
#undef lai_pair_panels
#undef lai_dplr_output
#undef lai_pair_block
#undef lai_settle_pairs
#undef lai_layout_pairs
#undef lai_absorb_pairs
#undef lai_begin_pairs
#undef lai_end_pairs
#undef lai_run_pairs
#undef lai_read_pair
#undef lai_run_bidirectional
#undef lai_store_gate
#undef lai_stay
#undef lai_gates
#undef lai_decay_as
#undef lai_decay_row
#undef lai_decay_rows
#undef lai_decay_all
#undef lai_is_tiny
#undef lai_is_silent
#undef lai_flush_rows
#undef lai_token_row
#undef lai_token_columns
#undef lai_token_16
#undef lai_token_rows
#undef lai_columns_passes
#undef lai_rows_passes
#undef lai_token_rows_block
#undef lai_query_rows
#undef lai_read_columns
#undef lai_token_output
#undef lai_columns_output
#undef lai_query_columns
#undef lai_write_columns
#undef lai_token_kv
#undef lai_read_rows
#undef lai_token_vk
#undef lai_sweep_block
#undef lai_sweep
#undef lai_token_factors
#undef lai_begin_tokens
#undef lai_run_token
#undef lai_token_prefetch
#undef lai_run_recurrent
#undef lai_read_first
#undef lai_decay_chunk
#undef lai_open_chunk
#undef lai_chunk_gate
#undef lai_update_panels
#undef lai_close_chunk
#undef lai_forgets
#undef lai_begin_tile
#undef lai_append_keys
#undef lai_transpose_keys
#undef lai_narrow_scores
#undef lai_wide_scores
#undef lai_past_scores
#undef lai_near_scores
#undef lai_decay_stream
#undef lai_tile_factors
#undef lai_tile_read
#undef lai_tile_writes
#undef lai_tile_outputs
#undef lai_tile_panels
#undef lai_ask_tile
#undef lai_begin_chunks
#undef lai_run_chunks
#undef lai_run_form
#undef lai_attend_queries
#undef lai_attend_scores
#undef lai_attend_dots
#undef lai_attend_given
#undef lai_attend_softmax
#undef lai_attend_sigmoid
#undef lai_attend_pack
#undef lai_attend_sum
#undef lai_attend_tile
#undef lai_attend_values
#undef lai_attend_reads
#undef lai_attend_weights
#undef lai_attend_block
#undef lai_attend_finish
#undef lai_run_attend
#undef lai_logistic16
#undef lai_attend_mix
#undef lai_infini_errors
#undef lai_dense_rows
#undef lai_pick
#undef lai_two_weights
#undef lai_wkv_decay
#undef lai_wkv
#undef lai_hgrn
#undef lai_run_scan
#undef LAI_NAME

#endif /* LAI_PASS */

#ifdef LAI_IN_PLACE
#undef LAI_IN_PLACE
#undef LAI_PASS
#undef LAI_SUFFIX

/* ================================================================================================
 * [LA-8] DISPATCH
 * ============================================================================================== */

#if LAI_HAS_AVX2
/* the instruction sets of this processor that the system saves, as bits 1 << LA_ISA_.. */
static int lai_detect(void) {
    unsigned a, b, c, d, low, high;
    int found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6u) != 6u || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (b & bit_AVX2) found |= 1 << LA_ISA_AVX2;
    if (found && (low & 0xE0u) == 0xE0u && (b & bit_AVX512F) && (b & bit_AVX512VL))
        found |= 1 << LA_ISA_AVX512;
    return found;
}
static int lai_found(int isa) {
    static int cached; /* 0 unknown, else bit 0 set: every thread that finds 0 writes the same */
    int known = __atomic_load_n(&cached, __ATOMIC_RELAXED);
    if (known == 0) {
        known = 1 | lai_detect();
        __atomic_store_n(&cached, known, __ATOMIC_RELAXED);
    }
    return known >> isa & 1;
}
#else
static int lai_found(int isa) {
    (void)isa;
    return 0;
}
#endif

LA_DEF int la_isa_available(int isa) {
    return isa == LA_ISA_SCALAR || (isa == LA_ISA_NEON && LAI_HAS_NEON) ||
           ((isa == LA_ISA_AVX2 || isa == LA_ISA_AVX512) && lai_found(isa));
}

/* Calls lai_avx2_NAME ARGUMENTS, or that of another pass. */
#if LAI_HAS_AVX2
#define LAI_RUN_WIDE(isa, name, arguments)                                                         \
    if ((isa) == LA_ISA_AVX2) {                                                                    \
        lai_avx2_##name arguments;                                                                 \
        break;                                                                                     \
    }                                                                                              \
    if ((isa) == LA_ISA_AVX512) {                                                                  \
        lai_avx512_##name arguments;                                                               \
        break;                                                                                     \
    }
#elif LAI_HAS_NEON
#define LAI_RUN_WIDE(isa, name, arguments)                                                         \
    if ((isa) == LA_ISA_NEON) {                                                                    \
        lai_neon_##name arguments;                                                                 \
        break;                                                                                     \
    }
#else
#define LAI_RUN_WIDE(isa, name, arguments) (void)(isa);
#endif
#define LAI_RUN(isa, name, arguments)                                                              \
    do {                                                                                           \
        LAI_RUN_WIDE(isa, name, arguments)                                                         \
        lai_scalar_##name arguments;                                                               \
    } while (0)

static void lai_run_head(int isa, const lai_head *head) {
    LAI_RUN(isa, run_form, (head));
}

static int64_t lai_map_head(const la_layer *layer, int64_t head, int64_t others) {
    if (layer->heads == others) return head;
    return layer->head_map == LA_TILED ? head % others : head * others / layer->heads;
}

/* A view's `count` rows of one head. A tensor that is not there is one constant row, and so is one
 * of no rows, whose strides nobody has checked. */
static lai_rows lai_rows_at(const la_in *x, int64_t count, int64_t sequence, int64_t token,
                            int64_t head, const float *absent) {
    lai_rows r;
    r.at = absent;
    r.step = 0;
    if (x->data && count > 0) {
        r.at =
            x->data + sequence * x->batch_stride + token * x->token_stride + head * x->head_stride;
        r.step = x->token_stride;
    }
    return r;
}

/* the tensors of one head */
static void lai_point_head(lai_head *h, const la_layer *layer, const la_call *call,
                           int64_t sequence, int64_t head) {
    const int64_t state = head * lai_head_floats(layer),
                  k_head = lai_map_head(layer, head, layer->k_heads);
    const int many = layer->q_heads > layer->heads;
    const int64_t query = many ? head * h->queries : lai_map_head(layer, head, layer->q_heads);
    const int64_t first = call->offsets ? call->offsets[sequence] : 0; /* on the token axis */
    const int64_t b = call->offsets ? 0 : sequence;
    const int64_t from = lai_slot(call->slots_in, sequence),
                  to = lai_slot(call->slots_out, sequence);
    h->tokens = lai_tokens_of(call, sequence);
    h->keys = lai_keys_of(layer, call, sequence);
    h->q = lai_rows_at(&call->q, h->tokens, b, first, query, &lai_no_gate);
    h->k = lai_rows_at(&call->k, h->keys, b, first, k_head, &lai_no_gate);
    h->v = lai_rows_at(&call->v, h->keys, b, first, head, &lai_no_gate);
    h->log_decay = lai_rows_at(&call->log_decay, h->keys, b, first, head, &lai_no_gate);
    h->beta = lai_rows_at(&call->beta, h->keys, b, first, head, &lai_no_beta);
    h->factor = lai_rows_at(h->before ? &call->bonus : &call->erase, h->keys, b, first, head, NULL);
    h->skip = lai_rows_at(&call->skip, h->keys, b, first, head, NULL);
    h->out_gate = lai_rows_at(&call->out_gate, h->tokens, b, first, many ? query : head, NULL);
    h->a = lai_rows_at(&call->a, h->keys, b, first, head, NULL);
    h->b = lai_rows_at(&call->b, h->keys, b, first, head, NULL);
    h->out = call->out.data;
    if (h->out && h->tokens > 0)
        h->out += b * call->out.batch_stride + first * call->out.token_stride +
                  (many ? query : head) * call->out.head_stride;
    h->state_in = NULL;
    h->state_out = NULL;
    if (call->state_in && from >= 0)
        h->state_in = call->state_in + from * call->state_in_stride + state;
    if (call->state_out && to >= 0)
        h->state_out = call->state_out + to * call->state_out_stride + state;
    h->snapshot_count = call->snapshots ? call->snapshot_count : 0;
    h->snapshot_step = layer->heads * lai_head_floats(layer);
    h->snapshots = NULL;
    if (call->snapshots)
        h->snapshots = call->snapshots + sequence * h->snapshot_count * h->snapshot_step + state;
    h->projection = h->q_projection = NULL; /* other layers may have one lying about */
    if (lai_projects(layer)) {
        const float *q = layer->q_projection ? layer->q_projection : layer->projection;
        h->projection = layer->projection + head * layer->projection_head_stride;
        h->q_projection = q + head * layer->projection_head_stride;
    }
    h->position = call->positions ? call->positions[sequence] : 0;
    h->form = lai_choose_form(layer, call, h->tokens, h->state_in != NULL, h->state_out != NULL);
}

static float *lai_aligned(void *p) {
    return (float *)(void *)((char *)p + (LAI_ALIGN - (uintptr_t)p % LAI_ALIGN) % LAI_ALIGN);
}

static void lai_fill_head(lai_head *h, const la_layer *layer, const la_call *call) {
    h->layer = layer;
    h->q_next = call->q.head_stride;
    h->queries = lai_queries(layer);
    h->out_step = call->out.token_stride;
    h->out_next = call->out.head_stride;
    h->dim_k = layer->dim_k;
    h->dim_v = layer->dim_v;
    h->features = lai_features(layer);
    h->chunk = lai_choose_chunk(layer, call, call->form);
    h->scale = lai_scales_inputs(layer) ? 1.0f : layer->scale;
    h->layout = layer->state_layout;
    h->delta = layer->write == LA_WRITE_DELTA;
    h->normalised = layer->normalised;
    h->bidirectional = layer->bidirectional;
    h->dplr = layer->write == LA_WRITE_DPLR;
    h->before = layer->read == LA_READ_BEFORE;
    h->erases = h->delta && call->erase.data;
    h->gates_wide = call->log_decay.data && call->log_decay.width > 1;
    h->decay_wide = h->gates_wide || lai_by_channel(layer, call);
    h->beta_wide = call->beta.data && call->beta.width > 1;
    h->gate_next = call->out_gate.head_stride;
    h->skip_wide = call->skip.width > 1;
    h->work = lai_aligned(call->workspace);
}

/* which of so many units are thread i's */
static void lai_share(int64_t units, int64_t i, int64_t threads, int64_t *begin, int64_t *end) {
    const int64_t share = units / threads, more = units % threads;
    *begin = i * share + LAI_MIN(i, more);
    *end = *begin + share + (i < more);
}

/* the units of this thread: (sequence, head, block of columns), in order */
static void lai_run_units(const la_layer *layer, const la_call *call) {
    const int64_t blocks = lai_blocks(layer, call), panels = (layer->dim_v + 15) / 16;
    const int isa = lai_choose_isa(call->isa);
    lai_head h;
    int64_t unit, end;
    lai_fill_head(&h, layer, call);
    lai_share(call->batch * layer->heads * blocks, call->thread_index, call->thread_count, &unit,
              &end);
    for (; unit < end; ++unit) {
        const int64_t head = blocks == 1 ? unit : unit / blocks, block = unit - head * blocks;
        lai_point_head(&h, layer, call, head / layer->heads, head % layer->heads);
        if (h.keys == 0 && !h.snapshots && h.state_in == h.state_out && !lai_has_maximum(layer) &&
            !layer->bidirectional)
            continue; /* nothing to hand through */
        h.first = panels * block / blocks * 16;
        h.columns = LAI_MIN(panels * (block + 1) / blocks * 16, layer->dim_v) - h.first;
        lai_run_head(isa, &h);
    }
}

#ifdef LA_EXTRAS
/* `room` is the workspace behind what other layers have in it. */
static void lai_begin_attend(lai_attend *a, const la_attention *layer, int isa, float *room) {
    memset(a, 0, sizeof *a);
    a->layer = layer;
    a->isa = lai_choose_isa(isa);
    a->group = 1;
    a->q.at = a->k.at = &lai_no_gate;
    a->Q = room;
    a->S = a->Q + LAI_BLOCK_ROWS * layer->dim_k;
    a->V = a->S + LAI_BLOCK_ROWS * LAI_BLOCK_KEYS;
    a->O = a->V + LAI_BLOCK_KEYS * 32;
    a->most = a->O + LAI_BLOCK_ROWS * LAI_ROUND16(layer->dim_v);
    a->sum = a->most + LAI_BLOCK_ROWS;
    a->shrink = a->sum + LAI_BLOCK_ROWS;
}

/* The tensors of one head of keys and its query heads, which are `next` apart; its rows. */
static int64_t lai_point_attend(lai_attend *a, const la_attention *layer,
                                const la_attention_call *call, int64_t b, int64_t head) {
    const int tiled = layer->head_map == LA_TILED;
    const int64_t next = tiled ? layer->kv_heads : 1, tokens = lai_attention_tokens(call, b);
    const la_out *out = &call->out, *lse = &call->lse;
    int64_t query;
    a->group = layer->q_heads / layer->kv_heads;
    a->keys = lai_attention_keys(layer, call, b);
    a->position = call->positions ? call->positions[b] : a->keys - tokens;
    if (tokens == 0) return 0;
    query = tiled ? head : head * a->group;
    a->v = lai_rows_at(&call->v, a->keys, b, 0, head, &lai_no_gate);
    a->logits = lai_rows_at(&call->logits, a->keys, b, 0, query, NULL);
    if (layer->dim_k > 0) {
        a->q = lai_rows_at(&call->q, tokens, b, 0, query, &lai_no_gate);
        a->k = lai_rows_at(&call->k, a->keys, b, 0, head, &lai_no_gate);
        a->q_next = call->q.head_stride * next;
    }
    if (a->logits.at) a->logits_next = call->logits.head_stride * next;
    a->out = out->data + b * out->batch_stride + query * out->head_stride;
    a->out_step = out->token_stride;
    a->out_next = out->head_stride * next;
    if (lse->data) {
        a->lse = lse->data + b * lse->batch_stride + query * lse->head_stride;
        a->lse_step = lse->token_stride;
        a->lse_next = lse->head_stride * next;
    }
    return tokens * a->group;
}

static void lai_run_rows(lai_attend *a, int64_t first, int64_t end) {
    for (a->first = first; a->first < end; a->first += LAI_BLOCK_ROWS) {
        a->rows = LAI_MIN(end - a->first, LAI_BLOCK_ROWS);
        LAI_RUN(a->isa, run_attend, (a));
    }
}

/* the units of this thread: (sequence, head of keys, block of rows), dealt in turn, since later
 * blocks are longer */
static void lai_run_attention(const la_attention *layer, const la_attention_call *call) {
    const int64_t group = layer->q_heads / layer->kv_heads;
    const int64_t blocks = (call->tokens * group + LAI_BLOCK_ROWS - 1) / LAI_BLOCK_ROWS;
    const int64_t units = call->batch * layer->kv_heads * blocks;
    lai_attend a;
    int64_t left;
    lai_begin_attend(&a, layer, call->isa, lai_aligned(call->workspace));
    for (left = units - call->thread_index; left > 0; left -= call->thread_count) {
        const int64_t head = (units - left) / blocks,
                      first = (units - left) % blocks * LAI_BLOCK_ROWS;
        const int64_t rows =
            lai_point_attend(&a, layer, call, head / layer->kv_heads, head % layer->kv_heads);
        lai_run_rows(&a, first, LAI_MIN(first + LAI_BLOCK_ROWS, rows));
    }
}
#endif

/* ================================================================================================
 * [LA-9] PUBLIC FUNCTIONS
 * ============================================================================================== */

LA_DEF la_status la_layer_init(la_layer *layer, la_variant variant, int64_t heads, int64_t dim_k,
                               int64_t dim_v) {
    const lai_preset *preset = lai_find_preset((int)variant);
    lai_check c = {LA_OK, NULL};
    if (!layer) return LA_E_NULL;
    memset(layer, 0, sizeof *layer);
    if (!preset) return LA_E_VARIANT;
    layer->feature = preset->feature;
    layer->write = preset->write;
    layer->normalised = preset->normalised;
    layer->decay_required = preset->decay_required;
    layer->read = preset->read;
    layer->heads = layer->q_heads = layer->k_heads = heads;
    layer->dim_k = dim_k;
    layer->dim_v = dim_v;
    layer->scale = 1.0f;
    layer->l2_eps = 1e-6f;
    layer->nu = 1;
    lai_check_sizes(&c, layer);
    if (c.status == LA_OK) layer->struct_size = sizeof *layer;
    return c.status;
}

LA_DEF la_status la_call_init(la_call *call, const la_layer *layer, int64_t batch, int64_t tokens) {
    lai_check c = {LA_OK, NULL};
    if (!call) return LA_E_NULL;
    memset(call, 0, sizeof *call);
    lai_check_layer(&c, layer);
    if (c.status != LA_OK) return c.status;
    lai_check_size(&c, batch, 1, LAI_MAX_COUNT, "batch");
    lai_check_size(&c, tokens, 0, LAI_MAX_COUNT, "tokens");
    if (c.status != LA_OK) return c.status;
    call->struct_size = sizeof *call;
    call->thread_count = 1;
    call->batch = batch;
    call->tokens = call->keys = tokens;
    call->state_in_stride = call->state_out_stride = (int64_t)la_state_floats(layer);
    return LA_OK;
}

/* a packed stride; sizes that no memory holds get one that no check lets pass */
static int64_t lai_stride(int64_t rows, int64_t step) {
    const int64_t stride = lai_muladd(rows, step, 0);
    return stride < 0 ? INT64_MAX : stride;
}

LA_DEF la_in la_bthd(const float *data, int64_t tokens, int64_t heads, int64_t width) {
    la_in x;
    x.data = data;
    x.head_stride = width;
    x.token_stride = lai_stride(heads, width);
    x.batch_stride = lai_stride(tokens, x.token_stride);
    x.width = width;
    x.type = LA_F32;
    return x;
}

LA_DEF la_in la_bhtd(const float *data, int64_t tokens, int64_t heads, int64_t width) {
    la_in x = la_bthd(data, tokens, heads, width);
    x.token_stride = width;
    x.head_stride = lai_stride(tokens, width);
    return x;
}

LA_DEF la_in la_per_channel(const float *data, int64_t width) {
    la_in x = la_bthd(data, 0, 0, width);
    return x;
}

LA_DEF la_in la_per_head(const float *data) {
    return la_per_channel(data, 1);
}

static la_out lai_writable(float *data, la_in view) {
    la_out x;
    x.data = data;
    x.batch_stride = view.batch_stride;
    x.token_stride = view.token_stride;
    x.head_stride = view.head_stride;
    x.width = view.width;
    x.type = view.type;
    return x;
}

LA_DEF la_out la_bthd_out(float *data, int64_t tokens, int64_t heads, int64_t width) {
    return lai_writable(data, la_bthd(data, tokens, heads, width));
}

LA_DEF la_out la_bhtd_out(float *data, int64_t tokens, int64_t heads, int64_t width) {
    return lai_writable(data, la_bhtd(data, tokens, heads, width));
}

LA_DEF size_t la_state_floats(const la_layer *layer) {
    lai_check c = {LA_OK, NULL};
    lai_check_layer(&c, layer);
    return c.status == LA_OK ? (size_t)(layer->heads * lai_head_floats(layer)) : 0;
}

LA_DEF size_t la_workspace_size(const la_layer *layer, const la_call *call) {
    lai_check c = {LA_OK, NULL};
    lai_check_layer(&c, layer);
    if (c.status != LA_OK || !call || call->struct_size != sizeof *call) return 0;
    lai_check_options(&c, layer, call);
    return c.status == LA_OK || c.status == LA_E_DECAY ? lai_workspace_bytes(layer, call) : 0;
}

LA_DEF la_status la_check(const la_layer *layer, const la_call *call, const char **field) {
    const lai_check c = lai_check_all(layer, call, 1);
    if (field) *field = c.field;
    return c.status;
}

LA_DEF la_status la_forward(const la_layer *layer, const la_call *call) {
    const lai_check c = lai_check_all(layer, call, 1);
    if (c.status == LA_OK) lai_run_units(layer, call);
    return c.status;
}

#ifdef _OPENMP
LA_DEF la_status la_forward_openmp(const la_layer *layer, const la_call *call) {
    const lai_check c = lai_check_all(layer, call, call ? call->thread_count : 1);
    const size_t share = c.status == LA_OK ? lai_workspace_bytes(layer, call) : 0;
    int64_t i;
    if (c.status != LA_OK) return c.status;
#pragma omp parallel for schedule(static, 1) num_threads((int)call->thread_count)
    for (i = 0; i < call->thread_count; ++i) {
        la_call slice = *call;
        slice.thread_index = i;
        slice.workspace = (char *)call->workspace + (size_t)i * share;
        slice.workspace_size = share;
        lai_run_units(layer, &slice);
    }
    return LA_OK;
}
#endif

/* floats that each token brings in such a tensor, if it is there */
static double lai_row_floats(const la_in *x) {
    return x->data && x->token_stride != 0 ? (double)x->width : 0.0;
}

/* the least work and traffic of the whole call */
static void lai_plan_cost(const la_layer *layer, const la_call *call, la_plan *plan) {
    const double B = (double)call->batch, H = (double)layer->heads, dk = (double)layer->dim_k;
    const double dv = (double)layer->dim_v, r = (double)lai_features(layer);
    const double all =
        call->offsets ? (double)call->offsets[call->batch] - (double)call->offsets[0] : 0.0;
    const double queries = call->offsets ? all : B * (double)call->tokens;
    const double keys = call->offsets ? all : B * (double)call->keys;
    const double out_heads = (double)lai_out_heads(layer), q_heads = (double)layer->q_heads;
    const double states = (call->state_in != NULL) + (call->state_out != NULL);
    const double writes = layer->write == LA_WRITE_ADD     ? 2.0
                          : layer->write == LA_WRITE_DELTA ? 4.0
                                                           : 6.0; /* and what they predict by */
    plan->flops = keys * H * r * dv * writes + queries * out_heads * r * dv * 2.0;
    if (lai_projects(layer))
        plan->flops +=
            2.0 * dk * (double)layer->features * (keys + queries * (double)lai_queries(layer)) * H;
    plan->bytes =
        keys * ((double)layer->k_heads * dk + H * dv) + queries * (q_heads * dk + out_heads * dv);
    plan->bytes += keys * H * lai_row_floats(&call->log_decay);
    plan->bytes += keys * H * lai_row_floats(&call->erase);
    plan->bytes += keys * H * lai_row_floats(&call->bonus);
    plan->bytes += keys * H * (lai_row_floats(&call->a) + lai_row_floats(&call->b));
    if (call->beta.data) plan->bytes += keys * H * (double)call->beta.width;
    if (call->out_gate.data) plan->bytes += queries * out_heads * dv;
    plan->bytes += states * B * H * (double)lai_head_floats(layer);
    plan->bytes *= (double)sizeof(float);
}

LA_DEF la_status la_describe(const la_layer *layer, const la_call *call, la_plan *plan) {
    lai_check c = {LA_OK, NULL};
    if (!plan) return LA_E_NULL;
    lai_check_layer(&c, layer);
    if (LAI_CHECK_STRUCT(&c, call, "call")) lai_check_options(&c, layer, call);
    if (c.status == LA_OK && call->offsets) lai_check_sequences(&c, layer, call);
    if (c.status != LA_OK && c.status != LA_E_DECAY) /* it needs no tensors */
        return c.status;
    memset(plan, 0, sizeof *plan);
    plan->form =
        lai_choose_form(layer, call, call->tokens, call->state_in != NULL, call->state_out != NULL);
    plan->isa = lai_choose_isa(call->isa);
    plan->chunk = plan->form == LA_PARALLEL ? call->tokens
                  : call->form == LA_AUTO   ? 0
                                            : call->chunk;
    plan->kernel = "tile";
    if (layer->bidirectional || (plan->form == LA_CHUNKWISE && plan->chunk == 0)) {
        plan->chunk = layer->write == LA_WRITE_DPLR ? 1 : 2;
        plan->kernel = "pair";
    } else if (plan->form == LA_RECURRENT) {
        plan->chunk = 1;
        plan->kernel = "token";
    }
    lai_plan_cost(layer, call, plan);
    plan->workspace_size = lai_workspace_bytes(layer, call);
    plan->units = call->batch * layer->heads * lai_blocks(layer, call);
    return LA_OK;
}

static void lai_transpose(float *to, const float *from, int64_t rows, int64_t columns) {
    int64_t i, j;
    for (i = 0; i < rows; ++i)
        for (j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

LA_DEF la_status la_state_convert(const la_layer *layer, int64_t count, int from_layout,
                                  const float *from, int to_layout, float *to) {
    const int64_t floats = (int64_t)la_state_floats(layer);
    const int64_t counts[3] = {count, 1, 1};
    int64_t strides[3] = {0, 0, 0}, i;
    lai_check c = {LA_OK, NULL};
    lai_check_layer(&c, layer);
    lai_check_size(&c, count, 0, LAI_MAX_COUNT, "count");
    lai_check_choice(&c, from_layout, 2, LA_E_VALUE, "from_layout");
    lai_check_choice(&c, to_layout, 2, LA_E_VALUE, "to_layout");
    if (c.status != LA_OK) return c.status;
    strides[0] = floats;
    lai_fail(&c,
             lai_overlap(lai_span(&c, from, counts, strides, floats, "from"),
                         lai_span(&c, to, counts, strides, floats, "to")),
             LA_E_OVERLAP, "to");
    for (i = 0; c.status == LA_OK && i < count * layer->heads; ++i) {
        const int64_t size = lai_head_floats(layer), rows = lai_features(layer),
                      kv = from_layout == LA_KV;
        memcpy(to + i * size, from + i * size,
               (size_t)size * sizeof *to); /* z and the maximum too */
        if (from_layout != to_layout)
            lai_transpose(to + i * size, from + i * size, kv ? rows : layer->dim_v,
                          kv ? layer->dim_v : rows);
    }
    return c.status;
}

/* what is wrong with `count` packed states at `states` */
static lai_check lai_check_states(const la_layer *layer, int64_t count, const float *states) {
    lai_check c = {LA_OK, NULL};
    int64_t counts[3] = {0, 1, 1}, strides[3] = {0, 0, 0};
    lai_check_layer(&c, layer);
    lai_check_size(&c, count, 0, LAI_MAX_COUNT, "count");
    if (c.status != LA_OK) return c;
    counts[0] = count;
    strides[0] = layer->heads * lai_head_floats(layer);
    lai_span(&c, states, counts, strides, strides[0], "states");
    return c;
}

LA_DEF la_status la_state_reset(const la_layer *layer, int64_t count, float *states) {
    const lai_check c = lai_check_states(layer, count, states);
    if (c.status == LA_OK && count > 0)
        memset(states, 0, (size_t)count * la_state_floats(layer) * sizeof *states);
    return c.status;
}

enum { LAI_BLOB = 64 }; /* bytes before the floats */

static void lai_put(unsigned char *to, uint64_t x, int bytes) {
    for (; bytes > 0; --bytes, x >>= 8) *to++ = (unsigned char)(x & 255u);
}

/* what a blob of these states begins with */
static void lai_blob_header(const la_layer *layer, int64_t count, unsigned char header[LAI_BLOB]) {
    memset(header, 0, LAI_BLOB);
    memcpy(header, "lastate\1", 8); /* with the version of this format */
    header[8] = (unsigned char)layer->feature;
    header[9] = (unsigned char)layer->write;
    header[10] = (unsigned char)layer->normalised;
    header[11] = (unsigned char)layer->state_layout;
    header[12] = (unsigned char)lai_has_maximum(layer);
    header[14] = (unsigned char)layer->read;
    if (layer->feature == LA_FEATURE_FAVOR) header[13] = (unsigned char)layer->favor_kernel;
    if (layer->feature == LA_FEATURE_HEDGEHOG) header[13] = (unsigned char)layer->hedgehog_kernel;
    if (layer->feature == LA_FEATURE_DPFP) lai_put(header + 48, (uint64_t)layer->nu, 8);
    lai_put(header + 16, (uint64_t)layer->heads, 8);
    lai_put(header + 24, (uint64_t)lai_features(layer), 8);
    lai_put(header + 32, (uint64_t)layer->dim_v, 8);
    lai_put(header + 40, (uint64_t)count, 8);
}

LA_DEF size_t la_state_blob_size(const la_layer *layer, int64_t count) {
    const int64_t floats = (int64_t)la_state_floats(layer), all = lai_muladd(floats, count, 0);
    if (floats == 0 || all < 0 || all > PTRDIFF_MAX / 8) return 0;
    return (size_t)all * sizeof(float) + LAI_BLOB;
}

/* what is wrong with `count` packed states at `states` and their blob */
static la_status lai_check_blob(const la_layer *layer, int64_t count, const float *states,
                                const void *blob, size_t size) {
    lai_check c = lai_check_states(layer, count, states);
    const size_t least = c.status == LA_OK ? la_state_blob_size(layer, count) : 0;
    const uintptr_t at = (uintptr_t)blob, from = (uintptr_t)states;
    lai_fail(&c, least == 0, LA_E_OVERFLOW, "count");
    lai_fail(&c, !blob, LA_E_NULL, "blob");
    lai_fail(&c, size < least, LA_E_BLOB, "size");
    lai_fail(&c, at < from + (least - LAI_BLOB) && from < at + least, LA_E_OVERLAP, "blob");
    return c.status;
}

LA_DEF la_status la_state_save(const la_layer *layer, int64_t count, const float *states,
                               void *blob, size_t size) {
    const la_status status = lai_check_blob(layer, count, states, blob, size);
    unsigned char *to = (unsigned char *)blob;
    size_t i, floats;
    if (status != LA_OK) return status;
    lai_blob_header(layer, count, to);
    floats = (size_t)count * la_state_floats(layer);
    for (i = 0; i < floats; ++i) {
        uint32_t bits;
        memcpy(&bits, states + i, sizeof bits);
        lai_put(to + LAI_BLOB + 4 * i, bits, 4);
    }
    return LA_OK;
}

LA_DEF la_status la_state_load(const la_layer *layer, int64_t count, const void *blob, size_t size,
                               float *states) {
    const la_status status = lai_check_blob(layer, count, states, blob, size);
    const unsigned char *from = (const unsigned char *)blob + LAI_BLOB;
    unsigned char header[LAI_BLOB];
    size_t i, floats;
    if (status != LA_OK) return status;
    lai_blob_header(layer, count, header);
    if (memcmp(header, blob, sizeof header) != 0) return LA_E_BLOB;
    floats = (size_t)count * la_state_floats(layer);
    for (i = 0; i < floats; ++i, from += 4)
        states[i] = lai_from_bits((uint32_t)from[0] | (uint32_t)from[1] << 8 |
                                  (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24);
    return LA_OK;
}

LA_DEF la_status la_retnet_log_decay(float *log_decay, int64_t heads) {
    int64_t h;
    if (heads < 0 || heads > LAI_MAX_DIM) return LA_E_SIZE;
    if (!log_decay && heads > 0) return LA_E_NULL;
    for (h = 0; h < heads; ++h) log_decay[h] = (float)log1p(-pow(2.0, -5.0 - (double)h));
    return LA_OK;
}

LA_DEF la_status la_lightning_log_decay(float *log_decay, int64_t count, int64_t first,
                                        int64_t heads, int64_t layer, int64_t layers) {
    int64_t i, power = 1;
    if (heads < 1 || heads > LAI_MAX_DIM || first < 0 || count < 0 || first > heads - count ||
        layer < 0 || (layers > 1 && layer >= layers))
        return LA_E_SIZE;
    if (!log_decay && count > 0) return LA_E_NULL;
    while (2 * power <= heads) power *= 2;
    for (i = 0; i < count; ++i) {
        const int64_t h = first + i;
        const double exponent = h < power ? -8.0 * (double)(h + 1) / (double)power
                                          : -4.0 * (double)(2 * (h - power) + 1) / (double)power;
        const double factor = layers > 1 ? 1.0 - (double)layer / (double)(layers - 1) + 1e-5 : 1.0;
        log_decay[i] = (float)(-exp2(exponent) * factor);
    }
    return LA_OK;
}

/* ---- random numbers -------------------------------------------------------------------------- */

static double lai_uniform(uint64_t *state) { /* in (0, 1) */
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    return ((double)(x >> 11) + 0.5) / 9007199254740992.0;
}

/* n normal numbers; x null: only the length of that row. Returns the length. */
static double lai_normal_row(float *x, int64_t n, uint64_t *state) {
    double square = 0.0;
    int64_t i;
    for (i = 0; i < n; i += 2) {
        const double radius = sqrt(-2.0 * log(lai_uniform(state)));
        const double angle = 6.28318530717958648 * lai_uniform(state);
        const double a = radius * cos(angle), b = i + 1 < n ? radius * sin(angle) : 0.0;
        square += a * a + b * b;
        if (x) x[i] = (float)a;
        if (x && i + 1 < n) x[i + 1] = (float)b;
    }
    return sqrt(square);
}

/* x minus its part along each of the rows before it, of length 1; twice, which makes up for
 * rounding */
static void lai_orthogonalise(float *x, const float *rows, int64_t count, int64_t n) {
    double square = 0.0;
    int64_t i, j;
    for (i = 0; i < 2 * count; ++i) {
        const float *row = rows + i % count * n;
        double dot = 0.0;
        for (j = 0; j < n; ++j) dot += (double)row[j] * (double)x[j];
        for (j = 0; j < n; ++j) x[j] = (float)((double)x[j] - dot * (double)row[j]);
    }
    for (j = 0; j < n; ++j) square += (double)x[j] * (double)x[j];
    for (j = 0; j < n; ++j) x[j] = (float)((double)x[j] / sqrt(square));
}

LA_DEF la_status la_favor_projection(float *projection, int64_t features, int64_t dim_k, int kind,
                                     uint64_t seed) {
    uint64_t state = seed;
    int64_t i, j;
    if (features < 1 || features > LAI_MAX_DIM || dim_k < 1 || dim_k > LAI_MAX_DIM)
        return LA_E_SIZE;
    if (lai_muladd(features, dim_k, 0) > PTRDIFF_MAX / 4) return LA_E_OVERFLOW;
    if (kind < LA_GAUSSIAN || kind > LA_ORTHOGONAL_SPHERE) return LA_E_VALUE;
    if (!projection) return LA_E_NULL;
    for (i = 0; i < features; ++i) lai_normal_row(projection + i * dim_k, dim_k, &state);
    for (i = 0; kind != LA_GAUSSIAN && i < features; ++i)
        lai_orthogonalise(projection + i * dim_k, projection + (i - i % dim_k) * dim_k, i % dim_k,
                          dim_k);
    for (i = 0; kind != LA_GAUSSIAN && i < features; ++i) {
        const double length =
            kind == LA_ORTHOGONAL ? lai_normal_row(NULL, dim_k, &state) : sqrt((double)dim_k);
        for (j = 0; j < dim_k; ++j)
            projection[i * dim_k + j] = (float)(length * (double)projection[i * dim_k + j]);
    }
    return LA_OK;
}

/* ln(exp(A) softplus(a + b)), where exp and softplus may be too large and too small for any
 * number */
static double lai_log_rate(double A, double a, double b) {
    const double x = a + b, sum = A + a, part = sum - A;
    if (x < -36.0) /* softplus(x) = e^x: A + a + b with the rounding of the first sum added last */
        return (sum + b) + ((A - (sum - part)) + (a - part));
    return A + log(x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x)));
}

static double lai_logistic(double x) {
    const double e = exp(-fabs(x)); /* never overflows */
    return x < 0.0 ? e / (1.0 + e) : 1.0 / (1.0 + e);
}

/* exp(A) may be infinite, but then it multiplies no x that is not at least 1e-45 or 0 */
static double lai_kda_gate(double A, double a, double b, double bound) {
    const double x = a + b;
    if (bound == 0.0) return -exp(lai_log_rate(A, a, b));
    return bound * lai_logistic(x == 0.0 ? x : exp(A) * x);
}

LA_DEF la_status la_kda_log_decay(float *log_decay, const float *a, const float *A_log,
                                  const float *dt_bias, float lower_bound, int64_t rows,
                                  int64_t heads, int64_t dim_k) {
    const double bound = (double)lower_bound;
    int64_t i, j;
    if (rows < 0 || rows > LAI_MAX_COUNT || heads < 0 || heads > LAI_MAX_DIM || dim_k < 0 ||
        dim_k > LAI_MAX_DIM)
        return LA_E_SIZE;
    if (!lai_is_finite(bound) || bound > 0.0) return LA_E_VALUE;
    if (rows == 0 || heads == 0 || dim_k == 0) return LA_OK;
    if (!log_decay || !a || !A_log || !dt_bias) return LA_E_NULL;
    for (i = 0; i < rows; ++i, log_decay += heads * dim_k, a += heads * dim_k)
        for (j = 0; j < heads * dim_k; ++j)
            log_decay[j] = (float)lai_kda_gate((double)A_log[j / dim_k], (double)a[j],
                                               (double)dt_bias[j], bound);
    return LA_OK;
}

LA_DEF la_status la_gate_log_decay(float *log_decay, const float *a, const float *A_log,
                                   const float *dt_bias, int64_t rows, int64_t heads) {
    return la_kda_log_decay(log_decay, a, A_log, dt_bias, 0.0f, rows, heads, 1);
}

LA_DEF la_status la_mamba2_gates(float *dt, float *log_decay, const float *a, const float *A_log,
                                 const float *dt_bias, float dt_min, float dt_max, int64_t rows,
                                 int64_t heads) {
    int64_t i, h;
    if (rows < 0 || rows > LAI_MAX_COUNT || heads < 0 || heads > LAI_MAX_DIM) return LA_E_SIZE;
    if (!lai_is_finite((double)dt_min) || dt_min < 0.0f || !(dt_max == 0.0f || dt_max >= dt_min))
        return LA_E_VALUE;
    if (rows == 0 || heads == 0) return LA_OK;
    if (!dt || !log_decay || !a || !A_log || !dt_bias) return LA_E_NULL;
    if (dt == log_decay) return LA_E_OVERLAP;
    for (i = 0; i < rows; ++i)
        for (h = 0; h < heads; ++h) {
            const int64_t at = i * heads + h;
            const double A = (double)A_log[h], x = (double)a[at], b = (double)dt_bias[h];
            const double step = exp(lai_log_rate(0.0, x, b));
            double limit = 0.0; /* where it is one */
            if (step < (double)dt_min) limit = (double)dt_min;
            if (dt_max > 0.0f && step > (double)dt_max) limit = (double)dt_max;
            dt[at] = (float)(limit > 0.0 ? limit : step);
            log_decay[at] = -(float)exp(limit > 0.0 ? A + log(limit) : lai_log_rate(A, x, b));
        }
    return LA_OK;
}

LA_DEF la_status la_rwkv_log_decay(float *log_decay, const float *w, int64_t count) {
    int64_t i;
    if (count < 0 || count > LAI_MAX_COUNT) return LA_E_SIZE;
    if (count > 0 && (!log_decay || !w)) return LA_E_NULL;
    for (i = 0; i < count; ++i) log_decay[i] = -(float)exp((double)w[i]);
    return LA_OK;
}

LA_DEF la_status la_sigmoid(float *y, const float *x, int64_t count) {
    int64_t i;
    if (count < 0 || count > LAI_MAX_COUNT) return LA_E_SIZE;
    if (count > 0 && (!x || !y)) return LA_E_NULL;
    for (i = 0; i < count; ++i) y[i] = (float)lai_logistic((double)x[i]);
    return LA_OK;
}

LA_DEF const char *la_status_text(la_status status) {
    size_t i;
    for (i = 0; i < sizeof lai_texts / sizeof *lai_texts; ++i)
        if (lai_texts[i].status == status) return lai_texts[i].text;
    return "unknown status";
}

LA_DEF const char *la_variant_name(la_variant variant) {
    const lai_preset *preset = lai_find_preset((int)variant);
    return preset ? preset->name : NULL;
}

LA_DEF la_status la_variant_find(const char *name, la_variant *variant) {
    int i;
    if (!name || !variant) return LA_E_NULL;
    for (i = 0; i < LAI_PRESETS; ++i)
        if (strcmp(name, lai_presets[i].name) == 0) {
            *variant = (la_variant)(i + 1);
            return LA_OK;
        }
    return LA_E_VARIANT;
}

LA_DEF const char *la_isa_name(int isa) {
    static const char *const names[] = {"auto", "scalar", "avx2", "avx512", "neon"};
    return isa >= 0 && isa < 5 ? names[isa] : NULL;
}

#ifdef LA_EXTRAS
LA_DEF la_status la_attention_init(la_attention *layer, int kind, int64_t heads, int64_t dim_k,
                                   int64_t dim_v) {
    lai_check c = {LA_OK, NULL};
    if (!layer) return LA_E_NULL;
    memset(layer, 0, sizeof *layer);
    layer->struct_size = sizeof *layer;
    layer->kind = kind;
    layer->q_heads = layer->kv_heads = heads;
    layer->dim_k = dim_k;
    layer->dim_v = dim_v;
    layer->scale = dim_k > 0 ? (float)(1.0 / sqrt((double)dim_k)) : 1.0f;
    lai_check_attention(&c, layer);
    if (c.status != LA_OK) layer->struct_size = 0;
    return c.status;
}

/* what does not need the tensors */
static void lai_check_attention_sizes(lai_check *c, const la_attention *layer,
                                      const la_attention_call *call) {
    lai_check_attention(c, layer);
    if (c->status == LA_OK) lai_check_attention_call(c, layer, call);
}

LA_DEF la_status la_attention_call_init(la_attention_call *call, const la_attention *layer,
                                        int64_t batch, int64_t tokens) {
    lai_check c = {LA_OK, NULL};
    if (!call) return LA_E_NULL;
    memset(call, 0, sizeof *call);
    call->struct_size = sizeof *call;
    call->thread_count = 1;
    call->batch = batch;
    call->tokens = call->keys = tokens;
    lai_check_attention_sizes(&c, layer, call);
    if (c.status != LA_OK) call->struct_size = 0;
    return c.status;
}

LA_DEF size_t la_attention_workspace_size(const la_attention *layer,
                                          const la_attention_call *call) {
    lai_check c = {LA_OK, NULL};
    lai_check_attention_sizes(&c, layer, call);
    return c.status == LA_OK ? lai_attention_bytes(layer->dim_k, layer->dim_v, 0) : 0;
}

LA_DEF la_status la_attention_check(const la_attention *layer, const la_attention_call *call,
                                    const char **field) {
    lai_check c = {LA_OK, NULL};
    lai_range in[LAI_INPUTS];
    memset(in, 0, sizeof in);
    lai_check_attention_sizes(&c, layer, call);
    if (c.status == LA_OK) {
        lai_fail(&c, layer->dim_k == 0 && call->keys > 0 && call->tokens > 0 && !call->logits.data,
                 LA_E_NULL, "logits");
        lai_check_attention_tensors(&c, layer, call, in,
                                    lai_attention_bytes(layer->dim_k, layer->dim_v, 0));
    }
    if (field) *field = c.field;
    return c.status;
}

LA_DEF la_status la_attention_forward(const la_attention *layer, const la_attention_call *call) {
    const la_status status = la_attention_check(layer, call, NULL);
    if (status == LA_OK) lai_run_attention(layer, call);
    return status;
}

/* packed rows of `width` */
static lai_range lai_check_packed(lai_check *c, const float *x, int64_t rows, int64_t width,
                                  const char *field) {
    const int64_t counts[3] = {rows, 1, 1};
    int64_t strides[3] = {0, 0, 0};
    strides[0] = width;
    return lai_span(c, x, counts, strides, width, field);
}

LA_DEF la_status la_attention_merge(float *out, float *lse, const float *more_out,
                                    const float *more_lse, int64_t rows, int64_t dim_v) {
    static const char *const names[2] = {"out", "lse"};
    lai_check c = {LA_OK, NULL};
    lai_range in[LAI_INPUTS], to[2];
    int64_t i, j;
    lai_check_size(&c, rows, 0, LAI_MAX_COUNT, "rows");
    lai_check_size(&c, dim_v, 1, LAI_MAX_DIM, "dim_v");
    if (c.status != LA_OK) return c.status;
    memset(in, 0, sizeof in);
    to[0] = lai_check_packed(&c, out, rows, dim_v, "out");
    to[1] = lai_check_packed(&c, lse, rows, 1, "lse");
    in[0] = lai_check_packed(&c, more_out, rows, dim_v, "more_out");
    in[1] = lai_check_packed(&c, more_lse, rows, 1, "more_lse");
    lai_check_apart(&c, in, to, 2, -1, names);
    for (i = 0; c.status == LA_OK && i < rows; ++i) {
        const double a = (double)lse[i], b = (double)more_lse[i], most = a > b ? a : b;
        const double low = (double)LAI_LOWEST, base = most < low ? low : most;
        const double p = exp(a - base), q = exp(b - base), sum = p + q;
        for (j = 0; j < dim_v; ++j) {
            const double x0 = (double)out[i * dim_v + j], x1 = (double)more_out[i * dim_v + j];
            out[i * dim_v + j] = sum == 0.0 ? 0.0f : (float)fma(p / sum, x0, q / sum * x1);
        }
        lse[i] = sum == 0.0 ? -HUGE_VALF : (float)(base + log(sum));
    }
    return c.status;
}

static int lai_has_cache(const la_attention *layer, int64_t n) {
    return layer && n >= 0 && layer->window >= 0 && layer->sinks >= 0 &&
           layer->window <= LAI_MAX_COUNT && layer->sinks <= LAI_MAX_COUNT;
}

LA_DEF int64_t la_attention_slot(const la_attention *layer, int64_t position) {
    if (!lai_has_cache(layer, position)) return -1;
    if (!layer->window || position < layer->sinks) return position;
    return layer->sinks + (position - layer->sinks) % layer->window;
}

LA_DEF int64_t la_attention_slots(const la_attention *layer, int64_t tokens) {
    if (!lai_has_cache(layer, tokens)) return -1;
    return layer->window ? LAI_MIN(tokens, layer->sinks + layer->window) : tokens;
}

/* ---- extras: Infini-attention ---------------------------------------------------------------- */

LA_DEF la_in la_matrix(const float *data, int64_t width) {
    la_in x = la_bthd(data, 0, 1, width);
    x.head_stride = 0;
    return x;
}

LA_DEF la_status la_infini_init(la_infini *infini, int64_t heads, int64_t dim_k, int64_t dim_v,
                                int64_t segment) {
    la_status status;
    if (!infini) return LA_E_NULL;
    memset(infini, 0, sizeof *infini);
    status = la_layer_init(&infini->memory, LA_ELU, heads, dim_k, dim_v);
    if (status != LA_OK) return status;
    if (segment < 1 || segment > LAI_MAX_COUNT) return LA_E_SIZE;
    infini->struct_size = sizeof *infini;
    infini->segment = segment;
    infini->scale = (float)(1.0 / sqrt((double)dim_k));
    return LA_OK;
}

static void lai_check_infini(lai_check *c, const la_infini *x, const la_call *call) {
    const la_layer *m = x ? &x->memory : NULL;
    if (!LAI_CHECK_STRUCT(c, x, "infini")) return;
    lai_check_layer(c, m);
    lai_fail(c, !LAI_HAS_CHUNKS, LA_E_UNSUPPORTED, "memory");
    lai_fail(c, m->feature != LA_FEATURE_ELU1 || m->write != LA_WRITE_ADD, LA_E_VARIANT, "memory");
    lai_fail(c, !m->normalised || m->bidirectional, LA_E_VARIANT, "memory");
    lai_check_size(c, x->segment, 1, LAI_MAX_COUNT, "segment");
    lai_check_choice(c, x->write, 2, LA_E_VARIANT, "write");
    lai_check_choice(c, x->bidirectional, 2, LA_E_VALUE, "bidirectional");
    lai_check_number(c, x->scale, 1, "scale");
    if (!LAI_CHECK_STRUCT(c, call, "call")) return;
    lai_check_options(c, m, call);
    lai_fail(c, call->form != LA_AUTO, LA_E_FORM, "form");
    lai_fail(c, call->log_decay.data != NULL, LA_E_UNSUPPORTED, "log_decay");
    lai_fail(c, call->skip.data != NULL, LA_E_UNSUPPORTED, "skip");
    lai_fail(c, call->out_gate.data != NULL, LA_E_UNSUPPORTED, "out_gate");
}

/* What a unit works on. q, k, v, out and beta of `memory` stand at the segment's first token. */
typedef struct lai_infini {
    lai_head memory;
    lai_attend local;  /* within the segment */
    const float *from; /* the memory's state, and where it is after the segment */
    float *to;
    float *errors; /* [segment][dv], of LA_WRITE_DELTA */
} lai_infini;

/* The workspace is that of the memory's engine, errors, a state, and the attention's. */
static int64_t lai_infini_errors_end(const la_infini *x, const la_call *call) {
    const int64_t tokens = x->write == LA_WRITE_DELTA ? LAI_MIN(x->segment, call->tokens) : 0;
    return lai_muladd(tokens, x->memory.dim_v, lai_form_floats(&x->memory, call, LA_CHUNKWISE));
}
static size_t lai_infini_bytes(const la_infini *x, const la_call *call) {
    return lai_attention_bytes(
        x->memory.dim_k, x->memory.dim_v,
        lai_muladd(1, lai_head_floats(&x->memory), lai_infini_errors_end(x, call)));
}

LA_DEF size_t la_infini_workspace_size(const la_infini *x, const la_call *call) {
    lai_check c = {LA_OK, NULL};
    lai_check_infini(&c, x, call);
    return c.status == LA_OK ? lai_infini_bytes(x, call) : 0;
}

LA_DEF la_status la_infini_check(const la_infini *infini, const la_call *call, const char **field) {
    lai_check c = {LA_OK, NULL};
    lai_range in[LAI_INPUTS], out[LAI_OUTPUTS];
    lai_check_infini(&c, infini, call);
    if (c.status == LA_OK) lai_check_sequences(&c, &infini->memory, call);
    if (c.status == LA_OK) lai_check_tensors(&c, &infini->memory, call, in, out);
    if (c.status == LA_OK && !lai_fail(&c, !call->beta.data, LA_E_NULL, "beta"))
        lai_check_room(&c, call, lai_infini_bytes(infini, call), 1, in, out);
    if (field) *field = c.field;
    return c.status;
}

/* n tokens: what the memory so far says of the queries, mixed with the attention among them; then
 * their keys and values, or what these differ from what it says of the keys, are written to it */
static void lai_infini_segment(lai_infini *x, int64_t n, int write) {
    lai_head h = x->memory;
    lai_attend *local = &x->local;
    h.tokens = n;
    h.keys = 0;
    h.state_in = x->from;
    h.state_out = NULL;
    lai_run_head(local->isa, &h);
    local->q = h.q, local->k = h.k, local->v = h.v, local->beta = h.beta, local->out = h.out;
    local->keys = n;
    lai_run_rows(local, 0, n * h.queries);
    if (write == LA_WRITE_DELTA) {
        h.q = h.k;
        h.queries = 1;
        h.out = x->errors;
        h.out_step = h.dim_v;
        lai_run_head(local->isa, &h);
        LAI_RUN(local->isa, infini_errors, (&h, n, x->errors));
        h.v.at = x->errors;
        h.v.step = h.dim_v;
    }
    h.beta.at = &lai_no_beta;
    h.beta.step = h.beta_wide = 0;
    h.tokens = 0;
    h.keys = n;
    h.state_out = x->to;
    lai_run_head(local->isa, &h);
    x->from = x->to;
}

/* one head of one sequence; with no tokens the state is handed through */
static void lai_infini_head(lai_infini *x, const la_infini *layer) {
    lai_head *h = &x->memory;
    const int64_t segment = layer->segment;
    int64_t left = h->tokens;
    for (; left > segment; left -= segment) { /* behind the last row there is no address */
        lai_infini_segment(x, segment, layer->write);
        h->q.at += segment * h->q.step;
        h->k.at += segment * h->k.step;
        h->v.at += segment * h->v.step;
        h->beta.at += segment * h->beta.step;
        h->out += segment * h->out_step;
    }
    lai_infini_segment(x, left, layer->write);
}

LA_DEF la_status la_infini_forward(const la_infini *infini, const la_call *call) {
    const la_status status = la_infini_check(infini, call, NULL);
    const la_layer *m = status == LA_OK ? &infini->memory : NULL;
    la_attention attention;
    float *state;
    int64_t unit, end;
    lai_infini x;
    if (status != LA_OK) return status;
    lai_fill_head(&x.memory, m, call);
    x.memory.bidirectional = 1;
    x.memory.first = 0;
    x.memory.columns = m->dim_v;
    x.errors = x.memory.work + lai_form_floats(m, call, LA_CHUNKWISE);
    state = x.memory.work + lai_infini_errors_end(infini, call);
    la_attention_init(&attention, LA_SOFTMAX, 1, m->dim_k, m->dim_v);
    attention.bidirectional = infini->bidirectional;
    attention.scale = infini->scale;
    lai_begin_attend(&x.local, &attention, call->isa, state + lai_head_floats(m));
    x.local.group = x.memory.queries;
    x.local.q_next = x.memory.q_next;
    x.local.out_step = x.memory.out_step;
    x.local.out_next = x.memory.out_next;
    x.local.beta_wide = x.memory.beta_wide;
    lai_share(call->batch * m->heads, call->thread_index, call->thread_count, &unit, &end);
    for (; unit < end; ++unit) {
        lai_point_head(&x.memory, m, call, unit / m->heads, unit % m->heads);
        x.from = x.memory.state_in;
        x.to = x.memory.state_out ? x.memory.state_out : state;
        lai_infini_head(&x, infini);
    }
    return LA_OK;
}

/* ---- extras: Linformer ----------------------------------------------------------------------- */

static void lai_check_linformer_sizes(lai_check *c, const la_linformer *x) {
    lai_check_attention(c, &x->attention);
    lai_fail(c, !x->attention.bidirectional, LA_E_DIRECTION, "bidirectional");
    lai_fail(c, x->attention.kind != LA_SOFTMAX, LA_E_VARIANT, "kind");
    lai_fail(c, x->attention.window != 0, LA_E_UNSUPPORTED, "window");
    lai_check_size(c, x->attention.dim_k, 1, LAI_MAX_DIM, "dim_k");
    lai_check_size(c, x->length, 1, LAI_MAX_COUNT, "length");
    lai_check_size(c, x->rank, 1, LAI_MAX_DIM, "rank");
}

LA_DEF la_status la_linformer_init(la_linformer *x, int64_t heads, int64_t dim_k, int64_t dim_v,
                                   int64_t length, int64_t rank) {
    lai_check c = {LA_OK, NULL};
    if (!x) return LA_E_NULL;
    memset(x, 0, sizeof *x);
    c.status = la_attention_init(&x->attention, LA_SOFTMAX, heads, dim_k, dim_v);
    x->attention.bidirectional = 1;
    x->length = length;
    x->rank = rank;
    lai_check_linformer_sizes(&c, x);
    if (c.status == LA_OK) x->struct_size = sizeof *x;
    return c.status;
}

/* what the layers that are built on attention leave out of its calls */
static void lai_check_plain_call(lai_check *c, const la_attention *layer,
                                 const la_attention_call *call) {
    lai_check_attention_call(c, layer, call);
    if (c->status != LA_OK) return;
    lai_fail(c, call->logits.data != NULL, LA_E_UNSUPPORTED, "logits");
    lai_fail(c, call->positions != NULL, LA_E_UNSUPPORTED, "positions");
}

static void lai_check_linformer(lai_check *c, const la_linformer *x,
                                const la_attention_call *call) {
    if (!LAI_CHECK_STRUCT(c, x, "linformer")) return;
    lai_check_linformer_sizes(c, x);
    if (c->status == LA_OK) lai_check_plain_call(c, &x->attention, call);
    if (c->status == LA_OK) lai_check_size(c, call->keys, 0, x->length, "keys");
}

/* K' and V' are in front of the attention's workspace, which first makes them, too. */
static int64_t lai_linformer_floats(const la_linformer *x) {
    return LAI_ROUND16(x->rank * (x->attention.dim_k + x->attention.dim_v));
}
static size_t lai_linformer_bytes(const la_linformer *x) {
    return lai_attention_bytes(x->attention.dim_k, x->attention.dim_v, lai_linformer_floats(x));
}

LA_DEF size_t la_linformer_workspace_size(const la_linformer *x, const la_attention_call *call) {
    lai_check c = {LA_OK, NULL};
    lai_check_linformer(&c, x, call);
    return c.status == LA_OK ? lai_linformer_bytes(x) : 0;
}

LA_DEF la_status la_linformer_check(const la_linformer *x, const la_attention_call *call,
                                    const char **field) {
    static const lai_names names[2] = {LAI_NAMES(E), LAI_NAMES(F)};
    lai_check c = {LA_OK, NULL};
    lai_range in[LAI_INPUTS];
    memset(in, 0, sizeof in);
    lai_check_linformer(&c, x, call);
    if (c.status == LA_OK) {
        const int64_t n = call->keys, heads = x->attention.kv_heads, k = x->rank;
        in[7] = lai_check_in(&c, &x->E, 1, n, heads, k, k, names[0]);
        if (x->F.data) in[8] = lai_check_in(&c, &x->F, 1, n, heads, k, k, names[1]);
        lai_check_attention_tensors(&c, &x->attention, call, in, lai_linformer_bytes(x));
    }
    if (field) *field = c.field;
    return c.status;
}

/* to [rank][width] = E^T x, for so many keys: attention whose weights are E's numbers */
static void lai_compress(const la_linformer *linformer, int isa, lai_rows E, lai_rows x,
                         int64_t keys, int64_t width, float *to, float *room) {
    la_attention linear;
    lai_attend a;
    memset(&linear, 0, sizeof linear);
    linear.kind = LAI_LINEAR;
    linear.bidirectional = 1;
    linear.dim_v = width;
    lai_begin_attend(&a, &linear, isa, room);
    a.logits = E;
    a.v = x;
    a.keys = keys;
    a.out = to;
    a.out_step = width;
    lai_run_rows(&a, 0, linformer->rank);
}

/* one head of keys and values of one sequence, and the query heads that read it */
static void lai_linformer_head(const la_linformer *x, const la_attention_call *call, int64_t b,
                               int64_t head) {
    const la_attention *l = &x->attention;
    const int64_t S = lai_attention_keys(l, call, b), dk = l->dim_k, dv = l->dim_v;
    const lai_rows E = lai_rows_at(&x->E, S, 0, 0, head, NULL);
    const lai_rows F = x->F.data ? lai_rows_at(&x->F, S, 0, 0, head, NULL) : E;
    float *k = lai_aligned(call->workspace), *v = k + x->rank * dk;
    float *room = k + lai_linformer_floats(x);
    lai_attend a;
    int64_t rows;
    lai_begin_attend(&a, l, call->isa, room);
    rows = lai_point_attend(&a, l, call, b, head);
    if (rows == 0) return;
    lai_compress(x, call->isa, E, a.k, S, dk, k, room);
    lai_compress(x, call->isa, F, a.v, S, dv, v, room);
    a.k.at = k;
    a.k.step = dk;
    a.v.at = v;
    a.v.step = dv;
    a.keys = x->rank;
    lai_run_rows(&a, 0, rows);
}

LA_DEF la_status la_linformer_forward(const la_linformer *x, const la_attention_call *call) {
    const la_status status = la_linformer_check(x, call, NULL);
    int64_t unit, end, heads;
    if (status != LA_OK) return status;
    heads = x->attention.kv_heads;
    lai_share(call->batch * heads, call->thread_index, call->thread_count, &unit, &end);
    for (; unit < end; ++unit) lai_linformer_head(x, call, unit / heads, unit % heads);
    return LA_OK;
}

/* ---- extras: Synthesizer --------------------------------------------------------------------- */

static int lai_has_input(int kind) { /* do its logits depend on x? */
    return kind == LA_DENSE || kind == LA_FACTORISED_DENSE;
}

static void lai_check_synthesizer_sizes(lai_check *c, const la_synthesizer *x) {
    const int64_t least = lai_has_input(x->kind), factors = x->kind != LA_RANDOM;
    const int64_t wide = x->kind == LA_FACTORISED_DENSE;
    lai_check_choice(c, x->kind, 4, LA_E_VARIANT, "kind");
    lai_check_attention(c, &x->attention);
    lai_check_size(c, x->attention.dim_k, least, least ? LAI_MAX_DIM : 0, "dim_k");
    lai_fail(c, x->attention.kv_heads != x->attention.q_heads, LA_E_HEADS, "kv_heads");
    lai_check_size(c, x->length, 1, LAI_MAX_DIM, "length");
    lai_check_size(c, x->rank1, factors, factors ? LAI_MAX_DIM : 0, "rank1");
    lai_check_size(c, x->rank2, wide, wide ? LAI_MAX_DIM : 0, "rank2");
}

LA_DEF la_status la_synthesizer_init(la_synthesizer *x, int kind, int64_t heads, int64_t dim_x,
                                     int64_t dim_v, int64_t length, int64_t rank1, int64_t rank2) {
    lai_check c = {LA_OK, NULL};
    if (!x) return LA_E_NULL;
    memset(x, 0, sizeof *x);
    c.status = la_attention_init(&x->attention, LA_SOFTMAX, heads, dim_x, dim_v);
    x->attention.bidirectional = 1;
    x->attention.scale = 1.0f;
    x->kind = kind;
    x->length = length;
    x->rank1 = rank1;
    x->rank2 = rank2;
    lai_check_synthesizer_sizes(&c, x);
    if (c.status == LA_OK) x->struct_size = sizeof *x;
    return c.status;
}

static void lai_check_synthesizer(lai_check *c, const la_synthesizer *x,
                                  const la_attention_call *call) {
    if (!LAI_CHECK_STRUCT(c, x, "synthesizer")) return;
    lai_check_synthesizer_sizes(c, x);
    if (c->status == LA_OK) lai_check_plain_call(c, &x->attention, call);
    if (c->status != LA_OK) return;
    lai_fail(c, call->key_lengths != NULL, LA_E_UNSUPPORTED, "key_lengths");
    lai_check_size(c, call->keys, call->tokens, x->length, "keys");
}

/* the width of the attention's own queries and keys, of which logits are products */
static int64_t lai_synthesizer_width(const la_synthesizer *x) {
    return x->kind == LA_DENSE || x->kind == LA_FACTORISED_RANDOM ? x->rank1 : 0;
}

/* what is made of a block of x is in front of the attention's workspace */
static int64_t lai_synthesizer_floats(const la_synthesizer *x, const la_attention_call *call) {
    const int64_t more = x->kind == LA_FACTORISED_DENSE ? x->rank2 + call->keys : 0;
    return lai_has_input(x->kind) ? LAI_BLOCK_ROWS * (x->rank1 + more) : 0;
}
static size_t lai_synthesizer_bytes(const la_synthesizer *x, const la_attention_call *call) {
    return lai_attention_bytes(lai_synthesizer_width(x), x->attention.dim_v,
                               lai_synthesizer_floats(x, call));
}

/* what logits are made of */
static void lai_check_weights(lai_check *c, const la_synthesizer *x, const la_attention_call *call,
                              lai_range in[5]) {
    static const lai_names names[5] = {LAI_NAMES(w1), LAI_NAMES(w2), LAI_NAMES(b1), LAI_NAMES(b2),
                                       LAI_NAMES(q)};
    const int64_t H = x->attention.q_heads, L = x->length, dx = x->attention.dim_k;
    const int64_t r1 = x->rank1, r2 = x->kind == LA_FACTORISED_DENSE ? x->rank2 : L;
    const int input = lai_has_input(x->kind);
    const int64_t width1 = input ? dx : x->kind == LA_RANDOM ? L : r1;
    const int64_t width2 = x->kind == LA_FACTORISED_DENSE ? dx : r1;
    in[0] = lai_check_in(c, &x->w1, 1, input ? r1 : L, H, width1, width1, names[0]);
    if (x->kind != LA_RANDOM) in[1] = lai_check_in(c, &x->w2, 1, r2, H, width2, width2, names[1]);
    if (!input) return;
    if (x->b1.data) in[2] = lai_check_in(c, &x->b1, 1, 1, H, r1, r1, names[2]);
    if (x->b2.data) in[3] = lai_check_in(c, &x->b2, 1, 1, H, r2, r2, names[3]);
    in[4] = lai_check_in(c, &call->q, call->batch, call->tokens, H, dx, dx, names[4]);
}

LA_DEF size_t la_synthesizer_workspace_size(const la_synthesizer *x,
                                            const la_attention_call *call) {
    lai_check c = {LA_OK, NULL};
    lai_check_synthesizer(&c, x, call);
    return c.status == LA_OK ? lai_synthesizer_bytes(x, call) : 0;
}

LA_DEF la_status la_synthesizer_check(const la_synthesizer *x, const la_attention_call *call,
                                      const char **field) {
    lai_check c = {LA_OK, NULL};
    lai_range in[LAI_INPUTS];
    memset(in, 0, sizeof in);
    lai_check_synthesizer(&c, x, call);
    if (c.status == LA_OK) {
        la_attention a = x->attention;
        a.dim_k = 0; /* x is among the weights */
        lai_check_weights(&c, x, call, in + 7);
        lai_check_attention_tensors(&c, &a, call, in, lai_synthesizer_bytes(x, call));
    }
    if (field) *field = c.field;
    return c.status;
}

/* a matrix or bias of one head; at = null: there is none */
static lai_rows lai_weights_of(const la_in *x, int64_t head) {
    return lai_rows_at(x, 1, 0, 0, head, NULL);
}

/* logits that are products of what two layers make of the n rows: room [192][a], [192][b],
 * [192][S] */
static void lai_multiply_factors(const la_synthesizer *x, int64_t head, lai_rows rows, int64_t n,
                                 lai_attend *attend, float *room) {
    const int64_t a = x->rank1, b = x->rank2, S = attend->keys;
    float *second = room + LAI_BLOCK_ROWS * a, *logits = second + LAI_BLOCK_ROWS * b;
    int64_t t, s, i, j; /* i = s mod a, j = s mod b */
    LAI_RUN(attend->isa, dense_rows,
            (lai_weights_of(&x->w2, head), lai_weights_of(&x->b2, head), b, rows, n,
             x->attention.dim_k, 0, second));
    for (t = 0; t < n; ++t)
        for (s = i = j = 0; s < S; ++s) {
            logits[t * S + s] = room[t * a + i] * second[t * b + j];
            if (++i == a) i = 0;
            if (++j == b) j = 0;
        }
    attend->logits.at = logits;
    attend->logits.step = S;
}

/* the queries, keys and logits of n rows of x */
static void lai_synthesize(const la_synthesizer *x, int64_t head, lai_rows rows, int64_t n,
                           lai_attend *a, float *room) {
    const lai_rows w1 = lai_weights_of(&x->w1, head);
    if (a->layer->dim_k > 0) a->k = lai_weights_of(&x->w2, head);
    if (lai_has_input(x->kind)) {
        LAI_RUN(a->isa, dense_rows,
                (w1, lai_weights_of(&x->b1, head), x->rank1, rows, n, x->attention.dim_k,
                 x->kind == LA_DENSE, room));
        a->q.at = room;
        a->q.step = x->rank1;
        a->logits.at = lai_weights_of(&x->b2, head).at; /* the same for each token */
    } else {
        a->q.at = w1.at + a->position * w1.step;
        a->q.step = w1.step;
    }
    if (x->kind == LA_RANDOM) a->logits = a->q;
    if (x->kind == LA_FACTORISED_DENSE) lai_multiply_factors(x, head, rows, n, a, room);
}

static void lai_synthesizer_head(const la_synthesizer *x, const la_attention_call *call, int64_t b,
                                 int64_t head) {
    const int64_t tokens = lai_attention_tokens(call, b);
    float *room = lai_aligned(call->workspace);
    la_attention layer = x->attention;
    la_attention_call plain = *call;
    float *out, *lse;
    lai_attend a;
    int64_t t, n;
    layer.scale = 1.0f;
    layer.dim_k = lai_synthesizer_width(x);
    plain.q = plain.k = la_matrix(NULL, 0);
    lai_begin_attend(&a, &layer, call->isa, room + lai_synthesizer_floats(x, call));
    lai_point_attend(&a, &layer, &plain, b, head);
    a.keys = call->keys - (call->tokens - tokens); /* padding is missing from both */
    a.position = a.keys - tokens;
    out = a.out;
    lse = a.lse;
    for (t = 0; t < tokens; t += n) {
        const lai_rows rows = lai_rows_at(&call->q, lai_has_input(x->kind), b, t, head, NULL);
        n = LAI_MIN(tokens - t, LAI_BLOCK_ROWS);
        a.out = out + t * a.out_step;
        if (lse) a.lse = lse + t * a.lse_step;
        lai_synthesize(x, head, rows, n, &a, room);
        lai_run_rows(&a, 0, n);
        a.position += n;
    }
}

LA_DEF la_status la_synthesizer_forward(const la_synthesizer *x, const la_attention_call *call) {
    const la_status status = la_synthesizer_check(x, call, NULL);
    int64_t unit, end, heads;
    if (status != LA_OK) return status;
    heads = x->attention.q_heads;
    lai_share(call->batch * heads, call->thread_index, call->thread_count, &unit, &end);
    for (; unit < end; ++unit) lai_synthesizer_head(x, call, unit / heads, unit % heads);
    return LA_OK;
}

/* ---- extras: element-wise recurrences -------------------------------------------------------- */

static int64_t lai_scan_states(const la_scan *x) { /* numbers of a channel */
    return x->kind == LA_SCAN_RWKV4 ? 3 : 1;
}

static void lai_check_scan_options(lai_check *c, const la_scan *x) {
    int64_t b;
    lai_check_choice(c, x->kind, 2, LA_E_VARIANT, "kind");
    lai_check_run(c, x->isa, x->thread_index, x->thread_count, x->batch, x->tokens);
    lai_check_size(c, x->channels, 1, LAI_MAX_DIM, "channels");
    for (b = 0; x->lengths && c->status == LA_OK && b < x->batch; ++b)
        lai_check_size(c, x->lengths[b], 0, x->tokens, "lengths");
}

LA_DEF la_status la_scan_init(la_scan *scan, int kind, int64_t batch, int64_t tokens,
                              int64_t channels) {
    lai_check c = {LA_OK, NULL};
    if (!scan) return LA_E_NULL;
    memset(scan, 0, sizeof *scan);
    scan->kind = kind;
    scan->batch = batch;
    scan->tokens = tokens;
    scan->channels = channels;
    scan->thread_count = 1;
    lai_check_scan_options(&c, scan);
    if (c.status == LA_OK) scan->struct_size = sizeof *scan;
    return c.status;
}

static void lai_check_scan_tensors(lai_check *c, const la_scan *x) {
    static const lai_names names[4] = {LAI_NAMES(k), LAI_NAMES(v), LAI_NAMES(log_decay),
                                       LAI_NAMES(out)};
    static const char *const outputs[2] = {"out", "state_out"};
    const int64_t B = x->batch, T = x->tokens, C = x->channels, floats = lai_scan_states(x) * C;
    lai_range in[LAI_INPUTS], out[2];
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    if (x->kind == LA_SCAN_RWKV4) {
        in[0] = lai_check_in(c, &x->k, B, T, 1, C, C, names[0]);
        in[1] = lai_check_packed(c, x->bonus, 1, C, "bonus");
    }
    in[2] = lai_check_in(c, &x->v, B, T, 1, C, C, names[1]);
    in[3] = lai_check_in(c, &x->log_decay, B, T, 1, C, C, names[2]);
    in[4] = lai_list(x->lengths, B);
    if (x->state_in) in[5] = lai_check_packed(c, x->state_in, B, floats, "state_in");
    out[0] = lai_check_out(c, &x->out, B, T, 1, C, names[3]);
    if (x->state_out) out[1] = lai_check_packed(c, x->state_out, B, floats, "state_out");
    lai_check_apart(c, in, out, 2, x->state_in == x->state_out ? 5 : -1, outputs);
}

LA_DEF la_status la_scan_check(const la_scan *scan, const char **field) {
    lai_check c = {LA_OK, NULL};
    if (LAI_CHECK_STRUCT(&c, scan, "scan")) lai_check_scan_options(&c, scan);
    if (c.status == LA_OK) lai_check_scan_tensors(&c, scan);
    if (field) *field = c.field;
    return c.status;
}

static lai_rows lai_channels_at(const la_in *x, int64_t tokens, int64_t b, int64_t first) {
    lai_rows rows = lai_rows_at(x, tokens, b, 0, 0, NULL);
    if (rows.at) rows.at += first;
    return rows;
}

/* a block of channels, from `first` on */
static void lai_scan_block(const la_scan *x, int64_t b, int64_t first) {
    const int64_t tokens = x->lengths ? x->lengths[b] : x->tokens, states = lai_scan_states(x);
    const int64_t at = b * states * x->channels + first;
    const int64_t n = LAI_MIN(x->channels - first, LAI_SCAN);
    const size_t bytes = (size_t)n * sizeof(float);
    lai_scan s;
    int64_t i;
    memset(&s, 0, sizeof s);
    for (i = 0; x->state_in && i < states; ++i)
        memcpy(s.state[i], x->state_in + at + i * x->channels, bytes);
    for (i = 0; i < LAI_SCAN; ++i) /* no weights have no maximum, whatever is stored */
        if (s.state[1][i] == 0.0f) s.state[2][i] = LAI_LOWEST;
    s.tokens = tokens;
    s.channels = n;
    s.k = lai_channels_at(&x->k, states == 3 ? tokens : 0, b, first);
    s.v = lai_channels_at(&x->v, tokens, b, first);
    s.log_decay = lai_channels_at(&x->log_decay, tokens, b, first);
    if (states == 3) s.bonus = x->bonus + first;
    if (tokens > 0) s.out = x->out.data + b * x->out.batch_stride + first;
    s.out_step = x->out.token_stride;
    LAI_RUN(lai_choose_isa(x->isa), run_scan, (x->kind, &s));
    for (i = 0; x->state_out && i < states; ++i)
        memcpy(x->state_out + at + i * x->channels, s.state[i], bytes);
}

LA_DEF la_status la_scan_forward(const la_scan *scan) {
    const la_status status = la_scan_check(scan, NULL);
    int64_t blocks, unit, end;
    if (status != LA_OK) return status;
    blocks = (scan->channels + LAI_SCAN - 1) / LAI_SCAN;
    lai_share(scan->batch * blocks, scan->thread_index, scan->thread_count, &unit, &end);
    for (; unit < end; ++unit) lai_scan_block(scan, unit / blocks, unit % blocks * LAI_SCAN);
    return LA_OK;
}
#endif

#endif /* LAI_IN_PLACE */

/* ================================================================================================
 * [LA-10] REFERENCES, LICENCE
 *
 *   1706.03762  Vaswani, Shazeer, Parmar et al. (2017), Attention Is All You Need
 *   1805.02867  Milakov, Gimelshein (2018), Online normalizer calculation for softmax
 *   2005.00743  Tay, Bahri, Metzler, Juan, Zhao, Zheng (2020), Synthesizer
 *   2006.04768  Wang, Li, Khabsa, Fang, Ma (2020), Linformer
 *   2006.16236  Katharopoulos, Vyas, Pappas, Fleuret (2020), Transformers are RNNs
 *   2009.14794  Choromanski, Likhosherstov et al. (2020), Rethinking Attention with Performers
 *   2102.11174  Schlag et al. (2021), Linear Transformers Are Secretly Fast Weight Programmers
 *   2103.02143  Peng, Pappas, Yogatama et al. (2021), Random Feature Attention
 *   2202.08791  Qin, Sun, Deng et al. (2022), cosFormer: Rethinking Softmax in Attention
 *   2205.14135  Dao, Fu, Ermon, Rudra, Re (2022), FlashAttention
 *   2305.13048  Peng, Alcaide, Anthony et al. (2023), RWKV
 *   2307.08621  Sun, Dong, Huang et al. (2023), Retentive Network
 *   2309.17453  Xiao et al. (2023), Efficient Streaming Language Models with Attention Sinks
 *   2311.04823  Qin, Yang, Zhong (2023), Hierarchically Gated Recurrent Neural Network
 *   2312.06635  Yang, Wang, Shen, Panda, Kim (2023), Gated Linear Attention Transformers
 *   2401.04658  Qin, Sun, Li et al. (2024), Lightning Attention-2
 *   2402.04347  Zhang, Bhatia, Kumbong, Re (2024), The Hedgehog and the Porcupine
 *   2402.18668  Arora, Eyuboglu, Zhang et al. (2024), Simple Linear Attention Language Models
 *               Balance the Recall-Throughput Tradeoff
 *   2404.07143  Munkhdalai, Faruqui, Gopal (2024), Leave No Context Behind
 *   2404.05892  Peng, Goldstein, Anthony et al. (2024), Eagle and Finch
 *   2405.21060  Dao, Gu (2024), Transformers are SSMs
 *   2406.06484  Yang et al. (2024), Parallelizing Linear Transformers with the Delta Rule
 *   2409.04431  Ramapuram et al. (2024), Theory, Analysis, and Best Practices for Sigmoid
 *               Self-Attention
 *   2412.06464  Yang, Kautz, Hatamizadeh (2024), Gated Delta Networks
 *   2501.08313  MiniMax (2025), MiniMax-01
 *   2503.14456  Peng, Zhang, Goldstein et al. (2025), RWKV-7 "Goose"
 *   2510.26692  Kimi Team (2025), Kimi Linear
 *   2605.22791  Hatamizadeh, Choi, Kautz (2026), Gated DeltaNet-2
 *
 * Copyright (c) 2026 the linear_attention.h authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy of this software
 * and associated documentation files (the "Software"), to deal in the Software without
 * restriction, including without limitation the rights to use, copy, modify, merge, publish,
 * distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
 * Software is furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all copies or
 * substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING
 * BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
 * NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
 * DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
 * ============================================================================================== */
