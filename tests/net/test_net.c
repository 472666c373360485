/* SPDX-License-Identifier: Apache-2.0 */
/* The short road learns as the engine does, and reads every kind of array. */
#include "support/net_check.h"

/* Learning. */

/* The same steps with a loader and an engine. */
static uint64_t fit_by_hand(const rig *own, const yoke_net_options *options, int epochs) {
    yoke_data_parallel_options engine = *options->engine;
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = yoke_model_input_shape(own->model),
                          .inputs = own->rows.inputs,
                          .classes = CHECK_CLASSES,
                          .labels = own->rows.labels};
    yoke_loader_options loading = {
        .struct_size = sizeof loading, .batch = BATCH, .shuffle = true, .seed = options->seed};
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    engine.batch = BATCH;
    engine.seed = options->seed;
    check_engine made = check_engine_on(own->model, options->devices, engine, NULL);
    EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    EXPECT_OK(yoke_loader_create(&loader, dataset, &loading));
    for (int epoch = 0; epoch < epochs; epoch++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        EXPECT_OK(yoke_loader_begin(loader, (uint64_t)epoch));
        while (yoke_loader_next(loader, &batch, NULL) == YOKE_OK && batch.rows > 0)
            EXPECT_OK(yoke_data_parallel_step(made.parallel, &batch, -1, NULL));
    }
    uint64_t hash = hash_of(made.parallel);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
    check_engine_free(&made);
    return hash;
}

static void a_fit_takes_the_steps_of_an_engine(void **state) {
    (void)state;
    const char *const devices[] = {devices_of(1), devices_of(2)};
    for (int i = 0; i < 2; i++) {
        rig own;
        yoke_fit_options fit = {.struct_size = sizeof fit, .epochs = 2};
        yoke_fit_result result = {.struct_size = sizeof result};
        yoke_net_options options = options_of(devices[i]);
        open_rig(&own, options);
        EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, &fit, &result));
        assert_true(hash_of(yoke_net_engine(own.net)) == fit_by_hand(&own, &options, 2));
        assert_int_equal(result.steps, 6); /* 40 rows are batches of 16, 16 and 8 */
        assert_true(result.loss > 0 && result.accuracy >= 0 && result.accuracy <= 1);
        assert_true(isnan(result.test_loss));
        assert_int_equal(query(&own).step, 6);
        close_rig(&own);
    }
}

/* A second fit goes on: its epochs have orders of their own. */
static void two_fits_are_one(void **state) {
    (void)state;
    rig own;
    yoke_net_options options = options_of(devices_of(1));
    open_rig(&own, options);
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL));
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL));
    assert_true(hash_of(yoke_net_engine(own.net)) == fit_by_hand(&own, &options, 2));
    close_rig(&own);
}

static void a_step_is_the_engine_s(void **state) {
    (void)state;
    rig own;
    yoke_net_options options = options_of(devices_of(2));
    yoke_step_result result = {.struct_size = sizeof result}, wanted = result;
    open_rig(&own, options);
    yoke_data_parallel_options engine = *options.engine;
    engine.batch = BATCH;
    engine.seed = options.seed;
    check_engine made = check_engine_on(own.model, devices_of(2), engine, NULL);
    yoke_batch batch = own.rows.batch;
    batch.rows = BATCH;
    own.inputs.shape[0] = own.labels.shape[0] = BATCH;
    EXPECT_OK(yoke_net_step(own.net, &own.inputs, &own.labels, 0.1, &result));
    EXPECT_OK(yoke_data_parallel_step(made.parallel, &batch, 0.1, &wanted));
    assert_true(result.loss == wanted.loss && result.correct == wanted.correct);
    assert_true(hash_of(yoke_net_engine(own.net)) == hash_of(made.parallel));
    own.inputs.shape[0] = own.labels.shape[0] = ROWS;
    assert_int_equal(yoke_net_step(own.net, &own.inputs, &own.labels, 0.1, NULL),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "a batch of 40 rows: the net was opened for 16"));
    check_engine_free(&made);
    close_rig(&own);
}

