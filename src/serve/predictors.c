/* SPDX-License-Identifier: Apache-2.0 */
/* Checks calls, gives each a slot, and cuts its rows. */
#include "serve/predictors.h"

#include <math.h>
#include <unistd.h>

#include "serve/service.h"

#define SLOTS_LIMIT 1024
#define PLANS_LIMIT 1024

struct yoke_predictors {
    const yoke_model *model;
    pid_t process;
    int rows;
    yoke_service *service;
    pthread_mutex_t publishing;
    atomic_ullong predictions;
};

/* Life. */

static yoke_status check_number(const char *name, int value, int most) {
    if (value >= 0 && value <= most) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s is %d: 1 to %d, or 0 for the default", name, value, most);
}

static yoke_status load_options(yoke_predictors_options *own) {
    TRY(yoke_pointer_check(own->model, "model"));
    TRY(check_number("slots", own->slots, SLOTS_LIMIT));
    TRY(check_number("plans", own->plans, PLANS_LIMIT));
    TRY(check_number("rows", own->rows, INT32_MAX));
    if (own->plans == 0) own->plans = 16;
    if (own->rows == 0) own->rows = 64;
    return YOKE_OK;
}

/* Which kind the list names, and how many cores there are. */
static yoke_status look_at_devices(const yoke_predictors_options *options, bool *shares,
                                   int *cores) {
    yoke_devices *devices = NULL;
    yoke_devices_options own = YOKE_DEVICES_OPTIONS_INIT;
    if (options->devices != NULL)
        TRY(yoke_options_load(&own, sizeof own, options->devices, "yoke_devices_options"));
    own.threads = 1;
    own.unbound = true;
    TRY(yoke_devices_open(&devices, &own));
    *shares = yoke_devices_share_memory(devices);
    *cores = yoke_devices_spare_cores(devices) + yoke_devices_count(devices);
    yoke_devices_close(devices);
    return YOKE_OK;
}

static yoke_status build(yoke_predictors *predictors, yoke_predictors_options *options) {
    bool shares = false;
    int cores = 0;
    TRY(load_options(options));
    TRY(look_at_devices(options, &shares, &cores));
    if (options->slots == 0)
        options->slots = cores < 1 ? 1 : cores < SLOTS_LIMIT ? cores : SLOTS_LIMIT;
    predictors->model = options->model;
    predictors->rows = options->rows;
    const yoke_service_calls *calls =
        shares ? &yoke_service_of_shared_memory : &yoke_service_of_engine;
    return calls->create(&predictors->service, options);
}

yoke_status yoke_predictors_create(yoke_predictors **predictors,
                                   const yoke_predictors_options *options) {
    *predictors = NULL;
    yoke_predictors_options own = *options;
    yoke_predictors *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "predictors");
    made->process = getpid();
    pthread_mutex_init(&made->publishing, NULL); /* cannot fail on Linux */
    yoke_status status = build(made, &own);
    if (status != YOKE_OK) {
        pthread_mutex_destroy(&made->publishing);
        yoke_free(made);
        return status;
    }
    *predictors = made;
    return YOKE_OK;
}

void yoke_predictors_destroy(yoke_predictors *predictors) {
    if (predictors == NULL) return;
    predictors->service->calls->destroy(predictors->service);
    pthread_mutex_destroy(&predictors->publishing);
    yoke_free(predictors);
}

/* Weights. */

yoke_status yoke_predictors_publish(yoke_predictors *predictors, yoke_tensor_reader read,
                                    void *context) {
    yoke_service *service = predictors->service;
    TRY(yoke_process_check(predictors->process, "these predictors"));
    pthread_mutex_lock(&predictors->publishing);
    yoke_status status = service->calls->publish(service, read, context);
    pthread_mutex_unlock(&predictors->publishing);
    return status;
}

typedef struct source {
    const yoke_model *model;
    yoke_data_parallel *engine;
} source;

static yoke_status read_engine(void *context, int tensor, float *values) {
    const source *from = context;
    yoke_tensor_info info = {.struct_size = sizeof info};
    TRY(yoke_model_tensor(from->model, tensor, &info));
    return yoke_data_parallel_read(from->engine, info.name, values, info.count);
}

yoke_status yoke_predictors_publish_engine(yoke_predictors *predictors,
                                           yoke_data_parallel *engine) {
    source from = {predictors->model, engine};
    return yoke_predictors_publish(predictors, read_engine, &from);
}

/* Predicting. */

static yoke_status check_tokens(const yoke_model *model, int input, const float *values,
                                size_t rows) {
    int tokens = yoke_model_tokens(model, input);
    size_t row = yoke_model_input_elements(model, input);
    for (size_t i = 0; tokens > 0 && i < rows * row; i++)
        if (!(values[i] >= 0 && values[i] < (float)tokens) || values[i] != floorf(values[i]))
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "row %zu has token id %g at position %zu: this model's tokens are 0 to %d",
                        i / row, (double)values[i], i % row, tokens - 1);
    return YOKE_OK;
}

/* An engine checks the tokens of its batches itself, which may lie on a GPU. */
static yoke_status check_arrays(const yoke_predictors *predictors, const float *const *inputs,
                                size_t rows, float *const *outputs) {
    const yoke_model *model = predictors->model;
    bool checks_tokens = predictors->service->calls == &yoke_service_of_shared_memory;
    TRY(yoke_pointer_check(inputs, "inputs"));
    TRY(yoke_pointer_check(outputs, "outputs"));
    for (int k = 0; k < yoke_model_input_count(model) && rows > 0; k++) {
        if (inputs[k] == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "inputs[%d] is NULL", k);
        if (checks_tokens) TRY(check_tokens(model, k, inputs[k], rows));
    }
    return YOKE_OK;
}

static yoke_status run_all(const yoke_predictors *predictors, int slot, yoke_predicted_rows *part,
                           size_t rows) {
    yoke_service *service = predictors->service;
    for (; part->first < rows; part->first += (size_t)part->rows) {
        size_t left = rows - part->first, most = (size_t)predictors->rows;
        part->rows = (int)(left < most ? left : most);
        TRY(service->calls->run(service, slot, part));
    }
    return YOKE_OK;
}

yoke_status yoke_predictors_run_on(yoke_predictors *predictors, const float *const *inputs,
                                   size_t rows, float *const *outputs, void *stream) {
    yoke_service *service = predictors->service;
    yoke_predicted_rows part = {.inputs = inputs, .outputs = outputs, .stream = stream};
    TRY(yoke_process_check(predictors->process, "these predictors"));
    TRY(check_arrays(predictors, inputs, rows, outputs));
    int slot = yoke_slots_take(&service->slots);
    yoke_status status = service->calls->begin(service, slot);
    if (status == YOKE_OK) {
        status = run_all(predictors, slot, &part, rows);
        service->calls->end(service, slot);
    }
    yoke_slots_leave(&service->slots, slot);
    if (status == YOKE_OK) atomic_fetch_add(&predictors->predictions, rows);
    return status;
}

yoke_status yoke_predictors_run(yoke_predictors *predictors, const float *const *inputs,
                                size_t rows, float *const *outputs) {
    return yoke_predictors_run_on(predictors, inputs, rows, outputs, NULL);
}

void yoke_predictors_describe(yoke_predictors *predictors, yoke_predictors_report *report) {
    yoke_service *service = predictors->service;
    *report = (yoke_predictors_report){.slots = service->slots.count,
                                       .predictions = atomic_load(&predictors->predictions)};
    service->calls->describe(service, report);
}
