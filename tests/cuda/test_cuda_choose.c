/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU measures the candidates of a choice once, records the winner and passes over candidates
 * that cannot serve. Skipped without a GPU. */
#include <limits.h>

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

static int known_of(yoke_algorithms *algorithms, const char *key) {
    int known = -2;
    CHECK(yoke_algorithms_find(algorithms, key, NULL, &known));
    return known;
}

static void a_choice_is_measured_once_and_then_known(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {.precision = YOKE_TF32};
    CHECK(yoke_algorithms_create(&request.algorithms));
    const cuda_candidate candidates[] = {{"none", NULL}, {"one", count_run}, {"two", count_run}};
    runs counted = {.status = YOKE_OK};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), &counted};
    int best = -1, again = -1;
    CHECK(cuda_choose(&tuning, &best));
    assert_true(best == 1 || best == 2);
    assert_true(counted.counts[0] == 0 && counted.counts[1] > 0 && counted.counts[2] > 0);
    assert_int_equal(known_of(request.algorithms, "a shape tf32"), best);
    int runs_before = counted.counts[1] + counted.counts[2];
    CHECK(cuda_choose(&tuning, &again));
    assert_int_equal(again, best);
    assert_int_equal(counted.counts[1] + counted.counts[2], runs_before);
    yoke_algorithms_destroy(request.algorithms);
}

static void a_fixed_choice_measures_nothing(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {.algorithm = YOKE_ALGORITHM_DIRECT};
    CHECK(yoke_algorithms_create(&request.algorithms));
    const cuda_candidate candidates[] = {{"one", count_run}, {"two", count_run}};
    runs counted = {.status = YOKE_OK};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), &counted};
    int best = -1;
    CHECK(cuda_choose(&tuning, &best));
    assert_int_equal(best, 0);
    assert_int_equal(counted.counts[0] + counted.counts[1], 0);
    assert_int_equal(known_of(request.algorithms, "a shape float32"), -1);
    yoke_algorithms_destroy(request.algorithms);
}

static void a_preferred_candidate_is_taken_without_measuring(void **state) {
    const yoke_algorithm algorithms[] = {YOKE_ALGORITHM_MEASURED, YOKE_ALGORITHM_DIRECT};
    for (int i = 0; i < 2; i++) {
        cuda_device *device = ((rig *)*state)->device;
        yoke_plan_request request = {.algorithm = algorithms[i]};
        CHECK(yoke_algorithms_create(&request.algorithms));
        yoke_algorithms_prefer(request.algorithms, "two");
        const cuda_candidate candidates[] = {{"one", count_run}, {"two", count_run}};
        runs counted = {.status = YOKE_OK};
        cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), &counted};
        int best = -1;
        CHECK(cuda_choose(&tuning, &best));
        assert_int_equal(best, 1);
        assert_int_equal(counted.counts[0] + counted.counts[1], 0);
        yoke_algorithms_destroy(request.algorithms);
    }
}

static yoke_status refuse(void *context, int candidate) {
    (void)context, (void)candidate;
    return YOKE_ERROR_DEVICE;
}

static void a_candidate_that_does_not_serve_is_passed_over(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {0};
    CHECK(yoke_algorithms_create(&request.algorithms));
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
    yoke_algorithms_destroy(request.algorithms);
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
    CHECK(yoke_algorithms_create(&request.algorithms));
    const cuda_candidate candidates[] = {{"fails", fail_run}, {"clears", clear_run}};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), device};
    int best = -1;
    CHECK(cuda_choose(&tuning, &best));
    assert_int_equal(best, 1);
    yoke_algorithms_destroy(request.algorithms);
}

static void a_candidate_that_fails_otherwise_ends_the_contest(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {0};
    CHECK(yoke_algorithms_create(&request.algorithms));
    const cuda_candidate candidates[] = {{"one", count_run}};
    runs counted = {.status = YOKE_ERROR_SYSTEM};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), &counted};
    int best = -1;
    assert_int_equal(cuda_choose(&tuning, &best), YOKE_ERROR_SYSTEM);
    assert_int_equal(known_of(request.algorithms, "a shape float32"), -1);
    yoke_algorithms_destroy(request.algorithms);
}

