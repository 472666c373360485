/* SPDX-License-Identifier: Apache-2.0 */
/* The size of a collective's element. C++ reads this file too: kernels include base. */
#ifndef BASE_ELEMENT_H
#define BASE_ELEMENT_H

#include <stddef.h>

#include "yoke/element.h"

static inline size_t yoke_element_bytes(yoke_element element) {
    switch (element) {
    case YOKE_ELEMENT_FLOAT32:
        return 4;
    case YOKE_ELEMENT_BFLOAT16:
        return 2;
    case YOKE_ELEMENT_INT64:
    case YOKE_ELEMENT_FLOAT64:
        return 8;
    }
    return 0;
}

#endif
