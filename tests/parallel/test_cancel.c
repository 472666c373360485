/* SPDX-License-Identifier: Apache-2.0 */
/* A request ends a step, an evaluation, the creation of an engine and the wait for rows; what was
 * cancelled has changed nothing. A layer of the host program makes the request in each of its calls
 * in turn, so the step ends in every place between two operations. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "support/engine_check.h"

enum { ROWS = 8 };

typedef struct rig {
    atomic_int calls; /* of the layer */
    int last;         /* the call that makes the request; 0: none does */
    yoke_cancellation cancellation;
    yoke_model *model;
    yoke_devices *devices;
    yoke_data_parallel *parallel;
    check_batch batch;
} rig;

static void count_call(rig *own) {
    if (atomic_fetch_add(&own->calls, 1) + 1 == own->last) yoke_cancel(&own->cancellation);
}

static yoke_status pass_on(void *payload, const yoke_host_call *call) {
    count_call(payload);
    memcpy(call->output, call->inputs[0].values,
           (size_t)call->rows * call->output_elements * sizeof(float));
    return YOKE_OK;
}

static yoke_status pass_back(void *payload, const yoke_host_call *call) {
    count_call(payload);
    if (call->inputs[0].gradient != NULL)
        memcpy(call->inputs[0].gradient, call->output_gradient,
               (size_t)call->rows * call->output_elements * sizeof(float));
    return YOKE_OK;
}

/* conv - norm - host - conv - norm - host - pool - linear - host - linear. */
static yoke_value add_host(rig *own, const char *name, yoke_shape shape, yoke_value input) {
    yoke_operation_options options = YOKE_OPERATION_OPTIONS_INIT;
    options.name = name;
    options.shape = shape;
    options.inputs = &input;
    options.input_count = 1;
    options.forward = pass_on;
    options.backward = pass_back;
    options.payload = own;
    return yoke_model_add_operation(own->model, &options);
}

static void build_model(rig *own) {
    yoke_shape image = yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE);
    yoke_shape inner = yoke_shape_image(8, CHECK_SIDE, CHECK_SIDE);
    EXPECT_OK(yoke_model_create(&own->model, "cancelled", image));
    yoke_value x = yoke_model_input(own->model);
    for (int i = 0; i < 2; i++) {
        yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
        yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
        conv.name = i == 0 ? "conv1" : "conv2";
        norm.name = i == 0 ? "bn1" : "bn2";
        conv.out_channels = 8, conv.kernel = 3, conv.padding = 1;
        x = yoke_batch_norm(own->model, yoke_conv2d(own->model, x, &conv), &norm);
        x = add_host(own, i == 0 ? "host1" : "host2", inner, x);
    }
    x = yoke_flatten(own->model, yoke_global_average_pool(own->model, x));
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    linear.name = "fc1", linear.out_features = 8;
    x = add_host(own, "host3", yoke_shape_vector(8), yoke_linear(own->model, x, &linear));
    linear.name = "fc2", linear.out_features = CHECK_CLASSES;
    EXPECT_OK(yoke_model_finish(own->model, yoke_linear(own->model, x, &linear), NULL));
}

static void open_rig(rig *own, const yoke_data_parallel_options *options) {
    yoke_devices_options list = {.struct_size = sizeof list, .list = "2xcpu", .threads = 1};
    *own = (rig){.batch = check_batch_make(ROWS, 1)};
    build_model(own);
    EXPECT_OK(yoke_devices_open(&own->devices, &list));
    EXPECT_OK(yoke_data_parallel_create(&own->parallel, own->model, own->devices, NULL, options));
}

static void close_rig(rig *own) {
    yoke_data_parallel_destroy(own->parallel);
    yoke_devices_close(own->devices);
    yoke_model_destroy(own->model);
    check_batch_free(&own->batch);
}

static uint64_t hash_of(rig *own) {
    uint64_t hash = 0;
    EXPECT_OK(yoke_data_parallel_hash(own->parallel, &hash));
    return hash;
}

static yoke_status cancelled_at(rig *own, int call) {
    atomic_store(&own->calls, 0);
    own->last = call;
    const yoke_cancellation *before = yoke_cancellation_use(&own->cancellation);
    yoke_status status = yoke_data_parallel_step(own->parallel, &own->batch.batch, 0.1, NULL);
    assert_ptr_equal(yoke_cancellation_use(before), &own->cancellation);
    yoke_cancellation_reset(&own->cancellation);
    return status;
}

/* Returns how many of the calls ended the step. */
static int cancel_everywhere(const yoke_data_parallel_options *options) {
    rig own, untouched;
    int ended = 0;
    open_rig(&own, options);
    open_rig(&untouched, options);
    for (int step = 0; step < 2; step++) {
        uint64_t before = hash_of(&own);
        EXPECT_OK(yoke_data_parallel_step(untouched.parallel, &untouched.batch.batch, 0.1, NULL));
        for (int call = 1;; call++) {
            yoke_status status = cancelled_at(&own, call);
            if (status == YOKE_OK) break;
            assert_int_equal(status, YOKE_ERROR_CANCELLED);
            assert_non_null(strstr(yoke_last_error(), "the program cancelled the call"));
            assert_true(hash_of(&own) == before);
            ended++;
        }
        assert_true(hash_of(&own) == hash_of(&untouched));
    }
    close_rig(&own);
    close_rig(&untouched);
    return ended;
}