static void an_evaluation_counts_every_row(void **state) {
    (void)state;
    rig own;
    float outputs[ROWS][CHECK_CLASSES];
    yoke_step_result result = {.struct_size = sizeof result};
    double loss = 0;
    int correct = 0;
    open_rig(&own, options_of(devices_of(2)));
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL));
    EXPECT_OK(yoke_net_evaluate(own.net, &own.inputs, &own.labels, &result));
    predict(&own, outputs);
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        int best = 0;
        for (int c = 0; c < CHECK_CLASSES; c++) {
            sum += exp((double)outputs[row][c]);
            if (outputs[row][c] > outputs[row][best]) best = c;
        }
        loss += (log(sum) - (double)outputs[row][own.rows.labels[row]]) / ROWS;
        correct += best == own.rows.labels[row];
    }
    assert_int_equal(result.rows, ROWS);
    assert_int_equal(result.correct, correct);
    assert_float_equal(result.loss, loss, 1e-5);
    assert_float_equal(query(&own).test_loss, result.loss, 0);
    close_rig(&own);
}

/* The weights are those of the best epoch: with a rate that makes the loss worse, the first. */
static void patience_keeps_the_best(void **state) {
    (void)state;
    rig own, once;
    yoke_fit_options fit = {.struct_size = sizeof fit, .epochs = 50, .learning_rate = 1e-6};
    yoke_fit_result result = {.struct_size = sizeof result};
    open_rig(&own, options_of(devices_of(1)));
    open_rig(&once, options_of(devices_of(1)));
    /* Labels that no row of training has, so that the test loss grows from the second epoch on. */
    int32_t other[ROWS];
    for (int row = 0; row < ROWS; row++)
        other[row] = (own.rows.labels[row] + 1) % CHECK_CLASSES;
    yoke_array labels = yoke_array_of_numbers(other, YOKE_ELEMENT_INT32, ROWS);
    fit.learning_rate = 0.05;
    fit.test_inputs = &own.inputs;
    fit.test_targets = &labels;
    fit.patience = 3;
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, &fit, &result));
    assert_true(result.steps < 150);
    int best = (int)(result.steps / 3) - 3; /* epochs up to the best one */
    yoke_fit_options until_best = {
        .struct_size = sizeof until_best, .epochs = best, .learning_rate = 0.05};
    EXPECT_OK(yoke_net_fit(once.net, &once.inputs, &once.labels, &until_best, NULL));
    assert_true(hash_of(yoke_net_engine(own.net)) == hash_of(yoke_net_engine(once.net)));
    close_rig(&own);
    close_rig(&once);
}

/* Arrays. */

static uint64_t hash_after(yoke_array inputs, yoke_array labels) {
    rig own;
    open_rig(&own, options_of(devices_of(1)));
    EXPECT_OK(yoke_net_fit(own.net, &inputs, &labels, NULL, NULL));
    inputs.shape[0] = labels.shape[0] = BATCH;
    EXPECT_OK(yoke_net_step(own.net, &inputs, &labels, -1, NULL));
    uint64_t hash = hash_of(yoke_net_engine(own.net));
    close_rig(&own);
    return hash;
}

static void every_element_is_read(void **state) {
    (void)state;
    enum { VALUES = ROWS * CHECK_ROW };
    static uint8_t bytes[VALUES];
    static float floats[VALUES];
    static double doubles[VALUES];
    static int64_t wide[ROWS];
    yoke_shape shape = yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE);
    check_batch rows = check_batch_make(ROWS, 1);
    for (int i = 0; i < VALUES; i++) {
        bytes[i] = (uint8_t)(i * 37 + i / 11);
        floats[i] = (float)bytes[i] / 255;
        doubles[i] = (double)floats[i];
    }
    for (int row = 0; row < ROWS; row++)
        wide[row] = rows.labels[row];
    yoke_array labels = yoke_array_of_numbers(rows.labels, YOKE_ELEMENT_INT32, ROWS);
    yoke_array wide_labels = yoke_array_of_numbers(wide, YOKE_ELEMENT_INT64, ROWS);
    yoke_array as_floats = yoke_array_of_rows(floats, YOKE_ELEMENT_FLOAT32, ROWS, shape);
    uint64_t wanted = hash_after(as_floats, labels);
    assert_true(hash_after(as_floats, wide_labels) == wanted);
    assert_true(hash_after(yoke_array_of_rows(doubles, YOKE_ELEMENT_FLOAT64, ROWS, shape),
                           labels) == wanted);
    assert_true(hash_after(yoke_array_of_rows(bytes, YOKE_ELEMENT_UINT8, ROWS, shape), labels) ==
                wanted);
    yoke_shape flat = yoke_shape_vector(CHECK_ROW);
    assert_true(hash_after(yoke_array_of_rows(floats, YOKE_ELEMENT_FLOAT32, ROWS, flat), labels) ==
                wanted);
    wide[3] = (int64_t)1 << 40;
    rig own;
    open_rig(&own, options_of(devices_of(1)));
    assert_int_equal(yoke_net_fit(own.net, &as_floats, &wide_labels, NULL, NULL),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "row 3 has the label 1099511627776"));
    close_rig(&own);
    check_batch_free(&rows);
}

