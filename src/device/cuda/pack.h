/* Sixteen bytes at a time for kernels over values: N of them are loaded and stored as one where the
 * number of channels is a multiple of N, elsewhere N is 1. For .cu files only. */
#ifndef DEVICE_CUDA_PACK_H
#define DEVICE_CUDA_PACK_H

#include "device/cuda/kernel.h"

template <typename T, int N> struct alignas(sizeof(T) * N) cuda_pack { T at[N]; };

template <int N, typename T> static __device__ cuda_pack<T, N> cuda_load(const T *from) {
    return *reinterpret_cast<const cuda_pack<T, N> *>(from);
}

template <typename T, int N> static __device__ void cuda_store(T *to, const float (&values)[N]) {
    cuda_pack<T, N> narrow;
    for (int i = 0; i < N; i++)
        cuda_narrow(values[i], &narrow.at[i]);
    *reinterpret_cast<cuda_pack<T, N> *>(to) = narrow;
}

/* Calls function<T, N> with the values' type and the widest pack that `count` is a multiple of. */
#define CUDA_BY_PACK(function, half, count, ...)                                                   \
    ((half)             ? (count) % 8 == 0 ? function<__nv_bfloat16, 8>(__VA_ARGS__)               \
                                           : function<__nv_bfloat16, 1>(__VA_ARGS__)               \
                 : (count) % 4 == 0 ? function<float, 4>(__VA_ARGS__)                              \
                        : function<float, 1>(__VA_ARGS__))

#endif
