/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated GPUs in trouble: no driver, no code for the GPU, no peer access or a corrupting one,
 * sticky errors. */
#include "simcuda/control.h"
#include "with_setting.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

#define COUNT (((size_t)5 << 18) + 7) /* more than a chunk of what goes through host memory */
#define BYTES (COUNT * sizeof(float))

static yoke_status try_list(const char *list, yoke_devices **devices) {
    yoke_devices_options options = {.struct_size = sizeof options, .list = list};
    return yoke_devices_open(devices, &options);
}

static yoke_devices *open_list(const char *list) {
    yoke_devices *devices = NULL;
    EXPECT_OK(try_list(list, &devices));
    return devices;
}

static void expect_refused(const char *list, const char *part) {
    yoke_devices *devices = NULL;
    yoke_status status = try_list(list, &devices);
    if (status != YOKE_ERROR_DEVICE || strstr(yoke_last_error(), part) == NULL)
        fail_msg("\"%s\": %s: %s, not DEVICE with \"%s\"", list, yoke_status_name(status),
                 yoke_last_error(), part);
    assert_null(devices);
}

/* No usable GPU: the CPU is taken, and everybody who asks is told why. */
static void expect_no_gpu(const char *part) {
    yoke_devices *devices = open_list("auto");
    assert_int_equal(yoke_devices_count(devices), 1);
    assert_string_equal(yoke_device_name(yoke_devices_at(devices, 0)), "cpu:0");
    yoke_devices_close(devices);
    expect_refused("cuda", part);
    yoke_backend_info info = {.struct_size = sizeof info};
    assert_true(yoke_backend_describe(1, &info));
    assert_false(info.available);
    assert_non_null(strstr(info.detail, part));
}

/* Reasons. */

static void without_a_gpu_auto_takes_the_cpu(void **state) {
    WITH("SIMCUDA_DEVICES", "0");
    expect_no_gpu("no usable GPU: none is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES");
}

static void an_old_driver_is_named_with_both_versions(void **state) {
    WITH("SIMCUDA_FAULT", "cudaGetDeviceCount@*=35");
    expect_no_gpu("update the driver, or build with CUDA");
}

static void without_a_driver_that_is_said(void **state) {
    WITH("SIMCUDA_FAULT", "cudaGetDeviceCount@*=35;cudaDriverGetVersion@*=35");
    expect_no_gpu("there is no NVIDIA driver; install one that serves CUDA");
}

static void no_device_is_no_usable_gpu(void **state) {
    WITH("SIMCUDA_FAULT", "cudaGetDeviceCount@*=100");
    expect_no_gpu("cudaErrorNoDevice");
}

static void the_toolkits_stub_is_no_usable_gpu(void **state) {
    WITH("SIMCUDA_FAULT", "cudaGetDeviceCount@*=34");
    expect_no_gpu("the toolkit's stub");
}

static void a_driver_that_does_not_start_is_no_usable_gpu(void **state) {
    WITH("SIMCUDA_FAULT", "cudaGetDeviceCount@*=3");
    expect_no_gpu("cudaErrorInitializationError");
}

static void an_unknown_error_is_no_usable_gpu(void **state) {
    WITH("SIMCUDA_FAULT", "cudaGetDeviceCount@*=999");
    expect_no_gpu("cudaErrorUnknown");
}

static void mixed_parts_of_the_driver_are_no_usable_gpu(void **state) {
    WITH("SIMCUDA_FAULT", "cudaGetDeviceCount@*=803");
    expect_no_gpu("of different versions; restart the machine");
}

static void a_misplaced_compatibility_library_is_no_usable_gpu(void **state) {
    WITH("SIMCUDA_FAULT", "cudaGetDeviceCount@*=804");
    expect_no_gpu("compatibility library");
}

static void gpus_without_code_are_refused_with_the_flag_to_set(void **state) {
    WITH("SIMCUDA_FAULT", "cudaFuncGetAttributes@*=209");
    expect_no_gpu("CMAKE_CUDA_ARCHITECTURES");
    expect_refused("cuda:1", "cuda:1: compute capability ");
}

static void auto_leaves_out_the_gpu_without_code(void **state) {
    WITH("SIMCUDA_FAULT", "cudaFuncGetAttributes@2=209"); /* of the look at GPU 1 */
    yoke_devices *devices = open_list("auto");
    assert_string_equal(yoke_device_name(yoke_devices_at(devices, 0)), "cuda:0");
    assert_string_equal(yoke_device_name(yoke_devices_at(devices, 1)), "cuda:2");
    yoke_devices_close(devices);
}

/* Peers. */

static float *values_from(float first) {
    float *values = malloc(BYTES);
    assert_non_null(values);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = first + (float)i;
    return values;
}

