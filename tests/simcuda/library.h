/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated libraries share: work on checked operands, and their arithmetic. */
#ifndef SIMCUDA_LIBRARY_H
#define SIMCUDA_LIBRARY_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "simcuda/counted.h"
#include "simcuda/sim.h"

namespace sim {

/* Device memory that a piece of work reads, or writes. */
struct Operand {
    const void *pointer;
    size_t bytes;
    bool written;
    const char *what; /* for reports */
};

/* What a call computes, for the count. */
struct Arithmetic {
    double operations;
    simcuda_arithmetic type;
};

/* Queues work that touches these operands and nothing else. They are checked at the call, which
 * names its caller, and again when the work runs; ThreadSanitizer then sees them touched. */
cudaError_t enqueue_on(cudaStream_t stream, const char *what, uint64_t cost_ns,
                       std::vector<Operand> operands, Arithmetic arithmetic, Work work);
void check_operands(int device, const std::vector<Operand> &operands);
void touch_operands(const std::vector<Operand> &operands);

/* Virtual time of so much arithmetic and memory traffic on a large GPU. */
uint64_t library_cost_ns(double operations, size_t bytes);
/* Atomic additions save a quarter of the time, so that they win where they may run. Their order is
 * another one in each call and in each process. */
constexpr double ATOMICS_COST = 0.75;
unsigned any_order();

enum class Type { float32, bfloat16, float16 };
inline size_t type_bytes(Type type) {
    return type == Type::float32 ? 4 : 2;
}
inline float load(Type type, const void *values, size_t i) {
    return type == Type::bfloat16  ? __bfloat162float(((const __nv_bfloat16 *)values)[i])
           : type == Type::float16 ? __half2float(((const __half *)values)[i])
                                   : ((const float *)values)[i];
}
inline void store(Type type, void *values, size_t i, float value) {
    if (type == Type::bfloat16)
        ((__nv_bfloat16 *)values)[i] = __float2bfloat16_rn(value);
    else if (type == Type::float16)
        ((__half *)values)[i] = __float2half_rn(value);
    else
        ((float *)values)[i] = value;
}

/* To the 10 bits of mantissa that TF32 keeps, nearest, ties away from zero. */
float round_to_tf32(float value);

/* output[m, n] += a[m, k] * b[k, n], each sum in the order of k. a is read at a[i * a_row + p *
 * a_column]; b and output are rows of n. */
struct Product {
    size_t m, n, k;
    const float *a;
    size_t a_row, a_column;
    const float *b;
    size_t b_row;
    float *output;
    size_t output_row;
};
void multiply(const Product &product);

} // namespace sim

#endif
