/* SPDX-License-Identifier: Apache-2.0 */
/* What an element is. C++ reads this file too: kernels include base. */
#ifndef BASE_ELEMENT_H
#define BASE_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "yoke/element.h"

static inline size_t yoke_element_bytes(yoke_element element) {
    switch (element) {
    case YOKE_ELEMENT_FLOAT32:
    case YOKE_ELEMENT_INT32:
        return 4;
    case YOKE_ELEMENT_BFLOAT16:
        return 2;
    case YOKE_ELEMENT_INT64:
    case YOKE_ELEMENT_FLOAT64:
        return 8;
    case YOKE_ELEMENT_UINT8:
        return 1;
    }
    return 0;
}

/* Whether collectives take it; the others are elements of arrays alone. */
static inline bool yoke_element_is_collective(yoke_element element) {
    return element >= YOKE_ELEMENT_FLOAT32 && element <= YOKE_ELEMENT_FLOAT64;
}

#endif
