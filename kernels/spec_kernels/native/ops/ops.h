/* Everything a forward computes except products with weights and embedding rows.

Functions are called through a table for one instruction set (spec_ops). They keep no state, allocate nothing and may be
called from any number of threads at once, as long as no two calls write the same memory. Rules for all of them:

- Numbers are float32. A stride is the distance between the starts of two rows, in floats.
- Scratch memory, key caches and value caches are 64-byte aligned; other pointers need no alignment.
- Sizes from 1 on are supported, unless a comment says otherwise. The conditions in comments are not checked here.
- The bits of a row depend on that row and its own past alone: not on the instruction set, the number of rows, the
  division of work into calls, or the contents of scratch memory and unused places of a cache.
- Sums are never reassociated: a sum over the elements of a row runs in 4 x 16 lanes (element i in lane i mod 16 of
  accumulator i / 16 mod 4), added by one fixed tree; sums over dimensions of a key, over positions and over rows of
  a state are computed in order, one addition after another.
- Lineage (parents, source, keep) is that of ops/lineage.py: indices of batch rows and of stored states; the rows of a
  sequence are adjacent, parents before children. */
#ifndef SPEC_OPS_H
#define SPEC_OPS_H

#include <stddef.h>
#include <stdint.h>

#define SPEC_LANES 16     /* positions of a tile of keys */
#define SPEC_MAX_HEAD 576 /* max key_dim and value_dim of attention */
#define SPEC_MAX_TAPS 16  /* max width of a convolution */
#define SPEC_MAX_TOP 64   /* max experts per row */
#define SPEC_MAX_STREAMS 16
#define SPEC_MAX_POOL 64 /* max positions of a pool */

enum spec_number { SPEC_FLOAT32, SPEC_FLOAT16, SPEC_BFLOAT16 };
enum spec_function { SPEC_EXP, SPEC_SIGMOID, SPEC_SILU, SPEC_SOFTPLUS, SPEC_TANH, SPEC_IDENTITY };

/* silu(g) u; gelu(g) u by the tanh formula; min(g, 7) sigmoid(1.702 min(g, 7)) (u between -7 and 7, + 1);
   max(g, 0) u; silu(min(g, limit)) (u between -limit and limit) */
enum spec_glu { SPEC_GLU_SILU, SPEC_GLU_GELU, SPEC_GLU_CLAMPED, SPEC_GLU_RELU, SPEC_GLU_LIMITED };

/* ---------------------------------------------------------------- attention and its cache */

enum spec_cache_kind { SPEC_CACHE_F32, SPEC_CACHE_F16, SPEC_CACHE_Q8 };

/* Keys and values of one layer of one sequence, for `places` positions (a multiple of 16).
   keys:   [kv head][tile of 16 positions][key_dim][16]
   values: [kv head][position][value_dim, padded to a multiple of 16]; kind Q8: in tiles of 16 positions, too
   F32, F16: plain numbers; float16 rounds to nearest even and saturates at +-65504. Attention computes in float32 with
       the stored numbers.
   Q8: integers from -127 to 127, and scales. A key has a float16 scale for every 32 dimensions (the last block may be
       shorter), a value has one float32 scale, which is a float16 number. A tile of keys holds their integers + 128 as
       [key_dim / 4][16][4], then the scales [blocks][16]; a tile of values holds the integers
       [16 / 4][padded value_dim][4 positions], then the scales [16].
       Attention multiplies integers: queries are rounded like keys, and the weights of 64 positions (64 n to 64 n + 63),
       multiplied with the scales of their values, to integers from 0 to 127 with one scale.
   latent: values are the last value_dim numbers of the keys; `values` is not used. Q8: they have one scale, also for
       the numbers before them in their first block of 32.
   A place may contain anything before it is written. */
typedef struct {
    int32_t kind, kv_heads, key_dim, value_dim, places, latent;
    uint8_t *keys, *values;                  /* of kv head 0, 64-byte aligned */
    size_t key_head_bytes, value_head_bytes; /* distance between kv heads, multiples of 64 */
} spec_cache;

