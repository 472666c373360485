/* SPDX-License-Identifier: Apache-2.0 */
/* What a run does with its evaluations: it lowers the rate, stops, and ends with the best weights;
 * an average of the weights is evaluated and saved; all of it resumes bit for bit. */
#include <math.h>

#include "saves_check.h"

enum { EPOCHS = 30 };

/* A run and the evaluations and rates that it told. */
typedef struct watched {
    log_of_run log; /* first: on_event gets it */
    int evaluations, epochs;
    double losses[EPOCHS], rates[EPOCHS];
} watched;

static void on_watched(const yoke_event *event, void *payload) {
    watched *run = payload;
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_EVALUATION) run->losses[run->evaluations++] = event->loss;
    if (event->kind == YOKE_EVENT_EPOCH) run->rates[run->epochs++] = event->learning_rate;
}

static yoke_optimizer_options fast = {
    .struct_size = sizeof fast, .kind = YOKE_SGD, .learning_rate = 0.1, .momentum = 0.9};

static yoke_trainer_options watching(watched *run) {
    yoke_trainer_options options = small(&run->log);
    options.on_event = on_watched;
    options.epochs = EPOCHS;
    options.evaluate_every = 1;
    options.optimizer = &fast;
    return options;
}

static void without_progress_a_run_stops(void **state) {
    (void)state;
    static const yoke_optimizer_options still = {.struct_size = sizeof still, .kind = YOKE_SGD};
    watched run = {0};
    yoke_trainer_options options = watching(&run);
    options.optimizer = &still;
    options.patience = 2;
    EXPECT_OK(train(&run.log, &options));
    assert_int_equal(run.log.steps, 3 * BATCHES);
    assert_int_equal(run.epochs, 3);
    assert_non_null(strstr(run.log.stopped, "2 evaluations without a better test loss"));
    assert_non_null(strstr(run.log.stopped, "of epoch 1"));
    yoke_trainer_destroy(run.log.trainer);
}

static int best_of(const watched *run) {
    int best = 0;
    for (int i = 1; i < run->evaluations; i++)
        if (run->losses[i] < run->losses[best]) best = i;
    return best;
}

static void assert_ends_with_best(watched *run, const char *path) {
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    double best = run->losses[best_of(run)];
    EXPECT_OK(yoke_trainer_summarize(run->log.trainer, &summary));
    assert_true(summary.test_loss == best);
    EXPECT_OK(yoke_trainer_evaluate(run->log.trainer, &result));
    assert_true(result.loss == best);
    EXPECT_OK(yoke_weights_load(yoke_trainer_engine(run->log.trainer),
                                yoke_trainer_model(run->log.trainer), path));
    EXPECT_OK(yoke_trainer_evaluate(run->log.trainer, &result));
    assert_true(result.loss == best);
}

static void a_run_with_patience_ends_with_its_best_weights(void **state) {
    (void)state;
    for (int averages = 0; averages < 2; averages++) {
        char path[128];
        watched run = {0};
        yoke_trainer_options options = watching(&run);
        options.devices = devices_of(2);
        options.patience = 3;
        small_engine.ema_decay = averages ? 0.5 : 0;
        options.save = in_folder("weights", path);
        EXPECT_OK(train(&run.log, &options));
        assert_int_equal(run.evaluations, best_of(&run) + 1 + 3);
        assert_true(run.evaluations < EPOCHS);
        assert_ends_with_best(&run, path);
        yoke_trainer_destroy(run.log.trainer);
        unlink(path);
    }
}

static void a_smaller_gain_than_min_delta_is_none(void **state) {
    (void)state;
    watched run = {0};
    yoke_trainer_options options = watching(&run);
    options.patience = 1;
    options.min_delta = 100;
    EXPECT_OK(train(&run.log, &options));
    assert_int_equal(run.evaluations, 2);
    assert_non_null(strstr(run.log.stopped, "of epoch 1"));
    yoke_trainer_destroy(run.log.trainer);
}

