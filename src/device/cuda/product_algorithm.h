/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithms of cuBLASLt by their configuration, for product.c only. */
#ifndef DEVICE_CUDA_PRODUCT_ALGORITHM_H
#define DEVICE_CUDA_PRODUCT_ALGORITHM_H

#include "device/cuda/cuda.h"

/* A product as cuBLASLt sees it, column-major and with b first (product.c says why). */
typedef struct product_call {
    cuda_device *device;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t first, second, output;
    cublasComputeType_t compute;
    cudaDataType_t operand_type, output_type;
    bool atomics;
} product_call;

/* Writes a configuration as text. */
yoke_status cuda_algorithm_write(cuda_device *device, const cublasLtMatmulAlgo_t *algorithm,
                                 char text[CUDA_CONFIGURATION_BYTES]);
/* Makes the algorithm of a configuration; *made is false where the library does not compute the
 * call by it, or only with a larger workspace, or in another order in each run. */
yoke_status cuda_algorithm_make(const product_call *call, const char *text,
                                cublasLtMatmulAlgo_t *algorithm, bool *made);
/* The reduction schemes that a call may take, as the library's mask. */
uint32_t cuda_reduction_schemes(bool atomics);

#endif
