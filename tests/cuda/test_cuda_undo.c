/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs update and publish a bucket while backward computes the next ones. If a later bucket's
 * gradient is not finite, every replica's weights and every owner's optimizer state return to the
 * bits from before the step. */
#include "device/backend.h"
#include "support/ddp_check.h"
#include "support/unrecorded.h"
#undef EXPECT_OK
#include "gpu_ranks.h"
#include "train/trainer_parts.h"

enum { RANGES = 256, CALLS = 256, ROWS = 12 };

/* Memory that an undo may write. */
typedef struct range {
    yoke_device *device;
    float *values, *before;
    size_t elements;
} range;

/* What a copy of the devices' backend sees of one engine, on the thread of the root's worker. */
typedef struct watch {
    range ranges[RANGES];
    int range_count;
    char calls[CALLS]; /* c: check, k: keep, u: update, p: publish, n: undo */
    int call_count, checks;
    int spoiled; /* the check that finds NaN as the last of its gradients; -1: none does */
} watch;

static const yoke_backend *whole;
static yoke_backend watched;
static _Thread_local watch seen;

static void note(char call) {
    if (seen.call_count < CALLS - 1) seen.calls[seen.call_count++] = call;
}

static yoke_status watched_check(yoke_device *device, yoke_stream stream, const float *values,
                                 size_t elements, size_t offset, uint64_t *first_bad) {
    const float nan = NAN;
    note('c');
    if (seen.checks++ == seen.spoiled)
        TRY(yoke_device_upload(device, stream, (float *)values + elements - 1, &nan, sizeof nan));
    return whole->check_finite(device, stream, values, elements, offset, first_bad);
}

static yoke_status watched_update(yoke_device *device, yoke_stream stream,
                                  const yoke_update_step *step, float *weights,
                                  const float *gradients, float *const states[YOKE_UPDATE_STATES],
                                  size_t elements) {
    note('u');
    return whole->update(device, stream, step, weights, gradients, states, elements);
}

/* Losses, gates and what checks find are smaller than the smallest bucket. */
static yoke_status watched_copy(yoke_device *to_device, yoke_stream stream, void *to,
                                yoke_device *from_device, const void *from, size_t bytes) {
    if (stream == YOKE_STREAM_COMMUNICATION && bytes >= 64)
        note(to_device == from_device ? 'k' : 'p');
    return whole->copy(to_device, stream, to, from_device, from, bytes);
}

static yoke_status watched_undo(yoke_device *device, yoke_stream stream, const yoke_gate *gate,
                                float *values, const float *kept, size_t elements) {
    int known = 0;
    note('n');
    while (known < seen.range_count && seen.ranges[known].values != values)
        known++;
    if (known == seen.range_count && known < RANGES)
        seen.ranges[seen.range_count++] =
            (range){.device = device, .values = values, .elements = elements};
    return whole->undo(device, stream, gate, values, kept, elements);
}

static void watch_devices(yoke_devices *devices) {
    for (int k = 0; k < yoke_devices_count(devices); k++)
        yoke_devices_at(devices, k)->backend = &watched;
    seen = (watch){.spoiled = -1};
}

static int find_backend(void **state) {
    (void)state;
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .list = "cuda:0"};
    EXPECT_OK(yoke_devices_open(&devices, &options));
    whole = yoke_devices_at(devices, 0)->backend;
    watched = *whole;
    watched.check_finite = watched_check;
    watched.update = watched_update;
    watched.copy = watched_copy;
    watched.undo = watched_undo;
    yoke_devices_close(devices);
    return 0;
}

static yoke_status step(yoke_data_parallel *parallel, const yoke_batch *batch) {
    seen.checks = seen.call_count = 0;
    return yoke_data_parallel_step(parallel, batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL);
}

/* A step whose gradient is spoiled at one check, between steps that are well. The failure is found
 * by a read, or late by the next step. Returns a status, because a rank may be a thread. */

static yoke_status keep_all(void) {
    for (int i = 0; i < seen.range_count; i++) {
        range *r = &seen.ranges[i];
        r->before = malloc(r->elements * sizeof *r->before);
        TRY(yoke_device_download(r->device, YOKE_STREAM_COMPUTE, r->before, r->values,
                                 r->elements * sizeof *r->before));
    }
    return YOKE_OK;
}

