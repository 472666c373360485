/* A GPU measures the candidates of a choice once, records the winner and passes over candidates
 * that cannot serve. Skipped without a GPU. */
#include "gpu_rig.h"

typedef struct runs {
    int counts[3];
    yoke_status status;
} runs;

static yoke_status count_run(void *context, int candidate) {
    runs *counted = context;
    counted->counts[candidate]++;
    return counted->status;
}

static void a_choice_is_measured_once_and_then_known(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {.precision = YOKE_TF32};
    CHECK(yoke_choices_create(&request.choices));
    const cuda_candidate candidates[] = {{"none", NULL}, {"one", count_run}, {"two", count_run}};
    runs counted = {.status = YOKE_OK};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), &counted};
    int best = -1, again = -1;
    CHECK(cuda_choose(&tuning, &best));
    assert_true(best == 1 || best == 2);
    assert_true(counted.counts[0] == 0 && counted.counts[1] > 0 && counted.counts[2] > 0);
    assert_int_equal(yoke_choices_find(request.choices, "a shape tf32"), best);
    int runs_before = counted.counts[1] + counted.counts[2];
    CHECK(cuda_choose(&tuning, &again));
    assert_int_equal(again, best);
    assert_int_equal(counted.counts[1] + counted.counts[2], runs_before);
    yoke_choices_destroy(request.choices);
}

static void a_fixed_choice_measures_nothing(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {.algorithm = YOKE_ALGORITHM_DIRECT};
    CHECK(yoke_choices_create(&request.choices));
    const cuda_candidate candidates[] = {{"one", count_run}, {"two", count_run}};
    runs counted = {.status = YOKE_OK};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), &counted};
    int best = -1;
    CHECK(cuda_choose(&tuning, &best));
    assert_int_equal(best, 0);
    assert_int_equal(counted.counts[0] + counted.counts[1], 0);
    assert_int_equal(yoke_choices_find(request.choices, "a shape float32"), -1);
    yoke_choices_destroy(request.choices);
}

static yoke_status refuse(void *context, int candidate) {
    (void)context, (void)candidate;
    return YOKE_ERROR_DEVICE;
}

static void a_candidate_that_does_not_serve_is_passed_over(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {0};
    CHECK(yoke_choices_create(&request.choices));
    const cuda_candidate candidates[] = {{"one", refuse}, {"two", count_run}};
    runs counted = {.status = YOKE_OK};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), &counted};
    int best = -1;
    CHECK(cuda_choose(&tuning, &best));
    assert_int_equal(best, 1);
    tuning.key = "another shape";
    tuning.count = 1;
    assert_int_equal(cuda_choose(&tuning, &best), YOKE_ERROR_DEVICE);
    assert_non_null(strstr(yoke_last_error(), "another shape"));
    yoke_choices_destroy(request.choices);
}

static yoke_status clear_run(void *context, int candidate) {
    cuda_device *device = context;
    (void)candidate;
    return yoke_device_clear(&device->base, YOKE_STREAM_COMPUTE, device->workspace, 16);
}

/* Works, but spoils a recording. */
static yoke_status wait_run(void *context, int candidate) {
    cuda_device *device = context;
    (void)candidate;
    TRY_CUDA(device, cudaStreamSynchronize(device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

/* As a library that failed for reasons of its own. */
static yoke_status fail_run(void *context, int candidate) {
    (void)candidate;
    return cuda_lt_failed(context, CUBLAS_STATUS_INTERNAL_ERROR, "cublasLtMatmul()");
}

static void what_a_library_fails_at_is_passed_over(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {0};
    CHECK(yoke_choices_create(&request.choices));
    const cuda_candidate candidates[] = {{"fails", fail_run}, {"clears", clear_run}};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), device};
    int best = -1;
    CHECK(cuda_choose(&tuning, &best));
    assert_int_equal(best, 1);
    yoke_choices_destroy(request.choices);
}

static void a_candidate_that_fails_otherwise_ends_the_contest(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {0};
    CHECK(yoke_choices_create(&request.choices));
    const cuda_candidate candidates[] = {{"one", count_run}};
    runs counted = {.status = YOKE_ERROR_SYSTEM};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), &counted};
    int best = -1;
    assert_int_equal(cuda_choose(&tuning, &best), YOKE_ERROR_SYSTEM);
    assert_int_equal(yoke_choices_find(request.choices, "a shape float32"), -1);
    yoke_choices_destroy(request.choices);
}

static void a_candidate_that_cannot_be_recorded_does_not_win(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {0};
    CHECK(yoke_choices_create(&request.choices));
    const cuda_candidate candidates[] = {{"waits", wait_run}, {"clears", clear_run}};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), device};
    int best = -1;
    CHECK(cuda_choose(&tuning, &best));
    assert_int_equal(best, 1);
    yoke_choices_destroy(request.choices);
}

int main(void) {
    if (devices_gpus() == 0) return DEVICES_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_is_measured_once_and_then_known),
        cmocka_unit_test(a_fixed_choice_measures_nothing),
        cmocka_unit_test(a_candidate_that_does_not_serve_is_passed_over),
        cmocka_unit_test(what_a_library_fails_at_is_passed_over),
        cmocka_unit_test(a_candidate_that_fails_otherwise_ends_the_contest),
        cmocka_unit_test(a_candidate_that_cannot_be_recorded_does_not_win),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
