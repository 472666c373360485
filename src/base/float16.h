/* SPDX-License-Identifier: Apache-2.0 */
/* IEEE 754 binary16: 5 bits of exponent, 10 of fraction. */
#ifndef BASE_FLOAT16_H
#define BASE_FLOAT16_H

#include "base/bfloat16.h"

/* Every float16 is a float: nothing is rounded. */
static inline float yoke_float16_widen(uint16_t stored) {
    yoke_float_bits both;
    uint32_t sign = (stored & 0x8000u) << 16, magnitude = stored & 0x7fffu;
    if (magnitude < 0x400u) { /* zero, or subnormal */
        both.value = (float)magnitude * 0x1p-24f;
        both.bits |= sign;
        return both.value;
    }
    both.bits = sign | ((magnitude << 13) + (magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u));
    return both.value;
}

/* The nearest float16, as a float; ties to even. From 65520 on that is infinity, below 2^-14 a
 * multiple of 2^-24. A NaN stays NaN. Without branches, for loops over values. */
static inline float yoke_float16_nearest(float value) {
    yoke_float_bits both, small;
    both.value = value;
    uint32_t sign = both.bits & 0x80000000u, magnitude = both.bits & 0x7fffffffu;
    uint32_t rounded = (magnitude + 0xfffu + ((magnitude >> 13) & 1u)) & ~0x1fffu;
    rounded = rounded > 0x477fe000u ? 0x7f800000u : rounded;
    both.bits = magnitude;
    small.value = (both.value + 0.5f) - 0.5f; /* floats from 0.5 to 1 are 2^-24 apart */
    rounded = magnitude < 0x38800000u ? small.bits : rounded;
    rounded = magnitude > 0x7f800000u ? magnitude | 0x400000u : rounded;
    both.bits = sign | rounded;
    return both.value;
}

#endif
