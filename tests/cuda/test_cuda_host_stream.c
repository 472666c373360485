/* SPDX-License-Identifier: Apache-2.0 */
/* A batch whose arrays a stream of the host program writes: the engine waits for the stream on the
 * devices, and the stream for the engine. No host thread waits in between, and the results have the
 * bits of arrays on the host. Under SIMCUDA_LATE nothing runs that nobody waits for. */
#include <cuda_runtime_api.h>

#include "simcuda/control.h"
#include "support/engine_check.h"

enum {
    ROWS = 6,
    STEPS = 3,
    INPUTS = ROWS * CHECK_ROW,
    OUTPUTS = ROWS * CHECK_CLASSES,
    FAULTS_LIMIT = 2000
};

#define CUDA_OK(call) assert_int_equal(call, cudaSuccess)

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .learning_rate = 0.05, .momentum = 0.9};

static check_engine make_engine(const yoke_model *model, int devices, yoke_schedule schedule) {
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .schedule = schedule,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = ROWS,
                                          .seed = 3,
                                          .input_gradients = true};
    return check_engine_make(model, devices, options, &sgd);
}

/* Arrays of one GPU, pinned ones beside them, and the stream that copies between them. */
typedef struct host {
    cudaStream_t stream;
    float *inputs, *outputs, *gradients, *slopes; /* of the GPU */
    int32_t *labels;
    float *pinned[STEPS + 1], *pinned_outputs, *pinned_slopes;
    int32_t *pinned_labels[STEPS + 1];
} host;

static void *gpu_memory(size_t bytes) {
    void *memory = NULL;
    CUDA_OK(cudaMalloc(&memory, bytes));
    return memory;
}

static void *pinned_memory(size_t bytes) {
    void *memory = NULL;
    CUDA_OK(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable));
    return memory;
}

static host open_host(int gpu) {
    host made = {0};
    CUDA_OK(cudaSetDevice(gpu));
    CUDA_OK(cudaStreamCreateWithFlags(&made.stream, cudaStreamNonBlocking));
    made.inputs = gpu_memory(INPUTS * sizeof(float));
    made.slopes = gpu_memory(INPUTS * sizeof(float));
    made.outputs = gpu_memory(OUTPUTS * sizeof(float));
    made.gradients = gpu_memory(OUTPUTS * sizeof(float));
    made.labels = gpu_memory(ROWS * sizeof(int32_t));
    for (int i = 0; i <= STEPS; i++) {
        made.pinned[i] = pinned_memory(INPUTS * sizeof(float));
        made.pinned_labels[i] = pinned_memory(ROWS * sizeof(int32_t));
    }
    made.pinned_outputs = pinned_memory(OUTPUTS * sizeof(float));
    made.pinned_slopes = pinned_memory(INPUTS * sizeof(float));
    return made;
}

static void close_host(host *made) {
    CUDA_OK(cudaStreamSynchronize(made->stream));
    CUDA_OK(cudaStreamDestroy(made->stream));
    void *const gpu[] = {made->inputs, made->slopes, made->outputs, made->gradients, made->labels};
    for (size_t i = 0; i < sizeof gpu / sizeof gpu[0]; i++)
        CUDA_OK(cudaFree(gpu[i]));
    for (int i = 0; i <= STEPS; i++) {
        CUDA_OK(cudaFreeHost(made->pinned[i]));
        CUDA_OK(cudaFreeHost(made->pinned_labels[i]));
    }
    CUDA_OK(cudaFreeHost(made->pinned_outputs));
    CUDA_OK(cudaFreeHost(made->pinned_slopes));
}

/* Queues the writing of batch `number`. */
static yoke_batch write_batch(const host *made, const check_batch *from, int number) {
    yoke_batch batch = from->batch;
    memcpy(made->pinned[number], from->inputs, INPUTS * sizeof(float));
    memcpy(made->pinned_labels[number], from->labels, ROWS * sizeof(int32_t));
    CUDA_OK(cudaMemcpyAsync(made->inputs, made->pinned[number], INPUTS * sizeof(float),
                            cudaMemcpyHostToDevice, made->stream));
    CUDA_OK(cudaMemcpyAsync(made->labels, made->pinned_labels[number], ROWS * sizeof(int32_t),
                            cudaMemcpyHostToDevice, made->stream));
    batch.inputs = made->inputs;
    batch.labels = made->labels;
    batch.stream = made->stream;
    return batch;
}

/* Writes NaN over an array that the engine has had. */
static void spoil(const host *made, void *memory, size_t bytes) {
    CUDA_OK(cudaMemsetAsync(memory, 0xff, bytes, made->stream));
}

/* Whole steps. */