static void a_plateau_lowers_the_rate_as_pytorch_does(void **state) {
    (void)state;
    watched run = {0};
    yoke_trainer_options options = watching(&run);
    options.lr_schedule = YOKE_LR_PLATEAU;
    options.lr_patience = 1;
    options.lr_gamma = 0.5;
    EXPECT_OK(train(&run.log, &options));
    yoke_lr_plateau plateau = YOKE_LR_PLATEAU_INIT;
    plateau.learning_rate = 0.1;
    plateau.factor = 0.5;
    plateau.patience = 1;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        assert_true(run.rates[epoch] == plateau.learning_rate);
        (void)yoke_lr_plateau_update(&plateau, run.losses[epoch]);
    }
    assert_true(plateau.learning_rate < 0.05); /* it was lowered twice at least */

    yoke_lr_plateau lost = YOKE_LR_PLATEAU_INIT; /* a loss that is not finite is never the best */
    lost.learning_rate = 0.1;
    lost.factor = 0.5;
    lost.patience = 1;
    assert_true(yoke_lr_plateau_update(&lost, INFINITY) == 0.1);
    assert_true(yoke_lr_plateau_update(&lost, NAN) == 0.05);
    assert_true(yoke_lr_plateau_update(&lost, 2) == 0.05 && lost.best == 2 && lost.bad == 0);
    yoke_trainer_destroy(run.log.trainer);
}

static void the_exponential_rate_falls_in_every_epoch(void **state) {
    (void)state;
    watched run = {0};
    yoke_trainer_options options = watching(&run);
    options.lr_schedule = YOKE_LR_EXPONENTIAL;
    options.epochs = 4;
    EXPECT_OK(train(&run.log, &options));
    for (int epoch = 0; epoch < 4; epoch++)
        assert_true(fabs(run.rates[epoch] - 0.1 * pow(0.95, epoch)) < 1e-15);
    yoke_trainer_destroy(run.log.trainer);
}

/* The bytes of a file; frees nothing that it does not return. */
static size_t read_all(const char *path, unsigned char **data) {
    size_t bytes;
    EXPECT_OK(yoke_file_read(path, 1 << 24, data, &bytes));
    return bytes;
}

/* From before and behind the best evaluation. */
static void a_resumed_run_watches_on_bit_for_bit(void **state) {
    (void)state;
    char whole[128], again[128], path[PATH_MAX];
    watched run = {0};
    int resumes = 0;
    clear_saves();
    yoke_trainer_options options = watching(&run);
    options.checkpoint_dir = saves;
    options.on_event = on_watched;
    options.keep = EPOCHS;
    options.patience = 3;
    options.lr_schedule = YOKE_LR_PLATEAU;
    options.lr_patience = 0;
    small_engine.ema_decay = 0.5;
    options.save = in_folder("whole", whole);
    EXPECT_OK(train(&run.log, &options));
    yoke_trainer_destroy(run.log.trainer);
    unsigned char *wanted, *got;
    size_t bytes = read_all(whole, &wanted);
    for (uint64_t epoch = 1; epoch <= (uint64_t)run.evaluations; epoch++) {
        watched next = {0};
        yoke_folder_path(path, saves, epoch * BATCHES);
        if (!has_save(epoch * BATCHES)) continue; /* the writer was busy */
        resumes++;
        options.payload = &next;
        options.checkpoint_dir = NULL;
        options.resume = path;
        options.save = in_folder("again", again);
        EXPECT_OK(train(&next.log, &options));
        yoke_trainer_destroy(next.log.trainer);
        assert_int_equal(read_all(again, &got), bytes);
        assert_memory_equal(got, wanted, bytes);
        free(got);
        unlink(again);
    }
    assert_true(resumes > 1);
    free(wanted);
    unlink(whole);
    clear_saves();
}