static yoke_status compare_all(void) {
    yoke_status status = YOKE_OK;
    for (int i = 0; i < seen.range_count; i++) {
        range *r = &seen.ranges[i];
        size_t bytes = r->elements * sizeof *r->before;
        float *after = malloc(bytes);
        if (status == YOKE_OK)
            status = yoke_device_download(r->device, YOKE_STREAM_COMPUTE, after, r->values, bytes);
        if (status == YOKE_OK && memcmp(after, r->before, bytes) != 0)
            status = FAIL(YOKE_ERROR_INTERNAL, "range %d of %d, %zu floats on %s, has changed", i,
                          seen.range_count, r->elements, r->device->name);
        free(after);
        free(r->before);
        r->before = NULL;
    }
    return status;
}

static yoke_status expect_numeric(yoke_status status) {
    if (status == YOKE_ERROR_NUMERIC && strstr(yoke_last_error(), "the gradient of") != NULL)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "the spoiled step: %s: %s", yoke_status_name(status),
                yoke_last_error());
}

static yoke_status spoil_check(yoke_data_parallel *parallel, const yoke_batch *batch, int check,
                               bool late) {
    uint64_t hash;
    TRY(step(parallel, batch));
    TRY(yoke_data_parallel_hash(parallel, &hash)); /* nothing runs any more */
    TRY(keep_all());
    seen.spoiled = check;
    yoke_status status = step(parallel, batch);
    seen.spoiled = -1;
    if (status == YOKE_OK)
        status = late ? step(parallel, batch) : yoke_data_parallel_hash(parallel, &hash);
    TRY(expect_numeric(status));
    TRY(yoke_data_parallel_hash(parallel, &hash));
    return compare_all();
}

/* Weights on every device and state on the owners, or the comparison says nothing. */
static yoke_status expect_whole(size_t parameters, int devices, int states) {
    size_t elements = 0, least = parameters * (size_t)(devices + states);
    for (int i = 0; i < seen.range_count; i++)
        elements += seen.ranges[i].elements;
    if (elements >= least) return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "an undo covers %zu floats, not %zu", elements, least);
}

static yoke_status spoil_every_check(yoke_data_parallel *parallel, const yoke_batch *batch,
                                     size_t weights, int devices, int states) {
    TRY(step(parallel, batch));
    TRY(expect_whole(weights, devices, states));
    int checks = seen.checks;
    for (int check = 0; check < checks; check++)
        TRY(spoil_check(parallel, batch, check, check % 2 == 0));
    return step(parallel, batch);
}

static const struct course_kind {
    yoke_schedule schedule;
    yoke_collectives collectives;
    int devices, rows, accumulate;
    bool adamw;
    int shards;
} kinds[] = {
    {YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_AUTO, 1, ROWS, 1, false, 0},
    {YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_COPY, 3, ROWS, 1, false, 0},
    {YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_AUTO, 3, ROWS, 1, true, 0},
    {YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_AUTO, 2, ROWS, 2, false, 0},
    {YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_COPY, 3, 2, 1, true, 0}, /* device 2 has no rows */
    {YOKE_SCHEDULE_SHARDED, YOKE_COLLECTIVES_COPY, 3, ROWS, 1, true, 0},
    {YOKE_SCHEDULE_SHARDED, YOKE_COLLECTIVES_AUTO, 3, ROWS, 1, false, 0},
    {YOKE_SCHEDULE_SHARDED, YOKE_COLLECTIVES_COPY, 3, 2, 1, false, 0},
    {YOKE_SCHEDULE_SHARDED, YOKE_COLLECTIVES_AUTO, 2, ROWS, 3, true, 0},
    {YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_AUTO, 2, ROWS, 1, false, 4},
    {YOKE_SCHEDULE_SHARDED, YOKE_COLLECTIVES_AUTO, 2, ROWS, 1, true, 4},
};

static yoke_data_parallel_options options_for(const struct course_kind *kind) {
    return (yoke_data_parallel_options){.schedule = kind->schedule,
                                        .collectives = kind->collectives,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = ROWS,
                                        .accumulate = kind->accumulate,
                                        .shards = kind->shards,
                                        .first_bucket_bytes = 1,
                                        .bucket_bytes = 1};
}

static check_engine watched_engine(const yoke_model *model, const struct course_kind *kind,
                                   double clip_norm, bool skips) {
    yoke_optimizer_options optimizer = optimizer_of(&(ddp_setting){.adamw = kind->adamw});
    yoke_data_parallel_options options = options_for(kind);
    optimizer.clip_norm = clip_norm;
    options.skip_finite_check = skips;
    check_engine engine = check_engine_make(model, kind->devices, options, &optimizer);
    watch_devices(engine.devices);
    check_engine_unrecorded(engine.parallel);
    return engine;
}

