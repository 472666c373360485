/* SPDX-License-Identifier: Apache-2.0 */
/* Rows, a model and a loss of a host program, for tests that give them to a trainer. */
#ifndef HOST_ROWS_H
#define HOST_ROWS_H

#include "rank_runs.h"

enum { ROWS = 50, FEATURES = 12, CLASSES = 3 };

/* Rows of three clouds, the second of them rare. */
typedef struct host_rows {
    float inputs[ROWS][FEATURES];
    int32_t labels[ROWS];
    yoke_dataset *dataset;
} host_rows;

static inline host_rows *make_rows(void) {
    host_rows *rows = calloc(1, sizeof *rows);
    assert_non_null(rows);
    for (int row = 0; row < ROWS; row++) {
        rows->labels[row] = row % 7 == 0 ? 1 : row % 2 * 2;
        for (int i = 0; i < FEATURES; i++)
            rows->inputs[row][i] =
                (float)(sin(1.7 * row + 0.9 * i * i) + (i % CLASSES == rows->labels[row]));
    }
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = ROWS,
                          .shape = {FEATURES, 1, 1, true},
                          .inputs = rows->inputs[0],
                          .classes = CLASSES,
                          .labels = rows->labels};
    EXPECT_OK(yoke_dataset_from_arrays(&rows->dataset, &arrays));
    return rows;
}

static inline void free_rows(host_rows *rows) {
    yoke_dataset_close(rows->dataset);
    free(rows);
}

static inline yoke_trainer_options on_rows(log_of_run *run, const host_rows *rows) {
    yoke_trainer_options options = small(run);
    options.dataset = NULL;
    options.training_rows = options.test_rows = rows->dataset;
    options.epochs = 2;
    return options;
}

/* Runs to the end; returns the hash of the weights. */
static inline uint64_t run_to_the_end(log_of_run *run, const yoke_trainer_options *options) {
    *run = (log_of_run){0};
    EXPECT_OK(train(run, options));
    uint64_t hash = hash_of(run->trainer);
    yoke_trainer_destroy(run->trainer);
    return hash;
}

static inline void expect_refused(const yoke_trainer_options *options, const char *words) {
    yoke_trainer *trainer = NULL;
    assert_int_equal(yoke_trainer_create(&trainer, options), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), words);
}

/* A model of the host. */

static inline yoke_model *make_model(const char *name, int outputs, const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    yoke_linear_options fc1 = YOKE_LINEAR_OPTIONS_INIT, fc2 = YOKE_LINEAR_OPTIONS_INIT;
    fc1.name = "fc1";
    fc1.out_features = 16;
    fc2.name = "fc2";
    fc2.out_features = outputs;
    EXPECT_OK(yoke_model_create(&model, name, (yoke_shape){FEATURES, 1, 1, true}));
    yoke_value value = yoke_relu(model, yoke_linear(model, yoke_model_input(model), &fc1));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &fc2), loss));
    return model;
}

/* What class j of a row's output is compared with. */
static inline double target_of(const yoke_batch *batch, int row, int j) {
    double share = batch->mixes != NULL ? (double)batch->mixes[row].share : 1;
    double target = j == batch->labels[row] ? share : 0;
    return batch->mixes != NULL && j == batch->mixes[row].label ? target + 1 - share : target;
}

/* torch.nn.functional.cross_entropy, by hand. */
typedef struct custom_loss {
    int calls, evaluations, fails_at; /* fails_at 0: never */
    bool not_finite, wordless;
} custom_loss;

static inline yoke_status compute(void *payload, const yoke_outputs *rows, double *loss) {
    custom_loss *own = payload;
    int count = rows->batch->rows;
    assert_int_equal(rows->count, 1);
    own->calls++;
    if (rows->gradients == NULL) own->evaluations++;
    if (own->calls == own->fails_at && own->wordless) return YOKE_ERROR_DATA;
    if (own->calls == own->fails_at)
        return yoke_error_raise(YOKE_ERROR_DATA, "%d rows are too few", count);
    *loss = 0;
    for (int row = 0; row < count; row++) {
        const float *x = rows->outputs[0] + (size_t)row * CLASSES;
        double sum = 0;
        for (int j = 0; j < CLASSES; j++)
            sum += exp((double)x[j]);
        for (int j = 0; j < CLASSES; j++)
            *loss += target_of(rows->batch, row, j) * (log(sum) - (double)x[j]) / count;
        for (int j = 0; j < CLASSES && rows->gradients != NULL; j++)
            rows->gradients[0][row * CLASSES + j] =
                (float)((exp((double)x[j]) / sum - target_of(rows->batch, row, j)) / count);
    }
    if (own->not_finite) *loss = NAN;
    return YOKE_OK;
}

#endif
