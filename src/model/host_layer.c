/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the host program as layers. */
#include "yoke/host_operation.h"

#include "model/graph.h"

_Static_assert(YOKE_OPERATION_INPUTS == YOKE_HOST_INPUTS, "a device takes as many inputs");
_Static_assert(YOKE_OPERATION_PARAMETERS == YOKE_PLAN_PARAMETERS, "and parameters");

static yoke_status check_counts(const yoke_operation_options *options) {
    const char *name = options->name;
    if (options->input_count < 1 || options->input_count > YOKE_OPERATION_INPUTS)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d inputs, must be 1 to %d", name,
                    options->input_count, YOKE_OPERATION_INPUTS);
    if (options->parameter_count < 0 || options->parameter_count > YOKE_OPERATION_PARAMETERS)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d parameters, must be 0 to %d", name,
                    options->parameter_count, YOKE_OPERATION_PARAMETERS);
    if (options->inputs == NULL || (options->parameters == NULL && options->parameter_count > 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: `%s` is NULL", name,
                    options->inputs == NULL ? "inputs" : "parameters");
    if (options->forward == NULL || options->backward == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: has no `%s`: set the function", name,
                    options->forward == NULL ? "forward" : "backward");
    return yoke_shape_check(options->shape, name);
}

static yoke_status add_parameters(yoke_model *model, yoke_node *layer,
                                  const yoke_operation_options *options) {
    yoke_host_operation *host = &layer->operation.host;
    for (int k = 0; k < options->parameter_count; k++) {
        yoke_parameter_options own = {.struct_size = sizeof own};
        TRY(yoke_options_load(&own, sizeof own, options->parameters[k], "yoke_parameter_options"));
        if (own.name == NULL || own.name[0] == '\0')
            return FAIL(YOKE_ERROR_ARGUMENT, "%s: parameter %d needs a name", options->name, k);
        TRY(yoke_parameter_add(model, options->name, &own, &layer->tensors[k]));
        host->parameter_elements[k] = model->tensors[layer->tensors[k]].count;
        layer->tensor_count = host->parameters = k + 1;
    }
    return YOKE_OK;
}

static yoke_status add_operation(yoke_model *model, const yoke_operation_options *given) {
    yoke_operation_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_operation_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_HOST, options.name, &layer));
    TRY(check_counts(&options));
    for (int k = 0; k < options.input_count; k++)
        TRY(yoke_builder_read(model, layer, options.inputs[k]));
    layer->operation.host = (yoke_host_operation){.forward = options.forward,
                                                  .backward = options.backward,
                                                  .payload = options.payload,
                                                  .inputs = options.input_count};
    TRY(add_parameters(model, layer, &options));
    return yoke_builder_shape(layer, options.shape);
}

yoke_value yoke_model_add_operation(yoke_model *model, const yoke_operation_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_operation(model, options));
}
