/* SPDX-License-Identifier: Apache-2.0 */
/* Losses as compositions of elementary operations: a number for each row. */
#include "yoke/losses.h"

#include <stdlib.h>

#include "model/graph.h"
#include "yoke/composed.h"

#define NEVER (-1e30) /* the logarithm of 0; minus infinity would give NaN in gradients */

static const yoke_value nothing = {YOKE_NONE};

static yoke_value refuse(yoke_model *model, yoke_status status) {
    return yoke_builder_stopped(model) ? nothing : yoke_builder_result(model, status);
}

static yoke_value number_of(yoke_model *model, yoke_value value, yoke_reduce_kind reduction) {
    yoke_value one = yoke_reduce_axes(model, value, reduction, YOKE_AXIS_ALL);
    return yoke_shape_of(model, one).flat ? one : yoke_reshape(model, one, yoke_shape_vector(1));
}

yoke_value yoke_l1_loss(yoke_model *model, yoke_value prediction, yoke_value target) {
    yoke_value size = yoke_map(model, YOKE_FN_ABS, yoke_subtract(model, prediction, target));
    return number_of(model, size, YOKE_REDUCE_MEAN);
}

yoke_value yoke_kl_loss(yoke_model *model, yoke_value log_prediction, yoke_value target) {
    yoke_value gap = yoke_subtract(model, yoke_map(model, YOKE_FN_LOG, target), log_prediction);
    return number_of(model, yoke_multiply(model, gap, target), YOKE_REDUCE_SUM);
}

yoke_value yoke_dice_loss(yoke_model *model, yoke_value prediction, yoke_value target) {
    yoke_value both = number_of(model, yoke_multiply(model, prediction, target), YOKE_REDUCE_SUM);
    yoke_value sum = yoke_add(model, number_of(model, prediction, YOKE_REDUCE_SUM),
                              number_of(model, target, YOKE_REDUCE_SUM));
    both =
        yoke_map_with(model, YOKE_FN_OFFSET, yoke_map_with(model, YOKE_FN_SCALE, both, 2, 0), 1, 0);
    sum = yoke_map_with(model, YOKE_FN_OFFSET, sum, 1, 0);
    return yoke_map_with(model, YOKE_FN_OFFSET,
                         yoke_map(model, YOKE_FN_NEGATE, yoke_divide(model, both, sum)), 1, 0);
}

/* p * a + q. */
static yoke_value linear_of(yoke_model *model, yoke_value a, double p, double q) {
    if (p != 1) a = yoke_map_with(model, YOKE_FN_SCALE, a, p, 0);
    return q != 0 ? yoke_map_with(model, YOKE_FN_OFFSET, a, q, 0) : a;
}

static yoke_value power_of(yoke_model *model, yoke_value a, double exponent) {
    return exponent == 2 ? yoke_map(model, YOKE_FN_SQUARE, a)
                         : yoke_map_with(model, YOKE_FN_POWER, a, exponent, 0);
}

/* Classes. */

yoke_value yoke_nll_loss(yoke_model *model, yoke_value log_probabilities, yoke_value ids) {
    yoke_shape shape = yoke_shape_of(model, log_probabilities);
    int positions = yoke_shape_of(model, ids).channels;
    if (yoke_builder_stopped(model)) return nothing;
    if (shape.height != positions || (!shape.flat && !shape.sequence))
        return refuse(model, FAIL(YOKE_ERROR_ARGUMENT,
                                  "nll_loss: %d classes for probabilities of %d x %d x %d%s: a "
                                  "vector needs one, a sequence one for each position",
                                  positions, shape.channels, shape.height, shape.width,
                                  yoke_shape_kind(shape)));
    if (shape.flat)
        log_probabilities =
            yoke_reshape(model, log_probabilities, yoke_shape_sequence(1, shape.channels));
    yoke_value chosen = yoke_one_hot(model, ids, shape.channels);
    yoke_value sum =
        number_of(model, yoke_multiply(model, log_probabilities, chosen), YOKE_REDUCE_SUM);
    yoke_value count = number_of(model, chosen, YOKE_REDUCE_SUM);
    count = yoke_map_with(model, YOKE_FN_CLAMP, count, 1, 1e30);
    return yoke_map(model, YOKE_FN_NEGATE, yoke_divide(model, sum, count));
}

