/* SPDX-License-Identifier: Apache-2.0 */
/* New weights while several threads predict: every call sees one set, the memory of old sets goes,
 * and nobody waits for ever. */
#include <pthread.h>
#include <stdatomic.h>

#include "serve/serve_rig.h"

enum { THREADS = 4, SETS = 3, SIZES = 5, PUBLISHED = 40 };

static const float constants[SETS] = {0.125f, 0.25f, 0.375f};
static const int sizes[SIZES] = {1, 3, 4, 7, 19}; /* 19: several plans one after the other */

typedef struct reload {
    yoke_model *model;
    yoke_predictors *predictors;
    rig_rows expected[SETS][SIZES];
    atomic_bool stop;
    atomic_int calls, mixed, failed;
    atomic_int seen[SETS];
} reload;

static bool is_of(const rig_rows *rows, const rig_rows *expected) {
    for (int k = 0; k < rows->outputs; k++)
        if (memcmp(rows->out[k], expected->out[k],
                   (size_t)rows->rows * rows->out_row[k] * sizeof(float)) != 0)
            return false;
    return true;
}

static void predict(reload *self, int size) {
    rig_rows rows = rig_rows_make(self->model, sizes[size], 1);
    int of = -1;
    atomic_fetch_add(&self->failed, rig_run(self->predictors, &rows) != YOKE_OK);
    for (int set = 0; set < SETS; set++)
        if (is_of(&rows, &self->expected[set][size])) of = set;
    if (of < 0)
        atomic_fetch_add(&self->mixed, 1);
    else
        atomic_fetch_add(&self->seen[of], 1);
    atomic_fetch_add(&self->calls, 1);
    rig_rows_free(&rows);
}

static void *predict_often(void *context) {
    reload *self = context;
    for (int i = 0; !atomic_load(&self->stop); i++)
        predict(self, i % SIZES);
    return NULL;
}

/* What each set gives, one thread alone; no two give the same. */
static void learn(reload *self) {
    for (int set = 0; set < SETS; set++) {
        rig_publish(self->predictors, self->model, constants[set]);
        for (int size = 0; size < SIZES; size++) {
            self->expected[set][size] = rig_rows_make(self->model, sizes[size], 1);
            EXPECT_OK(rig_run(self->predictors, &self->expected[set][size]));
            for (int other = 0; other < set; other++)
                assert_false(is_of(&self->expected[set][size], &self->expected[other][size]));
        }
    }
}

static void publish_often(reload *self) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, predict_often, self), 0);
    for (int i = 0; i < PUBLISHED; i++) {
        int before = atomic_load(&self->calls);
        rig_publish(self->predictors, self->model, constants[i % SETS]);
        while (atomic_load(&self->calls) < before + 2)
            sched_yield();
    }
    atomic_store(&self->stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void reload_with(yoke_model *model, yoke_predictors_options options) {
    reload self = {.model = model, .predictors = rig_predictors(model, options)};
    learn(&self);
    size_t one_set = rig_report(self.predictors).weights;
    publish_often(&self);
    assert_int_equal(atomic_load(&self.failed), 0);
    assert_int_equal(atomic_load(&self.mixed), 0);
    for (int set = 0; set < SETS; set++)
        assert_true(atomic_load(&self.seen[set]) > 0);
    yoke_predictors_report report = rig_report(self.predictors);
    assert_int_equal(report.sets, 1);
    assert_int_equal(report.weights, one_set);
    assert_int_equal(report.published, SETS + PUBLISHED);
    for (int set = 0; set < SETS; set++)
        for (int size = 0; size < SIZES; size++)
            rig_rows_free(&self.expected[set][size]);
    yoke_predictors_destroy(self.predictors);
    yoke_model_destroy(model);
}

static void test_no_call_mixes_weights(void **state) {
    (void)state;
    reload_with(
        check_model(true, 0),
        (yoke_predictors_options){.algorithm = YOKE_ALGORITHM_DIRECT, .slots = THREADS, .rows = 8});
}

/* More threads than slots, and fewer plans than numbers of rows. */
static void test_threads_wait_and_plans_go(void **state) {
    (void)state;
    reload_with(check_model(true, 0),
                (yoke_predictors_options){
                    .algorithm = YOKE_ALGORITHM_DIRECT, .slots = 2, .plans = 2, .rows = 8});
}

/* 16 channels: kernels that pack their weights take part where the processor has AVX-512. */
static void test_packed_weights_change_with_their_set(void **state) {
    (void)state;
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "wide", yoke_shape_image(16, 8, 8)));
    yoke_conv2d_options conv = {
        .struct_size = sizeof conv, .name = "conv1", .out_channels = 16, .kernel = 3, .padding = 1};
    yoke_batch_norm_options bn = {
        .struct_size = sizeof bn, .name = "bn1", .epsilon = 1e-5, .momentum = 0.1};
    yoke_value x = yoke_conv2d(model, yoke_model_input(model), &conv);
    x = yoke_relu(model, yoke_batch_norm(model, x, &bn));
    conv.name = "conv2";
    x = yoke_relu(model, yoke_conv2d(model, x, &conv));
    yoke_linear_options fc = {.struct_size = sizeof fc, .name = "fc", .out_features = 5};
    EXPECT_OK(yoke_model_finish(
        model, yoke_linear(model, yoke_flatten(model, yoke_global_average_pool(model, x)), &fc),
        NULL));
    reload_with(model,
                (yoke_predictors_options){
                    .algorithm = YOKE_ALGORITHM_MEASURED, .slots = 3, .plans = 3, .rows = 8});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_call_mixes_weights),
        cmocka_unit_test(test_threads_wait_and_plans_go),
        cmocka_unit_test(test_packed_weights_change_with_their_set),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
