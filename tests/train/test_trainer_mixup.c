/* SPDX-License-Identifier: Apache-2.0 */
/* A run with mixup: the same bits on any devices, ranks and loader threads; what is refused. */
#include "rank_runs.h"

#define ALPHA 0.4

static yoke_trainer_options mixing(log_of_run *run) {
    yoke_trainer_options options = small(run);
    options.augment = YOKE_AUGMENT_CROP_FLIP;
    options.mixup = ALPHA;
    options.epochs = 2;
    small_engine.shards = 4;
    return options;
}

static uint64_t run_to_the_end(const yoke_trainer_options *options) {
    log_of_run *run = options->payload;
    EXPECT_OK(train(run, options));
    uint64_t hash = hash_of(run->trainer);
    yoke_trainer_destroy(run->trainer);
    return hash;
}

static void devices_and_loader_threads_change_no_bit(void **state) {
    (void)state;
    log_of_run one = {0};
    yoke_trainer_options options = mixing(&one);
    uint64_t hash = run_to_the_end(&options);
    for (int i = 0; i < 4; i++) {
        log_of_run other = {0};
        options.payload = &other;
        options.loader_threads = i == 0 ? 3 : 1;
        options.devices = devices_of(i == 0 ? 1 : i == 3 ? 4 : 2);
        small_engine.schedule = i == 2 ? YOKE_SCHEDULE_SHARDED : YOKE_SCHEDULE_OVERLAP;
        assert_true(run_to_the_end(&options) == hash);
        assert_int_equal(other.steps, one.steps);
        for (int step = 0; step < one.steps; step++)
            assert_true(other.losses[step] == one.losses[step]);
    }
    log_of_run plain = {0};
    options.payload = &plain;
    options.mixup = 0;
    assert_true(run_to_the_end(&options) != hash);
}

/* 50 rows in batches of 16 leave one of 2: in it the second rank's one row has its partner, and the
 * first one's, on the other rank. */
static void ranks_train_to_the_bits_of_one_process(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip(); /* ranks that are threads share no GPU */
    log_of_run one = {0};
    yoke_trainer_options options = mixing(&one);
    uint64_t hash = run_to_the_end(&options);
    rank_run ranks[RANK_RUNS] = {0};
    for (int k = 0; k < RANK_RUNS; k++) {
        ranks[k].options = mixing(&ranks[k].run);
        ranks[k].options.evaluate_every = -1;
    }
    run_ranks(ranks);
    expect_all_well(ranks);
    for (int k = 0; k < RANK_RUNS; k++)
        assert_true(ranks[k].hash == hash);
}

static void evaluation_mixes_no_rows(void **state) {
    (void)state;
    static const yoke_optimizer_options still = {.struct_size = sizeof still, .learning_rate = 0};
    log_of_run plain = {0}, mixed = {0};
    yoke_trainer_options options = mixing(&mixed);
    options.optimizer = &still;
    run_to_the_end(&options);
    options.payload = &plain;
    options.mixup = 0;
    run_to_the_end(&options);
    assert_true(mixed.evaluation.loss == plain.evaluation.loss);
    assert_true(mixed.epoch.loss != plain.epoch.loss);
    assert_true(mixed.epoch.accuracy >= 0 && mixed.epoch.accuracy <= 1);
}

static void expect_refused(const yoke_trainer_options *options, const char *words) {
    yoke_trainer *trainer = NULL;
    assert_int_equal(yoke_trainer_create(&trainer, options), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), words);
}

static void labels_that_cannot_be_mixed_are_refused(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.set_ignore_index = true;
    yoke_trainer_options options = mixing(&run);
    options.loss = &loss;
    expect_refused(&options, "mixup 0.4 with ignore_index");
    options.loss = NULL;
    options.mixup = -1;
    expect_refused(&options, "mixup with alpha -1: must be finite and at least 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_and_loader_threads_change_no_bit),
        cmocka_unit_test(ranks_train_to_the_bits_of_one_process),
        cmocka_unit_test(evaluation_mixes_no_rows),
        cmocka_unit_test(labels_that_cannot_be_mixed_are_refused),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