static void a_candidate_that_cannot_be_recorded_does_not_win(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    yoke_plan_request request = {0};
    CHECK(yoke_algorithms_create(&request.algorithms));
    const cuda_candidate candidates[] = {{"waits", wait_run}, {"clears", clear_run}};
    cuda_tuning tuning = {device, &request, "a shape", candidates, COUNT(candidates), device};
    int best = -1;
    CHECK(cuda_choose(&tuning, &best));
    assert_int_equal(best, 1);
    yoke_algorithms_destroy(request.algorithms);
}

/* A contest's calls in their order. Candidate 0 is slow at first, as on a GPU whose clocks are low:
 * until `cold` calls are over. */
typedef struct diary {
    cuda_device *device;
    void *memory;
    int calls[256], count, cold;
} diary;

#define LONG_BYTES ((size_t)16 << 20)
#define MIDDLE_BYTES ((size_t)4 << 20)

static yoke_status note_run(void *context, int candidate) {
    diary *kept = context;
    bool cold = kept->count < kept->cold;
    size_t bytes = candidate == 1 ? MIDDLE_BYTES : cold ? LONG_BYTES : 16;
    if (kept->count < (int)COUNT(kept->calls)) kept->calls[kept->count] = candidate;
    kept->count++;
    return yoke_device_clear(&kept->device->base, YOKE_STREAM_COMPUTE, kept->memory, bytes);
}

/* The beginnings of runs: 0 0 1 1 0 is 0 1 0. */
static int changes(const diary *kept, int *order, int capacity) {
    int count = 0;
    for (int i = 0; i < kept->count && count < capacity; i++)
        if (count == 0 || order[count - 1] != kept->calls[i]) order[count++] = kept->calls[i];
    return count;
}

static int hold_contest(diary *kept) {
    const cuda_candidate candidates[] = {{"zero", note_run}, {"one", note_run}};
    yoke_plan_request request = {0};
    int best = -1;
    CHECK(yoke_algorithms_create(&request.algorithms));
    CHECK(yoke_device_allocate(&kept->device->base, LONG_BYTES, "a test", &kept->memory));
    cuda_tuning tuning = {kept->device, &request, "a shape", candidates, COUNT(candidates), kept};
    CHECK(cuda_choose(&tuning, &best));
    yoke_device_free(&kept->device->base, kept->memory);
    yoke_algorithms_destroy(request.algorithms);
    return best;
}

/* The trial of both takes six calls, and is slower than the other's by far more than CLOSE. */
static void a_candidate_that_was_slow_on_a_cold_gpu_still_wins(void **state) {
    diary kept = {.device = ((rig *)*state)->device, .cold = 6};
    assert_int_equal(hold_contest(&kept), 0);
}

static void work_precedes_two_heats_in_opposite_order(void **state) {
    diary kept = {.device = ((rig *)*state)->device, .cold = INT_MAX};
    int order[8];
    assert_int_equal(hold_contest(&kept), 1);
    /* The trial of each, the work of the better one, there and back. */
    static const int expected[] = {0, 1, 0, 1, 0};
    assert_int_equal(changes(&kept, order, COUNT(order)), COUNT(expected));
    assert_memory_equal(order, expected, sizeof expected);
    int worked = 0;
    while (kept.calls[6 + worked] == 1)
        worked++;
    assert_true(worked >= 10);
    assert_true(kept.device->contest_ended_ns > 0);
}

int main(void) {
    if (devices_gpus() == 0) return DEVICES_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_is_measured_once_and_then_known),
        cmocka_unit_test(a_fixed_choice_measures_nothing),
        cmocka_unit_test(a_preferred_candidate_is_taken_without_measuring),
        cmocka_unit_test(a_candidate_that_does_not_serve_is_passed_over),
        cmocka_unit_test(what_a_library_fails_at_is_passed_over),
        cmocka_unit_test(a_candidate_that_fails_otherwise_ends_the_contest),
        cmocka_unit_test(a_candidate_that_cannot_be_recorded_does_not_win),
        cmocka_unit_test(a_candidate_that_was_slow_on_a_cold_gpu_still_wins),
        cmocka_unit_test(work_precedes_two_heats_in_opposite_order),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
