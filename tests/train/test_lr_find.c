/* SPDX-License-Identifier: Apache-2.0 */
/* The range test of a trainer: what it suggests, on any devices and ranks, and that it leaves no
 * trace. */
#include "rank_runs.h"
#include "yoke/lr_find.h"

#define ROWS 50 /* a batch: without noise */

static yoke_trainer_options testing(log_of_run *run) {
    yoke_trainer_options options = small(run);
    options.batch = ROWS;
    options.steps = 6;
    options.evaluate_every = -1;
    return options;
}

static yoke_lr_find_result find(yoke_trainer *trainer, const yoke_lr_find_options *options) {
    yoke_lr_find_result found = {.struct_size = sizeof found};
    EXPECT_OK(yoke_trainer_find_lr(trainer, options, &found));
    return found;
}

static void the_suggestion_lies_in_a_decade_that_trains(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = testing(&run);
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    yoke_lr_find_result found = find(run.trainer, NULL);
    assert_true(found.suggestion > 0.01 && found.suggestion < 1);
    assert_true(found.cautious > 0.001 && found.cautious <= found.suggestion);
    assert_true(found.suggestion == found.learning_rates[found.suggested]);
    assert_true(found.learning_rates[0] == 1e-7);
    assert_non_null(strstr(found.text, "falls fastest"));
    assert_int_equal(run.ready, 1);
    assert_int_equal(run.steps, found.count); /* one step is an epoch: it went on with the next */
    assert_true(run.losses[5] == found.losses[5]);
    assert_int_equal(run.evaluations + run.saved + run.epochs, 0);

    /* What it suggests, carefully, trains better than a hundredth of it. */
    double ends[2];
    for (int i = 0; i < 2; i++) {
        log_of_run trained = {0};
        yoke_optimizer_options sgd = *options.optimizer;
        sgd.learning_rate = i == 0 ? found.cautious : found.cautious / 100;
        yoke_trainer_options again = testing(&trained);
        again.optimizer = &sgd;
        again.steps = 30;
        EXPECT_OK(train(&trained, &again));
        ends[i] = trained.losses[29];
        yoke_trainer_destroy(trained.trainer);
    }
    assert_true(ends[0] < 0.9 * ends[1]);
    yoke_trainer_destroy(run.trainer);
}

/* Dropout and momentum would show a step or a state that remains; so would the order of the rows.
 */
static void a_run_behind_a_test_has_the_bits_of_a_run_without(void **state) {
    (void)state;
    uint64_t ends[2], averages[2];
    for (int tests = 0; tests < 2; tests++) {
        log_of_run run = {0};
        yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT;
        yoke_trainer_options options = testing(&run);
        options.model = "resnet20";
        options.dataset = "synthetic:3x8x8,classes=3,rows=50";
        options.batch = 20; /* the last batch of an epoch is short */
        options.optimizer = &adamw;
        options.devices = devices_of(2);
        small_engine.ema_decay = 0.5;
        EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
        uint64_t before = hash_of(run.trainer);
        if (tests) {
            yoke_lr_find_options few = YOKE_LR_FIND_OPTIONS_INIT;
            few.steps = 20;
            (void)find(run.trainer, &few);
            assert_true(hash_of(run.trainer) == before);
            run.steps = run.ready = 0;
        }
        EXPECT_OK(yoke_trainer_run(run.trainer));
        assert_int_equal(run.steps, 6);
        assert_true(hash_of(run.trainer) != before);
        ends[tests] = hash_of(run.trainer);
        EXPECT_OK(yoke_data_parallel_use_average(yoke_trainer_engine(run.trainer), true));
        averages[tests] = hash_of(run.trainer);
        assert_true(averages[tests] != ends[tests]);
        yoke_trainer_destroy(run.trainer);
    }
    assert_true(ends[0] == ends[1]);
    assert_true(averages[0] == averages[1]);
}

static void expect_alike(const yoke_lr_find_result *one, const yoke_lr_find_result *other) {
    assert_int_equal(one->suggested, other->suggested);
    for (int i = 0; i <= one->suggested; i++) {
        assert_true(one->learning_rates[i] == other->learning_rates[i]);
        if (!(fabs(one->smoothed[i] - other->smoothed[i]) < 1e-4 * one->smoothed[i]))
            fail_msg("point %d: %.9g and %.9g", i, one->smoothed[i], other->smoothed[i]);
    }
}

