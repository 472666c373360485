/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one float32 element for loops that the compiler vectorises: libm's are calls, one
 * for each element. Polynomials are Cephes', but for erf's. NaN
 * stays NaN. */
#ifndef DEVICE_CPU_FUNCTIONS_H
#define DEVICE_CPU_FUNCTIONS_H

#include <math.h>
#include <stdint.h>

#include "base/base.h"

#define CPU_FUNCTION static inline __attribute__((always_inline)) float

/* e^r for |r| <= ln 2 / 2. */
CPU_FUNCTION cpu_exp_rest(float r) {
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * r * r + r + 1;
}

/* e^x for x <= 0 to 2 units in the last place, and 0 below -87. x = n ln 2 + r, where adding 1.5 *
 * 2^23 leaves n in the lowest bits. */
CPU_FUNCTION cpu_exp_below_zero(float x) {
    yoke_float_bits shifted = {.value = x * 1.44269504f + 0x1.8p23f};
    float n = shifted.value - 0x1.8p23f;
    float p = cpu_exp_rest(x - n * 0.693359375f + n * 2.12194440e-4f);
    yoke_float_bits power = {.bits = (shifted.bits << 23) + 0x3f800000u};
    return x < -87 ? 0 : p * power.value;
}

/* e^x to 2 units in the last place. 2^n comes as two factors, since it may be too large or too
 * small for a float where e^x is not. */
CPU_FUNCTION cpu_exp(float x) {
    float inside = x < -104 ? -104 : x > 89 ? 89 : x;
    yoke_float_bits shifted = {.value = inside * 1.44269504f + 0x1.8p23f};
    float n = shifted.value - 0x1.8p23f;
    float p = cpu_exp_rest(inside - n * 0.693359375f + n * 2.12194440e-4f);
    uint32_t power = shifted.bits - 0x4b400000u; /* n, as a signed number */
    uint32_t half = (uint32_t)((int32_t)power >> 1);
    yoke_float_bits first = {.bits = (half << 23) + 0x3f800000u};
    yoke_float_bits second = {.bits = ((power - half) << 23) + 0x3f800000u};
    return p * first.value * second.value;
}

CPU_FUNCTION cpu_sigmoid(float x) {
    return 1 / (1 + cpu_exp(-x));
}

/* To 3 units in the last place: by e^(-2 |x|), and near 0, where that would cancel, a polynomial.
 */
CPU_FUNCTION cpu_tanh(float x) {
    float size = fabsf(x), e = cpu_exp_below_zero(-2 * size), square = x * x;
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    float near = p * square * x + x, far = copysignf((1 - e) / (1 + e), x);
    return size < 0.625f ? near : far;
}

/* To 2 units in the last place. Near 0 a polynomial of x^2; further out 1 - e^(-size * polynomial),
 * which is 1 from 3.93 on. Both are least squares fits whose weights make the largest error least
 * (Lawson), 1e-9 and 9e-9 of erf. */
CPU_FUNCTION cpu_erf(float x) {
    float size = fabsf(x), square = x * x, inside = size > 4 ? 4 : size;
    float p = 9.364870493300259e-6f;
    p = p * inside - 3.043336036080735e-4f;
    p = p * inside + 3.568276297301054e-3f;
    p = p * inside - 2.3607226088643074e-2f;
    p = p * inside + 1.0605964809656143e-1f;
    p = p * inside + 6.352568864822388e-1f;
    p = p * inside + 1.1286228895187378f;
    float far = copysignf(1 - cpu_exp_below_zero(-(p * inside)), x);
    float q = -6.203252705745399e-4f;
    q = q * square + 5.032180808484554e-3f;
    q = q * square - 2.6791462674736977e-2f;
    q = q * square + 1.1282455176115036e-1f;
    q = q * square - 3.761255145072937e-1f;
    q = q * square + 1.2837915122509003e-1f;
    float near = q * x + x;
    return size <= 0.875f ? near : far;
}

/* libm's. */
#define CPU_OF_LIBM(name)                                                                          \
    CPU_FUNCTION cpu_##name(float x) {                                                             \
        return name##f(x);                                                                         \
    }
CPU_OF_LIBM(fabs)
CPU_OF_LIBM(sqrt)
CPU_OF_LIBM(log)
CPU_OF_LIBM(log1p)
CPU_OF_LIBM(expm1)
CPU_OF_LIBM(sin)
CPU_OF_LIBM(cos)
CPU_FUNCTION cpu_pow(float x, float y) {
    return powf(x, y);
}
CPU_FUNCTION cpu_fmax(float x, float y) {
    return fmaxf(x, y);
}

#endif
