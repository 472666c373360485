/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer on row streams: the numbers of an array in its order, whatever the length turns out to
 * be; and ranks whose streams differ end with an error. */
#include "rank_runs.h"

#include "saves_check.h"
#include "support/array_stream.h"
#include "yoke/evaluation.h"
#include "yoke/lr_find.h"

enum { ROWS = 50, FEATURES = 12, CLASSES = 3 };

static float inputs[ROWS * FEATURES];
static int32_t labels[ROWS];

static int make_rows(void **state) {
    for (int row = 0; row < ROWS; row++) {
        labels[row] = row * row % CLASSES;
        for (int i = 0; i < FEATURES; i++)
            inputs[row * FEATURES + i] =
                (float)(sin(1.7 * row + 0.9 * i * i) + (i % CLASSES == labels[row]));
    }
    return make_folder(state);
}

static yoke_dataset *open_arrays(void) {
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {FEATURES, 1, 1, true},
                          .inputs = inputs,
                          .classes = CLASSES,
                          .labels = labels};
    yoke_dataset *dataset = NULL;
    EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

static array_stream over_rows(void) {
    return (array_stream){.inputs = inputs, .labels = labels, .rows = ROWS, .values = FEATURES};
}

static yoke_row_stream calls_of(array_stream *own) {
    return (yoke_row_stream){.struct_size = sizeof(yoke_row_stream),
                             .shape = {FEATURES, 1, 1, true},
                             .classes = CLASSES,
                             .next = array_stream_next,
                             .rewind = array_stream_rewind,
                             .payload = own};
}

static yoke_dataset *open_stream(array_stream *own) {
    yoke_row_stream calls = calls_of(own);
    yoke_dataset *dataset = NULL;
    EXPECT_OK(yoke_dataset_from_stream(&dataset, &calls));
    return dataset;
}

static yoke_dataset *open_one_pass(array_stream *own) {
    yoke_row_stream calls = calls_of(own);
    yoke_dataset *dataset = NULL;
    calls.rewind = NULL;
    EXPECT_OK(yoke_dataset_from_stream(&dataset, &calls));
    return dataset;
}

static yoke_trainer_options on_rows(log_of_run *run, const yoke_dataset *training,
                                    const yoke_dataset *test) {
    yoke_trainer_options options = small(run);
    options.dataset = NULL;
    options.training_rows = training;
    options.test_rows = test;
    options.no_shuffle = true;
    options.epochs = 2;
    if (test == NULL) options.evaluate_every = -1;
    return options;
}

/* Runs to the end; returns the hash of the weights. */
static uint64_t run_to_the_end(log_of_run *run, const yoke_trainer_options *options) {
    *run = (log_of_run){0};
    EXPECT_OK(train(run, options));
    uint64_t hash = hash_of(run->trainer);
    yoke_trainer_destroy(run->trainer);
    return hash;
}

static void expect_words(const char *words) {
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), words);
}

static void expect_refused(const yoke_trainer_options *options, const char *words) {
    yoke_trainer *trainer = NULL;
    assert_int_equal(yoke_trainer_create(&trainer, options), YOKE_ERROR_ARGUMENT);
    expect_words(words);
}

static void expect_failure(const yoke_trainer_options *options, yoke_status status,
                           const char *words) {
    log_of_run *run = options->payload;
    *run = (log_of_run){0};
    assert_int_equal(train(run, options), status);
    expect_words(words);
    yoke_trainer_destroy(run->trainer);
}

/* A resized run begins its epoch again, behind the batches that it has trained on. */
static void other_devices_need_a_stream_that_rewinds(void **state) {
    (void)state;
    for (int rewinds = 0; rewinds < 2; rewinds++) {
        array_stream rows = over_rows();
        log_of_run run = {0};
        yoke_dataset *stream = rewinds ? open_stream(&rows) : open_one_pass(&rows);
        yoke_trainer_options options = on_rows(&run, stream, NULL);
        options.epochs = 1;
        small_engine.shards = 4;
        uint64_t wanted = rewinds ? run_to_the_end(&run, &options) : 0;
        run = (log_of_run){0};
        EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
        assert_int_equal(yoke_trainer_resize(run.trainer, devices_of(2)),
                         rewinds ? YOKE_OK : YOKE_ERROR_ARGUMENT);
        if (!rewinds) expect_words("rewind");
        EXPECT_OK(yoke_trainer_run(run.trainer));
        if (rewinds) assert_int_equal(hash_of(run.trainer), wanted);
        yoke_trainer_destroy(run.trainer);
        yoke_dataset_close(stream);
    }
}

