/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention of values of 16 bits on tensor cores, without the matrix of all pairs of
 * positions (Dao 2023, FlashAttention-2). A warp owns 16 positions of one head of one row, whose
 * features it keeps in registers; tiles of the positions on the other side pass through shared
 * memory, the next one on its way while the warps compute with this one. Sums are float32; weights
 * and gradients of scores are rounded to 16 bits as operands of the next product. Forward and the
 * gradient of the queries own queries, the gradient of keys and values owns keys: no two blocks
 * write to one place, and every sum has one order. */
#include "device/cuda/attention_values.h"
#include "device/cuda/tensor_core.h"

constexpr int ROWS = 16; /* of a warp */
constexpr int CHUNK = 8; /* features in 16 bytes */
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

/* How a kernel cuts its work. A position has SIZE features, padded with zeros. A block has FIT
 * others beside it on a multiprocessor, as far as registers go. A result's sums of PART features
 * are as many as registers have room for; other blocks compute the rest, from the same scores. */
template <int SIZE, int THREADS_OF_A_BLOCK, int POSITIONS_OF_A_TILE, int AT_ONCE,
          int PART_OF_THE_SIZE, int FIT>
struct cut {
    static constexpr int N = SIZE, THREADS = THREADS_OF_A_BLOCK;
    static constexpr int TILE = POSITIONS_OF_A_TILE, STEP = AT_ONCE; /* of the tile's positions */
    static constexpr int PART = PART_OF_THE_SIZE, PARTS = SIZE / PART, BLOCKS = FIT;
    static constexpr int OWNED = THREADS / CUDA_WARP * ROWS; /* positions of a block */
    /* Two tiles at work, and two on their way; before and after, the block's own positions. */
    static constexpr int BUFFER = 2 * TILE * N, STAGE = 2 * BUFFER;
    static_assert(OWNED * N <= STAGE, "a block's own positions fit");
};
template <int N> constexpr int few = N <= 128 ? 32 : 16;
template <int N>
using forward_cut = cut<N, N <= 64 ? 256 : 128, few<N>, few<N>, N, N == 128 ? 3 : 2>;
template <int N>
using query_cut = cut<N, N <= 64 ? 256 : 128, few<N>, few<N>, N <= 128 ? N : 64, 2>;
template <int N>
using key_cut = cut<N, 128, N <= 64 ? 64 : 16, 16, N <= 128 ? N : 64, N <= 64 ? 3 : 2>;

/* Where a chunk of a row lies in shared memory: the chunks of one number of eight rows are in
 * different banks. `rows`, a multiple of 16, and `chunks`, an even number, are constants, so that
 * few addresses take registers; the chunk is then 0 or 1, or `chunks` is 0. */
template <int N>
static __device__ int place_of(int rows, int chunks, unsigned row, unsigned chunk) {
    constexpr int CHUNKS = N / CHUNK, ROWS_OF_A_LINE = CHUNKS < 8 ? 8 / CHUNKS : 1;
    constexpr int SHIFTS = CHUNKS < 8 ? CHUNKS : 8;
    const unsigned shifted = chunk ^ (row / ROWS_OF_A_LINE % SHIFTS);
    return rows * N + chunks / SHIFTS * SHIFTS * CHUNK +
           (int)(row * N + (shifted ^ (unsigned)(chunks % SHIFTS)) * CHUNK);
}

static __device__ unsigned lane_of_warp(void) {
    return threadIdx.x % CUDA_WARP;
}

/* The thread's columns in sums of eight columns; and its rows: this one and the eighth behind. */
static __device__ int own_column(int i) {
    return (int)(lane_of_warp() % 4) * 2 + i % 2;
}
static __device__ int own_row(int i) {
    return (int)(threadIdx.x / CUDA_WARP * ROWS + lane_of_warp() / 4) + i / 2 * 8;
}
static __device__ int first_row_of_warp(void) {
    return (int)(threadIdx.x / CUDA_WARP) * ROWS;
}

/* Whole chunks: a size that is a multiple of them, so that each is aligned. */
static __device__ bool has_whole_chunks(const cuda_attention_job &job) {
    return job.size % CHUNK == 0;
}

/* Up to `count` values, zero behind them. */
template <typename T> static __device__ cuda_pack<T, CHUNK> pick_chunk(const T *from, int count) {
    cuda_pack<T, CHUNK> chunk = {};
    for (int i = 0; i < CHUNK; i++)
        if (i < count) chunk.at[i] = from[i];
    return chunk;
}

