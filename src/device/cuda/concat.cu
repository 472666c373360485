/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a range of columns between values of different widths. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

template <typename T> static __global__ void copy_columns(cuda_columns_job job) {
    GRID_STRIDE(i, job.rows * job.columns) {
        size_t row = i / job.columns, column = i % job.columns;
        ((T *)job.to)[row * job.to_stride + column] =
            ((const T *)job.from)[row * job.from_stride + column];
    }
}

extern "C" cudaError_t cuda_run_copy_columns(const cuda_columns_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_blocks(job->rows * job->columns);
    LAUNCH_BY_TYPE(LAUNCH, copy_columns, job->type, blocks, CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}
