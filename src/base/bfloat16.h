/* bfloat16 in what C17 and C++17 share (kernels include this), for loops over stored values. */
#ifndef BASE_BFLOAT16_H
#define BASE_BFLOAT16_H

#include <stdint.h>

typedef union yoke_float_bits {
    float value;
    uint32_t bits;
} yoke_float_bits;

static inline float yoke_bfloat16_widen(uint16_t stored) {
    yoke_float_bits both;
    both.bits = (uint32_t)stored << 16;
    return both.value;
}

/* To the nearest, ties to even. A NaN stays one: rounding up could carry it into infinity. */
static inline uint16_t yoke_bfloat16_round(float value) {
    yoke_float_bits both;
    both.value = value;
    uint32_t bits = both.bits;
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

#endif