static void tokens_are_integers(void **state) {
    (void)state;
    enum { TEXTS = 6, LENGTH = 8, CLASSES = 11 };
    int32_t tokens[TEXTS][LENGTH];
    int64_t wide[TEXTS][LENGTH], next[TEXTS][LENGTH];
    float outputs[TEXTS][LENGTH][CLASSES];
    yoke_model *model = NULL;
    yoke_net *net = NULL;
    yoke_net_options options = options_of(devices_of(1));
    yoke_fit_options fit = {.struct_size = sizeof fit, .epochs = 30, .learning_rate = 0.3};
    yoke_fit_result result = {.struct_size = sizeof result};
    for (int i = 0; i < TEXTS * LENGTH; i++) {
        tokens[i / LENGTH][i % LENGTH] = (i * 5 + i / 9) % CLASSES;
        wide[i / LENGTH][i % LENGTH] = tokens[i / LENGTH][i % LENGTH];
        next[i / LENGTH][i % LENGTH] = (tokens[i / LENGTH][i % LENGTH] + 1) % CLASSES;
    }
    EXPECT_OK(yoke_model_preset(&model, "gpt2:layers=1,width=16,heads=2", yoke_shape_vector(LENGTH),
                                CLASSES, NULL));
    options.batch = TEXTS;
    EXPECT_OK(yoke_net_open(&net, model, &options));
    yoke_array inputs =
        yoke_array_of_rows(tokens, YOKE_ELEMENT_INT32, TEXTS, yoke_shape_vector(LENGTH));
    yoke_array labels =
        yoke_array_of_rows(next, YOKE_ELEMENT_INT64, TEXTS, yoke_shape_vector(LENGTH));
    EXPECT_OK(yoke_net_fit(net, &inputs, &labels, &fit, &result));
    assert_true(result.loss < 2.0 && result.accuracy > 0.5);
    yoke_array to = yoke_array_of_rows(outputs, YOKE_ELEMENT_FLOAT32, TEXTS,
                                       yoke_shape_sequence(LENGTH, CLASSES));
    EXPECT_OK(yoke_net_predict(net, &inputs, &to));
    float first = outputs[TEXTS - 1][LENGTH - 1][CLASSES - 1];
    inputs = yoke_array_of_rows(wide, YOKE_ELEMENT_INT64, TEXTS, yoke_shape_vector(LENGTH));
    EXPECT_OK(yoke_net_predict(net, &inputs, &to));
    assert_true(outputs[TEXTS - 1][LENGTH - 1][CLASSES - 1] == first);
    yoke_net_close(net);
    yoke_model_destroy(model);
}

