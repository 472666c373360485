/* SPDX-License-Identifier: Apache-2.0 */
/* What device/cuda/tensor_core.h promises, on the host: the lanes of a warp meet, and each reads
 * the others' registers. A copy takes place when its thread waits for it, so that what reads
 * earlier reads what was there before. */
#ifndef SIMCUDA_TENSOR_CORE_ON_HOST_H
#define SIMCUDA_TENSOR_CORE_ON_HOST_H

/* Two values of 16 bits. */
static inline uint32_t tensor_bits(const void *low, const void *high) {
    uint16_t bits[2];
    memcpy(&bits[0], low, sizeof bits[0]);
    memcpy(&bits[1], high, sizeof bits[1]);
    return bits[0] | (uint32_t)bits[1] << 16;
}

static inline const char *tensor_row(const sim::Words *rows, unsigned matrix, unsigned row) {
    const char *at = (const char *)(uintptr_t)rows[8 * matrix + row][0];
    if ((uintptr_t)at % 16 != 0) sim::violation("a row of a matrix at %p, not at 16 bytes", at);
    return at;
}

static inline void tensor_load(uint32_t (&to)[4], const void *row) {
    const sim::Words *rows = sim::exchange({(uintptr_t)row});
    unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (unsigned m = 0; m < 4; m++) {
        const char *at = tensor_row(rows, m, g) + 4 * t;
        to[m] = tensor_bits(at, at + 2);
    }
}

static inline void tensor_load_transposed(uint32_t (&to)[4], const void *row) {
    const sim::Words *rows = sim::exchange({(uintptr_t)row});
    unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (unsigned m = 0; m < 4; m++)
        to[m] =
            tensor_bits(tensor_row(rows, m, 2 * t) + 2 * g, tensor_row(rows, m, 2 * t + 1) + 2 * g);
}

/* Value `index` of 16 bits of a lane's words. */
template <typename T> static inline float tensor_value(const sim::Words &words, unsigned index) {
    uint32_t bits = (uint32_t)(words[index / 4] >> index % 4 * 16) & 0xffff;
    return tensor_pair<T>::low(bits);
}

template <typename T>
static inline void tensor_multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t first,
                                   uint32_t second) {
    sim::Words given;
    memcpy(&given[0], a, sizeof a);
    given[2] = first | (uint64_t)second << 32;
    const sim::Words *lanes = sim::exchange(given);
    unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (unsigned i = 0; i < 4; i++) {
        unsigned lower = i / 2, column = 2 * t + i % 2; /* row g + 8 lower */
        for (unsigned k = 0; k < 16; k++) {
            const sim::Words &row = lanes[4 * g + k % 8 / 2], &rows = lanes[4 * column + k % 8 / 2];
            sums[i] += tensor_value<T>(row, 2 * (lower + k / 8 * 2) + k % 2) *
                       tensor_value<T>(rows, 8 + 2 * (k / 8) + k % 2);
        }
    }
}

static inline void copy_async(void *to, const void *from) {
    sim::copy_async(to, from, 16);
}
static inline void copy_wait(void) {
    sim::copy_wait();
}

static inline unsigned thread_again(void) {
    return threadIdx.x;
}

static inline float fast_exp2(float x) {
    return exp2f(x);
}

#endif