/* Device 1 pulls in all its streams at once, each something else. */
static void expect_copies_to_arrive(yoke_devices *devices) {
    yoke_device *from = yoke_devices_at(devices, 0), *to = yoke_devices_at(devices, 1);
    float *sources[YOKE_STREAMS], *hosts[YOKE_STREAMS];
    void *targets[YOKE_STREAMS];
    for (int i = 0; i < YOKE_STREAMS; i++) {
        hosts[i] = values_from((float)(i + 1));
        sources[i] = device_copy_of(from, hosts[i], BYTES);
        EXPECT_OK(yoke_device_allocate(to, BYTES, "a test", &targets[i]));
    }
    EXPECT_OK(yoke_device_synchronize(from));
    for (int i = 0; i < YOKE_STREAMS; i++)
        EXPECT_OK(yoke_device_copy(to, (yoke_stream)i, targets[i], from, sources[i], BYTES));
    EXPECT_OK(yoke_device_synchronize(to));
    for (int i = 0; i < YOKE_STREAMS; i++) {
        float *arrived = device_values(to, targets[i], BYTES);
        assert_memory_equal(arrived, hosts[i], BYTES);
        yoke_device_free(from, sources[i]);
        yoke_device_free(to, targets[i]);
        free(arrived);
        free(hosts[i]);
    }
}

static void expect_path_by_host(yoke_devices *devices) {
    yoke_peer_info peer = {.struct_size = sizeof peer};
    EXPECT_OK(yoke_devices_peer(devices, 0, 1, &peer));
    assert_int_equal(peer.path, YOKE_PEER_HOST);
    assert_false(yoke_device_reaches(yoke_devices_at(devices, 1), yoke_devices_at(devices, 0)));
}

static void copies_that_arrive_wrong_go_through_host_memory_with_a_note(void **state) {
    WITH("SIMCUDA_PEERS", "corrupt");
    size_t before = simcuda_outstanding();
    yoke_devices *devices = open_list("3xcuda");
    yoke_device_info info = {.struct_size = sizeof info};
    expect_path_by_host(devices);
    EXPECT_OK(yoke_devices_describe(devices, 1, &info));
    assert_string_equal(info.note,
                        "through host memory, since direct copies are wrong: copies from "
                        "cuda:0, cuda:2");
    expect_copies_to_arrive(devices);
    yoke_devices_close(devices);
    assert_int_equal(simcuda_outstanding(), before);
}

static void without_peer_access_copies_arrive_and_nothing_is_noted(void **state) {
    WITH("SIMCUDA_PEERS", "none");
    yoke_devices *devices = open_list("2xcuda");
    yoke_device_info info = {.struct_size = sizeof info};
    expect_path_by_host(devices);
    EXPECT_OK(yoke_devices_describe(devices, 1, &info));
    assert_string_equal(info.note, "");
    expect_copies_to_arrive(devices);
    yoke_devices_close(devices);
}

static void peer_access_that_others_opened_is_taken_as_it_is(void **state) {
    WITH("SIMCUDA_PEERS", "all");
    for (int i = 0; i < 2; i++) {
        yoke_devices *devices = open_list("2xcuda");
        assert_true(yoke_device_reaches(yoke_devices_at(devices, 0), yoke_devices_at(devices, 1)));
        expect_copies_to_arrive(devices);
        yoke_devices_close(devices);
    }
}

/* Sticky errors. */

static void expect_poisoned(yoke_device *device) {
    yoke_plan_step step = {.loss_scale = 1};
    void *memory = NULL;
    yoke_status answers[] = {yoke_device_synchronize(device),
                             yoke_device_begin_step(device, &step),
                             yoke_device_allocate(device, 64, "a test", &memory),
                             yoke_device_allocate_host(device, 64, "a test", &memory),
                             yoke_recording_begin(device),
                             yoke_device_use(device)};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
        assert_int_equal(answers[i], YOKE_ERROR_DEVICE);
    assert_non_null(
        strstr(yoke_last_error(),
               "cuda:0: poisoned by cudaErrorIllegalAddress of cudaEventRecordWithFlags; "));
}

static void a_sticky_error_loses_its_device_alone(void **state) {
    WITH("SIMCUDA_FAULT", "cudaEventRecordWithFlags@1=700");
    yoke_devices *first = open_list("cuda:0"), *second = open_list("cuda:1");
    yoke_device *lost = yoke_devices_at(first, 0), *whole = yoke_devices_at(second, 0);
    yoke_device_event *event = NULL;
    void *memory = NULL;
    EXPECT_OK(yoke_device_event_create(&event, lost));
    EXPECT_OK(yoke_device_allocate(lost, 64, "a test", &memory));
    assert_int_equal(yoke_device_event_record(event, YOKE_STREAM_COMPUTE), YOKE_ERROR_DEVICE);
    assert_memory_equal(yoke_last_error(),
                        "cuda:0: cudaEventRecordWithFlags: cudaErrorIllegalAddress (", 50);
    expect_poisoned(lost);
    yoke_device_free(lost, memory);
    EXPECT_OK(yoke_device_allocate(whole, 64, "a test", &memory));
    EXPECT_OK(yoke_device_clear(whole, YOKE_STREAM_COPY, memory, 64));
    EXPECT_OK(yoke_device_synchronize(whole));
    yoke_device_free(whole, memory);
    yoke_device_event_destroy(event);
    yoke_devices_close(second);
    yoke_devices_close(first);
}

