/* Vectors of 4 lanes in one NEON register, rows of bytes, and dot products of bytes with one row. */
typedef int32_t vi __attribute__((vector_size(16), may_alias));
typedef uint32_t vu __attribute__((vector_size(16), may_alias));
typedef float vf __attribute__((vector_size(16), may_alias));

static ALWAYS vf half_lanes(const uint8_t *at) { return (vf)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at))); }

static ALWAYS vf bfloat_lanes(const uint8_t *at) { return (vf)vshll_n_u16(vreinterpret_u16_u8(vld1_u8(at)), 16); }

static ALWAYS vf u8_lanes(const uint8_t *at) {
    uint32_t four;
    memcpy(&four, at, 4);
    uint16x8_t wide = vmovl_u8(vcreate_u8(four));
    return (vf)vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)));
}

static ALWAYS vf s8_lanes(const uint8_t *at) {
    uint32_t four;
    memcpy(&four, at, 4);
    int16x8_t wide = vmovl_s8(vcreate_s8(four));
    return (vf)vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

static ALWAYS vi larger(vi a, vi b) { return (vi)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }

static ALWAYS int32_t largest_lane(vi x) { return vmaxvq_s32((int32x4_t)x); }

static ALWAYS void half_sums(const vi *q, int32_t *sums) {
    for (int h = 0; h < 2; h++)
        sums[h] = vaddvq_s32((int32x4_t)(q[4 * h] + q[4 * h + 1] + q[4 * h + 2] + q[4 * h + 3]));
}

static ALWAYS size_t qrow_block_bytes(int bits) { return bits == 8 ? 32 : 64; }

/* 16 integers. */
static ALWAYS void put_bytes(const vi *q, uint8_t *to) {
    int16x8_t low = vcombine_s16(vmovn_s32((int32x4_t)q[0]), vmovn_s32((int32x4_t)q[1]));
    int16x8_t high = vcombine_s16(vmovn_s32((int32x4_t)q[2]), vmovn_s32((int32x4_t)q[3]));
    vst1q_s8((int8_t *)to, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

/* 8 bits: q. 15 bits: 32 high bytes, then 32 low ones; q = 128 high + low, low from -64 to 63. */
static ALWAYS void put_qrows(const vi *q, int bits, uint8_t *to) {
    for (int p = 0; p < 2; p++, q += 4, to += 16) {
        if (bits == 8) {
            put_bytes(q, to);
            continue;
        }
        vi high[4], low[4];
        for (int i = 0; i < 4; i++) {
            high[i] = (q[i] + 64) >> 7;
            low[i] = q[i] - (high[i] << 7);
        }
        put_bytes(high, to);
        put_bytes(low, to + 32);
    }
}

typedef struct {
    vi low, high;
} sums;

static ALWAYS sums first_sums(vi start) { return (sums){start, (vi){0}}; }

/* Code vector j is multiplied with inputs 4 j ... 4 j + 3, lane j mod 4 of their 16 bytes. */
static ALWAYS vi dot_bytes(vi sum, vu w, const uint8_t *plane, int j) {
    int8x16_t x = vld1q_s8((const int8_t *)plane + 16 * (j / 4)), code = (int8x16_t)w;
    switch (j % 4) {
    case 0: return (vi)vdotq_laneq_s32((int32x4_t)sum, code, x, 0);
    case 1: return (vi)vdotq_laneq_s32((int32x4_t)sum, code, x, 1);
    case 2: return (vi)vdotq_laneq_s32((int32x4_t)sum, code, x, 2);
    default: return (vi)vdotq_laneq_s32((int32x4_t)sum, code, x, 3);
    }
}

static ALWAYS void dot(sums *s, vu w, const uint8_t *x, int j, int bits) {
    s->low = dot_bytes(s->low, w, x + (bits == 8 ? 0 : 32), j);
    if (bits != 8) s->high = dot_bytes(s->high, w, x, j);
}

static ALWAYS vi total(sums s, int bits) {
    if (bits == 8) return s.low;
    return (s.high << 7) + s.low;
}
