/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes values and weights: [outer, rows, columns] becomes [outer, columns, rows], in the
 * requested type. Reads and writes are contiguous. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

constexpr size_t TILE = 32;
constexpr size_t TILE_STEP = CUDA_THREADS / TILE; /* rows of a tile moved at a time */

/* Goes through a tile in shared memory, so that both reads and writes are contiguous. The tile's
 * extra column puts the elements of a column in different banks. */
template <typename To, typename From>
static __global__ void transpose_tiles(To *to, const From *from, cuda_reorder_job job) {
    __shared__ float tile[TILE][TILE + 1];
    size_t down = (job.rows + TILE - 1) / TILE, across = (job.columns + TILE - 1) / TILE;
    size_t x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    for (size_t i = blockIdx.x; i < job.outer * down * across; i += gridDim.x) {
        size_t base = i / (down * across) * job.rows * job.columns;
        size_t row = i / across % down * TILE, column = i % across * TILE;
        for (size_t step = y; step < TILE; step += TILE_STEP)
            if (row + step < job.rows && column + x < job.columns)
                tile[step][x] = cuda_widen(from[base + (row + step) * job.columns + column + x]);
        __syncthreads();
        for (size_t step = y; step < TILE; step += TILE_STEP)
            if (column + step < job.columns && row + x < job.rows)
                cuda_narrow(tile[x][step], &to[base + (column + step) * job.rows + row + x]);
        __syncthreads();
    }
}

/* For sides too short for tiles (3 colours, 9 taps): a thread moves the whole short side at one
 * position of the longer side. */
template <typename To, typename From>
static __global__ void transpose_short(To *to, const From *from, cuda_reorder_job job) {
    bool wide = job.columns > job.rows;
    size_t longer = wide ? job.columns : job.rows, shorter = wide ? job.rows : job.columns;
    GRID_STRIDE(i, job.outer * longer) {
        size_t base = i / longer * longer * shorter, far = i % longer;
        for (size_t near = 0; near < shorter; near++) {
            size_t along = base + near * longer + far, across = base + far * shorter + near;
            cuda_narrow(cuda_widen(from[wide ? along : across]), &to[wide ? across : along]);
        }
    }
}

template <typename To, typename From>
static void transpose(const cuda_reorder_job *job, cudaStream_t stream) {
    To *to = (To *)job->to;
    const From *from = (const From *)job->from;
    size_t down = (job->rows + TILE - 1) / TILE, across = (job->columns + TILE - 1) / TILE;
    size_t longer = job->rows > job->columns ? job->rows : job->columns;
    if (job->rows < TILE / 2 || job->columns < TILE / 2)
        LAUNCH((transpose_short<To, From>), cuda_blocks(job->outer * longer), CUDA_THREADS, stream,
               to, from, *job);
    else
        LAUNCH_BLOCK((transpose_tiles<To, From>),
                     cuda_blocks(job->outer * down * across * CUDA_THREADS), CUDA_THREADS, stream,
                     to, from, *job);
}

extern "C" cudaError_t cuda_run_transpose(const cuda_reorder_job *job, cudaStream_t stream) {
    cuda_by_types(job->to_type, job->from_type, [&](auto to, auto from) {
        transpose<typename decltype(to)::type, typename decltype(from)::type>(job, stream);
    });
    return cudaGetLastError();
}
