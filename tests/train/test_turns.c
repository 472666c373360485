/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer in a program with other threads: questions never end a run, and callbacks find the
 * program's own settings. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "trainer_check.h"

enum { RUNS = 20, RUN_STEPS = 25 };

static char weights[128];

static yoke_trainer *make(yoke_trainer_options *options) {
    static const yoke_data_parallel_options direct = {.struct_size = sizeof direct,
                                                      .algorithm = YOKE_ALGORITHM_DIRECT};
    yoke_trainer *trainer = NULL;
    options->model = "mlp:width=64";
    options->dataset = SMALL;
    options->devices = "2xcpu";
    options->threads = 1;
    options->batch = 8;
    options->steps = RUN_STEPS;
    options->engine = &direct;
    options->save = in_folder("weights", weights);
    EXPECT_OK(yoke_trainer_create(&trainer, options));
    return trainer;
}

/* A thread that asks without a pause. */

typedef struct asker {
    yoke_trainer *trainer;
    atomic_bool ends;
    const char *wrong; /* the first answer that is neither OK nor ARGUMENT */
    uint64_t refused, steps;
} asker;

static void note(asker *self, const char *call, yoke_status status) {
    self->refused += status == YOKE_ERROR_ARGUMENT;
    if (status != YOKE_OK && status != YOKE_ERROR_ARGUMENT) self->wrong = call;
}

static void *ask(void *context) {
    static float bias[64];
    asker *self = context;
    yoke_data_parallel *engine = yoke_trainer_engine(self->trainer);
    yoke_progress progress = {.struct_size = sizeof progress};
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_tensor_info info = {.struct_size = sizeof info};
    uint64_t hash;
    (void)yoke_model_tensor(yoke_trainer_model(self->trainer), 1, &info);
    while (!atomic_load(&self->ends)) {
        note(self, "read", yoke_data_parallel_read(engine, info.name, bias, info.count));
        note(self, "hash", yoke_data_parallel_hash(engine, &hash));
        note(self, "summarize", yoke_trainer_summarize(self->trainer, &summary));
        if (yoke_trainer_progress(self->trainer, &progress) != YOKE_OK) self->wrong = "progress";
        if (progress.step < self->steps) self->wrong = "progress goes back";
        self->steps = progress.step;
        if (progress.running) /* otherwise it would be the one that works */
            note(self, "evaluate", yoke_trainer_evaluate(self->trainer, &result));
    }
    return NULL;
}

static void questions_of_another_thread_never_end_a_run(void **state) {
    (void)state;
    uint64_t alone = 0, refused = 0;
    for (int run = 0; run <= RUNS; run++) {
        yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
        asker other = {.trainer = make(&options)};
        pthread_t thread;
        if (run > 0) assert_int_equal(pthread_create(&thread, NULL, ask, &other), 0);
        yoke_status status = yoke_trainer_run(other.trainer);
        char text[512];
        snprintf(text, sizeof text, "%s", yoke_last_error());
        atomic_store(&other.ends, true);
        if (run > 0) pthread_join(thread, NULL);
        if (status != YOKE_OK) fail_msg("run %d ended: %s", run, text);
        if (other.wrong != NULL) fail_msg("run %d: a wrong answer of %s", run, other.wrong);
        assert_int_equal(unlink(weights), 0); /* it was saved */
        if (run == 0) alone = hash_of(other.trainer);
        assert_true(hash_of(other.trainer) == alone);
        refused += other.refused;
        yoke_trainer_destroy(other.trainer);
    }
    assert_true(refused > 0);
}

/* Callbacks. */

typedef struct settings {
    sigset_t blocked;
    cpu_set_t cores;
} settings;

typedef struct host {
    yoke_trainer *trainer;
    settings own;
    int looks, differ;
    yoke_status nested;
} host;

static void *look(void *context) {
    settings *found = context;
    pthread_sigmask(SIG_SETMASK, NULL, &found->blocked);
    sched_getaffinity(0, sizeof found->cores, &found->cores);
    return NULL;
}

static bool are_equal(const settings *a, const settings *b) {
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&a->blocked, number) != sigismember(&b->blocked, number)) return false;
    return CPU_EQUAL(&a->cores, &b->cores);
}

static void compare(host *self) {
    settings found[2];
    pthread_t thread;
    look(&found[0]);
    self->looks++;
    self->differ += !are_equal(&found[0], &self->own);
    if (pthread_create(&thread, NULL, look, &found[1]) != 0) return;
    pthread_join(thread, NULL);
    self->differ += !are_equal(&found[1], &self->own);
}

static void on_event_of_host(const yoke_event *event, void *payload) {
    host *self = payload;
    compare(self);
    if (event->kind == YOKE_EVENT_STEP && event->step == 2)
        self->nested = yoke_trainer_run(self->trainer);
}

static yoke_status custom_loss(void *payload, const yoke_outputs *rows, double *mean) {
    uint64_t hash;
    host *self = payload;
    compare(self);
    for (size_t i = 0; rows->gradients != NULL && i < (size_t)rows->batch->rows * 3; i++)
        rows->gradients[0][i] = rows->outputs[0][i] * 0.01f;
    *mean = 1;
    return yoke_data_parallel_hash(yoke_trainer_engine(self->trainer), &hash); /* it may ask */
}

static yoke_status add(void *payload, const yoke_outputs *rows, double *sums) {
    compare(payload);
    sums[0] = sums[1] = rows->batch->rows;
    return YOKE_OK;
}

static void callbacks_and_threads_that_they_start_have_the_programs_settings(void **state) {
    (void)state;
    host self = {.nested = YOKE_OK};
    yoke_custom_loss loss = {.struct_size = sizeof loss, .compute = custom_loss, .payload = &self};
    yoke_metric metric = {
        .struct_size = sizeof metric, .name = "rows", .add = add, .payload = &self};
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    look(&self.own);
    options.on_event = on_event_of_host;
    options.payload = &self;
    options.custom_loss = &loss;
    options.custom_metrics = &metric;
    options.metric_count = 1;
    self.trainer = make(&options);
    EXPECT_OK(yoke_trainer_run(self.trainer));
    unlink(weights);
    assert_true(self.looks > 2 * RUN_STEPS);
    assert_int_equal(self.differ, 0);
    assert_int_equal(self.nested, YOKE_ERROR_ARGUMENT);
    compare(&self);
    assert_int_equal(self.differ, 0);
    yoke_trainer_destroy(self.trainer);
    compare(&self);
    assert_int_equal(self.differ, 0);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_of_another_thread_never_end_a_run),
        cmocka_unit_test(callbacks_and_threads_that_they_start_have_the_programs_settings),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
