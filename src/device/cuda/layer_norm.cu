/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm. Features that are whole packs, as many as threads hold in registers, are read once:
 * by a warp for each position, or by a block. Backward then also sums the gradients of weight and
 * bias over the positions of a block, and a second kernel adds the blocks in order. Other features
 * are read again for each sum. */
#include <math.h>

#include "device/cuda/columns.h"
#include "device/cuda/kernels.h"

constexpr int PARTS = 64;
constexpr size_t PART_POSITIONS = 8; /* at least, in each part but the last */

/* Adjacent ranges of positions. */
typedef struct division {
    size_t positions; /* of each but the last */
    int parts;
} division;

static division divide(size_t positions) {
    size_t each = (positions + PARTS - 1) / PARTS;
    if (each < PART_POSITIONS) each = PART_POSITIONS;
    return {each, (int)((positions + each - 1) / each)};
}

/* N elements of the input, which are those of a sum, rounded as the sum is where it is kept. */
template <typename T, int N>
static __device__ cuda_pack<T, N> read_input(const cuda_layer_norm_job &job, size_t at) {
    if (job.sum == NULL) return cuda_load<N>((const T *)job.input + at);
    cuda_pack<T, N> pack = cuda_load<N>((const T *)job.summands[0] + at);
    const cuda_pack<T, N> other = cuda_load<N>((const T *)job.summands[1] + at);
    for (int j = 0; j < N; j++)
        cuda_narrow(cuda_widen(pack.at[j]) + cuda_widen(other.at[j]), &pack.at[j]);
    *reinterpret_cast<cuda_pack<T, N> *>((T *)job.sum + at) = pack;
    return pack;
}

template <typename T> static __global__ void normalise(cuda_layer_norm_job job) {
    __shared__ float part[CUDA_WARP];
    size_t features = (size_t)job.features;
    for (size_t position = blockIdx.x; position < job.positions; position += gridDim.x) {
        const T *x = (const T *)job.input + position * features;
        T *y = (T *)job.output + position * features;
        float sum = 0, square = 0;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x)
            sum += cuda_widen(read_input<T, 1>(job, position * features + i).at[0]);
        float mean = cuda_block_sum(sum, part) / (float)job.features;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
            float off = cuda_widen(x[i]) - mean;
            square += off * off;
        }
        float variance = cuda_block_sum(square, part) / (float)job.features;
        float reciprocal = 1 / sqrtf(variance + job.epsilon);
        for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
            float value = (cuda_widen(x[i]) - mean) * reciprocal;
            cuda_narrow(value * job.weight[i] + job.bias[i], &y[i]);
        }
        if (threadIdx.x == 0 && job.saved != NULL) job.saved[position] = {mean, reciprocal};
    }
}

/* dx = reciprocal * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * weight; dx may be dy. */
template <typename T> static __global__ void differentiate(cuda_layer_norm_job job) {
    __shared__ float part[CUDA_WARP];
    size_t features = (size_t)job.features;
    for (size_t position = blockIdx.x; position < job.positions; position += gridDim.x) {
        const T *x = (const T *)job.input + position * features;
        const T *dy = (const T *)job.output_gradient + position * features;
        T *dx = (T *)job.input_gradient + position * features;
        cuda_layer_norm_moments m = job.saved[position];
        float sum = 0, projection = 0;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
            float g = cuda_widen(dy[i]) * job.weight[i];
            sum += g;
            projection += g * (cuda_widen(x[i]) - m.mean) * m.reciprocal;
        }
        sum = cuda_block_sum(sum, part) / (float)job.features;
        projection = cuda_block_sum(projection, part) / (float)job.features;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
            float g = cuda_widen(dy[i]) * job.weight[i];
            float xhat = (cuda_widen(x[i]) - m.mean) * m.reciprocal;
            float gradient = m.reciprocal * (g - sum - xhat * projection);
            cuda_narrow(job.adds ? cuda_widen(dx[i]) + gradient : gradient, &dx[i]);
        }
    }
}

