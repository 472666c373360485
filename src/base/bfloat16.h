/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16 in the common subset of C17 and C++17, since kernels include this file. */
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

/* Rounds to nearest, ties to even. A NaN stays NaN: rounding up could carry it into infinity. */
static inline uint16_t yoke_bfloat16_round(float value) {
    yoke_float_bits both;
    both.value = value;
    uint32_t bits = both.bits;
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

#endif