static void a_lost_device_can_be_closed(void **state) {
    /* CUDA answers nothing else from then on */
    WITH("SIMCUDA_FAULT", "cudaEventRecordWithFlags@1=700!");
    yoke_devices *devices = open_list("cuda:0");
    yoke_device *lost = yoke_devices_at(devices, 0);
    yoke_device_event *event = NULL;
    EXPECT_OK(yoke_device_event_create(&event, lost));
    assert_int_equal(yoke_device_event_record(event, YOKE_STREAM_COMPUTE), YOKE_ERROR_DEVICE);
    expect_poisoned(lost);
    yoke_device_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_devices_describe(devices, 0, &info));
    assert_int_equal(info.memory_free, 0);
    yoke_device_event_destroy(event);
    yoke_devices_close(devices);
}

static void an_error_that_passes_poisons_nothing(void **state) {
    WITH("SIMCUDA_FAULT", "cudaEventRecordWithFlags@1=1");
    yoke_devices *devices = open_list("cuda:0");
    yoke_device *device = yoke_devices_at(devices, 0);
    yoke_device_event *event = NULL;
    EXPECT_OK(yoke_device_event_create(&event, device));
    assert_int_equal(yoke_device_event_record(event, YOKE_STREAM_COMPUTE), YOKE_ERROR_SYSTEM);
    assert_non_null(strstr(yoke_last_error(), "cudaEventRecordWithFlags: cudaErrorInvalidValue"));
    EXPECT_OK(yoke_device_event_record(event, YOKE_STREAM_COMPUTE));
    EXPECT_OK(yoke_device_event_synchronize(event));
    yoke_device_event_destroy(event);
    yoke_devices_close(devices);
}

/* Opens two GPUs that lie about copies, which is the longest way, and measures them. */
static yoke_status open_and_measure(void) {
    yoke_devices *devices = NULL;
    yoke_peer_info peer = {.struct_size = sizeof peer};
    yoke_status status = try_list("2xcuda", &devices);
    if (status == YOKE_OK) status = yoke_devices_peer(devices, 0, 1, &peer);
    yoke_devices_close(devices);
    return status;
}

static void every_failure_while_opening_and_measuring_leaves_nothing(void **state) {
    WITH("SIMCUDA_PEERS", "corrupt");
    EXPECT_OK(open_and_measure());
    uint64_t index = 0;
    const char *failed;
    do {
        size_t before = simcuda_outstanding();
        simcuda_fail_call(++index);
        yoke_status status = open_and_measure();
        failed = simcuda_failed_call();
        simcuda_fail_call(0);
        if (failed == NULL) EXPECT_OK(status);
        bool gives_back = failed != NULL && (strstr(failed, "Free") || strstr(failed, "Destroy"));
        if (simcuda_outstanding() > before + gives_back) {
            simcuda_print_outstanding();
            fail_msg("call %llu, %s, failed and left things", (unsigned long long)index, failed);
        }
    } while (failed != NULL && index < 400); /* measuring has no end that is the same twice */
    assert_true(index > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_gpu_auto_takes_the_cpu),
        cmocka_unit_test(an_old_driver_is_named_with_both_versions),
        cmocka_unit_test(without_a_driver_that_is_said),
        cmocka_unit_test(no_device_is_no_usable_gpu),
        cmocka_unit_test(the_toolkits_stub_is_no_usable_gpu),
        cmocka_unit_test(a_driver_that_does_not_start_is_no_usable_gpu),
        cmocka_unit_test(an_unknown_error_is_no_usable_gpu),
        cmocka_unit_test(mixed_parts_of_the_driver_are_no_usable_gpu),
        cmocka_unit_test(a_misplaced_compatibility_library_is_no_usable_gpu),
        cmocka_unit_test(gpus_without_code_are_refused_with_the_flag_to_set),
        cmocka_unit_test(auto_leaves_out_the_gpu_without_code),
        cmocka_unit_test(copies_that_arrive_wrong_go_through_host_memory_with_a_note),
        cmocka_unit_test(without_peer_access_copies_arrive_and_nothing_is_noted),
        cmocka_unit_test(peer_access_that_others_opened_is_taken_as_it_is),
        cmocka_unit_test(a_sticky_error_loses_its_device_alone),
        cmocka_unit_test(a_lost_device_can_be_closed),
        cmocka_unit_test(an_error_that_passes_poisons_nothing),
        cmocka_unit_test(every_failure_while_opening_and_measuring_leaves_nothing),
    };
    with_setting_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
