/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as nested loops. */
#include "device/view.h"

void yoke_row_axes(yoke_dims dims, size_t lengths[YOKE_AXES]) {
    size_t channels = (size_t)dims.channels, height = (size_t)dims.height;
    lengths[0] = dims.sequence ? height : channels;
    lengths[1] = dims.sequence ? channels : height;
    lengths[2] = (size_t)dims.width;
}

int yoke_axis_index(yoke_dims dims, unsigned axis) {
    if (axis == YOKE_AXIS_WIDTH) return 2;
    return (axis == YOKE_AXIS_HEIGHT) == !dims.sequence ? 1 : 0;
}

size_t yoke_row_elements(yoke_dims dims) {
    return (size_t)dims.channels * (size_t)dims.height * (size_t)dims.width;
}

static void exchange(size_t values[YOKE_AXES]) {
    size_t channels = values[0];
    values[0] = values[1];
    values[1] = values[2];
    values[2] = channels;
}

/* An operand's own lengths become its steps. */
static void set_steps(size_t steps[YOKE_AXES], yoke_dims operand, bool channels_last) {
    size_t lengths[YOKE_AXES], step = 1;
    yoke_row_axes(operand, lengths);
    if (channels_last && !operand.sequence) exchange(lengths);
    for (int axis = YOKE_AXES - 1; axis >= 0; axis--) {
        steps[axis] = lengths[axis] > 1 ? step : 0;
        step *= lengths[axis];
    }
}

/* Whether every operand walks over `axis` and the next one as over one axis. */
static bool is_one(const yoke_view *view, int count, int axis) {
    for (int k = 0; k < count; k++)
        if (view->steps[k][axis] != view->steps[k][axis + 1] * view->lengths[axis + 1])
            return false;
    return true;
}

/* Takes `axis` out: those before it move one place towards the innermost. */
static void remove_axis(yoke_view *view, int count, int axis) {
    for (int a = axis; a > 0; a--) {
        view->lengths[a] = view->lengths[a - 1];
        for (int k = 0; k < count; k++)
            view->steps[k][a] = view->steps[k][a - 1];
    }
    view->lengths[0] = 1;
    for (int k = 0; k < count; k++)
        view->steps[k][0] = 0;
}

yoke_view yoke_view_of(yoke_dims whole, const yoke_dims *operands, int count, bool channels_last) {
    yoke_view view = {.elements = yoke_row_elements(whole)};
    yoke_row_axes(whole, view.lengths);
    if (channels_last && !whole.sequence) exchange(view.lengths);
    for (int k = 0; k < count; k++)
        set_steps(view.steps[k], operands[k], channels_last);
    for (int round = 0; round < YOKE_AXES; round++) /* each makes one axis less, or none */
        for (int axis = 0; axis < YOKE_AXES - 1; axis++) {
            int inner = axis + 1;
            if (view.lengths[inner] == 1) {
                remove_axis(&view, count, inner);
            } else if (view.lengths[axis] > 1 && is_one(&view, count, axis)) {
                view.lengths[inner] *= view.lengths[axis];
                remove_axis(&view, count, axis);
            }
        }
    return view;
}

/* Axes of length 1 leave, and neighbours that both sides walk as one are one: the innermost loop
 * becomes as long as it can. */
static void join_axes(yoke_box *box) {
    int inner = YOKE_AXES - 1;
    for (int axis = YOKE_AXES - 2; axis >= 0; axis--) {
        size_t length = box->lengths[axis], joined = box->lengths[inner];
        bool one = box->to_steps[axis] == box->to_steps[inner] * joined &&
                   box->from_steps[axis] == box->from_steps[inner] * joined;
        if (length > 1 && joined > 1 && one) box->lengths[inner] = joined * length;
        if (length == 1 || (joined > 1 && one)) continue;
        if (joined > 1) inner--;
        box->lengths[inner] = length;
        box->to_steps[inner] = box->to_steps[axis];
        box->from_steps[inner] = box->from_steps[axis];
    }
    while (inner-- > 0)
        box->lengths[inner] = 1;
}

yoke_box yoke_move_box(const yoke_operation *operation) {
    size_t from[YOKE_AXES], to[YOKE_AXES], from_steps[YOKE_AXES], to_step = 1;
    yoke_box box = {0};
    yoke_row_axes(operation->input, from);
    yoke_row_axes(operation->output, to);
    from_steps[2] = 1;
    from_steps[1] = from[2];
    from_steps[0] = from[1] * from[2];
    for (int axis = YOKE_AXES - 1; axis >= 0; axis--) {
        int source = operation->move.order[axis], begin = operation->move.begin[axis];
        size_t before = begin < 0 ? (size_t)-begin : 0, skipped = begin > 0 ? (size_t)begin : 0;
        size_t there = from[source] - skipped, here = to[axis] - before;
        box.lengths[axis] = here < there ? here : there;
        box.to_steps[axis] = to_step;
        box.from_steps[axis] = from_steps[source];
        box.to_first += before * to_step;
        box.from_first += skipped * from_steps[source];
        box.fills = box.fills || box.lengths[axis] < to[axis];
        box.leaves = box.leaves || box.lengths[axis] < from[source];
        to_step *= to[axis];
    }
    join_axes(&box);
    return box;
}

yoke_matrices yoke_matmul_matrices(const yoke_operation *operation) {
    size_t left[YOKE_AXES], output[YOKE_AXES];
    int first = operation->input.sequence ? 0 : 1; /* the axis of a matrix's rows */
    yoke_row_axes(operation->input, left);
    yoke_row_axes(operation->output, output);
    return (yoke_matrices){.count = operation->input.sequence ? 1 : left[0],
                           .m = output[first],
                           .k = left[operation->transpose_left ? first : first + 1],
                           .n = output[first + 1]};
}
