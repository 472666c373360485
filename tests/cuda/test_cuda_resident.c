/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that a host program has made in memory of GPUs, and outputs and gradients that it wants
 * left there: the bits are those of host memory. */
#include <cuda_runtime_api.h>

#include "parallel/siamese.h"

enum { STEPS = 3, PLACES = 4, ROWS_BY_HAND = 6 };

#define CUDA_OK(call) assert_int_equal(call, cudaSuccess)

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .learning_rate = 0.05, .momentum = 0.9};

static yoke_data_parallel_options options_of(yoke_schedule schedule, int accumulate) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = MAX_ROWS,
                                        .accumulate = accumulate,
                                        .seed = 3,
                                        .first_bucket_bytes = 256,
                                        .bucket_bytes = 512,
                                        .input_gradients = accumulate == 1};
}

/* The host program's own memory, as cudaMalloc gives it. */

static int gpu_of(int device) {
    return device % devices_gpus();
}

static void *gpu_memory(int gpu, size_t bytes) {
    void *memory = NULL;
    CUDA_OK(cudaSetDevice(gpu));
    CUDA_OK(cudaMalloc(&memory, bytes));
    return memory;
}

/* Complete when it returns, as the engine expects. */
static void *gpu_copy(int gpu, const void *values, size_t bytes) {
    void *memory = gpu_memory(gpu, bytes);
    CUDA_OK(cudaMemcpy(memory, values, bytes, cudaMemcpyHostToDevice));
    return memory;
}

/* In a stream of its own, which waits for none of the engine's. */
static void gpu_move(int gpu, void *to, const void *from, size_t bytes) {
    cudaStream_t stream;
    CUDA_OK(cudaSetDevice(gpu));
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaStreamDestroy(stream));
}

/* On which device each array of a batch lies; -1: on the host. */
typedef struct places {
    int left, right, wanted; /* wanted: labels or targets */
} places;

typedef struct resident {
    pair_batch host;
    yoke_batch batch;
    float values[MAX_ROWS * PAIR_CLASSES]; /* targets */
    const float *more[1];
    void *memory[3];
    int count;
} resident;

static const void *place(resident *made, int device, const void *values, size_t bytes) {
    if (device < 0) return values;
    return made->memory[made->count++] = gpu_copy(gpu_of(device), values, bytes);
}

static void resident_make(resident *made, int rows, uint32_t stream, places at, bool regression) {
    size_t image = (size_t)rows * PAIR_ROW * sizeof(float);
    memset(made, 0, sizeof *made);
    pair_batch_make(&made->host, rows, stream);
    made->batch = made->host.batch;
    made->batch.inputs = place(made, at.left, made->host.left, image);
    made->more[0] = place(made, at.right, made->host.right, image);
    made->batch.more_inputs = made->more;
    fill(made->values, (size_t)rows * PAIR_CLASSES, TARGET_STREAM + stream, 1, 0);
    if (regression)
        made->batch.targets =
            place(made, at.wanted, made->values, (size_t)rows * PAIR_CLASSES * sizeof(float));
    else
        made->batch.labels =
            place(made, at.wanted, made->host.labels, (size_t)rows * sizeof(int32_t));
    if (regression) made->batch.labels = NULL;
}

static void resident_free(resident *made) {
    while (made->count > 0)
        CUDA_OK(cudaFree(made->memory[--made->count]));
}

/* Whole steps. */

typedef struct course {
    int devices, accumulate;
    yoke_schedule schedule;
    bool regression;
} course;

static uint64_t train(const course *plan, const yoke_model *model, places at) {
    uint64_t hash = 0;
    check_engine engine =
        check_engine_make(model, plan->devices, options_of(plan->schedule, plan->accumulate), &sgd);
    for (int step = 0; step < STEPS; step++) {
        resident rows;
        yoke_step_result result = {.struct_size = sizeof result};
        resident_make(&rows, step == 1 ? 5 : MAX_ROWS, (uint32_t)step, at, plan->regression);
        must(yoke_data_parallel_step(engine.parallel, &rows.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                     &result));
        must(yoke_data_parallel_evaluate(engine.parallel, &rows.batch, &result));
        resident_free(&rows);
    }
    must(yoke_data_parallel_hash(engine.parallel, &hash));
    check_engine_free(&engine);
    return hash;
}

static void check_course(const course *plan) {
    const places at[PLACES] = {
        {0, 0, 0}, {1, 1, 1}, {plan->devices - 1, -1, 0}, {-1, plan->devices - 1, 1}};
    yoke_model *model =
        siamese_model((siamese_options){.dropout = 0.2, .regression = plan->regression});
    uint64_t host = train(plan, model, (places){-1, -1, -1});
    for (int i = 0; i < PLACES; i++) {
        places known = at[i];
        if (plan->devices == 1) known = (places){at[i].left >= 0 ? 0 : -1, 0, 0};
        uint64_t hash = train(plan, model, known);
        if (hash != host)
            fail_msg("%d devices, schedule %d, accumulate %d, places %d: other weights",
                     plan->devices, (int)plan->schedule, plan->accumulate, i);
    }
    yoke_model_destroy(model);
}

