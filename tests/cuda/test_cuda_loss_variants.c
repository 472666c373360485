/* SPDX-License-Identifier: Apache-2.0 */
/* Variants of a loss. With "mapped" it writes its sum and the number of correct rows to memory of
 * the host, so that no copy follows it; in one kernel cross-entropy writes its gradient, too, so
 * that no second kernel follows. Every bit is that of a run without them. Skipped without a GPU. */
#include "device/backend.h"
#include "operation_parity.h"
#include "support/preferring.h"

enum { ROWS = 12, STEPS = 4, MODELS = 4 };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef struct course {
    yoke_schedule schedule;
    int devices, accumulate, shards;
} course;

/* What a run does otherwise. */
typedef struct alternative {
    const char *variants; /* behind the list of devices */
    const char *names[2]; /* candidates, NULL behind the last */
} alternative;

static const alternative plain = {"", {NULL}}, mapped = {"+mapped", {NULL}},
                         joined = {"", {"one kernel"}}, both = {"+mapped", {"one kernel"}};

static check_engine open_engine(const yoke_model *model, const course *of,
                                const alternative *with) {
    char list[48];
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    yoke_data_parallel_options options = {.schedule = of->schedule,
                                          .precision = YOKE_BFLOAT16,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .collectives = YOKE_COLLECTIVES_COPY,
                                          .batch = ROWS,
                                          .accumulate = of->accumulate,
                                          .shards = of->shards,
                                          .first_bucket_bytes = 1,
                                          .bucket_bytes = 1};
    snprintf(list, sizeof list, "%dxcuda:0%s", of->devices, with->variants);
    return check_engine_preferring(model, list, options, &sgd, with->names);
}

/* What steps of changing sizes and evaluations between them gave. */
typedef struct record {
    double losses[2 * STEPS];
    int correct[2 * STEPS];
    uint64_t hash;
} record;

static record train(const yoke_model *model, const course *of, const alternative *with) {
    check_engine engine = open_engine(model, of, with);
    record gave;
    memset(&gave, 0, sizeof gave);
    for (int i = 0; i < 2 * STEPS; i++) {
        check_batch batch = check_batch_make(i % 4 == 2 ? ROWS - 7 : ROWS, (uint32_t)i);
        yoke_step_result result = {.struct_size = sizeof result};
        if (i % 2 == 0)
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, 0.05, &result));
        else
            EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &batch.batch, &result));
        gave.losses[i] = result.loss;
        gave.correct[i] = result.correct;
        check_batch_free(&batch);
    }
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &gave.hash));
    check_engine_free(&engine);
    return gave;
}

static yoke_model *model_at(int index) {
    static const float weights[CHECK_CLASSES] = {0.5f, 2, 1, 0.25f, 3};
    const yoke_loss_options losses[MODELS] = {
        {.struct_size = sizeof losses[0]},
        {.struct_size = sizeof losses[0], .label_smoothing = 0.1},
        {.struct_size = sizeof losses[0],
         .label_smoothing = 0.1,
         .class_weights = weights,
         .weight_count = CHECK_CLASSES},
        {.struct_size = sizeof losses[0], .set_ignore_index = true, .ignore_index = 2}};
    return check_model_with(true, 0.2, &losses[index]);
}

static void expect_equal_runs(const alternative *taken) {
    static const course courses[] = {
        {YOKE_SCHEDULE_OVERLAP, 1, 1, 0}, {YOKE_SCHEDULE_OVERLAP, 3, 2, 0},
        {YOKE_SCHEDULE_CLASSIC, 2, 1, 0}, {YOKE_SCHEDULE_SHARDED, 2, 1, 0},
        {YOKE_SCHEDULE_OVERLAP, 2, 1, 4},
    };
    for (int m = 0; m < MODELS; m++)
        for (size_t i = 0; i < COUNT(courses); i++) {
            yoke_model *model = model_at(m);
            record with = train(model, &courses[i], taken);
            record without = train(model, &courses[i], &plain);
            if (memcmp(&with, &without, sizeof with) != 0)
                fail_msg("model %d, course %zu: a run with \"%s\" has other bits", m, i,
                         taken->variants);
            assert_true(with.losses[0] > 0);
            yoke_model_destroy(model);
        }
}

/* mapped. */

_Static_assert(sizeof(yoke_loss_scalars) < sizeof(yoke_gate), "their copies differ");

/* The devices' backend; a copy of it counts what brings a loss to the host. */
static const yoke_backend *whole;
static yoke_backend watched;
static int downloads;