/* The block begins to load COUNT positions from `first` on, zero past the last position and the
 * last feature. */
template <typename C, int COUNT, typename T>
static __device__ void load_rows(T *to, const head_values<const T> &from,
                                 const cuda_attention_job &job, int first) {
    constexpr int CHUNKS = C::N / CHUNK, ROWS_AT_ONCE = C::THREADS / CHUNKS;
    const unsigned thread = thread_again(), chunk = thread % CHUNKS;
    const int feature = (int)chunk * CHUNK;
#pragma unroll 1
    for (int row = (int)thread / CHUNKS; row < COUNT; row += ROWS_AT_ONCE) {
        cuda_pack<T, CHUNK> *place = reinterpret_cast<cuda_pack<T, CHUNK> *>(
            to + place_of<C::N>(0, 0, (unsigned)row, chunk));
        const T *source = from.at + (size_t)(first + row) * from.stride + feature;
        if (first + row >= job.positions || feature >= job.size)
            *place = {};
        else if (has_whole_chunks(job))
            copy_async(place, source);
        else
            *place = pick_chunk(source, job.size - feature);
    }
}

/* The features of the warp's own positions, as operands of products. */
template <typename C> using own_values = uint32_t[C::N / 16][4];

/* A part of the results of the own positions. */
template <typename C> using part_sums = float[C::PART / 8][4];

template <typename C, typename T>
static __device__ void take_own(uint32_t (&to)[4], const T *stage, int k) {
    unsigned lane = lane_of_warp();
    tensor_load(
        to, stage + place_of<C::N>(0, 2 * k, (unsigned)first_row_of_warp() + lane % 16, lane / 16));
}

template <typename C, typename T>
static __device__ void stage_own(T *stage, const head_values<const T> &from,
                                 const cuda_attention_job &job, const head_of_row &place) {
    __syncthreads();
    load_rows<C, C::OWNED>(stage, from, job, place.first);
    copy_wait();
    __syncthreads();
}

template <typename C, typename T>
static __device__ void load_own(own_values<C> &to, T *stage, const head_values<const T> &from,
                                const cuda_attention_job &job, const head_of_row &place) {
    stage_own<C>(stage, from, job, place);
#pragma unroll
    for (int k = 0; k < C::N / 16; k++)
        take_own<C>(to[k], stage, k);
}

/* Features `feature` to `feature` + PART of the own positions; factors: of the thread's two rows.
 */
template <typename C, typename T>
static __device__ void store_own(const head_values<T> &to, T *stage, const part_sums<C> &from,
                                 const float (&factors)[2], const cuda_attention_job &job,
                                 const head_of_row &place, int feature) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < C::PART / 8; n++)
        for (int i = 0; i < 4; i += 2) {
            uint32_t pair =
                tensor_pair<T>::pack(from[n][i] * factors[i / 2], from[n][i + 1] * factors[i / 2]);
            T *at =
                stage + place_of<C::PART>(0, 0, (unsigned)own_row(i), (unsigned)n) + own_column(0);
            *reinterpret_cast<uint32_t *>(at) = pair;
        }
    __syncthreads();
    constexpr int CHUNKS = C::PART / CHUNK;
    for (int e = (int)threadIdx.x; e < C::OWNED * CHUNKS; e += C::THREADS) {
        int row = e / CHUNKS, first = feature + e % CHUNKS * CHUNK, position = place.first + row;
        if (position >= job.positions || first >= job.size) continue;
        T *at = to.at + (size_t)position * to.stride + first;
        auto chunk = cuda_load<CHUNK>(
            stage + place_of<C::PART>(0, 0, (unsigned)row, (unsigned)(e % CHUNKS)));
        if (has_whole_chunks(job))
            *reinterpret_cast<cuda_pack<T, CHUNK> *>(at) = chunk;
        else
            for (int i = 0; i < CHUNK; i++)
                if (first + i < job.size) at[i] = chunk.at[i];
    }
}

/* Products of the own positions and those of a tile. */
template <typename C> using tile_sums = float[C::STEP / 8][4];
template <typename C> using tile_weights = uint32_t[C::STEP / 16][4];

