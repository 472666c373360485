/* SPDX-License-Identifier: Apache-2.0 */
/* Activations: layers that apply a function to each element. */
#include "model/graph.h"

static yoke_value add_activation(yoke_model *model, yoke_activation activation, yoke_value input) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    yoke_node *layer = NULL;
    yoke_status status = yoke_builder_elementwise(model, YOKE_OP_ACTIVATION,
                                                  yoke_activation_name(activation), input, &layer);
    if (status == YOKE_OK) layer->operation.activation = activation;
    return yoke_builder_result(model, status);
}

yoke_value yoke_relu(yoke_model *model, yoke_value input) {
    return add_activation(model, YOKE_RELU, input);
}

yoke_value yoke_relu6(yoke_model *model, yoke_value input) {
    return add_activation(model, YOKE_RELU6, input);
}

yoke_value yoke_gelu(yoke_model *model, yoke_value input) {
    return add_activation(model, YOKE_GELU, input);
}

yoke_value yoke_gelu_tanh(yoke_model *model, yoke_value input) {
    return add_activation(model, YOKE_GELU_TANH, input);
}

yoke_value yoke_silu(yoke_model *model, yoke_value input) {
    return add_activation(model, YOKE_SILU, input);
}

yoke_value yoke_sigmoid(yoke_model *model, yoke_value input) {
    return add_activation(model, YOKE_SIGMOID, input);
}

yoke_value yoke_tanh(yoke_model *model, yoke_value input) {
    return add_activation(model, YOKE_TANH, input);
}
