/* SPDX-License-Identifier: Apache-2.0 */
/* A model with a label for each position of its output: any number of devices and ranks learns what
 * one device does. */
#include "base/chunk.h"
#include "model/model.h"
#include "support/engine_check.h"
#include "support/process_ranks.h"

enum { ROWS = 7, LENGTH = 9, TOKENS = 11, FEATURES = 20, STEPS = 5 };

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .learning_rate = 0.3, .momentum = 0.9};

/* Embeddings of tokens and positions, a block with dropout, a head tied to the first. */
static yoke_model *language_model_with(double dropout, const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "language", (yoke_shape){LENGTH, 1, 1, true, false}));
    yoke_embedding_options words = YOKE_EMBEDDING_OPTIONS_INIT, places = words;
    words.name = "wte", words.count = TOKENS, words.features = FEATURES, words.std = 0.2;
    places.name = "wpe", places.count = LENGTH, places.std = 0.2;
    yoke_linear_options block = YOKE_LINEAR_OPTIONS_INIT, head = block;
    block.name = "block", block.out_features = FEATURES, block.transposed = true;
    head.name = "lm_head", head.out_features = TOKENS, head.shared_with = "wte";
    head.no_bias = true;
    yoke_value x = yoke_embedding(model, yoke_model_input(model), &words);
    x = yoke_positional_embedding(model, x, &places);
    x = yoke_add(model, x,
                 yoke_dropout(model, yoke_relu(model, yoke_linear(model, x, &block)), dropout));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, x, &head), loss));
    return model;
}

static yoke_model *language_model(double dropout) {
    return language_model_with(dropout, NULL);
}

typedef struct sentences {
    yoke_batch batch;
    float ids[ROWS * LENGTH];
    int32_t labels[ROWS * LENGTH];
} sentences;

/* The next token is the last one plus 3, as a rule. */
static void make_sentences(sentences *made, int rows, uint32_t seed) {
    for (int i = 0; i < ROWS * LENGTH; i++) {
        double noise = check_noise((uint32_t)i + 7919u * seed) + 0.5;
        int id = (int)(noise * TOKENS) % TOKENS;
        made->ids[i] = (float)id;
        made->labels[i] = noise > 0.9 ? 0 : (id + 3) % TOKENS;
    }
    made->batch = (yoke_batch){.struct_size = sizeof made->batch,
                               .rows = rows,
                               .inputs = made->ids,
                               .labels = made->labels};
}

static int rows_of(int step) {
    return step % 2 == 0 ? ROWS : ROWS - 2; /* 5 rows on 4 devices: 2, 2, 1 and none */
}

typedef struct run {
    float *weights;
    size_t count;
    double losses[STEPS];
    int correct[STEPS];
} run;

static int labels_of(const yoke_model *model, const sentences *given) {
    int count = 0;
    for (int i = 0; i < given->batch.rows * LENGTH; i++)
        count += !yoke_model_ignores(model, given->labels[i]);
    return count;
}

static run train(const yoke_model *model, int devices, yoke_data_parallel_options options) {
    run made = {0};
    check_engine engine = check_engine_make(model, devices, options, &sgd);
    for (int step = 0; step < STEPS; step++) {
        sentences given;
        yoke_step_result result = {.struct_size = sizeof result};
        make_sentences(&given, rows_of(step), (uint32_t)step);
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &given.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, &result));
        assert_int_equal(result.labels, labels_of(model, &given));
        made.losses[step] = result.loss;
        made.correct[step] = result.correct;
    }
    made.weights = check_read_all(engine.parallel, model, false, &made.count);
    check_engine_free(&engine);
    return made;
}

static void expect_like(run *got, const run *wanted, const char *what) {
    for (int step = 0; step < STEPS; step++) {
        if (!(fabs(got->losses[step] - wanted->losses[step]) <= 1e-6 * wanted->losses[step]))
            fail_msg("%s, step %d: loss %.9g, wanted %.9g", what, step, got->losses[step],
                     wanted->losses[step]);
        assert_int_equal(got->correct[step], wanted->correct[step]);
    }
    double distance = check_relative(got->weights, wanted->weights, got->count);
    if (!(distance <= 2e-6)) fail_msg("%s: weights differ by %g", what, distance);
    free(got->weights);
}

