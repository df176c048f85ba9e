/* The least time that a row can take: the longer of its flops and exponentials at the rates of one
 * core, and its compulsory bytes at the bandwidths. All counts are per token and state head; a dot
 * product of n numbers is 2 n flops.
 *
 * Flops. A state has r rows (key features) and dv columns, and is read by n = max(Hq / H, 1) query
 * heads. By the recurrence a token takes
 *
 *     write         2 r dv
 *     read          2 r dv n      o = S^T f(q)
 *     predict       2 r dv        S^T f(k), delta rules; S^T a, DPLR
 *     write again   2 r dv        b e^T, DPLR
 *
 * so 4 r dv for additive and 6 r dv for delta rules with one query head, 8 r dv for DPLR. The first
 * token after the empty state has nothing to add to: its write is r dv. Where the state starts
 * empty, token t can do without it: its read is t scores of length s (what q . k needs: r, but dk
 * for cosFormer) and a sum of t values, its prediction t - 1 scores between keys and a sum of t - 1
 * earlier writes (the forward substitution). Heads that share both operands share the scores:
 *
 *     read          2 (s max(Hq, Hk) / H + dv n) t        instead, where that is less
 *     predict       2 (s Hk / H + dv) (t - 1)
 *
 * and twice that for DPLR, whose a and b belong to one head.
 *
 * The write stays, since rows end with their state: that is the quadratic form where it is less,
 * token by token. A stateless row does without the last token's, or, where nothing is read from a
 * state at all, without any. Features, gates and softmax add exponentials, FAVOR+ its projections.
 *
 * A row's own flops are those of its form and chunk, to judge the kernel by: what the recurrence
 * needs and, in the recurrent form, r dv for a decay; in chunks of C all scores within a chunk are
 * formed, C (C + 1) / 2 for each query head and C (C - 1) / 2 more between keys for a delta rule,
 * while the first of them neither reads nor predicts from an empty state. */
#include "bench.h"
#include <math.h>

typedef struct counts {
    double T, H, dk, dv, r, s;   /* sizes */
    double queries, keys, reads; /* per state head: heads of q and k, of out */
    double writes;               /* outer products of a token */
    double pairs, partners;      /* scores of queries, of predictions, with one earlier token */
    int predicts, step;
} counts;

static double larger(double a, double b) {
    return a > b ? a : b;
}

static double smaller(double a, double b) {
    return a < b ? a : b;
}

static counts count(const bench_row *row) {
    counts c;
    c.T = (double)row->tokens;
    c.H = (double)row->heads;
    c.dk = (double)row->dim_k;
    c.dv = (double)row->dim_v;
    c.r = (double)bench_key_features(row);
    c.s = row->variant == LA_COSFORMER || row->variant == LA_BASED ? c.dk : c.r;
    c.queries = (double)row->q_heads / c.H;
    c.keys = (double)row->k_heads / c.H;
    c.reads = larger(c.queries, 1.0);
    c.pairs = larger(c.queries, c.keys);
    c.writes = 1.0;
    c.partners = c.keys;
    c.predicts = bench_is_delta(row) || bench_is_dplr(row);
    if (bench_is_dplr(row)) {
        c.writes = c.partners = 2.0;
        c.pairs += c.reads;
    }
    c.step = bench_is_step(row);
    return c;
}

/* sum over t = 1 .. n of the smaller of t slope and limit */
static double sum_smaller(double slope, double limit, double n) {
    const double turn = smaller(n, (double)(int64_t)(limit / slope));
    return n < 1.0 ? 0.0 : slope * turn * (turn + 1.0) / 2.0 + limit * (n - turn);
}

/* of all keys and queries */
static double projections(const bench_row *row, const counts *c) {
    return 2.0 * (double)row->features * c->dk * (c->keys + c->queries);
}

static double fewest_flops(const bench_row *row, const counts *c) {
    const double state = 2.0 * c->r * c->dv;
    const double reads = 2.0 * (c->s * c->pairs + c->dv * c->reads * c->writes); /* of one token */
    const double predicts = c->predicts ? 2.0 * (c->s * c->partners + c->dv * c->writes) : 0.0;
    double sum, quadratic;
    if (c->step) return (c->writes + c->reads + c->predicts) * state + projections(row, c);
    quadratic = (reads * (c->T + 1.0) + predicts * (c->T - 1.0)) * c->T / 2.0;
    sum = state * (c->writes * (c->T - row->stateless) - (c->writes - 1.0)) - c->r * c->dv;
    sum += sum_smaller(reads, c->reads * state, c->T);
    if (c->predicts) sum += sum_smaller(predicts, state, c->T - 1.0);
    if (row->stateless) sum = smaller(sum, quadratic);
    return larger(sum, 0.0) / c->T + projections(row, c);
}

