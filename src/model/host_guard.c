/* SPDX-License-Identifier: Apache-2.0 */
#include "model/host_guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two numbers that no callback writes: both are NaN, with payloads of their own. */
static const uint32_t unwritten = 0x7fc5a5a5, guard = 0x7fc3c3c3;
enum { GUARDS = 64 }; /* floats on either side */

/* Memory for a callback to write to, in place of `to`. */
typedef struct lent {
    const char *what; /* "output", "gradient of input" */
    int index;        /* of several; NONE: there is one */
    float *to;
    size_t rows, elements;
    uint32_t *memory;
} lent;
#define LENT_LIMIT (YOKE_HOST_INPUTS + YOKE_PLAN_PARAMETERS)

static yoke_status lend(lent *place, float **address) {
    size_t count = place->rows * place->elements, all = count + 2 * GUARDS;
    place->memory = yoke_malloc(all * sizeof *place->memory);
    if (place->memory == NULL) return FAIL_MEMORY(all * sizeof *place->memory, "guarded values");
    for (size_t i = 0; i < all; i++)
        place->memory[i] = i < GUARDS || i >= GUARDS + count ? guard : unwritten;
    *address = (float *)(place->memory + GUARDS);
    return YOKE_OK;
}

static yoke_status complain(const lent *place, const char *fact) {
    char index[16] = "";
    if (place->index != YOKE_NONE) snprintf(index, sizeof index, " %d", place->index);
    return FAIL(YOKE_ERROR_ARGUMENT, "the %s%s, %zu x %zu elements: %s", place->what, index,
                place->rows, place->elements, fact);
}

static yoke_status give_back(const lent *place) {
    size_t count = place->rows * place->elements;
    const uint32_t *values = place->memory + GUARDS;
    char text[96];
    for (size_t i = 0; i < GUARDS; i++) {
        if (place->memory[i] != guard) return complain(place, "it writes before the first");
        if (values[count + i] != guard) return complain(place, "it writes behind the last");
    }
    for (size_t i = 0; i < count; i++) {
        if (values[i] != unwritten) continue;
        snprintf(text, sizeof text, "it leaves element %zu of row %zu unwritten",
                 i % place->elements, i / place->elements);
        return complain(place, text);
    }
    memcpy(place->to, values, count * sizeof(float));
    return YOKE_OK;
}

/* After the callback. */
static yoke_status finish(lent *places, int count, yoke_status status) {
    for (int i = 0; i < count; i++) {
        if (status == YOKE_OK) status = give_back(&places[i]);
        yoke_free(places[i].memory);
    }
    return status;
}

static yoke_status guarded_forward(void *payload, const yoke_host_call *call) {
    const yoke_host_operation *original = payload;
    yoke_host_call own = *call;
    lent place = {.what = "output",
                  .index = YOKE_NONE,
                  .to = call->output,
                  .rows = (size_t)call->rows,
                  .elements = call->output_elements};
    TRY(lend(&place, &own.output));
    return finish(&place, 1, original->forward(original->payload, &own));
}

/* Lends in place of each gradient that is wanted; *count grows. */
static yoke_status lend_gradients(yoke_host_value *values, int value_count, const lent *like,
                                  lent *places, int *count) {
    for (int k = 0; k < value_count; k++) {
        if (values[k].gradient == NULL) continue;
        lent *place = &places[*count];
        *place = *like;
        place->index = k;
        place->to = values[k].gradient;
        place->elements = values[k].elements;
        TRY(lend(place, &values[k].gradient));
        ++*count;
    }
    return YOKE_OK;
}

static yoke_status guarded_backward(void *payload, const yoke_host_call *call) {
    const yoke_host_operation *original = payload;
    const lent input = {.what = "gradient of input", .rows = (size_t)call->rows};
    const lent parameter = {.what = "gradient of parameter", .rows = 1};
    yoke_host_value inputs[YOKE_HOST_INPUTS], parameters[YOKE_PLAN_PARAMETERS];
    lent places[LENT_LIMIT];
    int count = 0;
    yoke_host_call own = *call;
    memcpy(inputs, call->inputs, (size_t)call->input_count * sizeof *inputs);
    memcpy(parameters, call->parameters, (size_t)call->parameter_count * sizeof *parameters);
    own.inputs = inputs;
    own.parameters = parameters;
    yoke_status status = lend_gradients(inputs, own.input_count, &input, places, &count);
    if (status == YOKE_OK)
        status = lend_gradients(parameters, own.parameter_count, &parameter, places, &count);
    if (status == YOKE_OK) status = original->backward(original->payload, &own);
    return finish(places, count, status);
}

yoke_status yoke_guarded_model_build(yoke_guarded_model *guarded, const yoke_model *model) {
    size_t nodes = (size_t)model->node_count;
    guarded->model = *model;
    guarded->model.nodes = yoke_malloc(nodes * sizeof *model->nodes);
    guarded->originals = yoke_calloc(nodes, sizeof *guarded->originals);
    if (guarded->model.nodes == NULL || guarded->originals == NULL)
        return FAIL_MEMORY(nodes * sizeof *model->nodes, "a copy of a model");
    memcpy(guarded->model.nodes, model->nodes, nodes * sizeof *model->nodes);
    for (size_t i = 0; i < nodes; i++) {
        yoke_operation *operation = &guarded->model.nodes[i].operation;
        if (operation->kind != YOKE_OP_HOST) continue;
        guarded->originals[i] = operation->host;
        operation->host.forward = guarded_forward;
        operation->host.backward = guarded_backward;
        operation->host.payload = &guarded->originals[i];
    }
    return YOKE_OK;
}

void yoke_guarded_model_release(yoke_guarded_model *guarded) {
    yoke_free(guarded->model.nodes);
    yoke_free(guarded->originals);
}
