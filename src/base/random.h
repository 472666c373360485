/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011, from Random123): the same
 * numbers for the same key and counter on any thread or device. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* The use of a stream is part of its key, so that two uses never draw the same numbers. */
typedef enum yoke_random_use {
    YOKE_RANDOM_INIT,
    YOKE_RANDOM_DROPOUT,
    YOKE_RANDOM_AUGMENT,
    YOKE_RANDOM_SYNTHETIC,
    YOKE_RANDOM_PROBE,
    YOKE_RANDOM_TEXT,
    YOKE_RANDOM_MIXUP
} yoke_random_use;

/* Four words for (seed, use, a, b, block): The meaning of a and b depends on the use (step and
 * layer, epoch and row); block counts up. */
void yoke_random_words(uint64_t seed, yoke_random_use use, uint64_t a, uint32_t b, uint32_t block,
                       uint32_t words[4]);

/* Uniform in 0 .. count - 1, by multiplication; the bias is below count / 2^32. */
int yoke_random_below(uint32_t word, int count);

/* The word's upper 24 bits as a number in [0, 1). */
float yoke_random_unit(uint32_t word);

/* Fill `values` from the uniform distribution [low, high), or from normal(0, std) by
 * Box-Muller in double. */
void yoke_random_uniform(float *values, size_t count, double low, double high, uint64_t seed,
                         yoke_random_use use, uint64_t a);
void yoke_random_normal(float *values, size_t count, double std, uint64_t seed, yoke_random_use use,
                        uint64_t a);

#endif