/* Bytes of one kv head for `places` places (rounded up to 16): multiples of 64. */
size_t spec_key_bytes(int kind, int key_dim, int places);
size_t spec_value_bytes(int kind, int value_dim, int places);

/* The rows of one sequence in a batch: row first + i has its key and value in place start + i.
   chain:   number of leading rows that form a chain after the cache (spec_chain; all rows for plain text).
   parents: of the whole batch, read only for rows after the chain; may be NULL if chain == rows. The parent of a row is
            a row of the same sequence with a lower index, or an index below `first`, such as -1, for the cache.
   A row sees places 0 to start - 1, its ancestors and itself, summed in the order of its path: the bits are those of
   the same tokens decoded one by one.
   causal = 0: every row sees all rows of the sequence, whatever their parents (chain = rows). */
typedef struct {
    int32_t first, rows, start, chain, causal;
    const int32_t *parents;
} spec_sequence;

/* Number of leading rows of a sequence that form a chain. parents: of the batch. */
int spec_chain(const int32_t *parents, int first, int rows);

/* out = softmax(q k^T scale) v. Query head h reads kv head h / (heads / kv_heads).
   q: row r, head h at q + r q_stride + h key_dim, r a row of the batch. out: likewise with value_dim.
   gate: out is multiplied by sigmoid(gate), laid out like out with gate_stride; or NULL.
   window: a row at position p sees only positions above p - window, and those below `lead`; 0: no window.
   cap: scores become cap tanh(score / cap); 0: no cap.
   sinks: [heads], an additional score of each head, without a value; or NULL.
   anchored: windows of all rows are that of the sequence's first row.
   pools: row r sees only the positions of the `used` pools of `pool` positions at + r pools_stride, numbers that ascend
   and then -1, and the positions after its last whole pool; without a window and a cap. NULL: all. */
typedef struct {
    int32_t heads, window, lead;
    float scale;
    const float *q;
    size_t q_stride;
    float *out;
    size_t out_stride;
    const float *gate;
    size_t gate_stride;
    float cap;
    const float *sinks;
    int32_t anchored;
    const float *pools;
    size_t pools_stride;
    int32_t used, pool;
} spec_attention;

/* Scratch bytes that `attend` needs if no sequence of the call has more places (start + rows). */
size_t spec_attention_scratch(int places);

/* The pools that a row's attention sees: of the whole pools of its path up to itself the `used` ones with the largest
   scores, among equals the first, NaN counts as the smallest. Their numbers ascend; -1 follows where there are fewer.
   cache: latent rows [k | s] of 2 dim numbers. The key of a pool is sum(e k) / sum(e) over its positions in order, with
   e = exp(s + base - max), and its score the sum over heads, in order, of weight max(q key, 0).
   q: row r, head h at + r q_stride + h dim; weights: [heads] at + r weights_stride; base: [pool][dim];
   out: [used] at + r out_stride. pool at most SPEC_MAX_POOL. */
typedef struct {
    int32_t heads, dim, pool, used;
    const float *q;
    size_t q_stride;
    const float *weights;
    size_t weights_stride;
    const float *base;
    float *out;
    size_t out_stride;
} spec_index;

/* Scratch bytes of `choose_pools` for a sequence of `rows` rows and `places` places (start + rows). */
size_t spec_index_scratch(int places, int rows, int pool, int dim);

/* ---------------------------------------------------------------- gated delta rule, and the scan of Mamba-2 */

