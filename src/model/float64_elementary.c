/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of elementary operations. */
#include <math.h>

#include "model/float64.h"

/* Functions. */

#define REAL double
#define FN(name) name
#define FORWARD(NAME, name, arguments, linear, value, da, db, dc)                                  \
    case YOKE_FN_##NAME:                                                                           \
        return (value);
#define BACKWARD(NAME, name, arguments, linear, value, da, db, dc)                                 \
    case YOKE_FN_##NAME:                                                                           \
        return k == 0 ? (da) : k == 1 ? (db) : (dc);

static double value_of(const yoke_term *term, double a, double b, double c) {
    double p = (double)term->p, q = (double)term->q;
    (void)a, (void)b, (void)c, (void)p, (void)q;
    switch ((yoke_function)term->function) {
        YOKE_ELEMENTARY(FORWARD)
    case YOKE_FUNCTIONS:
        break;
    }
    return 0;
}

/* The gradient of argument k; dy: that of the value. */
static double slope_of(const yoke_term *term, int k, double a, double b, double c, double dy) {
    double p = (double)term->p, q = (double)term->q, y = value_of(term, a, b, c);
    (void)a, (void)b, (void)c, (void)p, (void)q, (void)y;
    switch ((yoke_function)term->function) {
        YOKE_ELEMENTARY(BACKWARD)
    case YOKE_FUNCTIONS:
        break;
    }
    return 0;
}

/* Where element `index` of the view lies in operand k. */
static size_t place_of(const yoke_view *view, int k, size_t index) {
    size_t inner = index % view->lengths[2], outer = index / view->lengths[2];
    const size_t *steps = view->steps[k];
    return outer / view->lengths[1] * steps[0] + outer % view->lengths[1] * steps[1] +
           inner * steps[2];
}

void yoke_float64_function(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    const yoke_operation *operation = &layer->operation;
    const yoke_term *term = &operation->expression.terms[0];
    int inputs = operation->expression.inputs;
    yoke_dims dims[YOKE_PLAN_INPUTS];
    for (int k = 0; k < inputs; k++)
        dims[k] = yoke_operation_input(operation, k);
    yoke_view view = yoke_view_of(operation->output, dims, inputs, false);
    for (size_t i = 0; i < (size_t)r->rows * view.elements; i++) {
        size_t row = i / view.elements, at[YOKE_ARGUMENTS];
        double x[YOKE_ARGUMENTS];
        for (int k = 0; k < YOKE_ARGUMENTS; k++) {
            int input = term->arguments[k], value = layer->inputs[input];
            at[k] = row * yoke_float64_row(r, value) + place_of(&view, input, i % view.elements);
            x[k] = r->values[value][at[k]];
        }
        if (!backward) {
            r->values[layer->output][i] = value_of(term, x[0], x[1], x[2]);
            continue;
        }
        double dy = r->gradients[layer->output][i];
        for (int k = 0; k < YOKE_ARGUMENTS; k++) /* a missing argument adds 0 to the first's */
            r->gradients[layer->inputs[term->arguments[k]]][at[k]] +=
                slope_of(term, k, x[0], x[1], x[2], dy);
    }
}

/* Reductions. */

typedef struct reduced {
    double *values, *gradients;
    const double *inputs;
    double *input_gradients;
} reduced;

static void reduce_row(const yoke_view *view, yoke_reduce_kind reduction, const reduced *row,
                       double scale, bool backward) {
    size_t results = 1;
    for (int axis = 0; axis < YOKE_AXES; axis++)
        if (view->steps[1][axis] != 0) results *= view->lengths[axis];
    for (size_t i = 0; i < results && !backward; i++)
        row->values[i] = reduction == YOKE_REDUCE_MAX ? -INFINITY : 0;
    for (size_t i = 0; i < view->elements; i++) {
        size_t to = place_of(view, 1, i);
        double value = row->inputs[place_of(view, 0, i)];
        if (backward) {
            double ties = 1;
            if (reduction == YOKE_REDUCE_MAX) {
                ties = 0;
                for (size_t k = 0; k < view->elements; k++)
                    if (place_of(view, 1, k) == to)
                        ties += row->inputs[place_of(view, 0, k)] == row->values[to];
                if (value != row->values[to]) continue;
            }
            row->input_gradients[place_of(view, 0, i)] += row->gradients[to] * scale / ties;
        } else if (reduction != YOKE_REDUCE_MAX) {
            row->values[to] += value * scale;
        } else if (value > row->values[to] || isnan(value)) {
            row->values[to] = value;
        }
    }
}

