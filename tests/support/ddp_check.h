/* SPDX-License-Identifier: Apache-2.0 */
/* Trains once by ranks as threads and once by the devices of one engine, and compares the
 * two. */
#ifndef TESTS_DDP_CHECK_H
#define TESTS_DDP_CHECK_H

#include "base/chunk.h"
#include "support/engine_check.h"
#include "support/process_ranks.h"

enum { STEPS = 20, RAGGED = 3 };

typedef struct ddp_setting {
    bool norm, clip, adamw, sharded;
    int groups; /* of check_groups */
    double dropout;
    int batch, accumulate, steps;
    bool own_buffers, mean_of_ranks, uncounted; /* uncounted: batches do not tell whole_rows */
    size_t bucket_bytes;                        /* 0: 1024 */
    bool synchronized;                          /* batch norm */
    double ema_decay;
    bool float16; /* with a loss scale that grows until it overflows, again and again */
} ddp_setting;

/* What a run gave: weights, and the losses of its steps. */
typedef struct record {
    float *weights;
    size_t count;
    double losses[STEPS], evaluation;
    int correct;
    uint64_t hash;
    yoke_loss_scale_report scale;
} record;

typedef struct course {
    const ddp_setting *setting;
    const yoke_model *model;
    record *records; /* [world] */
} course;

static inline yoke_optimizer_options optimizer_of(const ddp_setting *s) {
    return (yoke_optimizer_options){.struct_size = sizeof(yoke_optimizer_options),
                                    .kind = s->adamw ? YOKE_ADAMW : YOKE_SGD,
                                    .learning_rate = s->adamw ? 0.01 : 0.02,
                                    .momentum = s->adamw ? 0 : 0.9,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8,
                                    .clip_norm = s->clip ? 0.5 : 0};
}

/* A frozen layer, half of another, and one with a rate and a decay of its own. */
static const yoke_parameter_group check_groups[] = {
    {.struct_size = sizeof(yoke_parameter_group), .pattern = "conv2.*", .frozen = true},
    {.struct_size = sizeof(yoke_parameter_group), .pattern = "conv1.bias", .frozen = true},
    {.struct_size = sizeof(yoke_parameter_group),
     .pattern = "conv1.*",
     .learning_rate_scale = 0.1,
     .weight_decay = 0.02,
     .set_weight_decay = true},
};

static inline yoke_data_parallel_options options_of(const ddp_setting *s) {
    return (yoke_data_parallel_options){
        .struct_size = sizeof(yoke_data_parallel_options),
        .schedule = s->sharded ? YOKE_SCHEDULE_SHARDED : YOKE_SCHEDULE_OVERLAP,
        .algorithm = YOKE_ALGORITHM_DIRECT,
        .batch = s->batch,
        .accumulate = s->accumulate,
        .seed = 7,
        .first_bucket_bytes = 256,
        .bucket_bytes = s->bucket_bytes > 0 ? s->bucket_bytes : 1024,
        .own_buffers = s->own_buffers,
        .mean_of_ranks = s->mean_of_ranks,
        .groups = check_groups,
        .group_count = s->groups,
        .synchronize_batch_norm = s->synchronized,
        .ema_decay = s->ema_decay,
        .precision = s->float16 ? YOKE_FLOAT16 : YOKE_FLOAT32,
        .loss_scale_interval = s->float16 ? 1 : 0};
}

/* Every third batch is short. */
static inline int rows_of(const ddp_setting *s, int step) {
    return step % 3 == 2 ? s->batch - RAGGED : s->batch;
}

static inline yoke_batch part_of(const ddp_setting *s, const check_batch *whole, int world,
                                 int rank) {
    yoke_chunk part = yoke_chunk_of(whole->batch.rows, world, rank);
    yoke_batch batch = whole->batch;
    batch.rows = part.rows;
    batch.inputs += (size_t)part.first * CHECK_ROW;
    batch.labels += part.first;
    if (world == 1 || s->uncounted) return batch;
    batch.first_row = part.first;
    batch.whole_rows = whole->batch.rows;
    return batch;
}

static inline yoke_status train(yoke_data_parallel *parallel, const ddp_setting *s, int world,
                                int rank, record *result) {
    for (int step = 0; step < s->steps; step++) {
        check_batch whole = check_batch_make(rows_of(s, step), (uint32_t)step);
        yoke_batch batch = part_of(s, &whole, world, rank);
        yoke_step_result gave = {.struct_size = sizeof gave};
        yoke_status status =
            yoke_data_parallel_step(parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &gave);
        check_batch_free(&whole);
        TRY(status);
        result->losses[step] = gave.loss;
        if (gave.rows != rows_of(s, step)) return FAIL(YOKE_ERROR_INTERNAL, "%d rows", gave.rows);
    }
    check_batch whole = check_batch_make(s->batch, 99);
    yoke_batch batch = part_of(s, &whole, world, rank);
    yoke_step_result gave = {.struct_size = sizeof gave};
    yoke_status status = yoke_data_parallel_evaluate(parallel, &batch, &gave);
    check_batch_free(&whole);
    result->evaluation = gave.loss;
    result->correct = gave.correct;
    result->scale.struct_size = sizeof result->scale;
    return status == YOKE_OK ? yoke_data_parallel_loss_scale(parallel, &result->scale) : status;
}

/* A rank's engine; on GPUs the device is the group's. */
typedef struct rank_rig {
    yoke_devices *own, *devices;
    yoke_data_parallel *parallel;
} rank_rig;

