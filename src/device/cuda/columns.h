/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the pixels of channels-last values by one block: LANES neighbouring threads read
 * neighbouring channels of one pixel, the next LANES threads those of the next pixel. Threads with
 * equal threadIdx.x % LANES form a column. For .cu files only. */
#ifndef DEVICE_CUDA_COLUMNS_H
#define DEVICE_CUDA_COLUMNS_H

#include "device/cuda/kernel.h"

#define CUDA_COLUMN_THREADS 512 /* at most */
/* Shared floats that sums of `count` values over `lanes` columns need. */
#define CUDA_COLUMN_ROOM(count, lanes) ((CUDA_COLUMN_THREADS / CUDA_WARP + 1) * (count) * (lanes))

/* Sums each of the COUNT values over its column, in a fixed order, and returns the sum to every
 * thread of the column. At every exchange the lanes of a warp that share a column halve the values
 * they hold: about COUNT shuffles, where summing value by value takes COUNT * log2(32 / LANES). All
 * threads must call it; COUNT and LANES are powers of 2, blockDim.x is a multiple of CUDA_WARP.
 * Consecutive sums with the same COUNT and LANES may share one room; others need their own. */
template <int COUNT, int LANES>
static __device__ void cuda_sum_columns(float (&values)[COUNT], float *room) {
    unsigned column = threadIdx.x % LANES, warp = threadIdx.x / CUDA_WARP, copies = 0;
    int left = COUNT, first = 0; /* this lane still holds values first .. first + left - 1 */
#pragma unroll
    for (int lane = LANES; lane < CUDA_WARP; lane *= 2) {
        if (left == 1) {
            values[0] += __shfl_xor_sync(0xffffffffu, values[0], lane);
            copies |= (unsigned)lane;
            continue;
        }
        left /= 2;
        bool upper = (threadIdx.x & (unsigned)lane) != 0;
        if (upper) first += left;
#pragma unroll
        for (int i = 0; i < left; i++) {
            float give = upper ? values[i] : values[i + left];
            float keep = upper ? values[i + left] : values[i];
            values[i] = keep + __shfl_xor_sync(0xffffffffu, give, lane);
        }
    }
    float *part = room + LANES * COUNT + (warp * LANES + column) * COUNT + (unsigned)first;
    if ((threadIdx.x & copies) == 0)
        for (int i = 0; i < left; i++)
            part[i] = values[i];
    __syncthreads();
    for (unsigned k = threadIdx.x; k < LANES * COUNT; k += blockDim.x) {
        float sum = 0;
        for (unsigned w = 0; w < blockDim.x / CUDA_WARP; w++)
            sum += room[(w + 1) * LANES * COUNT + k];
        room[k] = sum;
    }
    __syncthreads();
    for (int i = 0; i < COUNT; i++)
        values[i] = room[column * COUNT + (unsigned)i];
}

#endif
