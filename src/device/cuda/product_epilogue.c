/* SPDX-License-Identifier: Apache-2.0 */
/* The table of cuBLASLt's epilogues that Yoke uses. */
#include "device/cuda/product_epilogue.h"

#define MASK_STRIDE_BITS 128 /* the library wants a multiple of these */

/* cuBLASLt's GELU is the one with tanh. */
const cuda_epilogue_traits cuda_epilogues[CUDA_EPILOGUES] = {
    [CUDA_NO_EPILOGUE] = {.name = "",
                          .follower = " and sum",
                          .number = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS}},
    [CUDA_BIAS] = {.name = " with bias",
                   .follower = " and bias",
                   .number = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS}},
    [CUDA_RELU_MASK] = {.name = " with ReLU and mask",
                        .follower = " and ReLU that keeps a mask",
                        .number = {CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS},
                        .activates = true,
                        .activation = YOKE_RELU,
                        .aux = CUDA_MASK},
    [CUDA_RELU] = {.name = " with ReLU",
                   .follower = " and ReLU",
                   .number = {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS},
                   .activates = true,
                   .activation = YOKE_RELU},
    [CUDA_GELU_INPUT] = {.name = " with GELU and its input",
                         .follower = " and GELU that keeps its input",
                         .number = {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
                         .activates = true,
                         .activation = YOKE_GELU_TANH,
                         .aux = CUDA_INPUT},
    [CUDA_GELU] = {.name = " with GELU",
                   .follower = " and GELU",
                   .number = {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS},
                   .activates = true,
                   .activation = YOKE_GELU_TANH},
    [CUDA_MASKED_SUMS] = {.name = ", masked and summed",
                          .follower = " of a ReLU and bias",
                          .number = {CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_DRELU_BGRAD},
                          .derives = true,
                          .activation = YOKE_RELU,
                          .aux = CUDA_MASK,
                          .sums = true},
    [CUDA_MASKED] = {.name = ", masked",
                     .follower = " of a ReLU",
                     .number = {CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DRELU},
                     .derives = true,
                     .activation = YOKE_RELU,
                     .aux = CUDA_MASK},
    [CUDA_GELU_GRADIENT_SUMS] = {.name = ", gradient of GELU and summed",
                                 .follower = " of a GELU and bias",
                                 .number = {CUBLASLT_EPILOGUE_DGELU_BGRAD,
                                            CUBLASLT_EPILOGUE_DGELU_BGRAD},
                                 .derives = true,
                                 .activation = YOKE_GELU_TANH,
                                 .aux = CUDA_INPUT,
                                 .sums = true},
    [CUDA_GELU_GRADIENT] = {.name = ", gradient of GELU",
                            .follower = " of a GELU",
                            .number = {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU},
                            .derives = true,
                            .activation = YOKE_GELU_TANH,
                            .aux = CUDA_INPUT}};

int64_t cuda_aux_stride(cuda_aux aux, size_t columns) {
    size_t whole = (columns + MASK_STRIDE_BITS - 1) / MASK_STRIDE_BITS * MASK_STRIDE_BITS;
    return (int64_t)(aux == CUDA_MASK ? whole : columns);
}

size_t cuda_aux_bytes(cuda_aux aux, size_t rows, size_t columns, size_t element_bytes) {
    size_t elements = rows * (size_t)cuda_aux_stride(aux, columns);
    return aux == CUDA_NO_AUX ? 0 : aux == CUDA_MASK ? elements / 8 : elements * element_bytes;
}
