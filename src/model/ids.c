/* SPDX-License-Identifier: Apache-2.0 */
/* Whole numbers that choose: classes as rows of 0 and 1, rows of a table, bags of tokens. */
#include <stdlib.h>

#include "model/graph.h"
#include "yoke/composed.h"

static const yoke_value nothing = {YOKE_NONE};

yoke_value yoke_one_hot(yoke_model *model, yoke_value ids, int classes) {
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape shape = yoke_shape_of(model, ids);
    if (!shape.flat || classes < 1)
        return yoke_builder_result(
            model,
            FAIL(YOKE_ERROR_ARGUMENT,
                 "one_hot: %d classes of ids of %d x %d x %d%s: needs a vector of ids, and "
                 "at least one class",
                 classes, shape.channels, shape.height, shape.width, yoke_shape_kind(shape)));
    float *numbers = yoke_malloc((size_t)classes * sizeof *numbers);
    if (numbers == NULL)
        return yoke_builder_result(model,
                                   FAIL_MEMORY((size_t)classes * sizeof *numbers, "classes"));
    for (int i = 0; i < classes; i++)
        numbers[i] = (float)i;
    yoke_value all = yoke_constant(model, yoke_shape_sequence(1, classes), numbers);
    yoke_free(numbers);
    ids = yoke_reshape(model, ids, yoke_shape_sequence(shape.channels, 1));
    return yoke_combine(model, YOKE_FN_EQUAL, ids, all);
}

yoke_value yoke_index_select(yoke_model *model, yoke_value table, yoke_value ids) {
    yoke_shape shape = yoke_shape_of(model, table);
    return yoke_matmul(model, yoke_one_hot(model, ids, shape.height), table, false, false);
}

yoke_value yoke_embedding_bag(yoke_model *model, yoke_value input,
                              const yoke_embedding_options *options, yoke_reduce_kind reduction) {
    yoke_value bag = yoke_embedding(model, input, options);
    return yoke_flatten(model, yoke_reduce_axes(model, bag, reduction, YOKE_AXIS_HEIGHT));
}