yoke_value yoke_focal_loss(yoke_model *model, yoke_value logits, yoke_value target, double alpha,
                           double gamma) {
    if (!yoke_builder_stopped(model) && !(gamma >= 1 && alpha <= 1))
        return refuse(model,
                      FAIL(YOKE_ERROR_ARGUMENT,
                           "focal_loss: gamma is %g and alpha %g: gamma is at least 1, alpha "
                           "at most 1",
                           gamma, alpha));
    yoke_value p = yoke_sigmoid(model, logits);
    /* 1 - p_t: p + t - 2 p t */
    yoke_value both = linear_of(model, yoke_multiply(model, p, target), -2, 0);
    yoke_value wrong = yoke_add(model, yoke_add(model, p, target), both);
    yoke_value cross = yoke_subtract(model, yoke_map(model, YOKE_FN_SOFTPLUS, logits),
                                     yoke_multiply(model, logits, target));
    yoke_value loss = yoke_multiply(model, cross, power_of(model, wrong, gamma));
    if (alpha >= 0)
        loss = yoke_multiply(model, loss, linear_of(model, target, 2 * alpha - 1, 1 - alpha));
    return number_of(model, loss, YOKE_REDUCE_MEAN);
}

static yoke_value distance(yoke_model *model, yoke_value one, yoke_value other) {
    yoke_value gap = linear_of(model, yoke_subtract(model, one, other), 1, 1e-6);
    return yoke_map(model, YOKE_FN_SQRT,
                    number_of(model, yoke_map(model, YOKE_FN_SQUARE, gap), YOKE_REDUCE_SUM));
}

yoke_value yoke_triplet_loss(yoke_model *model, yoke_value anchor, yoke_value positive,
                             yoke_value negative, double margin) {
    yoke_value gap =
        yoke_subtract(model, distance(model, anchor, positive), distance(model, anchor, negative));
    return yoke_relu(model, linear_of(model, gap, 1, margin));
}

/* CTC. The labels of an alignment are the ids with blanks around and between them: blank, id 0,
 * blank, id 1, ..., blank. State s of a position is the sum, over all ways to get there, of the
 * probabilities so far; as a logarithm. */

typedef struct ctc {
    yoke_model *model;
    yoke_ctc_options options;
    yoke_value log_probabilities, targets; /* targets: the ids */
    int positions, classes, ids, states;   /* states: 2 * ids + 1 */
    yoke_value skips;     /* [states] 0 where s - 2 may lead to s, otherwise NEVER */
    yoke_value emissions; /* [positions, states] logarithms of their labels */
} ctc;

/* A constant [rows, columns] of 0 with 1 at (2 column + first, column). */
static yoke_value spread(ctc *of, int rows, int columns, int first) {
    size_t bytes = (size_t)rows * (size_t)columns * sizeof(float);
    float *values = yoke_calloc(1, bytes > 0 ? bytes : 1);
    if (values == NULL) return refuse(of->model, FAIL_MEMORY(bytes, "a table of ctc_loss"));
    for (int column = 0; column < columns; column++)
        if (2 * column + first < rows)
            values[(size_t)(2 * column + first) * (size_t)columns + (size_t)column] = 1;
    yoke_value table = yoke_constant(of->model, yoke_shape_sequence(rows, columns), values);
    yoke_free(values);
    return table;
}