static void a_batch_on_gpus_gives_the_bits_of_one_on_the_host(void **state) {
    (void)state;
    for (int devices = 1; devices <= 3; devices++)
        for (int schedule = 0; schedule <= YOKE_SCHEDULE_SHARDED; schedule++)
            check_course(&(course){.devices = devices,
                                   .accumulate = devices == 2 ? 2 : 1,
                                   .schedule = (yoke_schedule)schedule,
                                   .regression = (devices + schedule) % 2 == 0});
}

/* By hand: nothing but the loss passes through the host. */

static void check_by_hand(int devices, int location) {
    yoke_model *model = siamese_model((siamese_options){0});
    check_engine engine =
        check_engine_make(model, devices, options_of(YOKE_SCHEDULE_OVERLAP, 1), &sgd);
    size_t head = sizeof((pair_outputs *)NULL)->head, side = sizeof((pair_outputs *)NULL)->side;
    size_t image = (size_t)5 * PAIR_ROW * sizeof(float);
    int gpu = gpu_of(location), classes = PAIR_CLASSES * PAIR_HIDDEN;
    float *outputs[2] = {gpu_memory(gpu, head), gpu_memory(gpu, side)};
    float *slopes[2] = {gpu_memory(gpu, image), gpu_memory(gpu, image)};
    float images[2][2][5 * PAIR_ROW], weights[2][PAIR_CLASSES * PAIR_HIDDEN];
    pair_outputs on_host, on_gpu, gradients;
    resident rows;
    resident_make(&rows, 5, 1, (places){location, location, -1}, false);

    must(yoke_data_parallel_forward_outputs(engine.parallel, &rows.host.batch, true,
                                            (float *const[]){on_host.head, on_host.side}));
    pair_loss(&rows.host, &on_host, &gradients);
    must(yoke_data_parallel_backward_outputs(
        engine.parallel, (const float *const[]){gradients.head, gradients.side}));
    for (int k = 0; k < 2; k++)
        must(yoke_data_parallel_read_input_gradients_of(engine.parallel, k, images[0][k]));
    must(yoke_data_parallel_read_gradient(engine.parallel, "head.weight", weights[0],
                                          (size_t)classes));

    pair_batch other; /* leaves other values where those of the first way lie */
    pair_batch_make(&other, 5, 2);
    pair_gradient(engine.parallel, &other);
    must(yoke_data_parallel_forward_outputs(engine.parallel, &rows.batch, true, outputs));
    gpu_move(gpu, on_gpu.head, outputs[0], 5 * PAIR_CLASSES * sizeof(float));
    gpu_move(gpu, on_gpu.side, outputs[1], 5 * PAIR_SIDE * sizeof(float));
    assert_memory_equal(on_gpu.head, on_host.head, 5 * PAIR_CLASSES * sizeof(float));
    assert_memory_equal(on_gpu.side, on_host.side, 5 * PAIR_SIDE * sizeof(float));
    float *const given[2] = {gpu_copy(gpu, gradients.head, 5 * PAIR_CLASSES * sizeof(float)),
                             gpu_copy(gpu, gradients.side, 5 * PAIR_SIDE * sizeof(float))};
    must(yoke_data_parallel_backward_outputs(engine.parallel,
                                             (const float *const[]){given[0], given[1]}));
    for (int k = 0; k < 2; k++) {
        must(yoke_data_parallel_read_input_gradients_of(engine.parallel, k, slopes[k]));
        gpu_move(gpu, images[1][k], slopes[k], image);
        assert_memory_equal(images[0][k], images[1][k], image);
    }
    must(yoke_data_parallel_read_gradient(engine.parallel, "head.weight", weights[1],
                                          (size_t)classes));
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    for (int k = 0; k < 2; k++) {
        CUDA_OK(cudaFree(given[k]));
        CUDA_OK(cudaFree(slopes[k]));
        CUDA_OK(cudaFree(outputs[k]));
    }
    resident_free(&rows);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void outputs_and_gradients_stay_on_a_gpu(void **state) {
    (void)state;
    for (int devices = 1; devices <= 4; devices++) /* of 4 one is idle, and may hold the arrays */
        for (int location = 0; location < devices; location++)
            check_by_hand(devices, location);
}

/* The caller writes to its gradients as soon as backward returns, whether a copy of them could
 * still be queued: pinned memory of the host, and memory of a GPU. */
static void output_gradients_may_change_when_backward_returns(void **state) {
    (void)state;
    enum { BYTES = ROWS_BY_HAND * CHECK_CLASSES * sizeof(float) };
    yoke_model *model = check_model(false, 0);
    check_batch batch = check_batch_make(ROWS_BY_HAND, 1);
    float values[ROWS_BY_HAND * CHECK_CLASSES], other[ROWS_BY_HAND * CHECK_CLASSES], *pinned;
    for (uint32_t i = 0; i < ROWS_BY_HAND * CHECK_CLASSES; i++) {
        values[i] = (float)check_noise(i);
        other[i] = 1000;
    }
    CUDA_OK(cudaMallocHost((void **)&pinned, BYTES));
    float *const on_gpu = gpu_memory(0, BYTES);
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP, 1), &sgd);
    float *gradients[3];
    size_t count;
    for (int place = 0; place < 3; place++) {
        float *given = place == 0 ? values : place == 1 ? pinned : on_gpu;
        if (place > 0) CUDA_OK(cudaMemcpy(given, values, BYTES, cudaMemcpyDefault));
        must(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
        must(yoke_data_parallel_backward(engine.parallel, given));
        if (place == 1) memcpy(given, other, BYTES);
        if (place == 2) gpu_move(0, given, other, BYTES);
        gradients[place] = check_read_all(engine.parallel, model, true, &count);
        assert_memory_equal(gradients[place], gradients[0], count * sizeof(float));
    }
    for (int place = 0; place < 3; place++)
        free(gradients[place]);
    CUDA_OK(cudaFree(on_gpu));
    CUDA_OK(cudaFreeHost(pinned));
    check_engine_free(&engine);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

/* Stored pixels. */

static void pixels_on_a_gpu_are_decoded_there(void **state) {
    (void)state;
    yoke_decoding decoding = {
        .struct_size = sizeof decoding, .mean = {0.4f, 0.5f}, .std = {0.2f, 0.3f}};
    uint8_t pixels[5 * CHECK_ROW];
    int32_t labels[5] = {0, 1, 2, 3, 4};
    float outputs[2][5 * CHECK_CLASSES];
    yoke_model *model = check_model(true, 0);
    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP, 1);
    options.pixels = true;
    check_engine engine = check_engine_make(model, 2, options, &sgd);
    for (int i = 0; i < 5 * CHECK_ROW; i++)
        pixels[i] = (uint8_t)(37 * i % 251);
    uint8_t *memory = gpu_copy(gpu_of(1), pixels, sizeof pixels);
    for (int form = 0; form < 2; form++) {
        yoke_batch batch = {.struct_size = sizeof batch,
                            .rows = 5,
                            .pixels = form == 0 ? pixels : memory,
                            .decoding = &decoding,
                            .labels = labels};
        must(yoke_data_parallel_forward(engine.parallel, &batch, false, outputs[form]));
    }
    assert_memory_equal(outputs[0], outputs[1], sizeof outputs[0]);
    CUDA_OK(cudaFree(memory));
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Refusals. */

static void expect_refused(yoke_status status, const char *words) {
    assert_int_equal(status, YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), words);
}

