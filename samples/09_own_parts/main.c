/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer whose parts are this program's: model, rows, loss and metric. A sensor measures x and y
 * and reports f(x, y); one report in ten is wild. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

enum { INPUTS = 2, TEST_ROWS = 500, BATCH = 64 };

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

/* The next of a row of pseudo-random numbers from -1 to 1. */
static float draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (1 << 23) - 1;
}

static void measure(uint64_t *state, float *inputs, float *target) {
    for (int i = 0; i < INPUTS; i++)
        inputs[i] = draw(state);
    *target = sinf(3 * inputs[0]) * inputs[1];
}

/* Rows to train on: a stream. How many an epoch has, only the sensor knows. */

typedef struct sensor {
    uint64_t state;
    int left; /* rows of this epoch */
} sensor;

static yoke_status begin_epoch(void *payload, uint64_t epoch) {
    *(sensor *)payload = (sensor){.state = epoch, .left = 3000 + 333 * (int)epoch};
    return YOKE_OK;
}

static yoke_status read_sensor(void *payload, int room, float *inputs, int32_t *labels,
                               float *targets, int *count) {
    sensor *own = payload;
    (void)labels; /* of classes */
    for (*count = 0; *count < room && own->left > 0; ++*count, own->left--) {
        measure(&own->state, inputs + *count * INPUTS, &targets[*count]);
        bool wild = draw(&own->state) > 0.8f;
        if (wild) targets[*count] += 5;
    }
    return YOKE_OK; /* or yoke_error_raise(YOKE_ERROR_IO, "the sensor is unplugged") */
}

/* Rows to evaluate on: each has a number, and a batch of them is read at once. */
static yoke_status read_test_rows(void *payload, const int64_t *rows, int count, float *inputs,
                                  int32_t *labels, float *targets) {
    (void)payload, (void)labels;
    for (int i = 0; i < count; i++) {
        uint64_t state = (uint64_t)rows[i] * 1000003 + 77;
        (void)draw(&state);
        measure(&state, inputs + i * INPUTS, &targets[i]);
    }
    return YOKE_OK;
}

static yoke_model *build_model(void) {
    yoke_linear_options wide = YOKE_LINEAR_OPTIONS_INIT, last = YOKE_LINEAR_OPTIONS_INIT;
    yoke_model *model = NULL;
    wide.name = "wide";
    wide.out_features = 64;
    last.name = "last";
    last.out_features = 1;
    must(yoke_model_create(&model, "calibration", yoke_shape_vector(INPUTS)));
    yoke_value hidden = yoke_relu(model, yoke_linear(model, yoke_model_input(model), &wide));
    must(yoke_model_finish(model, yoke_linear(model, hidden, &last), NULL));
    return model;
}

/* The mean absolute error, which wild reports hardly move, and its derivative by each output. */
static yoke_status absolute_error(void *payload, const yoke_outputs *rows, double *loss) {
    int count = rows->batch->rows;
    (void)payload;
    *loss = 0;
    for (int row = 0; row < count; row++) {
        double error = (double)rows->outputs[0][row] - (double)rows->batch->targets[row];
        *loss += fabs(error) / count;
        if (rows->gradients) rows->gradients[0][row] = (float)copysign(1.0 / count, error);
    }
    return YOKE_OK;
}

/* The metric is sums[0] / sums[1]: the share of rows with an error below a tenth. */
static yoke_status count_close(void *payload, const yoke_outputs *rows, double *sums) {
    (void)payload;
    for (int row = 0; row < rows->batch->rows; row++)
        sums[0] += fabsf(rows->outputs[0][row] - rows->batch->targets[row]) < 0.1f;
    sums[1] += rows->batch->rows;
    return YOKE_OK;
}

typedef struct watcher {
    yoke_trainer *trainer;
    double close, best; /* the metric, of the last evaluation and of the best */
} watcher;

static void on_event(const yoke_event *event, void *payload) {
    watcher *own = payload;
    if (event->kind == YOKE_EVENT_EVALUATION) own->close = event->metrics[0].value;
    if (event->kind != YOKE_EVENT_EPOCH) return;
    printf("epoch %d  %d rows  error %.3f  on test rows %.3f  close %.1f %%\n",
           (int)event->epoch + 1, event->rows, event->loss, event->test_loss, 100 * own->close);
    if (own->close <= own->best) return;
    own->best = own->close;
    must(yoke_weights_save(yoke_trainer_engine(own->trainer), yoke_trainer_model(own->trainer),
                           "best.safetensors"));
}

int main(int argc, char **argv) {
    sensor meter = {0};
    watcher seen = {0};
    yoke_dataset *training = NULL, *test = NULL;
    yoke_row_stream stream = {.struct_size = sizeof stream,
                              .shape = {INPUTS, 1, 1, true},
                              .target_count = 1,
                              .next = read_sensor,
                              .rewind = begin_epoch,
                              .payload = &meter};
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = TEST_ROWS,
                              .shape = {INPUTS, 1, 1, true},
                              .target_count = 1,
                              .read_batch = read_test_rows};
    yoke_custom_loss loss = {sizeof loss, absolute_error, NULL};
    yoke_metric close = {sizeof close, "close", count_close, NULL, NULL};
    yoke_optimizer_options adam = YOKE_ADAMW_OPTIONS_INIT;
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    yoke_model *model = build_model();
    must(yoke_dataset_from_stream(&training, &stream));
    must(yoke_dataset_from_callback(&test, &source));
    adam.learning_rate = 0.005;
    options.devices = argc > 1 ? argv[1] : "2xcpu";
    options.custom_model = model;
    options.training_rows = training;
    options.no_shuffle = true; /* a stream has one order, its own */
    options.test_rows = test;
    options.custom_loss = &loss;
    options.custom_metrics = &close;
    options.metric_count = 1;
    options.optimizer = &adam;
    options.batch = BATCH;
    options.epochs = 6;
    options.evaluate_every = 1;
    options.on_event = on_event;
    options.payload = &seen;
    must(yoke_trainer_create(&seen.trainer, &options));
    must(yoke_trainer_run(seen.trainer));
    printf("best.safetensors: %.1f %% close\n", 100 * seen.best);
    yoke_trainer_destroy(seen.trainer);
    yoke_model_destroy(model);
    yoke_dataset_close(test);
    yoke_dataset_close(training);
    return 0;
}
