/* Independent of the instruction set: the choice of a table, sizes, and plans. */
#include <string.h>

#include "layout.h"
#include "ops.h"
#include "processor.h"

extern const spec_ops_table spec_ops_generic;
#if SPEC_X86
extern const spec_ops_table spec_ops_avx512vnni, spec_ops_avx512, spec_ops_avx2;
#endif
#if SPEC_AVXVNNI
extern const spec_ops_table spec_ops_avxvnni;
#endif
#if defined(__aarch64__) && !defined(SPEC_PORTABLE)
extern const spec_ops_table spec_ops_neon;
#endif

static int runs_anywhere(void) { return 1; }

/* Best first. */
static const struct {
    const char *isa;
    const spec_ops_table *table;
    int (*runs)(void);
} choices[] = {
#if SPEC_X86
    {"avx512vnni", &spec_ops_avx512vnni, spec_runs_avx512vnni},
    {"avx512", &spec_ops_avx512, spec_runs_avx512},
#if SPEC_AVXVNNI
    {"avxvnni", &spec_ops_avxvnni, spec_runs_avxvnni},
#endif
    {"avx2", &spec_ops_avx2, spec_runs_avx2},
#endif
#if defined(__aarch64__) && !defined(SPEC_PORTABLE)
    {"i8mm", &spec_ops_neon, runs_anywhere},
    {"neon", &spec_ops_neon, runs_anywhere},
#endif
    {"generic", &spec_ops_generic, runs_anywhere},
};

const spec_ops_table *spec_ops(const char *isa) {
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if ((!isa || !strcmp(isa, choices[i].isa)) && choices[i].runs()) return choices[i].table;
    return NULL;
}

size_t spec_key_bytes(int kind, int key_dim, int places) {
    return spec_round_up((size_t)(places + SPEC_LANES - 1) / SPEC_LANES * spec_key_tile(kind, key_dim), 64);
}

size_t spec_value_bytes(int kind, int value_dim, int places) {
    return spec_round_up((size_t)(places + SPEC_LANES - 1) / SPEC_LANES * spec_value_tile(kind, value_dim), 64);
}

size_t spec_attention_scratch(int places) {
    size_t query = (2 * SPEC_MAX_HEAD + spec_scores(places)) * sizeof(float);
    return SPEC_QUERIES * query + SPEC_WIDENED_ROOM * sizeof(float) + spec_scores(places) * sizeof(int32_t);
}

size_t spec_index_scratch(int places, int rows, int pool, int dim) {
    size_t keys = (size_t)(places / pool + rows / pool + 3), width = spec_round_up((size_t)dim, 16);
    size_t scores = spec_round_up((size_t)(places / pool + 1), 16), row = spec_round_up((size_t)(2 * dim), 16);
    return sizeof(float) * (keys * width + scores + SPEC_LANES * row + spec_round_up((size_t)rows + 1, 16));
}

size_t spec_delta_scratch(int key_dim, int slots) {
    return sizeof(float) * (3 * spec_round_up((size_t)key_dim, 16) + (size_t)slots * (size_t)key_dim * SPEC_COLUMNS);
}

size_t spec_conv_scratch(int width, int channels) {
    return spec_round_up(sizeof(float) * (size_t)(width - 1) * (size_t)channels, 64);
}

int spec_chain(const int32_t *parents, int first, int rows) {
    int n = 0;
    while (n < rows && parents[first + n] == (n ? first + n - 1 : -1)) n++;
    return n;
}

/* Whether a row after `row` has the parent `parent`. In the leading chain, up to `chain`, a row's parent is the row
   before it. */
static int goes_on(const int32_t *parents, int parent, int row, int chain, int end) {
    if (row + 1 < chain && parent == row) return 1;
    for (int later = row + 1 < chain ? chain : row + 1; later < end; later++)
        if (parents[later] == parent) return 1;
    return 0;
}

int spec_delta_plan(const int32_t *parents, const int32_t *keep, int first, int rows, int32_t *slot) {
    int slots = 0, end = first + rows, chain = first + spec_chain(parents, first, rows);
    for (int row = first; row < end; row++) {
        int parent = parents[row];
        slot[row] = -1;
        if (keep[row] >= 0 || !goes_on(parents, row, row, chain, end)) continue;
        int free = parent >= 0 && slot[parent] >= 0 && !goes_on(parents, parent, row, chain, end);
        slot[row] = free ? slot[parent] : slots++;
    }
    return slots;
}
