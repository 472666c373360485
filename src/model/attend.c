/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of matrices and elementary operations. */
#include "yoke/attention.h"

#include <math.h>
#include <stdlib.h>

#include "model/graph.h"
#include "yoke/composed.h"

#define HIDDEN                                                                                     \
    (-1e30f) /* a score that softmax makes 0; minus infinity would give NaN in gradients */

static const yoke_value nothing = {YOKE_NONE};

yoke_value yoke_split_heads(yoke_model *model, yoke_value input, int heads) {
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape shape = yoke_shape_of(model, input);
    if (!shape.sequence || heads < 1 || shape.channels % heads != 0)
        return yoke_builder_result(
            model, FAIL(YOKE_ERROR_ARGUMENT,
                        "split_heads: %d heads of %d x %d x %d%s: needs a sequence whose features "
                        "they divide",
                        heads, shape.channels, shape.height, shape.width, yoke_shape_kind(shape)));
    yoke_value image =
        yoke_reshape(model, input, yoke_shape_image(shape.height, heads, shape.channels / heads));
    return yoke_transpose(model, image, YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
}

yoke_value yoke_merge_heads(yoke_model *model, yoke_value input) {
    yoke_shape shape = yoke_shape_of(model, input);
    yoke_value image = yoke_transpose(model, input, YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
    return yoke_reshape(model, image,
                        yoke_shape_sequence(shape.height, shape.channels * shape.width));
}

yoke_value yoke_attend(yoke_model *model, yoke_value queries, yoke_value keys, yoke_value values,
                       yoke_value mask) {
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape shape = yoke_shape_of(model, queries), key = yoke_shape_of(model, keys);
    /* Grouped heads lie side by side: with fewer heads of keys, the queries of a group are as those
     * of one head with more positions. */
    bool grouped = key.channels != shape.channels;
    if (grouped && (key.channels < 1 || shape.channels % key.channels != 0))
        return yoke_builder_result(
            model, FAIL(YOKE_ERROR_ARGUMENT,
                        "attend: %d heads of keys for %d of queries: the first must divide the "
                        "second",
                        key.channels, shape.channels));
    int positions = shape.height * shape.channels / key.channels;
    yoke_shape of_groups = yoke_shape_image(key.channels, positions, key.height);
    if (grouped)
        queries =
            yoke_reshape(model, queries, yoke_shape_image(key.channels, positions, shape.width));
    yoke_value scores = yoke_matmul(model, queries, keys, false, true);
    if (grouped)
        scores =
            yoke_reshape(model, scores, yoke_shape_image(shape.channels, shape.height, key.height));
    scores = yoke_map_with(model, YOKE_FN_SCALE, scores, 1 / sqrt((double)shape.width), 0);
    if (mask.index >= 0) scores = yoke_add(model, scores, mask);
    scores = yoke_softmax_along(model, scores, YOKE_AXIS_WIDTH);
    if (grouped) scores = yoke_reshape(model, scores, of_groups);
    yoke_value mixed = yoke_matmul(model, scores, values, false, false);
    if (!grouped) return mixed;
    shape.width = yoke_shape_of(model, mixed).width;
    return yoke_reshape(model, mixed, shape);
}

/* Adds a constant whose elements (row, column) `fill` computes. */
static yoke_value add_table(yoke_model *model, int rows, int columns,
                            float (*fill)(int row, int column, int columns, double base),
                            double base) {
    if (yoke_builder_stopped(model)) return nothing;
    if (rows < 1 || columns < 1)
        return yoke_builder_result(model, FAIL(YOKE_ERROR_ARGUMENT,
                                               "a table of %d x %d: it must "
                                               "have a row and a column",
                                               rows, columns));
    size_t bytes = (size_t)rows * (size_t)columns * sizeof(float);
    float *values = yoke_malloc(bytes);
    if (values == NULL) return yoke_builder_result(model, FAIL_MEMORY(bytes, "a table"));
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            values[(size_t)row * (size_t)columns + (size_t)column] =
                fill(row, column, columns, base);
    yoke_value table = yoke_constant(model, yoke_shape_image(1, rows, columns), values);
    yoke_free(values);
    return table;
}

static float hides_later(int row, int column, int columns, double base) {
    (void)columns, (void)base;
    return column > row ? HIDDEN : 0;
}

yoke_value yoke_causal_mask(yoke_model *model, int positions) {
    return add_table(model, positions, positions, hides_later, 0);
}

static double angle(int position, int feature, int size, double base) {
    return position * pow(base, -2.0 * (feature % (size / 2)) / size);
}

static float cosine(int position, int feature, int size, double base) {
    return (float)cos(angle(position, feature, size, base));
}

static float sine(int position, int feature, int size, double base) {
    return (float)sin(angle(position, feature, size, base));
}

yoke_value yoke_rotary(yoke_model *model, yoke_value input, double base) {
    yoke_shape shape = yoke_shape_of(model, input);
    if (yoke_builder_stopped(model)) return nothing;
    if (shape.flat || shape.sequence || shape.width % 2 != 0 || !(base > 1))
        return yoke_builder_result(
            model, FAIL(YOKE_ERROR_ARGUMENT,
                        "rotary: %d x %d x %d%s with base %g: needs an image [heads, positions, "
                        "size] of even size, and a base above 1",
                        shape.channels, shape.height, shape.width, yoke_shape_kind(shape), base));
    int half = shape.width / 2;
    yoke_value first = yoke_slice(model, input, YOKE_AXIS_WIDTH, 0, half, 0);
    yoke_value second = yoke_slice(model, input, YOKE_AXIS_WIDTH, half, shape.width, 0);
    yoke_value turned = yoke_concat_along(model, yoke_map_with(model, YOKE_FN_NEGATE, second, 0, 0),
                                          first, YOKE_AXIS_WIDTH);
    yoke_value along =
        yoke_multiply(model, input, add_table(model, shape.height, shape.width, cosine, base));
    yoke_value across =
        yoke_multiply(model, turned, add_table(model, shape.height, shape.width, sine, base));
    return yoke_add(model, along, across);
}