void yoke_float64_reduction(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    const yoke_operation *operation = &layer->operation;
    const yoke_dims dims[] = {operation->input, operation->output};
    yoke_view view = yoke_view_of(operation->input, dims, 2, false);
    size_t from = yoke_row_elements(operation->input), to = yoke_row_elements(operation->output);
    double scale = operation->reduction == YOKE_REDUCE_MEAN ? (double)to / (double)from : 1;
    for (size_t i = 0; i < (size_t)r->rows; i++) {
        const reduced row = {.values = r->values[layer->output] + i * to,
                             .gradients = r->gradients[layer->output] + i * to,
                             .inputs = r->values[layer->inputs[0]] + i * from,
                             .input_gradients = r->gradients[layer->inputs[0]] + i * from};
        reduce_row(&view, operation->reduction, &row, scale, backward);
    }
}

/* Moves. */

void yoke_float64_move(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    const yoke_operation *operation = &layer->operation;
    yoke_box box = yoke_move_box(operation);
    size_t from = yoke_row_elements(operation->input), to = yoke_row_elements(operation->output);
    for (size_t row = 0; row < (size_t)r->rows; row++) {
        for (size_t i = 0; i < to && !backward; i++)
            r->values[layer->output][row * to + i] = (double)operation->move.fill;
        for (size_t i = 0; i < box.lengths[0] * box.lengths[1] * box.lengths[2]; i++) {
            size_t place[] = {i / box.lengths[2] / box.lengths[1],
                              i / box.lengths[2] % box.lengths[1], i % box.lengths[2]};
            size_t t = row * to + box.to_first, f = row * from + box.from_first;
            for (int axis = 0; axis < YOKE_AXES; axis++) {
                t += place[axis] * box.to_steps[axis];
                f += place[axis] * box.from_steps[axis];
            }
            if (backward)
                r->gradients[layer->inputs[0]][f] += r->gradients[layer->output][t];
            else
                r->values[layer->output][t] = r->values[layer->inputs[0]][f];
        }
    }
}

/* Matrices. */

void yoke_float64_matmul(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    const yoke_operation *operation = &layer->operation;
    yoke_matrices size = yoke_matmul_matrices(operation);
    int left = layer->inputs[0], right = layer->inputs[1];
    for (size_t matrix = 0; matrix < (size_t)r->rows * size.count; matrix++)
        for (size_t m = 0; m < size.m; m++)
            for (size_t n = 0; n < size.n; n++) {
                size_t y = matrix * size.m * size.n + m * size.n + n;
                for (size_t k = 0; k < size.k; k++) {
                    size_t a = matrix * size.m * size.k +
                               (operation->transpose_left ? k * size.m + m : m * size.k + k);
                    size_t b = matrix * size.k * size.n +
                               (operation->transpose_right ? n * size.k + k : k * size.n + n);
                    double dy = r->gradients[layer->output][y];
                    if (backward) {
                        r->gradients[left][a] += dy * r->values[right][b];
                        r->gradients[right][b] += dy * r->values[left][a];
                    } else {
                        r->values[layer->output][y] += r->values[left][a] * r->values[right][b];
                    }
                }
            }
}

/* Parameters. */

void yoke_float64_parameter(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t elements = yoke_float64_row(r, layer->output);
    int tensor = layer->tensors[0];
    for (size_t i = 0; i < (size_t)r->rows * elements; i++) {
        if (backward)
            r->tensor_gradients[tensor][i % elements] += r->gradients[layer->output][i];
        else
            r->values[layer->output][i] = r->tensors[tensor][i % elements];
    }
}

void yoke_float64_constant(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t elements = yoke_row_elements(layer->operation.output);
    for (size_t i = 0; !backward && i < (size_t)r->rows * elements; i++)
        r->values[layer->output][i] = (double)layer->operation.weights[i % elements];
}