static void a_bad_gradient_of_any_bucket_changes_no_bit_on_any_device(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0.2);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_engine engine = watched_engine(model, &kinds[i], 0, false);
        check_batch batch = check_batch_make(kinds[i].rows, 1);
        yoke_status status =
            spoil_every_check(engine.parallel, &batch.batch, yoke_model_parameter_count(model),
                              kinds[i].devices, kinds[i].adamw ? 2 : 1);
        if (status != YOKE_OK) fail_msg("kind %zu: %s", i, yoke_last_error());
        check_batch_free(&batch);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

/* The same sum is spoiled on every rank. */
static yoke_status spoil_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    check_batch rows = check_batch_make(ROWS, 1);
    rank_rig rig = {0};
    yoke_status status = begin_rank(&rig, plan, play, group);
    yoke_batch batch = part_of(plan->setting, &rows, group->world, group->rank);
    if (status == YOKE_OK) watch_devices(rig.devices);
    if (status == YOKE_OK)
        status =
            spoil_every_check(rig.parallel, &batch, yoke_model_parameter_count(plan->model), 1, 1);
    check_batch_free(&rows);
    return end_rank(&rig, status);
}

static void neither_does_it_on_any_rank(void **state) {
    (void)state;
    int world = most_gpu_ranks() < 3 ? most_gpu_ranks() : 3;
    yoke_model *model = check_model(true, 0);
    const ddp_setting s = {.batch = ROWS, .accumulate = 1, .norm = true, .bucket_bytes = 64};
    course plan = {.setting = &s, .model = model};
    play_well(
        (script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = spoil_rank, .detail = &plan});
    yoke_model_destroy(model);
}

/* Between the bad step and the next one rank 0 alone reads its engine: it must not be a step behind
 * the others then. */
static yoke_status fail_in_the_same_step(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    check_batch rows = check_batch_make(ROWS, 1);
    rank_rig rig = {0};
    uint64_t hash;
    yoke_status status = begin_rank(&rig, plan, play, group);
    yoke_batch batch = part_of(plan->setting, &rows, group->world, group->rank);
    if (status == YOKE_OK) watch_devices(rig.devices);
    if (status == YOKE_OK) status = step(rig.parallel, &batch);
    seen.spoiled = 0;
    if (status == YOKE_OK) status = expect_numeric(step(rig.parallel, &batch));
    seen.spoiled = -1;
    if (status == YOKE_OK && group->rank == 0)
        status = yoke_data_parallel_hash(rig.parallel, &hash);
    if (status == YOKE_OK) status = step(rig.parallel, &batch);
    check_batch_free(&rows);
    return end_rank(&rig, status);
}

static void ranks_fail_in_the_step_whose_gradient_is_bad(void **state) {
    (void)state;
    if (most_gpu_ranks() < 2) skip();
    yoke_model *model = check_model(true, 0);
    const ddp_setting s = {.batch = ROWS, .accumulate = 1, .norm = true};
    course plan = {.setting = &s, .model = model};
    play_well((script){
        .world = 2, .timeout_ms = TIMEOUT_MS, .scene = fail_in_the_same_step, .detail = &plan});
    yoke_model_destroy(model);
}

/* A run whose last step has a bad gradient. */

enum { RUN_STEPS = 3 };

static void spoil_the_last_step(const yoke_event *event, void *payload) {
    const yoke_trainer *trainer = *(yoke_trainer **)payload;
    if (event->kind == YOKE_EVENT_READY) watch_devices(trainer->run.devices);
    if (event->kind != YOKE_EVENT_STEP) return;
    seen.checks = 0;
    seen.spoiled = event->step == RUN_STEPS - 1 ? 0 : -1;
}

