/* SPDX-License-Identifier: Apache-2.0 */
/* Checked work and the arithmetic of matrices: one kernel serves products and convolutions. */
#include "simcuda/count.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

/* Under names of our own: g++ knows the sanitizer's as built in, and those have no address. */
extern "C" {
__attribute__((weak)) void tsan_read_range(void *, unsigned long) __asm__("__tsan_read_range");
__attribute__((weak)) void tsan_write_range(void *, unsigned long) __asm__("__tsan_write_range");
}

namespace sim {

void check_operands(int device, const std::vector<Operand> &operands) {
    for (const Operand &operand : operands)
        if (operand.bytes > 0) check_range(device, operand.pointer, operand.bytes, operand.what);
}

void touch_operands(const std::vector<Operand> &operands) {
    if (tsan_read_range == nullptr) return;
    for (const Operand &operand : operands)
        if (operand.written)
            tsan_write_range((void *)operand.pointer, operand.bytes);
        else
            tsan_read_range((void *)operand.pointer, operand.bytes);
}

cudaError_t enqueue_on(cudaStream_t stream, const char *what, uint64_t cost_ns,
                       std::vector<Operand> operands, Arithmetic arithmetic, Work work) {
    int device = stream == nullptr ? current_device() : stream_device(stream);
    check_operands(device, operands);
    if (settings().count)
        return enqueue(stream, what, cost_ns, count::library(what, operands, arithmetic));
    return enqueue(stream, what, cost_ns,
                   [device, operands = std::move(operands), work = std::move(work)] {
                       check_operands(device, operands);
                       touch_operands(operands);
                       work();
                   });
}

/* 50 TFLOP/s, 4 TB/s, a launch. */
uint64_t library_cost_ns(double operations, size_t bytes) {
    return 3000 + (uint64_t)(operations / 50e3 + (double)bytes / 4000.0);
}

unsigned any_order() {
    static std::atomic<unsigned> calls{
        (unsigned)std::chrono::steady_clock::now().time_since_epoch().count()};
    return ++calls;
}

float round_to_tf32(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (!std::isfinite(value)) return value;
    bits = (bits + 0x1000u) & ~0x1fffu;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

/* Eight floats at any address; two registers where a machine's hold four. */
typedef float Floats __attribute__((vector_size(32), aligned(4)));
constexpr size_t WIDTH = 8;

/* ROWS rows and VECTORS * WIDTH columns of the output: a tile is kept in registers while k runs,
 * and every element is summed by the same operations in the same order, whatever its place. */
template <size_t ROWS, size_t VECTORS>
static inline __attribute__((always_inline)) void multiply_tile(const Product &p, size_t i,
                                                                size_t j) {
    const float *a = p.a + i * p.a_row;
    float *to = p.output + i * p.output_row + j;
    Floats sums[ROWS][VECTORS];
#pragma GCC unroll 4
    for (size_t r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (size_t v = 0; v < VECTORS; v++)
            sums[r][v] = *(const Floats *)(to + r * p.output_row + v * WIDTH);
    for (size_t k = 0; k < p.k; k++) {
        const Floats *b = (const Floats *)(p.b + k * p.b_row + j);
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++)
#pragma GCC unroll 2
            for (size_t v = 0; v < VECTORS; v++)
                sums[r][v] += a[r * p.a_row + k * p.a_column] * b[v];
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (size_t v = 0; v < VECTORS; v++)
            *(Floats *)(to + r * p.output_row + v * WIDTH) = sums[r][v];
}

template <size_t ROWS>
static inline __attribute__((always_inline)) void multiply_rows(const Product &p, size_t i) {
    size_t j = 0;
    for (; j + 2 * WIDTH <= p.n; j += 2 * WIDTH)
        multiply_tile<ROWS, 2>(p, i, j);
    for (; j + WIDTH <= p.n; j += WIDTH)
        multiply_tile<ROWS, 1>(p, i, j);
    for (; j < p.n; j++)
        for (size_t r = i; r < i + ROWS; r++) {
            float sum = p.output[r * p.output_row + j];
            for (size_t k = 0; k < p.k; k++)
                sum += p.a[r * p.a_row + k * p.a_column] * p.b[k * p.b_row + j];
            p.output[r * p.output_row + j] = sum;
        }
}

static inline __attribute__((always_inline)) void multiply_all(const Product &p) {
    size_t i = 0;
    for (; i + 4 <= p.m; i += 4)
        multiply_rows<4>(p, i);
    for (; i < p.m; i++)
        multiply_rows<1>(p, i);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void multiply_wide(const Product &product) {
    multiply_all(product);
}
#endif

void multiply(const Product &product) {
#ifdef __x86_64__
    static const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (wide) return multiply_wide(product);
#endif
    multiply_all(product);
}

} // namespace sim