static void check_devices_learn_what_one_does(const yoke_model *model) {
    run one = train(model, 1, check_options(ROWS, YOKE_SCHEDULE_OVERLAP));
    assert_true(one.losses[STEPS - 1] < one.losses[0]);
    for (int i = 0; i < 4 * 3 * 2; i++) {
        char what[64];
        int devices = 1 + i % 4, schedule = i / 4 % 3, accumulate = 1 + 2 * (i / 12);
        yoke_data_parallel_options options = check_options(ROWS, (yoke_schedule)schedule);
        options.accumulate = accumulate;
        snprintf(what, sizeof what, "%d devices, schedule %d, accumulate %d", devices, schedule,
                 accumulate);
        run several = train(model, devices, options);
        expect_like(&several, &one, what);
    }
    free(one.weights);
}

static void any_number_of_devices_learns_what_one_does(void **state) {
    (void)state;
    yoke_model *model = language_model(0.2);
    check_devices_learn_what_one_does(model);
    yoke_model_destroy(model);
}

/* A token that counts for nothing, as padding does, lies unevenly on the devices. */
static void labels_that_do_not_count_divide_the_loss_of_the_whole_batch(void **state) {
    (void)state;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.set_ignore_index = true, loss.ignore_index = 0;
    yoke_model *model = language_model_with(0.2, &loss);
    check_devices_learn_what_one_does(model);
    yoke_model_destroy(model);
}

static void shards_give_the_same_bits_on_any_number_of_devices(void **state) {
    (void)state;
    yoke_model *model = language_model(0.2);
    yoke_data_parallel_options options = check_options(ROWS, YOKE_SCHEDULE_OVERLAP);
    options.shards = 4;
    run one = train(model, 1, options);
    for (int devices = 2; devices <= 4; devices += 2) {
        run several = train(model, devices, options);
        assert_memory_equal(several.weights, one.weights, one.count * sizeof(float));
        assert_memory_equal(several.losses, one.losses, sizeof one.losses);
        free(several.weights);
    }
    free(one.weights);
    yoke_model_destroy(model);
}

/* The loss of every label by itself adds up to that of the whole. */
static void the_loss_is_the_mean_over_all_labels(void **state) {
    (void)state;
    yoke_model *model = language_model(0);
    check_engine engine =
        check_engine_make(model, 2, check_options(ROWS, YOKE_SCHEDULE_OVERLAP), &sgd);
    float outputs[ROWS * LENGTH * TOKENS];
    sentences given;
    yoke_step_result result = {.struct_size = sizeof result};
    make_sentences(&given, ROWS, 1);
    given.batch.labels_count = ROWS * LENGTH;
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &given.batch, false, outputs));
    EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &given.batch, &result));
    double loss = 0;
    int correct = 0;
    for (int i = 0; i < ROWS * LENGTH; i++) {
        const float *x = outputs + (size_t)i * TOKENS;
        double sum = 0;
        int best = 0;
        for (int j = 0; j < TOKENS; j++) {
            sum += exp((double)x[j]);
            if (x[j] > x[best]) best = j;
        }
        loss += log(sum) - (double)x[given.labels[i]];
        correct += best == given.labels[i];
    }
    assert_true(fabs(result.loss - loss / (ROWS * LENGTH)) <= 1e-6 * result.loss);
    assert_int_equal(result.correct, correct);
    assert_int_equal(result.labels, ROWS * LENGTH);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Ranks. */

typedef struct course {
    const yoke_model *model;
    run *runs; /* [world] */
} course;

