/* A model as a flat list of operations, and one forward through it.
 *
 * Python builds the list once (lower.py) after checking every size (model/sizes.py); a forward is one call. Values are
 * numbered: arrays of float rows [R, width], `stride` floats apart. Python keeps weights and tables alive; small
 * vectors are copied. */
#ifndef SPEC_PROGRAM_H
#define SPEC_PROGRAM_H

#include "matmul/product.h"
#include "ops/ops.h"
#include "round_up.h"
#include "team.h"
#include "thread_pool.h"

#include <stddef.h>
#include <stdint.h>

#define SPEC_GROUP 32 /* rows quantised together, and rows per job of row-wise operations */
#define SPEC_PARTS 4
#define SPEC_INPUTS 32 /* max inputs of a program, and values of a concatenation */
#define SPEC_PICKS 2
#define SPEC_TABLES 2 /* max rotary tables */
#define SPEC_NONE (-1)

/* A value: its rows. tap: the output in whose memory it is written, or SPEC_NONE. */
typedef struct {
    int32_t width, tap;
    size_t stride;
    float *data;
} spec_value;

#define SPEC_MAX_CLUSTERS 256 /* max clusters of a row that are multiplied */

/* Quantised rows of a value: groups of SPEC_GROUP, group_bytes apart. */
typedef struct {
    int32_t k, bits;
    size_t group_bytes;
    uint8_t *data;
} spec_qrows;

/* Matrices of experts: count times the tiles of `one`, bytes apart. */
typedef struct {
    spec_weight one;
    size_t bytes;
} spec_stack;

/* Row-wise kinds come first: consecutive row-wise operations form one phase. */
enum spec_kind {
    SPEC_EMBED,
    SPEC_INPUT,
    SPEC_NORM,
    SPEC_HEADS,
    SPEC_STORE,
    SPEC_QUANTISE,
    SPEC_GATE,
    SPEC_MULTIPLY,
    SPEC_GLU,
    SPEC_ADD,
    SPEC_ADD_RELATIVE,
    SPEC_SCALE,
    SPEC_SOFTCAP,
    SPEC_GATED_NORM,
    SPEC_CONCAT,
    SPEC_COLUMNS,
    SPEC_ADD_ROWS,
    SPEC_TAP,
    SPEC_RATES,
    SPEC_RECORD,
    SPEC_STREAM_WEIGHTS,
    SPEC_STREAM_SUM,
    SPEC_STREAM_MIX,
    SPEC_ROUTE,
    SPEC_SUM,
    SPEC_LINEAR,
    SPEC_HEAD_LINEAR,
    SPEC_ATTEND,
    SPEC_INDEX,
    SPEC_CONV,
    SPEC_DELTA,
    SPEC_PICK,
    SPEC_BLOCK_CONV,
    SPEC_CLUSTERS,
    SPEC_SORT,
    SPEC_GATHER,
    SPEC_UP,
    SPEC_MIDDLE,
    SPEC_DOWN
};

typedef struct {
    int32_t kind;
    int32_t x, y, out, qrows; /* indices of values and of quantised rows, or SPEC_NONE */
    int32_t width, heads, kv_heads, dim, rotary_dim, table, layer, index, causal, window, lead, parts;
    float eps, scale, cap;
    float limit;             /* of SPEC_GLU_LIMITED; RATES: the lowest logarithm of a decay */
    float *vector, *vector2; /* copies owned by the program */
    int32_t outs[SPEC_PARTS], xs[SPEC_INPUTS];
    float *biases[SPEC_PARTS];
    spec_weight weights[SPEC_PARTS];
    int32_t paired; /* LINEAR, UP: tiles of gate and up alternate, and glu(gate, up) is stored */
    int32_t glu;    /* enum spec_glu */
    spec_stack up, down;
    spec_router router;
    int32_t mixture; /* index of the mixture in the program */
} spec_op;

/* The selected experts: pairs (row, index among the row's experts), ordered by expert. */
typedef struct {
    int32_t top, experts, used, k, inner, bits, inner_bits;
    float *weights;  /* [R, top] */
    int32_t *chosen; /* [R, top] */
    int32_t *place;  /* [R, top] -> number of the pair */
    int32_t *row;    /* of each pair */
    int32_t *begin;  /* [experts + 1]: pairs of expert `expert[i]` are begin[i] ... begin[i + 1] - 1 */
    int32_t *expert;
    size_t *at, *inner_at; /* start of the quantised rows of each expert */
    uint8_t *qrows, *inner_qrows;
    float *f, *expert_out; /* [pairs, inner], [pairs, width] */
} spec_mixture;

/* The layers of a cache, in two pieces of memory: those without a window and those with one. In a piece each layer has
   the keys of all heads, then the values, unless these are the last numbers of the keys.
   shapes: [layers][SPEC_SHAPE], kv heads, head width and latent numbers of each layer, and whether it has a window.
   borrowed: it is another model's, and only read. reach: rows that attention of this program reads at most in a layer
   with a window, the query's own included; INT32_MAX: all. */
typedef struct {
    int32_t kind, layers, borrowed, reach;
    const int32_t *shapes;
} spec_memory;

#define SPEC_SHAPE 4

/* Rows of one sequence in a piece of memory: positions first ... first + places - 1. first: a multiple of
   SPEC_FIRST. */
typedef struct {
    uint8_t *data;
    int32_t places, first;
} spec_piece;

#define SPEC_FIRST 64

/* The cache of one sequence. whole: layers without a window, from position 0 on. recent: layers with one. */
typedef struct {
    spec_piece whole, recent;
} spec_slot;

