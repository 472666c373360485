/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Elementary operations: arithmetic with broadcasting, functions of one element, reductions, moves
 * and products of values. Any network, norm or loss is a composition of them; the library derives
 * its backward and computes chains of functions in one pass over memory.
 *
 * A row of an image has the axes channels, height and width; of a sequence height (positions) and
 * channels (features); of a flat value channels. As in every layer call, the model keeps the first
 * error and yoke_model_finish reports it.
 */
#ifndef YOKE_ELEMENTARY_H
#define YOKE_ELEMENTARY_H

#include "yoke/function.h"
#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Adds a function of each element. The arguments are all images, all sequences or all flat; an
 * axis of length 1 is repeated (PyTorch's broadcasting), and a flat value of one channel, a number
 * for each row, goes with every shape. The gradient of what is repeated is summed. A chain of
 * functions that nobody else reads becomes one pass.
 *
 * @param model      The model.
 * @param function   Which one.
 * @param arguments  [yoke_function_arguments(function)].
 * @param p          The first constant; 0 for functions without.
 * @param q          The second constant; likewise.
 * @return A value with the longest of each axis.
 */
YOKE_API yoke_value yoke_elementary(yoke_model *model, yoke_function function,
                                    const yoke_value *arguments, double p, double q);

/** yoke_elementary of one argument. */
static inline yoke_value yoke_map(yoke_model *model, yoke_function function, yoke_value a) {
    return yoke_elementary(model, function, &a, 0, 0);
}

/** yoke_elementary of one argument, with constants. */
static inline yoke_value yoke_map_with(yoke_model *model, yoke_function function, yoke_value a,
                                       double p, double q) {
    return yoke_elementary(model, function, &a, p, q);
}

/** yoke_elementary of two arguments. */
static inline yoke_value yoke_combine(yoke_model *model, yoke_function function, yoke_value a,
                                      yoke_value b) {
    yoke_value arguments[2];
    arguments[0] = a;
    arguments[1] = b;
    return yoke_elementary(model, function, arguments, 0, 0);
}

/** Adds a - b; see yoke_elementary for shapes. */
static inline yoke_value yoke_subtract(yoke_model *model, yoke_value a, yoke_value b) {
    return yoke_combine(model, YOKE_FN_SUBTRACT, a, b);
}

/** Adds a / b; see yoke_elementary for shapes. */
static inline yoke_value yoke_divide(yoke_model *model, yoke_value a, yoke_value b) {
    return yoke_combine(model, YOKE_FN_DIVIDE, a, b);
}

/** Adds a choice: `yes` where the condition is not 0, otherwise `no`; see yoke_elementary for
 * shapes. */
static inline yoke_value yoke_where(yoke_model *model, yoke_value condition, yoke_value yes,
                                    yoke_value no) {
    yoke_value arguments[3];
    arguments[0] = condition;
    arguments[1] = yes;
    arguments[2] = no;
    return yoke_elementary(model, YOKE_FN_WHERE, arguments, 0, 0);
}

/** Adds a reduction over axes of each row.
 *
 * @param model      The model.
 * @param input      What it reads.
 * @param reduction  How to combine.
 * @param axes       A set of axes; those that the value lacks count as of length 1.
 * @return The shape of the input, with length 1 along these axes (keepdim=True).
 */
YOKE_API yoke_value yoke_reduce_axes(yoke_model *model, yoke_value input,
                                     yoke_reduce_kind reduction, unsigned axes);

/** The shape of one row of a value, also while layers are added.
 *
 * @param model  The model. NULL: all 0.
 * @param value  A value of this model.
 * @return All 0: there is no such value, or the model holds an error.
 */
YOKE_API yoke_shape yoke_model_value_shape(const yoke_model *model, yoke_value value);

/** Gives a row another shape; its elements keep their row-major order: an image's is [channels,
 * height, width], a sequence's [positions, features].
 *
 * @param model  The model.
 * @param input  What it reads.
 * @param shape  As many elements as the input has.
 * @return A value of this shape.
 */
YOKE_API yoke_value yoke_reshape(yoke_model *model, yoke_value input, yoke_shape shape);

/** Exchanges two axes of each row: torch.transpose. An image stays an image, a sequence a sequence.
 *
 * @param model   The model.
 * @param input   What it reads; not flat.
 * @param first   One axis.
 * @param second  Another axis.
 * @return The shape of the input with the two lengths exchanged.
 */
YOKE_API yoke_value yoke_transpose(yoke_model *model, yoke_value input, yoke_axis first,
                                   yoke_axis second);

/** Takes the places begin .. end - 1 along an axis. Places outside the input are padding: begin may
 * be below 0 and end above the length, as far as at least one place lies inside.
 *
 * @param model  The model.
 * @param input  What it reads.
 * @param axis   Along which.
 * @param begin  The first place.
 * @param end    Past the last place; more than begin.
 * @param fill   The value of padding.
 * @return The shape of the input with length end - begin along this axis.
 */
YOKE_API yoke_value yoke_slice(yoke_model *model, yoke_value input, yoke_axis axis, int begin,
                               int end, double fill);

/** Joins two values along an axis: torch.cat.
 *
 * @param model  The model.
 * @param left   Comes first.
 * @param right  A value of the same kind, with the same length along the other axes.
 * @param axis   Along which.
 * @return The shape of both, with the sum of their lengths along this axis.
 */
YOKE_API yoke_value yoke_concat_along(yoke_model *model, yoke_value left, yoke_value right,
                                      yoke_axis axis);

/** Multiplies matrices of each row: torch.matmul. The matrices of an image are its channels, each
 * [height, width]; a sequence is one matrix [positions, features].
 *
 * @param model             The model.
 * @param left              [m, k], or [k, m] where transpose_left.
 * @param right             [k, n], or [n, k] where transpose_right; as many channels as left, where
 *                          both are images.
 * @param transpose_left    Whether to take the transpose of left's matrices.
 * @param transpose_right   Likewise of right's.
 * @return [m, n]: of left's kind.
 */
YOKE_API yoke_value yoke_matmul(yoke_model *model, yoke_value left, yoke_value right,
                                bool transpose_left, bool transpose_right);

/** A parameter that belongs to no layer: torch.nn.Parameter. */
typedef struct yoke_parameter_options {
    size_t struct_size; /**< sizeof(yoke_parameter_options). */
    const char *name;   /**< Its name; required. */
    yoke_shape shape;   /**< Of a row; functions repeat it along axes of length 1. Required. */
    double value;       /**< Every element's first value. */
    double std;         /**< Above 0: elements are drawn from N(value = 0, std^2) instead. */
} yoke_parameter_options;

/** The defaults; set name and shape. */
#define YOKE_PARAMETER_OPTIONS_INIT                                                                \
    { sizeof(yoke_parameter_options), NULL, {0, 0, 0, false, false}, 0, 0 }

/** Adds a parameter as a value that has the same elements in every row.
 *
 * @param model    The model.
 * @param options  Not NULL.
 * @return A value of its shape. Parameter: NAME, [channels], [positions, features] or [channels,
 *         height, width].
 */
YOKE_API yoke_value yoke_parameter_value(yoke_model *model, const yoke_parameter_options *options);

/** Adds a value that has the same given elements in every row: a mask, a table of positions. It is
 * no parameter and gets no gradient.
 *
 * @param model   The model.
 * @param shape   Of a row.
 * @param values  [elements of a row], in row-major order; copied.
 * @return A value of this shape.
 */
YOKE_API yoke_value yoke_constant(yoke_model *model, yoke_shape shape, const float *values);

#ifdef __cplusplus
}
#endif

#endif
