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

/* What a lane holds after exchanges: values from `first`, as do the lanes that differ in `copies`.
 */
struct cuda_place {
    int first;
    unsigned copies;
};

/* Exchanges with the lanes LANE, 2 LANE, ... away; the first LEFT values are left. */
template <int LEFT, int LANE>
static __device__ void cuda_exchange(float *values, cuda_place &place) {
    if constexpr (LANE < CUDA_WARP && LEFT == 1) {
        values[0] += __shfl_xor_sync(0xffffffffu, values[0], LANE);
        place.copies |= (unsigned)LANE;
        cuda_exchange<1, 2 * LANE>(values, place);
    } else if constexpr (LANE < CUDA_WARP) {
        constexpr int HALF = LEFT / 2;
        bool upper = (threadIdx.x & (unsigned)LANE) != 0;
        if (upper) place.first += HALF;
        for (int i = 0; i < HALF; i++) {
            float low = values[i], high = values[i + HALF];
            float other = __shfl_xor_sync(0xffffffffu, upper ? low : high, LANE);
            values[i] = (upper ? high : low) + other;
        }
        cuda_exchange<HALF, 2 * LANE>(values, place);
    }
}

/* Sums each of the COUNT values over its column, in a fixed order, and returns the sum to every
 * thread of the column. At every exchange the lanes of a warp that share a column halve the values
 * they hold: about COUNT shuffles, where summing value by value takes COUNT * log2(32 / LANES). All
 * threads must call it; COUNT and LANES are powers of 2, blockDim.x is a multiple of CUDA_WARP.
 * Consecutive sums with the same COUNT and LANES may share one room; others need their own. */
template <int COUNT, int LANES>
static __device__ void cuda_sum_columns(float (&values)[COUNT], float *room) {
    static_assert((COUNT & (COUNT - 1)) == 0 && (LANES & (LANES - 1)) == 0, "powers of 2");
    constexpr int SHARES = CUDA_WARP / LANES, LEFT = COUNT > SHARES ? COUNT / SHARES : 1;
    unsigned column = threadIdx.x % LANES, warp = threadIdx.x / CUDA_WARP;
    cuda_place place = {0, 0};
    cuda_exchange<COUNT, LANES>(values, place);
    float *part = room + LANES * COUNT + (warp * LANES + column) * COUNT + (unsigned)place.first;
    if ((threadIdx.x & place.copies) == 0)
        for (int i = 0; i < LEFT; i++)
            part[i] = values[i];
    __syncthreads();
    for (unsigned k = threadIdx.x; k < LANES * COUNT; k += blockDim.x) {
        float sum = 0;
        for (unsigned w = 0; w < blockDim.x / CUDA_WARP; w++)
            sum += room[(w + 1) * LANES * COUNT + k];
        room[k] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        values[i] = room[column * COUNT + (unsigned)i];
}

#endif
