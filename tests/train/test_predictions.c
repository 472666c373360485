/* SPDX-License-Identifier: Apache-2.0 */
/* What an evaluation counts, beside the same model computed in float64 from its weights. */
#include "trainer_check.h"

#include "data/data.h"
#include "train/predictions.h"

#define PICTURES "synthetic:1x8x8,classes=5,rows=300"
#define TEST_ROWS 60
#define CLASSES 5
#define PIXELS 64
#define KEPT 7

/* The model in float64. */

typedef struct linear_layer {
    float *weight, *bias; /* [outputs, inputs], [outputs] */
    size_t inputs, outputs;
} linear_layer;

static float *read_tensor(yoke_trainer *trainer, const char *layer, const char *part,
                          size_t count) {
    char name[32];
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    snprintf(name, sizeof name, "%s.%s", layer, part);
    EXPECT_OK(yoke_data_parallel_read(yoke_trainer_engine(trainer), name, values, count));
    return values;
}

static void forward(const linear_layer *layer, const double *inputs, double *outputs, bool relu) {
    for (size_t o = 0; o < layer->outputs; o++) {
        double sum = (double)layer->bias[o];
        for (size_t i = 0; i < layer->inputs; i++)
            sum += (double)layer->weight[o * layer->inputs + i] * inputs[i];
        outputs[o] = relu && sum < 0 ? 0 : sum;
    }
}

/* logits: [TEST_ROWS, CLASSES]. The pixels are normalised as the dataset says. */
static void compute_logits(yoke_trainer *trainer, const yoke_dataset *rows, double *logits) {
    static const size_t sizes[] = {PIXELS, WIDTH, WIDTH, CLASSES};
    static const char *const names[] = {"fc1", "fc2", "fc3"};
    static double values[2][WIDTH];
    linear_layer layers[3];
    for (size_t k = 0; k < 3; k++)
        layers[k] = (linear_layer){
            .weight = read_tensor(trainer, names[k], "weight", sizes[k] * sizes[k + 1]),
            .bias = read_tensor(trainer, names[k], "bias", sizes[k + 1]),
            .inputs = sizes[k],
            .outputs = sizes[k + 1]};
    for (size_t row = 0; row < TEST_ROWS; row++) {
        for (size_t i = 0; i < PIXELS; i++)
            values[0][i] = ((double)rows->bytes[row * PIXELS + i] / 255 - (double)rows->mean[0]) /
                           (double)rows->std[0];
        forward(&layers[0], values[0], values[1], true);
        forward(&layers[1], values[1], values[0], true);
        forward(&layers[2], values[0], logits + row * CLASSES, false);
    }
    for (size_t k = 0; k < 3; k++) {
        free(layers[k].weight);
        free(layers[k].bias);
    }
}

/* All wrong rows, the largest loss first. */
typedef struct expected {
    int64_t counts[CLASSES * CLASSES];
    yoke_wrong_row wrong[TEST_ROWS];
    int wrong_count;
} expected;

static int by_loss(const void *left, const void *right) {
    const yoke_wrong_row *a = left, *b = right;
    return (a->loss < b->loss) - (a->loss > b->loss);
}

static expected expect(yoke_trainer *trainer, const yoke_dataset *rows) {
    static double logits[TEST_ROWS * CLASSES];
    expected all = {.wrong_count = 0};
    compute_logits(trainer, rows, logits);
    for (int row = 0; row < TEST_ROWS; row++) {
        const double *x = logits + row * CLASSES;
        int label = rows->labels[row], best = 0;
        double sum = 0;
        for (int j = 0; j < CLASSES; j++) {
            if (x[j] > x[best]) best = j;
            sum += exp(x[j]);
        }
        all.counts[label * CLASSES + best]++;
        if (best != label)
            all.wrong[all.wrong_count++] = (yoke_wrong_row){.row = row,
                                                            .label = label,
                                                            .predicted = best,
                                                            .probability = exp(x[best]) / sum,
                                                            .loss = -log(exp(x[label]) / sum)};
    }
    qsort(all.wrong, (size_t)all.wrong_count, sizeof all.wrong[0], by_loss);
    return all;
}

