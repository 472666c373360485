/* SPDX-License-Identifier: Apache-2.0 */
/* Devices come and go while a run trains. With shards it ends with the weights, losses and
 * evaluations of a run whose devices stay. */
#include <pthread.h>

#include "survival_check.h"

/* Asks for the next number of devices after each step. */
typedef struct resizer {
    survivor run;
    yoke_trainer *trainer;
    int counts[STEPS + 1]; /* after each step, the devices to go on with; 0: as before */
    int resized, warned;
    char warning[512], text[512];
} resizer;

static void on_resizer(const yoke_event *event, void *payload) {
    resizer *own = payload;
    on_survivor(event, &own->run);
    if (event->kind == YOKE_EVENT_RESIZED) {
        own->resized++;
        snprintf(own->text, sizeof own->text, "%s", event->text);
    }
    if (event->kind == YOKE_EVENT_WARNING) {
        own->warned++;
        snprintf(own->warning, sizeof own->warning, "%s", event->text);
    }
    if (event->kind != YOKE_EVENT_STEP || own->counts[event->step] == 0) return;
    EXPECT_OK(yoke_trainer_resize(own->trainer, devices_of(own->counts[event->step])));
}

static yoke_status run_resized(resizer *own, yoke_trainer_options *options) {
    options->on_event = on_resizer;
    options->payload = own;
    yoke_status status = yoke_trainer_create(&own->trainer, options);
    if (status == YOKE_OK) status = yoke_trainer_run(own->trainer);
    if (status == YOKE_OK) {
        own->run.hash = hash_of(own->trainer);
        own->run.devices = yoke_data_parallel_device_count(yoke_trainer_engine(own->trainer));
    }
    yoke_error error = yoke_error_take(status);
    yoke_trainer_destroy(own->trainer);
    return yoke_error_restore(&error);
}

/* 1 to 4 devices and back, between all kinds of steps: the first, the middle and the end of an
 * epoch, with an average of the weights and a state of the optimizer. */
static void devices_come_and_go_with_equal_bits(void **state) {
    (void)state;
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_SHARDED,
                                              YOKE_SCHEDULE_CLASSIC};
    static const yoke_optimizer_options adamw = {.struct_size = sizeof adamw,
                                                 .kind = YOKE_ADAMW,
                                                 .learning_rate = 0.01,
                                                 .beta1 = 0.9,
                                                 .beta2 = 0.999,
                                                 .epsilon = 1e-8};
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        yoke_trainer_options options = surviving(1, schedules[i]);
        resizer without = {.resized = 0}, own = {.counts = {0, 4, 3, 1, 0, 2}};
        options.survive = false;
        options.optimizer = &adamw;
        small_engine.ema_decay = 0.9;
        EXPECT_OK(run_resized(&without, &options));
        EXPECT_OK(run_resized(&own, &options));
        expect_as_without(&own.run, &without.run);
        assert_int_equal(own.resized, 4);
        assert_int_equal(own.warned, 0);
        if (devices_are_cpus())
            assert_string_equal(own.text, "2 devices go on from step 5: cpu:0, cpu:1");
        assert_int_equal(own.run.devices, 2);
        small_engine.ema_decay = 0;
    }
}

/* The kept states are those of another engine. */
static void a_device_fails_before_and_after(void **state) {
    (void)state;
    yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    resizer without = {.resized = 0}, own = {.counts = {0, 0, 0, 3, 0, 0}};
    EXPECT_OK(run_resized(&without, &options));
    small_engine.fault = "error:1@2,error:0@5:forward";
    EXPECT_OK(run_resized(&own, &options));
    small_engine.fault = NULL;
    expect_as_without(&own.run, &without.run);
    assert_int_equal(own.run.lost, 2);
    assert_true(own.resized >= 1); /* again, where step 3 is done again */
    if (devices_are_cpus()) assert_non_null(strstr(own.run.text, "2 of 3 devices go on"));
}

/* Rows of other shares give other rounding. */
static void devices_come_without_shards(void **state) {
    (void)state;
    yoke_trainer_options options = surviving(1, YOKE_SCHEDULE_OVERLAP);
    resizer without = {.resized = 0}, own = {.counts = {0, 3, 0, 2}};
    small_engine.shards = 0;
    EXPECT_OK(run_resized(&without, &options));
    EXPECT_OK(run_resized(&own, &options));
    assert_int_equal(own.resized, 2);
    for (int step = 1; step <= STEPS; step++)
        assert_true(fabs(own.run.losses[step] - without.run.losses[step]) < 1e-5);
}

