/* Products of every type, both widths of activations and 1 to 17 rows, and the rows of matrices. */
#include "matrices.h"

#define WIDTHS 2
#define ROWS 17

static uint64_t product_of(const spec_product_table *t, draws *d, int type, int bits, int rows) {
    int unit = blocks[type].inputs, n = between(d, 1, 50),
        k = unit * between(d, 1, unit > 100 ? 3 : 2000 / (unit + 60));
    int any = between(d, 0, 3) == 0, count = between(d, 1, 20), first = between(d, 0, (n - 1) / 16);
    spec_weight w = matrix(d, type, n, k, any);
    float *x = between(d, 0, 5) ? numbers(d, (size_t)(rows * k), 4) : odd_numbers(d, (size_t)(rows * k), 4);
    void *qrows = room(t->rows_bytes(k, bits, rows)), *chosen = room(t->rows_bytes(k, bits, count));
    float *y = room(sizeof(float) * 16 * (size_t)(w.tiles * rows)), *again = room(sizeof(float) * 16 * (size_t)count);
    int32_t which[20];
    t->quantise(x, (size_t)k, rows, k, bits, qrows);
    t->product(&w, 0, w.tiles, qrows, bits, rows, y);
    for (int i = 0; i < count; i++) which[i] = between(d, 0, rows - 1);
    t->gather(qrows, rows, k, bits, which, count, chosen);
    t->product(&w, first, 1, chosen, bits, count, again);
    uint64_t hash = hash_floats(HASH, y, 16 * (size_t)(w.tiles * rows));
    float *row = room(sizeof(float) * (size_t)k);
    spec_row(&w, between(d, 0, n - 1), row);
    return hash_floats(hash_floats(hash, again, 16 * (size_t)count), row, (size_t)k);
}

static uint64_t run(const char *isa, uint64_t seed) {
    const spec_product_table *t = spec_products(isa);
    draws d = draws_of(seed);
    int type = (int)(seed % SPEC_TYPES), width = (int)(seed / SPEC_TYPES % WIDTHS);
    int rows = 1 + (int)(seed / (SPEC_TYPES * WIDTHS) % ROWS);
    return t ? product_of(t, &d, type, type >= SPEC_F16 ? 32 : width ? 15 : 8, rows) : 0;
}

const part products = {"products", 2 * SPEC_TYPES * WIDTHS * ROWS, run};
