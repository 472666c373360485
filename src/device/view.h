/* SPDX-License-Identifier: Apache-2.0 */
/* How loops of elementary operations walk over rows: the axes of a row in the order of memory, and
 * the steps of each operand along them. Every backend uses it. */
#ifndef DEVICE_VIEW_H
#define DEVICE_VIEW_H

#include "device/device.h"

#define YOKE_AXES 3
#define YOKE_VIEW_OPERANDS (YOKE_PLAN_INPUTS + 1)

/* A row's elements as nested loops, the innermost last. Axes that all operands walk alike are one,
 * those of length 1 have left: the first axes then have length 1. */
typedef struct yoke_view {
    size_t lengths[YOKE_AXES];
    size_t steps[YOKE_VIEW_OPERANDS][YOKE_AXES]; /* elements; 0 along an axis that repeats */
    size_t elements;                             /* of the whole row */
} yoke_view;

/* The lengths of a row's axes in row-major order: an image's [channels, height, width], a
 * sequence's [positions, features, 1], a flat value's [channels, 1, 1]. */
void yoke_row_axes(yoke_dims dims, size_t lengths[YOKE_AXES]);
/* The index of an axis (a YOKE_AXIS_ bit) in that order. */
int yoke_axis_index(yoke_dims dims, unsigned axis);
size_t yoke_row_elements(yoke_dims dims);
/* The loop over a row of `whole`, with `count` operands whose axes have its lengths or 1. Rows lie
 * in row-major order; with channels_last images have their channels innermost. */
yoke_view yoke_view_of(yoke_dims whole, const yoke_dims *operands, int count, bool channels_last);

/* The elements of a row that a MOVE copies, as nested loops, the longest runs last. Element (i, j,
 * k) of the loops is at to_first + i * to_steps[0] + ... of the output, likewise of the input. */
typedef struct yoke_box {
    size_t lengths[YOKE_AXES];
    size_t to_first, to_steps[YOKE_AXES];
    size_t from_first, from_steps[YOKE_AXES];
    bool fills;  /* the output has elements outside */
    bool leaves; /* the input has elements outside */
} yoke_box;
yoke_box yoke_move_box(const yoke_operation *operation);

/* The matrices of a row of a MATMUL: left [m, k] or transposed, right [k, n] or transposed. */
typedef struct yoke_matrices {
    size_t count, m, k, n;
} yoke_matrices;
yoke_matrices yoke_matmul_matrices(const yoke_operation *operation);

#endif