static uint64_t train(const yoke_model *model, int devices, yoke_schedule schedule, int gpu) {
    uint64_t hash = 0;
    host own = {0};
    check_engine engine = make_engine(model, devices, schedule);
    if (gpu >= 0) own = open_host(gpu);
    for (int step = 0; step < STEPS; step++) {
        yoke_step_result result = {.struct_size = sizeof result};
        check_batch rows = check_batch_make(ROWS, (uint32_t)step + 1);
        yoke_batch batch = gpu >= 0 ? write_batch(&own, &rows, step) : rows.batch;
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                          &result));
        if (gpu >= 0) spoil(&own, own.inputs, INPUTS * sizeof(float));
        check_batch_free(&rows);
    }
    EXPECT_OK(yoke_data_parallel_hash(engine.parallel, &hash));
    if (gpu >= 0) close_host(&own);
    check_engine_free(&engine);
    return hash;
}

/* The stream of the first GPU, and of the last. */
static void steps_have_the_bits_of_arrays_on_the_host(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0.2);
    for (int devices = 1; devices <= 2; devices++)
        for (int schedule = 0; schedule <= YOKE_SCHEDULE_SHARDED; schedule++) {
            uint64_t expected = train(model, devices, (yoke_schedule)schedule, -1);
            for (int gpu = 0; gpu < devices && gpu < devices_gpus(); gpu++)
                assert_true(train(model, devices, (yoke_schedule)schedule, gpu) == expected);
        }
    yoke_model_destroy(model);
}

/* By hand. */

typedef struct passed {
    float outputs[OUTPUTS], slopes[INPUTS], weight[CHECK_CLASSES * 8];
} passed;

static void read_weight(yoke_data_parallel *parallel, passed *found) {
    EXPECT_OK(
        yoke_data_parallel_read_gradient(parallel, "fc.weight", found->weight, CHECK_CLASSES * 8));
}

static void pass_on_host(yoke_data_parallel *parallel, const check_batch *rows,
                         const float *gradients, passed *found) {
    EXPECT_OK(yoke_data_parallel_forward(parallel, &rows->batch, true, found->outputs));
    EXPECT_OK(yoke_data_parallel_backward(parallel, gradients));
    EXPECT_OK(yoke_data_parallel_read_input_gradients(parallel, found->slopes));
    read_weight(parallel, found);
}

/* Everything is queued behind each other; every array is overwritten once it is handed over. */
static void pass_by_stream(yoke_data_parallel *parallel, const host *own, const check_batch *rows,
                           const float *gradients, passed *found) {
    yoke_batch batch = write_batch(own, rows, 0);
    batch.labels = NULL; /* the loss is the program's */
    EXPECT_OK(yoke_data_parallel_forward(parallel, &batch, true, own->outputs));
    spoil(own, own->inputs, INPUTS * sizeof(float));
    CUDA_OK(cudaMemcpyAsync(own->pinned_outputs, own->outputs, OUTPUTS * sizeof(float),
                            cudaMemcpyDeviceToHost, own->stream));
    memcpy(own->pinned[1], gradients, OUTPUTS * sizeof(float));
    CUDA_OK(cudaMemcpyAsync(own->gradients, own->pinned[1], OUTPUTS * sizeof(float),
                            cudaMemcpyHostToDevice, own->stream));
    EXPECT_OK(yoke_data_parallel_backward(parallel, own->gradients));
    spoil(own, own->gradients, OUTPUTS * sizeof(float));
    EXPECT_OK(yoke_data_parallel_read_input_gradients(parallel, own->slopes));
    CUDA_OK(cudaMemcpyAsync(own->pinned_slopes, own->slopes, INPUTS * sizeof(float),
                            cudaMemcpyDeviceToHost, own->stream));
    CUDA_OK(cudaStreamSynchronize(own->stream));
    memcpy(found->outputs, own->pinned_outputs, sizeof found->outputs);
    memcpy(found->slopes, own->pinned_slopes, sizeof found->slopes);
    read_weight(parallel, found);
}

static void by_hand_nobody_waits_but_the_streams(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    for (int devices = 1; devices <= 2; devices++) {
        static passed expected, found;
        float gradients[OUTPUTS];
        check_batch rows = check_batch_make(ROWS, 1);
        check_engine engine = make_engine(model, devices, YOKE_SCHEDULE_OVERLAP);
        host own = open_host(devices == 2 && devices_gpus() > 1);
        for (int i = 0; i < OUTPUTS; i++)
            gradients[i] = (float)check_noise((uint32_t)i);
        pass_on_host(engine.parallel, &rows, gradients, &expected);
        pass_by_stream(engine.parallel, &own, &rows, gradients, &found);
        assert_memory_equal(found.outputs, expected.outputs, sizeof found.outputs);
        assert_memory_equal(found.slopes, expected.slopes, sizeof found.slopes);
        assert_memory_equal(found.weight, expected.weight, sizeof found.weight);
        close_host(&own);
        check_engine_free(&engine);
        check_batch_free(&rows);
    }
    yoke_model_destroy(model);
}

static double loss_by_stages(yoke_data_parallel *parallel, const yoke_batch *batch,
                             const host *own) {
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_scatter(parallel, batch));
    if (own != NULL) spoil(own, own->inputs, INPUTS * sizeof(float));
    if (own != NULL) CUDA_OK(cudaStreamSynchronize(own->stream));
    EXPECT_OK(yoke_data_parallel_replicate(parallel));
    EXPECT_OK(yoke_data_parallel_forward_replicas(parallel, false));
    EXPECT_OK(yoke_data_parallel_loss_replicas(parallel));
    EXPECT_OK(yoke_data_parallel_gather(parallel, &result));
    return result.loss;
}

