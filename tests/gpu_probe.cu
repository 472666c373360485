/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of gpu_probe, whose program is in probe/. Sampled sums take a block for each sample
 * and a part of it for each thread; the host adds the parts in float64. */
#include "device/cuda/kernel.h"
#include "probe/probe_kernels.h"

static __global__ void work(float *value, const int *rounds) {
    float x = *value;
    for (int i = 0; i < *rounds; i++)
        x = x * 0.999f + 0.001f;
    *value = x;
}

extern "C" cudaError_t probe_run_work(float *value, const int *rounds, cudaStream_t stream) {
    LAUNCH(work, 1, 1, stream, value, rounds);
    return cudaGetLastError();
}

static __global__ void add_one(int *counter) {
    *counter += 1;
}

extern "C" cudaError_t probe_run_count(int *counter, cudaStream_t stream) {
    LAUNCH(add_one, 1, 1, stream, counter);
    return cudaGetLastError();
}

static __global__ void spring(int *counter) {
    *counter += 1;
    __trap();
}

extern "C" cudaError_t probe_run_trap(int *counter, cudaStream_t stream) {
    LAUNCH(spring, 1, 1, stream, counter);
    return cudaGetLastError();
}

static __global__ void keep(int *to, const int *from) {
    *to = *from;
}

extern "C" cudaError_t probe_run_keep(int *to, const int *from, cudaStream_t stream) {
    LAUNCH(keep, 1, 1, stream, to, from);
    return cudaGetLastError();
}

template <typename T>
static __global__ void pick(float *to, const T *values, const uint64_t *places, size_t count) {
    GRID_STRIDE(i, count) to[i] = cuda_widen(values[places[i]]);
}

extern "C" cudaError_t probe_run_pick(float *to, const void *values, int narrow,
                                      const uint64_t *places, size_t count, cudaStream_t stream) {
    if (narrow)
        LAUNCH(pick<__nv_bfloat16>, cuda_blocks(count), CUDA_THREADS, stream, to,
               (const __nv_bfloat16 *)values, places, count);
    else
        LAUNCH(pick<float>, cuda_blocks(count), CUDA_THREADS, stream, to, (const float *)values,
               places, count);
    return cudaGetLastError();
}

/* A place in a tensor whose last dimensions are [a, b, c]. */
typedef struct place {
    long long n, a, b, c;
} place;

static __device__ place place_of(uint64_t at, int a, int b, int c) {
    place p;
    p.c = (long long)(at % (uint64_t)c), at /= (uint64_t)c;
    p.b = (long long)(at % (uint64_t)b), at /= (uint64_t)b;
    p.a = (long long)(at % (uint64_t)a);
    p.n = (long long)(at / (uint64_t)a);
    return p;
}

template <typename T>
static __global__ void forward_parts(double *parts, const T *input, const T *weights, probe_shape s,
                                     const uint64_t *places) {
    place o = place_of(places[blockIdx.x], s.out_height, s.out_width, s.out);
    int terms = s.kernel * s.kernel * s.channels;
    double sum = 0;
    for (int t = (int)threadIdx.x; t < terms; t += PROBE_PARTS) {
        place w = place_of((uint64_t)t, s.kernel, s.kernel, s.channels);
        long long y = o.a * s.stride - s.padding + w.a, x = o.b * s.stride - s.padding + w.b;
        if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
        sum += (double)cuda_widen(input[((o.n * s.height + y) * s.width + x) * s.channels + w.c]) *
               (double)cuda_widen(weights[o.c * terms + t]);
    }
    parts[(size_t)blockIdx.x * PROBE_PARTS + threadIdx.x] = sum;
}

template <typename T>
static __global__ void data_parts(double *parts, const T *output, const T *weights, probe_shape s,
                                  const uint64_t *places) {
    place i = place_of(places[blockIdx.x], s.height, s.width, s.channels);
    int terms = s.kernel * s.kernel * s.out;
    double sum = 0;
    for (int t = (int)threadIdx.x; t < terms; t += PROBE_PARTS) {
        place w = place_of((uint64_t)t, s.kernel, s.kernel, s.out);
        long long y = i.a + s.padding - w.a, x = i.b + s.padding - w.b;
        if (y < 0 || x < 0 || y % s.stride != 0 || x % s.stride != 0) continue;
        y /= s.stride, x /= s.stride;
        if (y >= s.out_height || x >= s.out_width) continue;
        sum +=
            (double)cuda_widen(output[((i.n * s.out_height + y) * s.out_width + x) * s.out + w.c]) *
            (double)cuda_widen(
                weights[((w.c * s.kernel + w.a) * s.kernel + w.b) * s.channels + i.c]);
    }
    parts[(size_t)blockIdx.x * PROBE_PARTS + threadIdx.x] = sum;
}

template <typename T>
static __global__ void weights_parts(double *parts, const T *input, const T *output, probe_shape s,
                                     const uint64_t *places) {
    place w = place_of(places[blockIdx.x], s.kernel, s.kernel, s.channels);
    long long terms = (long long)s.rows * s.out_height * s.out_width;
    double sum = 0;
    for (long long t = (long long)threadIdx.x; t < terms; t += PROBE_PARTS) {
        place o = place_of((uint64_t)t, s.out_height, s.out_width, 1);
        long long y = o.a * s.stride - s.padding + w.a, x = o.b * s.stride - s.padding + w.b;
        if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
        sum += (double)cuda_widen(input[((o.n * s.height + y) * s.width + x) * s.channels + w.c]) *
               (double)cuda_widen(output[t * s.out + w.n]);
    }
    parts[(size_t)blockIdx.x * PROBE_PARTS + threadIdx.x] = sum;
}

#define LAUNCHER(name, kernel)                                                                     \
    extern "C" cudaError_t probe_run_##name(double *parts, const void *first, const void *second,  \
                                            int narrow, probe_shape shape, const uint64_t *places, \
                                            size_t count, cudaStream_t stream) {                   \
        if (narrow)                                                                                \
            LAUNCH(kernel<__nv_bfloat16>, (unsigned)count, PROBE_PARTS, stream, parts,             \
                   (const __nv_bfloat16 *)first, (const __nv_bfloat16 *)second, shape, places);    \
        else                                                                                       \
            LAUNCH(kernel<float>, (unsigned)count, PROBE_PARTS, stream, parts,                     \
                   (const float *)first, (const float *)second, shape, places);                    \
        return cudaGetLastError();                                                                 \
    }

LAUNCHER(forward, forward_parts)
LAUNCHER(data, data_parts)
LAUNCHER(weights, weights_parts)