/* Its last checkpoint comes behind its last evaluation. */
static void a_run_that_stopped_early_and_is_resumed_knows_its_best_accuracy(void **state) {
    (void)state;
    watched run = {0}, next = {0};
    yoke_trainer_summary first = {.struct_size = sizeof first}, again = first;
    clear_saves();
    yoke_trainer_options options = watching(&run);
    options.checkpoint_dir = saves;
    options.checkpoint_every = EPOCHS;
    options.patience = 2;
    options.resume = "auto";
    EXPECT_OK(train(&run.log, &options));
    assert_true(run.epochs < EPOCHS);
    EXPECT_OK(yoke_trainer_summarize(run.log.trainer, &first));
    yoke_trainer_destroy(run.log.trainer);
    options.payload = &next;
    EXPECT_OK(train(&next.log, &options));
    assert_int_equal(next.evaluations, 0);
    EXPECT_OK(yoke_trainer_summarize(next.log.trainer, &again));
    assert_true(again.test_loss == first.test_loss);
    assert_true(again.test_accuracy == first.test_accuracy && first.test_accuracy >= 0);
    yoke_trainer_destroy(next.log.trainer);
    clear_saves();
}

/* With the best evaluation's weights in the file, the engine keeps those of the step. */
static void a_run_that_is_stopped_saves_its_best_weights_and_goes_on_with_its_own(void **state) {
    (void)state;
    for (int averages = 0; averages < 2; averages++) {
        char path[128], words[256];
        watched whole = {0}, run = {0};
        yoke_step_result result = {.struct_size = sizeof result};
        yoke_trainer_options options = watching(&whole);
        options.devices = devices_of(2);
        options.patience = 3;
        small_engine.ema_decay = averages ? 0.5 : 0;
        EXPECT_OK(train(&whole.log, &options));
        int best = best_of(&whole);
        options.payload = &run;
        options.save = in_folder("weights", path);
        run.log.stop_after = (uint64_t)(best + 2) * BATCHES + 1; /* behind a worse evaluation */
        assert_int_equal(train(&run.log, &options), YOKE_ERROR_CANCELLED);
        snprintf(words, sizeof words, "%s has the weights of epoch %d, the best evaluation", path,
                 best + 1);
        assert_non_null(strstr(yoke_last_error(), words));
        EXPECT_OK(yoke_weights_load(yoke_trainer_engine(whole.log.trainer),
                                    yoke_trainer_model(whole.log.trainer), path));
        EXPECT_OK(yoke_trainer_evaluate(whole.log.trainer, &result));
        assert_true(result.loss == whole.losses[best]);
        yoke_trainer_destroy(whole.log.trainer);

        run.log.first_step = run.log.steps;
        EXPECT_OK(yoke_trainer_run(run.log.trainer));
        assert_int_equal(run.evaluations, whole.evaluations);
        assert_memory_equal(run.losses, whole.losses, (size_t)run.evaluations * sizeof *run.losses);
        yoke_trainer_destroy(run.log.trainer);
        unlink(path);
    }
}

/* A complete run, one evaluation behind its best, does not stop early when it is resumed. */
static void an_evaluation_that_is_repeated_counts_once(void **state) {
    (void)state;
    watched whole = {0}, run = {0}, again = {0};
    yoke_trainer_options options = watching(&whole);
    options.patience = 3;
    EXPECT_OK(train(&whole.log, &options));
    yoke_trainer_destroy(whole.log.trainer);
    clear_saves();
    options.checkpoint_dir = saves;
    options.checkpoint_every = EPOCHS;
    options.resume = "auto";
    options.epochs = best_of(&whole) + 2;
    options.patience = 2;
    options.payload = &run;
    EXPECT_OK(train(&run.log, &options));
    yoke_trainer_destroy(run.log.trainer);
    options.payload = &again;
    EXPECT_OK(train(&again.log, &options));
    yoke_trainer_destroy(again.log.trainer);
    assert_true(again.evaluations == 1 && run.evaluations == options.epochs);
    assert_true(again.losses[0] == run.losses[run.evaluations - 1]);
    assert_string_equal(run.log.stopped, "");
    assert_string_equal(again.log.stopped, "");
    clear_saves();
}

/* NaN, then 1, 1/2, 1/3, ... */
static yoke_status falls_after_nan(void *payload, const yoke_outputs *rows, double *loss) {
    const watched *run = payload;
    *loss = rows->gradients != NULL ? 1
            : run->evaluations == 0 ? (double)NAN
                                    : 1.0 / run->evaluations;
    return YOKE_OK;
}