static inline yoke_status begin_rank(rank_rig *rig, const course *plan, const script *play,
                                     yoke_process_group *group) {
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_optimizer_options optimizer = optimizer_of(plan->setting);
    yoke_data_parallel_options options = options_of(plan->setting);
    options.process_group = group;
    if (play->devices == NULL) TRY(yoke_devices_open(&rig->own, &open));
    rig->devices = play->devices != NULL ? play->devices[group->rank] : rig->own;
    return yoke_data_parallel_create(&rig->parallel, plan->model, rig->devices, &optimizer,
                                     &options);
}

static inline yoke_status end_rank(rank_rig *rig, yoke_status status) {
    yoke_error error = yoke_error_take(status);
    yoke_data_parallel_destroy(rig->parallel);
    yoke_devices_close(rig->own);
    return yoke_error_restore(&error);
}

static inline yoke_status train_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    record *result = &plan->records[group->rank];
    rank_rig rig = {0};
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK)
        status = train(rig.parallel, plan->setting, group->world, group->rank, result);
    if (status == YOKE_OK) status = yoke_data_parallel_hash(rig.parallel, &result->hash);
    if (status == YOKE_OK)
        result->weights = check_read_all(rig.parallel, plan->model, false, &result->count);
    return end_rank(&rig, status);
}

/* How ranks are played: as threads with CPU devices, or with a GPU each. */
static outcome *(*play_ranks)(const script *play) = play_threads;

static inline void run_ranks(const ddp_setting *s, const yoke_model *model, int world,
                             record *records) {
    course plan = {.setting = s, .model = model, .records = records};
    script play = {.world = world, .timeout_ms = TIMEOUT_MS, .scene = train_rank, .detail = &plan};
    outcome *outcomes = play_ranks(&play);
    expect_all_well(outcomes, world);
    free(outcomes);
}

static inline record run_devices(const ddp_setting *s, const yoke_model *model, int devices) {
    record result = {0};
    yoke_optimizer_options optimizer = optimizer_of(s);
    check_engine engine = check_engine_make(model, devices, options_of(s), &optimizer);
    EXPECT_OK(train(engine.parallel, s, 1, 0, &result));
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &result.hash));
    result.weights = check_read_all(engine.parallel, model, false, &result.count);
    check_engine_free(&engine);
    return result;
}

static inline void expect_near(const record *a, const record *b, double tolerance, int steps) {
    double largest = 0, distance = 0;
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        largest = fmax(largest, fabs((double)a->weights[i]));
        distance = fmax(distance, fabs((double)a->weights[i] - (double)b->weights[i]));
    }
    if (!(distance <= tolerance * largest)) fail_msg("weights differ by %g", distance / largest);
    for (int step = 0; step < steps; step++)
        if (!(fabs(a->losses[step] - b->losses[step]) <= tolerance * fabs(a->losses[step])))
            fail_msg("step %d: loss %.9g and %.9g", step, a->losses[step], b->losses[step]);
    if (!(fabs(a->evaluation - b->evaluation) <= tolerance * fabs(a->evaluation)))
        fail_msg("evaluation %.9g and %.9g", a->evaluation, b->evaluation);
    assert_int_equal(a->correct, b->correct);
}

static inline void expect_same(const record *a, const record *b, int steps) {
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->weights, b->weights, a->count * sizeof *a->weights);
    assert_memory_equal(a->losses, b->losses, (size_t)steps * sizeof *a->losses);
    assert_int_equal(a->hash, b->hash);
    assert_true(a->scale.scale == b->scale.scale);
    assert_int_equal(a->scale.skipped_steps, b->scale.skipped_steps);
}

static inline void free_records(record *records, int count) {
    for (int i = 0; i < count; i++)
        free(records[i].weights);
}

/* A batch that is spoiled on rank 1, then the same one whole. */
static inline yoke_status spoil_a_batch(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    rank_rig rig = {0};
    uint64_t before = 0, after = 1;
    check_batch rows = check_batch_make(8, 3);
    yoke_status status = begin_rank(&rig, plan, play, group);
    if (status == YOKE_OK) status = yoke_data_parallel_hash(rig.parallel, &before);
    if (group->rank == 1) rows.inputs[5 * CHECK_ROW + 3] = NAN;
    yoke_batch batch = part_of(plan->setting, &rows, group->world, group->rank);
    yoke_error error = {.status = YOKE_OK};
    if (status == YOKE_OK)
        error = yoke_error_take(
            yoke_data_parallel_step(rig.parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    if (status == YOKE_OK) status = yoke_data_parallel_hash(rig.parallel, &after);
    if (status == YOKE_OK && before != after)
        status = FAIL(YOKE_ERROR_INTERNAL, "the weights moved");
    rows.inputs[5 * CHECK_ROW + 3] = 0;
    if (status == YOKE_OK && yoke_data_parallel_step(rig.parallel, &batch,
                                                     YOKE_OPTIMIZER_LEARNING_RATE, NULL) != YOKE_OK)
        status = FAIL(YOKE_ERROR_INTERNAL, "the whole batch is refused, too");
    status = end_rank(&rig, status);
    check_batch_free(&rows);
    TRY(status);
    return yoke_error_restore(&error);
}

/* s->batch is 8. */
static inline void expect_spoilt_batch_refused(const ddp_setting *s) {
    yoke_model *model = check_model(s->norm, 0);
    course plan = {.setting = s, .model = model};
    script play = {.world = 2, .timeout_ms = TIMEOUT_MS, .scene = spoil_a_batch, .detail = &plan};
    outcome *outcomes = play_ranks(&play);
    for (int rank = 0; rank < play.world; rank++)
        if (outcomes[rank].error.status != YOKE_ERROR_NUMERIC)
            fail_msg("rank 0: %s; rank 1: %s", outcomes[0].error.text, outcomes[1].error.text);
    assert_non_null(strstr(outcomes[1].error.text, "first at "));
    free(outcomes);
    yoke_model_destroy(model);
}

#endif
