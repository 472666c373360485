/* SPDX-License-Identifier: Apache-2.0 */
/* Compares whole plans of a model's first convolution that read different numbers of channels. */
#include "device/cuda/stem.h"

#include <stdio.h>

#define STEMS 3

/* The candidates: the images' own channels, then more. */
typedef struct stem_list {
    int channels[STEMS], count;
    char names[STEMS][16];
} stem_list;

typedef struct stem_trial {
    cuda_device *device;
    yoke_plan_request request;
    yoke_plan *plans[STEMS];
    yoke_plan_binding binding; /* of all plans: they have operands of equal sizes */
    void *memory;
} stem_trial;

static stem_list list_stems(const yoke_operation *operation) {
    static const int more[] = {4, 8};
    int own = operation->input.channels;
    stem_list list = {.channels = {own}, .count = 1};
    for (int i = 0; i < 2 && own > 1 && operation->groups == 1; i++)
        if (own < more[i]) list.channels[list.count++] = more[i];
    for (int i = 0; i < list.count; i++)
        snprintf(list.names[i], sizeof list.names[i], "%d channels", list.channels[i]);
    return list;
}

/* Measuring. */

static yoke_status run_stem(void *context, int candidate) {
    const stem_trial *trial = context;
    const yoke_plan_step step = {.loss_scale = 1};
    TRY(yoke_plan_forward(trial->plans[candidate], &step));
    return trial->request.training ? yoke_plan_backward(trial->plans[candidate], &step) : YOKE_OK;
}

typedef struct stem_operand {
    void **address;
    size_t bytes;
    cuda_type type;
} stem_operand;

/* One allocation holds all operands, filled with values of their types. */
static yoke_status provide(stem_trial *trial, const stem_operand *operands, int count) {
    cuda_device *device = trial->device;
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += cuda_aligned(operands[i].bytes);
    TRY(yoke_device_allocate(&device->base, bytes, "measuring", &trial->memory));
    char *at = trial->memory;
    for (int i = 0; i < count; i++) {
        const stem_operand *operand = &operands[i];
        size_t elements = operand->bytes / cuda_type_bytes(operand->type);
        *operand->address = at;
        at += cuda_aligned(operand->bytes);
        TRY_CUDA(device, cuda_run_probe(*operand->address, operand->type, elements,
                                        device->streams[YOKE_STREAM_COMPUTE]));
    }
    return YOKE_OK;
}

static yoke_status bind_stems(stem_trial *trial, int count) {
    const yoke_plan_needs *needs = yoke_plan_describe(trial->plans[0]);
    cuda_type type = cuda_compute_type(trial->request.precision);
    size_t saved_bytes = 0, scratch_bytes = 0;
    for (int i = 0; i < count; i++) {
        const yoke_plan_needs *own = yoke_plan_describe(trial->plans[i]);
        if (own->saved_bytes > saved_bytes) saved_bytes = own->saved_bytes;
        if (own->scratch_bytes > scratch_bytes) scratch_bytes = own->scratch_bytes;
    }
    size_t filter = needs->parameters[0].bytes, bias = needs->parameters[1].bytes;
    size_t trained = trial->request.training ? 1 : 0; /* otherwise there are no gradients */
    yoke_plan_binding *to = &trial->binding;
    void *shadow = NULL;
    const stem_operand operands[] = {
        {&to->inputs[0], trial->request.inputs[0].bytes, false},
        {&to->output, needs->output.bytes, type},
        {&to->output_gradient, trained * needs->output.bytes, type},
        {(void **)&to->parameters[0], filter, false},
        {(void **)&to->parameters[1], bias, false},
        {(void **)&to->parameter_gradients[0], trained * filter, false},
        {(void **)&to->parameter_gradients[1], trained * bias, false},
        {&shadow, filter / 2, true},
        {&to->saved, saved_bytes, type},
        {&to->scratch, scratch_bytes, type}};
    TRY(provide(trial, operands, sizeof operands / sizeof operands[0]));
    to->shadows[0] = shadow;
    for (int i = 0; i < count; i++)
        TRY(yoke_plan_bind(trial->plans[i], to));
    return YOKE_OK;
}

static yoke_status compare_stems(stem_trial *trial, const stem_list *list,
                                 cuda_stem_planner *planner, const cuda_tuning *tuning, int *best) {
    for (int i = 0; i < list->count; i++)
        TRY(planner(&trial->plans[i], trial->device, &trial->request,
                    i > 0 ? list->channels[i] : 0));
    TRY(bind_stems(trial, list->count));
    return cuda_measure(tuning, best);
}

/* Training and evaluation of one model decide alike: where any plan trains, a step counts. */
yoke_status cuda_stem_choose(cuda_device *device, const yoke_plan_request *request, const char *key,
                             cuda_stem_planner *planner, int *padded) {
    const stem_list list = list_stems(request->operation);
    stem_trial trial = {.device = device, .request = *request};
    cuda_candidate candidates[STEMS];
    char own_key[256];
    int best = 0;
    bool settled;
    *padded = 0;
    if (list.count == 1) return YOKE_OK;
    trial.request.training = !request->inference;
    bool forward_alone = request->inference || request->frozen;
    snprintf(own_key, sizeof own_key, "%s channels%s", key, forward_alone ? " of forward" : "");
    for (int i = 0; i < list.count; i++)
        candidates[i] = (cuda_candidate){list.names[i], run_stem};
    const cuda_tuning tuning = {device, request, own_key, candidates, list.count, &trial};
    TRY(cuda_settled(&tuning, &settled, &best));
    if (!settled) {
        yoke_status status = compare_stems(&trial, &list, planner, &tuning, &best);
        yoke_device_free(&trial.device->base, trial.memory);
        for (int i = 0; i < STEMS; i++)
            yoke_plan_destroy(trial.plans[i]);
        TRY(status);
    }
    *padded = best > 0 ? list.channels[best] : 0;
    return YOKE_OK;
}
