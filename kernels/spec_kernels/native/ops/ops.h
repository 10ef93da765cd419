/* Everything a forward computes besides products with weights, and besides embedding rows.

Every function is reached through a table for one instruction set (spec_ops). The functions keep nothing between
calls, allocate nothing and may be called from any number of threads at once, as long as no two calls write the same
memory. Rules that hold for all of them:

- Numbers are float32. A stride is counted in floats, from the beginning of a row to the beginning of the next.
- No pointer needs an alignment except scratch memory, key caches and value caches: 64 bytes.
- Any size from 1 up is served, unless a comment says otherwise. What the comments demand is not checked here.
- The bits of a row depend on the numbers of that row (and of its own past) alone: not on the instruction set, on how
  many rows there are, on how work is split into calls, on what scratch memory and unread places of a cache contain.
- Sums are never reassociated: a sum over the elements of a row runs in 4 x 16 lanes (element i in lane i mod 16 of
  accumulator i / 16 mod 4), folded by one fixed tree; sums over dimensions of a key, over positions and over rows of
  a state run in their order, one addition after the other.
- Lineage (parents, source, keep) is that of ops/lineage.py: numbers of batch rows and of stored states; the rows of a
  sequence stand together, parents before children. */
#ifndef SPEC_OPS_H
#define SPEC_OPS_H

#include <stddef.h>
#include <stdint.h>

#define SPEC_LANES 16     /* positions of a tile of keys */
#define SPEC_MAX_HEAD 256 /* largest key_dim and value_dim of attention */
#define SPEC_MAX_TAPS 16  /* largest width of a convolution */
#define SPEC_MAX_TOP 64   /* most experts of a row */

enum spec_number { SPEC_FLOAT32, SPEC_FLOAT16, SPEC_BFLOAT16 };
enum spec_function { SPEC_EXP, SPEC_SIGMOID, SPEC_SILU, SPEC_SOFTPLUS, SPEC_TANH };

/* silu(g) u; gelu(g) u by the tanh formula; min(g, 7) sigmoid(1.702 min(g, 7)) (u between -7 and 7, + 1) */
enum spec_glu { SPEC_GLU_SILU, SPEC_GLU_GELU, SPEC_GLU_CLAMPED };

/* ---------------------------------------------------------------- attention and its cache */

enum spec_cache_kind { SPEC_CACHE_F32, SPEC_CACHE_F16, SPEC_CACHE_Q8 };

/* Keys and values of one layer of one sequence, for `places` positions (a multiple of 16).
   keys:   [kv head][tile of 16 positions][key_dim][16]
   values: [kv head][position][value_dim, padded to a multiple of 16]
   F32, F16: numbers as they are; float16 rounds to nearest even, and to +-65504 what is larger.
   Q8: int8 times a float16 scale for every position and every 32 dimensions (the last block may be shorter).
       A tile of keys holds the integers [key_dim][16], then the scales [blocks][16]; a row of values holds the integers
       [padded value_dim], then the scales [blocks], then padding to a multiple of 4 bytes.
   Attention computes with the numbers that come back out, in float32.
   A place may contain anything until it is stored. */
typedef struct {
    int32_t kind, kv_heads, key_dim, value_dim, places;
    uint8_t *keys, *values;                  /* of kv head 0, 64-byte aligned */
    size_t key_head_bytes, value_head_bytes; /* from one kv head to the next, multiples of 64 */
} spec_cache;

/* Bytes of one kv head for so many places (rounded up to 16): multiples of 64. */
size_t spec_key_bytes(int kind, int key_dim, int places);
size_t spec_value_bytes(int kind, int value_dim, int places);

/* The rows of one sequence in a batch: row first + i has its key and value in place start + i.
   chain:   so many leading rows continue one another, the first of them the cache (spec_chain; rows for plain text).
   parents: of the whole batch, read for rows behind the chain only; may be NULL where chain == rows. The parent of a
            row is a row of the same sequence with a lower number, or a number below `first`, such as -1, which is the
            cache.
   A row sees places 0 to start - 1 and its ancestors and itself, summed in the order of its path: the bits are those
   of the same tokens decoded one by one.
   causal = 0: every row sees all rows of the sequence, whatever their parents (chain = rows). */
typedef struct {
    int32_t first, rows, start, chain, causal;
    const int32_t *parents;
} spec_sequence;

/* How many leading rows of a sequence form a chain. parents: of the batch. */
int spec_chain(const int32_t *parents, int first, int rows);

/* out = softmax(q k^T scale) v. Query head h reads kv head h / (heads / kv_heads).
   q: row r, head h at q + r q_stride + h key_dim, r a row of the batch. out: likewise with value_dim.
   gate: out is multiplied by sigmoid(gate), laid out like out with gate_stride; or NULL.
   window: a row at position p sees positions above p - window only; 0 where there is no window.
   cap: scores become cap tanh(score / cap); 0: they stay.
   sinks: [heads], one more score of each head, which has no value; or NULL. */
