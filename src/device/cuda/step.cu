/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a step's values to the device; and finds whether this build has code for the GPU. */
#include <stddef.h>
#include <string.h>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

/* A kernel's arguments are copied with its launch: the host may go on. */
struct step_words {
    uint32_t of[(sizeof(cuda_step) + 3) / 4];
};

static __global__ void set_step(uint32_t *step, step_words words, size_t count) {
    GRID_STRIDE(i, count) step[i] = words.of[i];
}

extern "C" cudaError_t cuda_set_step(cuda_step *step, const cuda_step *values, int count,
                                     cudaStream_t stream) {
    static_assert(sizeof(cuda_step) <= 4000, "a kernel takes 4 KiB of arguments");
    size_t bytes = offsetof(cuda_step, scalars) + (size_t)count * sizeof(yoke_float_scalars);
    step_words words;
    memcpy(&words, values, bytes);
    LAUNCH(set_step, 1, CUDA_THREADS, stream, (uint32_t *)step, words, bytes / 4);
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