/* 50 rows in batches of 16, the last of 2. */
static void a_stream_trains_and_evaluates_as_its_array_in_order(void **state) {
    (void)state;
    log_of_run wanted = {0}, run = {0};
    yoke_dataset *arrays = open_arrays();
    for (int i = 0; i < 6; i++) {
        array_stream training = over_rows(), test = over_rows();
        training.at_once = i / 3 * 5;
        yoke_dataset *streams[] = {open_stream(&training), open_stream(&test)};
        yoke_trainer_options options = on_rows(&wanted, arrays, arrays);
        options.devices = devices_of(1 + i % 3);
        options.evaluate_every = 1;
        uint64_t hash = run_to_the_end(&wanted, &options);
        options.training_rows = streams[0];
        options.test_rows = streams[1];
        options.payload = &run;
        assert_true(run_to_the_end(&run, &options) == hash);
        assert_int_equal(run.steps, 8);
        assert_memory_equal(run.losses, wanted.losses, 8 * sizeof run.losses[0]);
        assert_memory_equal(run.rows, wanted.rows, 8 * sizeof run.rows[0]);
        assert_true(run.evaluations == 2 && run.epochs == 2);
        assert_true(run.evaluation.loss == wanted.evaluation.loss);
        assert_int_equal(run.evaluation.rows, ROWS);
        assert_int_equal(run.epoch.rows, ROWS);
        assert_int_equal(run.epoch.epoch, 1);
        assert_int_equal(run.epoch.steps, 0); /* nobody knew */
        yoke_dataset_close(streams[0]);
        yoke_dataset_close(streams[1]);
    }
    yoke_dataset_close(arrays);
}

static void an_endless_stream_trains_for_its_steps(void **state) {
    (void)state;
    log_of_run wanted = {0}, run = {0};
    array_stream own = over_rows();
    own.endless = true;
    yoke_dataset *arrays = open_arrays(), *stream = open_stream(&own);
    yoke_trainer_options options = on_rows(&wanted, arrays, arrays);
    options.batch = 10; /* divides the rows: epochs of the array make no difference */
    options.steps = 12;
    options.lr_schedule = YOKE_LR_COSINE;
    uint64_t hash = run_to_the_end(&wanted, &options);
    options.training_rows = stream;
    options.payload = &run;
    assert_true(run_to_the_end(&run, &options) == hash);
    assert_true(run.steps == 12 && run.epochs == 1 && own.passes == 1);
    assert_int_equal(run.epoch.steps, 12);
    assert_true(run.evaluation.loss == wanted.evaluation.loss);
    yoke_dataset_close(stream);
    yoke_dataset_close(arrays);
}

static void a_stream_of_one_pass_ends_training(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_dataset *arrays = open_arrays();
    for (int steps = 0; steps <= 100; steps += 100) {
        array_stream own = over_rows();
        yoke_dataset *stream = open_one_pass(&own);
        yoke_trainer_options options = on_rows(&run, stream, arrays);
        options.epochs = 1;
        options.steps = (uint64_t)steps;
        run_to_the_end(&run, &options);
        assert_true(run.steps == 4 && run.epochs == 1 && run.evaluations == 1);
        yoke_dataset_close(stream);
    }
    yoke_dataset_close(arrays);
}

/* Its rows come once: the run needs them. */
static void a_range_test_leaves_a_stream_of_one_pass_alone(void **state) {
    (void)state;
    log_of_run run = {0};
    array_stream own = over_rows();
    yoke_dataset *stream = open_one_pass(&own);
    yoke_trainer_options options = on_rows(&run, stream, NULL);
    yoke_lr_find_result found = {.struct_size = sizeof found};
    options.epochs = 1;
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    assert_int_equal(yoke_trainer_find_lr(run.trainer, NULL, &found), YOKE_ERROR_ARGUMENT);
    expect_words("row stream of one pass");
    assert_int_equal(found.suggested, -1);
    EXPECT_OK(yoke_trainer_run(run.trainer));
    assert_int_equal(run.steps, 4);
    yoke_trainer_destroy(run.trainer);
    yoke_dataset_close(stream);
}

