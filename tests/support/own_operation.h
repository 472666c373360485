/* SPDX-License-Identifier: Apache-2.0 */
/* An operation of the host program for CPU devices, with one fault or none, and the same layer of
 * elementary operations: a * sigmoid(beta * b), where beta has an element for each of a row. */
#ifndef OWN_OPERATION_H
#define OWN_OPERATION_H

#include <math.h>

#include "yoke/yoke.h"

typedef enum own_fault {
    OWN_RIGHT,
    OWN_WRONG_INPUT,     /* the gradient of input 1 is a tenth too large */
    OWN_WRONG_PARAMETER, /* that of the parameter is */
    OWN_FORWARD_FAILS,
    OWN_BACKWARD_FAILS, /* without words */
    OWN_NAN,
    OWN_BEHIND, /* forward writes behind the last row */
    OWN_BEFORE, /* backward before the first element of input 0's gradient */
    OWN_LEAVES  /* forward leaves out the last element */
} own_fault;

static inline float own_sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

static inline yoke_status own_forward(void *payload, const yoke_host_call *call) {
    own_fault fault = *(const own_fault *)payload;
    const float *a = call->inputs[0].values, *b = call->inputs[1].values;
    const float *beta = call->parameters[0].values;
    size_t elements = call->output_elements, count = (size_t)call->rows * elements;
    if (fault == OWN_FORWARD_FAILS) return yoke_error_raise(YOKE_ERROR_DATA, "out of beta");
    for (size_t i = 0; i < count - (fault == OWN_LEAVES); i++)
        call->output[i] = a[i] * own_sigmoid(beta[i % elements] * b[i]);
    if (fault == OWN_NAN) call->output[count / 2] = NAN;
    if (fault == OWN_BEHIND) call->output[count] = 1;
    return YOKE_OK;
}

static inline yoke_status own_backward(void *payload, const yoke_host_call *call) {
    own_fault fault = *(const own_fault *)payload;
    const yoke_host_value *a = &call->inputs[0], *b = &call->inputs[1];
    const yoke_host_value *beta = &call->parameters[0];
    size_t rows = (size_t)call->rows, elements = call->output_elements;
    float factor = fault == OWN_WRONG_INPUT ? 1.1f : 1;
    if (fault == OWN_BACKWARD_FAILS) return YOKE_ERROR_SYSTEM;
    for (size_t k = 0; k < elements; k++) {
        double sum = 0;
        for (size_t i = k; i < rows * elements; i += elements) {
            float dy = call->output_gradient[i], s = own_sigmoid(beta->values[k] * b->values[i]);
            float slope = dy * call->output[i] * (1 - s); /* the output is a * s */
            if (a->gradient != NULL) a->gradient[i] = dy * s;
            if (b->gradient != NULL) b->gradient[i] = factor * slope * beta->values[k];
            sum += (double)(slope * b->values[i]);
        }
        if (fault == OWN_WRONG_PARAMETER) sum *= 1.1;
        if (beta->gradient != NULL) beta->gradient[k] = (float)sum;
    }
    if (fault == OWN_BEFORE) a->gradient[-1] = 0;
    return YOKE_OK;
}

/* The fault must outlive the model's engines. */
static inline yoke_value own_gate(yoke_model *model, yoke_value a, yoke_value b, yoke_shape shape,
                                  own_fault *fault) {
    yoke_parameter_options beta = YOKE_PARAMETER_OPTIONS_INIT;
    yoke_operation_options gate = YOKE_OPERATION_OPTIONS_INIT;
    beta.name = "beta";
    beta.shape = shape;
    beta.std = 0.7;
    gate.name = "gate";
    gate.shape = shape;
    gate.inputs = (yoke_value[]){a, b};
    gate.input_count = 2;
    gate.parameters = (const yoke_parameter_options *[]){&beta};
    gate.parameter_count = 1;
    gate.forward = own_forward;
    gate.backward = own_backward;
    gate.payload = fault;
    return yoke_model_add_operation(model, &gate);
}

/* Its twin: the same tensors. */
static inline yoke_value elementary_gate(yoke_model *model, yoke_value a, yoke_value b,
                                         yoke_shape shape) {
    yoke_parameter_options beta = YOKE_PARAMETER_OPTIONS_INIT;
    beta.name = "gate.beta";
    beta.shape = shape;
    beta.std = 0.7;
    yoke_value scaled =
        yoke_combine(model, YOKE_FN_MULTIPLY, b, yoke_parameter_value(model, &beta));
    return yoke_multiply(model, a, yoke_map(model, YOKE_FN_SIGMOID, scaled));
}

#endif