static void any_number_of_devices_suggests_the_same(void **state) {
    (void)state;
    log_of_run runs[2] = {{0}, {0}};
    yoke_lr_find_result found[2];
    for (int i = 0; i < 2; i++) {
        yoke_trainer_options options = testing(&runs[i]);
        options.devices = devices_of(i + 1);
        EXPECT_OK(yoke_trainer_create(&runs[i].trainer, &options));
        found[i] = find(runs[i].trainer, NULL);
    }
    expect_alike(&found[0], &found[1]);
    for (int i = 0; i < 2; i++)
        yoke_trainer_destroy(runs[i].trainer);
}

/* Ranks as threads, over shared memory: on CPU devices. */

typedef struct rank_test {
    pthread_t thread;
    const char *store;
    int number, steps;
    log_of_run run;
    yoke_lr_find_result found;
    yoke_error error;
} rank_test;

static yoke_status create_and_find(rank_test *self, const yoke_process_group_options *group) {
    yoke_trainer_options options = testing(&self->run);
    yoke_lr_find_options wanted = YOKE_LR_FIND_OPTIONS_INIT;
    options.mode = YOKE_MODE_DISTRIBUTED_DATA_PARALLEL;
    options.process_group = group;
    wanted.steps = self->steps;
    self->found.struct_size = sizeof self->found;
    TRY(yoke_trainer_create(&self->run.trainer, &options));
    return yoke_trainer_find_lr(self->run.trainer, &wanted, &self->found);
}

static void *find_as_rank(void *context) {
    rank_test *self = context;
    yoke_rank_info info = {.struct_size = sizeof info, .rank = self->number, .world = RANK_RUNS};
    yoke_process_group_options group = {.struct_size = sizeof group,
                                        .rank = &info,
                                        .transport = YOKE_TRANSPORT_SHARED_MEMORY,
                                        .store = self->store,
                                        .timeout_ms = 600000};
    self->error = yoke_error_take(create_and_find(self, &group));
    return NULL;
}

static void test_ranks(rank_test *ranks, const char *name) {
    char store[96];
    snprintf(store, sizeof store, "file:///tmp/yoke-lr-find-%s-%d", name, (int)getpid());
    for (int k = 0; k < RANK_RUNS; k++) {
        ranks[k].number = k;
        ranks[k].store = store;
        assert_int_equal(pthread_create(&ranks[k].thread, NULL, find_as_rank, &ranks[k]), 0);
    }
    for (int k = 0; k < RANK_RUNS; k++)
        pthread_join(ranks[k].thread, NULL);
}

static void ranks_suggest_what_devices_do(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    rank_test ranks[RANK_RUNS] = {{.steps = 100}, {.steps = 100}};
    log_of_run run = {0};
    yoke_trainer_options options = testing(&run);
    options.devices = devices_of(RANK_RUNS);
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    yoke_lr_find_result found = find(run.trainer, NULL);
    test_ranks(ranks, "same");
    for (int k = 0; k < RANK_RUNS; k++) {
        if (ranks[k].error.status != YOKE_OK) fail_msg("rank %d: %s", k, ranks[k].error.text);
        assert_int_equal(ranks[k].found.count, found.count);
        for (int i = 0; i < found.count; i++)
            assert_true(ranks[k].found.losses[i] == found.losses[i]);
        assert_true(ranks[k].found.suggestion == found.suggestion);
        assert_true(hash_of(ranks[k].run.trainer) == hash_of(run.trainer));
    }
    for (int k = 0; k < RANK_RUNS; k++)
        yoke_trainer_destroy(ranks[k].run.trainer);
    yoke_trainer_destroy(run.trainer);
}

static void ranks_with_other_options_are_refused(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    rank_test ranks[RANK_RUNS] = {{.steps = 100}, {.steps = 50}};
    test_ranks(ranks, "other");
    for (int k = 0; k < RANK_RUNS; k++) {
        assert_int_equal(ranks[k].error.status, YOKE_ERROR_PEER);
        assert_non_null(strstr(ranks[k].error.text, "steps"));
        yoke_trainer_destroy(ranks[k].run.trainer);
    }
}