/* partial: [parts, 2, features]. */
template <typename T> static __global__ void sum_part(cuda_layer_norm_job job, division cut) {
    size_t features = (size_t)job.features;
    GRID_STRIDE(k, (size_t)cut.parts * features) {
        size_t part = k / features, i = k % features;
        size_t begin = part * cut.positions, end = begin + cut.positions;
        if (end > job.positions) end = job.positions;
        float weight = 0, bias = 0;
        for (size_t position = begin; position < end; position++) {
            cuda_layer_norm_moments m = job.saved[position];
            size_t at = position * features + i;
            float dy = cuda_widen(((const T *)job.output_gradient)[at]);
            weight += dy * (cuda_widen(((const T *)job.input)[at]) - m.mean) * m.reciprocal;
            bias += dy;
        }
        job.partial[2 * part * features + i] = weight;
        job.partial[(2 * part + 1) * features + i] = bias;
    }
}

constexpr int ADDED_COLUMNS = 32; /* by one block */

static __global__ void add_parts(cuda_layer_norm_job job, int parts) {
    __shared__ float room[CUDA_COLUMN_ROOM(1, ADDED_COLUMNS)];
    size_t features = (size_t)job.features;
    size_t k = (size_t)blockIdx.x * ADDED_COLUMNS + threadIdx.x % ADDED_COLUMNS;
    bool real = k < 2 * features;
    float sum[1] = {0};
#pragma unroll 4
    for (int part = (int)threadIdx.x / ADDED_COLUMNS; real && part < parts;
         part += CUDA_THREADS / ADDED_COLUMNS)
        sum[0] += job.partial[2 * (size_t)part * features + k];
    cuda_sum_columns<1, ADDED_COLUMNS>(sum, room);
    if (threadIdx.x >= ADDED_COLUMNS || !real) return;
    float *gradient = k < features ? job.weight_gradient : job.bias_gradient;
    if (gradient != NULL) gradient[k % features] = sum[0];
}

/* Positions in registers. */

constexpr int KEPT = 4; /* packs that a thread holds */
constexpr int BLOCK_WARPS = CUDA_POSITION_THREADS / CUDA_WARP;
constexpr int RESIDENT = 3; /* blocks of backward that a multiprocessor runs at once, at least */

/* The packs of one position that this thread holds, of WARPS warps: lane, lane + LANES, ... */
template <int N, int WARPS> struct lanes {
    static constexpr int LANES = WARPS * CUDA_WARP, POSITIONS = BLOCK_WARPS / WARPS;
    int lane, packs;

    __device__ lanes(const cuda_layer_norm_job &job)
        : lane((int)threadIdx.x % LANES), packs(job.features / N) {}
    /* Calls use(k, feature) for pack k of those that this thread has. */
    template <typename Use> __device__ void each(Use use) const {
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            if (lane + k * LANES < packs) use(k, (size_t)(lane + k * LANES) * N);
    }
    /* The block's first position; the others follow. */
    static __device__ size_t position() {
        return (size_t)blockIdx.x * POSITIONS + threadIdx.x / LANES;
    }
    static __device__ size_t stride() {
        return (size_t)gridDim.x * POSITIONS;
    }
};

/* Sum over the threads of a position. */
template <int WARPS> static __device__ float sum_position(float value, float *part) {
    if constexpr (WARPS == BLOCK_WARPS) {
        return cuda_block_sum(value, part);
    } else {
        for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2)
            value += __shfl_xor_sync(0xffffffffu, value, lane);
        return value;
    }
}

template <int N> static __device__ void load_floats(float (&to)[N], const float *from) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        cuda_pack<float, 4> pack = cuda_load<4>(from + i);
        for (int k = 0; k < 4; k++)
            to[i + k] = pack.at[k];
    }
}

template <typename T, int N, int WARPS>
static __global__ void __launch_bounds__(CUDA_POSITION_THREADS)
    normalise_kept(cuda_layer_norm_job job) {
    __shared__ float part[CUDA_WARP];
    const lanes<N, WARPS> own(job);
    for (size_t position = own.position(); position < job.positions; position += own.stride()) {
        size_t row = position * (size_t)job.features;
        cuda_pack<T, N> x[KEPT] = {};
        float sum = 0, square = 0;
        own.each([&](int k, size_t i) { x[k] = read_input<T, N>(job, row + i); });
        own.each([&](int k, size_t) {
            for (int j = 0; j < N; j++)
                sum += cuda_widen(x[k].at[j]);
        });
        float mean = sum_position<WARPS>(sum, part) / (float)job.features;
        own.each([&](int k, size_t) {
            for (int j = 0; j < N; j++) {
                float off = cuda_widen(x[k].at[j]) - mean;
                square += off * off;
            }
        });
        float variance = sum_position<WARPS>(square, part) / (float)job.features;
        float reciprocal = 1 / sqrtf(variance + job.epsilon);
        own.each([&](int k, size_t i) {
            float weight[N], bias[N], y[N];
            load_floats(weight, job.weight + i);
            load_floats(bias, job.bias + i);
            for (int j = 0; j < N; j++)
                y[j] = (cuda_widen(x[k].at[j]) - mean) * reciprocal * weight[j] + bias[j];
            cuda_store<T, N>((T *)job.output + row + i, y);
        });
        if (own.lane == 0 && job.saved != NULL) job.saved[position] = {mean, reciprocal};
    }
}

