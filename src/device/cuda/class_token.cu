/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between sequences of different lengths, row by row. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

template <typename To, typename From> static __global__ void copy_rows(cuda_rows_job job) {
    GRID_STRIDE(i, job.rows * job.count) {
        size_t row = i / job.count, at = i % job.count;
        cuda_narrow(cuda_widen(((const From *)job.from)[row * job.from_stride + at]),
                    (To *)job.to + row * job.to_stride + at);
    }
}

template <typename To, typename From>
static void launch(const cuda_rows_job *job, cudaStream_t stream) {
    LAUNCH((copy_rows<To, From>), cuda_blocks(job->rows * job->count), CUDA_THREADS, stream, *job);
}

extern "C" cudaError_t cuda_run_copy_rows(const cuda_rows_job *job, cudaStream_t stream) {
    cuda_by_types(job->to_type, job->from_type, [&](auto to, auto from) {
        launch<typename decltype(to)::type, typename decltype(from)::type>(job, stream);
    });
    return cudaGetLastError();
}