static void check_misclassified(const yoke_trainer *trainer, const yoke_dataset *rows,
                                const expected *all, int count) {
    for (int i = 0; i < count; i++) {
        yoke_misclassified misclassified = {.struct_size = sizeof misclassified};
        EXPECT_OK(yoke_trainer_misclassified(trainer, i, &misclassified));
        assert_int_equal(misclassified.row, all->wrong[i].row);
        assert_int_equal(misclassified.label, all->wrong[i].label);
        assert_int_equal(misclassified.predicted, all->wrong[i].predicted);
        assert_float_equal(misclassified.probability, all->wrong[i].probability, 1e-4);
        assert_float_equal(misclassified.loss, all->wrong[i].loss, 1e-3);
        assert_memory_equal(misclassified.pixels, rows->bytes + misclassified.row * PIXELS, PIXELS);
    }
    yoke_misclassified none = {.struct_size = sizeof none};
    assert_int_equal(yoke_trainer_misclassified(trainer, count, &none), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_trainer_misclassified(trainer, -1, &none), YOKE_ERROR_ARGUMENT);
}

static void check_run(const yoke_trainer_options *options, log_of_run *run) {
    yoke_dataset *rows = NULL;
    yoke_predictions found = {.struct_size = sizeof found};
    EXPECT_OK(train(run, options));
    EXPECT_OK(yoke_trainer_predictions(run->trainer, &found));
    EXPECT_OK(yoke_dataset_open(&rows, PICTURES, YOKE_SPLIT_TEST));
    expected all = expect(run->trainer, rows);
    int kept = all.wrong_count < KEPT ? all.wrong_count : KEPT;
    int64_t right = 0;
    for (int i = 0; i < CLASSES; i++)
        right += found.counts[i * CLASSES + i];
    assert_int_equal(found.rows, TEST_ROWS);
    assert_int_equal(found.classes, CLASSES);
    assert_int_equal(found.step, options->steps);
    assert_int_equal(found.misclassified, kept);
    assert_true(kept > 0);
    assert_null(found.class_names);
    assert_memory_equal(found.counts, all.counts, sizeof all.counts);
    assert_float_equal((double)right / TEST_ROWS, run->evaluation.accuracy, 1e-12);
    check_misclassified(run->trainer, rows, &all, kept);
    yoke_dataset_close(rows);
    yoke_trainer_destroy(run->trainer);
}

static yoke_trainer_options counting(log_of_run *run) {
    yoke_trainer_options options = small(run);
    options.dataset = PICTURES;
    options.steps = 12;
    options.misclassified = KEPT;
    return options;
}

/* Tests. */

static void counts_and_misclassified_rows_are_those_of_a_float64_model(void **state) {
    (void)state;
    static const struct {
        int devices, batch, accumulate, shards;
        yoke_schedule schedule;
    } ways[] = {{1, 16, 1, 0, YOKE_SCHEDULE_OVERLAP},
                {3, 16, 1, 0, YOKE_SCHEDULE_CLASSIC},
                {2, 23, 3, 0, YOKE_SCHEDULE_OVERLAP},
                {2, 16, 1, 8, YOKE_SCHEDULE_SHARDED}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        log_of_run run = {0};
        yoke_trainer_options options = counting(&run);
        options.devices = devices_of(ways[i].devices);
        options.batch = ways[i].batch;
        small_engine.accumulate = ways[i].accumulate;
        small_engine.shards = ways[i].shards;
        small_engine.schedule = ways[i].schedule;
        check_run(&options, &run);
    }
}

static void label_smoothing_is_not_part_of_a_misclassified_rows_loss(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = counting(&run);
    options.label_smoothing = 0.3;
    check_run(&options, &run);
}

static void an_evaluation_that_is_stopped_leaves_the_one_before(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = counting(&run);
    yoke_predictions before = {.struct_size = sizeof before}, after = before;
    yoke_step_result result = {.struct_size = sizeof result};
    int64_t counts[CLASSES * CLASSES];
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    EXPECT_OK(yoke_trainer_predictions(run.trainer, &before));
    assert_int_equal(before.rows, 0);
    assert_null(before.counts);
    assert_int_equal(before.classes, CLASSES);
    EXPECT_OK(yoke_trainer_run(run.trainer));
    EXPECT_OK(yoke_trainer_predictions(run.trainer, &before));
    memcpy(counts, before.counts, sizeof counts);
    yoke_trainer_stop(run.trainer);
    assert_int_equal(yoke_trainer_evaluate(run.trainer, &result), YOKE_ERROR_CANCELLED);
    EXPECT_OK(yoke_trainer_predictions(run.trainer, &after));
    assert_int_equal(after.rows, TEST_ROWS);
    assert_memory_equal(after.counts, counts, sizeof counts);
    yoke_trainer_destroy(run.trainer);
}

