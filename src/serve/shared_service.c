/* SPDX-License-Identifier: Apache-2.0 */
/* CPU devices: each slot has a predictor on a device of its own. The calling thread computes. */
#include <stdlib.h>
#include <string.h>

#include "serve/service.h"

typedef struct place {
    _Alignas(64) yoke_devices *devices; /* one */
    yoke_predictor *predictor;
    yoke_device_scope scope;
} place;

typedef struct shared_service {
    yoke_service base;
    const yoke_model *model;
    int rows;
    yoke_devices *planner, *weights;
    yoke_algorithms *algorithms;
    yoke_shared_plans *shared;
    place *places; /* [slots] */
} shared_service;

static shared_service *self_of(yoke_service *service) {
    return (shared_service *)service;
}

static yoke_device *device_of(yoke_devices *devices) {
    return yoke_devices_at(devices, 0);
}

/* The calling thread becomes the device's worker: no signal is to interrupt a kernel. */

static yoke_status enter(yoke_device *device, yoke_device_scope *scope) {
    TRY(yoke_device_start_team(device));
    TRY(yoke_device_enter(device, false, scope));
    yoke_device_hold_signals(device);
    return YOKE_OK;
}

static void leave(yoke_device *device, const yoke_device_scope *scope) {
    yoke_device_release_signals(device);
    yoke_device_leave(device, scope);
}

/* Rows. */

/* The number of rows to plan for: 1, 2, 3, 4, 6, 8, 12, 16, ... */
static int planned_rows(int rows, int most) {
    int planned = 1;
    while (planned < rows)
        planned = planned == 1 ? 2 : planned % 3 == 0 ? planned / 3 * 4 : planned / 2 * 3;
    return planned < most ? planned : most;
}

/* Rows that fill up the plan are copies of the last one. */
static void copy_inputs(const shared_service *self, const yoke_predictor *predictor,
                        const yoke_predicted_rows *rows, int planned) {
    for (int k = 0; k < yoke_model_input_count(self->model); k++) {
        size_t row = yoke_model_input_elements(self->model, k), count = (size_t)rows->rows;
        float *to = yoke_predictor_input(predictor, k);
        memcpy(to, rows->inputs[k] + rows->first * row, count * row * sizeof *to);
        for (size_t i = count; i < (size_t)planned; i++)
            memcpy(to + i * row, to + (count - 1) * row, row * sizeof *to);
    }
}

static void copy_outputs(const shared_service *self, const yoke_predictor *predictor,
                         const yoke_predicted_rows *rows) {
    for (int k = 0; k < yoke_model_output_count(self->model); k++) {
        size_t row = yoke_model_output_elements(self->model, k), count = (size_t)rows->rows;
        if (rows->outputs[k] == NULL) continue;
        memcpy(rows->outputs[k] + rows->first * row, yoke_predictor_output(predictor, k),
               count * row * sizeof(float));
    }
}

static yoke_status run(yoke_service *service, int slot, const yoke_predicted_rows *rows) {
    const shared_service *self = self_of(service);
    yoke_predictor *predictor = self->places[slot].predictor;
    int planned = planned_rows(rows->rows, self->rows);
    copy_inputs(self, predictor, rows, planned);
    TRY(yoke_predictor_forward(predictor, planned));
    copy_outputs(self, predictor, rows);
    return YOKE_OK;
}

static yoke_status begin(yoke_service *service, int slot) {
    place *at = &self_of(service)->places[slot];
    TRY(enter(device_of(at->devices), &at->scope));
    yoke_status status = yoke_predictor_begin(at->predictor);
    if (status != YOKE_OK) leave(device_of(at->devices), &at->scope);
    return status;
}

static void end(yoke_service *service, int slot) {
    place *at = &self_of(service)->places[slot];
    yoke_predictor_end(at->predictor);
    leave(device_of(at->devices), &at->scope);
}

/* Weights. */

/* The caller's `read` may enter an engine: it runs outside. */
static yoke_status write_tensor(shared_service *self, yoke_weight_set *set, int tensor,
                                const float *values) {
    yoke_device_scope scope;
    TRY(enter(device_of(self->weights), &scope));
    yoke_status status = yoke_weight_set_write(set, tensor, values);
    leave(device_of(self->weights), &scope);
    return status;
}

static yoke_status fill(shared_service *self, yoke_weight_set *set, yoke_tensor_reader read,
                        void *context) {
    for (int i = 0; i < yoke_model_tensor_count(self->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(self->model, i, &info));
        if (info.integer) continue;
        float *values = yoke_malloc(info.count * sizeof *values);
        if (values == NULL) return FAIL_MEMORY(info.count * sizeof *values, info.name);
        yoke_status status = read(context, i, values);
        if (status == YOKE_OK) status = write_tensor(self, set, i, values);
        yoke_free(values);
        TRY(status);
    }
    return YOKE_OK;
}