typedef struct {
    int32_t heads, window;
    float scale;
    const float *q;
    size_t q_stride;
    float *out;
    size_t out_stride;
    const float *gate;
    size_t gate_stride;
    float cap;
    const float *sinks;
} spec_attention;

/* Bytes that `attend` needs where no sequence of the call ends behind so many places (start + rows). */
size_t spec_attention_scratch(int places);

/* ---------------------------------------------------------------- gated delta rule */

/* One layer. Of row r of the batch:
   q, k: key head h at + r stride + h key_dim (unit vectors, q scaled); v: value head h at + r stride + h value_dim
   g:    logarithm of the decay, at most 0: + r g_stride + h g_width; g_width 1, or key_dim for a decay per channel
   beta: + r beta_stride + h
   o, d: + r o_stride (d_stride) + h value_dim; d may be NULL where nothing is recorded
   states: [N][value_heads][key_dim][value_dim], read at `source`, written at `keep` (-1: not kept). A row may keep into
         its sequence's source once no later row begins there.
   key_of: [value_heads], the key head of each value head
   slot: [batch], from spec_delta_plan */
typedef struct {
    int32_t key_heads, value_heads, key_dim, value_dim, g_width;
    const float *q, *k, *v, *g, *beta;
    size_t stride, g_stride, beta_stride;
    float *o, *d;
    size_t o_stride, d_stride;
    float *states;
    const int32_t *key_of, *parents, *source, *keep, *slot;
} spec_delta;

/* In which slot of scratch memory the state after each row lies while it is needed; -1: kept, or needed by nobody.
   Fills slot[first .. first + rows - 1]; returns the number of slots: 0 or 1 for chains, at most rows. Once per
   forward and sequence, for all layers and heads. */
int spec_delta_plan(const int32_t *parents, const int32_t *keep, int first, int rows, int32_t *slot);
size_t spec_delta_scratch(int key_dim, int slots);

/* Causal convolution, one channel by itself. x, out: row r of the batch at + r stride; they must not overlap.
   weight: [width][channels], the current input's last; width at most SPEC_MAX_TAPS
   windows: [N][width - 1][channels], inputs before a sequence's first row, oldest first: read at `source`, the window
   after a row written at its `keep`. */
typedef struct {
    int32_t channels, width;
    const float *x;
    size_t x_stride;
    const float *weight;
    float *windows;
    float *out;
    size_t out_stride;
    const int32_t *parents, *source, *keep;
} spec_conv;

size_t spec_conv_scratch(int width, int channels); /* channels: of one call */

/* ---------------------------------------------------------------- experts */

/* softmax: over all experts, then the best `top`.
   sigmoid: the best of sigmoid + bias (bias may be NULL); the weights are without it. Where groups > 1, experts are
   chosen from the `groups_used` groups with the largest sum of their two best only; groups divides experts, and a
   group has at least 2 members.
   normalise: weights are divided by their sum (+ 1e-20 for sigmoid), then multiplied by scale.
   Best first; of equals the lowest number first; NaN counts as the worst. top <= experts, top <= SPEC_MAX_TOP,
   groups <= SPEC_MAX_TOP. */
typedef struct {
    int32_t experts, top, normalise, sigmoid, groups, groups_used;
    float scale;
    const float *bias;
} spec_router;

/* ---------------------------------------------------------------- the table */