/* sums[own, tile] = own values * the tile's. */
template <typename T, typename C>
static __device__ void multiply_rows(tile_sums<C> &sums, const own_values<C> &own, const T *rows) {
    unsigned lane = lane_of_warp(), row = lane / 16 * 8 + lane % 8, chunk = lane / 8 % 2;
#pragma unroll
    for (int n = 0; n < C::STEP / 8; n++)
        for (int i = 0; i < 4; i++)
            sums[n][i] = 0;
#pragma unroll
    for (int k = 0; k < C::N / 16; k++)
#pragma unroll
        for (int n = 0; n < C::STEP / 16; n++) {
            uint32_t b[4];
            tensor_load(b, rows + place_of<C::N>(16 * n, 2 * k, row, chunk));
            tensor_multiply<T>(sums[2 * n], own[k], b[0], b[1]);
            tensor_multiply<T>(sums[2 * n + 1], own[k], b[2], b[3]);
        }
}

template <typename T, typename C>
static __device__ void as_weights(tile_weights<C> &to, const tile_sums<C> &from) {
#pragma unroll
    for (int k = 0; k < C::STEP / 16; k++)
        tensor_pack<T>(to[k], from[2 * k], from[2 * k + 1]);
}

/* to[own, PART features from `feature` on] += weights[own, tile] * the tile's features. */
template <typename T, typename C>
static __device__ void add_rows(part_sums<C> &to, const tile_weights<C> &weights, const T *rows,
                                int feature) {
    unsigned lane = lane_of_warp(), row = lane % 16, chunk = lane / 16;
    rows += feature; /* 0, or a multiple of 64 */
#pragma unroll
    for (int k = 0; k < C::STEP / 16; k++)
#pragma unroll
        for (int n = 0; n < C::PART / 16; n++) {
            uint32_t b[4];
            tensor_load_transposed(b, rows + place_of<C::N>(16 * k, 2 * n, row, chunk));
            tensor_multiply<T>(to[2 * n], weights[k], b[0], b[1]);
            tensor_multiply<T>(to[2 * n + 1], weights[k], b[2], b[3]);
        }
}