/* The sums of a thread over its positions: of dy * xhat, and of dy. */
template <int N> struct feature_sums { float weight[KEPT][N], bias[KEPT][N]; };

/* Adds those of the block's positions, in their order, and writes them as a part. */
template <int N, int WARPS>
static __device__ void keep_sums(const cuda_layer_norm_job &job, const lanes<N, WARPS> &own,
                                 const feature_sums<N> &sums) {
    float *part = job.partial + 2 * (size_t)blockIdx.x * (size_t)job.features;
    for (unsigned turn = 0; turn < own.POSITIONS; turn++) {
        if (threadIdx.x / own.LANES == turn)
            own.each([&](int k, size_t i) {
                float *weight = part + i, *bias = weight + job.features;
                for (int j = 0; j < N; j++) {
                    weight[j] = (turn == 0 ? 0 : weight[j]) + sums.weight[k][j];
                    bias[j] = (turn == 0 ? 0 : bias[j]) + sums.bias[k][j];
                }
            });
        __syncthreads();
    }
}

template <typename T, int N, int WARPS>
static __global__ void __launch_bounds__(CUDA_POSITION_THREADS, RESIDENT)
    differentiate_kept(cuda_layer_norm_job job) {
    __shared__ float part[CUDA_WARP];
    const lanes<N, WARPS> own(job);
    feature_sums<N> sums = {};
    for (size_t position = own.position(); position < job.positions; position += own.stride()) {
        size_t row = position * (size_t)job.features;
        T *dx = (T *)job.input_gradient + row;
        cuda_layer_norm_moments m = job.saved[position];
        cuda_pack<T, N> x[KEPT] = {}, dy[KEPT] = {};
        float sum = 0, projection = 0;
        own.each([&](int k, size_t i) {
            x[k] = cuda_load<N>((const T *)job.input + row + i);
            dy[k] = cuda_load<N>((const T *)job.output_gradient + row + i);
        });
        own.each([&](int k, size_t i) {
            float weight[N];
            load_floats(weight, job.weight + i);
            for (int j = 0; j < N; j++) {
                float xhat = (cuda_widen(x[k].at[j]) - m.mean) * m.reciprocal;
                float own_dy = cuda_widen(dy[k].at[j]), g = own_dy * weight[j];
                sum += g;
                projection += g * xhat;
                sums.weight[k][j] += own_dy * xhat;
                sums.bias[k][j] += own_dy;
            }
        });
        if (job.input_gradient == NULL) continue;
        sum = sum_position<WARPS>(sum, part) / (float)job.features;
        projection = sum_position<WARPS>(projection, part) / (float)job.features;
        own.each([&](int k, size_t i) {
            float weight[N], result[N];
            cuda_pack<T, N> before = {};
            if (job.adds) before = cuda_load<N>(dx + i);
            load_floats(weight, job.weight + i);
            for (int j = 0; j < N; j++) {
                float g = cuda_widen(dy[k].at[j]) * weight[j];
                float xhat = (cuda_widen(x[k].at[j]) - m.mean) * m.reciprocal;
                float gradient = m.reciprocal * (g - sum - xhat * projection);
                result[j] = job.adds ? cuda_widen(before.at[j]) + gradient : gradient;
            }
            cuda_store<T, N>(dx + i, result);
        });
    }
    if (job.weight_gradient != NULL || job.bias_gradient != NULL) keep_sums(job, own, sums);
}

/* Launchers. */