/* 8 shards are for 8 devices at most: the engine refuses 9. */
static void devices_that_cannot_be_used_leave_the_run_as_it_was(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* GPUs beyond a power of two are spares */
    yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    resizer without = {.resized = 0}, own = {.counts = {0, 0, 9}};
    EXPECT_OK(run_resized(&without, &options));
    EXPECT_OK(run_resized(&own, &options));
    expect_as_without(&own.run, &without.run);
    assert_int_equal(own.resized, 0);
    assert_int_equal(own.warned, 1);
    assert_non_null(strstr(own.warning, "shards"));
    assert_int_equal(own.run.devices, 2);
}

static void metrics_say_so(void **state) {
    (void)state;
    char path[128], line[4096];
    int lines = 0, resized = 0;
    yoke_trainer_options options = surviving(1, YOKE_SCHEDULE_OVERLAP);
    resizer own = {.counts = {0, 2}};
    options.metrics = in_folder("metrics", path);
    EXPECT_OK(run_resized(&own, &options));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        lines += strstr(line, "\"train_loss\"") != NULL;
        resized += strstr(line, "\"resized\":\"2 devices go on from step 1: ") != NULL;
    }
    fclose(file);
    unlink(path);
    assert_int_equal(lines, STEPS);
    assert_int_equal(resized, 1);
}

/* Another thread. */

enum { TIMES = 40 };

static void *ask_often(void *context) {
    yoke_trainer *trainer = context;
    for (int i = 0; i < TIMES; i++)
        if (yoke_trainer_resize(trainer, devices_of(1 + i % 3)) != YOKE_OK) return context;
    return NULL;
}

static void another_thread_asks(void **state) {
    (void)state;
    yoke_trainer_options options = surviving(1, YOKE_SCHEDULE_OVERLAP);
    survivor without, run = {.lost = 0};
    yoke_trainer *trainer = NULL;
    pthread_t thread;
    EXPECT_OK(run_with(&without, &options, NULL));
    options.payload = &run;
    EXPECT_OK(yoke_trainer_create(&trainer, &options));
    assert_int_equal(pthread_create(&thread, NULL, ask_often, trainer), 0);
    EXPECT_OK(yoke_trainer_run(trainer));
    void *failed = NULL;
    pthread_join(thread, &failed);
    assert_null(failed);
    run.hash = hash_of(trainer);
    expect_as_without(&run, &without);
    yoke_trainer_destroy(trainer);
}

static void wrong_questions_are_refused(void **state) {
    (void)state;
    static const double shares[] = {2, 1};
    yoke_trainer *trainer = NULL;
    yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    assert_int_equal(yoke_trainer_resize(NULL, "cpu"), YOKE_ERROR_ARGUMENT);
    EXPECT_OK(yoke_trainer_create(&trainer, &options));
    assert_int_equal(yoke_trainer_resize(trainer, NULL), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_trainer_resize(trainer, "3xbanana"), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "3xbanana"));
    yoke_trainer_destroy(trainer);
    small_engine.shards = 0; /* GPUs share rows alone */
    small_engine.shares = shares;
    small_engine.share_count = 2;
    EXPECT_OK(yoke_trainer_create(&trainer, &options));
    assert_int_equal(yoke_trainer_resize(trainer, "3xcpu"), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "shares"));
    yoke_trainer_destroy(trainer);
    options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    options.mode = YOKE_MODE_SINGLE;
    options.survive = false;
    EXPECT_OK(yoke_trainer_create(&trainer, &options));
    assert_int_equal(yoke_trainer_resize(trainer, "3xcpu"), YOKE_ERROR_ARGUMENT);
    yoke_trainer_destroy(trainer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_come_and_go_with_equal_bits),
        cmocka_unit_test(a_device_fails_before_and_after),
        cmocka_unit_test(devices_come_without_shards),
        cmocka_unit_test(devices_that_cannot_be_used_leave_the_run_as_it_was),
        cmocka_unit_test(metrics_say_so),
        cmocka_unit_test(another_thread_asks),
        cmocka_unit_test(wrong_questions_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
