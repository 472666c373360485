/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work on GPUs, real or simulated: events between streams, recordings, and
 * arguments that change from step to step. */
#include "gpu_memory_check.h"

/* Events. */

/* Long work before the mark, so that who does not wait comes too early. */
static void what_waits_for_an_event_sees_what_was_queued_before_it(void **state) {
    (void)state;
    yoke_devices *devices = open_list(devices_of(2));
    yoke_device *a = yoke_devices_at(devices, 0), *b = yoke_devices_at(devices, 1);
    float *host = count_from(5), *on_a = allocate(a, BYTES), *on_b = allocate(b, BYTES);
    float *source = device_copy_of(a, host, BYTES);
    yoke_device_event *event = NULL;
    EXPECT_OK(yoke_device_synchronize(a));
    EXPECT_OK(yoke_device_event_create(&event, a));
    for (int i = 0; i < 50; i++)
        EXPECT_OK(yoke_device_clear(a, YOKE_STREAM_COPY, on_a, BYTES));
    EXPECT_OK(yoke_device_copy(a, YOKE_STREAM_COPY, on_a, a, source, BYTES));
    EXPECT_OK(yoke_device_event_record(event, YOKE_STREAM_COPY));
    EXPECT_OK(yoke_device_event_wait(event, b, YOKE_STREAM_COMMUNICATION));
    EXPECT_OK(yoke_device_copy(b, YOKE_STREAM_COMMUNICATION, on_b, a, on_a, BYTES));
    EXPECT_OK(yoke_device_synchronize(b));
    expect_count_from(b, on_b, 5);
    EXPECT_OK(yoke_device_event_synchronize(event));
    yoke_device_event_destroy(event);
    yoke_device_free(a, on_a);
    yoke_device_free(a, source);
    yoke_device_free(b, on_b);
    free(host);
    yoke_devices_close(devices);
}

static void an_event_never_recorded_has_passed(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    yoke_device_event *event = NULL;
    EXPECT_OK(yoke_device_event_create(&event, device));
    EXPECT_OK(yoke_device_event_wait(event, device, YOKE_STREAM_COMPUTE));
    EXPECT_OK(yoke_device_event_synchronize(event));
    EXPECT_OK(yoke_device_synchronize(device));
    yoke_device_event_destroy(event);
    yoke_devices_close(devices);
}

static void timed_events_measure_the_time_between_them(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    void *memory = allocate(device, BYTES);
    yoke_device_event *begin = NULL, *end = NULL;
    double milliseconds = -1;
    EXPECT_OK(yoke_device_event_create_timed(&begin, device));
    EXPECT_OK(yoke_device_event_create_timed(&end, device));
    EXPECT_OK(yoke_device_event_record(begin, YOKE_STREAM_COMPUTE));
    for (int i = 0; i < 50; i++)
        EXPECT_OK(yoke_device_clear(device, YOKE_STREAM_COMPUTE, memory, BYTES));
    EXPECT_OK(yoke_device_event_record(end, YOKE_STREAM_COMPUTE));
    EXPECT_OK(yoke_device_event_synchronize(end));
    EXPECT_OK(yoke_device_event_elapsed(begin, end, &milliseconds));
    assert_true(milliseconds > 0 && milliseconds < 10000);
    yoke_device_event_destroy(begin);
    yoke_device_event_destroy(end);
    yoke_device_free(device, memory);
    yoke_devices_close(devices);
}

static void a_step_reaches_the_device_in_the_order_of_the_compute_stream(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    yoke_plan_step step = {
        .seed = 7, .step = (uint64_t)1 << 40, .first_row = 9, .loss_scale = 0.5f};
    cuda_step seen;
    EXPECT_OK(yoke_device_begin_step(device, &step));
    step.seed = 8; /* the device has its own copy */
    device_take(device, &seen, cuda_of(device)->step, sizeof seen);
    assert_true(seen.seed == 7 && seen.step == (uint64_t)1 << 40 && seen.first_row == 9);
    assert_true(seen.loss_scale == 0.5f);
    yoke_devices_close(devices);
}

/* Recordings. */

static void a_recording_repeats_what_was_queued(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    float *host = count_from(0), *step = device_copy_of(device, host, BYTES);
    float *total = allocate(device, BYTES);
    const float *both[] = {total, step};
    yoke_recording *recording = NULL;
    assert_true(yoke_device_records(device));
    EXPECT_OK(yoke_recording_begin(device));
    yoke_status queued = yoke_device_sum(device, YOKE_STREAM_COMPUTE, total, both, 2, COUNT);
    EXPECT_OK(yoke_recording_end(device, queued, &recording));
    for (int i = 0; i < 3; i++)
        EXPECT_OK(yoke_recording_run(recording));
    float *values = device_values(device, total, BYTES);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(values[i] == 3 * (float)i); /* recording itself ran nothing */
    yoke_recording_destroy(recording);
    yoke_device_free(device, total);
    yoke_device_free(device, step);
    free(values);
    free(host);
    yoke_devices_close(devices);
}

/* As libraries do when they are first called. */
static void memory_can_be_allocated_during_a_recording(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    void *memory = NULL, *target = allocate(device, BYTES);
    yoke_recording *recording = NULL;
    EXPECT_OK(yoke_recording_begin(device));
    assert_int_equal(cudaMalloc(&memory, BYTES), cudaSuccess);
    EXPECT_OK(yoke_recording_end(
        device, yoke_device_clear(device, YOKE_STREAM_COMPUTE, target, BYTES), &recording));
    EXPECT_OK(yoke_recording_run(recording));
    EXPECT_OK(yoke_device_synchronize(device));
    yoke_recording_destroy(recording);
    assert_int_equal(cudaFree(memory), cudaSuccess);
    yoke_device_free(device, target);
    yoke_devices_close(devices);
}

static void a_recording_that_fails_is_thrown_away_and_its_error_passed_on(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    void *memory = allocate(device, BYTES);
    yoke_recording *recording = NULL;
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(yoke_recording_begin(device));
        EXPECT_OK(yoke_device_clear(device, YOKE_STREAM_COMPUTE, memory, BYTES));
        yoke_status status = FAIL(YOKE_ERROR_NUMERIC, "the plan's own words");
        assert_int_equal(yoke_recording_end(device, status, &recording), YOKE_ERROR_NUMERIC);
        assert_string_equal(yoke_last_error(), "the plan's own words");
        assert_null(recording);
    }
    EXPECT_OK(yoke_device_synchronize(device));
    yoke_device_free(device, memory);
    yoke_devices_close(devices);
}

int main(void) {
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_waits_for_an_event_sees_what_was_queued_before_it),
        cmocka_unit_test(an_event_never_recorded_has_passed),
        cmocka_unit_test(timed_events_measure_the_time_between_them),
        cmocka_unit_test(a_step_reaches_the_device_in_the_order_of_the_compute_stream),
        cmocka_unit_test(a_recording_repeats_what_was_queued),
        cmocka_unit_test(memory_can_be_allocated_during_a_recording),
        cmocka_unit_test(a_recording_that_fails_is_thrown_away_and_its_error_passed_on),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
