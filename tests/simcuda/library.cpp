/* Checked work and the arithmetic of matrices: one kernel serves products and convolutions. */
#include "simcuda/library.h"

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
                       std::vector<Operand> operands, Work work) {
    int device = stream == nullptr ? current_device() : stream_device(stream);
    check_operands(device, operands);
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

float round_to_tf32(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (!std::isfinite(value)) return value;
    bits = (bits + 0x1000u) & ~0x1fffu;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

/* Four rows at a time share what is read of b. Every element of the output is summed by the same
 * operations in the same order, whatever its place. */
static inline __attribute__((always_inline)) void multiply_rows(const Product &p, size_t i,
                                                                size_t rows) {
    float *to[4];
    const float *from[4];
    for (size_t r = 0; r < 4; r++) {
        size_t row = i + (r < rows ? r : 0);
        to[r] = p.output + row * p.output_row;
        from[r] = p.a + row * p.a_row;
    }
    for (size_t k = 0; k < p.k; k++) {
        const float *b = p.b + k * p.b_row;
        float factor[4];
        for (size_t r = 0; r < 4; r++)
            factor[r] = from[r][k * p.a_column];
        if (rows == 4) {
            float *__restrict t0 = to[0], *__restrict t1 = to[1], *__restrict t2 = to[2],
                              *__restrict t3 = to[3];
            for (size_t j = 0; j < p.n; j++) {
                t0[j] += factor[0] * b[j];
                t1[j] += factor[1] * b[j];
                t2[j] += factor[2] * b[j];
                t3[j] += factor[3] * b[j];
            }
        } else {
            for (size_t r = 0; r < rows; r++) {
                float *__restrict t = to[r];
                for (size_t j = 0; j < p.n; j++)
                    t[j] += factor[r] * b[j];
            }
        }
    }
}

static inline __attribute__((always_inline)) void multiply_all(const Product &p) {
    for (size_t i = 0; i < p.m; i += 4)
        multiply_rows(p, i, p.m - i < 4 ? p.m - i : 4);
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
