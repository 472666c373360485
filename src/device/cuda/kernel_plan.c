/* SPDX-License-Identifier: Apache-2.0 */
/* What plans share that run Yoke's own kernels. */
#include "device/cuda/kernel_plan.h"

cuda_kernel_input cuda_kernel_input_of(const yoke_plan_request *request, int index) {
    cuda_kernel_input input = {
        .given = *cuda_layout_of(&request->inputs[index]),
        .own = cuda_value_layout(request->rows, request->operation->input, request->precision)};
    input.reordered =
        input.given.type != input.own.type || input.given.channels_last != input.own.channels_last;
    if (input.reordered)
        input.bytes = cuda_aligned(cuda_elements(&input.own) * cuda_type_bytes(input.own.type));
    return input;
}

void cuda_kernel_input_bind(cuda_kernel_input *input, const yoke_plan_binding *binding, int index,
                            void *scratch) {
    input->given_value = binding->inputs[index];
    input->given_gradient = binding->input_gradients[index];
    input->value = input->reordered ? scratch : binding->inputs[index];
    input->gradient = input->given_gradient;
    if (input->reordered && input->gradient != NULL)
        input->gradient = (char *)scratch + input->bytes;
}

yoke_status cuda_kernel_input_read(const cuda_kernel_input *input, cuda_device *device) {
    if (!input->reordered) return YOKE_OK;
    return cuda_reorder(device, &input->own, input->value, &input->given, input->given_value);
}

yoke_status cuda_kernel_input_return(const cuda_kernel_input *input, cuda_device *device) {
    if (!input->reordered || input->gradient == NULL) return YOKE_OK;
    return cuda_reorder(device, &input->given, input->given_gradient, &input->own, input->gradient);
}

void cuda_kernel_output(yoke_layout *output, const yoke_plan_request *request) {
    cuda_layout layout =
        cuda_value_layout(request->rows, request->operation->output, request->precision);
    cuda_layout_store(output, &layout);
}
