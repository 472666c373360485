/* The launchers of this room's kernels: C functions, stream last, answering the launch error. Sizes
 * are in elements. `half`: values are bfloat16, otherwise float32; arithmetic is float32 always. */
#ifndef DEVICE_CUDA_KERNELS_H
#define DEVICE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What changes from step to step, in device memory, so that a recorded step can read it. */
typedef struct cuda_step {
    uint64_t seed, step, first_row;
    float loss_scale;
} cuda_step;
cudaError_t cuda_set_step(cuda_step *step, cuda_step values, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