/* [states, classes]: 1 at the blank of every even state. */
static yoke_value blanks(ctc *of) {
    size_t count = (size_t)of->states * (size_t)of->classes;
    float *values = yoke_calloc(count, sizeof *values);
    if (values == NULL)
        return refuse(of->model, FAIL_MEMORY(count * sizeof *values, "a table of ctc_loss"));
    for (int state = 0; state < of->states; state += 2)
        values[(size_t)state * (size_t)of->classes + (size_t)of->options.blank] = 1;
    yoke_value table =
        yoke_constant(of->model, yoke_shape_sequence(of->states, of->classes), values);
    yoke_free(values);
    return table;
}

/* The label of each state picks its column of the probabilities. */
static void emit(ctc *of) {
    yoke_model *model = of->model;
    yoke_value ids = yoke_one_hot(model, of->targets, of->classes);
    yoke_value labels = yoke_matmul(model, spread(of, of->states, of->ids, 1), ids, false, false);
    labels = yoke_add(model, labels, blanks(of));
    of->emissions = yoke_matmul(model, of->log_probabilities, labels, false, true);
}

/* [ids]: 1 for an id that may follow the one before it without a blank between them: they differ.
 */
static yoke_value find_skips(const ctc *of) {
    yoke_model *model = of->model;
    yoke_value ids = of->targets;
    const float none = 0;
    if (of->ids == 1) return yoke_constant(model, yoke_shape_vector(1), &none);
    yoke_value before = yoke_slice(model, ids, YOKE_AXIS_CHANNELS, 0, of->ids - 1, 0);
    yoke_value behind = yoke_slice(model, ids, YOKE_AXIS_CHANNELS, 1, of->ids, 0);
    yoke_value equal = yoke_combine(model, YOKE_FN_EQUAL, before, behind);
    return yoke_slice(model, linear_of(model, equal, -1, 1), YOKE_AXIS_CHANNELS, -1, of->ids - 1,
                      0);
}

static void allow_skips(ctc *of) {
    yoke_model *model = of->model;
    yoke_value skips = yoke_reshape(model, find_skips(of), yoke_shape_sequence(of->ids, 1));
    skips = yoke_matmul(model, spread(of, of->states, of->ids, 1), skips, false, false);
    skips = yoke_reshape(model, skips, yoke_shape_vector(of->states));
    of->skips = linear_of(model, linear_of(model, skips, 1, -1), -NEVER, 0);
}

/* log(exp a + exp b + exp c). */
static yoke_value add_logarithms(yoke_model *model, const yoke_value terms[3]) {
    yoke_value most = yoke_combine(model, YOKE_FN_MAXIMUM, terms[0], terms[1]);
    most = yoke_combine(model, YOKE_FN_MAXIMUM, most, terms[2]);
    yoke_value sum = nothing;
    for (int i = 0; i < 3; i++) {
        yoke_value part = yoke_map(model, YOKE_FN_EXP, yoke_subtract(model, terms[i], most));
        sum = i == 0 ? part : yoke_add(model, sum, part);
    }
    return yoke_add(model, most, yoke_map(model, YOKE_FN_LOG, sum));
}

static yoke_value emission_at(const ctc *of, int position) {
    yoke_value row =
        yoke_slice(of->model, of->emissions, YOKE_AXIS_HEIGHT, position, position + 1, 0);
    return yoke_reshape(of->model, row, yoke_shape_vector(of->states));
}

/* Behind the end of a row its states stay. */
static yoke_value keep_at_end(const ctc *of, yoke_value next, yoke_value states, int position) {
    yoke_model *model = of->model;
    const float place = (float)position;
    if (of->options.input_length == NULL) return next;
    yoke_value inside = yoke_combine(model, YOKE_FN_GREATER, *of->options.input_length,
                                     yoke_constant(model, yoke_shape_vector(1), &place));
    return yoke_where(model, inside, next, states);
}

static yoke_value step(const ctc *of, yoke_value states, int position) {
    yoke_model *model = of->model;
    yoke_value one = yoke_slice(model, states, YOKE_AXIS_CHANNELS, -1, of->states - 1, NEVER);
    yoke_value two = yoke_slice(model, states, YOKE_AXIS_CHANNELS, -2, of->states - 2, NEVER);
    const yoke_value terms[] = {states, one, yoke_add(model, two, of->skips)};
    yoke_value next = yoke_add(model, add_logarithms(model, terms), emission_at(of, position));
    return keep_at_end(of, next, states, position);
}

