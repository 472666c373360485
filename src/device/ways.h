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
    YOKE_WAY_MAPPED = 1, /* a loss writes what it gives to memory of the host, too */
    YOKE_WAY_DECODE = 2, /* images are decoded as the first convolution reads them */
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