static yoke_status publish(yoke_service *service, yoke_tensor_reader read, void *context) {
    shared_service *self = self_of(service);
    yoke_weight_set *set = NULL;
    yoke_device_scope scope;
    TRY(yoke_weight_set_create(&set, self->shared));
    yoke_status status = fill(self, set, read, context);
    if (status == YOKE_OK) status = enter(device_of(self->weights), &scope);
    if (status != YOKE_OK) {
        yoke_weight_set_discard(set);
        return status;
    }
    status = yoke_weight_set_publish(set);
    leave(device_of(self->weights), &scope);
    return status;
}

/* Life. */

static yoke_status open_one(yoke_devices **devices, const yoke_predictors_options *options) {
    yoke_devices_options own = YOKE_DEVICES_OPTIONS_INIT;
    own.list = "cpu";
    own.unbound = true;
    own.threads = options->devices != NULL ? options->devices->threads : 0;
    if (own.threads == 0) own.threads = 1;
    return yoke_devices_open(devices, &own);
}

static yoke_status open_algorithms(shared_service *self, const yoke_predictors_options *options) {
    char machine[1280];
    TRY(yoke_algorithms_create(&self->algorithms));
    yoke_algorithms_limit(self->algorithms, options->measure_seconds);
    if (options->algorithm_cache == NULL) return YOKE_OK;
    yoke_device_facts(device_of(self->planner), machine, sizeof machine);
    const yoke_algorithm_cache_place cache = {options->algorithm_cache, machine, false};
    return yoke_algorithms_keep(self->algorithms, &cache);
}

/* By the planner's worker. */
static yoke_status plan(shared_service *self, const yoke_predictors_options *options) {
    const yoke_shared_plans_options own = {
        .model = options->model,
        .planner = device_of(self->planner),
        .weights = device_of(self->weights),
        .precision = options->precision,
        .algorithm = options->algorithm,
        .algorithms = self->algorithms,
        .rows = options->rows,
        .plans = options->plans,
    };
    TRY(yoke_shared_plans_create(&self->shared, &own));
    for (int i = 0; i < options->slots; i++)
        TRY(yoke_predictor_create(&self->places[i].predictor, self->shared,
                                  device_of(self->places[i].devices)));
    return YOKE_OK;
}

static yoke_status build(shared_service *self, const yoke_predictors_options *options) {
    yoke_device_scope scope;
    size_t bytes = (size_t)options->slots * sizeof *self->places;
    self->places = yoke_aligned_alloc(_Alignof(place), bytes);
    if (self->places == NULL) return FAIL_MEMORY(bytes, "slots");
    memset(self->places, 0, bytes);
    TRY(yoke_slots_create(&self->base.slots, options->slots));
    TRY(open_one(&self->planner, options));
    TRY(open_one(&self->weights, options));
    for (int i = 0; i < options->slots; i++)
        TRY(open_one(&self->places[i].devices, options));
    TRY(open_algorithms(self, options));
    TRY(enter(device_of(self->planner), &scope));
    yoke_status status = plan(self, options);
    leave(device_of(self->planner), &scope);
    return status;
}

static void destroy(yoke_service *service) {
    if (service == NULL) return;
    shared_service *self = self_of(service);
    for (int i = 0; i < self->base.slots.count; i++)
        yoke_predictor_destroy(self->places[i].predictor);
    yoke_shared_plans_destroy(self->shared);
    yoke_algorithms_destroy(self->algorithms);
    for (int i = 0; i < self->base.slots.count; i++)
        yoke_devices_close(self->places[i].devices);
    yoke_devices_close(self->weights);
    yoke_devices_close(self->planner);
    yoke_slots_destroy(&self->base.slots);
    yoke_free(self->places);
    yoke_free(self);
}

static yoke_status create(yoke_service **service, const yoke_predictors_options *options) {
    shared_service *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "predictors");
    made->base.calls = &yoke_service_of_shared_memory;
    made->model = options->model;
    made->rows = options->rows;
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
    shared_service *self = self_of(service);
    yoke_shared_plans_report shared;
    yoke_shared_plans_describe(self->shared, &shared);
    report->weights = shared.weights;
    report->packed = shared.packed;
    report->sets = shared.sets;
    report->plans = shared.plans;
    report->published = shared.published;
    for (int i = 0; i < service->slots.count; i++) {
        report->values += yoke_predictor_bytes(self->places[i].predictor);
        report->programs += yoke_predictor_plans(self->places[i].predictor);
    }
}

const yoke_service_calls yoke_service_of_shared_memory = {create, destroy, publish, begin,
                                                          run,    end,     describe};
