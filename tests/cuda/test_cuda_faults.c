/* SPDX-License-Identifier: Apache-2.0 */
/* A whole run on two simulated GPUs, from opening the devices to closing them. Each call to
 * CUDA, cuBLASLt, cuDNN and NCCL fails once, alone: the run ends with an error status, never hangs
 * and leaks nothing. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simcuda/control.h"
#include "support/engine_check.h"

/* The simulator never gives an address out twice, so runs share a process a few at a time. */
enum {
    ROWS = 4,
    STEPS = 3,
    SECONDS_LIMIT = 600,
    KINDS = 128,
    RUNS_A_PROCESS = 40,
    CACHE_BYTES = 1 << 16
};

/* What failures of one call came to. */
typedef struct outcome {
    char call[64];
    int failed, untold; /* untold: the run went well all the same */
} outcome;

/* Shared by the processes. */
typedef struct outcomes {
    outcome of[KINDS];
    int count, failed, untold;
    bool finished; /* a run made fewer calls than the one that was to fail */
} outcomes;

typedef struct whole_run {
    yoke_data_parallel_options options;
    yoke_model *model;
    check_batch batch;
    char file[64], cache[64]; /* cache "": a fixed rule chooses algorithms */
    char *choices;            /* what the cache holds before each run */
    size_t choices_bytes;
    uint64_t calls_before_closing;
    outcomes *all;
} whole_run;

/* conv - batch norm - relu - global pool - linear - GELU - linear */
static yoke_model *small_model(void) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "smallest",
                                (yoke_shape){CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false}));
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = "conv",
                                .out_channels = 8,
                                .kernel = 3,
                                .no_bias = true};
    yoke_batch_norm_options norm = {
        .struct_size = sizeof norm, .name = "norm", .epsilon = 1e-5, .momentum = 0.1};
    yoke_linear_options hidden = {
        .struct_size = sizeof hidden, .name = "hidden", .out_features = 8};
    yoke_linear_options fc = {
        .struct_size = sizeof fc, .name = "fc", .out_features = CHECK_CLASSES};
    yoke_value x = yoke_conv2d(model, yoke_model_input(model), &conv);
    x = yoke_global_average_pool(model, yoke_relu(model, yoke_batch_norm(model, x, &norm)));
    x = yoke_gelu_tanh(model, yoke_linear(model, yoke_flatten(model, x), &hidden));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, x, &fc), NULL));
    return model;
}

/* Black pictures for the devices to decode, with the labels of `batch`. */
static yoke_batch stored_as(const yoke_batch *batch) {
    static const uint8_t pixels[ROWS * CHECK_ROW];
    static const yoke_placement placements[ROWS];
    static const yoke_decoding decoding = {.struct_size = sizeof decoding, .std = {1, 1, 1, 1}};
    yoke_batch stored = *batch;
    stored.inputs = NULL;
    stored.pixels = pixels;
    stored.placements = placements;
    stored.decoding = &decoding;
    return stored;
}

static yoke_status use_engine(yoke_data_parallel *parallel, const whole_run *run) {
    yoke_step_result result = {.struct_size = sizeof result};
    for (int step = 0; step < STEPS; step++)
        TRY(yoke_data_parallel_step(parallel, &run->batch.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                    &result));
    yoke_batch stored = stored_as(&run->batch.batch);
    TRY(yoke_data_parallel_evaluate(parallel, &stored, &result));
    return yoke_weights_save(parallel, run->model, run->file);
}

/* A run whose failure left a choice out has written another one. */
static void restore_cache(const whole_run *run) {
    if (run->choices == NULL) return;
    FILE *file = fopen(run->cache, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(run->choices, 1, run->choices_bytes, file), run->choices_bytes);
    assert_int_equal(fclose(file), 0);
}

static yoke_status run_whole(whole_run *run) {
    static const yoke_optimizer_options sgd = {
        .struct_size = sizeof sgd, .learning_rate = 0.01, .momentum = 0.9, .clip_norm = 1};
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_devices_options list = {.struct_size = sizeof list, .list = "2xcuda"};
    restore_cache(run);
    TRY(yoke_devices_open(&devices, &list));
    yoke_status status =
        yoke_data_parallel_create(&parallel, run->model, devices, &sgd, &run->options);
    if (status == YOKE_OK) status = use_engine(parallel, run);
    run->calls_before_closing = simcuda_calls_so_far();
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    return status;
}

