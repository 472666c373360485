/* SPDX-License-Identifier: Apache-2.0 */
/* Activations in one pass over flat values. `to` may equal `from`. */
#include <math.h>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/device.h"

/* Each activation: its value, and what backward makes of a gradient and of the value it reads, the
 * output or the input. NaN < 0 is false, so that NaN stays. */

struct relu {
    static constexpr bool READS_OUTPUT = true;
    static __device__ float value(float x) { return x < 0 ? 0 : x; }
    static __device__ float backward(float gradient, float y) { return y <= 0 ? 0 : gradient; }
};

struct relu6 {
    static constexpr bool READS_OUTPUT = true;
    static __device__ float value(float x) { return x < 0 ? 0 : x > 6 ? 6 : x; }
    static __device__ float backward(float gradient, float y) {
        return y <= 0 || y >= 6 ? 0 : gradient;
    }
};

struct gelu {
    static constexpr bool READS_OUTPUT = false;
    static constexpr float ROOT_HALF = 0.70710678f, DENSITY = 0.39894228f; /* 1 / sqrt(2 pi) */
    static __device__ float probability(float x) { return 0.5f * (1 + erff(x * ROOT_HALF)); }
    static __device__ float value(float x) { return x * probability(x); }
    static __device__ float backward(float gradient, float x) {
        return gradient * (probability(x) + x * DENSITY * expf(-0.5f * x * x));
    }
};

struct gelu_tanh {
    static constexpr bool READS_OUTPUT = false;
    static constexpr float SCALE = 0.79788456f, CUBIC = 0.044715f; /* sqrt(2 / pi) */
    static __device__ float bend(float x) { return tanhf(SCALE * (x + CUBIC * x * x * x)); }
    static __device__ float value(float x) { return 0.5f * x * (1 + bend(x)); }
    static __device__ float backward(float gradient, float x) {
        float t = bend(x), inner = SCALE * (1 + 3 * CUBIC * x * x);
        return gradient * 0.5f * (1 + t + x * (1 - t * t) * inner);
    }
};

struct sigmoid {
    static constexpr bool READS_OUTPUT = true;
    static __device__ float value(float x) { return 1 / (1 + expf(-x)); }
    static __device__ float backward(float gradient, float y) { return gradient * y * (1 - y); }
};

struct silu {
    static constexpr bool READS_OUTPUT = false;
    static __device__ float value(float x) { return x * sigmoid::value(x); }
    static __device__ float backward(float gradient, float x) {
        float s = sigmoid::value(x);
        return gradient * s * (1 + x * (1 - s));
    }
};

struct hyperbolic {
    static constexpr bool READS_OUTPUT = true;
    static __device__ float value(float x) { return tanhf(x); }
    static __device__ float backward(float gradient, float y) { return gradient * (1 - y * y); }
};

template <typename F, typename T, int N>
static __global__ void activate(T *to, const T *from, size_t packs) {
    GRID_STRIDE(i, packs) {
        cuda_pack<T, N> values = cuda_load<N>(from + i * N);
        float result[N];
        for (int k = 0; k < N; k++)
            result[k] = F::value(cuda_widen(values.at[k]));
        cuda_store<T, N>(to + i * N, result);
    }
}

template <typename F, typename T, int N>
static __global__ void activate_backward(T *to, const T *from, const T *kept, size_t packs) {
    GRID_STRIDE(i, packs) {
        cuda_pack<T, N> reads = cuda_load<N>(kept + i * N), values = cuda_load<N>(from + i * N);
        float result[N];
        for (int k = 0; k < N; k++)
            result[k] = F::backward(cuda_widen(values.at[k]), cuda_widen(reads.at[k]));
        cuda_store<T, N>(to + i * N, result);
    }
}

/* What runs for one activation. */
template <typename F> struct passes {
    template <typename T, int N>
    static void forward(const cuda_activation_job *job, cudaStream_t stream) {
        size_t packs = job->elements / N;
        LAUNCH((activate<F, T, N>), cuda_blocks(packs), CUDA_THREADS, stream, (T *)job->to,
               (const T *)job->from, packs);
    }
    template <typename T, int N>
    static void backward(const cuda_activation_job *job, cudaStream_t stream) {
        size_t packs = job->elements / N;
        LAUNCH((activate_backward<F, T, N>), cuda_blocks(packs), CUDA_THREADS, stream, (T *)job->to,
               (const T *)job->from, (const T *)job->kept, packs);
    }
    static cudaError_t run(const cuda_activation_job *job, cudaStream_t stream) {
        CUDA_BY_PACK(forward, job->type, job->elements, job, stream);
        return cudaGetLastError();
    }
    static cudaError_t run_backward(const cuda_activation_job *job, cudaStream_t stream) {
        CUDA_BY_PACK(backward, job->type, job->elements, job, stream);
        return cudaGetLastError();
    }
};

typedef struct entry {
    bool reads_output;
    cudaError_t (*forward)(const cuda_activation_job *job, cudaStream_t stream);
    cudaError_t (*backward)(const cuda_activation_job *job, cudaStream_t stream);
} entry;

template <typename F> static constexpr entry entry_of() {
    return {F::READS_OUTPUT, passes<F>::run, passes<F>::run_backward};
}

/* In the order of yoke_activation. */
static const entry entries[YOKE_ACTIVATIONS] = {
    entry_of<relu>(), entry_of<relu6>(),   entry_of<gelu>(),      entry_of<gelu_tanh>(),
    entry_of<silu>(), entry_of<sigmoid>(), entry_of<hyperbolic>()};

extern "C" bool cuda_activation_reads_output(int activation) {
    return entries[activation].reads_output;
}

extern "C" cudaError_t cuda_run_activation(const cuda_activation_job *job, cudaStream_t stream) {
    return entries[job->activation].forward(job, stream);
}

extern "C" cudaError_t cuda_run_activation_backward(const cuda_activation_job *job,
                                                    cudaStream_t stream) {
    return entries[job->activation].backward(job, stream);
}
