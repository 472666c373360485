/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * An operation of the host program: a layer whose forward and backward are callbacks, on CPU
 * devices and on GPUs, in every schedule, with shards and in DDP; and a check of a model's
 * gradients.
 */
#ifndef YOKE_HOST_OPERATION_H
#define YOKE_HOST_OPERATION_H

#include <stdint.h>

#include "yoke/elementary.h"
#include "yoke/host_call.h"

#ifdef __cplusplus
extern "C" {
#endif

#define YOKE_OPERATION_INPUTS 3     /**< Inputs of an operation, at most. */
#define YOKE_OPERATION_PARAMETERS 2 /**< Its parameters, at most. */

/** An operation of the host program. Both callbacks must be set and compute every row by itself:
 * how the batch is cut into calls is the engine's choice. Workers call them, one call at a time for
 * a replica, several replicas at once; so they must not write to what they share, and not call the
 * engine. Values are float32, whatever the engine's precision is; the engine converts.
 *
 * On GPUs the engine calls them when it plans for a number of rows, records what they queue on the
 * stream, and repeats that in each step; it calls forward again where it looks for a value that is
 * not finite. So they must neither wait for the stream nor allocate.
 *
 * A status other than OK ends the step; yoke_error_raise gives it words, behind the layer's name.
 */
typedef struct yoke_operation_options {
    size_t struct_size;                              /**< sizeof(yoke_operation_options). */
    const char *name;                                /**< Of the layer; required. */
    yoke_shape shape;                                /**< Of an output row; required. */
    const yoke_value *inputs;                        /**< [input_count] */
    int input_count;                                 /**< 1 to YOKE_OPERATION_INPUTS. */
    const yoke_parameter_options *const *parameters; /**< [parameter_count]: NAME.PARAMETER each. */
    int parameter_count;                             /**< 0 to YOKE_OPERATION_PARAMETERS. */
    /** Writes every element of call->output. */
    yoke_status (*forward)(void *payload, const yoke_host_call *call);
    /** Writes every element of each gradient of call->inputs and call->parameters that is not NULL,
     * from call->output_gradient. */
    yoke_status (*backward)(void *payload, const yoke_host_call *call);
    void *payload; /**< Passed to both; must outlive the engines of the model. */
} yoke_operation_options;

/** The defaults; set name, shape, inputs, input_count and the callbacks. */
#define YOKE_OPERATION_OPTIONS_INIT                                                                \
    {                                                                                              \
        sizeof(yoke_operation_options), NULL, {0, 0, 0, false, false}, NULL, 0, NULL, 0, NULL,     \
            NULL, NULL                                                                             \
    }

/** Adds an operation of the host program. Parameters: NAME.PARAMETER each.
 *
 * @param model    The model.
 * @param options  Not NULL.
 * @return A value of options->shape.
 */
YOKE_API yoke_value yoke_model_add_operation(yoke_model *model,
                                             const yoke_operation_options *options);

/** How to check gradients. */
typedef struct yoke_gradient_check_options {
    size_t struct_size; /**< sizeof(yoke_gradient_check_options). */
    int rows;           /**< Of the batch; 0: 4. */
    uint64_t seed;      /**< Of weights, batch and directions. */
    double tolerance;   /**< Of the difference, relative to the larger number; 0: 1e-2. */
} yoke_gradient_check_options;

/** The defaults. */
#define YOKE_GRADIENT_CHECK_OPTIONS_INIT                                                           \
    { sizeof(yoke_gradient_check_options), 0, 0, 0 }

/** What a check found: the tensor whose numbers differ most. */
typedef struct yoke_gradient_check {
    size_t struct_size; /**< sizeof(yoke_gradient_check). */
    const char *tensor; /**< A parameter's or an input's name; the model owns it. */
    double backward;    /**< The slope along a direction, by the gradient. */
    double difference;  /**< The same by the losses beside the point. */
    double error;       /**< |backward - difference| / the larger of the two. */
    int checked;        /**< Parameters and inputs. */
} yoke_gradient_check;

/** All zero but the size. */
#define YOKE_GRADIENT_CHECK_INIT                                                                   \
    { sizeof(yoke_gradient_check), NULL, 0, 0, 0, 0 }

/** Compares the gradients of a model with differences of its loss: on one CPU device in float32, at
 * random weights and a random batch, along one direction for each parameter and input. Token ids
 * have no gradient; a model that reads them is checked by its parameters. The check also names a
 * callback that writes outside of what it was given, or leaves an element unwritten.
 *
 * A kink, as a ReLU's, near the weights may look like an error: try another seed. So may batch norm
 * over a handful of values, which magnifies rounding: take more rows.
 *
 * @param model    A finished model.
 * @param options  NULL: the defaults.
 * @param report   Gets the worst tensor; may be NULL.
 * @return NUMERIC: the two numbers of a tensor differ by more than the tolerance; ARGUMENT: a
 *         callback wrote too much or too little; a callback's own status.
 */
YOKE_API yoke_status yoke_model_check_gradients(const yoke_model *model,
                                                const yoke_gradient_check_options *options,
                                                yoke_gradient_check *report);

#ifdef __cplusplus
}
#endif

#endif