/* the form that runs; a baseline's is LA_AUTO */
static int own_form(const bench_row *row) {
    return row->engine == BENCH_LIBRARY ? bench_plan(row).form : LA_AUTO;
}

/* the tokens that share a visit of the state; 0: a form that does no more than the recurrence */
static double own_chunk(const bench_row *row, const counts *c) {
    const int form = own_form(row);
    if (form == LA_PARALLEL) return c->T;
    if (form != LA_CHUNKWISE && row->engine != BENCH_OPENBLAS) return 0.0;
    return smaller((double)row->chunk, c->T);
}

static double own_flops(const bench_row *row, const counts *c) {
    const double state = 2.0 * c->r * c->dv, C = own_chunk(row, c);
    const double full = C > 0.0 ? (double)(int64_t)(c->T / C) : 0.0, rest = c->T - full * C;
    const double queries = full * C * (C + 1.0) + rest * (rest + 1.0); /* twice the scores */
    const double keys = full * C * (C - 1.0) + rest * (rest - 1.0);
    const int decays = own_form(row) == LA_RECURRENT && row->decay != BENCH_NONE;
    double sum = state * c->writes * c->T, reads = state * (c->T - (c->step ? 0.0 : C));
    if (C == 0.0)
        return (c->writes + c->reads + c->predicts) * state + decays * state / 2.0 +
               projections(row, c);
    if (row->stateless) /* nobody reads the last write */
        sum -= state * c->writes * (rest > 0.0 ? rest : C);
    sum += c->reads * reads + (c->s * c->pairs + c->dv * c->reads * c->writes) * queries;
    if (c->predicts) sum += reads + (c->s * c->partners + c->dv * c->writes) * keys;
    return sum / c->T + projections(row, c);
}

static double exponentials(const bench_row *row, const counts *c) {
    double n = 0.0;
    if (row->variant == LA_ELU) n += c->dk * (c->keys + c->queries);
    n += (double)row->features * (c->keys + c->queries); /* as many as a cosine and a sine take */
    if (row->decay == BENCH_CHANNEL) n += c->dk;
    return row->decay == BENCH_TOKEN ? n + 1.0 : n;
}

/* floats of q, k, v and out */
static double tensors(const counts *c) {
    return c->dk * (c->queries + c->keys) + c->dv * (1.0 + c->reads);
}

static double all_tensors(const bench_row *row, const counts *c) {
    double n = tensors(c);
    if (row->decay == BENCH_TOKEN) n += 1.0;
    if (row->decay == BENCH_CHANNEL) n += c->dk;
    n += c->dk * (2.0 * bench_is_dplr(row) + bench_erases(row));
    return n + bench_has_beta(row);
}

static bench_work least(const bench_row *row, const counts *c) {
    bench_work work;
    if (bench_is_extra(row)) return bench_extra_of(row)->family->least(row);
    work.flops = fewest_flops(row, c);
    work.exponentials = exponentials(row, c);
    work.floats = all_tensors(row, c);
    return work;
}

/* ---- extras ---------------------------------------------------------------------------------- */

/* Token t has scores with t keys, an exponential of each, and a sum of t values: on average over T
 * tokens (T + 1) / 2 of each. */
bench_work bench_least_attention(const bench_row *row) {
    const counts c = count(row);
    bench_work work;
    work.flops = (c.dk * c.pairs + c.dv * c.reads) * (c.T + 1.0);
    work.exponentials = c.pairs * (c.T + 1.0) / 2.0;
    work.floats = tensors(&c);
    return work;
}

/* floats that all tokens, heads and sequences share, as a share of each token and head */
static double shared(const bench_row *row, const counts *c, double floats) {
    return floats / (c->T * c->H * (double)row->batch);
}

/* Segments of N tokens, the last of which may have fewer; tokens that are written to the memory. A
 * stateless row does not write its last segment. */
typedef struct segments {
    double N, full, rest, written;
} segments;

static segments segments_of(const bench_row *row, const counts *c) {
    segments s;
    s.N = smaller((double)row->chunk, c->T);
    s.full = (double)(int64_t)(c->T / s.N);
    s.rest = c->T - s.full * s.N;
    s.written = c->T;
    if (row->stateless) s.written -= s.rest > 0.0 ? s.rest : s.N;
    return s;
}