/* Answers the bytes of the saved file. */
static size_t run_and_save(int steps, bool spoils, char *bytes, size_t capacity) {
    char path[64];
    yoke_trainer *trainer = NULL;
    snprintf(path, sizeof path, "/tmp/yoke-undo-%d", (int)getpid());
    const yoke_data_parallel_options direct = {.struct_size = sizeof direct,
                                               .algorithm = YOKE_ALGORITHM_DIRECT};
    yoke_trainer_options options = {.struct_size = sizeof options,
                                    .model = "mlp",
                                    .dataset = "synthetic:1x8x8,classes=4,rows=96",
                                    .devices = devices_of(2),
                                    .engine = &direct,
                                    .batch = 24,
                                    .steps = (uint64_t)steps,
                                    .evaluate_every = -1,
                                    .save = path};
    if (spoils) {
        options.on_event = spoil_the_last_step;
        options.payload = &trainer;
    }
    EXPECT_OK(yoke_trainer_create(&trainer, &options));
    yoke_status status = yoke_trainer_run(trainer);
    assert_int_equal(status, spoils ? YOKE_ERROR_NUMERIC : YOKE_OK);
    if (spoils) assert_non_null(strstr(yoke_last_error(), "step 2: the gradient of"));
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    EXPECT_OK(yoke_trainer_summarize(trainer, &summary));
    assert_int_equal(summary.steps, spoils ? steps - 1 : steps);
    yoke_trainer_destroy(trainer);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s is not there", path);
    size_t size = fread(bytes, 1, capacity, file);
    fclose(file);
    unlink(path);
    return size;
}

/* As a step that fails on CPU devices: the run answers NUMERIC and saves the weights from before.
 */
static void a_run_whose_last_gradient_is_bad_saves_the_weights_before_it(void **state) {
    (void)state;
    enum { CAPACITY = 1 << 24 };
    char *spoilt = malloc(CAPACITY), *shorter = malloc(CAPACITY);
    size_t size = run_and_save(RUN_STEPS, true, spoilt, CAPACITY);
    assert_int_equal(size, run_and_save(RUN_STEPS - 1, false, shorter, CAPACITY));
    assert_true(size > 0 && size < CAPACITY);
    assert_memory_equal(spoilt, shorter, size);
    free(spoilt);
    free(shorter);
}

/* The order of calls on the communication streams. */

static void expect_calls(const struct course_kind *kind, double clip_norm, bool skips,
                         const char *first, const char *later, int undone) {
    yoke_model *model = check_model(true, 0);
    check_engine engine = watched_engine(model, kind, clip_norm, skips);
    check_batch batch = check_batch_make(ROWS, 1);
    char expected[CALLS] = "";
    int buckets = 0;
    for (int i = 0; i < 2; i++) /* the first step may replicate */
        EXPECT_OK(step(engine.parallel, &batch.batch));
    for (int i = 0; i < seen.call_count; i++)
        buckets += seen.calls[i] == 'u';
    assert_true(buckets > 1 || kind->devices == 1);
    for (int i = 0; i < buckets; i++)
        strcat(expected, first);
    for (int i = 0; i < buckets; i++)
        strcat(expected, later);
    for (int i = 0; undone > 0 && i < undone + buckets; i++)
        strcat(expected, "n");
    seen.calls[seen.call_count] = '\0';
    assert_string_equal(seen.calls, expected);
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void
a_bucket_is_published_before_the_next_one_is_checked_unless_it_is_clipped(void **state) {
    (void)state;
    const struct course_kind two = {
        YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_COPY, 2, ROWS, 1, false, 0};
    const struct course_kind one = {
        YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_COPY, 1, ROWS, 1, false, 0};
    expect_calls(&two, 0, false, "ckup", "", 2);
    expect_calls(&two, 0, true, "up", "", 0);
    expect_calls(&two, 0.5, false, "c", "up", 0);
    expect_calls(&one, 0, false, "cu", "", 1);
    expect_calls(&one, 0, true, "u", "", 0);
}

static size_t optimizer_bytes(const struct course_kind *kind, bool skips) {
    yoke_model *model = check_model(true, 0);
    check_engine engine = watched_engine(model, kind, 0, skips);
    yoke_memory_report report = {.struct_size = sizeof report};
    EXPECT_OK(yoke_data_parallel_memory(engine.parallel, 0, &report));
    check_engine_free(&engine);
    yoke_model_destroy(model);
    return report.optimizer;
}

static void the_kept_state_counts_as_memory_of_the_optimizer(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t skipped = optimizer_bytes(&kinds[i], true);
        assert_true(skipped > 0 && optimizer_bytes(&kinds[i], false) == 2 * skipped);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_gradient_of_any_bucket_changes_no_bit_on_any_device),
        cmocka_unit_test(neither_does_it_on_any_rank),
        cmocka_unit_test(ranks_fail_in_the_step_whose_gradient_is_bad),
        cmocka_unit_test(a_run_whose_last_gradient_is_bad_saves_the_weights_before_it),
        cmocka_unit_test(a_bucket_is_published_before_the_next_one_is_checked_unless_it_is_clipped),
        cmocka_unit_test(the_kept_state_counts_as_memory_of_the_optimizer),
    };
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    return RUN_ON_DEVICES(tests, find_backend, NULL);
}