typedef struct {
    const char *isa; /* "avx512", "avx2", "neon" or "generic" */

    /* y = x / sqrt(mean(x^2) + eps) weight; y may be x. weight NULL: all ones. */
    void (*norm)(const float *x, size_t x_stride, const float *weight, float eps, int rows, int width, float *y,
                 size_t y_stride);

    /* Heads side by side in a row, in place: each normalised as above where weight [dim] is given, then its first
       `rotated` dimensions rotated: (a, b) -> (a cos - b sin, a sin + b cos), pair i = dimensions i, i + rotated / 2.
       cos, sin: row r at + r angle_stride, [rotated / 2]; rotated even, at most dim; 0: not rotated. dim <= 256 */
    void (*heads)(float *x, size_t stride, int rows, int heads, int dim, const float *weight, float eps,
                  const float *cos, const float *sin, size_t angle_stride, int rotated);

    /* out = gate and up by `glu`, one of enum spec_glu; out may be either. */
    void (*glu)(int glu, const float *gate, size_t gate_stride, const float *up, size_t up_stride, int rows, int width,
                float *out, size_t out_stride);
    /* x = cap tanh(x / cap); cap above 0 */
    void (*softcap)(float *x, size_t stride, int rows, int width, float cap);
    /* x *= sigmoid(gate) */
    void (*gate)(float *x, size_t stride, const float *gate, size_t gate_stride, int rows, int width);
    /* x += y scale: scale [rows], one number per row (a gate of a shared expert, a weight of an expert), or NULL:
       x += y. y_stride 0 adds the same row, a bias, to all. */
    void (*add)(float *x, size_t stride, const float *y, size_t y_stride, const float *scale, int rows, int width);
    /* What a product wrote, y [tiles][rows][16], to rows out_stride apart, [rows][16 tiles]: plus bias [16 tiles] and
       what is in `add`, laid out like out with add_stride; either may be NULL. add may be out. */
    void (*lay_down)(const float *y, int tiles, int rows, const float *bias, const float *add, size_t add_stride,
                     float *out, size_t out_stride);
    /* Likewise tiles of gate and up that alternate, y [pairs][2][rows][16]: by `glu` to [rows][16 pairs]. */
    void (*lay_pairs)(int glu, const float *y, int pairs, int rows, float *out, size_t out_stride);
    /* sum of x y per row -> out [rows]; y_stride 0: the same y for all. (A gate of a shared expert.) */
    void (*dot)(const float *x, size_t x_stride, const float *y, size_t y_stride, int rows, int width, float *out);
    /* y = f(x), f one of enum spec_function; y may be x. Units in the last place: exp
       within 1, sigmoid, softplus and tanh within 3, silu within 4. exp is 0 below -87, infinite above 88; NaN stays NaN. */
    void (*apply)(int function, const float *x, size_t count, float *y);
    /* count numbers of a kind (enum spec_number) to float32 and back: to nearest even, float16 saturates, NaN stays. */
    void (*widen)(int kind, const void *x, size_t count, float *y);
    void (*narrow)(int kind, const float *x, size_t count, void *y);
    /* The first of the largest; NaN counts as smallest. count at least 1. */
    int32_t (*argmax)(const float *x, int32_t count);

    /* Keys and values of `rows` rows to places place, place + 1, ...: kv head h of row r at k + r k_stride + h key_dim,
       v + r v_stride + h value_dim; heads head to head + heads - 1. k or v may be NULL: left as they are. Different
       heads and different places may be stored at the same time. All rows of a sequence are stored before any of
       them attends. place + rows <= places. */
    void (*store)(const spec_cache *cache, int place, int rows, const float *k, size_t k_stride, const float *v,
                  size_t v_stride, int head, int heads);
    /* Moves places from[0 .. count - 1] (ascending, from[i] >= place + i) to place, place + 1, ... of all heads. */
    void (*compact)(const spec_cache *cache, int place, const int32_t *from, int count);
    /* One job: rows row to row + rows - 1 of the sequence (counted from its first), the query heads of one kv head.
       Jobs of one sequence may be cut anyhow and run in any order. The cost of a row grows with its position. */
    void (*attend)(const spec_attention *a, const spec_cache *cache, const spec_sequence *s, int kv_head, int row,
                   int rows, void *scratch);

    /* x = x scale / sqrt(sum x^2 + eps) for heads side by side, in place. */
    void (*unit)(float *x, size_t stride, int rows, int heads, int dim, float eps, float scale);
    /* g = rate softplus(alpha + dt), beta = sigmoid(b): alpha, b: row r at + r stride; rate, dt: [heads];
       g, beta: row r at + r out_stride. */
    void (*decay)(const float *alpha, const float *b, size_t stride, const float *rate, const float *dt, int rows,
                  int heads, float *g, float *beta, size_t out_stride);
    /* The convolution of the rows of one sequence, channels channel to channel + channels - 1, then silu. */
    void (*conv)(const spec_conv *c, int first, int rows, int channel, int channels, void *scratch);
    /* S = exp(g) S_before + k d^T with d = beta (v - (exp(g) S_before)^T k), o = S^T q: the rows of one sequence, one
       value head. */
    void (*delta)(const spec_delta *a, int first, int rows, int head, void *scratch);
    /* Recorded rows along a path, one value head: S = exp(g) S + k d^T from states[source] into states[target] (may be
       the same). Reads k, d, g, g_width, states, key_of and sizes of `a`, whose rows are counted as in path. The bits
       are those of `delta`. count 0 copies the state. */
    void (*replay)(const spec_delta *a, const int32_t *path, int count, int source, int target, int head);
    /* The window after recorded inputs x along a path: windows[source] -> windows[target] (may be the same). All
       channels; reads x, x_stride, windows and sizes of `c`. */
    void (*slide)(const spec_conv *c, const int32_t *path, int count, int source, int target);
    /* y = norm(o) weight silu(z) for heads side by side; weight: [dim] for all heads; y may be o or z. */
    void (*gated_norm)(const float *o, size_t o_stride, const float *z, size_t z_stride, const float *weight, float eps,
                       int rows, int heads, int dim, float *y, size_t y_stride);

    /* logits: row r at + r stride, [experts] -> weights [rows][top], chosen [rows][top] */
    void (*route)(const spec_router *a, const float *logits, size_t stride, int rows, float *weights, int32_t *chosen);
} spec_ops_table;

/* The table of an instruction set: "avx512vnni" and "avx512" (the same functions), "avxvnni" and
   "avx2" (the same), "i8mm" and "neon" (the same), "generic",
   or NULL for the best that this processor has. NULL where the name is unknown or the processor lacks it. */
const spec_ops_table *spec_ops(const char *isa);

#endif
