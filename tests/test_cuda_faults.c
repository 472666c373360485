/* Every fallible call to CUDA, cuBLASLt, cuDNN and NCCL of a whole run on two simulated GPUs, from
 * opening devices to closing them, fails once, alone: the run ends with an error status, hangs
 * nowhere and leaves nothing behind. */
#include <unistd.h>

#include "engine_check.h"
#include "simcuda/control.h"

enum {
    ROWS = 4,
    STEPS = 3,
    SECONDS_LIMIT = 280,
};

typedef struct whole_run {
    yoke_data_parallel_options options;
    char file[64];
    yoke_model *model;
    check_batch batch;
} whole_run;

static yoke_status use_engine(yoke_data_parallel *parallel, const whole_run *run) {
    yoke_step_result result = {.struct_size = sizeof result};
    for (int step = 0; step < STEPS; step++)
        TRY(yoke_data_parallel_step(parallel, &run->batch.batch, 0, &result));
    TRY(yoke_data_parallel_evaluate(parallel, &run->batch.batch, &result));
    return yoke_weights_save(parallel, run->model, run->file);
}

static yoke_status run_whole(const whole_run *run) {
    static const yoke_optimizer_options sgd = {
        .struct_size = sizeof sgd, .learning_rate = 0.01, .momentum = 0.9, .clip_norm = 1};
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options list = {.struct_size = sizeof list, .list = "2xcuda"};
    TRY(yoke_devices_open(&devices, &list));
    yoke_status status =
        yoke_data_parallel_create(&parallel, run->model, devices, &sgd, &run->options);
    if (status == YOKE_OK) status = use_engine(parallel, run);
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return status;
}

/* Who frees can tell nobody that it failed, and what it was to free stays. */
static bool gives_back(const char *call) {
    return strstr(call, "Free") != NULL || strstr(call, "Destroy") != NULL ||
           strstr(call, "Finalize") != NULL || strstr(call, "Abort") != NULL;
}

/* Leaving and closing put the caller's GPU back, and have nobody to tell either. */
static bool puts_back(const char *call) {
    return strcmp(call, "cudaGetDevice") == 0 || strcmp(call, "cudaSetDevice") == 0;
}

/* Without peer access copies go through host memory; without a version there is none to tell. */
static bool can_do_without(const char *call) {
    return strstr(call, "Peer") != NULL || strstr(call, "GetVersion") != NULL;
}

typedef struct outcome {
    yoke_status status;
    char call[64]; /* that failed; "": the run made fewer */
    size_t left;   /* that was not there before */
} outcome;

static outcome fail_call(const whole_run *run, uint64_t index) {
    size_t before = simcuda_outstanding();
    simcuda_fail_call(index);
    outcome seen = {.status = run_whole(run)};
    const char *call = simcuda_failed_call();
    snprintf(seen.call, sizeof seen.call, "%s", call != NULL ? call : "");
    simcuda_fail_call(0);
    seen.left = simcuda_outstanding() - before;
    return seen;
}

static void check_outcome(const outcome *seen, uint64_t index) {
    bool may_pass = seen->call[0] == '\0' || gives_back(seen->call) || puts_back(seen->call) ||
                    can_do_without(seen->call);
    if (seen->status == YOKE_OK && !may_pass)
        fail_msg("call %llu, %s, failed and nobody was told", (unsigned long long)index,
                 seen->call);
    if (seen->call[0] == '\0' && seen->status != YOKE_OK)
        fail_msg("no call failed: %s", yoke_last_error());
    if (seen->left > gives_back(seen->call)) {
        simcuda_print_outstanding();
        fail_msg("call %llu, %s, failed and left %zu things", (unsigned long long)index, seen->call,
                 seen->left);
    }
}

static void fail_every_call(yoke_schedule schedule, yoke_collectives collectives) {
    whole_run run = {.options = {.struct_size = sizeof run.options,
                                 .schedule = schedule,
                                 .collectives = collectives,
                                 .algorithm = YOKE_ALGORITHM_DIRECT,
                                 .batch = ROWS,
                                 .bucket_bytes = 2048},
                     .model = check_model(true, 0),
                     .batch = check_batch_make(ROWS, 1)};
    snprintf(run.file, sizeof run.file, "/tmp/yoke-faults-%d", (int)getpid());
    EXPECT_OK(run_whole(&run)); /* what a process makes once and keeps is there now */
    uint64_t index = 0, survived = 0;
    outcome seen;
    do {
        seen = fail_call(&run, ++index);
        check_outcome(&seen, index);
        survived += seen.status == YOKE_OK;
    } while (seen.call[0] != '\0');
    assert_true(index > 100);
    print_message("%llu calls failed one by one; %llu of them cost nothing but what they were to "
                  "free\n",
                  (unsigned long long)index - 1, (unsigned long long)survived - 1);
    assert_int_equal(unlink(run.file), 0);
    check_batch_free(&run.batch);
    yoke_model_destroy(run.model);
}

static void every_failing_call_over_nccl_is_an_error_that_leaves_nothing(void **state) {
    (void)state;
    fail_every_call(YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_NCCL);
}

static void every_failing_call_over_copies_is_an_error_that_leaves_nothing(void **state) {
    (void)state;
    fail_every_call(YOKE_SCHEDULE_OVERLAP, YOKE_COLLECTIVES_COPY);
}

int main(void) {
    alarm(SECONDS_LIMIT); /* a run that hangs ends the test */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_call_over_nccl_is_an_error_that_leaves_nothing),
        cmocka_unit_test(every_failing_call_over_copies_is_an_error_that_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
