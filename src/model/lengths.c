/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of different length: what marks padding is a comparison of a row's length with the number of
 * each position. */
#include "yoke/lengths.h"

#include <stdlib.h>

#include "model/graph.h"

#define HIDDEN 1e30 /* below every score; minus infinity would give NaN in gradients */

static const yoke_value nothing = {YOKE_NONE};

/* 1 where a position's number is below the row's length, in the given shape of `positions`
 * elements. */
static yoke_value compare(yoke_model *model, yoke_value lengths, yoke_shape shape, int positions) {
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape given = yoke_shape_of(model, lengths);
    if (given.channels != 1 || given.height != 1 || given.width != 1 || positions < 1)
        return yoke_builder_result(
            model, FAIL(YOKE_ERROR_ARGUMENT,
                        "lengths of %d x %d x %d for %d positions: a row has one length, a vector "
                        "of one number, and at least one position",
                        given.channels, given.height, given.width, positions));
    float *numbers = yoke_malloc((size_t)positions * sizeof *numbers);
    if (numbers == NULL)
        return yoke_builder_result(
            model, FAIL_MEMORY((size_t)positions * sizeof *numbers, "the numbers of positions"));
    for (int i = 0; i < positions; i++)
        numbers[i] = (float)i;
    yoke_value places = yoke_constant(model, shape, numbers);
    yoke_free(numbers);
    shape.channels = shape.height = shape.width = 1;
    yoke_value length = yoke_reshape(model, lengths, shape);
    return yoke_elementary(model, YOKE_FN_GREATER, (const yoke_value[]){length, places}, 0, 0);
}

yoke_value yoke_valid_positions(yoke_model *model, yoke_value lengths, int positions) {
    return compare(model, lengths, yoke_shape_sequence(positions, 1), positions);
}

yoke_value yoke_padding_mask(yoke_model *model, yoke_value lengths, int positions) {
    yoke_value valid = compare(model, lengths, yoke_shape_image(1, 1, positions), positions);
    valid = yoke_map_with(model, YOKE_FN_OFFSET, valid, -1, 0);
    return yoke_map_with(model, YOKE_FN_SCALE, valid, HIDDEN, 0);
}

yoke_value yoke_mean_of_length(yoke_model *model, yoke_value input, yoke_value lengths) {
    yoke_shape shape = yoke_shape_of(model, input);
    yoke_value valid = yoke_valid_positions(model, lengths, shape.height);
    yoke_value sum = yoke_reduce_axes(model, yoke_multiply(model, input, valid), YOKE_REDUCE_SUM,
                                      YOKE_AXIS_HEIGHT);
    yoke_value count = yoke_reduce_axes(model, valid, YOKE_REDUCE_SUM, YOKE_AXIS_HEIGHT);
    return yoke_divide(model, sum, yoke_map_with(model, YOKE_FN_CLAMP, count, 1, 1e30));
}