/* A test in the middle of a pass, and over several. */
static void a_run_behind_a_range_test_reads_the_stream_from_its_begin(void **state) {
    (void)state;
    log_of_run run = {0};
    array_stream own = over_rows();
    yoke_dataset *stream = open_stream(&own);
    yoke_trainer_options options = on_rows(&run, stream, NULL);
    yoke_lr_find_options few = YOKE_LR_FIND_OPTIONS_INIT;
    yoke_lr_find_result found = {.struct_size = sizeof found};
    uint64_t hash = run_to_the_end(&run, &options);
    few.steps = 22;
    few.highest = 1e-3;
    run = (log_of_run){0};
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    EXPECT_OK(yoke_trainer_find_lr(run.trainer, &few, &found));
    assert_int_equal(found.count, 22);
    run.steps = 0; /* on_event counted those of the test */
    EXPECT_OK(yoke_trainer_run(run.trainer));
    assert_true(hash_of(run.trainer) == hash);
    yoke_trainer_destroy(run.trainer);
    yoke_dataset_close(stream);
}

/* Stops in the second epoch, in its middle or at its end; another stream goes on. */
static void a_resumed_run_goes_on_where_the_stream_was(void **state) {
    (void)state;
    log_of_run run = {0};
    clear_saves();
    for (int i = 0; i < 6; i++) {
        array_stream whole = over_rows(), before = over_rows(), after = over_rows();
        yoke_row_stream calls = calls_of(&after);
        if (i % 2) calls.skip = array_stream_skip;
        yoke_dataset *streams[] = {open_stream(&whole), open_stream(&before), NULL};
        EXPECT_OK(yoke_dataset_from_stream(&streams[2], &calls));
        yoke_trainer_options options = on_rows(&run, streams[0], NULL);
        options.epochs = 3;
        uint64_t hash = run_to_the_end(&run, &options);
        options.training_rows = streams[1];
        options.checkpoint_dir = saves;
        run = (log_of_run){.stop_after = (uint64_t)(5 + i / 2 + i / 4)}; /* 5, 6, 8 */
        assert_int_equal(train(&run, &options), YOKE_ERROR_CANCELLED);
        expect_words("stopped after step");
        yoke_trainer_destroy(run.trainer);
        options.training_rows = streams[2];
        options.resume = "auto";
        assert_true(run_to_the_end(&run, &options) == hash);
        assert_int_equal(run.resumed, 1);
        assert_int_equal(run.steps, 12);
        assert_int_equal(after.skips, i % 2);
        assert_int_equal(after.passes, 2);
        assert_true(run_to_the_end(&run, &options) == hash); /* again: nothing is left */
        assert_non_null(strstr(run.resumed_from, "after step 12: the run is complete"));
        clear_saves();
        for (int k = 0; k < 3; k++)
            yoke_dataset_close(streams[k]);
    }
}

/* Nobody knows how many batches the last epoch had. */
static void a_complete_run_evaluates_again_and_stays_complete(void **state) {
    (void)state;
    log_of_run run = {0};
    char best[PATH_MAX];
    clear_saves();
    yoke_folder_best_path(best, saves);
    array_stream own = over_rows();
    yoke_dataset *stream = open_stream(&own), *arrays = open_arrays();
    yoke_trainer_options options = on_rows(&run, stream, arrays);
    options.checkpoint_dir = saves;
    options.keep_best = true;
    uint64_t hash = run_to_the_end(&run, &options);
    double loss = run.evaluation.loss;
    assert_int_equal(unlink(best), 0); /* so that the next run writes it */
    options.resume = "auto";
    for (int again = 0; again < 2; again++) {
        run = (log_of_run){0};
        EXPECT_OK(train(&run, &options));
        assert_true(hash_of(run.trainer) == hash && run.evaluation.loss == loss);
        assert_true(run.evaluations == 1 && run.epochs == 1 && run.steps == 8);
        assert_true(run.evaluation.epoch == 1 && run.epoch.epoch == 1);
        EXPECT_OK(yoke_trainer_run(run.trainer));
        assert_true(run.evaluations == 2 && run.steps == 8);
        yoke_trainer_destroy(run.trainer);
        options.resume = best;
    }
    assert_int_equal(own.passes, 2);
    clear_saves();
    yoke_dataset_close(stream);
    yoke_dataset_close(arrays);
}