static yoke_status watched_download(yoke_device *device, yoke_stream stream, void *to,
                                    const void *from, size_t bytes) {
    if (bytes == sizeof(yoke_loss_scalars)) downloads++; /* a gate is larger */
    return whole->download(device, stream, to, from, bytes);
}

/* Of a step, in the recordings that its number of rows needs: one for each turn. */
static int downloads_of_step(const alternative *with) {
    static const course alone = {YOKE_SCHEDULE_OVERLAP, 1, 1, 0};
    yoke_model *model = check_model(true, 0);
    check_engine engine = open_engine(model, &alone, with);
    yoke_device *device = yoke_devices_at(engine.devices, 0);
    check_batch batch = check_batch_make(ROWS - 5, 1);
    whole = device->backend;
    watched = *whole;
    watched.download = watched_download;
    device->backend = &watched;
    downloads = 0;
    EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, 0.05, NULL));
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
    return downloads; /* in the recordings of both turns */
}

static void a_loss_in_mapped_memory_needs_no_copy(void **state) {
    (void)state;
    assert_int_equal(downloads_of_step(&plain), 2);
    assert_int_equal(downloads_of_step(&mapped), 0);
}

static void a_loss_in_mapped_memory_has_the_bits_of_its_copy(void **state) {
    (void)state;
    expect_equal_runs(&mapped);
}

/* loss. */

static void cross_entropy_and_its_gradient_in_one_kernel_have_the_bits_of_two(void **state) {
    (void)state;
    expect_equal_runs(&joined);
    expect_equal_runs(&both);
}

/* Between the passes the parity forgets the values that the plan does not ask for: backward has the
 * gradient that forward wrote. The last shape needs several blocks. */
static void one_kernel_equals_the_cpu(void **state) {
    (void)state;
    static float weights[1000];
    static const int shapes[][2] = {{1, 1}, {5, 10}, {300, 33}, {300, 1000}};
    static const char *const lists[] = {"cuda:0", "cuda:0+mapped"};
    for (size_t i = 0; i < COUNT(weights); i++)
        weights[i] = 0.25f * (float)(i % 7);
    for (size_t i = 0; i < 8 * COUNT(shapes); i++) {
        bool weighs = i % 4 > 1;
        parity_case c = {.operation = {.kind = YOKE_OP_CROSS_ENTROPY,
                                       .name = "loss",
                                       .input = {shapes[i / 8][1], 1, 1},
                                       .label_smoothing = i % 2 == 1 ? 0.1 : 0,
                                       .weights = weighs ? weights : NULL,
                                       .ignores = weighs,
                                       .ignored = 1},
                         .rows = shapes[i / 8][0],
                         .algorithm = YOKE_ALGORITHM_DIRECT};
        parity_rig rig;
        parity_rig_open(&rig, lists[i / 4 % 2]);
        parity_check_preferring(&rig, &c, "one kernel");
        c.evaluation = true;
        parity_check_preferring(&rig, &c, "one kernel");
        c.evaluation = false;
        c.mixed = !weighs;
        if (c.mixed) parity_check_preferring(&rig, &c, "one kernel");
        parity_rig_close(&rig);
    }
}

/* The root measures; the other replica, and the loss on the root, follow it. */
static void the_kernels_of_a_loss_are_measured_once(void **state) {
    (void)state;
    static const course courses[] = {{YOKE_SCHEDULE_OVERLAP, 2, 1, 0},
                                     {YOKE_SCHEDULE_CLASSIC, 2, 1, 0}};
    for (size_t i = 0; i < COUNT(courses); i++) {
        yoke_model *model = model_at(0);
        yoke_data_parallel_options options = {.schedule = courses[i].schedule, .batch = ROWS};
        check_engine engine = check_engine_on(model, "2xcuda:0", options, NULL);
        const char *key, *name = NULL, *at;
        double milliseconds;
        int found = 0;
        for (int k = 0; yoke_data_parallel_algorithm(engine.parallel, k, &key, &at, &milliseconds);
             k++) {
            if (strcmp(key, "cross-entropy of 5 float32") != 0) continue;
            name = at;
            assert_true(milliseconds > 0);
            found++;
        }
        assert_int_equal(found, 1);
        assert_true(strcmp(name, "one kernel") == 0 || strcmp(name, "two kernels") == 0);
        check_engine_free(&engine);
        yoke_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_in_mapped_memory_needs_no_copy),
        cmocka_unit_test(a_loss_in_mapped_memory_has_the_bits_of_its_copy),
        cmocka_unit_test(cross_entropy_and_its_gradient_in_one_kernel_have_the_bits_of_two),
        cmocka_unit_test(one_kernel_equals_the_cpu),
        cmocka_unit_test(the_kernels_of_a_loss_are_measured_once),
    };
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
