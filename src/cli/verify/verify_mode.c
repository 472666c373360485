/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, steps and reads a mode, whatever it is. */
#include "cli/verify/verify_mode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const struct {
    const char *name;
    yoke_schedule schedule;
} kinds[] = {[VERIFY_REFERENCE] = {"reference", YOKE_SCHEDULE_CLASSIC},
             /* On one device the schedules differ in nothing but that classic keeps gradients. */
             [VERIFY_SINGLE] = {"single", YOKE_SCHEDULE_CLASSIC},
             [VERIFY_CLASSIC] = {"classic", YOKE_SCHEDULE_CLASSIC},
             [VERIFY_OVERLAP] = {"overlap", YOKE_SCHEDULE_OVERLAP},
             [VERIFY_SHARDED] = {"sharded", YOKE_SCHEDULE_SHARDED},
             [VERIFY_DDP] = {"ddp", YOKE_SCHEDULE_OVERLAP},
             [VERIFY_OWN] = {"own", YOKE_SCHEDULE_CLASSIC},
             [VERIFY_FILE] = {"file", YOKE_SCHEDULE_CLASSIC}};

const char *verify_mode_name(const verify_mode *mode) {
    return kinds[mode->kind].name;
}

/* Life. */

static yoke_status open_reference(verify_mode *mode, const compare_setup *setup,
                                  const yoke_model *model) {
    yoke_reference_options options = {.struct_size = sizeof options,
                                      .batch = setup->batch,
                                      .shards = setup->shards > 0 ? setup->shards : mode->devices,
                                      .seed = setup->seed};
    return yoke_reference_create(&mode->reference, model, &setup->optimizer, &options);
}

static yoke_status open_engine(verify_mode *mode, const compare_setup *setup) {
    compare_role role = {.devices = mode->devices,
                         .schedule = kinds[mode->kind].schedule,
                         .exchange = mode->exchange,
                         .rank = {.struct_size = sizeof role.rank}};
    return compare_engine_create(&mode->engine, setup, &role);
}

yoke_status verify_mode_open(verify_mode *mode, const compare_setup *setup,
                             const compare_meeting *meeting, const yoke_model *model) {
    yoke_status status = YOKE_OK;
    if (mode->kind == VERIFY_REFERENCE)
        status = open_reference(mode, setup, model);
    else if (mode->kind == VERIFY_DDP)
        status = compare_ranks_start(&mode->ranks, meeting, setup, mode->devices);
    else if (mode->kind != VERIFY_FILE)
        status = open_engine(mode, setup);
    if (status != YOKE_OK) return status;
    mode->count = compare_weights_count(model != NULL ? model : compare_engine_model(mode->engine));
    mode->weights = calloc(mode->count, sizeof *mode->weights);
    mode->gradients = calloc(mode->count, sizeof *mode->gradients);
    mode->narrow = calloc(mode->count, sizeof *mode->narrow);
    if (mode->weights != NULL && mode->gradients != NULL && mode->narrow != NULL) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_MEMORY, "no memory for the %zu weights of a mode", mode->count);
}

void verify_mode_close(verify_mode *mode) {
    compare_ranks_end(mode->ranks);
    compare_engine_destroy(mode->engine);
    yoke_reference_destroy(mode->reference);
    free(mode->weights);
    free(mode->gradients);
    free(mode->narrow);
    *mode = (verify_mode){.kind = mode->kind, .devices = mode->devices};
}

yoke_status verify_mode_follow(verify_mode *mode, const yoke_model *model) {
    yoke_tensor_info info;
    yoke_status status = YOKE_OK;
    size_t offset = 0;
    for (int next = 0; status == YOKE_OK && compare_next_tensor(model, &next, &info);) {
        status = yoke_reference_write(mode->reference, info.name, mode->leader->weights + offset,
                                      info.count);
        offset += info.count;
    }
    return status;
}

/* Steps. */

yoke_status verify_mode_step(verify_mode *mode, const yoke_batch *batch) {
    if (mode->kind == VERIFY_FILE) return YOKE_OK;
    if (mode->reference != NULL)
        return yoke_reference_step(mode->reference, batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
    compare_learned *learned = calloc(1, sizeof *learned);
    if (learned == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a step's result");
    yoke_status status = mode->ranks != NULL ? compare_ranks_learn(mode->ranks, 1, learned)
                                             : compare_engine_learn(mode->engine, 1, learned);
    free(learned);
    return status;
}

/* Reading. */

const char *verify_weight_name(char text[VERIFY_NAME_BYTES], int step, const char *tensor) {
    snprintf(text, VERIFY_NAME_BYTES, "step_%06d/%s", step, tensor);
    return text;
}

const char *verify_gradient_name(char text[VERIFY_NAME_BYTES], int step, const char *tensor) {
    snprintf(text, VERIFY_NAME_BYTES, "gradient_%06d/%s", step, tensor);
    return text;
}

static void widen(double *to, const float *from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = (double)from[i];
}

static yoke_status read_engine(verify_mode *mode, int step) {
    yoke_status status = mode->ranks != NULL
                             ? compare_ranks_read(mode->ranks, mode->narrow, mode->count)
                             : compare_engine_read(mode->engine, mode->narrow);
    widen(mode->weights, mode->narrow, mode->count);
    mode->has_gradients = step > 0 && kinds[mode->kind].schedule == YOKE_SCHEDULE_CLASSIC;
    if (status != YOKE_OK || !mode->has_gradients) return status;
    float *gradients = malloc(mode->count * sizeof *gradients);
    if (gradients == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %zu gradients", mode->count);
    status = compare_engine_read_gradients(mode->engine, gradients);
    widen(mode->gradients, gradients, mode->count);
    free(gradients);
    return status;
}

/* One tensor and its place in the lists. */
typedef struct place {
    const char *name;
    size_t offset, count;
    bool trainable;
} place;

static yoke_status read_reference(verify_mode *mode, place at) {
    yoke_status status =
        yoke_reference_read(mode->reference, at.name, mode->weights + at.offset, at.count);
    if (status != YOKE_OK || !at.trainable) return status;
    return yoke_reference_read_gradient(mode->reference, at.name, mode->gradients + at.offset,
                                        at.count);
}

/* A program may leave gradients out. */
static yoke_status read_file(verify_mode *mode, place at, int step) {
    char name[VERIFY_NAME_BYTES];
    yoke_tensor_file_entry entry = {.struct_size = sizeof entry};
    yoke_status status = yoke_tensor_file_read(mode->file, verify_weight_name(name, step, at.name),
                                               mode->weights + at.offset, at.count);
    if (status != YOKE_OK || !at.trainable) return status;
    verify_gradient_name(name, step, at.name);
    if (yoke_tensor_file_find(mode->file, name, &entry) != YOKE_OK) {
        mode->has_gradients = false;
        return YOKE_OK;
    }
    return yoke_tensor_file_read(mode->file, name, mode->gradients + at.offset, at.count);
}

yoke_status verify_mode_read(verify_mode *mode, const yoke_model *model, int step) {
    yoke_tensor_info info;
    yoke_status status = YOKE_OK;
    if (mode->engine != NULL || mode->ranks != NULL) return read_engine(mode, step);
    place at = {0};
    mode->has_gradients = step > 0;
    for (int next = 0; status == YOKE_OK && compare_next_tensor(model, &next, &info);) {
        at = (place){info.name, at.offset, info.count, info.trainable};
        status = mode->file != NULL ? read_file(mode, at, step) : read_reference(mode, at);
        at.offset += info.count;
    }
    return status;
}