static void an_epoch_without_a_row_is_an_error(void **state) {
    (void)state;
    log_of_run run = {0};
    array_stream own = over_rows(), test = over_rows();
    yoke_dataset *stream = open_stream(&own), *nothing = open_stream(&test);
    yoke_trainer_options options = on_rows(&run, stream, NULL);
    own.rows = 0;
    options.steps = 5;
    expect_failure(&options, YOKE_ERROR_DATA, "the row stream gave no row in epoch 1");
    own.rows = 10;
    options.drop_last = true;
    expect_failure(&options, YOKE_ERROR_DATA, "the row stream gave no whole batch, and drop_last");
    own.rows = ROWS;
    test.rows = 0;
    options.test_rows = nothing;
    options.evaluate_every = 0;
    expect_failure(&options, YOKE_ERROR_DATA, "the row stream gave no row to evaluate on");
    assert_int_equal(run.steps, 5);

    yoke_loader_options of_loader = {.struct_size = sizeof of_loader, .batch = 16};
    yoke_loader *loader = NULL;
    yoke_evaluation *evaluation = NULL;
    options = on_rows(&run, stream, NULL);
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    EXPECT_OK(yoke_loader_create(&loader, nothing, &of_loader));
    assert_int_equal(yoke_evaluation_run(&evaluation, yoke_trainer_engine(run.trainer), loader),
                     YOKE_ERROR_DATA);
    expect_words("the row stream gave no row to evaluate on");
    yoke_loader_destroy(loader);
    yoke_trainer_destroy(run.trainer);
    yoke_dataset_close(stream);
    yoke_dataset_close(nothing);
}

static void what_the_stream_says_reaches_the_caller(void **state) {
    (void)state;
    log_of_run run = {0};
    array_stream own = over_rows();
    own.fails_at = 40;
    yoke_dataset *stream = open_stream(&own), *arrays = open_arrays();
    yoke_trainer_options options = on_rows(&run, stream, NULL);
    expect_failure(&options, YOKE_ERROR_IO,
                   "row 40 of the row stream: the socket closed behind 40 rows");
    assert_int_equal(run.steps, 2);
    options = on_rows(&run, arrays, stream);
    expect_failure(&options, YOKE_ERROR_IO, "row 40 of the row stream: the socket closed");
    assert_int_equal(run.steps, 8);
    yoke_dataset_close(stream);
    yoke_dataset_close(arrays);
}

static void what_needs_the_length_is_refused(void **state) {
    (void)state;
    log_of_run run = {0};
    array_stream own = over_rows(), other = over_rows();
    yoke_dataset *stream = open_stream(&own), *once = open_one_pass(&other);
    yoke_trainer_options options = on_rows(&run, stream, NULL);
    options.lr_schedule = YOKE_LR_COSINE;
    expect_refused(&options, "lr_schedule cosine needs the number of steps");
    options.lr_schedule = YOKE_LR_EXPONENTIAL;
    options.steps = 10;
    expect_refused(&options, "lr_schedule exponential lowers the rate");
    options.lr_schedule = YOKE_LR_CONSTANT;
    options.no_shuffle = false;
    expect_refused(&options, "set no_shuffle");
    options.no_shuffle = true;
    options.balanced_class_weights = true;
    expect_refused(&options, "its labels are not known before they are read");
    options = on_rows(&run, once, NULL);
    expect_refused(&options, "epochs is 2, and the row stream has one pass");
    options = on_rows(&run, stream, once);
    options.evaluate_every = 1;
    expect_refused(&options, "evaluate_every is 1, and the row stream of test_rows has one pass");
    options = on_rows(&run, stream, stream);
    expect_refused(&options, "a loader reads this row stream already");
    yoke_dataset_close(stream);
    yoke_dataset_close(once);
}

