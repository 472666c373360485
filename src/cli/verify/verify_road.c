/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, steps and reads a road, whatever it is. */
#include "cli/verify/verify_road.h"

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
             [VERIFY_FILE] = {"file", YOKE_SCHEDULE_CLASSIC}};

const char *verify_road_name(const verify_road *road) {
    return kinds[road->kind].name;
}

/* Life. */

static yoke_status open_reference(verify_road *road, const compare_setup *setup,
                                  const yoke_model *model) {
    yoke_reference_options options = {.struct_size = sizeof options,
                                      .batch = setup->batch,
                                      .shards = setup->shards > 0 ? setup->shards : road->devices,
                                      .seed = setup->seed};
    return yoke_reference_create(&road->reference, model, &setup->optimizer, &options);
}

static yoke_status open_engine(verify_road *road, const compare_setup *setup) {
    compare_role role = {.devices = road->devices,
                         .schedule = kinds[road->kind].schedule,
                         .rank = {.struct_size = sizeof role.rank}};
    return compare_engine_create(&road->engine, setup, &role);
}

yoke_status verify_road_open(verify_road *road, const compare_setup *setup,
                             const compare_meeting *meeting, const yoke_model *model) {
    yoke_status status = YOKE_OK;
    if (road->kind == VERIFY_REFERENCE)
        status = open_reference(road, setup, model);
    else if (road->kind == VERIFY_DDP)
        status = compare_ranks_start(&road->ranks, meeting, setup, road->devices);
    else if (road->kind != VERIFY_FILE)
        status = open_engine(road, setup);
    if (status != YOKE_OK) return status;
    road->count = compare_weights_count(model != NULL ? model : compare_engine_model(road->engine));
    road->weights = calloc(road->count, sizeof *road->weights);
    road->gradients = calloc(road->count, sizeof *road->gradients);
    road->narrow = calloc(road->count, sizeof *road->narrow);
    if (road->weights != NULL && road->gradients != NULL && road->narrow != NULL) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_MEMORY, "no memory for the %zu weights of a road", road->count);
}

void verify_road_close(verify_road *road) {
    compare_ranks_end(road->ranks);
    compare_engine_destroy(road->engine);
    yoke_reference_destroy(road->reference);
    free(road->weights);
    free(road->gradients);
    free(road->narrow);
    *road = (verify_road){.kind = road->kind, .devices = road->devices};
}

yoke_status verify_road_follow(verify_road *road, const yoke_model *model) {
    yoke_tensor_info info;
    yoke_status status = YOKE_OK;
    size_t offset = 0;
    for (int next = 0; status == YOKE_OK && compare_next_tensor(model, &next, &info);) {
        status = yoke_reference_write(road->reference, info.name, road->leader->weights + offset,
                                      info.count);
        offset += info.count;
    }
    return status;
}

/* Steps. */

yoke_status verify_road_step(verify_road *road, const yoke_batch *batch) {
    if (road->kind == VERIFY_FILE) return YOKE_OK;
    if (road->reference != NULL)
        return yoke_reference_step(road->reference, batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
    compare_learned *learned = calloc(1, sizeof *learned);
    if (learned == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a step's result");
    yoke_status status = road->ranks != NULL ? compare_ranks_learn(road->ranks, 1, learned)
                                             : compare_engine_learn(road->engine, 1, learned);
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

static yoke_status read_engine(verify_road *road, int step) {
    yoke_status status = road->ranks != NULL
                             ? compare_ranks_read(road->ranks, road->narrow, road->count)
                             : compare_engine_read(road->engine, road->narrow);
    widen(road->weights, road->narrow, road->count);
    road->has_gradients = step > 0 && kinds[road->kind].schedule == YOKE_SCHEDULE_CLASSIC;
    if (status != YOKE_OK || !road->has_gradients) return status;
    float *gradients = malloc(road->count * sizeof *gradients);
    if (gradients == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %zu gradients", road->count);
    status = compare_engine_read_gradients(road->engine, gradients);
    widen(road->gradients, gradients, road->count);
    free(gradients);
    return status;
}

/* One tensor and its place in the lists. */
typedef struct place {
    const char *name;
    size_t offset, count;
    bool trainable;
} place;

static yoke_status read_reference(verify_road *road, place at) {
    yoke_status status =
        yoke_reference_read(road->reference, at.name, road->weights + at.offset, at.count);
    if (status != YOKE_OK || !at.trainable) return status;
    return yoke_reference_read_gradient(road->reference, at.name, road->gradients + at.offset,
                                        at.count);
}

/* A program may leave gradients out. */
static yoke_status read_file(verify_road *road, place at, int step) {
    char name[VERIFY_NAME_BYTES];
    yoke_tensor_file_entry entry = {.struct_size = sizeof entry};
    yoke_status status = yoke_tensor_file_read(road->file, verify_weight_name(name, step, at.name),
                                               road->weights + at.offset, at.count);
    if (status != YOKE_OK || !at.trainable) return status;
    verify_gradient_name(name, step, at.name);
    if (yoke_tensor_file_find(road->file, name, &entry) != YOKE_OK) {
        road->has_gradients = false;
        return YOKE_OK;
    }
    return yoke_tensor_file_read(road->file, name, road->gradients + at.offset, at.count);
}

yoke_status verify_road_read(verify_road *road, const yoke_model *model, int step) {
    yoke_tensor_info info;
    yoke_status status = YOKE_OK;
    if (road->engine != NULL || road->ranks != NULL) return read_engine(road, step);
    place at = {0};
    road->has_gradients = step > 0;
    for (int next = 0; status == YOKE_OK && compare_next_tensor(model, &next, &info);) {
        at = (place){info.name, at.offset, info.count, info.trainable};
        status = road->file != NULL ? read_file(road, at, step) : read_reference(road, at);
        at.offset += info.count;
    }
    return status;
}