static void a_stop_ends_the_test_and_undoes_it(void **state) {
    (void)state;
    log_of_run run = {.stop_after = 5};
    yoke_trainer_options options = testing(&run);
    yoke_lr_find_result found = {.struct_size = sizeof found};
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    uint64_t before = hash_of(run.trainer);
    assert_int_equal(yoke_trainer_find_lr(run.trainer, NULL, &found), YOKE_ERROR_CANCELLED);
    assert_non_null(strstr(yoke_last_error(), "after step 5 of 100"));
    assert_int_equal(found.count, 5);
    assert_int_equal(found.suggested, -1);
    assert_non_null(strstr(found.text, "stopped"));
    assert_true(hash_of(run.trainer) == before);
    run.stop_after = 0;
    run.steps = run.ready = 0;
    EXPECT_OK(yoke_trainer_run(run.trainer)); /* the stop was for the test */
    assert_int_equal(run.steps, 6);
    yoke_trainer_destroy(run.trainer);
}

static void rates_that_change_nothing_get_no_suggestion(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = testing(&run);
    yoke_lr_find_options low = YOKE_LR_FIND_OPTIONS_INIT;
    low.lowest = 1e-30;
    low.highest = 1e-20;
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    yoke_lr_find_result found = find(run.trainer, &low);
    assert_int_equal(found.count, 100);
    assert_int_equal(found.suggested, -1);
    assert_true(found.suggestion == 0 && found.cautious == 0);
    assert_non_null(strstr(found.text, "never falls"));
    yoke_trainer_destroy(run.trainer);
}

static void a_gradient_that_explodes_ends_the_test(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = testing(&run);
    yoke_lr_find_options high = YOKE_LR_FIND_OPTIONS_INIT;
    high.highest = 1e30;
    high.divergence = 1e300; /* only what is not finite ends it */
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    uint64_t before = hash_of(run.trainer);
    yoke_lr_find_result found = find(run.trainer, &high);
    assert_true(found.diverged);
    assert_true(found.count < 100);
    assert_true(hash_of(run.trainer) == before);
    yoke_trainer_destroy(run.trainer);
}

static void weights_that_give_no_finite_loss_are_an_error(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_optimizer_options wild = {.struct_size = sizeof wild, .learning_rate = 1e30};
    yoke_trainer_options options = testing(&run);
    yoke_lr_find_result found = {.struct_size = sizeof found};
    options.steps = 1;
    options.optimizer = &wild;
    EXPECT_OK(train(&run, &options));
    run.steps = run.ready = 0;
    assert_int_equal(yoke_trainer_find_lr(run.trainer, NULL, &found), YOKE_ERROR_NUMERIC);
    assert_non_null(strstr(yoke_last_error(), "not finite"));
    assert_int_equal(found.count, 0);
    assert_int_equal(found.suggested, -1);
    yoke_trainer_destroy(run.trainer);
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = testing(&run);
    yoke_lr_find_options few = YOKE_LR_FIND_OPTIONS_INIT;
    yoke_lr_find_result found = {.struct_size = sizeof found};
    few.steps = 5;
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    assert_int_equal(yoke_trainer_find_lr(NULL, NULL, &found), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_trainer_find_lr(run.trainer, NULL, NULL), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_trainer_find_lr(run.trainer, &few, &found), YOKE_ERROR_ARGUMENT);
    assert_int_equal(found.suggested, -1);
    yoke_trainer_destroy(run.trainer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_suggestion_lies_in_a_decade_that_trains),
        cmocka_unit_test(a_run_behind_a_test_has_the_bits_of_a_run_without),
        cmocka_unit_test(any_number_of_devices_suggests_the_same),
        cmocka_unit_test(ranks_suggest_what_devices_do),
        cmocka_unit_test(ranks_with_other_options_are_refused),
        cmocka_unit_test(a_stop_ends_the_test_and_undoes_it),
        cmocka_unit_test(rates_that_change_nothing_get_no_suggestion),
        cmocka_unit_test(a_gradient_that_explodes_ends_the_test),
        cmocka_unit_test(weights_that_give_no_finite_loss_are_an_error),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
