/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to compute that a GPU takes only where the list of devices names them, "cuda:0+waves+sums":
 * no GPU has measured yet whether they are faster. Every way gives the same bits in every run;
 * docs/cuda.md says which of them give those of the computation without it. */
#ifndef DEVICE_WAYS_H
#define DEVICE_WAYS_H

#include <stddef.h>

#include "base/base.h"

typedef enum yoke_way {
    YOKE_WAY_WAVES = 1,    /* batch norm launches no more blocks than run at once */
    YOKE_WAY_SUMS = 2,     /* a convolution adds its input's gradient to that of another reader */
    YOKE_WAY_STEM4 = 4,    /* the first convolution reads 4 channels, the last ones zero */
    YOKE_WAY_STEM8 = 8,    /* 8 channels; before STEM4 */
    YOKE_WAY_SHADOW = 16,  /* an update writes the weights in bfloat16, too */
    YOKE_WAY_RELU = 32,    /* a linear layer computes the ReLU behind it */
    YOKE_WAY_MAPPED = 64,  /* a loss writes what it gives to memory of the host, too */
    YOKE_WAY_LOSS = 128,   /* cross-entropy and its gradient in one kernel */
    YOKE_WAY_DECODE = 256, /* images are decoded as the first convolution reads them */
} yoke_way;

/* Reads "waves+sums", or "all". ARGUMENT names the part that is no way; `list` is the whole text.
 */
yoke_status yoke_ways_parse(unsigned *ways, const char *text, const char *list);
/* "+waves+sums"; "" for none. */
#define YOKE_WAYS_BYTES 96 /* as many as yoke_device_info.ways has */
void yoke_ways_write(unsigned ways, char *text, size_t size);

#endif