/* Warps for a position; 0: its features do not fit. */
static int warps_for(size_t features, size_t pack) {
    size_t packs = features / pack, most = KEPT * CUDA_WARP;
    return features % pack != 0          ? 0
           : packs <= most               ? 1
           : packs <= BLOCK_WARPS * most ? BLOCK_WARPS
                                         : 0;
}

static int warps_of(const cuda_layer_norm_job *job) {
    return warps_for((size_t)job->features, 16 / cuda_type_bytes(job->type));
}

static unsigned kept_blocks(size_t positions, int warps, size_t most) {
    size_t each = (size_t)(BLOCK_WARPS / warps), blocks = (positions + each - 1) / each;
    return (unsigned)(blocks < most ? blocks : most);
}

static unsigned backward_blocks(const cuda_layer_norm_job *job) {
    return kept_blocks(job->positions, warps_of(job), (size_t)job->processors * RESIDENT);
}

template <typename T> static void forward(const cuda_layer_norm_job *job, cudaStream_t stream) {
    constexpr int N = 16 / sizeof(T);
    int warps = warps_of(job);
    unsigned blocks = warps > 0 ? kept_blocks(job->positions, warps, 1 << 20)
                                : cuda_position_blocks(job->positions);
    if (warps == 1)
        LAUNCH_BLOCK((normalise_kept<T, N, 1>), blocks, CUDA_POSITION_THREADS, stream, *job);
    else if (warps > 1)
        LAUNCH_BLOCK((normalise_kept<T, N, BLOCK_WARPS>), blocks, CUDA_POSITION_THREADS, stream,
                     *job);
    else
        LAUNCH_BLOCK(normalise<T>, blocks, CUDA_POSITION_THREADS, stream, *job);
}

static void launch_sum(const cuda_layer_norm_job *job, int parts, cudaStream_t stream) {
    unsigned blocks = (2 * (unsigned)job->features + ADDED_COLUMNS - 1) / ADDED_COLUMNS;
    LAUNCH_BLOCK(add_parts, blocks, CUDA_THREADS, stream, *job, parts);
}

/* The sums come first: dx may overwrite dy. */
template <typename T>
static void backward_again(const cuda_layer_norm_job *job, bool sums, cudaStream_t stream) {
    if (sums) {
        division cut = divide(job->positions);
        size_t count = (size_t)cut.parts * (size_t)job->features;
        LAUNCH(sum_part<T>, cuda_blocks(count), CUDA_THREADS, stream, *job, cut);
        launch_sum(job, cut.parts, stream);
    }
    if (job->input_gradient == NULL) return;
    LAUNCH_BLOCK(differentiate<T>, cuda_position_blocks(job->positions), CUDA_POSITION_THREADS,
                 stream, *job);
}

template <typename T> static void backward(const cuda_layer_norm_job *job, cudaStream_t stream) {
    constexpr int N = 16 / sizeof(T);
    int warps = warps_of(job);
    bool sums = job->weight_gradient != NULL || job->bias_gradient != NULL;
    if (warps == 0) {
        backward_again<T>(job, sums, stream);
        return;
    }
    unsigned blocks = backward_blocks(job);
    if (warps == 1)
        LAUNCH_BLOCK((differentiate_kept<T, N, 1>), blocks, CUDA_POSITION_THREADS, stream, *job);
    else
        LAUNCH_BLOCK((differentiate_kept<T, N, BLOCK_WARPS>), blocks, CUDA_POSITION_THREADS, stream,
                     *job);
    if (sums) launch_sum(job, (int)blocks, stream);
}

extern "C" size_t cuda_layer_norm_partial_bytes(const cuda_layer_norm_job *job) {
    size_t parts = warps_of(job) > 0 ? backward_blocks(job) : (size_t)divide(job->positions).parts;
    return parts * 2 * (size_t)job->features * sizeof(float);
}

extern "C" cudaError_t cuda_run_layer_norm(const cuda_layer_norm_job *job, cudaStream_t stream) {
    cuda_by_type(job->type, [&](auto of) { forward<typename decltype(of)::type>(job, stream); });
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_layer_norm_backward(const cuda_layer_norm_job *job,
                                                    cudaStream_t stream) {
    cuda_by_type(job->type, [&](auto of) { backward<typename decltype(of)::type>(job, stream); });
    return cudaGetLastError();
}
