/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels of this room are written: once, for nvcc and for the simulated CUDA of the tests,
 * which compiles the same .cu files for the host. For .cu files only.
 *
 *   static __global__ void scale(float *values, float by, size_t count) {
 *       GRID_STRIDE(i, count) values[i] *= by;
 *   }
 *   extern "C" cudaError_t cuda_scale(float *values, float by, size_t count, cudaStream_t stream) {
 *       LAUNCH(scale, cuda_blocks(count), CUDA_THREADS, stream, values, by, count);
 *       return cudaGetLastError();
 *   }
 *
 * LAUNCH: no barrier in the kernel. LAUNCH_BLOCK: the kernel calls __syncthreads or a shuffle;
 * every thread of a block must reach every barrier. Shared memory is static (`__shared__ float
 * part[32]`). Allowed of the device language: threadIdx.x, blockIdx.x, blockDim.x, gridDim.x (one
 * dimension), __shared__, __syncthreads, __threadfence, __shfl_xor_sync, __shfl_sync, atomicAdd on
 * int, atomicInc, atomicMin on unsigned long long, __ldcg, __ldcs, __grid_constant__ (parameters
 * whose arrays are indexed), and of cuda_bf16.h and cuda_fp16.h the conversions alone. No float
 * atomicAdd. ReLU is `x < 0 ? 0 : x`, which keeps NaN.
 */
#ifndef DEVICE_CUDA_KERNEL_H
#define DEVICE_CUDA_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device/cuda/cuda_type.h"

#ifdef YOKE_SIMCUDA
#include "simcuda/kernel.h"
#else
#define LAUNCH(kernel, blocks, threads, stream, ...)                                               \
    kernel<<<blocks, threads, 0, stream>>>(__VA_ARGS__)
#define LAUNCH_BLOCK LAUNCH
#endif

/* The types of values. Kernels compute in float. */
template <typename T> struct cuda_type_of { using type = T; };

/* Calls call(cuda_type_of<T>()) with the values' type as T. Other types come in here, in
 * CUDA_BY_PACK, and in cuda_widen and cuda_narrow. */
template <typename Call> static inline void cuda_by_type(cuda_type type, Call call) {
    switch (type) {
    case CUDA_BFLOAT16:
        call(cuda_type_of<__nv_bfloat16>());
        return;
    case CUDA_FLOAT16:
        call(cuda_type_of<__half>());
        return;
    case CUDA_FLOAT32:
        call(cuda_type_of<float>());
        return;
    }
}

/* The same with the types of two values. */
template <typename Call> static inline void cuda_by_types(cuda_type to, cuda_type from, Call call) {
    cuda_by_type(to, [&](auto a) { cuda_by_type(from, [&](auto b) { call(a, b); }); });
}

/* Launches kernel<T> for values of that type; launch: one of the two above. */
#define LAUNCH_BY_TYPE(launch, kernel, of_values, ...)                                             \
    cuda_by_type(of_values,                                                                        \
                 [&](auto of) { launch(kernel<typename decltype(of)::type>, __VA_ARGS__); })

#define CUDA_THREADS 256
#define CUDA_WARP 32

#define GRID_STRIDE(i, count)                                                                      \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count);                    \
         i += (size_t)gridDim.x * blockDim.x)

/* Blocks for one element per thread, at most eight waves of the largest GPU. */
static inline unsigned cuda_blocks(size_t count) {
    size_t blocks = (count + CUDA_THREADS - 1) / CUDA_THREADS, most = 8 * 148;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* Blocks and threads for one position, a vector of channels, per block. */
#define CUDA_POSITION_THREADS 128
static inline unsigned cuda_position_blocks(size_t positions) {
    size_t most = 1 << 20;
    return (unsigned)(positions < most ? positions : most);
}

/* Values in the compute precision are float, __nv_bfloat16 or __half; kernels compute in float. */
static inline __host__ __device__ float cuda_widen(float value) {
    return value;
}
static inline __host__ __device__ float cuda_widen(__nv_bfloat16 value) {
    return __bfloat162float(value);
}
static inline __host__ __device__ float cuda_widen(__half value) {
    return __half2float(value);
}
static inline __host__ __device__ void cuda_narrow(float value, float *to) {
    *to = value;
}
static inline __host__ __device__ void cuda_narrow(float value, __nv_bfloat16 *to) {
    *to = __float2bfloat16_rn(value);
}
static inline __host__ __device__ void cuda_narrow(float value, __half *to) {
    *to = __float2half_rn(value);
}

/* Returns the sum over the block to every thread, added in a fixed order. `part` is [CUDA_WARP] in
 * shared memory. blockDim.x is a multiple of CUDA_WARP. */
template <typename T> static __device__ T cuda_block_sum(T value, T *part) {
    for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lane);
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0) part[threadIdx.x / CUDA_WARP] = value;
    __syncthreads();
    T sum = 0;
    for (unsigned warp = 0; warp < blockDim.x / CUDA_WARP; warp++)
        sum += part[warp];
    return sum;
}

/* Packs: N values, 16 bytes, in one load or store. Kernels use them where the number of channels is
 * a multiple of N, elsewhere N is 1. */

template <typename T, int N> struct alignas(sizeof(T) * N) cuda_pack { T at[N]; };

template <int N, typename T> static __device__ cuda_pack<T, N> cuda_load(const T *from) {
    return *reinterpret_cast<const cuda_pack<T, N> *>(from);
}

template <int BYTES> struct cuda_word;
template <> struct cuda_word<2> { using type = unsigned short; };
template <> struct cuda_word<4> { using type = unsigned; };
template <> struct cuda_word<16> { using type = uint4; };

/* For the last time: L2 gives up the pack before it gives up others. */
template <int N, typename T> static __device__ cuda_pack<T, N> cuda_load_last(const T *from) {
    using word = typename cuda_word<sizeof(cuda_pack<T, N>)>::type;
    word loaded = __ldcs(reinterpret_cast<const word *>(from));
    cuda_pack<T, N> pack;
    memcpy(&pack, &loaded, sizeof pack);
    return pack;
}

template <typename T, int N> static __device__ void cuda_store(T *to, const float (&values)[N]) {
    cuda_pack<T, N> narrow;
    for (int i = 0; i < N; i++)
        cuda_narrow(values[i], &narrow.at[i]);
    *reinterpret_cast<cuda_pack<T, N> *>(to) = narrow;
}

/* Calls function<T, N> with the values' type and the widest pack that divides `count`. */
#define CUDA_PACKED(function, T, count, ...)                                                       \
    ((count) % (16 / sizeof(T)) == 0 ? function<T, 16 / sizeof(T)>(__VA_ARGS__)                    \
                                     : function<T, 1>(__VA_ARGS__))
#define CUDA_BY_PACK(function, type, count, ...)                                                   \
    ((type) == CUDA_BFLOAT16  ? CUDA_PACKED(function, __nv_bfloat16, count, __VA_ARGS__)           \
     : (type) == CUDA_FLOAT16 ? CUDA_PACKED(function, __half, count, __VA_ARGS__)                  \
                              : CUDA_PACKED(function, float, count, __VA_ARGS__))

#endif
