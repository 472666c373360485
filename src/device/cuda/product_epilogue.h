/* SPDX-License-Identifier: Apache-2.0 */
/* Epilogues: what cuBLASLt computes behind the sums of a product, in the same kernel. */
#ifndef DEVICE_CUDA_PRODUCT_EPILOGUE_H
#define DEVICE_CUDA_PRODUCT_EPILOGUE_H

#include "device/backend.h"
#include "device/cuda/library.h"

/* With one, a bias has the output's type. Of those that serve one activation, the one that takes
 * over most comes first. */
typedef enum cuda_epilogue {
    CUDA_NO_EPILOGUE, /* Yoke's kernel adds a bias that the library does not */
    CUDA_BIAS,        /* of the output's type, so that the library adds it */
    CUDA_RELU_MASK,   /* writes which elements are above 0, too */
    CUDA_RELU,
    CUDA_GELU_INPUT, /* writes what it reads, too */
    CUDA_GELU,
    CUDA_MASKED_SUMS, /* 0 where such a mask, of another product, says so; writes the sums of the
                         columns, too; float32 alone */
    CUDA_MASKED,
    CUDA_GELU_GRADIENT_SUMS, /* times GELU's slope at its input, which another product has written
                              */
    CUDA_GELU_GRADIENT,
    CUDA_EPILOGUES
} cuda_epilogue;

/* What backward of an activation reads, and the product behind writes in forward. */
typedef enum cuda_aux {
    CUDA_NO_AUX,
    CUDA_MASK, /* a bit for each element, in an order that the library alone knows */
    CUDA_INPUT /* the activation's input: elements of the output's type, dense */
} cuda_aux;

typedef struct cuda_epilogue_traits {
    const char *name;             /* what an algorithm with it is called behind its own name */
    const char *follower;         /* what the contest that decides for it is called */
    cublasLtEpilogue_t number[2]; /* the library's, without a bias and with one */
    bool activates, derives;      /* computes an activation, or its backward */
    yoke_activation activation;
    cuda_aux aux; /* written if it activates, read if it derives */
    bool sums;    /* of the columns */
} cuda_epilogue_traits;
extern const cuda_epilogue_traits cuda_epilogues[CUDA_EPILOGUES];

/* From a row's first to the next one's: bits, or elements. */
int64_t cuda_aux_stride(cuda_aux aux, size_t columns);
/* Of [rows, columns] outputs. */
size_t cuda_aux_bytes(cuda_aux aux, size_t rows, size_t columns, size_t element_bytes);

#endif