static void arrays_may_be_written_behind_scatter(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_batch rows = check_batch_make(ROWS, 1);
    for (int devices = 1; devices <= 2; devices++) {
        check_engine engine = make_engine(model, devices, YOKE_SCHEDULE_OVERLAP);
        host own = open_host(0);
        double expected = loss_by_stages(engine.parallel, &rows.batch, NULL);
        yoke_batch batch = write_batch(&own, &rows, 0);
        assert_true(loss_by_stages(engine.parallel, &batch, &own) == expected);
        close_host(&own);
        check_engine_free(&engine);
    }
    check_batch_free(&rows);
    yoke_model_destroy(model);
}

/* A download to it is only queued. */
static void outputs_in_pinned_memory_are_complete_when_the_call_returns(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_batch rows = check_batch_make(ROWS, 1);
    check_engine engine = make_engine(model, 1, YOKE_SCHEDULE_OVERLAP);
    float expected[OUTPUTS], *pinned = pinned_memory(sizeof expected);
    float found[OUTPUTS];
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &rows.batch, false, expected));
    memset(pinned, 0, sizeof found);
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &rows.batch, false, pinned));
    memcpy(found, pinned, sizeof found);
    assert_memory_equal(found, expected, sizeof found);
    CUDA_OK(cudaFreeHost(pinned));
    check_engine_free(&engine);
    check_batch_free(&rows);
    yoke_model_destroy(model);
}

/* Errors. */

static void a_stream_of_another_gpu_is_refused(void **state) {
    (void)state;
    if (devices_gpus() < 2) skip();
    yoke_model *model = check_model(true, 0);
    check_batch rows = check_batch_make(ROWS, 1);
    check_engine engine = make_engine(model, 1, YOKE_SCHEDULE_OVERLAP);
    cudaStream_t other;
    CUDA_OK(cudaSetDevice(1));
    CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    yoke_batch batch = rows.batch;
    batch.stream = other;
    assert_int_equal(yoke_data_parallel_evaluate(engine.parallel, &batch, NULL),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "the batch's stream is not one of cuda:0"));
    batch.stream = NULL;
    EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &batch, NULL));
    CUDA_OK(cudaStreamDestroy(other));
    check_engine_free(&engine);
    check_batch_free(&rows);
    yoke_model_destroy(model);
}

/* Fails call `index` of a step, a forward and a backward. */
static yoke_status fail_call(const yoke_model *model, const check_batch *rows, uint64_t index,
                             char call[64]) {
    check_engine engine = make_engine(model, 2, YOKE_SCHEDULE_OVERLAP);
    host own = open_host(0);
    yoke_batch batch = write_batch(&own, rows, 0);
    CUDA_OK(cudaMemsetAsync(own.gradients, 0, OUTPUTS * sizeof(float), own.stream));
    simcuda_fail_call(index);
    yoke_status status = yoke_data_parallel_forward(engine.parallel, &batch, true, own.outputs);
    if (status == YOKE_OK) status = yoke_data_parallel_backward(engine.parallel, own.gradients);
    if (status == YOKE_OK)
        status = yoke_data_parallel_read_input_gradients(engine.parallel, own.slopes);
    snprintf(call, 64, "%s", simcuda_failed_call() != NULL ? simcuda_failed_call() : "");
    simcuda_fail_call(0);
    CUDA_OK(cudaDeviceSynchronize());
    check_engine_free(&engine);
    close_host(&own);
    return status;
}

static void every_failing_order_of_streams_is_an_error(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_batch rows = check_batch_make(ROWS, 1);
    size_t before = simcuda_outstanding();
    int orders = 0;
    char call[64] = "none";
    for (uint64_t index = 1; call[0] != '\0' && index < FAULTS_LIMIT; index++) {
        yoke_status status = fail_call(model, &rows, index, call);
        bool ordered = strcmp(call, "cudaEventRecordWithFlags") == 0 ||
                       strcmp(call, "cudaStreamWaitEvent") == 0;
        if (ordered && status == YOKE_OK) fail_msg("call %d, %s, told nobody", (int)index, call);
        orders += ordered;
        assert_int_equal(simcuda_outstanding(), before);
        if (call[0] == '\0') assert_int_equal(status, YOKE_OK);
    }
    assert_string_equal(call, "");
    assert_true(orders > 10);
    check_batch_free(&rows);
    yoke_model_destroy(model);
}

int main(void) {
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_the_bits_of_arrays_on_the_host),
        cmocka_unit_test(by_hand_nobody_waits_but_the_streams),
        cmocka_unit_test(arrays_may_be_written_behind_scatter),
        cmocka_unit_test(outputs_in_pinned_memory_are_complete_when_the_call_returns),
        cmocka_unit_test(a_stream_of_another_gpu_is_refused),
        cmocka_unit_test(every_failing_order_of_streams_is_an_error),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
