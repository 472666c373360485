/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a step's values to the device; and finds whether this build has code for the GPU. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

static __global__ void set_step(cuda_step *step, cuda_step values) {
    *step = values;
}

extern "C" cudaError_t cuda_set_step(cuda_step *step, cuda_step values, cudaStream_t stream) {
    LAUNCH(set_step, 1, 1, stream, step, values);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_find_code(void) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)set_step);
}

#ifdef __CUDA_ARCH_LIST__
#define TEXT(...) #__VA_ARGS__
#define TEXT_OF(...) TEXT(__VA_ARGS__)
#define ARCHITECTURES TEXT_OF(__CUDA_ARCH_LIST__)
#else
#define ARCHITECTURES "simulated GPUs"
#endif

extern "C" const char *cuda_architectures(void) {
    return ARCHITECTURES;
}
