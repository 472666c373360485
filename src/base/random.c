/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). */
#include "base/random.h"

#include <Random123/philox.h>
#include <math.h>

void yoke_random_words(uint64_t seed, yoke_random_use use, uint64_t a, uint32_t b, uint32_t block,
                       uint32_t words[4]) {
    /* The use goes into the key's top byte: seeds below 2^56 never share a stream. */
    uint64_t mixed = seed ^ ((uint64_t)use << 56);
    philox4x32_key_t key = {{(uint32_t)mixed, (uint32_t)(mixed >> 32)}};
    philox4x32_ctr_t counter = {{(uint32_t)a, (uint32_t)(a >> 32), b, block}};
    philox4x32_ctr_t drawn = philox4x32_R(10, counter, key);
    for (int i = 0; i < 4; i++)
        words[i] = drawn.v[i];
}

int yoke_random_below(uint32_t word, int count) {
    return (int)((uint64_t)word * (uint64_t)count >> 32);
}

float yoke_random_unit(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}

/* Block i of a fill: coordinate b holds the upper 32 bits of i. */
static void fill_words(uint64_t seed, yoke_random_use use, uint64_t a, size_t i,
                       uint32_t words[4]) {
    yoke_random_words(seed, use, a, (uint32_t)((uint64_t)i >> 32), (uint32_t)i, words);
}

void yoke_random_uniform(float *values, size_t count, double low, double high, uint64_t seed,
                         yoke_random_use use, uint64_t a) {
    /* The largest float below high: rounding to float must not reach the excluded end. */
    float top = (float)high;
    if ((double)top >= high) top = nextafterf(top, -INFINITY);
    uint32_t words[4];
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) fill_words(seed, use, a, i / 4, words);
        float value = (float)(low + (high - low) * (double)yoke_random_unit(words[i % 4]));
        values[i] = value < top ? value : top;
    }
}

/* Two normal(0, 1) numbers from two words; u is never 0. */
static void box_muller(const uint32_t words[2], double pair[2]) {
    const double two_pi = 6.283185307179586476925;
    double u = ((double)words[0] + 1.0) * 0x1p-32;
    double radius = sqrt(-2.0 * log(u));
    double angle = two_pi * ((double)words[1] * 0x1p-32);
    pair[0] = radius * cos(angle);
    pair[1] = radius * sin(angle);
}

void yoke_random_normal(float *values, size_t count, double std, uint64_t seed, yoke_random_use use,
                        uint64_t a) {
    uint32_t words[4];
    double pair[2];
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) fill_words(seed, use, a, i / 4, words);
        if (i % 2 == 0) box_muller(words + i % 4, pair);
        values[i] = (float)(std * pair[i % 2]);
    }
}
