/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to compute that a GPU must first confirm: they rest on what simulated GPUs cannot show. A
 * GPU takes them where the list of devices names them, "cuda:0+mapped+decode", and every GPU takes
 * those that ways.c calls confirmed. Neither changes a bit. docs/cuda.md says how one is
 * confirmed. */
#ifndef DEVICE_WAYS_H
#define DEVICE_WAYS_H

#include <stddef.h>

#include "base/base.h"

typedef enum yoke_way {
    YOKE_WAY_SUMS = 2,     /* a convolution adds its input's gradient to that of another reader */
    YOKE_WAY_STEM4 = 4,    /* the first convolution reads 4 channels, the last ones zero */
    YOKE_WAY_STEM8 = 8,    /* 8 channels; before STEM4 */
    YOKE_WAY_RELU = 32,    /* a linear layer computes the ReLU behind it */
    YOKE_WAY_MAPPED = 64,  /* a loss writes what it gives to memory of the host, too */
    YOKE_WAY_DECODE = 256, /* images are decoded as the first convolution reads them */
} yoke_way;

/* Reads "mapped+decode", or "all". ARGUMENT names the part that is no way; `list` is the whole
 * text.
 */
yoke_status yoke_ways_parse(unsigned *ways, const char *text, const char *list);
unsigned yoke_ways_confirmed(void);
/* "+mapped+decode"; "" for none. */
#define YOKE_WAYS_BYTES 96 /* as many as yoke_device_info.ways has */
void yoke_ways_write(unsigned ways, char *text, size_t size);

#endif