/* One layer. Of row r of the batch:
   q, k: key head h at + r stride + h key_dim (unit vectors, q scaled); v: value head h at + r stride + h value_dim
   g:    logarithm of the decay, at most 0: + r g_stride + h g_width; g_width 1, or key_dim for a decay per channel
   beta: + r beta_stride + h
   o, d: + r o_stride (d_stride) + h value_dim; d may be NULL if nothing is recorded
   states: [N][value_heads][key_dim][value_dim], read at `source`, written at `keep` (-1: not kept). A row may write
         to its sequence's source if no later row starts from it.
   key_of: [value_heads], the key head of each value head
   slot: [batch], from spec_delta_plan
   skip: [value_heads]: the scan, S = exp(g) S_before + k d^T with d = beta v, o = S^T q + skip v, where q and k have
         any length and g_width is 1; NULL: the delta rule */
typedef struct {
    int32_t key_heads, value_heads, key_dim, value_dim, g_width;
    const float *q, *k, *v, *g, *beta;
    size_t stride, g_stride, beta_stride;
    float *o, *d;
    size_t o_stride, d_stride;
    float *states;
    const int32_t *key_of, *parents, *source, *keep, *slot;
    const float *skip;
} spec_delta;

/* The slot of scratch memory that holds the state after each row while it is needed; -1: kept, or not needed.
   Fills slot[first .. first + rows - 1]; returns the number of slots: 0 or 1 for chains, at most rows. Called once per
   forward and sequence, for all layers and heads. */
int spec_delta_plan(const int32_t *parents, const int32_t *keep, int first, int rows, int32_t *slot);
size_t spec_delta_scratch(int key_dim, int slots);

/* Causal convolution of each channel. x, out: row r of the batch at + r stride; they must not overlap.
   gate: out = gate conv(x), laid out like out with gate_stride; NULL: out = silu(conv(x) + bias).
   bias: [channels]; NULL: none
   weight: [width][channels], the current input's last; width at most SPEC_MAX_TAPS
   windows: [N][width - 1][channels], inputs before a sequence's first row, oldest first: read at `source`, the window
   after a row written at its `keep`. */
typedef struct {
    int32_t channels, width;
    const float *x;
    size_t x_stride;
    const float *gate;
    size_t gate_stride;
    const float *weight;
    float *windows;
    float *out;
    size_t out_stride;
    const int32_t *parents, *source, *keep;
    const float *bias;
} spec_conv;

size_t spec_conv_scratch(int width, int channels); /* channels: of one call */

/* ---------------------------------------------------------------- experts */

/* softmax: over all experts, then the best `top`.
   sigmoid: the best by sigmoid + bias (bias may be NULL); the weights are without bias. If groups > 1, experts are
   selected only from the `groups_used` groups with the largest sum of their two best; groups divides experts, and a
   group has at least 2 members.
   normalise: weights are divided by their sum (+ 1e-20 for sigmoid), then multiplied by scale, and by the expert's
   factor if `factors`, [experts], is not NULL.
   Best first; among equals the lowest index first; NaN counts as the worst. top <= experts, top <= SPEC_MAX_TOP,
   groups <= SPEC_MAX_TOP. */
typedef struct {
    int32_t experts, top, normalise, sigmoid, groups, groups_used;
    float scale;
    const float *bias, *factors;
} spec_router;

/* ---------------------------------------------------------------- the table */