static void a_loss_that_is_no_number_is_never_the_best(void **state) {
    (void)state;
    watched run = {0};
    const yoke_custom_loss loss = {
        .struct_size = sizeof loss, .compute = falls_after_nan, .payload = &run};
    yoke_trainer_options options = watching(&run);
    options.custom_loss = &loss;
    options.epochs = 5;
    options.patience = 2;
    EXPECT_OK(train(&run.log, &options));
    assert_int_equal(run.evaluations, 5);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    EXPECT_OK(yoke_trainer_summarize(run.log.trainer, &summary));
    assert_true(fabs(summary.test_loss - 0.25) < 1e-12);
    yoke_trainer_destroy(run.log.trainer);
}

static void the_average_is_evaluated_and_saved(void **state) {
    (void)state;
    char path[128];
    watched run = {0};
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_trainer_options options = watching(&run);
    options.epochs = 3;
    options.devices = devices_of(2);
    small_engine.ema_decay = 0.9;
    options.save = in_folder("weights", path);
    EXPECT_OK(train(&run.log, &options));
    yoke_data_parallel *engine = yoke_trainer_engine(run.log.trainer);
    EXPECT_OK(yoke_trainer_evaluate(run.log.trainer, &result));
    assert_true(result.loss != run.losses[2]); /* the engine goes on with its own weights */
    EXPECT_OK(yoke_weights_load(engine, yoke_trainer_model(run.log.trainer), path));
    EXPECT_OK(yoke_trainer_evaluate(run.log.trainer, &result));
    assert_true(result.loss == run.losses[2]);
    yoke_trainer_destroy(run.log.trainer);
    unlink(path);
}

static void what_cannot_be_watched_is_refused(void **state) {
    (void)state;
    const struct {
        yoke_lr_schedule_kind kind;
        int every, patience, lr_patience;
        double min_delta, gamma;
        const char *word;
    } cases[] = {{YOKE_LR_PLATEAU, 0, 0, 0, 0, 0, "plateau needs evaluations"},
                 {YOKE_LR_CONSTANT, -1, 3, 0, 0, 0, "patience needs evaluations"},
                 {YOKE_LR_CONSTANT, 1, -1, 0, 0, 0, "patience -1"},
                 {YOKE_LR_PLATEAU, 1, 0, -2, 0, 0, "lr_patience is -2"},
                 {YOKE_LR_CONSTANT, 1, 1, 0, -0.5, 0, "min_delta is -0.5"},
                 {YOKE_LR_EXPONENTIAL, 1, 0, 0, 0, 1.5, "lr_gamma is 1.5"},
                 {(yoke_lr_schedule_kind)7, 1, 0, 0, 0, 0, "lr_schedule is 7"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        watched run = {0};
        yoke_trainer_options options = watching(&run);
        options.lr_schedule = cases[i].kind;
        options.evaluate_every = cases[i].every;
        options.patience = cases[i].patience;
        options.lr_patience = cases[i].lr_patience;
        options.min_delta = cases[i].min_delta;
        options.lr_gamma = cases[i].gamma;
        assert_int_equal(yoke_trainer_create(&run.log.trainer, &options), YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), cases[i].word) == NULL)
            fail_msg("'%s' is not in: %s", cases[i].word, yoke_last_error());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_progress_a_run_stops),
        cmocka_unit_test(a_run_with_patience_ends_with_its_best_weights),
        cmocka_unit_test(a_smaller_gain_than_min_delta_is_none),
        cmocka_unit_test(a_plateau_lowers_the_rate_as_pytorch_does),
        cmocka_unit_test(the_exponential_rate_falls_in_every_epoch),
        cmocka_unit_test(a_resumed_run_watches_on_bit_for_bit),
        cmocka_unit_test(a_run_that_stopped_early_and_is_resumed_knows_its_best_accuracy),
        cmocka_unit_test(a_run_that_is_stopped_saves_its_best_weights_and_goes_on_with_its_own),
        cmocka_unit_test(an_evaluation_that_is_repeated_counts_once),
        cmocka_unit_test(a_loss_that_is_no_number_is_never_the_best),
        cmocka_unit_test(the_average_is_evaluated_and_saved),
        cmocka_unit_test(what_cannot_be_watched_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
