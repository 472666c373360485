/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of operations that loop over plain rows. */
#include "device/cpu/plain.h"

#include <stdlib.h>

static size_t copy_bytes(const cpu_plain_input *input) {
    bool moved = input->given != input->plain;
    return moved ? cpu_align(cpu_desc_span(input->plain), CPU_LINE) : 0;
}

static void clear_calls(cpu_plain_plan *plain) {
    for (int i = 0; i < plain->input_count; i++) {
        cpu_call_destroy(&plain->inputs[i].read);
        cpu_call_destroy(&plain->inputs[i].give_back);
    }
    cpu_call_destroy(&plain->output.write);
    cpu_call_destroy(&plain->output.read);
    cpu_call_destroy(&plain->output.read_gradient);
}

static void plain_destroy(yoke_plan *plan) {
    clear_calls((cpu_plain_plan *)plan);
    yoke_free(plan);
}

/* An operation with a type of its own keeps a copy of the output, and one of its gradient, each as
 * large as this; 0: it has none. */
static size_t output_bytes(const cpu_plain_plan *plain) {
    bool moved = plain->output.given != plain->output.plain;
    return moved ? cpu_align(cpu_desc_span(plain->output.plain), CPU_LINE) : 0;
}

static yoke_status bind_output(cpu_plain_plan *plain, const yoke_plan_binding *given,
                               char *scratch) {
    cpu_plain_output *output = &plain->output;
    cpu_device *device = cpu_of(plain->base.device);
    size_t bytes = output_bytes(plain);
    if (bytes == 0) return YOKE_OK;
    plain->base.binding.output = scratch;
    TRY(cpu_reorder(&output->write, device, output->plain, scratch, output->given, given->output));
    if (given->output_gradient == NULL) return YOKE_OK;
    plain->base.binding.output_gradient = scratch + bytes;
    TRY(cpu_reorder(&output->read, device, output->given, given->output, output->plain, scratch));
    return cpu_reorder(&output->read_gradient, device, output->given, given->output_gradient,
                       output->plain, scratch + bytes);
}

static yoke_status plain_bind(yoke_plan *plan, const yoke_plan_binding *given) {
    cpu_plain_plan *plain = (cpu_plain_plan *)plan;
    cpu_device *device = cpu_of(plan->device);
    char *scratch = given->scratch;
    clear_calls(plain);
    for (int i = 0; i < plain->input_count; i++) {
        cpu_plain_input *input = &plain->inputs[i];
        size_t bytes = copy_bytes(input);
        if (bytes == 0) continue;
        plan->binding.inputs[i] = scratch;
        TRY(cpu_reorder(&input->read, device, input->given, given->inputs[i], input->plain,
                        scratch));
        if (given->input_gradients[i] != NULL) {
            plan->binding.input_gradients[i] = scratch + bytes;
            TRY(cpu_reorder(&input->give_back, device, input->plain, scratch + bytes, input->given,
                            given->input_gradients[i]));
        }
        scratch += 2 * bytes;
    }
    TRY(bind_output(plain, given, scratch));
    plan->binding.scratch = scratch + 2 * output_bytes(plain);
    return YOKE_OK;
}

static yoke_status run(const cpu_plain_plan *plain, bool backward) {
    const cpu_plain_operation *calls = &plain->calls;
    if (calls->call != NULL) return calls->call(plain, backward);
    (backward ? calls->backward : calls->forward)(plain);
    return YOKE_OK;
}

static yoke_status plain_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const cpu_plain_plan *plain = (const cpu_plain_plan *)plan;
    for (int i = 0; i < plain->input_count; i++)
        TRY(cpu_call_run(&plain->inputs[i].read, cpu_of(plan->device)));
    TRY(run(plain, false));
    return cpu_call_run(&plain->output.write, cpu_of(plan->device));
}

static yoke_status plain_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const cpu_plain_plan *plain = (const cpu_plain_plan *)plan;
    for (int i = 0; i < plain->input_count; i++)
        if (plan->needs.backward_reads[i])
            TRY(cpu_call_run(&plain->inputs[i].read, cpu_of(plan->device)));
    if (plan->needs.backward_reads_output)
        TRY(cpu_call_run(&plain->output.read, cpu_of(plan->device)));
    TRY(cpu_call_run(&plain->output.read_gradient, cpu_of(plan->device)));
    TRY(run(plain, true));
    for (int i = 0; i < plain->input_count; i++)
        TRY(cpu_call_run(&plain->inputs[i].give_back, cpu_of(plan->device)));
    return YOKE_OK;
}

/* Whether the inputs are alike, and all bytes of them are elements. */
static bool share_order(const cpu_plain_plan *plain, const yoke_plan_request *request) {
    const cpu_desc *first = cpu_layout_desc(&request->inputs[0]);
    bool whole = plain->input_count > 0 && first->type == plain->inputs[0].plain->type &&
                 first->bytes == plain->inputs[0].plain->bytes;
    for (int i = 1; i < plain->input_count; i++)
        whole = whole && cpu_layout_desc(&request->inputs[i]) == first;
    return whole;
}

yoke_status cpu_plain_plan_create(yoke_plan **plan, cpu_device *device,
                                  const yoke_plan_request *request,
                                  const cpu_plain_operation *calls, int inputs) {
    const yoke_plan_calls functions = {plain_bind, plain_forward, plain_backward, plain_destroy,
                                       calls->flags};
    TRY(yoke_plan_allocate(plan, calls->bytes, &device->base, request, &functions));
    cpu_plain_plan *plain = (cpu_plain_plan *)*plan;
    dnnl_data_type_t given = cpu_data_type(request->precision);
    dnnl_data_type_t type = calls->float32 ? dnnl_f32 : given;
    plain->calls = *calls;
    plain->input_count = inputs;
    plain->half = type == dnnl_bf16;
    yoke_plan_needs *needs = &plain->base.needs;
    for (int i = 0; i < inputs; i++) {
        cpu_plain_input *input = &plain->inputs[i];
        input->given = cpu_layout_desc(&request->inputs[i]);
        TRY(cpu_value_desc(&input->plain, device, request->rows,
                           yoke_operation_input(request->operation, i), type, dnnl_nchw));
    }
    bool keeps = calls->any_order && share_order(plain, request);
    for (int i = 0; i < inputs; i++) {
        if (keeps) plain->inputs[i].plain = plain->inputs[i].given;
        needs->scratch_bytes += 2 * copy_bytes(&plain->inputs[i]);
    }
    if (inputs > 0 && copy_bytes(&plain->inputs[0]) > 0)
        needs->forward_in_place = needs->backward_in_place = false;
    if (keeps)
        needs->output = request->inputs[0];
    else
        TRY(cpu_plan_plain_output(*plan, request, given));
    if (type != given) {
        plain->output.given = cpu_layout_desc(&needs->output);
        TRY(cpu_value_desc(&plain->output.plain, device, request->rows, request->operation->output,
                           type, dnnl_nchw));
        needs->scratch_bytes += 2 * output_bytes(plain);
    }
    return calls->prepare != NULL ? calls->prepare(plain, request) : YOKE_OK;
}