typedef struct {
    const char *isa; /* "avx512vnni", "avx512", "avxvnni", "avx2", "neon" or "generic" */

    /* y = x / sqrt(mean(x^2) + eps) weight; y may be x. weight NULL: all ones. */
    void (*norm)(const float *x, size_t x_stride, const float *weight, float eps, int rows, int width, float *y,
                 size_t y_stride);

    /* Adjacent heads of a row, in place: each normalised as above if weight [dim] is given, then its first
       `rotary_dim` dimensions rotated: (a, b) -> (a cos - b sin, a sin + b cos), where pair i is dimensions i and
       i + rotary_dim / 2.
       cos, sin: row r at + r angle_stride, [rotary_dim / 2]; rotary_dim even, <= dim; 0: no rotation. dim <= SPEC_MAX_HEAD */
    void (*heads)(float *x, size_t stride, int rows, int heads, int dim, const float *weight, float eps,
                  const float *cos, const float *sin, size_t angle_stride, int rotary_dim);

    /* out = glu(gate, up), one of enum spec_glu; out may be gate or up. limit: of SPEC_GLU_LIMITED. */
    void (*glu)(int glu, float limit, const float *gate, size_t gate_stride, const float *up, size_t up_stride,
                int rows, int width, float *out, size_t out_stride);
    /* x = cap tanh(x / cap); cap above 0 */
    void (*softcap)(float *x, size_t stride, int rows, int width, float cap);
    /* x *= f(gate), f one of enum spec_function: each of `gates` numbers of a row applies to an equal part of x; gates
       divides width. */
    void (*gate)(int function, float *x, size_t stride, const float *gate, size_t gate_stride, int rows, int width,
                 int gates);
    /* out = x y; out may be x or y. */
    void (*multiply)(const float *x, size_t x_stride, const float *y, size_t y_stride, int rows, int width, float *out,
                     size_t out_stride);
    /* x += y scale: scale [rows], one number per row (a gate of a shared expert, a weight of an expert), or NULL:
       x += y. y_stride 0 adds the same row, a bias, to all. */
    void (*add)(float *x, size_t stride, const float *y, size_t y_stride, const float *scale, int rows, int width);
    /* Converts the result of a product, y [tiles][rows][16], to rows out_stride apart, [rows][16 tiles], and adds bias
       [16 tiles] and `add`, laid out like out with add_stride; either may be NULL. add may be out. */
    void (*lay_down)(const float *y, int tiles, int rows, const float *bias, const float *add, size_t add_stride,
                     float *out, size_t out_stride);
    /* The same for alternating tiles of gate and up, y [pairs][2][rows][16]: glu(gate, up) to [rows][16 pairs]. */
    void (*lay_pairs)(int glu, float limit, const float *y, int pairs, int rows, float *out, size_t out_stride);
    /* sum of x y per row -> out [rows]; y_stride 0: the same y for all rows. (Gate of a shared expert.) */
    void (*dot)(const float *x, size_t x_stride, const float *y, size_t y_stride, int rows, int width, float *out);
    /* y = f(x), f one of enum spec_function; y may be x. Units in the last place: exp
       within 1, sigmoid, softplus and tanh within 3, silu within 4. exp is 0 below -87, infinite above 88; NaN stays
       NaN. */
    void (*apply)(int function, const float *x, size_t count, float *y);
    /* Converts count numbers of a kind (enum spec_number) to float32 and back: to nearest even, float16 saturates, NaN
       stays NaN. */
    void (*widen)(int kind, const void *x, size_t count, float *y);
    void (*narrow)(int kind, const float *x, size_t count, void *y);
    /* Index of the largest, the lowest among equals; NaN counts as smallest. count at least 1. */
    int32_t (*argmax)(const float *x, int32_t count);

    /* Stores keys and values of `rows` rows in places place, place + 1, ...: kv head h of row r at k + r k_stride + h
       key_dim, v + r v_stride + h value_dim; heads head to head + heads - 1. k or v may be NULL: not stored. Different
       heads and places may be stored at the same time. All rows of a sequence are stored before attention of any of
       them. place + rows <= places. */
    void (*store)(const spec_cache *cache, int place, int rows, const float *k, size_t k_stride, const float *v,
                  size_t v_stride, int head, int heads);
    /* Moves places from[0 .. count - 1] (ascending, from[i] >= place + i) to place, place + 1, ... of all heads. */
    void (*compact)(const spec_cache *cache, int place, const int32_t *from, int count);
    /* One job: rows row to row + rows - 1 of the sequence (counted from its first), the query heads of one kv head.
       A sequence may be divided into jobs in any way, and jobs may run in any order. The cost of a row grows with its
       position. */
    void (*attend)(const spec_attention *a, const spec_cache *cache, const spec_sequence *s, int kv_head, int row,
                   int rows, void *scratch);
    /* One job: the pools of rows row to row + rows - 1 of the sequence, after `store` of all of its rows. */
    void (*choose_pools)(const spec_index *a, const spec_cache *cache, const spec_sequence *s, int row, int rows,
                         void *scratch);

    /* Weights of n streams, n at most SPEC_MAX_STREAMS, from x, rows of 2 n + n^2 numbers a, b and C:
       sigmoid(scale[0] a + base) + eps, 2 sigmoid(scale[1] b + base), and the softmax of every row of
       scale[2] C + base, + eps, whose columns are then divided by their sums + eps, and rounds - 1 times its rows and
       its columns. Sums are added in order. y may be x. */
    void (*stream_weights)(const float *x, size_t x_stride, const float *base, const float *scale, int rows,
                           int streams, float eps, int rounds, float *y, size_t y_stride);
    /* out = sum of weight_i stream_i, in order; streams of `width` numbers side by side. weights NULL: 1 / streams. */
    void (*stream_sum)(const float *x, size_t x_stride, const float *weights, size_t weights_stride, int rows,
                       int streams, int width, float *out, size_t out_stride);
    /* stream_i = post_i y + sum over j, in order, of mix[j][i] stream_j, in place. weights: of `stream_weights`. */
    void (*stream_mix)(float *x, size_t x_stride, const float *y, size_t y_stride, const float *weights,
                       size_t weights_stride, int rows, int streams, int width);

    /* x = x scale / sqrt(sum x^2 + eps) for adjacent heads, in place. */
    void (*unit)(float *x, size_t stride, int rows, int heads, int dim, float eps, float scale);
    /* g = rate softplus(alpha + dt), beta = sigmoid(b): row r of alpha at + r stride, of b at + r b_stride; rate, dt:
       [decays], beta: [heads]; g, beta: row r at + r out_stride. b NULL: beta = softplus(alpha + dt), [decays].
       floor below 0: g = floor sigmoid(-rate (alpha + dt)); not without b. */
    void (*decay)(const float *alpha, size_t stride, const float *b, size_t b_stride, const float *rate,
                  const float *dt, float floor, int rows, int decays, int heads, float *g, float *beta,
                  size_t out_stride);
    /* Convolution of the rows of one sequence, channels channel to channel + channels - 1, and its gate or silu. */
    void (*conv)(const spec_conv *c, int first, int rows, int channel, int channels, void *scratch);
    /* S = exp(g) S_before + k d^T with d = beta (v - (exp(g) S_before)^T k), o = S^T q, or the scan: the rows of one
       sequence, one value head. */
    void (*delta)(const spec_delta *a, int first, int rows, int head, void *scratch);
    /* Applies recorded rows along a path, one value head: S = exp(g) S + k d^T from states[source] into states[target]
       (may be the same). Reads k, d, g, g_width, states, key_of and sizes of `a`, whose rows are counted as in path.
       The bits are those of `delta`. count 0 copies the state. */
    void (*replay)(const spec_delta *a, const int32_t *path, int count, int source, int target, int head);
    /* Computes the window after recorded inputs x along a path: windows[source] -> windows[target] (may be the same).
       All channels; reads x, x_stride, windows and sizes of `c`. */
    void (*slide)(const spec_conv *c, const int32_t *path, int count, int source, int target);
    /* y = norm(o) weight silu(z) for adjacent heads; weight: [dim] for all heads; y may be o or z. */
    void (*gated_norm)(const float *o, size_t o_stride, const float *z, size_t z_stride, const float *weight, float eps,
                       int rows, int heads, int dim, float *y, size_t y_stride);

    /* logits: row r at + r stride, [experts] -> weights [rows][top], chosen [rows][top] */
    void (*route)(const spec_router *a, const float *logits, size_t stride, int rows, float *weights, int32_t *chosen);
} spec_ops_table;

/* The table of an instruction set: one of the names above, "i8mm" (the same as "neon"), or NULL for the best of this
   processor. Returns NULL if the name is unknown or the processor does not support it. */
const spec_ops_table *spec_ops(const char *isa);

#endif