size_t spec_memory_bytes(const spec_memory *m, int windowed, int places);
spec_cache spec_memory_layer(const spec_memory *m, const spec_slot *slot, int layer);

/* Recurrent layers: gated delta nets, Mamba-2, or short convolutions, which have no heads. The record of a row is x, k, d, g.
   decays: numbers of g, one for every value head or for each of its key dimensions. */
typedef struct {
    int32_t key_heads, value_heads, key_dim, value_dim, kernel, channels, decays;
    int32_t *key_of;
} spec_recurrence;

/* One forward. All fields have been checked (forward_args.c). */
typedef struct {
    int32_t rows, sequences;
    const int64_t *tokens, *positions;
    int32_t each;        /* positions of a row: 1, or one for each pair of a head that rotates */
    const float **given; /* [1 + added][rows] or NULL: an embedding for the row, NULL to embed its token; rows to add */
    spec_sequence *sequence;
    spec_slot *memory; /* of each sequence */
    int32_t *parents;  /* [rows], of the batch */
    int32_t *held;     /* of each sequence: its first rows that are in its cache, but not in the batch; NULL: none */
    const float *inputs[SPEC_INPUTS];
    size_t input_strides[SPEC_INPUTS];
    const int32_t *picks[SPEC_PICKS]; /* rows of the batch, ascending; NULL: all selected before */
    int32_t picked[SPEC_PICKS];
    float **taps; /* [taps of the program], NULL if not requested */
    size_t *tap_strides;
    float *matrices, *windows; /* [layer][states][...] */
    int32_t states;
    int32_t *source, *keep;
    float *record;              /* [layer][x | k | d | g of `records` rows], or NULL */
    int32_t *recorded, records; /* row -> its index in the record, or -1 */
} spec_request;

/* Cosines and sines [positions][rotary_dim / 2] in Python's memory, and those of the rows of a forward. */
typedef struct {
    const float *cosines, *sines;
    float *row_cos, *row_sin;
    int32_t rotary_dim;
} spec_rotary;

typedef struct spec_program {
    const spec_product_table *product;
    const spec_ops_table *ops_table;
    int32_t threads;

    spec_op *ops;
    int32_t count;
    spec_value *values;
    int32_t value_count;
    spec_qrows *qrows;
    int32_t qrows_count;
    spec_mixture *mixtures;
    int32_t mixture_count;
    float **vectors;
    int32_t vector_count;

    spec_memory memory;
    spec_recurrence recurrence;
    spec_rotary rotary[SPEC_TABLES];
    int32_t tables, positions, vocabulary, added;
    int32_t inputs, input_widths[SPEC_INPUTS], taps, recurring;
    size_t head_rows; /* max bytes of the quantised rows of a head */

    /* max rows of a forward for the allocated memory, and scratch bytes of one thread */
    int32_t capacity, widths;
    void *arena;
    int32_t *slots, *rows_left;
    uint8_t **scratch;
    size_t scratch_bytes;

    /* the current forward */
    const spec_request *request;
    int32_t team; /* threads of the current forward */
    spec_team teams[SPEC_SIZES];
    int32_t at, begin, end, left, jobs, failed, delta_slots, prepared;
} spec_program;

/* program.c: construction. These functions return the new element, or NULL or SPEC_NONE if an allocation fails. */
spec_program *spec_program_new(const char *isa, int threads);
void spec_program_free(spec_program *p);
int32_t spec_add_value(spec_program *p, int width);
int32_t spec_add_qrows(spec_program *p, int k, int bits);
int32_t spec_add_mixture(spec_program *p, const spec_mixture *sizes);
spec_op *spec_add_op(spec_program *p, int kind);
spec_op *spec_add_head_linear(spec_program *p, const spec_stack *matrices, int heads, int kept, int bits);
float *spec_keep(spec_program *p, const float *from, int count); /* a copy, padded with zeros to a multiple of 16 */
int spec_reserve(spec_program *p, int rows);                     /* 0, or -1 if an allocation fails */

/* forward.c. 0, or -1 if an allocation fails. */
int spec_run(spec_program *p, const spec_request *request);

/* row_ops.c, matmul_ops.c, attention_ops.c, moe_ops.c: the operations. Any thread may run a job. */
void spec_do_rows(spec_program *p, const spec_op *op, int first, int rows);
int spec_linear_jobs(const spec_program *p, const spec_op *op);
void spec_do_linear(spec_program *p, const spec_op *op, int job, int jobs, int thread);
int spec_head_linear_jobs(const spec_program *p, const spec_op *op);
void spec_do_head_linear(spec_program *p, const spec_op *op, int job, int jobs, int thread);
int spec_mixing_jobs(const spec_program *p, const spec_op *op);
void spec_do_mixing(spec_program *p, const spec_op *op, int job, int thread);
int spec_mixture_jobs(spec_program *p, const spec_op *op);
void spec_do_mixture(spec_program *p, const spec_op *op, int job, int jobs, int thread);
void spec_route_rows(spec_program *p, const spec_op *op, int first, int rows);
void spec_sum_rows(spec_program *p, const spec_op *op, int first, int rows);
size_t spec_scratch_needed(const spec_program *p);

static inline float *spec_rows_of(const spec_program *p, int value, int row) {
    return p->values[value].data + (size_t)row * p->values[value].stride;
}
static inline int spec_held(const spec_request *q, int sequence) { return q->held ? q->held[sequence] : 0; }
static inline int spec_min(int a, int b) { return a < b ? a : b; }
static inline int spec_groups(int rows) { return (rows + SPEC_GROUP - 1) / SPEC_GROUP; }

#endif
