/* SPDX-License-Identifier: Apache-2.0 */
/* What the plans of every backend do for an operation of the host program. */
#include <stdio.h>

#include "device/backend.h"
#include "device/view.h"

yoke_status yoke_plan_host_parameters(yoke_plan *plan) {
    const yoke_host_operation *host = &plan->operation.host;
    for (int k = 0; k < host->parameters; k++) {
        const int64_t shape[] = {(int64_t)host->parameter_elements[k]};
        TRY(yoke_layout_plain(plan->device, shape, 1, &plan->needs.parameters[k]));
    }
    return YOKE_OK;
}

yoke_status yoke_plan_call_host(const yoke_plan *plan, const yoke_plan_binding *at, bool backward,
                                void *stream) {
    const yoke_operation *operation = &plan->operation;
    const yoke_host_operation *host = &operation->host;
    yoke_host_value inputs[YOKE_HOST_INPUTS], parameters[YOKE_PLAN_PARAMETERS];
    bool trains = backward && !plan->frozen;
    for (int k = 0; k < host->inputs; k++)
        inputs[k] = (yoke_host_value){
            .values = at->inputs[k],
            .gradient = backward ? at->input_gradients[k] : NULL,
            .elements = yoke_row_elements(yoke_operation_input(operation, k)),
        };
    for (int k = 0; k < host->parameters; k++)
        parameters[k] = (yoke_host_value){
            .values = at->parameters[k],
            .gradient = trains ? at->parameter_gradients[k] : NULL,
            .elements = host->parameter_elements[k],
        };
    const yoke_host_call call = {
        .struct_size = sizeof call,
        .rows = (int)plan->rows,
        .training = plan->backward != NULL,
        .input_count = host->inputs,
        .inputs = inputs,
        .parameter_count = host->parameters,
        .parameters = parameters,
        .output = at->output,
        .output_gradient = backward ? at->output_gradient : NULL,
        .output_elements = yoke_row_elements(operation->output),
        .stream = stream,
    };
    yoke_error_forget();
    yoke_status status = (backward ? host->backward : host->forward)(host->payload, &call);
    char who[YOKE_ERROR_TEXT_BYTES];
    snprintf(who, sizeof who, "%s: its %s", operation->name, backward ? "backward" : "forward");
    return yoke_error_of_host(status, who);
}