static const yoke_data_parallel_options direct = {.struct_size = sizeof direct,
                                                  .algorithm = YOKE_ALGORITHM_DIRECT,
                                                  .first_bucket_bytes = 512,
                                                  .bucket_bytes = 512,
                                                  .batch = ROWS};

/* Three layers, two devices, forward and backward: 12 calls, the last of which may come too late:
 * behind it a lane has no operation left. */
static void a_cancelled_step_changes_nothing(void **state) {
    (void)state;
    for (int schedule = YOKE_SCHEDULE_OVERLAP; schedule <= YOKE_SCHEDULE_SHARDED; schedule++) {
        yoke_data_parallel_options options = direct;
        options.schedule = (yoke_schedule)schedule;
        assert_in_range(cancel_everywhere(&options), 20, 24);
    }
}

static void parts_of_a_batch_end_together(void **state) {
    (void)state;
    yoke_data_parallel_options options = direct;
    options.accumulate = 2;
    assert_in_range(cancel_everywhere(&options), 40, 48);
    options.accumulate = 1;
    options.shards = 4;
    assert_in_range(cancel_everywhere(&options), 40, 48);
}

/* Without the check of the whole gradient buckets change weights behind backward, which therefore
 * goes on to the end. A lane that is still in forward ends, and with it the step. */
static void a_backward_that_updates_goes_on(void **state) {
    (void)state;
    yoke_data_parallel_options options = direct;
    options.skip_finite_check = true;
    assert_in_range(cancel_everywhere(&options), 10, 22);
}

static void evaluations_end(void **state) {
    (void)state;
    rig own;
    open_rig(&own, &direct);
    own.last = 2;
    const yoke_cancellation *before = yoke_cancellation_use(&own.cancellation);
    assert_int_equal(yoke_data_parallel_evaluate(own.parallel, &own.batch.batch, NULL),
                     YOKE_ERROR_CANCELLED);
    assert_int_equal(yoke_data_parallel_forward(own.parallel, &own.batch.batch, false, NULL),
                     YOKE_ERROR_CANCELLED);
    yoke_cancellation_reset(&own.cancellation);
    EXPECT_OK(yoke_data_parallel_evaluate(own.parallel, &own.batch.batch, NULL));
    (void)yoke_cancellation_use(before);
    close_rig(&own);
}

static void creation_ends(void **state) {
    (void)state;
    rig own;
    yoke_data_parallel *parallel = NULL;
    yoke_dataset *dataset = NULL;
    yoke_cancellation requested = {0};
    open_rig(&own, &direct);
    yoke_cancel(&requested);
    (void)yoke_cancellation_use(&requested);
    assert_int_equal(yoke_data_parallel_create(&parallel, own.model, own.devices, NULL, &direct),
                     YOKE_ERROR_CANCELLED);
    assert_null(parallel);
    assert_int_equal(yoke_dataset_open(&dataset, "synthetic", YOKE_SPLIT_TRAIN),
                     YOKE_ERROR_CANCELLED);
    assert_null(dataset);
    (void)yoke_cancellation_use(NULL);
    close_rig(&own);
}

/* Rows. */

static yoke_status read_slowly(void *payload, size_t row, float *input, int32_t *label,
                               float *targets) {
    struct timespec pause = {.tv_nsec = 50000000};
    (void)payload, (void)row, (void)targets;
    nanosleep(&pause, NULL);
    input[0] = 0;
    *label = 0;
    return YOKE_OK;
}

static void *cancel_soon(void *cancellation) {
    struct timespec pause = {.tv_nsec = 100000000};
    nanosleep(&pause, NULL);
    yoke_cancel(cancellation);
    return NULL;
}

/* A batch of 1,000 rows would take 50 s. */
static void the_wait_for_rows_ends(void **state) {
    (void)state;
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = 1000,
                              .shape = yoke_shape_vector(1),
                              .classes = 2,
                              .read = read_slowly};
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_batch batch = {.struct_size = sizeof batch};
    yoke_cancellation cancellation = {0};
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    pthread_t thread;
    options.batch = 1000;
    EXPECT_OK(yoke_dataset_from_callback(&dataset, &source));
    EXPECT_OK(yoke_loader_create(&loader, dataset, &options));
    EXPECT_OK(yoke_loader_begin(loader, 0));
    (void)yoke_cancellation_use(&cancellation);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &cancellation), 0);
    assert_int_equal(yoke_loader_next(loader, &batch, NULL), YOKE_ERROR_CANCELLED);
    pthread_join(thread, NULL);
    (void)yoke_cancellation_use(NULL);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void requests_of_null_do_nothing(void **state) {
    (void)state;
    yoke_cancel(NULL);
    yoke_cancellation_reset(NULL);
    assert_null(yoke_cancellation_use(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancelled_step_changes_nothing),
        cmocka_unit_test(parts_of_a_batch_end_together),
        cmocka_unit_test(a_backward_that_updates_goes_on),
        cmocka_unit_test(evaluations_end),
        cmocka_unit_test(creation_ends),
        cmocka_unit_test(the_wait_for_rows_ends),
        cmocka_unit_test(requests_of_null_do_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
