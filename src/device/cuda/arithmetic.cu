/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on flat ranges: one pass each, limited by memory bandwidth. The operations and their
 * order are those of device/cpu/arithmetic.c, compiled without contraction, so the bits are the
 * same. */
#include <float.h>
#include <math.h>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/device.h"

constexpr int PACK = 4;               /* floats of one 16-byte access */
constexpr size_t SQUARE_BLOCK = 4096; /* the block of yoke_device_square_sum's definition */
constexpr int SQUARE_LANES = 16;
constexpr int SQUARE_THREADS = 64; /* small blocks: even a bucket of 1 MiB occupies the whole GPU */

/* The number of elements in whole packs: 0 if one of the ranges is not aligned for packs. */
static size_t packed(size_t elements, uintptr_t addresses) {
    return addresses % (PACK * sizeof(float)) == 0 ? elements / PACK * PACK : 0;
}

static uintptr_t address(const void *pointer) {
    return (uintptr_t)pointer;
}

/* Blocks for `whole` elements in packs and the other elements one by one. */
static unsigned pack_blocks(size_t elements, size_t whole) {
    return cuda_blocks(whole / PACK > elements - whole ? whole / PACK : elements - whole);
}

/* Sum: the tree of base/tree.h, from its leaves up: neighbours first, then pairs of pairs. A thread
 * loads the sources of a group at once and adds them, then adds the groups. */

constexpr int GROUP = 8;
static_assert(GROUP * GROUP >= CUDA_SOURCES, "two levels of groups hold all sources");

/* sums[0] = the tree over sums[count], count <= GROUP. */
template <int N> static __device__ void add_tree(cuda_pack<float, N> *sums, int count) {
#pragma unroll
    for (int apart = 1; apart < GROUP; apart *= 2)
#pragma unroll
        for (int k = 0; k + apart < GROUP; k += 2 * apart)
            if (k + apart < count)
                for (int lane = 0; lane < N; lane++)
                    sums[k].at[lane] += sums[k + apart].at[lane];
}

template <int N>
static __device__ cuda_pack<float, N> sum_group(const cuda_sum_job &job, int first, size_t at) {
    cuda_pack<float, N> sums[GROUP] = {};
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        if (first + k < job.count) sums[k] = cuda_load<N>(job.from[first + k] + at);
    add_tree<N>(sums, job.count - first);
    return sums[0];
}

template <int N> static __device__ void sum_at(const cuda_sum_job &job, size_t at) {
    cuda_pack<float, N> sums[GROUP] = {};
    int groups = (job.count + GROUP - 1) / GROUP;
    sums[0] = sum_group<N>(job, 0, at);
#pragma unroll
    for (int group = 1; group < GROUP; group++)
        if (group < groups) sums[group] = sum_group<N>(job, group * GROUP, at);
    add_tree<N>(sums, groups);
    cuda_store(job.to + at, sums[0].at);
}

static __global__ void sum(cuda_sum_job job, size_t whole) {
    GRID_STRIDE(i, whole / PACK) sum_at<PACK>(job, i * PACK);
    GRID_STRIDE(i, job.elements - whole) sum_at<1>(job, whole + i);
}

extern "C" cudaError_t cuda_run_sum(const cuda_sum_job *job, cudaStream_t stream) {
    uintptr_t addresses = address(job->to);
    for (int k = 0; k < job->count; k++)
        addresses |= address(job->from[k]);
    size_t whole = packed(job->elements, addresses);
    LAUNCH(sum, pack_blocks(job->elements, whole), CUDA_THREADS, stream, *job, whole);
    return cudaGetLastError();
}

/* Square sum: lane j of 16 adds elements j, j + 16, ... of a block in order, then lanes are folded
 * in pairs, then blocks are added in order. The square of a float is exact in double. */