static yoke_status train_in_rank(yoke_data_parallel *parallel, int world, int rank, run *made) {
    for (int step = 0; step < STEPS; step++) {
        sentences whole;
        yoke_step_result result = {.struct_size = sizeof result};
        make_sentences(&whole, rows_of(step), (uint32_t)step);
        yoke_chunk part = yoke_chunk_of(whole.batch.rows, world, rank);
        whole.batch.whole_rows = whole.batch.rows;
        whole.batch.rows = part.rows;
        whole.batch.first_row = part.first;
        whole.batch.inputs += (size_t)part.first * LENGTH;
        whole.batch.labels += (size_t)part.first * LENGTH;
        TRY(yoke_data_parallel_step(parallel, &whole.batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
        made->losses[step] = result.loss;
        made->correct[step] = result.correct;
    }
    return YOKE_OK;
}

static yoke_status train_rank(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    run *made = &plan->runs[group->rank];
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    yoke_data_parallel_options options = check_options(ROWS, YOKE_SCHEDULE_OVERLAP);
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    options.struct_size = sizeof options;
    options.process_group = group;
    yoke_status status = yoke_devices_open(&devices, &open);
    if (status == YOKE_OK)
        status = yoke_data_parallel_create(&parallel, plan->model, devices, &sgd, &options);
    if (status == YOKE_OK) status = train_in_rank(parallel, group->world, group->rank, made);
    if (status == YOKE_OK)
        made->weights = check_read_all(parallel, plan->model, false, &made->count);
    yoke_error error = yoke_error_take(status);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return status == YOKE_OK ? YOKE_OK : yoke_error_restore(&error);
}

static void ranks_learn_what_devices_do(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_model *model = language_model(0.2);
    for (int world = 2; world <= 3; world++) {
        run ranks[3] = {0};
        run devices = train(model, world, check_options(ROWS, YOKE_SCHEDULE_OVERLAP));
        course plan = {.model = model, .runs = ranks};
        script play = {
            .world = world, .timeout_ms = TIMEOUT_MS, .scene = train_rank, .detail = &plan};
        outcome *outcomes = play_threads(&play);
        expect_all_well(outcomes, world);
        free(outcomes);
        for (int rank = 0; rank < world; rank++)
            expect_like(&ranks[rank], &devices, "a rank");
        free(devices.weights);
    }
    yoke_model_destroy(model);
}

/* Mistakes. */

static void expect_refused(yoke_data_parallel *parallel, const sentences *given,
                           const char *words) {
    assert_int_equal(yoke_data_parallel_step(parallel, &given->batch, 0, NULL),
                     YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), words);
}

static void ids_and_labels_that_do_not_exist_are_named(void **state) {
    (void)state;
    yoke_model *model = language_model(0);
    check_engine engine =
        check_engine_make(model, 2, check_options(ROWS, YOKE_SCHEDULE_OVERLAP), &sgd);
    sentences given;
    const float bad[] = {TOKENS, -1, 0.5f, NAN};
    for (int i = 0; i < 4; i++) {
        make_sentences(&given, ROWS, 1);
        given.ids[3 * LENGTH + 4] = bad[i];
        expect_refused(engine.parallel, &given, "row 3");
        expect_refused(engine.parallel, &given, "at position 4: this model's tokens are 0 to 10");
    }
    make_sentences(&given, ROWS, 1);
    given.labels[3 * LENGTH + 4] = TOKENS;
    expect_refused(engine.parallel, &given, "row 3 of the batch has label 11");
    make_sentences(&given, ROWS, 1);
    given.batch.labels_count = ROWS;
    expect_refused(engine.parallel, &given, "labels hold 7 values, but its 7 rows of 9 are 63");
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_devices_learns_what_one_does),
        cmocka_unit_test(labels_that_do_not_count_divide_the_loss_of_the_whole_batch),
        cmocka_unit_test(shards_give_the_same_bits_on_any_number_of_devices),
        cmocka_unit_test(the_loss_is_the_mean_over_all_labels),
        cmocka_unit_test(ranks_learn_what_devices_do),
        cmocka_unit_test(ids_and_labels_that_do_not_exist_are_named),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