/* what so many tokens take that look at those of the segments before theirs: `slope` for each, but
 * at most `limit`; those of a step look at the state */
static double earlier(const counts *c, double tokens, double N, double slope, double limit) {
    const double full = (double)(int64_t)(tokens / N), rest = tokens - full * N;
    if (c->step) return tokens * limit;
    return N * sum_smaller(N * slope, limit, full - 1.0) + rest * smaller(full * N * slope, limit);
}

/* the memory's reads and, of a delta rule, predictions, none of which takes more than `state` */
static double memory_reads(const bench_row *row, const counts *c, const segments *s, double state) {
    const double score = 2.0 * (c->dk * c->pairs + c->dv * c->reads);
    const double own = 2.0 * (c->dk * c->keys + c->dv);
    double sum = earlier(c, c->T, s->N, score, smaller(c->reads * state, c->T * score));
    if (bench_extra_of(row)->kind == LA_WRITE_DELTA)
        sum += earlier(c, s->written, s->N, own, smaller(state, c->T * own));
    return sum;
}

/* Softmax among the keys of the segment. What the memory says is read as a state is: for 2 dk dv
 * flops a query head, or as scores with the tokens of all segments before and a sum of so many
 * values, where that is less; so is what a delta rule predicts of the tokens that are written. They
 * are written for 2 dk dv flops, the first after an empty memory for half. Where it reads no state
 * either, a stateless row writes nothing. Features are an exponential for each number of a key that
 * is written, and of a query that has a memory to read. */
bench_work bench_least_infini(const bench_row *row) {
    const counts c = count(row);
    const segments s = segments_of(row, &c);
    const double pairs = (s.full * s.N * (s.N + 1.0) + s.rest * (s.rest + 1.0)) / 2.0;
    const double state = 2.0 * c.dk * c.dv, readers = c.step ? c.T : c.T - s.N;
    double memory = memory_reads(row, &c, &s, state) + s.written * state;
    bench_work work;
    if (!c.step && s.written > 0.0) memory -= state / 2.0;
    if (row->stateless) memory = smaller(memory, memory_reads(row, &c, &s, HUGE_VAL));
    work.flops = (2.0 * (c.dk * c.pairs + c.dv * c.reads) * pairs + memory) / c.T;
    work.exponentials = c.pairs * pairs + c.dk * (c.keys * s.written + c.queries * readers);
    work.exponentials /= c.T;
    work.floats = tensors(&c) + shared(row, &c, (double)bench_weights(row));
    return work;
}

/* K' = E^T K and V' = F^T V, k rows of each key head, then k scores, exponentials and values a
 * token. Or, where T is less than about k: all T scores with the keys, times E; and the weights
 * times F^T, times V. E and F are the same for all heads. */
bench_work bench_least_linformer(const bench_row *row) {
    const counts c = count(row);
    const double k = (double)row->features;
    bench_work work;
    work.flops = smaller(2.0 * k * c.dk * (c.keys + c.pairs), 2.0 * c.T * (c.dk + k) * c.pairs);
    work.flops +=
        smaller(2.0 * k * c.dv * (1.0 + c.reads), 2.0 * c.T * (c.dv * c.reads + k * c.pairs));
    work.exponentials = k * c.pairs;
    work.floats = tensors(&c) + shared(row, &c, (double)bench_weights(row));
    return work;
}

/* Token t has t logits, an exponential of each, and a sum of t values, as attention has. A logit
 *
 *     dense               takes 2 rank1 flops, after 2 dx rank1 for the token's hidden layer,
 *     factorised dense    one, after 2 dx (rank1 + rank2) for its factors,
 *     random              none, and of R half is looked at,
 *     factorised random   2 rank1.
 *
 * Logits of x belong to its head; random ones and their exponentials are those of all heads and
 * sequences. */
bench_work bench_least_synthesizer(const bench_row *row) {
    const counts c = count(row);
    const double pairs = (c.T + 1.0) / 2.0, rank = (double)bench_rank(row);
    const double weights = (double)bench_weights(row);
    bench_work work = {2.0 * c.dv * pairs, c.queries * pairs, c.dv * 2.0 + c.dk * c.queries};
    switch (bench_extra_of(row)->kind) {
    case LA_DENSE: work.flops += 2.0 * rank * (c.dk + pairs) * c.queries; break;
    case LA_FACTORISED_DENSE:
        work.flops += (2.0 * c.dk * (2.0 * rank + 1.0) + pairs) * c.queries;
        break;
    default: /* rank of LA_RANDOM: 0 */
        work.flops += shared(row, &c, 2.0 * rank * pairs * c.T);
        work.exponentials = shared(row, &c, pairs * c.T);
        work.floats = 2.0 * c.dv;
    }
    work.floats += shared(row, &c, rank > 0.0 ? weights : pairs * c.T);
    return work;
}

