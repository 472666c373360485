/* SPDX-License-Identifier: Apache-2.0 */
/* The launchers of the kernels of elementary operations; see kernels.h. */
#ifndef DEVICE_CUDA_ELEMENTARY_KERNELS_H
#define DEVICE_CUDA_ELEMENTARY_KERNELS_H

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_type.h"
#include "device/view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An expression of whole rows. view: operand k is input k. Backward writes the gradient of an input
 * that repeats to `shares`, [rows, elements] in the order of the output, for a reduction. */
typedef struct cuda_expression_job {
    size_t rows, elements[YOKE_EXPRESSION_INPUTS]; /* of a row of input k */
    cuda_type type;
    yoke_expression expression;
    yoke_view view;
    const void *inputs[YOKE_EXPRESSION_INPUTS];
    void *output;
    const void *output_gradient;
    void *input_gradients[YOKE_EXPRESSION_INPUTS]; /* NULL: not wanted */
    float *shares[YOKE_EXPRESSION_INPUTS];         /* NULL: the input does not repeat */
} cuda_expression_job;
cudaError_t cuda_run_expression(const cuda_expression_job *job, cudaStream_t stream);
cudaError_t cuda_run_expression_backward(const cuda_expression_job *job, cudaStream_t stream);

/* The order of additions depends on the shape alone. view: operand 0 is the input, operand 1 the
 * output. */
typedef struct cuda_reduction_job {
    size_t rows, results; /* elements of a row of the output */
    yoke_view view;
    yoke_reduce_kind kind;
    cuda_type from_type, to_type;
    const void *from;
    void *to;
    const void *gradient; /* backward: of `to` */
    void *from_gradient;
} cuda_reduction_job;
cudaError_t cuda_run_reduction(const cuda_reduction_job *job, cudaStream_t stream);
cudaError_t cuda_run_reduction_backward(const cuda_reduction_job *job, cudaStream_t stream);

/* A box of every row, forward or back. Backward clears what it does not write. */
typedef struct cuda_move_job {
    size_t rows, from_elements, to_elements;
    yoke_box box;
    float fill;
    cuda_type type;
    bool backward;
    const void *from;
    void *to;
} cuda_move_job;
cudaError_t cuda_run_move(const cuda_move_job *job, cudaStream_t stream);

/* to [rows, columns] = a [rows, inner] b [inner, columns] for `count` matrices one behind the
 * other, a and b or their transposes in memory. */
typedef struct cuda_matrices_job {
    size_t count, rows, inner, columns;
    cuda_type type;
    bool transpose_a, transpose_b;
    const void *a, *b;
    void *to;
} cuda_matrices_job;
cudaError_t cuda_run_matrices(const cuda_matrices_job *job, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