static void a_trainer_that_counts_none_says_so(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_trainer_options options = counting(&run);
    yoke_predictions found = {.struct_size = sizeof found};
    yoke_misclassified misclassified = {.struct_size = sizeof misclassified};
    options.misclassified = 0;
    EXPECT_OK(train(&run, &options));
    assert_int_equal(yoke_trainer_predictions(run.trainer, &found), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "options.misclassified"));
    assert_int_equal(yoke_trainer_misclassified(run.trainer, 0, &misclassified),
                     YOKE_ERROR_ARGUMENT);
    yoke_trainer_destroy(run.trainer);
    options.misclassified = -1;
    assert_int_equal(yoke_trainer_create(&run.trainer, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "-1"));
}

/* Rows that tie keep their order; outputs that are not numbers are the worst. */
static void the_worst_rows_come_by_loss_then_by_row(void **state) {
    (void)state;
    yoke_tally tally = {0};
    static const float outputs[][2] = {{2, 1}, {5, 0}, {2, 1}, {0, 9}, {NAN, 1}, {3, 1}};
    static const int32_t labels[] = {1, 1, 1, 1, 1, 1};
    yoke_batch batch = {.struct_size = sizeof batch, .rows = 6, .labels = labels, .first_row = 100};
    EXPECT_OK(yoke_tally_create(&tally, 2, 4));
    yoke_tally_begin(&tally, 9);
    const yoke_tally_rows given = {.batch = &batch, .outputs = outputs[0], .first = 1000};
    yoke_tally_add(&tally, &given);
    static const int64_t rows[] = {1104, 1101, 1105, 1100};
    assert_int_equal(tally.worst_count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tally.worst[i].row, rows[i]);
    assert_true(isinf(tally.worst[0].loss));
    static const int64_t counts[] = {0, 0, 5, 1};
    assert_memory_equal(tally.counts, counts, sizeof counts);
    assert_int_equal(tally.rows, 6);
    yoke_tally_begin(&tally, 10);
    assert_int_equal(tally.worst_count + (int)tally.rows + (int)tally.counts[2], 0);
    yoke_tally_end(&tally);
}

/* The counts of 50 257 classes would take 20 GB. */
static void of_many_classes_only_the_rows_are_counted(void **state) {
    (void)state;
    enum { MANY = 50257, PLACE = 4 };
    yoke_tally tally = {0};
    float *outputs = calloc(2 * MANY, sizeof *outputs);
    assert_non_null(outputs);
    for (int i = 0; i <= PLACE; i++)
        outputs[MANY - 1 - i] = outputs[MANY + i] = (float)(PLACE + 1 - i);
    const int32_t labels[] = {MANY - 1 - PLACE, PLACE + 1}; /* the fifth, the sixth */
    yoke_batch batch = {.struct_size = sizeof batch, .rows = 2, .labels = labels};
    EXPECT_OK(yoke_tally_create(&tally, MANY, 2));
    yoke_tally_begin(&tally, 1);
    yoke_tally_add(&tally, &(yoke_tally_rows){.batch = &batch, .outputs = outputs});
    assert_null(tally.counts);
    assert_true(tally.rows == 2 && tally.among_five == 1 && tally.worst_count == 2);
    yoke_tally_end(&tally);
    free(outputs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_misclassified_rows_are_those_of_a_float64_model),
        cmocka_unit_test(label_smoothing_is_not_part_of_a_misclassified_rows_loss),
        cmocka_unit_test(an_evaluation_that_is_stopped_leaves_the_one_before),
        cmocka_unit_test(a_trainer_that_counts_none_says_so),
        cmocka_unit_test(the_worst_rows_come_by_loss_then_by_row),
        cmocka_unit_test(of_many_classes_only_the_rows_are_counted),
    };
    return RUN_ON_DEVICES(tests, make_folder, remove_folder);
}
