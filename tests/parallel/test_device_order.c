/* SPDX-License-Identifier: Apache-2.0 */
/* The first device of the list is the root, whatever its number; the order of the list and repeated
 * devices change no value. */
#include "support/engine_check.h"

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .kind = YOKE_SGD, .learning_rate = 0.1, .momentum = 0.9};

enum { ROWS = 11, STEPS = 3 };

/* What training on a list of devices gives. */
typedef struct course {
    float outputs[ROWS * CHECK_CLASSES];
    float *gradient, *weights;
    size_t count;
} course;

/* Running the model is the engine's affair: which device is the root shows in who holds momenta. */
static void expect_root(const check_engine *engine, const char *first) {
    yoke_device_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_devices_describe(engine->devices, 0, &info));
    assert_string_equal(info.name, first);
    for (int k = 0; k < yoke_devices_count(engine->devices); k++) {
        yoke_memory_report report = {.struct_size = sizeof report};
        EXPECT_OK(yoke_data_parallel_memory(engine->parallel, k, &report));
        assert_true((report.optimizer > 0) == (k == 0));
    }
}

static course train_on(const yoke_model *model, const char *list, const char *first) {
    course made = {0};
    yoke_data_parallel_options options = {
        .algorithm = YOKE_ALGORITHM_DIRECT, .batch = ROWS, .seed = 3, .bucket_bytes = 1024};
    check_engine engine = check_engine_on(model, list, options, &sgd);
    check_batch batch = check_batch_make(ROWS, 1);
    expect_root(&engine, first);
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, made.outputs));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
    made.gradient = check_read_all(engine.parallel, model, true, &made.count);
    for (int step = 0; step < STEPS; step++)
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    made.weights = check_read_all(engine.parallel, model, false, &made.count);
    check_batch_free(&batch);
    check_engine_free(&engine);
    return made;
}

static void expect_near(const course *a, const course *b, double tolerance, const char *list) {
    double outputs = check_relative(a->outputs, b->outputs, ROWS * CHECK_CLASSES);
    double gradient = check_relative(a->gradient, b->gradient, a->count);
    double weights = check_relative(a->weights, b->weights, a->count);
    if (!(outputs <= tolerance && gradient <= tolerance && weights <= tolerance))
        fail_msg("%s: outputs differ by %g, gradients by %g, weights by %g", list, outputs,
                 gradient, weights);
}

static void free_course(course *made) {
    free(made->gradient);
    free(made->weights);
}

/* Repeated GPUs exchange by copies, different ones by NCCL: their sums may have another order. On
 * the CPU all lists of one length give the same bits. */
static void order_and_repetition_change_no_value(void **state) {
    (void)state;
    static const struct {
        const char *numbers, *first;
    } lists[] = {{"0,1,2", "0"},   {"2,1,0", "2"},   {"1,0,2", "1"},
                 {"0,0,0", "0#0"}, {"1,0,1", "1#0"}, {"2,0,0", "2"}};
    int numbers = devices_are_cpus() ? 3 : devices_gpus();
    yoke_model *model = check_model(false, 0.25);
    char one[24], list[64], first[24];
    snprintf(one, sizeof one, "%s:0", devices_backend());
    course alone = train_on(model, one, one), same = {0};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        int largest = strchr(lists[i].numbers, '2') != NULL   ? 3
                      : strchr(lists[i].numbers, '1') != NULL ? 2
                                                              : 1;
        if (largest > numbers) continue; /* one GPU: only it, repeated */
        snprintf(list, sizeof list, "%s:%s", devices_backend(), lists[i].numbers);
        snprintf(first, sizeof first, "%s:%s", devices_backend(), lists[i].first);
        course made = train_on(model, list, first);
        expect_near(&made, &alone, 1e-6, list);
        if (same.count == 0) {
            same = made;
            continue;
        }
        expect_near(&made, &same, devices_are_cpus() ? 0 : 1e-6, list);
        free_course(&made);
    }
    free_course(&same);
    free_course(&alone);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_and_repetition_change_no_value),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
