/* SPDX-License-Identifier: Apache-2.0 */
/* The launchers of a recurrence's kernels; see kernels.h. */
#ifndef DEVICE_CUDA_RECURRENCE_H
#define DEVICE_CUDA_RECURRENCE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One position. [rows, positions, ...]: input, valid, output, what is kept, slopes, and gradients;
 * [rows, ...]: gate, state, cell. gate: the state's share of the gates; in backward its gradient,
 * which also goes to `slopes`. state, cell: in backward their gradients. */
typedef struct cuda_recurrence_job {
    size_t rows, positions, position, hidden, gates;
    bool gru;
    const float *input, *bias, *valid; /* NULL: no bias; all are valid */
    float *gate, *state, *cell;
    float *output;
    float *kept_gates, *kept_states, *kept_cells; /* NULL: inference; of a GRU no cells */
    const float *output_gradient;
    float *slopes, *input_gradient; /* NULL: nobody wants it */
} cuda_recurrence_job;
cudaError_t cuda_run_recurrence(const cuda_recurrence_job *job, cudaStream_t stream);
cudaError_t cuda_run_recurrence_backward(const cuda_recurrence_job *job, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