static void arrays_that_do_not_fit_are_refused(void **state) {
    (void)state;
    rig own;
    float outputs[ROWS][CHECK_CLASSES];
    open_rig(&own, options_of(devices_of(1)));
    yoke_array to =
        yoke_array_of_rows(outputs, YOKE_ELEMENT_FLOAT32, ROWS, yoke_model_output_shape(own.model));
    yoke_array wrong = own.inputs;
    REFUSED(yoke_net_fit(own.net, NULL, &own.labels, NULL, NULL), "inputs is NULL");
    REFUSED(yoke_net_fit(own.net, &own.inputs, NULL, NULL, NULL), "labels: the array is NULL");
    wrong.shape[1] = CHECK_SIDE, wrong.shape[3] = CHECK_CHANNELS;
    REFUSED(yoke_net_predict(own.net, &wrong, &to),
            "input 'input' is [40, 6, 6, 2]: a row of the model has the shape [2, 6, 6]");
    wrong = own.inputs;
    wrong.data = NULL;
    REFUSED(yoke_net_predict(own.net, &wrong, &to), "the data is NULL");
    wrong = own.inputs;
    wrong.shape[0] = 0;
    REFUSED(yoke_net_predict(own.net, &wrong, &to), "of rows, is at least 1");
    wrong.shape[0] = INT64_MAX;
    REFUSED(yoke_net_predict(own.net, &wrong, &to), "of rows, is at least 1");
    wrong.ndim = 0;
    REFUSED(yoke_net_predict(own.net, &wrong, &to), "ndim is 0");
    wrong = own.inputs;
    wrong.place = YOKE_ARRAY_CUDA;
    REFUSED(yoke_net_fit(own.net, &wrong, &own.labels, NULL, NULL), "lies on a GPU");
    wrong = own.labels;
    wrong.element = YOKE_ELEMENT_FLOAT32;
    REFUSED(yoke_net_fit(own.net, &own.inputs, &wrong, NULL, NULL), "expected int32 or int64");
    wrong.element = (yoke_element)99;
    REFUSED(yoke_net_fit(own.net, &own.inputs, &wrong, NULL, NULL), "elements are unknown");
    wrong = own.labels;
    wrong.shape[0] = ROWS - 1;
    REFUSED(yoke_net_fit(own.net, &own.inputs, &wrong, NULL, NULL),
            "has 39 rows, the first input 40");
    to.element = YOKE_ELEMENT_FLOAT64;
    REFUSED(yoke_net_predict(own.net, &own.inputs, &to), "elements are float64, expected float32");
    int32_t kept = own.rows.labels[7];
    own.rows.labels[7] = CHECK_CLASSES;
    REFUSED(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL),
            "row 7 has the label 5, expected 0 to 4");
    assert_int_equal(query(&own).step, 0);
    own.rows.labels[7] = kept;
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL));
    close_rig(&own);
}

static void options_that_contradict_are_refused(void **state) {
    (void)state;
    rig own;
    yoke_fit_options fit = {.struct_size = sizeof fit, .batch = BATCH + 1};
    yoke_net_options options = options_of(devices_of(1));
    open_rig(&own, options);
    REFUSED(yoke_net_fit(own.net, &own.inputs, &own.labels, &fit, NULL),
            "the net was opened for 16 at most");
    fit = (yoke_fit_options){.struct_size = sizeof fit, .patience = 1};
    REFUSED(yoke_net_fit(own.net, &own.inputs, &own.labels, &fit, NULL), "needs rows to evaluate");
    fit = (yoke_fit_options){.struct_size = sizeof fit, .epochs = -1};
    REFUSED(yoke_net_fit(own.net, &own.inputs, &own.labels, &fit, NULL), "epochs -1");
    yoke_fit_result result = {.struct_size = 7};
    REFUSED(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, &result), "struct_size");
    assert_int_equal(query(&own).step, 0);
    yoke_net *net = NULL;
    options.batch = -1;
    REFUSED(yoke_net_open(&net, own.model, &options), "batch -1");
    yoke_data_parallel_options engine = {.struct_size = sizeof engine, .batch = 3};
    options.batch = BATCH;
    options.engine = &engine;
    REFUSED(yoke_net_open(&net, own.model, &options), "the net sets batch");
    assert_null(net);
    close_rig(&own);
}

static void a_net_that_predicts_does_not_train(void **state) {
    (void)state;
    rig own;
    float outputs[ROWS][CHECK_CLASSES];
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_net_options options = options_of(devices_of(1));
    options.inference = true;
    open_rig(&own, options);
    REFUSED(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL), "this net only predicts");
    own.inputs.shape[0] = own.labels.shape[0] = BATCH;
    REFUSED(yoke_net_step(own.net, &own.inputs, &own.labels, 1, NULL), "this net only predicts");
    own.inputs.shape[0] = own.labels.shape[0] = ROWS;
    predict(&own, outputs);
    EXPECT_OK(yoke_net_evaluate(own.net, &own.inputs, &own.labels, &result));
    close_rig(&own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fit_takes_the_steps_of_an_engine),
        cmocka_unit_test(two_fits_are_one),
        cmocka_unit_test(a_step_is_the_engine_s),
        cmocka_unit_test(an_evaluation_counts_every_row),
        cmocka_unit_test(patience_keeps_the_best),
        cmocka_unit_test(every_element_is_read),
        cmocka_unit_test(tokens_are_integers),
        cmocka_unit_test(arrays_that_do_not_fit_are_refused),
        cmocka_unit_test(options_that_contradict_are_refused),
        cmocka_unit_test(a_net_that_predicts_does_not_train),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
