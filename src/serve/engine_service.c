/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs: one engine that predicts, on all of them. Threads have it in turn, each for a whole call,
 * and so does who publishes. */
#include <stdlib.h>

#include "serve/service.h"

typedef struct engine_service {
    yoke_service base;
    const yoke_model *model;
    yoke_devices *devices;
    yoke_data_parallel *engine;
    atomic_ullong published;
} engine_service;

static engine_service *self_of(yoke_service *service) {
    return (engine_service *)service;
}

static yoke_status begin(yoke_service *service, int slot) {
    (void)slot;
    if (atomic_load(&self_of(service)->published) > 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "there are no weights yet to predict with");
}

static void end(yoke_service *service, int slot) {
    (void)service, (void)slot;
}

static yoke_status run(yoke_service *service, int slot, const yoke_predicted_rows *rows) {
    const engine_service *self = self_of(service);
    const float *inputs[YOKE_INPUTS_LIMIT];
    float *outputs[YOKE_OUTPUTS_LIMIT];
    int input_count = yoke_model_input_count(self->model);
    (void)slot;
    for (int k = 0; k < input_count; k++)
        inputs[k] = rows->inputs[k] + rows->first * yoke_model_input_elements(self->model, k);
    for (int k = 0; k < yoke_model_output_count(self->model); k++) {
        size_t row = yoke_model_output_elements(self->model, k);
        outputs[k] = rows->outputs[k] != NULL ? rows->outputs[k] + rows->first * row : NULL;
    }
    const yoke_batch batch = {.struct_size = sizeof batch,
                              .rows = rows->rows,
                              .inputs = inputs[0],
                              .more_inputs = inputs + 1,
                              .more_input_count = input_count - 1,
                              .stream = rows->stream};
    return yoke_data_parallel_forward_outputs(self->engine, &batch, false, outputs);
}

/* Weights. */

typedef struct values {
    float *values;
    yoke_tensor_info info;
} tensor;

static yoke_status read_all(const engine_service *self, tensor *tensors, yoke_tensor_reader read,
                            void *context) {
    for (int i = 0; i < yoke_model_tensor_count(self->model); i++) {
        tensor *at = &tensors[i];
        at->info.struct_size = sizeof at->info;
        TRY(yoke_model_tensor(self->model, i, &at->info));
        if (at->info.integer) continue;
        at->values = yoke_malloc(at->info.count * sizeof *at->values);
        if (at->values == NULL) return FAIL_MEMORY(at->info.count * sizeof(float), at->info.name);
        TRY(read(context, i, at->values));
    }
    return YOKE_OK;
}

static yoke_status write_all(engine_service *self, const tensor *tensors) {
    for (int i = 0; i < yoke_model_tensor_count(self->model); i++)
        if (tensors[i].values != NULL)
            TRY(yoke_data_parallel_write(self->engine, tensors[i].info.name, tensors[i].values,
                                         tensors[i].info.count));
    atomic_fetch_add(&self->published, 1);
    return YOKE_OK;
}

static yoke_status publish(yoke_service *service, yoke_tensor_reader read, void *context) {
    engine_service *self = self_of(service);
    size_t count = (size_t)yoke_model_tensor_count(self->model);
    tensor *tensors = yoke_calloc(count, sizeof *tensors);
    if (tensors == NULL) return FAIL_MEMORY(count * sizeof *tensors, "weights on their way");
    yoke_status status = read_all(self, tensors, read, context);
    if (status == YOKE_OK) {
        int slot = yoke_slots_take(&service->slots);
        status = write_all(self, tensors);
        yoke_slots_leave(&service->slots, slot);
    }
    for (size_t i = 0; i < count; i++)
        yoke_free(tensors[i].values);
    yoke_free(tensors);
    return status;
}

/* Life. */

static yoke_status build(engine_service *self, const yoke_predictors_options *options) {
    yoke_data_parallel_options own = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    own.precision = options->precision;
    own.algorithm = options->algorithm;
    own.batch = options->rows;
    own.algorithm_cache = options->algorithm_cache;
    own.measure_seconds = options->measure_seconds;
    own.inference = true;
    TRY(yoke_slots_create(&self->base.slots, 1));
    TRY(yoke_devices_open(&self->devices, options->devices));
    return yoke_data_parallel_create(&self->engine, options->model, self->devices, NULL, &own);
}

static void destroy(yoke_service *service) {
    if (service == NULL) return;
    engine_service *self = self_of(service);
    yoke_data_parallel_destroy(self->engine);
    yoke_devices_close(self->devices);
    yoke_slots_destroy(&self->base.slots);
    yoke_free(self);
}

static yoke_status create(yoke_service **service, const yoke_predictors_options *options) {
    engine_service *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "predictors");
    made->base.calls = &yoke_service_of_engine;
    made->model = options->model;
    yoke_status status = build(made, options);
    if (status != YOKE_OK) {
        yoke_error error = yoke_error_take(status);
        destroy(&made->base);
        return yoke_error_restore(&error);
    }
    *service = &made->base;
    return YOKE_OK;
}

static void describe(yoke_service *service, yoke_predictors_report *report) {
    engine_service *self = self_of(service);
    int slot = yoke_slots_take(&service->slots);
    for (int i = 0; i < yoke_devices_count(self->devices); i++) {
        yoke_memory_report memory = {.struct_size = sizeof memory};
        if (yoke_data_parallel_memory(self->engine, i, &memory) != YOKE_OK) continue;
        report->weights += memory.parameters + memory.buffers;
        report->values += memory.total - memory.parameters - memory.buffers;
    }
    yoke_slots_leave(&service->slots, slot);
    report->published = atomic_load(&self->published);
    report->sets = report->published > 0;
}

const yoke_service_calls yoke_service_of_engine = {create, destroy, publish, begin,
                                                   run,    end,     describe};