/* 0 at the first two states, NEVER at the others. */
static yoke_value begin_states(const ctc *of) {
    float values[2] = {0, 0};
    yoke_value first = yoke_constant(of->model, yoke_shape_vector(2), values);
    return yoke_add(of->model, emission_at(of, 0),
                    yoke_slice(of->model, first, YOKE_AXIS_CHANNELS, 0, of->states, NEVER));
}

static yoke_value length_of_target(const ctc *of) {
    const float all = (float)of->ids;
    if (of->options.target_length != NULL) return *of->options.target_length;
    return yoke_constant(of->model, yoke_shape_vector(1), &all);
}

/* The last id and the blank behind it end an alignment. */
static yoke_value end_states(const ctc *of, yoke_value states) {
    yoke_model *model = of->model;
    float *numbers = yoke_calloc((size_t)of->states, sizeof *numbers);
    if (numbers == NULL) return refuse(model, FAIL_MEMORY(sizeof *numbers, "states of ctc_loss"));
    for (int i = 0; i < of->states; i++)
        numbers[i] = (float)i;
    yoke_value places = yoke_constant(model, yoke_shape_vector(of->states), numbers);
    yoke_free(numbers);
    yoke_value last = linear_of(model, length_of_target(of), 2, 0);
    yoke_value ends =
        yoke_add(model, yoke_combine(model, YOKE_FN_EQUAL, places, last),
                 yoke_combine(model, YOKE_FN_EQUAL, linear_of(model, places, 1, 1), last));
    states = yoke_add(model, states, linear_of(model, linear_of(model, ends, 1, -1), -NEVER, 0));
    yoke_value most = number_of(model, states, YOKE_REDUCE_MAX);
    yoke_value sum = number_of(
        model, yoke_map(model, YOKE_FN_EXP, yoke_subtract(model, states, most)), YOKE_REDUCE_SUM);
    return yoke_add(model, most, yoke_map(model, YOKE_FN_LOG, sum));
}

static yoke_status check_ctc(ctc *of) {
    yoke_shape shape = yoke_shape_of(of->model, of->log_probabilities);
    yoke_shape ids = yoke_shape_of(of->model, of->targets);
    of->positions = shape.height;
    of->classes = shape.channels;
    of->ids = ids.channels;
    of->states = 2 * of->ids + 1;
    if (shape.sequence && ids.flat && of->options.blank >= 0 && of->options.blank < of->classes)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "ctc_loss: probabilities of %d x %d x %d%s, ids of %d x %d x %d%s, blank %d: needs "
                "a sequence, a vector and one of the classes",
                shape.channels, shape.height, shape.width, yoke_shape_kind(shape), ids.channels,
                ids.height, ids.width, yoke_shape_kind(ids), of->options.blank);
}

yoke_value yoke_ctc_loss(yoke_model *model, yoke_value log_probabilities, yoke_value ids,
                         const yoke_ctc_options *given) {
    ctc of = {.model = model,
              .options = YOKE_CTC_OPTIONS_INIT,
              .log_probabilities = log_probabilities,
              .targets = ids};
    if (yoke_builder_stopped(model)) return nothing;
    yoke_status status =
        yoke_options_load(&of.options, sizeof of.options, given, "yoke_ctc_options");
    if (status == YOKE_OK) status = check_ctc(&of);
    if (status != YOKE_OK) return refuse(model, status);
    emit(&of);
    allow_skips(&of);
    yoke_value states = begin_states(&of);
    for (int position = 1; position < of.positions; position++)
        states = step(&of, states, position);
    yoke_value sum = yoke_map(model, YOKE_FN_NEGATE, end_states(&of, states));
    return yoke_divide(model, sum, length_of_target(&of));
}