static void a_wrong_label_on_a_gpu_is_found(void **state) {
    (void)state;
    yoke_model *model = siamese_model((siamese_options){0});
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP, 1), &sgd);
    resident rows;
    resident_make(&rows, 5, 1, (places){0, 0, -1}, false);
    rows.host.labels[3] = PAIR_CLASSES;
    int32_t *labels = gpu_copy(gpu_of(1), rows.host.labels, 5 * sizeof *labels);
    rows.batch.labels = labels;
    expect_refused(yoke_data_parallel_step(engine.parallel, &rows.batch, 0, NULL),
                   "row 3 of the batch has label 4");
    CUDA_OK(cudaFree(labels));
    resident_free(&rows);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void memory_of_a_gpu_that_is_not_in_the_engine_is_refused(void **state) {
    (void)state;
    const char *words = "memory of GPU 2, which is not in the list of devices";
    if (devices_gpus() < 3) skip();
    yoke_model *model = siamese_model((siamese_options){0});
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP, 1), &sgd);
    yoke_data_parallel *parallel = engine.parallel;
    resident rows;
    pair_outputs outputs;
    for (int wrong = 0; wrong < 3; wrong++) {
        places at = {wrong == 0 ? 2 : 0, wrong == 1 ? 2 : 0, wrong == 2 ? 2 : 0};
        resident_make(&rows, 5, 1, at, false);
        expect_refused(yoke_data_parallel_step(parallel, &rows.batch, 0, NULL), words);
        resident_free(&rows);
    }
    resident_make(&rows, 5, 1, (places){0, 1, -1}, false);
    float *elsewhere = gpu_memory(2, MAX_ROWS * PAIR_ROW * sizeof(float));
    expect_refused(yoke_data_parallel_forward(parallel, &rows.batch, true, elsewhere), words);
    must(yoke_data_parallel_forward(parallel, &rows.batch, true, outputs.head));
    expect_refused(yoke_data_parallel_backward(parallel, elsewhere), words);
    must(yoke_data_parallel_backward(parallel, NULL));
    expect_refused(yoke_data_parallel_read_input_gradients(parallel, elsewhere), words);
    CUDA_OK(cudaFree(elsewhere));
    resident_free(&rows);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_on_gpus_gives_the_bits_of_one_on_the_host),
        cmocka_unit_test(outputs_and_gradients_stay_on_a_gpu),
        cmocka_unit_test(output_gradients_may_change_when_backward_returns),
        cmocka_unit_test(pixels_on_a_gpu_are_decoded_there),
        cmocka_unit_test(a_wrong_label_on_a_gpu_is_found),
        cmocka_unit_test(memory_of_a_gpu_that_is_not_in_the_engine_is_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
