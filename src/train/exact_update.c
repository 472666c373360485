/* SPDX-License-Identifier: Apache-2.0 */
#include "train/exact_update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REAL double
#define FN(name) name
#define UPDATE(NAME, name, number, formula)                                                        \
    case YOKE_UPDATE_##NAME:                                                                       \
        for (size_t i = 0; i < tensor->count; i++) {                                               \
            double w = tensor->weights[i], g = tensor->gradients[i] * scale,                       \
                   m = tensor->states[0][i], v = tensor->states[1][i];                             \
            formula;                                                                               \
            to[i] = w, tensor->states[0][i] = m, tensor->states[1][i] = v;                         \
        }                                                                                          \
        break;

/* to: the weights, or a direction. */
static void run_rule(yoke_update_rule rule, const yoke_exact_tensor *tensor, double *to,
                     yoke_update_scalars k, double scale) {
    switch (rule) {
        YOKE_UPDATES(UPDATE)
    case YOKE_UPDATE_RULES:
        break;
    }
}

static double norm_of(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

/* to [rows, columns] = alpha a b + beta c; a [rows, inner], b [inner, columns]. */
static void multiply(const size_t size[3], double alpha, const double *a, const double *b,
                     double beta, const double *c, double *to) {
    size_t rows = size[0], inner = size[1], columns = size[2];
    for (size_t i = 0; i < rows * columns; i++)
        to[i] = c != NULL ? beta * c[i] : 0;
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < inner; k++)
            for (size_t j = 0; j < columns; j++)
                to[i * columns + j] += alpha * a[i * inner + k] * b[k * columns + j];
}

static void transpose(const double *from, size_t rows, size_t columns, double *to) {
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            to[j * rows + i] = from[i * columns + j];
}

/* Keller Jordan's newtonschulz5, on the wide one of the matrix and its transpose. */
static yoke_status orthogonalize(double *values, size_t rows, size_t columns, int steps) {
    size_t count = rows * columns, n = rows < columns ? rows : columns, long_side = count / n;
    double *memory = yoke_malloc((3 * count + 2 * n * n) * sizeof *memory);
    if (memory == NULL) return FAIL_MEMORY((3 * count + 2 * n * n) * sizeof *memory, "a product");
    double *x = memory, *turned = x + count, *next = turned + count, *gram = next + count,
           *polynomial = gram + n * n;
    bool tall = rows > columns;
    if (tall)
        transpose(values, rows, columns, x);
    else
        memcpy(x, values, count * sizeof *x);
    double norm = fmax(norm_of(x, count), 1e-7);
    for (size_t i = 0; i < count; i++)
        x[i] /= norm;
    for (int step = 0; step < steps; step++) {
        transpose(x, n, long_side, turned);
        multiply((const size_t[]){n, long_side, n}, 1, x, turned, 0, NULL, gram);
        multiply((const size_t[]){n, n, n}, 2.0315, gram, gram, -4.7750, gram, polynomial);
        multiply((const size_t[]){n, n, long_side}, 1, polynomial, x, 3.4445, x, next);
        memcpy(x, next, count * sizeof *x);
    }
    if (tall)
        transpose(x, n, long_side, values);
    else
        memcpy(values, x, count * sizeof *x);
    yoke_free(memory);
    return YOKE_OK;
}

static void scale_to_weights(const yoke_exact_tensor *tensor, double *direction) {
    double length = norm_of(tensor->weights, tensor->count);
    double step = norm_of(direction, tensor->count);
    for (size_t i = 0; length > 0 && step > 0 && i < tensor->count; i++)
        direction[i] *= length / step;
}

/* To the norm sqrt(rows). */
static double sphere_scale(const yoke_exact_tensor *tensor) {
    double norm = norm_of(tensor->weights, tensor->count);
    return norm > 0 ? sqrt((double)tensor->rows) / norm : 1;
}

/* A rule of whole tensors: the direction, what it becomes, and the way there. */
static yoke_status update_whole(const yoke_optimizer_options *options,
                                const yoke_exact_tensor *tensor, yoke_update_scalars k,
                                double scale) {
    yoke_optimizer_sees sees = yoke_optimizer_rule_of(options->kind)->sees;
    bool of_matrix = sees != YOKE_SEES_TENSORS;
    double *direction = yoke_malloc(tensor->count * sizeof *direction);
    if (direction == NULL) return FAIL_MEMORY(tensor->count * sizeof *direction, "a direction");
    run_rule(of_matrix ? YOKE_UPDATE_MUON : YOKE_UPDATE_LAMB, tensor, direction, k, scale);
    yoke_status status = of_matrix ? orthogonalize(direction, tensor->rows, tensor->columns,
                                                   yoke_muon_steps(options->kind))
                                   : YOKE_OK;
    if (!of_matrix && options->weight_decay > 0) scale_to_weights(tensor, direction);
    if (sees == YOKE_SEES_FILTERS)
        k.shrink = sphere_scale(tensor);
    else if (of_matrix)
        k.rate *= yoke_muon_rate(tensor->rows, tensor->columns);
    else
        k.shrink = 1;
    yoke_exact_tensor towards = *tensor;
    towards.gradients = direction;
    if (status == YOKE_OK) run_rule(YOKE_UPDATE_APPLY, &towards, tensor->weights, k, 1);
    yoke_free(direction);
    return status;
}

yoke_status yoke_exact_update(const yoke_optimizer_options *options,
                              const yoke_exact_tensor *tensor, const yoke_update_scalars *scalars,
                              double gradient_scale) {
    yoke_optimizer_sees sees = yoke_optimizer_rule_of(options->kind)->sees;
    if (sees == YOKE_SEES_TENSORS || (sees != YOKE_SEES_ELEMENTS && tensor->rows > 0))
        return update_whole(options, tensor, *scalars, gradient_scale);
    run_rule(yoke_optimizer_update_rule(options), tensor, tensor->weights, *scalars,
             gradient_scale);
    return YOKE_OK;
}