/* Ranks. */

typedef struct rank_streams {
    array_stream training[RANK_RUNS], test[RANK_RUNS];
    yoke_dataset *datasets[2 * RANK_RUNS];
    rank_run ranks[RANK_RUNS];
} rank_streams;

/* Batches of 15: 8 and 7 rows, and a last one of 5: 3 and 2. */
static rank_streams *make_ranks(void) {
    rank_streams *all = calloc(1, sizeof *all);
    assert_non_null(all);
    for (int k = 0; k < RANK_RUNS; k++) {
        all->training[k] = over_rows();
        all->test[k] = over_rows();
        all->datasets[2 * k] = open_stream(&all->training[k]);
        all->datasets[2 * k + 1] = open_stream(&all->test[k]);
        all->ranks[k].options =
            on_rows(&all->ranks[k].run, all->datasets[2 * k], all->datasets[2 * k + 1]);
        all->ranks[k].options.devices = "cpu";
        all->ranks[k].options.batch = 15;
    }
    return all;
}

static void free_ranks(rank_streams *all) {
    for (int k = 0; k < 2 * RANK_RUNS; k++)
        yoke_dataset_close(all->datasets[k]);
    free(all);
}

static void ranks_train_on_the_stream_as_one_process_and_as_on_the_array(void **state) {
    (void)state;
    log_of_run one = {0};
    yoke_dataset *arrays = open_arrays();
    yoke_trainer_options options = on_rows(&one, arrays, arrays);
    options.batch = 15;
    run_to_the_end(&one, &options);
    rank_streams *streamed = make_ranks(), *stored = make_ranks();
    for (int k = 0; k < RANK_RUNS; k++)
        stored->ranks[k].options.training_rows = stored->ranks[k].options.test_rows = arrays;
    run_ranks(streamed->ranks);
    run_ranks(stored->ranks);
    expect_all_well(streamed->ranks);
    expect_all_well(stored->ranks);
    const log_of_run *run = &streamed->ranks[0].run, *same = &stored->ranks[0].run;
    assert_true(run->steps == 8 && one.steps == 8);
    assert_memory_equal(run->losses, same->losses, 8 * sizeof run->losses[0]);
    assert_true(run->evaluation.loss == same->evaluation.loss);
    assert_int_equal(run->evaluation.rows, ROWS);
    for (int step = 0; step < one.steps; step++)
        assert_true(fabs(run->losses[step] - one.losses[step]) <= 1e-5);
    assert_true(fabs(streamed->ranks[1].run.evaluation.loss - one.evaluation.loss) <= 1e-5);
    free_ranks(streamed);
    free_ranks(stored);
    yoke_dataset_close(arrays);
}

/* Rank 0 stops after step 5, in the second epoch. */
static void ranks_resume_in_mid_stream(void **state) {
    (void)state;
    clear_saves();
    rank_streams *whole = make_ranks(), *parts = make_ranks();
    run_ranks(whole->ranks);
    expect_all_well(whole->ranks);
    for (int k = 0; k < RANK_RUNS; k++) {
        parts->ranks[k].options.checkpoint_dir = saves;
        parts->ranks[k].options.resume = "auto";
    }
    parts->ranks[0].run.stop_after = 5;
    run_ranks(parts->ranks);
    for (int k = 0; k < RANK_RUNS; k++) {
        assert_int_equal(parts->ranks[k].error.status, YOKE_ERROR_CANCELLED);
        parts->ranks[k].run = (log_of_run){.steps = 5, .first_step = 5};
    }
    run_ranks(parts->ranks);
    expect_all_well(parts->ranks);
    for (int k = 0; k < RANK_RUNS; k++) {
        const log_of_run *run = &parts->ranks[k].run, *wanted = &whole->ranks[k].run;
        assert_int_equal(run->steps, 8);
        assert_memory_equal(run->losses + 5, wanted->losses + 5, 3 * sizeof run->losses[0]);
        assert_true(run->evaluation.loss == wanted->evaluation.loss);
    }
    clear_saves();
    free_ranks(whole);
    free_ranks(parts);
}

