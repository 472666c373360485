/* What ranks exchange, in bytes. */
#ifndef BASE_ELEMENT_H
#define BASE_ELEMENT_H

#include <stddef.h>

#include "yoke/element.h"

static inline size_t yoke_element_bytes(yoke_element element) {
    return element == YOKE_ELEMENT_INT64 ? 8 : element == YOKE_ELEMENT_FLOAT32 ? 4 : 2;
}

#endif
