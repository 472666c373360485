/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN does not print into the host program, whatever the environment says, and what fails in it
 * is a status with its word. */
#include <unistd.h>

#include "device/cpu/cpu.h"
#include "support/engine_check.h"

enum { ROWS = 4 };

static yoke_devices *open_cpu(void) {
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .list = "2xcpu", .threads = 1};
    EXPECT_OK(yoke_devices_open(&devices, &options));
    return devices;
}

/* Convolutions and reorders of oneDNN among them. */
static void train_on(yoke_devices *devices) {
    yoke_data_parallel *parallel = NULL;
    yoke_model *model = check_model(true, 0);
    check_batch batch = check_batch_make(ROWS, 1);
    yoke_data_parallel_options options = {
        .struct_size = sizeof options, .algorithm = YOKE_ALGORITHM_DIRECT, .batch = ROWS};
    EXPECT_OK(yoke_data_parallel_create(&parallel, model, devices, NULL, &options));
    EXPECT_OK(yoke_data_parallel_step(parallel, &batch.batch, 0.1, NULL));
    yoke_data_parallel_destroy(parallel);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

/* How many bytes `print` writes to descriptor 1. */
static long printed_by(void (*print)(void)) {
    char path[] = "/tmp/yoke_prints_XXXXXX";
    int to = mkstemp(path), before = dup(STDOUT_FILENO);
    assert_true(to >= 0 && before >= 0);
    unlink(path);
    fflush(stdout);
    dup2(to, STDOUT_FILENO);
    print();
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    long bytes = (long)lseek(to, 0, SEEK_END);
    close(to);
    return bytes;
}

static void open_and_train(void) {
    yoke_devices *devices = open_cpu();
    train_on(devices);
    yoke_devices_close(devices);
}

/* The environment asks for lines (main). A program that asks later has them, also from devices that
 * it opens then. */
static void nothing_is_printed_until_the_program_asks_for_it(void **state) {
    (void)state;
    assert_int_equal(printed_by(open_and_train), 0);
    assert_int_equal(dnnl_set_verbose(1), dnnl_success);
    assert_true(printed_by(open_and_train) > 0);
    assert_int_equal(dnnl_set_verbose(0), dnnl_success);
}

static void a_note_says_so(void **state) {
    (void)state;
    yoke_devices *devices = open_cpu();
    assert_non_null(strstr(yoke_devices_note(devices), "oneDNN"));
    assert_null(strchr(yoke_devices_note(devices), '\n'));
    assert_string_equal(yoke_devices_note(NULL), "");
    yoke_devices_close(devices);
}

/* A product of a source with 3 features and weights for 4. */
static void a_primitive_that_cannot_be_made_is_a_status_with_its_word(void **state) {
    (void)state;
    yoke_devices *devices = open_cpu();
    cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
    cpu_primitive primitive = {0};
    cpu_operation operation = {.kind = CPU_PRODUCT};
    const dnnl_dims_t source = {2, 3}, weights = {5, 4}, destination = {2, 5};
    assert_int_equal(
        cpu_desc_by_strides(&operation.source, &device->descs, 2, source, dnnl_f32, NULL),
        dnnl_success);
    assert_int_equal(
        cpu_desc_by_strides(&operation.weights, &device->descs, 2, weights, dnnl_f32, NULL),
        dnnl_success);
    assert_int_equal(
        cpu_desc_by_strides(&operation.destination, &device->descs, 2, destination, dnnl_f32, NULL),
        dnnl_success);
    assert_int_equal(cpu_primitive_create(&primitive, device, &operation), YOKE_ERROR_INTERNAL);
    assert_string_equal(yoke_last_error(), "oneDNN: cpu_operation_describe: invalid_arguments");
    cpu_primitive_destroy(&primitive);
    yoke_devices_close(devices);
}

static void every_failure_of_onednn_has_its_status(void **state) {
    (void)state;
    const struct {
        dnnl_status_t from;
        yoke_status to;
        const char *text;
    } rows[] = {
        {dnnl_out_of_memory, YOKE_ERROR_MEMORY, "oneDNN: call: out of memory"},
        {dnnl_unimplemented, YOKE_ERROR_DEVICE, "oneDNN: call: not implemented for this processor"},
        {dnnl_runtime_error, YOKE_ERROR_SYSTEM, "oneDNN: call: failed while running"},
        {dnnl_invalid_arguments, YOKE_ERROR_INTERNAL, "oneDNN: call: invalid_arguments"},
        {dnnl_not_required, YOKE_ERROR_INTERNAL, "oneDNN: call: not_required"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(cpu_dnnl_failed(rows[i].from, "call(with, arguments)"), rows[i].to);
        assert_string_equal(yoke_last_error(), rows[i].text);
    }
}

int main(void) {
    setenv("ONEDNN_VERBOSE", "1", 1);
    setenv("DNNL_VERBOSE", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_printed_until_the_program_asks_for_it),
        cmocka_unit_test(a_note_says_so),
        cmocka_unit_test(a_primitive_that_cannot_be_made_is_a_status_with_its_word),
        cmocka_unit_test(every_failure_of_onednn_has_its_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
