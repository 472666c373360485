/* One exact pass over the test split: every row once, in order, a short last batch unpadded. */
#include "train/run.h"

yoke_status yoke_trainer_open_test(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    if (trainer->test_loader != NULL) return YOKE_OK;
    if (trainer->test_rows == NULL)
        TRY(yoke_dataset_open(&trainer->test_rows, options->dataset, YOKE_SPLIT_TEST));
    trainer->test_dataset.struct_size = sizeof trainer->test_dataset;
    TRY(yoke_dataset_describe(trainer->test_rows, &trainer->test_dataset));
    yoke_loader_options loader = {.struct_size = sizeof loader,
                                  .batch = options->batch,
                                  .seed = options->seed,
                                  .devices = trainer->devices};
    yoke_trainer_share(trainer, &loader);
    return yoke_loader_create(&trainer->test_loader, trainer->test_rows, &loader);
}

double yoke_trainer_accuracy(const yoke_step_result *result) {
    if (result->correct < 0 || result->rows == 0) return -1;
    return (double)result->correct / result->rows;
}

/* Adds a batch to the sums; `sum->loss` is a sum until the end. */
static void add_batch(yoke_step_result *sum, const yoke_step_result *batch) {
    sum->loss += batch->loss * batch->rows;
    sum->rows += batch->rows;
    sum->correct = batch->correct < 0 ? -1 : sum->correct + batch->correct;
}

static yoke_status sum_batches(yoke_trainer *trainer, yoke_step_result *sum) {
    yoke_batch batch = {.struct_size = sizeof batch};
    TRY(yoke_loader_begin(trainer->test_loader, 0));
    for (;;) {
        yoke_step_result result = {.struct_size = sizeof result};
        TRY(yoke_loader_next(trainer->test_loader, &batch, NULL));
        bool stop;
        if (yoke_trainer_epoch_is_over(&batch)) return YOKE_OK;
        TRY(yoke_trainer_heard_stop(trainer, &stop));
        if (stop)
            return FAIL(YOKE_ERROR_CANCELLED, "stopped while evaluating, after %d of %zu rows",
                        sum->rows, trainer->test_dataset.rows);
        TRY(yoke_data_parallel_evaluate(trainer->parallel, &batch, &result));
        add_batch(sum, &result);
    }
}

yoke_status yoke_trainer_evaluate(yoke_trainer *trainer, yoke_step_result *result) {
    yoke_step_result sum = {.struct_size = sizeof sum, .gradient_norm = -1};
    TRY(yoke_pointer_check(trainer, "trainer"));
    TRY(yoke_trainer_open_test(trainer));
    TRY(sum_batches(trainer, &sum));
    sum.loss /= sum.rows > 0 ? sum.rows : 1;
    trainer->last_evaluation = sum;
    return yoke_options_store(result, &sum, sizeof sum, "yoke_step_result");
}
