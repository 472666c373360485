/* SPDX-License-Identifier: Apache-2.0 */
/* A call to CUDA or NCCL fails in one rank: both ranks end soon and leak nothing. */
#include "support/ddp_check.h"
#undef EXPECT_OK
#include "gpu_ranks.h"

#include "simcuda/control.h"

/* Of the calls that fail, one after another. How many there are depends on how often ranks look
 * whether others have come. */
enum { LAST = 100, APART = 4 };

/* What a step of training asks of its group. */
static yoke_status use_group(yoke_process_group *group, float *gpu) {
    double loss[2] = {1, 2};
    for (int bucket = 0; bucket < 3; bucket++) {
        TRY(yoke_process_group_all_reduce_async(group, gpu + bucket * 100, 100));
        TRY(yoke_process_group_progress(group));
    }
    TRY(yoke_process_group_synchronize(group));
    TRY(yoke_process_group_all_reduce(group, gpu, 100, YOKE_ELEMENT_FLOAT32, YOKE_SUM));
    TRY(yoke_process_group_all_reduce(group, loss, 2, YOKE_ELEMENT_INT64, YOKE_SUM));
    return yoke_process_group_barrier(group);
}

static yoke_status one_step(yoke_process_group *group, const script *play) {
    yoke_device *device = gpu_of(play, group->rank);
    void *gpu = NULL;
    TRY(yoke_device_allocate_collective(device, 1200, "a test", &gpu));
    yoke_process_group_expect(group, gpu, 1200);
    yoke_error error = yoke_error_take(use_group(group, gpu));
    yoke_process_group_forget(group, gpu);
    yoke_device_free(device, gpu);
    return yoke_error_restore(&error);
}

/* On GPUs opened for it: a failure may be one that they can't forget. */
static outcome *play_failing(uint64_t call) {
    gpu_ranks gpus;
    open_gpus(&gpus, 2);
    const script play = {.world = 2,
                         .timeout_ms = 3000,
                         .joining_ms = 3000,
                         .scene = one_step,
                         .devices = gpus.devices};
    simcuda_fail_call(call);
    outcome *outcomes = play_threads(&play);
    close_gpus(&gpus);
    return outcomes;
}

/* Planted at any call, a failure ends both ranks within the deadline, unless it was one that nobody
 * needs to hear of. */
static void a_failing_call_ends_both_ranks(void **state) {
    (void)state;
    int planted = 0, told = 0;
    for (uint64_t call = 1; call <= LAST; call += APART) {
        uint64_t begin = yoke_now_ns();
        outcome *outcomes = play_failing(call);
        if (yoke_now_ns() - begin > TIMEOUT_MS / 2 * UINT64_C(1000000))
            fail_msg("call %llu took too long", (unsigned long long)call);
        int failed = 0;
        for (int rank = 0; rank < 2; rank++)
            failed += outcomes[rank].error.status != YOKE_OK;
        planted += simcuda_failed_call() != NULL;
        told += failed == 2;
        if (simcuda_outstanding() > 0) {
            simcuda_print_outstanding();
            fail_msg("call %llu left something behind", (unsigned long long)call);
        }
        free(outcomes);
    }
    simcuda_fail_call(0);
    if (planted < 5 || told > planted || told < planted / 2)
        fail_msg("%d planted, %d told", planted, told);
}

/* What is planted in NCCL's calls is settled when a process begins: this test again, in one of its
 * own. */
static bool is_child(const char *test, const char *fault) {
    if (getenv("SIMCUDA_FAULT") != NULL) return true;
    pid_t child = fork();
    if (child == 0) {
        setenv("SIMCUDA_FAULT", fault, 1);
        execl("/proc/self/exe", test, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("%s: see above", test);
    return false;
}

static void every_rank_reports_an_nccl_error_that_one_saw(void **state) {
    (void)state;
    if (!is_child(__func__, "ncclAllReduce@3=6")) return;
    uint64_t begin = yoke_now_ns();
    outcome *outcomes = play_failing(0);
    assert_true(yoke_now_ns() - begin < TIMEOUT_MS / 2 * UINT64_C(1000000));
    for (int rank = 0; rank < 2; rank++) {
        if (outcomes[rank].error.status != YOKE_ERROR_DEVICE ||
            strstr(outcomes[rank].error.text, "ncclAllReduce: remote process exited") == NULL ||
            strcmp(outcomes[0].error.text, outcomes[rank].error.text) != 0)
            fail_msg("rank %d: %s", rank, outcomes[rank].error.text);
    }
    free(outcomes);
}

/* NCCL's memory of gradients and weights, which is known to it while the engine lives. Two engines
 * one after another leave nothing registered; a group may know more buffers than it has room for.
 */
static yoke_status train_twice(yoke_process_group *group, const script *play) {
    const course *plan = play->detail;
    TRY(train_rank(group, play));
    free(plan->records[group->rank].weights);
    plan->records[group->rank].weights = NULL;
    return train_rank(group, play);
}

static void gradients_of_ranks_are_registered_while_they_train(void **state) {
    (void)state;
    enum { WORLD = 2, ENGINES = 2 };
    const ddp_setting s = {.batch = 8, .accumulate = 1, .steps = 3};
    record records[WORLD] = {0};
    yoke_model *model = check_model(true, 0);
    course plan = {.setting = &s, .model = model, .records = records};
    simcuda_fail_call(0);
    play_well(
        (script){.world = WORLD, .timeout_ms = TIMEOUT_MS, .scene = train_twice, .detail = &plan});
    assert_int_equal(simcuda_calls_of("ncclCommRegister"), WORLD * ENGINES);
    assert_int_equal(simcuda_calls_of("ncclCommDeregister"), WORLD * ENGINES);
    assert_int_equal(simcuda_calls_of("ncclMemAlloc"), 2 * WORLD * ENGINES);
    assert_int_equal(simcuda_calls_of("ncclMemFree"), 2 * WORLD * ENGINES);
    free_records(records, WORLD);
    yoke_model_destroy(model);
}

static yoke_status expect_many(yoke_process_group *group, const script *play) {
    enum { BUFFERS = 12 };
    yoke_device *device = gpu_of(play, group->rank);
    void *gpu = NULL;
    TRY(yoke_device_allocate(device, BUFFERS * 256, "a test", &gpu));
    for (size_t i = 0; i < BUFFERS; i++)
        yoke_process_group_expect(group, (char *)gpu + i * 256, 256);
    yoke_status status = use_group(group, gpu);
    for (size_t i = 0; i < BUFFERS / 2; i++)
        yoke_process_group_forget(group, (char *)gpu + i * 256);
    yoke_device_free(device, gpu);
    return status; /* the group gives back the rest */
}

static void a_group_takes_more_buffers_than_it_registers(void **state) {
    (void)state;
    simcuda_fail_call(0);
    play_well((script){.world = 2, .timeout_ms = TIMEOUT_MS, .scene = expect_many});
    assert_int_equal(simcuda_calls_of("ncclCommRegister"), 2 * 8);
    assert_int_equal(simcuda_calls_of("ncclCommDeregister"), 2 * 8);
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_call_ends_both_ranks),
        cmocka_unit_test(gradients_of_ranks_are_registered_while_they_train),
        cmocka_unit_test(a_group_takes_more_buffers_than_it_registers),
        cmocka_unit_test(every_rank_reports_an_nccl_error_that_one_saw),
    };
    if (getenv("SIMCUDA_FAULT") != NULL && count > 0) cmocka_set_test_filter(arguments[0]);
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
