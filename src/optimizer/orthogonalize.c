/* SPDX-License-Identifier: Apache-2.0 */
/* Muon's direction: the polynomial of Newton and Schulz that Keller Jordan et al. tuned (2024), as
 * torch.optim.Muon has it. torch computes the products in bfloat16, Yoke in float32. */
#include "optimizer/orthogonalize.h"

#define EPSILON 1e-7 /* the norm is at least so large */
#define PIECE 64     /* floats: what lies in the work begins at multiples */

/* X' = linear X + cubic (X X^T) X + quintic (X X^T)^2 X. */
static const float linear = 3.4445f, cubic = -4.7750f, quintic = 2.0315f;

typedef struct pieces {
    float *gram, *polynomial; /* [n, n] each, n the smaller side */
    float *x, *next;
    double *norm;
} pieces;

static size_t whole(size_t floats) {
    return (floats + PIECE - 1) / PIECE * PIECE;
}

static size_t side(const yoke_matrix *matrix) {
    return matrix->rows < matrix->columns ? matrix->rows : matrix->columns;
}

/* Returns the floats. work NULL: it counts alone. */
static size_t place(pieces *at, const yoke_matrix *matrix, float *work) {
    size_t square = whole(side(matrix) * side(matrix));
    size_t elements = whole(matrix->rows * matrix->columns);
    size_t norm = 2 * square + 2 * elements;
    if (work != NULL)
        *at = (pieces){work, work + square, work + 2 * square, work + 2 * square + elements,
                       (double *)(void *)(work + norm)};
    return norm + yoke_square_sum_doubles(elements) * (sizeof(double) / sizeof(float));
}

size_t yoke_orthogonalize_bytes(const yoke_matrix *matrix) {
    return place(NULL, matrix, NULL) * sizeof(float);
}

/* A wide matrix is multiplied from the left by a polynomial of X X^T, a tall one from the right by
 * one of X^T X: that is the smaller product. */
static yoke_status step(yoke_device *device, yoke_stream stream, const yoke_matrix *matrix,
                        const pieces *at) {
    bool tall = matrix->rows > matrix->columns;
    size_t n = side(matrix);
    const yoke_product gram = {.rows = n,
                               .inner = tall ? matrix->rows : matrix->columns,
                               .columns = n,
                               .a = at->x,
                               .b = at->x,
                               .transpose_a = tall,
                               .transpose_b = !tall,
                               .alpha = 1,
                               .to = at->gram};
    const yoke_product polynomial = {.rows = n,
                                     .inner = n,
                                     .columns = n,
                                     .a = at->gram,
                                     .b = at->gram,
                                     .alpha = quintic,
                                     .c = at->gram,
                                     .beta = cubic,
                                     .to = at->polynomial};
    const yoke_product next = {.rows = matrix->rows,
                               .inner = n,
                               .columns = matrix->columns,
                               .a = tall ? at->x : at->polynomial,
                               .b = tall ? at->polynomial : at->x,
                               .alpha = 1,
                               .c = at->x,
                               .beta = linear,
                               .to = at->next};
    TRY(yoke_device_product(device, stream, &gram));
    TRY(yoke_device_product(device, stream, &polynomial));
    return yoke_device_product(device, stream, &next);
}

/* Where memory is shared, layouts are the backend's own; elsewhere they are plain. */
static yoke_status copy(yoke_device *device, yoke_stream stream, const yoke_layout *to_layout,
                        float *to, const yoke_layout *from_layout, const float *from) {
    if (!yoke_layout_equal(to_layout, from_layout))
        return yoke_layout_convert(device, to_layout, to, from_layout, from);
    return yoke_device_copy(device, stream, to, device, from, from_layout->bytes);
}

yoke_status yoke_orthogonalize(yoke_device *device, yoke_stream stream, const yoke_matrix *matrix,
                               int steps, float *values, void *work) {
    pieces at = {0};
    size_t elements = matrix->rows * matrix->columns;
    place(&at, matrix, work);
    TRY(copy(device, stream, matrix->plain, at.x, matrix->layout, values));
    TRY(yoke_device_square_sum(device, stream, at.x, elements, at.norm));
    TRY(yoke_device_rescale(device, stream, at.x, elements, NULL, at.norm, EPSILON));
    for (int i = 0; i < steps; i++) {
        TRY(step(device, stream, matrix, &at));
        float *x = at.x;
        at.x = at.next, at.next = x;
    }
    return copy(device, stream, matrix->layout, values, matrix->plain, at.x);
}
