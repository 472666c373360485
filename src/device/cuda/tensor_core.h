/* SPDX-License-Identifier: Apache-2.0 */
/* Products of small matrices by the 32 threads of a warp together, on tensor cores, and copies that
 * run beside them. For .cu files only; kernels that call it have LAUNCH_BLOCK, and all threads of a
 * warp call it together. Needs compute capability 8.0: below, a kernel that calls it traps.
 *
 * A register holds two values of 16 bits. With g = lane / 4 and t = lane % 4 a thread has of
 *
 *   a    [16, 16]  at[0]: row g, columns 2t and 2t + 1; at[1]: row g + 8; at[2], at[3]: the same
 *                  rows, eight columns on
 *   b    [16, 8]   first: column g, rows 2t and 2t + 1; second: eight rows on
 *   sums [16, 8]   at[0], at[1]: row g, columns 2t and 2t + 1; at[2], at[3]: row g + 8
 *
 * so that two sums side by side, packed, are an `a`. */
#ifndef DEVICE_CUDA_TENSOR_CORE_H
#define DEVICE_CUDA_TENSOR_CORE_H

#include <string.h>

#include "device/cuda/kernel.h"
/* Behind kernel.h, which takes the word `half`. */
#include <cuda_fp16.h>

/* A type of 16 bits: two of its values in a register. */
template <typename T> struct tensor_pair;
template <> struct tensor_pair<__nv_bfloat16> {
    static __device__ uint32_t pack(float low, float high) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        uint32_t bits;
        memcpy(&bits, &pair, sizeof bits);
        return bits;
    }
    static __device__ float low(uint32_t bits) { return __uint_as_float(bits << 16); }
    static __device__ float high(uint32_t bits) { return __uint_as_float(bits & 0xffff0000u); }
};
template <> struct tensor_pair<__half> {
    static __device__ uint32_t pack(float low, float high) {
        __half2 pair = __floats2half2_rn(low, high);
        uint32_t bits;
        memcpy(&bits, &pair, sizeof bits);
        return bits;
    }
    static __device__ float low(uint32_t bits) {
        return __half2float(__ushort_as_half((unsigned short)bits));
    }
    static __device__ float high(uint32_t bits) { return low(bits >> 16); }
};

/* Two sums side by side, [16, 16], as the `a` of another product. */
template <typename T>
static __device__ void tensor_pack(uint32_t (&to)[4], const float (&left)[4],
                                   const float (&right)[4]) {
    to[0] = tensor_pair<T>::pack(left[0], left[1]);
    to[1] = tensor_pair<T>::pack(left[2], left[3]);
    to[2] = tensor_pair<T>::pack(right[0], right[1]);
    to[3] = tensor_pair<T>::pack(right[2], right[3]);
}

#ifdef YOKE_SIMCUDA
#include "simcuda/tensor_core_on_host.h"
#else

static __device__ unsigned tensor_shared(const void *at) {
    return (unsigned)__cvta_generic_to_shared(at);
}

#if __CUDA_ARCH__ >= 800
#define TENSOR_CORE(...) asm volatile(__VA_ARGS__)
#else
#define TENSOR_CORE(...) __trap()
#endif

/* Loads four matrices [8, 8] from shared memory: lane i has the address, aligned to 16 bytes, of
 * row i % 8 of matrix i / 8. A thread gets, of each, columns 2t and 2t + 1 of row g; transposed:
 * rows 2t and 2t + 1 of column g. */
static __device__ void tensor_load(uint32_t (&to)[4], const void *row) {
    TENSOR_CORE("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                : "r"(tensor_shared(row))
                : "memory");
}
static __device__ void tensor_load_transposed(uint32_t (&to)[4], const void *row) {
    TENSOR_CORE("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                : "r"(tensor_shared(row))
                : "memory");
}

/* sums += a b, in float32. */
template <typename T>
static __device__ void tensor_multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t first,
                                       uint32_t second);
#define TENSOR_MULTIPLY(type, name)                                                                \
    template <>                                                                                    \
    __device__ void tensor_multiply<type>(float(&sums)[4], const uint32_t(&a)[4], uint32_t first,  \
                                          uint32_t second) {                                       \
        TENSOR_CORE("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                         \
                    ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"         \
                    : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                   \
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(first), "r"(second));        \
    }
TENSOR_MULTIPLY(__nv_bfloat16, "bf16")
TENSOR_MULTIPLY(__half, "f16")
#undef TENSOR_MULTIPLY

/* Copies 16 bytes from global to shared memory, both aligned to 16 bytes; they are there after this
 * thread's next copy_wait, and for the block's other threads after a barrier behind that. */
static __device__ void copy_async(void *to, const void *from) {
    TENSOR_CORE("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(tensor_shared(to)), "l"(from)
                : "memory");
}
static __device__ void copy_wait(void) {
    TENSOR_CORE("cp.async.wait_all;" ::: "memory");
}

/* threadIdx.x, read again: what a loop computes from it takes no registers from one turn to the
 * next.
 */
static __device__ unsigned thread_again(void) {
    unsigned thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/* 2^x; what is below 2^-126 becomes 0. */
static __device__ float fast_exp2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

#endif
#endif