/* Over the four threads that share a row. */
static __device__ float row_sum(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
static __device__ float row_largest(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

/* Queries own: the block's place, the last ones first, since with a causal mask they take longest.
 */
template <typename C>
static __device__ head_of_row query_place(const cuda_attention_job &job, unsigned at) {
    unsigned blocks = ((unsigned)job.positions + C::OWNED - 1) / C::OWNED;
    return {at / blocks, (int)(blocks - 1 - at % blocks) * C::OWNED};
}

/* Whether all own queries of the warp read none, or all, of C::STEP keys. */
template <typename C>
static __device__ bool reads_none(const cuda_attention_job &job, const head_of_row &place,
                                  int first) {
    int query = place.first + first_row_of_warp();
    return first >= job.positions || query >= job.positions ||
           (job.causal && first >= query + ROWS);
}
template <typename C>
static __device__ bool reads_all(const cuda_attention_job &job, const head_of_row &place,
                                 int first) {
    int query = place.first + first_row_of_warp(), last = first + C::STEP - 1;
    return last < job.positions && (!job.causal || last <= query);
}

/* Scores that do not count get the weight 0. */
template <typename C>
static __device__ void hide_unread(tile_sums<C> &scores, const cuda_attention_job &job,
                                   const head_of_row &place, int first) {
#pragma unroll
    for (int n = 0; n < C::STEP / 8; n++)
        for (int i = 0; i < 4; i++)
            if (!reads(job, place.first + own_row(i), first + 8 * n + own_column(i)))
                scores[n][i] = -INFINITY;
}

/* Two tiles of the same positions, behind each other. */
template <typename T, typename C>
static __device__ void load_tiles(T *to, const head_values<const T> &first_values,
                                  const head_values<const T> &second_values,
                                  const cuda_attention_job &job, int first) {
    load_rows<C, C::TILE>(to, first_values, job, first);
    load_rows<C, C::TILE>(to + C::TILE * C::N, second_values, job, first);
}

/* What a query has read so far, of the thread's two rows: the largest score, in powers of two, the
 * sum of the weights relative to it, and of the values so weighed. */
template <typename C> struct forward_sums { float output[C::N / 8][4], largest[2], sum[2]; };

/* Reads C::STEP keys; the values lie a tile behind them. */
template <typename T, typename C>
static __device__ void read_keys(forward_sums<C> &to, const own_values<C> &query, const T *keys,
                                 const cuda_attention_job &job, const head_of_row &place,
                                 int first) {
    const float scale = scale_of(job) * LOG2_E;
    tile_sums<C> scores;
    multiply_rows<T, C>(scores, query, keys);
    if (!reads_all<C>(job, place, first)) hide_unread<C>(scores, job, place, first);
    float largest[2] = {-INFINITY, -INFINITY}, rescale[2];
#pragma unroll
    for (int n = 0; n < C::STEP / 8; n++)
        for (int i = 0; i < 4; i++)
            largest[i / 2] = fmaxf(largest[i / 2], scores[n][i]);
#pragma unroll
    for (int h = 0; h < 2; h++) { /* the first step has key 0, which every query reads */
        float larger = fmaxf(to.largest[h], scale * row_largest(largest[h]));
        rescale[h] = fast_exp2(to.largest[h] - larger);
        to.largest[h] = larger;
        to.sum[h] *= rescale[h];
    }
#pragma unroll
    for (int n = 0; n < C::N / 8; n++)
        for (int i = 0; i < 4; i++)
            to.output[n][i] *= rescale[i / 2];
#pragma unroll
    for (int n = 0; n < C::STEP / 8; n++)
        for (int i = 0; i < 4; i++) {
            scores[n][i] = fast_exp2(scores[n][i] * scale - to.largest[i / 2]);
            to.sum[i / 2] += scores[n][i];
        }
    tile_weights<C> weights;
    as_weights<T, C>(weights, scores);
    add_rows<T, C>(to.output, weights, keys + C::TILE * C::N, 0);
}

template <typename T, typename C>
static __global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    tensor_forward(cuda_attention_job job) {
    alignas(16) __shared__ T stage[C::STAGE];
    const head_of_row place = query_place<C>(job, blockIdx.x);
    const auto keys = input_of<T>(job, place, 1), values = input_of<T>(job, place, 2);
    const int end = keys_end(job, place.first + C::OWNED);
    own_values<C> query;
    forward_sums<C> sums = {{}, {-INFINITY, -INFINITY}, {}};
    load_own<C>(query, stage, input_of<T>(job, place, 0), job, place);
    __syncthreads();
    load_tiles<T, C>(stage, keys, values, job, 0);
    for (int first = 0, next = 1; first < end; first += C::TILE, next = 1 - next) {
        copy_wait();
        __syncthreads();
        if (first + C::TILE < end)
            load_tiles<T, C>(stage + next * C::BUFFER, keys, values, job, first + C::TILE);
        const T *tiles = stage + (1 - next) * C::BUFFER;
#pragma unroll 1
        for (int step = 0; step < C::TILE; step += C::STEP)
            if (!reads_none<C>(job, place, first + step))
                read_keys<T, C>(sums, query, tiles + step * C::N, job, place, first + step);
    }
    float factors[2];
    for (int h = 0; h < 2; h++) {
        int position = place.first + own_row(2 * h);
        float sum = row_sum(sums.sum[h]);
        factors[h] = 1 / sum;
        if (job.log_sum != NULL && position < job.positions && lane_of_warp() % 4 == 0)
            job.log_sum[statistic(job, place, position)] = sums.largest[h] * LN_2 + logf(sum);
    }
    store_own<C>(values_of(job, (T *)job.output, place, 1, 0), stage, sums.output, factors, job,
                 place, 0);
}

/* g . output for the thread's two rows. */
template <typename T, typename C>
static __device__ void dot_output(float (&products)[2], const own_values<C> &gradient,
                                  const T *stage) {
    products[0] = products[1] = 0;
#pragma unroll
    for (int k = 0; k < C::N / 16; k++) {
        uint32_t output[4];
        take_own<C>(output, stage, k);
        for (int i = 0; i < 4; i++)
            products[i % 2] +=
                tensor_pair<T>::low(gradient[k][i]) * tensor_pair<T>::low(output[i]) +
                tensor_pair<T>::high(gradient[k][i]) * tensor_pair<T>::high(output[i]);
    }
    for (int h = 0; h < 2; h++)
        products[h] = row_sum(products[h]);
}

/* With weight p = e^(score - log_sum) and the gradient g of the output, the score's gradient is
 * p * (g . v - g . output); g . output is stored for the kernel below. */
template <typename T, typename C>
static __global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    tensor_query_gradient(cuda_attention_job job) {
    alignas(16) __shared__ T stage[C::STAGE];
    const head_of_row place = query_place<C>(job, blockIdx.x / C::PARTS);
    const int part = (int)(blockIdx.x % C::PARTS) * C::PART;
    const auto keys = input_of<T>(job, place, 1), values = input_of<T>(job, place, 2);
    const float scale = scale_of(job) * LOG2_E;
    const int end = keys_end(job, place.first + C::OWNED);
    own_values<C> query, gradient;
    float result[C::PART / 8][4] = {}, products[2], log_sums[2];
    load_own<C>(gradient, stage, values_of(job, (const T *)job.output_gradient, place, 1, 0), job,
                place);
    stage_own<C>(stage, values_of(job, (const T *)job.output, place, 1, 0), job, place);
    dot_output<T, C>(products, gradient, stage);
    load_own<C>(query, stage, input_of<T>(job, place, 0), job, place);
    for (int h = 0; h < 2; h++) {
        int position = place.first + own_row(2 * h);
        bool exists = position < job.positions;
        log_sums[h] = exists ? job.log_sum[statistic(job, place, position)] * LOG2_E : 0;
        if (exists && part == 0 && lane_of_warp() % 4 == 0)
            job.product[statistic(job, place, position)] = products[h];
    }
    __syncthreads();
    load_tiles<T, C>(stage, keys, values, job, 0);
    for (int first = 0, next = 1; first < end; first += C::TILE, next = 1 - next) {
        copy_wait();
        __syncthreads();
        if (first + C::TILE < end)
            load_tiles<T, C>(stage + next * C::BUFFER, keys, values, job, first + C::TILE);
        if (reads_none<C>(job, place, first)) continue;
        const T *tiles = stage + (1 - next) * C::BUFFER;
        tile_sums<C> scores, changes;
        multiply_rows<T, C>(scores, query, tiles);
        multiply_rows<T, C>(changes, gradient, tiles + C::TILE * C::N);
        if (!reads_all<C>(job, place, first)) hide_unread<C>(scores, job, place, first);
#pragma unroll
        for (int n = 0; n < C::STEP / 8; n++)
            for (int i = 0; i < 4; i++)
                scores[n][i] = fast_exp2(scores[n][i] * scale - log_sums[i / 2]) *
                               (changes[n][i] - products[i / 2]);
        tile_weights<C> weights;
        as_weights<T, C>(weights, scores);
        add_rows<T, C>(result, weights, tiles, part);
    }
    const float factors[2] = {scale_of(job), scale_of(job)};
    store_own<C>(values_of(job, (T *)job.input_gradient, place, 3, 0), stage, result, factors, job,
                 place, part);
}

/* What forward and the queries' gradient have found for each query of a tile. */
template <typename C> struct query_statistics { float log_sums[C::TILE], products[C::TILE]; };

template <typename C>
static __device__ void load_statistics(query_statistics<C> &to, const cuda_attention_job &job,
                                       const head_of_row &place, int first) {
    for (int j = (int)thread_again(); j < C::TILE; j += C::THREADS) {
        bool exists = first + j < job.positions;
        size_t at = exists ? statistic(job, place, first + j) : 0;
        to.log_sums[j] = exists ? job.log_sum[at] * LOG2_E : 0;
        to.products[j] = exists ? job.product[at] : 0;
    }
}

/* As hide_unread, for scores [keys, queries]. */
template <typename C>
static __device__ void hide_unreading(tile_sums<C> &scores, const cuda_attention_job &job,
                                      const head_of_row &place, int first) {
#pragma unroll
    for (int n = 0; n < C::STEP / 8; n++)
        for (int i = 0; i < 4; i++) {
            int query = first + 8 * n + own_column(i), key = place.first + own_row(i);
            if (query >= job.positions || !reads(job, query, key)) scores[n][i] = -INFINITY;
        }
}

/* Adds what the queries from `first` on, C::STEP of them, give the own keys and values. Their tiles
 * and statistics begin at `step`. Scores are transposed: [keys, queries]. */
template <typename T, typename C>
static __device__ void add_key_gradients(part_sums<C> &key_result, part_sums<C> &value_result,
                                         const own_values<C> &key, const own_values<C> &value,
                                         const T *queries, const query_statistics<C> &of_query,
                                         int step, const cuda_attention_job &job,
                                         const head_of_row &place, int first, int part) {
    const T *gradients = queries + C::TILE * C::N;
    const float scale = scale_of(job) * LOG2_E;
    tile_sums<C> scores, changes;
    tile_weights<C> weights;
    multiply_rows<T, C>(scores, key, queries);
    multiply_rows<T, C>(changes, value, gradients);
    if (first + C::STEP > job.positions ||
        (job.causal && first < place.first + first_row_of_warp() + ROWS))
        hide_unreading<C>(scores, job, place, first);
#pragma unroll
    for (int n = 0; n < C::STEP / 8; n++)
        for (int i = 0; i < 4; i++) {
            int column = step + 8 * n + own_column(i);
            scores[n][i] = fast_exp2(scores[n][i] * scale - of_query.log_sums[column]);
            changes[n][i] = scores[n][i] * (changes[n][i] - of_query.products[column]);
        }
    as_weights<T, C>(weights, scores);
    add_rows<T, C>(value_result, weights, gradients, part);
    as_weights<T, C>(weights, changes);
    add_rows<T, C>(key_result, weights, queries, part);
}

/* Keys own. */
template <typename T, typename C>
static __global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    tensor_key_value_gradient(cuda_attention_job job) {
    alignas(16) __shared__ T stage[C::STAGE];
    __shared__ query_statistics<C> statistics[2];
    const unsigned blocks = ((unsigned)job.positions + C::OWNED - 1) / C::OWNED;
    const unsigned at = blockIdx.x / C::PARTS;
    const head_of_row place = {at / blocks, (int)(at % blocks) * C::OWNED};
    const int part = (int)(blockIdx.x % C::PARTS) * C::PART;
    const auto queries = input_of<T>(job, place, 0);
    const auto gradients = values_of(job, (const T *)job.output_gradient, place, 1, 0);
    const int begin = job.causal ? place.first / C::TILE * C::TILE : 0;
    const int first_key = place.first + first_row_of_warp();
    own_values<C> key, value;
    float key_result[C::PART / 8][4] = {}, value_result[C::PART / 8][4] = {};
    load_own<C>(key, stage, input_of<T>(job, place, 1), job, place);
    load_own<C>(value, stage, input_of<T>(job, place, 2), job, place);
    __syncthreads();
    load_tiles<T, C>(stage, queries, gradients, job, begin);
    load_statistics<C>(statistics[0], job, place, begin);
    for (int first = begin, next = 1; first < job.positions; first += C::TILE, next = 1 - next) {
        T *const tiles = stage + (1 - next) * C::BUFFER;
        copy_wait();
        __syncthreads();
        if (first + C::TILE < job.positions) {
            load_tiles<T, C>(stage + next * C::BUFFER, queries, gradients, job, first + C::TILE);
            load_statistics<C>(statistics[next], job, place, first + C::TILE);
        }
#pragma unroll 1
        for (int step = 0; step < C::TILE && first_key < job.positions; step += C::STEP) {
            if (job.causal && first + step + C::STEP <= first_key) continue;
            add_key_gradients<T, C>(key_result, value_result, key, value, tiles + step * C::N,
                                    statistics[1 - next], step, job, place, first + step, part);
        }
    }
    const float key_factors[2] = {scale_of(job), scale_of(job)}, value_factors[2] = {1, 1};
    store_own<C>(values_of(job, (T *)job.input_gradient, place, 3, 1), stage, key_result,
                 key_factors, job, place, part);
    store_own<C>(values_of(job, (T *)job.input_gradient, place, 3, 2), stage, value_result,
                 value_factors, job, place, part);
}

template <typename T, int N>
static void launch_forward(const cuda_attention_job *job, cudaStream_t stream) {
    using C = forward_cut<N>;
    LAUNCH_BLOCK((tensor_forward<T, C>), attention_blocks(job, C::OWNED), C::THREADS, stream, *job);
}

template <typename T, int N>
static void launch_backward(const cuda_attention_job *job, cudaStream_t stream) {
    using Q = query_cut<N>;
    using K = key_cut<N>;
    LAUNCH_BLOCK((tensor_query_gradient<T, Q>), attention_blocks(job, Q::OWNED) * Q::PARTS,
                 Q::THREADS, stream, *job);
    LAUNCH_BLOCK((tensor_key_value_gradient<T, K>), attention_blocks(job, K::OWNED) * K::PARTS,
                 K::THREADS, stream, *job);
}

/* Calls function<T, N> with the values' type, of 16 bits. */
#define BY_TYPE_AND_SIZE(function, type_of_values, size, ...)                                      \
    cuda_by_type(type_of_values, [&](auto of) {                                                    \
        using T = typename decltype(of)::type;                                                     \
        if constexpr (sizeof(T) == 2) ATTENTION_BY_SIZE(function, T, size, __VA_ARGS__);           \
    })

void attention_tensor_forward(const cuda_attention_job *job, cudaStream_t stream) {
    BY_TYPE_AND_SIZE(launch_forward, job->type, job->size, job, stream);
}

void attention_tensor_backward(const cuda_attention_job *job, cudaStream_t stream) {
    BY_TYPE_AND_SIZE(launch_backward, job->type, job->size, job, stream);
}