/* What it was to free stays. */
static bool gives_back(const char *call) {
    return strstr(call, "Free") != NULL || strstr(call, "Destroy") != NULL ||
           strstr(call, "Finalize") != NULL || strstr(call, "Abort") != NULL;
}

/* Who frees can tell nobody; copies without peer access go through host memory; a way to compute a
 * product that does not serve, or can't be recorded, is passed over; a version may be unknown. */
static bool may_stay_untold(const whole_run *run, uint64_t index, const char *call) {
    static const char *const passed_over[] = {"Peer", "cudnn", "cublasLtM", "Capture",
                                              "GetVersion"};
    if (index > run->calls_before_closing || gives_back(call)) return true;
    /* With all choices known only steps run plans. The file of choices names the machine, of which
     * a GPU that does not answer is left out. */
    if (run->choices != NULL && strcmp(call, "cudnnBackendExecute") == 0) return false;
    if (run->choices != NULL && strcmp(call, "cudaFuncGetAttributes") == 0) return true;
    for (size_t i = 0; i < sizeof passed_over / sizeof passed_over[0]; i++)
        if (strstr(call, passed_over[i]) != NULL) return true;
    return false;
}

static void note(outcomes *all, const char *call, bool untold) {
    int i = 0;
    while (i < all->count && strcmp(all->of[i].call, call) != 0)
        i++;
    assert_true(i < KINDS);
    if (i == all->count) snprintf(all->of[all->count++].call, sizeof all->of[i].call, "%s", call);
    all->of[i].failed++;
    all->of[i].untold += untold;
    all->failed++;
}

static void complain(uint64_t index, const char *call, const char *what) {
    fprintf(stderr, "call %llu, %s, failed: %s\n", (unsigned long long)index, call, what);
    exit(1);
}

/* Fails call `index` of a run. */
static void fail_call(whole_run *run, uint64_t index) {
    char call[64];
    size_t before = simcuda_outstanding();
    simcuda_fail_call(index);
    yoke_status status = run_whole(run);
    run->all->finished = simcuda_failed_call() == NULL;
    snprintf(call, sizeof call, "%s", run->all->finished ? "none" : simcuda_failed_call());
    simcuda_fail_call(0);
    if (simcuda_outstanding() > before + gives_back(call)) {
        simcuda_print_outstanding();
        complain(index, call, "the above is left");
    }
    if (run->all->finished && status != YOKE_OK) complain(index, call, yoke_last_error());
    if (run->all->finished) return;
    bool untold = status == YOKE_OK;
    if (untold && may_stay_untold(run, index, call)) {
        untold = false;
        run->all->untold++;
    }
    note(run->all, call, untold);
}

/* YOKE_TEST_EVERY=7: every seventh call fails; unset: each. */
static uint64_t stride(void) {
    const char *every = getenv("YOKE_TEST_EVERY");
    return every != NULL ? (uint64_t)atoi(every) : 1;
}

/* In a process of its own. */
static void fail_some(whole_run *run, uint64_t first) {
    alarm(SECONDS_LIMIT); /* a run that hangs ends the test */
    simcuda_fail_call(0);
    if (run_whole(run) != YOKE_OK) complain(0, "none", yoke_last_error());
    for (int i = 0; i < RUNS_A_PROCESS && !run->all->finished; i++)
        fail_call(run, first + (uint64_t)i * stride());
    check_batch_free(&run->batch);
    yoke_model_destroy(run->model);
    exit(0); /* through the leak check */
}

/* The caller's GPU is looked up and put back around what is freed, too: less than half of all
 * times. The order of the threads decides which calls a stride meets, so a few failures may all be
 * such calls. Without NCCL's own memory, or unregistered, a run goes as well; where a machine
 * cannot be described, the plans that a file keeps for it are measured again. */
static bool is_told(const outcome *of) {
    enum { ENOUGH = 40 };
    static const char *const does_without[] = {"ncclMemAlloc",       "ncclMemFree",
                                               "ncclCommRegister",   "ncclCommDeregister",
                                               "cudaGetDeviceCount", "cudaGetDeviceProperties",
                                               "cudaMemGetInfo"};
    for (size_t i = 0; i < sizeof does_without / sizeof does_without[0]; i++)
        if (strcmp(of->call, does_without[i]) == 0) return true;
    if (strcmp(of->call, "cudaSetDevice") == 0 || strcmp(of->call, "cudaGetDevice") == 0)
        return of->failed < ENOUGH || of->untold * 2 < of->failed;
    return of->untold == 0;
}

