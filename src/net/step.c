/* SPDX-License-Identifier: Apache-2.0 */
/* One update from arrays of the host program. */
#include "model/model.h"
#include "net/net.h"

/* The batch of a step: the arrays as they are where the engine can read them, copies elsewhere. */
typedef struct step_batch {
    yoke_batch batch;
    const float *more[YOKE_INPUTS_LIMIT];
    void *copies[YOKE_INPUTS_LIMIT + 1];
} step_batch;

static yoke_status take_labels(const yoke_array *array, size_t elements, void **copy,
                               const int32_t **taken) {
    size_t rows = (size_t)array->shape[0];
    *taken = array->data;
    if (array->element == YOKE_ELEMENT_INT32) return YOKE_OK;
    int32_t *labels = yoke_malloc(rows * elements * sizeof *labels);
    if (labels == NULL) return FAIL_MEMORY(rows * elements * sizeof *labels, "labels");
    *copy = labels;
    *taken = labels;
    yoke_array_labels(array, 0, rows, elements, labels);
    return YOKE_OK;
}

static yoke_status take(const yoke_net_rows *rows, step_batch *taken) {
    const yoke_model *model = rows->model;
    yoke_batch *batch = &taken->batch;
    int inputs = yoke_model_input_count(model);
    *batch = (yoke_batch){.struct_size = sizeof *batch, .rows = (int)rows->rows};
    for (int i = 0; i < inputs; i++) {
        TRY(yoke_array_take_stream(&rows->inputs[i], &batch->stream));
        TRY(yoke_array_take_floats(&rows->inputs[i], yoke_model_input_elements(model, i),
                                   &taken->copies[i], &taken->more[i]));
    }
    batch->inputs = taken->more[0];
    batch->more_input_count = inputs - 1;
    if (inputs > 1) batch->more_inputs = taken->more + 1;
    if (rows->targets == NULL) return YOKE_OK;
    TRY(yoke_array_take_stream(rows->targets, &batch->stream));
    void **copy = &taken->copies[YOKE_INPUTS_LIMIT];
    if (yoke_model_reads_labels(model))
        return take_labels(rows->targets, yoke_model_positions(model), copy, &batch->labels);
    return yoke_array_take_floats(rows->targets, yoke_model_output_elements(model, 0), copy,
                                  &batch->targets);
}

static yoke_status step(yoke_net *net, const yoke_net_rows *rows, double learning_rate,
                        yoke_step_result *result) {
    step_batch taken = {0};
    yoke_step_result own = {.struct_size = sizeof own};
    if (result == NULL) result = &own;
    TRY(yoke_net_check_trains(net, "yoke_net_step"));
    yoke_status status = take(rows, &taken);
    if (status == YOKE_OK)
        status = yoke_data_parallel_step(net->engine, &taken.batch, learning_rate, result);
    for (size_t i = 0; i < sizeof taken.copies / sizeof taken.copies[0]; i++)
        yoke_free(taken.copies[i]);
    TRY(status);
    net->now.step++;
    net->now.loss = result->loss;
    yoke_net_changed(net);
    return YOKE_OK;
}

yoke_status yoke_net_step(yoke_net *net, const yoke_array *inputs, const yoke_array *targets,
                          double learning_rate, yoke_step_result *result) {
    yoke_net_call call;
    TRY(yoke_pointer_check(net, "net"));
    yoke_net_rows rows = {.model = net->model, .inputs = inputs, .targets = targets};
    TRY(yoke_net_rows_check(&rows, yoke_net_has_gpus(net), true));
    if (rows.rows > (size_t)net->options.batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "a batch of %zu rows: the net was opened for %d at most",
                    rows.rows, net->options.batch);
    TRY(yoke_net_begin(net, "yoke_net_step", YOKE_NET_FITTING, &call));
    return yoke_net_end(net, &call, step(net, &rows, learning_rate, result));
}