/* Of a channel HGRN takes an exponential, a product and a sum. RWKV-4 with x = exp(k) takes x v; a
 * + exp(bonus) x v over b + exp(bonus) x, and the new a and b, each a product and a sum. What is
 * exponential in its weights is so once for all tokens. The first token after an empty state, which
 * has nothing to be added to, counts as nothing. */
bench_work bench_least_scan(const bench_row *row) {
    const counts c = count(row);
    const int rwkv4 = bench_extra_of(row)->kind == LA_SCAN_RWKV4;
    const double tokens = c.step ? c.T : c.T - 1.0;
    bench_work work;
    work.flops = (rwkv4 ? 10.0 : 2.0) * c.dv * tokens / c.T;
    work.exponentials = c.dv * tokens / c.T;
    work.floats = 3.0 * c.dv;
    if (rwkv4) work.floats += shared(row, &c, 2.0 * (double)bench_weights(row));
    return work;
}

/* ---- times ----------------------------------------------------------------------------------- */

/* how much a level holds: the buffers fill half of a cache. Several cores are taken to be as many
 * times as large and as fast, which is more than they are. */
static double level_size(const bench_machine *machine, int level, double cores) {
    return level == BENCH_LEVELS - 1 ? HUGE_VAL : 2.0 * cores * machine->level_bytes[level];
}

/* GB/s of one thread; as much is read as written in a step, where the state is nearly all */
static double level_rate(const bench_row *row, const bench_machine *machine,
                         const bench_limits *limits, int level) {
    const double read = machine->read_gbps[level], both = machine->write_gbps[level];
    if (!bench_is_step(row)) return larger(read, both);
    return level == row->level ? larger(both, limits->update_gbps) : both;
}

/* ns of the bytes of a row that touches `footprint`: of that a level holds at best as much as its
 * size, and the rest comes at best from the next one */
static double byte_time(const bench_row *row, const bench_machine *machine,
                        const bench_limits *limits, double cores, double footprint) {
    double time = 0.0, held = 0.0;
    int i;
    for (i = 0; i < BENCH_LEVELS && held < footprint; ++i) {
        const double up_to = smaller(footprint, level_size(machine, i, cores));
        if (up_to <= held) continue;
        time +=
            (up_to - held) / footprint * row->bytes / (level_rate(row, machine, limits, i) * cores);
        held = up_to;
    }
    return time;
}

/* the rates that bound the row: of its instruction set; of the fastest for what chooses itself */
static double rate_of(const bench_row *row, const double rates[BENCH_ISAS]) {
    double fastest = 0.0;
    int i;
    if (row->engine != BENCH_OPENBLAS) return rates[row->isa];
    for (i = 0; i < BENCH_ISAS; ++i) fastest = larger(fastest, rates[i]);
    return fastest;
}

void bench_floor(bench_row *row, const bench_machine *machine, const bench_limits *limits) {
    const counts c = count(row);
    const bench_work work = least(row, &c);
    const double cores = smaller((double)row->threads, (double)machine->cores);
    const double flop_rate = cores * rate_of(row, limits->peak);
    const double exp_time = work.exponentials / (cores * rate_of(row, machine->exp_rate));
    const double state = row->stateless ? 0.0 : (double)bench_state_floats(row) / c.H;
    const double heads = (double)row->batch * c.H, states = 4.0 * state * heads;
    const double touched = 4.0 * work.floats * c.T * heads + states;
    const double own = bench_is_extra(row) ? work.flops : own_flops(row, &c);
    double bytes_time;
    row->flops = work.flops;
    row->bytes = 4.0 * (work.floats + (c.step ? 2.0 : 1.0) * state / c.T);
    for (row->level = 0; level_size(machine, row->level, cores) < states;) ++row->level;
    row->level_share =
        row->bytes / row->ns_min / (level_rate(row, machine, limits, row->level) * cores);
    bytes_time = byte_time(row, machine, limits, cores, touched);
    row->floor_ns = larger(row->flops / flop_rate + exp_time, bytes_time);
    row->floor_share = row->floor_ns / row->ns_min;
    row->own_share = larger(own / flop_rate + exp_time, bytes_time) / row->ns_min;
}
