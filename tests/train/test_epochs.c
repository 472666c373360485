/* SPDX-License-Identifier: Apache-2.0 */
/* The event that ends an epoch: means over its rows, and the evaluation that came with it. */
#include <math.h>

#include "saves_check.h"

static double mean_loss(const log_of_run *run, int first, int count) {
    double sum = 0;
    int rows = 0;
    for (int i = first; i < first + count; i++) {
        sum += run->losses[i] * run->rows[i];
        rows += run->rows[i];
    }
    return sum / rows;
}

/* 50 rows in batches of 16: the last batch of an epoch has 2 and counts as 2. */
static void an_epoch_ends_with_its_means(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.epochs = 3;
    options.devices = devices_of(2);
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.epochs, 3);
    assert_int_equal(run.epoch.epoch, 2);
    assert_int_equal(run.epoch.rows, 50);
    assert_true(fabs(run.epoch.loss - mean_loss(&run, 2 * BATCHES, BATCHES)) < 1e-12);
    assert_true(run.epoch.accuracy >= 0 && run.epoch.accuracy <= 1);
    assert_true(run.epoch.learning_rate == 0.05 && run.epoch.images_per_second > 0);
    assert_true(run.epoch.test_loss == run.evaluation.loss);
    assert_true(run.epoch.test_accuracy == run.evaluation.accuracy);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    EXPECT_OK(yoke_trainer_summarize(run.trainer, &summary));
    assert_true(summary.train_loss == run.epoch.loss);
    assert_true(summary.train_accuracy == run.epoch.accuracy);
    assert_true(summary.test_loss == run.evaluation.loss);
    assert_true(summary.test_accuracy == run.evaluation.accuracy);
    yoke_trainer_destroy(run.trainer);
}

static void without_an_evaluation_there_is_no_test_loss(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = small(&run);
    options.steps = 6; /* the second epoch ends early */
    options.evaluate_every = -1;
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.epochs, 2);
    assert_int_equal(run.epoch.rows, 32);
    assert_true(fabs(run.epoch.loss - mean_loss(&run, BATCHES, 2)) < 1e-12);
    assert_true(isnan(run.epoch.test_loss) && run.epoch.test_accuracy == -1);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    EXPECT_OK(yoke_trainer_summarize(run.trainer, &summary));
    assert_true(isnan(summary.test_loss) && summary.test_accuracy == -1);
    yoke_trainer_destroy(run.trainer);
}

static void a_complete_run_that_is_resumed_reports_its_last_epoch_without_training(void **state) {
    (void)state;
    log_of_run run = {0}, again = {0};
    clear_saves();
    yoke_trainer_options options = saving(&run);
    EXPECT_OK(train(&run, &options));
    yoke_trainer_destroy(run.trainer);
    options.payload = &again;
    EXPECT_OK(train(&again, &options));
    assert_int_equal(again.epochs, 1);
    assert_int_equal(again.epoch.epoch, run.epoch.epoch);
    assert_int_equal(again.epoch.rows, 0);
    assert_true(isnan(again.epoch.loss) && again.epoch.accuracy == -1);
    assert_true(again.epoch.test_loss == run.epoch.test_loss);
    yoke_trainer_destroy(again.trainer);
    clear_saves();
}

static void a_trainer_describes_its_rows(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_dataset_info rows = {.struct_size = sizeof rows}, test = {.struct_size = sizeof test};
    yoke_trainer_options options = small(&run);
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    EXPECT_OK(yoke_trainer_dataset(run.trainer, YOKE_SPLIT_TRAIN, &rows));
    EXPECT_OK(yoke_trainer_dataset(run.trainer, YOKE_SPLIT_TEST, &test));
    assert_int_equal(rows.rows, 50);
    assert_int_equal(test.rows, 10);
    yoke_trainer_destroy(run.trainer);
    options.evaluate_every = -1;
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    assert_int_equal(yoke_trainer_dataset(run.trainer, YOKE_SPLIT_TEST, &test),
                     YOKE_ERROR_ARGUMENT);
    yoke_trainer_destroy(run.trainer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_ends_with_its_means),
        cmocka_unit_test(without_an_evaluation_there_is_no_test_loss),
        cmocka_unit_test(a_complete_run_that_is_resumed_reports_its_last_epoch_without_training),
        cmocka_unit_test(a_trainer_describes_its_rows),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