static void check_outcomes(const outcomes *all) {
    int untold = 0;
    for (int i = 0; i < all->count; i++) {
        if (is_told(&all->of[i])) continue;
        print_error("%s failed %d times, and %d times nobody was told\n", all->of[i].call,
                    all->of[i].failed, all->of[i].untold);
        untold++;
    }
    assert_int_equal(untold, 0);
    assert_true((uint64_t)all->failed > 500 / stride() && all->count > 20);
    print_message("%d calls, of %d kinds, failed one by one; %d did no harm\n", all->failed,
                  all->count, all->untold);
}

/* Measures in a process of its own, and reads what that kept. */
static void fill_cache(whole_run *run) {
    int how;
    snprintf(run->cache, sizeof run->cache, "/tmp/yoke-faults-%d-choices", (int)getpid());
    run->options.algorithm = YOKE_ALGORITHM_MEASURED;
    run->options.algorithm_cache = run->cache;
    run->options.precision = YOKE_BFLOAT16;
    fflush(stdout);
    pid_t process = fork();
    if (process == 0) exit(run_whole(run) != YOKE_OK);
    assert_int_equal(waitpid(process, &how, 0), process);
    assert_int_equal(how, 0);
    FILE *file = fopen(run->cache, "rb");
    assert_non_null(file);
    run->choices = test_calloc(1, CACHE_BYTES);
    run->choices_bytes = fread(run->choices, 1, CACHE_BYTES - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(run->choices, "cuDNN plan eng1_"));
    assert_non_null(strstr(run->choices, "matrix product with GELU and its input "));
    assert_non_null(strstr(run->choices, "matrix product, gradient of GELU "));
}

static void fail_every_call(yoke_collectives collectives, bool known) {
    whole_run run = {.options = {.struct_size = sizeof run.options,
                                 .collectives = collectives,
                                 .algorithm = YOKE_ALGORITHM_DIRECT,
                                 .precision = collectives == YOKE_COLLECTIVES_NCCL ? YOKE_BFLOAT16
                                                                                   : YOKE_FLOAT32,
                                 .batch = ROWS,
                                 .bucket_bytes = 1024},
                     .model = small_model(),
                     .batch = check_batch_make(ROWS, 1)};
    snprintf(run.file, sizeof run.file, "/tmp/yoke-faults-%d", (int)getpid());
    if (known) fill_cache(&run);
    run.all =
        mmap(NULL, sizeof *run.all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(run.all, MAP_FAILED);
    for (uint64_t first = 1; !run.all->finished; first += RUNS_A_PROCESS * stride()) {
        fflush(stdout);
        pid_t process = fork();
        if (process == 0) fail_some(&run, first);
        int how;
        assert_int_equal(waitpid(process, &how, 0), process);
        if (how != 0)
            fail_msg("a failure of call %llu to %llu ended the process: %#x",
                     (unsigned long long)first,
                     (unsigned long long)(first + RUNS_A_PROCESS * stride() - 1), (unsigned)how);
    }
    check_outcomes(run.all);
    munmap(run.all, sizeof *run.all);
    assert_int_equal(unlink(run.file), 0);
    if (known) assert_int_equal(unlink(run.cache), 0);
    test_free(run.choices);
    check_batch_free(&run.batch);
    yoke_model_destroy(run.model);
}

/* In bfloat16, whose weights travel in 16 bits. */
static void every_failing_call_over_nccl_is_an_error_that_leaves_nothing(void **state) {
    (void)state;
    fail_every_call(YOKE_COLLECTIVES_NCCL, false);
}

static void every_failing_call_over_copies_is_an_error_that_leaves_nothing(void **state) {
    (void)state;
    fail_every_call(YOKE_COLLECTIVES_COPY, false);
}

/* The choices of a run in bfloat16, with a plan of cuDNN's backend and the epilogues of a GELU
 * among them. */
static void every_failing_call_of_known_plans_is_an_error_that_leaves_nothing(void **state) {
    (void)state;
    fail_every_call(YOKE_COLLECTIVES_COPY, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_call_over_nccl_is_an_error_that_leaves_nothing),
        cmocka_unit_test(every_failing_call_over_copies_is_an_error_that_leaves_nothing),
        cmocka_unit_test(every_failing_call_of_known_plans_is_an_error_that_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
