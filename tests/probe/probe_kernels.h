/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's own kernels: work that lasts, marks of order, and sampled elements of a convolution
 * by plain loops. Launchers return the launch error. */
#ifndef PROBE_KERNELS_H
#define PROBE_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One thread works for *rounds dependent multiplications. */
cudaError_t probe_run_work(float *value, const int *rounds, cudaStream_t stream);
/* ++*counter. */
cudaError_t probe_run_count(int *counter, cudaStream_t stream);
/* Poisons its context. */
cudaError_t probe_run_trap(int *counter, cudaStream_t stream);
/* *to = *from. */
cudaError_t probe_run_keep(int *to, const int *from, cudaStream_t stream);
/* to[i] = values[places[i]] as float. */
cudaError_t probe_run_pick(float *to, const void *values, int half, const uint64_t *places,
                           size_t count, cudaStream_t stream);

/* Values [rows, height, width, channels], weights [out, kernel, kernel, channels]. */
typedef struct probe_shape {
    int rows, channels, height, width, out, out_height, out_width, kernel, stride, padding;
} probe_shape;
#define PROBE_PARTS 128 /* partial sums of a sample */

/* parts[count][PROBE_PARTS]: the sums of each part of the products at `places` of the output, of
 * the input's gradient, or of the weights' gradient. `half`: both operands are bfloat16. */
cudaError_t probe_run_forward(double *parts, const void *input, const void *weights, int half,
                              probe_shape shape, const uint64_t *places, size_t count,
                              cudaStream_t stream);
cudaError_t probe_run_data(double *parts, const void *output, const void *weights, int half,
                           probe_shape shape, const uint64_t *places, size_t count,
                           cudaStream_t stream);
cudaError_t probe_run_weights(double *parts, const void *input, const void *output, int half,
                              probe_shape shape, const uint64_t *places, size_t count,
                              cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
