/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the positions of a batch by their tokens: a radix sort of 8 bits a pass, from the lowest
 * digit to the highest. Each pass is stable, so that positions of one token keep their order. No
 * atomics: a thread counts one digit of a tile, and finds its own rank among the keys of a round.
 */
#include "device/cuda/token_order.h"

constexpr int DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS;
constexpr size_t MOST_TILES = 128;
static_assert(DIGITS == CUDA_THREADS, "a thread for each digit");

/* One pass. Tiles of `rounds` times CUDA_THREADS positions. */
struct sort_pass {
    cuda_embedding_job job;
    const int *from; /* [count]; NULL: the positions in their own order */
    int *to;         /* [count] */
    int *counts;     /* [DIGITS, tiles]: then where the tile's first key of that digit goes */
    size_t count, tiles, rounds;
    int shift;
};

/* Unknown tokens come last. */
static __device__ int digit_of(const sort_pass &pass, int position) {
    int token = cuda_find_token(pass.job, (size_t)position);
    unsigned key = token < 0 ? (unsigned)pass.job.table : (unsigned)token;
    return (int)(key >> pass.shift) % DIGITS;
}

static __device__ size_t first_of_round(const sort_pass &pass, size_t round) {
    return (blockIdx.x * pass.rounds + round) * CUDA_THREADS;
}

/* -1 behind the last. */
static __device__ int position_at(const sort_pass &pass, size_t place) {
    if (place >= pass.count) return -1;
    return pass.from != NULL ? pass.from[place] : (int)place;
}

static __global__ void count_digits(sort_pass pass) {
    __shared__ int digits[CUDA_THREADS];
    int count = 0;
    for (size_t round = 0; round < pass.rounds; round++) {
        int position = position_at(pass, first_of_round(pass, round) + threadIdx.x);
        __syncthreads();
        digits[threadIdx.x] = position < 0 ? -1 : digit_of(pass, position);
        __syncthreads();
        for (int k = 0; k < CUDA_THREADS; k++)
            count += digits[k] == (int)threadIdx.x;
    }
    pass.counts[threadIdx.x * pass.tiles + blockIdx.x] = count;
}

/* One block: counts become the sums of all counts before them. */
static __global__ void sum_counts(sort_pass pass) {
    __shared__ int totals[DIGITS];
    int *own = pass.counts + threadIdx.x * pass.tiles, total = 0, before = 0;
    for (size_t tile = 0; tile < pass.tiles; tile++)
        total += own[tile];
    totals[threadIdx.x] = total;
    __syncthreads();
    for (unsigned digit = 0; digit < threadIdx.x; digit++)
        before += totals[digit];
    for (size_t tile = 0; tile < pass.tiles; tile++) {
        int count = own[tile];
        own[tile] = before;
        before += count;
    }
}

static __global__ void place_positions(sort_pass pass) {
    __shared__ int digits[CUDA_THREADS], next[DIGITS];
    next[threadIdx.x] = pass.counts[threadIdx.x * pass.tiles + blockIdx.x];
    for (size_t round = 0; round < pass.rounds; round++) {
        int position = position_at(pass, first_of_round(pass, round) + threadIdx.x);
        int digit = position < 0 ? -1 : digit_of(pass, position), rank = 0, later = 0;
        __syncthreads();
        digits[threadIdx.x] = digit;
        __syncthreads();
        for (unsigned k = 0; k < threadIdx.x; k++)
            rank += digits[k] == digit;
        for (unsigned k = threadIdx.x + 1; k < CUDA_THREADS; k++)
            later += digits[k] == digit;
        if (digit >= 0) pass.to[next[digit] + rank] = position;
        __syncthreads();
        if (digit >= 0 && later == 0) next[digit] += rank + 1;
    }
}

/* The first place whose token is at least this one. */
static __global__ void find_starts(sort_pass pass, int *starts) {
    GRID_STRIDE(token, pass.job.table + 1) {
        size_t begin = 0, end = pass.count;
        while (begin < end) {
            size_t middle = begin + (end - begin) / 2;
            int found = cuda_find_token(pass.job, (size_t)pass.to[middle]);
            if (found >= 0 && (size_t)found < token)
                begin = middle + 1;
            else
                end = middle;
        }
        starts[token] = (int)begin;
    }
}

/* Memory: the positions twice, a pass's counts, the starts. */
static size_t tiles_of(size_t count) {
    size_t tiles = (count + CUDA_THREADS - 1) / CUDA_THREADS;
    return tiles < MOST_TILES ? tiles : MOST_TILES;
}

extern "C" size_t cuda_token_order_bytes(size_t count, size_t table) {
    return (2 * count + DIGITS * tiles_of(count) + table + 1) * sizeof(int);
}

cuda_token_order cuda_order_tokens(const cuda_embedding_job *job, cudaStream_t stream) {
    size_t count = job->rows * job->positions;
    int *both[] = {job->order, job->order + count};
    size_t tiles = tiles_of(count), tile = tiles * CUDA_THREADS;
    sort_pass pass = {*job, NULL, both[0], both[1] + count, count, tiles, (count + tile - 1) / tile,
                      0};
    int *starts = pass.counts + DIGITS * tiles;
    for (int turn = 0; turn == 0 || job->table >> pass.shift > 0; turn++) {
        pass.to = both[turn % 2];
        LAUNCH_BLOCK(count_digits, (unsigned)tiles, CUDA_THREADS, stream, pass);
        LAUNCH_BLOCK(sum_counts, 1, DIGITS, stream, pass);
        LAUNCH_BLOCK(place_positions, (unsigned)tiles, CUDA_THREADS, stream, pass);
        pass.from = pass.to;
        pass.shift += DIGIT_BITS;
    }
    LAUNCH(find_starts, cuda_blocks(job->table + 1), CUDA_THREADS, stream, pass, starts);
    return {pass.from, starts};
}
