/* SPDX-License-Identifier: Apache-2.0 */
/* The device language of src/device/cuda/kernel.h on the host, for .cu files compiled by g++: a
 * block runs on one OS thread, so shared memory is thread-local; its GPU threads run one after
 * another (LAUNCH) or as fibers that change places at barriers (LAUNCH_BLOCK). Included by
 * device/cuda/kernel.h alone. */
#ifndef SIMCUDA_KERNEL_H
#define SIMCUDA_KERNEL_H

#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "simcuda/sim.h"

/* The toolkit's headers leave the other words of the language empty for a host compiler. */
#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#pragma GCC diagnostic ignored "-Wunknown-pragmas" /* #pragma unroll */

namespace sim {

struct Index {
    unsigned x;
};

/* Kernels alone may call these two. A shuffle answers the bits that lane `source` of the warp gave.
 */
void block_barrier();
uint64_t shuffle(unsigned mask, uint64_t bits, unsigned source);

template <typename T> T shuffle_value(unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle carries 4 or 8 bytes");
    static_assert(std::is_trivially_copyable<T>::value, "a shuffle carries plain values");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = shuffle(mask, bits, source);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/* Arguments become the kernel's parameters at the launch, as on a GPU: what the host changes
 * afterwards the kernel does not see. */
template <typename... Parameters, typename... Arguments>
void launch(const char *name, Launch shape, cudaStream_t stream, void (*kernel)(Parameters...),
            Arguments... arguments) {
    std::tuple<Parameters...> parameters(arguments...);
    std::string bytes;
    if (settings().count) bytes.assign((const char *)&parameters, sizeof parameters);
    launch_kernel(
        name, shape, stream, [kernel, parameters] { std::apply(kernel, parameters); },
        (void (*)())kernel, bytes);
}

} // namespace sim

extern __thread sim::Index threadIdx, blockIdx, blockDim, gridDim;

#define LAUNCH(kernel, blocks, threads, stream, ...)                                               \
    sim::launch(#kernel, sim::Launch{blocks, threads, false}, stream, kernel, __VA_ARGS__)
#define LAUNCH_BLOCK(kernel, blocks, threads, stream, ...)                                         \
    sim::launch(#kernel, sim::Launch{blocks, threads, true}, stream, kernel, __VA_ARGS__)

static inline void __syncthreads() {
    sim::block_barrier();
}

/* A block ends before the next one begins: it has nothing to order. */
static inline void __threadfence() {}

template <typename T> static inline T __ldcg(const T *from) {
    return *from;
}

template <typename T> static inline T __ldcs(const T *from) {
    return *from;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int lane) {
    return sim::shuffle_value(mask, value, (unsigned)lane % 32);
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes) {
    return sim::shuffle_value(mask, value, (threadIdx.x ^ (unsigned)lanes) % 32);
}

/* The rest of the kernel runs all the same. */
static inline void __trap() {
    sim::poison_running_context();
}

static inline int atomicAdd(int *address, int value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

static inline unsigned atomicInc(unsigned *address, unsigned last) {
    unsigned known = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(address, &known, known >= last ? 0 : known + 1, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return known;
}

static inline unsigned long long atomicMin(unsigned long long *address, unsigned long long value) {
    unsigned long long known = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (value < known && !__atomic_compare_exchange_n(address, &known, value, true,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return known;
}

#endif
