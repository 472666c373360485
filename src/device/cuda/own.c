/* What plans with kernels of our own share. */
#include "device/cuda/own.h"

#include <stdlib.h>

cuda_own_input cuda_own_input_of(const yoke_plan_request *request, int index) {
    cuda_own_input input = {
        .given = *cuda_layout_of(&request->inputs[index]),
        .own = cuda_value_layout(request->rows, request->operation->input, request->precision)};
    input.reordered =
        input.given.type != input.own.type || input.given.channels_last != input.own.channels_last;
    if (input.reordered)
        input.bytes = cuda_aligned(cuda_elements(&input.own) * cuda_type_bytes(input.own.type));
    return input;
}

void cuda_own_input_bind(cuda_own_input *input, const yoke_plan_binding *binding, int index,
                         void *scratch) {
    input->given_value = binding->inputs[index];
    input->given_gradient = binding->input_gradients[index];
    input->value = input->reordered ? scratch : binding->inputs[index];
    input->gradient = input->given_gradient;
    if (input->reordered && input->gradient != NULL)
        input->gradient = (char *)scratch + input->bytes;
}

yoke_status cuda_own_input_read(const cuda_own_input *input, cuda_device *device) {
    if (!input->reordered) return YOKE_OK;
    return cuda_reorder(device, &input->own, input->value, &input->given, input->given_value);
}

yoke_status cuda_own_input_return(const cuda_own_input *input, cuda_device *device) {
    if (!input->reordered || input->gradient == NULL) return YOKE_OK;
    return cuda_reorder(device, &input->given, input->given_gradient, &input->own, input->gradient);
}

static void destroy(yoke_plan *plan) {
    free(plan);
}

yoke_status cuda_own_plan_create(yoke_plan **plan, size_t bytes, cuda_device *device,
                                 const yoke_plan_request *request, const cuda_own_calls *calls) {
    yoke_plan *made = calloc(1, bytes);
    if (made == NULL) return FAIL_MEMORY(bytes, request->operation->name);
    made->device = &device->base;
    made->bind = calls->bind;
    made->forward = calls->forward;
    made->backward = request->training ? calls->backward : NULL;
    made->destroy = destroy;
    *plan = made;
    return YOKE_OK;
}

void cuda_own_output(yoke_layout *output, const yoke_plan_request *request) {
    cuda_layout layout =
        cuda_value_layout(request->rows, request->operation->output, request->precision);
    cuda_layout_store(output, &layout);
}
