/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix product as cuBLASLt describes it: checks and arithmetic, without the library's handles.
 */
#ifndef SIMCUDA_PRODUCT_H
#define SIMCUDA_PRODUCT_H

#include <cublasLt.h>

#include "simcuda/library.h"

namespace sim::lt {

struct Descriptor {
    int32_t compute, scale, transpose_a, transpose_b, pointer_mode, bias_type;
    uint32_t epilogue, spare; /* spare: no padding, so that the bytes are the value */
    /* aux: of a ReLU a bit for each element of D, one where it let it through; of a GELU what it
     * reads, in the type of D. */
    void *bias, *aux;
    int64_t aux_ld; /* bits or elements from column to column */
};
struct Layout {
    uint64_t rows, cols;
    int64_t ld, stride;
    int32_t type, order, batch, spare;
};
/* A product as asked for: D[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta C. */
struct Problem {
    Descriptor descriptor;
    Layout a, b, c, d;
    size_t m, n, k, batch;
};

/* Fills in m, n, k and batch. INVALID_VALUE: numbers contradict each other. NOT_SUPPORTED: a GPU
 * has no kernel for it. */
cublasStatus_t check(Problem &problem);
bool wants_bias(const Descriptor &descriptor);
bool wants_aux(const Descriptor &descriptor);

struct Pointers {
    const void *a, *b, *c;
    void *d, *workspace;
    float alpha, beta;
    uint64_t parts; /* the sum over k is taken in so many; from two on they lie in the workspace */
};
size_t workspace_bytes(const Problem &problem, uint64_t parts);
std::vector<Operand> operands(const Problem &problem, const Pointers &pointers);
/* first: the part that the addition begins with */
void run(const Problem &problem, const Pointers &pointers, uint64_t first);

} // namespace sim::lt

#endif