static void expect_disagreement(rank_streams *all, const char *words, int steps) {
    run_ranks(all->ranks);
    for (int k = 0; k < RANK_RUNS; k++) {
        assert_int_equal(all->ranks[k].error.status, YOKE_ERROR_PEER);
        assert_int_equal(all->ranks[k].run.steps, steps);
        if (strstr(all->ranks[k].error.text, words) == NULL)
            fail_msg("rank %d: \"%s\" lacks \"%s\"", k, all->ranks[k].error.text, words);
    }
    free_ranks(all);
}

/* In training, in evaluation; another end, other rows. */
static void ranks_whose_streams_differ_end_together(void **state) {
    (void)state;
    static int32_t others[ROWS];
    rank_streams *all = make_ranks();
    all->training[1].rows = 45; /* a whole batch less, and 5 rows */
    expect_disagreement(all, "gives 5 rows for a batch, that of another 0", 3);
    all = make_ranks();
    all->training[0].rows = 48;
    expect_disagreement(all, "gives 5 rows for a batch, that of another 3", 3);
    all = make_ranks();
    all->test[0].rows = 15;
    expect_disagreement(all, "gives 15 rows for a batch, that of another 0", 8);
    memcpy(others, labels, sizeof others);
    others[20] = (others[20] + 1) % CLASSES;
    all = make_ranks();
    all->training[1].labels = others;
    expect_disagreement(all, "the row streams of two ranks give other labels", 1);
}

static void a_stream_that_fails_on_one_rank_ends_all(void **state) {
    (void)state;
    rank_streams *all = make_ranks();
    all->training[1].fails_at = 20;
    run_ranks(all->ranks);
    for (int k = 0; k < RANK_RUNS; k++) { /* both learn what rank 1's host said */
        assert_int_equal(all->ranks[k].error.status, YOKE_ERROR_IO);
        assert_non_null(strstr(all->ranks[k].error.text, "row 20 of the row stream: the socket"));
    }
    free_ranks(all);
}

/* A status that all ranks have at once, where it comes from the trainer. */
static void a_stream_that_says_what_all_ranks_could_ends_all(void **state) {
    (void)state;
    for (int numeric = 0; numeric < 2; numeric++) {
        for (int tests = 0; tests < 2; tests++) {
            rank_streams *all = make_ranks();
            array_stream *own = tests ? &all->test[1] : &all->training[1];
            own->fails_at = 20;
            own->fails_with = numeric ? YOKE_ERROR_NUMERIC : YOKE_ERROR_CANCELLED;
            run_ranks(all->ranks);
            for (int k = 0; k < RANK_RUNS; k++) {
                assert_int_not_equal(all->ranks[k].error.status, YOKE_OK);
                assert_non_null(strstr(all->ranks[k].error.text, "row 20 of the row stream"));
            }
            free_ranks(all);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_devices_need_a_stream_that_rewinds),
        cmocka_unit_test(a_stream_trains_and_evaluates_as_its_array_in_order),
        cmocka_unit_test(an_endless_stream_trains_for_its_steps),
        cmocka_unit_test(a_stream_of_one_pass_ends_training),
        cmocka_unit_test(a_range_test_leaves_a_stream_of_one_pass_alone),
        cmocka_unit_test(a_run_behind_a_range_test_reads_the_stream_from_its_begin),
        cmocka_unit_test(a_resumed_run_goes_on_where_the_stream_was),
        cmocka_unit_test(a_complete_run_evaluates_again_and_stays_complete),
        cmocka_unit_test(an_epoch_without_a_row_is_an_error),
        cmocka_unit_test(what_the_stream_says_reaches_the_caller),
        cmocka_unit_test(what_needs_the_length_is_refused),
        cmocka_unit_test(ranks_train_on_the_stream_as_one_process_and_as_on_the_array),
        cmocka_unit_test(ranks_resume_in_mid_stream),
        cmocka_unit_test(ranks_whose_streams_differ_end_together),
        cmocka_unit_test(a_stream_that_fails_on_one_rank_ends_all),
        cmocka_unit_test(a_stream_that_says_what_all_ranks_could_ends_all),
    };
    return RUN_ON_DEVICES(tests, make_rows, remove_folder);
}
