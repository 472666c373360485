/* SPDX-License-Identifier: Apache-2.0 */
/* The types of values on a GPU, for .c and .cu files. */
#ifndef DEVICE_CUDA_CUDA_TYPE_H
#define DEVICE_CUDA_CUDA_TYPE_H

#include <stddef.h>

typedef enum cuda_type { CUDA_FLOAT32, CUDA_BFLOAT16, CUDA_FLOAT16 } cuda_type;

static inline size_t cuda_type_bytes(cuda_type type) {
    return type == CUDA_FLOAT32 ? 4 : 2;
}

#endif