static __device__ double square_lane(const float *values, size_t count, size_t lane) {
    double sum = 0;
#pragma unroll 16
    for (size_t i = lane; i < count; i += SQUARE_LANES)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

static __global__ void square_blocks(const float *values, size_t elements, double *sums) {
    size_t lane = threadIdx.x % SQUARE_LANES, groups = blockDim.x / SQUARE_LANES;
    size_t count = (elements + SQUARE_BLOCK - 1) / SQUARE_BLOCK;
    for (size_t first = blockIdx.x * groups; first < count; first += gridDim.x * groups) {
        size_t block = first + threadIdx.x / SQUARE_LANES, at = block * SQUARE_BLOCK;
        size_t left = at < elements ? elements - at : 0;
        double sum = square_lane(values + at, left < SQUARE_BLOCK ? left : SQUARE_BLOCK, lane);
        for (int by = SQUARE_LANES / 2; by > 0; by /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (lane == 0 && block < count) sums[block] = sum;
    }
}

/* Thread 0 adds, because the order is fixed; all threads load. Thread 0 returns the sum. */
static __device__ double fold(const double *values, size_t count) {
    __shared__ double part[CUDA_THREADS];
    double sum = 0;
    for (size_t first = 0; first < count; first += CUDA_THREADS) {
        size_t left = count - first < CUDA_THREADS ? count - first : CUDA_THREADS;
        if (threadIdx.x < left) part[threadIdx.x] = values[first + threadIdx.x];
        __syncthreads();
        for (size_t i = 0; threadIdx.x == 0 && i < left; i++)
            sum += part[i];
        __syncthreads();
    }
    return sum;
}

static __global__ void fold_blocks(const double *sums, size_t count, double *sum) {
    double total = fold(sums, count);
    if (threadIdx.x == 0) *sum = total;
}

extern "C" cudaError_t cuda_run_square_sum(const float *values, size_t elements, double *sum,
                                           cudaStream_t stream) {
    size_t count = (elements + SQUARE_BLOCK - 1) / SQUARE_BLOCK;
    if (count > 0)
        LAUNCH_BLOCK(square_blocks,
                     cuda_blocks(count * SQUARE_LANES * CUDA_THREADS / SQUARE_THREADS),
                     SQUARE_THREADS, stream, values, elements, sum + 1);
    LAUNCH_BLOCK(fold_blocks, 1, CUDA_THREADS, stream, sum + 1, count, sum);
    return cudaGetLastError();
}

/* Check. */

template <int N>
static __device__ void check_at(const float *values, size_t at, size_t offset,
                                uint64_t *first_bad) {
    cuda_pack<float, N> pack = cuda_load<N>(values + at);
    for (int lane = 0; lane < N; lane++)
        if (!(fabsf(pack.at[lane]) <= FLT_MAX))
            atomicMin((unsigned long long *)first_bad, (unsigned long long)(offset + at + lane));
}

static __global__ void check_finite(const float *values, size_t elements, size_t offset,
                                    uint64_t *first_bad, size_t whole) {
    GRID_STRIDE(i, whole / PACK) check_at<PACK>(values, i * PACK, offset, first_bad);
    GRID_STRIDE(i, elements - whole) check_at<1>(values, whole + i, offset, first_bad);
}

extern "C" cudaError_t cuda_run_check_finite(const float *values, size_t elements, size_t offset,
                                             uint64_t *first_bad, cudaStream_t stream) {
    size_t whole = packed(elements, address(values));
    LAUNCH(check_finite, pack_blocks(elements, whole), CUDA_THREADS, stream, values, elements,
           offset, first_bad, whole);
    return cudaGetLastError();
}

/* Gate. */

static __device__ bool is_finite(double value) {
    return fabs(value) <= DBL_MAX;
}

static __global__ void set_gate(yoke_gate *gate, yoke_gate_request request, const cuda_step *step) {
    double norm = 0, scale = 1, unscale = step != NULL ? step->unscale : request.unscale;
    if (request.clip_norm > 0) {
        norm = unscale * sqrt(fold(request.square_sums, (size_t)request.square_sum_count));
        scale = request.clip_norm / (norm + 1e-6);
    }
    if (threadIdx.x > 0) return;
    uint64_t first_bad = YOKE_ALL_FINITE;
    for (int i = 0; i < request.first_bad_count; i++)
        if (request.first_bad[i] < first_bad) first_bad = request.first_bad[i];
    bool reopens = request.unless_settled && step != NULL && step->settled;
    bool open = !request.closed && is_finite(norm) && first_bad == YOKE_ALL_FINITE &&
                !(request.stays_closed && !reopens && gate->closed) &&
                (request.found_nonfinite == NULL || *request.found_nonfinite == 0);
    for (int i = 0; i < request.loss_count; i++)
        open = is_finite(request.losses[i]) && open;
    gate->gradient_scale = (scale > 1 ? 1.0f : (float)scale) * (float)unscale;
    gate->closed = !open;
    gate->found_nonfinite = open ? 0.0f : nanf("");
    gate->norm = norm;
    gate->first_bad = first_bad;
}

extern "C" cudaError_t cuda_run_gate(yoke_gate *gate, const yoke_gate_request *request,
                                     const cuda_step *step, cudaStream_t stream) {
    LAUNCH_BLOCK(set_gate, 1, CUDA_THREADS, stream, gate, *request, step);
    return cudaGetLastError();
}

/* Undo. */

template <int N> static __device__ void undo_at(float *values, const float *kept, size_t at) {
    cuda_store(values + at, cuda_load<N>(kept + at).at);
}

static __global__ void undo(const yoke_gate *gate, float *values, const float *kept,
                            size_t elements, size_t whole) {
    if (!gate->closed) return;
    GRID_STRIDE(i, whole / PACK) undo_at<PACK>(values, kept, i * PACK);
    GRID_STRIDE(i, elements - whole) undo_at<1>(values, kept, whole + i);
}

extern "C" cudaError_t cuda_run_undo(const yoke_gate *gate, float *values, const float *kept,
                                     size_t elements, cudaStream_t stream) {
    size_t whole = packed(elements, address(values) | address(kept));
    LAUNCH(undo, pack_blocks(elements, whole), CUDA_THREADS, stream, gate, values, kept, elements,
           whole);
    return cudaGetLastError();
}

/* Updates keep in registers what they read before they write it to `kept`, which may be where the
 * gradients are. */

static __device__ bool is_closed(const yoke_gate *gate) {
    return gate != NULL && gate->closed;
}

template <int N>
static __device__ void keep(float *kept, size_t at, const cuda_pack<float, N> &values) {
    if (kept != NULL) cuda_store(kept + at, values.at);
}

template <int N>
static __device__ void write_shadow(const cuda_update_job &job, size_t at,
                                    const cuda_pack<float, N> &weights) {
    if (job.shadow == NULL) return;
    if (job.shadow_type == CUDA_FLOAT16)
        cuda_store((__half *)job.shadow + at, weights.at);
    else
        cuda_store((__nv_bfloat16 *)job.shadow + at, weights.at);
}

/* Packs of a shadow have half the bytes of those of its weights. */
static uintptr_t shadow_address(const void *shadow) {
    return 2 * address(shadow);
}

#define REAL float
#define FN(name) name##f
#define UPDATE_RULE(NAME, name, count, formula)                                                    \
    struct rule_##name {                                                                           \
        static constexpr int states = count;                                                       \
        static __device__ void run(const yoke_float_scalars &k, float &w, float g, float &m,       \
                                   float &v) {                                                     \
            (void)m, (void)v;                                                                      \
            formula;                                                                               \
        }                                                                                          \
    };
YOKE_UPDATES(UPDATE_RULE)

template <typename Rule, int N>
static __device__ void update_at(const cuda_update_job &job, const yoke_float_scalars &scalars,
                                 bool closed, float scale, size_t at) {
    cuda_pack<float, N> weights = cuda_load<N>(job.weights + at),
                        gradients = cuda_load<N>(job.gradients + at);
    cuda_pack<float, N> states[YOKE_UPDATE_STATES] = {};
#pragma unroll
    for (int i = 0; i < Rule::states; i++)
        states[i] = cuda_load<N>(job.states[i] + at);
    keep(job.kept_weights, at, weights);
#pragma unroll
    for (int i = 0; i < Rule::states; i++)
        keep(job.kept_states[i], at, states[i]);
    if (closed) return;
    for (int lane = 0; lane < N; lane++)
        Rule::run(scalars, weights.at[lane], gradients.at[lane] * scale, states[0].at[lane],
                  states[1].at[lane]);
#pragma unroll
    for (int i = 0; i < Rule::states; i++)
        cuda_store(job.states[i] + at, states[i].at);
    cuda_store(job.to + at, weights.at);
    write_shadow(job, at, weights);
}

template <typename Rule> static __global__ void update(cuda_update_job job, size_t whole) {
    bool closed = is_closed(job.gate);
    if (closed && job.kept_weights == NULL && job.kept_states[0] == NULL) return;
    bool clips = job.gate != NULL && !job.applies;
    float scale = job.gradient_scale * (clips ? job.gate->gradient_scale : 1);
    yoke_float_scalars scalars = job.in_memory != NULL ? *job.in_memory : job.scalars;
    GRID_STRIDE(i, whole / PACK) update_at<Rule, PACK>(job, scalars, closed, scale, i * PACK);
    GRID_STRIDE(i, job.elements - whole)
    update_at<Rule, 1>(job, scalars, closed, scale, whole + i);
}

#define UPDATE_CASE(NAME, name, count, formula)                                                    \
    case YOKE_UPDATE_##NAME:                                                                       \
        LAUNCH(update<rule_##name>, blocks, CUDA_THREADS, stream, *job, whole);                    \
        break;

extern "C" cudaError_t cuda_run_update(const cuda_update_job *job, cudaStream_t stream) {
    uintptr_t addresses = address(job->weights) | address(job->gradients) | address(job->to) |
                          address(job->kept_weights) | shadow_address(job->shadow);
    for (int i = 0; i < YOKE_UPDATE_STATES; i++)
        addresses |= address(job->states[i]) | address(job->kept_states[i]);
    size_t whole = packed(job->elements, addresses);
    unsigned blocks = pack_blocks(job->elements, whole);
    switch (job->rule) {
        YOKE_UPDATES(UPDATE_CASE)
    case YOKE_UPDATE_RULES:
        break;
    }
    return cudaGetLastError();
}

/* Rescale. */

static __global__ void rescale(float *values, size_t elements, const double *numerator,
                               const double *denominator, double epsilon) {
    double above = numerator != NULL ? *numerator : 1, below = *denominator;
    if (above == 0 || below == 0) return;
    float factor = (float)(sqrt(above) / fmax(sqrt(below), epsilon));
    GRID_STRIDE(i, elements) values[i] *= factor;
}

extern "C" cudaError_t cuda_run_rescale(float *values, size_t elements, const double *numerator,
                                        const double *denominator, double epsilon,
                                        cudaStream_t stream) {
    LAUNCH(rescale, cuda_blocks(elements), CUDA_THREADS, stream, values, elements, numerator,
           denominator, epsilon);
    return cudaGetLastError();
}

/* Accumulate. */

template <int N, typename T> static __device__ void accumulate_at(T *to, const T *from) {
    cuda_pack<T, N> own = cuda_load<N>(to), other = cuda_load<N>(from);
    float sum[N];
    for (int lane = 0; lane < N; lane++)
        sum[lane] = cuda_widen(own.at[lane]) + cuda_widen(other.at[lane]);
    cuda_store(to, sum);
}

template <typename T>
static __global__ void accumulate(T *to, const T *from, size_t elements, size_t whole) {
    GRID_STRIDE(i, whole / PACK) accumulate_at<PACK>(to + i * PACK, from + i * PACK);
    GRID_STRIDE(i, elements - whole) accumulate_at<1>(to + whole + i, from + whole + i);
}

extern "C" cudaError_t cuda_run_accumulate(void *to, const void *from, cuda_type type,
                                           size_t elements, cudaStream_t stream) {
    size_t whole = packed(elements, address(to) | address(from));
    unsigned blocks = pack_blocks(elements, whole);
    cuda_by_type(type, [&](auto of) {
        using T = typename decltype(of)::type;
        LAUNCH(accumulate<T>, blocks, CUDA_THREADS, stream, (T *)to, (const T *)from, elements,
               whole);
    });
    return cudaGetLastError();
}

/* Conversion to another type. */

template <int N, typename To, typename From>
static __device__ void convert_at(To *to, const From *from) {
    cuda_pack<From, N> values = cuda_load<N>(from);
    float wide[N];
    for (int lane = 0; lane < N; lane++)
        wide[lane] = cuda_widen(values.at[lane]);
    cuda_store(to, wide);
}

template <typename To, typename From>
static __global__ void convert(To *to, const From *from, size_t elements, size_t whole) {
    GRID_STRIDE(i, whole / PACK) convert_at<PACK>(to + i * PACK, from + i * PACK);
    GRID_STRIDE(i, elements - whole) convert_at<1>(to + whole + i, from + whole + i);
}

template <typename To, typename From>
static void launch_convert(const cuda_reorder_job *job, cudaStream_t stream) {
    size_t elements = job->outer * job->rows * job->columns;
    size_t whole = packed(elements, address(job->to) | address(job->from));
    LAUNCH((convert<To, From>), pack_blocks(elements, whole), CUDA_THREADS, stream, (To *)job->to,
           (const From *)job->from, elements, whole);
}

extern "C" cudaError_t cuda_run_convert(const cuda_reorder_job *job, cudaStream_t stream) {
    cuda_by_types(job->to_type, job->from_type, [&](auto to, auto from) {
        launch_convert<typename decltype(to)::type, typename decltype(from)::type>(job, stream);
    });
    return cudaGetLastError();
}
