/* SPDX-License-Identifier: Apache-2.0 */
/* Variants that a GPU must first confirm: they rest on what simulated GPUs cannot show. A
 * GPU takes them where the list of devices names them, "cuda:0+mapped+decode", and every GPU takes
 * those that variants.c calls confirmed. Neither changes a bit. docs/cuda.md says how one is
 * confirmed. */
#ifndef DEVICE_VARIANTS_H
#define DEVICE_VARIANTS_H

#include <stddef.h>

#include "base/base.h"

typedef enum yoke_variant {
    YOKE_VARIANT_MAPPED = 1, /* a loss writes what it gives to memory of the host, too */
    YOKE_VARIANT_DECODE = 2, /* images are decoded as the first convolution reads them */
} yoke_variant;

/* Reads "mapped+decode", or "all". ARGUMENT names the part that is no variant; `list` is the whole
 * text.
 */
yoke_status yoke_variants_parse(unsigned *variants, const char *text, const char *list);
unsigned yoke_variants_confirmed(void);
/* "+mapped+decode"; "" for none. */
#define YOKE_VARIANTS_BYTES 96 /* as many as yoke_device_info.variants has */
void yoke_variants_write(unsigned variants, char *text, size_t size);

#endif
