/* SPDX-License-Identifier: Apache-2.0 */
/* An evaluation of several views is that of the mean of their outputs, which a program computes
 * from images that it turned itself. */
#include "fixtures/fill.h"
#include "trainer_check.h"

enum { ROWS = 21, CHANNELS = 2, DOWN = 6, ACROSS = 5, CLASSES = 3 };
enum { PLANE = DOWN * ACROSS, VALUES = CHANNELS * PLANE };

static float inputs[ROWS * VALUES];
static int32_t labels[ROWS];

static yoke_dataset *open_rows(void) {
    yoke_dataset *dataset = NULL;
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = yoke_shape_image(CHANNELS, DOWN, ACROSS),
                          .inputs = inputs,
                          .classes = CLASSES,
                          .labels = labels};
    fill(inputs, sizeof inputs / sizeof inputs[0], 5, 1, 0);
    for (int i = 0; i < ROWS; i++)
        labels[i] = i * i % CLASSES;
    EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

/* numpy: pad(rows, 1, "reflect"), the window that begins at 1 + shift, [::-1]. */
static void turn(float *to, bool flip, int shift) {
    for (int i = 0; i < ROWS * VALUES; i++) {
        int y = i / ACROSS % DOWN + shift, x = i % ACROSS;
        if (flip) x = ACROSS - 1 - x;
        x += shift;
        y = y < 0 ? 1 : y == DOWN ? DOWN - 2 : y;
        x = x < 0 ? 1 : x == ACROSS ? ACROSS - 2 : x;
        to[i] = inputs[i / PLANE * PLANE + y * ACROSS + x];
    }
}

static void add_outputs(yoke_data_parallel *engine, bool flip, int shift, double weight,
                        double *mean) {
    static float turned[ROWS * VALUES];
    float outputs[ROWS * CLASSES];
    turn(turned, flip, shift);
    for (int first = 0; first < ROWS; first += 7) {
        yoke_batch batch = {.struct_size = sizeof batch,
                            .rows = 7,
                            .inputs = turned + first * VALUES,
                            .labels = labels + first};
        EXPECT_OK(yoke_data_parallel_forward(engine, &batch, false, outputs + first * CLASSES));
    }
    for (int i = 0; i < ROWS * CLASSES; i++)
        mean[i] += weight * (double)outputs[i];
}

static void judge(const double *mean, double smoothing, double *loss, double *accuracy) {
    int correct = 0;
    *loss = 0;
    for (int row = 0; row < ROWS; row++) {
        const double *outputs = mean + row * CLASSES;
        double sum = 0;
        int largest = 0;
        for (int i = 0; i < CLASSES; i++) {
            sum += exp(outputs[i]);
            if (outputs[i] > outputs[largest]) largest = i;
        }
        for (int i = 0; i < CLASSES; i++)
            *loss += ((i == labels[row]) * (1 - smoothing) + smoothing / CLASSES) *
                     (log(sum) - outputs[i]) / ROWS;
        correct += largest == labels[row];
    }
    *accuracy = (double)correct / ROWS;
}

static yoke_trainer_options viewing(log_of_run *run, const yoke_dataset *rows, int views) {
    yoke_trainer_options options = small(run);
    options.model = "layers:conv=6,relu,linear=3";
    options.dataset = NULL;
    options.training_rows = options.test_rows = rows;
    options.batch = 8;
    options.label_smoothing = 0.1;
    options.epochs = 3;
    options.test_views = views;
    return options;
}

static void an_evaluation_is_that_of_the_views_mean_outputs(void **state) {
    (void)state;
    yoke_dataset *rows = open_rows();
    double losses[3];
    for (int i = 0; i < 3; i++) {
        log_of_run run = {0};
        double mean[ROWS * CLASSES] = {0}, loss, accuracy;
        yoke_trainer_options options = viewing(&run, rows, i == 0 ? 1 : i == 1 ? 2 : 6);
        options.devices = devices_of(i == 2 ? 2 : 1);
        EXPECT_OK(train(&run, &options));
        yoke_data_parallel *engine = yoke_trainer_engine(run.trainer);
        if (i == 0) add_outputs(engine, false, 0, 1, mean);
        for (int flip = 0; flip < 2 && i > 0; flip++) {
            add_outputs(engine, flip == 1, 0, i == 1 ? 0.5 : 0.25, mean);
            if (i == 1) continue;
            add_outputs(engine, flip == 1, -1, 0.125, mean);
            add_outputs(engine, flip == 1, 1, 0.125, mean);
        }
        judge(mean, 0.1, &loss, &accuracy);
        assert_true(fabs(run.evaluation.loss - loss) < 1e-6);
        assert_true(fabs(run.evaluation.accuracy - accuracy) < 1e-12);
        losses[i] = run.evaluation.loss;
        yoke_trainer_destroy(run.trainer);
    }
    assert_true(losses[0] != losses[1] && losses[1] != losses[2]);
    yoke_dataset_close(rows);
}

static void what_has_no_views_is_refused(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_dataset *rows = open_rows();
    yoke_trainer_options options = viewing(&run, rows, 3);
    assert_int_equal(yoke_trainer_create(&run.trainer, &options), YOKE_ERROR_ARGUMENT);
    assert_string_equal(yoke_last_error(), "test_views is 3: there are 1, 2 or 6");
    options.test_views = 2;
    options.mode = YOKE_MODE_DISTRIBUTED_DATA_PARALLEL;
    assert_int_equal(yoke_trainer_create(&run.trainer, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "one process for all devices"));
    yoke_dataset_close(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_evaluation_is_that_of_the_views_mean_outputs),
        cmocka_unit_test(what_has_no_views_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
