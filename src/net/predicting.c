/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions: threads share the predictors' weights, which follow those of the engine. */
#include <string.h>

#include "model/model.h"
#include "net/net.h"
#include "serve/serve.h"

/* Opens them for the first prediction, with the turn. */
static yoke_status open_predictors(yoke_net *net) {
    const yoke_net_options *own = &net->options;
    yoke_devices_options list = {
        .struct_size = sizeof list, .list = own->devices, .cores = own->cores};
    yoke_predictors_options options = {.model = net->model,
                                       .devices = &list,
                                       .precision = own->precision,
                                       .algorithm = net->engine_options.algorithm,
                                       .algorithm_cache = own->algorithm_cache,
                                       .measure_seconds = own->measure_seconds,
                                       .slots = own->predictors,
                                       .plans = own->plans,
                                       .rows = own->batch};
    yoke_predictors *made = NULL;
    if (atomic_load(&net->predictors) != NULL) return YOKE_OK;
    TRY(yoke_predictors_create(&made, &options));
    atomic_store(&net->predictors, made);
    return YOKE_OK;
}

/* Shows the engine's weights to predictions, with the turn. */
static yoke_status show(yoke_net *net) {
    uint64_t version = atomic_load(&net->version);
    if (atomic_load(&net->shown) == version) return YOKE_OK;
    TRY(open_predictors(net));
    TRY(yoke_predictors_publish_engine(atomic_load(&net->predictors), net->engine));
    atomic_store(&net->is_read, false);
    atomic_store(&net->shown, version);
    return YOKE_OK;
}

void yoke_net_changed(yoke_net *net) {
    atomic_fetch_add(&net->version, 1);
    /* Where this fails, the next prediction tries again, and reports it. */
    if (atomic_load(&net->is_read) && show(net) != YOKE_OK)
        yoke_net_log(net, YOKE_LOG_WARNING, "predictions keep the weights before: %s",
                     yoke_last_error());
}

void yoke_net_show_first(yoke_net *net) {
    if (atomic_load(&net->shown) == 0 && atomic_load(&net->is_read) && show(net) != YOKE_OK)
        yoke_net_log(net, YOKE_LOG_WARNING, "%s", yoke_last_error());
}

/* The first prediction waits for weights: it takes the turn, or a fit shows some behind its next
 * step. What ends the net's other calls does not end it. */
static yoke_status await_weights(yoke_net *net) {
    yoke_status status = YOKE_OK;
    if (atomic_load(&net->owner) == pthread_self())
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "yoke_net_predict: a callback of this net makes its first prediction; make one "
                    "before the call that has callbacks");
    while (status == YOKE_OK && atomic_load(&net->shown) == 0) {
        TRY(yoke_check_cancelled());
        if (!yoke_net_try_turn(net)) {
            yoke_net_wait_for_turn(net);
            continue;
        }
        status = show(net);
        yoke_net_pass_turn(net);
    }
    return status;
}

/* While another call has the turn, that call shows new weights itself when it is done. */
static yoke_status follow(yoke_net *net) {
    if (atomic_load(&net->shown) == atomic_load(&net->version)) return YOKE_OK;
    if (atomic_load(&net->shown) == 0) return await_weights(net);
    if (!yoke_net_try_turn(net)) return YOKE_OK;
    yoke_status status = show(net);
    yoke_net_pass_turn(net);
    return status;
}

/* Arrays that the predictors read as they are, and copies of the others. */
typedef struct float_inputs {
    const float *inputs[YOKE_INPUTS_LIMIT];
    void *copies[YOKE_INPUTS_LIMIT];
    void *stream; /* of all arrays of the call; NULL: none */
} float_inputs;

static yoke_status take_inputs(const yoke_net_rows *rows, float_inputs *taken) {
    for (int i = 0; i < yoke_model_input_count(rows->model); i++) {
        TRY(yoke_array_take_stream(&rows->inputs[i], &taken->stream));
        TRY(yoke_array_take_floats(&rows->inputs[i], yoke_model_input_elements(rows->model, i),
                                   &taken->copies[i], &taken->inputs[i]));
    }
    return YOKE_OK;
}

static yoke_status predict(yoke_net *net, const yoke_net_rows *rows, const yoke_array *outputs) {
    float_inputs taken = {0};
    float *to[YOKE_OUTPUTS_LIMIT] = {0};
    yoke_status status = take_inputs(rows, &taken);
    for (int i = 0; i < yoke_model_output_count(rows->model) && status == YOKE_OK; i++) {
        to[i] = outputs[i].data;
        if (to[i] != NULL) status = yoke_array_take_stream(&outputs[i], &taken.stream);
    }
    if (status == YOKE_OK)
        status = yoke_predictors_run_on(atomic_load(&net->predictors), taken.inputs, rows->rows, to,
                                        taken.stream);
    for (int i = 0; i < YOKE_INPUTS_LIMIT; i++)
        yoke_free(taken.copies[i]);
    return status;
}

yoke_status yoke_net_predict(yoke_net *net, const yoke_array *inputs, const yoke_array *outputs) {
    TRY(yoke_pointer_check(net, "net"));
    TRY(yoke_process_check(net->process, "this net"));
    yoke_net_rows rows = {.model = net->model, .inputs = inputs};
    TRY(yoke_net_rows_check(&rows, yoke_net_has_gpus(net), false));
    TRY(yoke_net_outputs_check(net->model, outputs, rows.rows));
    if (!atomic_load(&net->is_read)) atomic_store(&net->is_read, true);
    TRY(follow(net));
    return predict(net, &rows, outputs);
}

void yoke_net_describe_predictors(const yoke_net *net, yoke_net_info *info) {
    yoke_predictors *predictors = atomic_load(&net->predictors);
    yoke_predictors_report report;
    if (predictors == NULL) return;
    yoke_predictors_describe(predictors, &report);
    info->weights = report.published;
    info->predictions = report.predictions;
    info->predictors = report.slots;
    info->plans = report.plans;
    info->predicting_bytes = report.weights + report.packed + report.values;
}

void yoke_net_close_predictors(yoke_net *net) {
    yoke_predictors_destroy(atomic_load(&net->predictors));
}
