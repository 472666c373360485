/* SPDX-License-Identifier: Apache-2.0 */
/* How many calls of the CUDA runtime and of NCCL a training step makes, uploads and waits included.
 * The simulated GPUs count them. A host that waits for a short step asks again and again whether it
 * is done: that counts as one call. */
#include <stdlib.h>

#include "device/device.h"
#include "simcuda/control.h"
#include "support/engine_check.h"

enum { ROWS = 4, CLASSES = 10, MOST = 10 };

typedef struct counted {
    const char *model;
    yoke_shape input;
    const char *list;
    bool pinned; /* the batch, as a loader's is */
    yoke_data_parallel_options options;
    yoke_optimizer_options optimizer;
    int most;
} counted;

/* The batch in memory of the loader's kind, or ordinary. */
static void *place(const counted *of, yoke_devices *devices, size_t bytes) {
    void *memory = NULL;
    if (!of->pinned) return malloc(bytes);
    EXPECT_OK(yoke_device_allocate_host(yoke_devices_at(devices, 0), bytes, "a batch", &memory));
    return memory;
}

static void give_back(const counted *of, yoke_devices *devices, void *memory) {
    if (of->pinned)
        yoke_device_free_host(yoke_devices_at(devices, 0), memory);
    else
        free(memory);
}

/* Behind steps that have prepared everything, in both turns, and found a scale of the loss: the
 * step behind a skipped one is computed twice. */
static int calls_of_step(check_engine *engine, const yoke_batch *batch, int steps) {
    uint64_t calls = 0;
    for (int i = 0; i < steps; i++) {
        simcuda_fail_call(0);
        EXPECT_OK(yoke_data_parallel_step(engine->parallel, batch, 0.01, NULL));
        uint64_t asked = simcuda_calls_of("cudaEventQuery");
        calls = simcuda_calls_so_far() - (asked > 1 ? asked - 1 : 0);
    }
    if (getenv("YOKE_PRINT_CALLS") != NULL) simcuda_print_calls();
    return (int)calls;
}

static void expect_few(const counted *of) {
    yoke_data_parallel_options options = of->options;
    options.batch = ROWS;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_preset(&model, of->model, of->input, CLASSES, NULL));
    check_engine engine = check_engine_on(model, of->list, options, &of->optimizer);
    size_t row = (size_t)of->input.channels * (size_t)of->input.height * (size_t)of->input.width;
    float *inputs = place(of, engine.devices, ROWS * row * sizeof *inputs);
    int32_t *labels = place(of, engine.devices, ROWS * sizeof *labels);
    for (size_t i = 0; i < ROWS * row; i++)
        inputs[i] = (float)check_noise((uint32_t)i);
    for (int i = 0; i < ROWS; i++)
        labels[i] = i % CLASSES;
    const yoke_batch batch = {
        .struct_size = sizeof batch, .rows = ROWS, .inputs = inputs, .labels = labels};
    int calls = calls_of_step(&engine, &batch, options.precision == YOKE_FLOAT16 ? 12 : 4);
    print_message("%s on %s: %d calls, at most %d\n", of->model, of->list, calls, of->most);
    assert_true(calls > 0 && calls <= of->most);
    give_back(of, engine.devices, labels);
    give_back(of, engine.devices, inputs);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

#define MLP                                                                                        \
    "mlp", {                                                                                       \
        1, 8, 8                                                                                    \
    }
#define RESNET                                                                                     \
    "resnet18-cifar", {                                                                            \
        3, 8, 8                                                                                    \
    }
#define MOMENTUM                                                                                   \
    { .struct_size = sizeof(yoke_optimizer_options), .learning_rate = 0.1, .momentum = 0.9 }

static void a_step_on_one_gpu_makes_ten_calls_at_most(void **state) {
    (void)state;
    yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT, lamb = YOKE_LAMB_OPTIONS_INIT;
    yoke_optimizer_options clipped = adamw;
    clipped.clip_norm = 0.5;
    const counted all[] = {
        {MLP, "cuda:0", false, {0}, MOMENTUM, MOST},
        {MLP, "cuda:0", true, {0}, MOMENTUM, MOST},
        {MLP, "cuda:0", true, {.precision = YOKE_BFLOAT16}, adamw, MOST},
        {MLP, "cuda:0", false, {.precision = YOKE_FLOAT16}, adamw, MOST},
        {MLP, "cuda:0", true, {.precision = YOKE_FLOAT16}, clipped, MOST},
        {MLP, "cuda:0", true, {.loss_scale = 1024}, adamw, MOST},
        {MLP, "cuda:0", true, {.ema_decay = 0.9}, lamb, MOST},
        {MLP, "cuda:0", true, {.skip_finite_check = true}, adamw, MOST},
        {MLP, "cuda:0", true, {0}, clipped, MOST}, /* the result has the norm: one more wait */
        {RESNET, "cuda:0", false, {0}, MOMENTUM, MOST},
        {RESNET, "cuda:0", true, {0}, MOMENTUM, MOST},
        {RESNET, "cuda:0", true, {.precision = YOKE_FLOAT16}, MOMENTUM, MOST},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_few(&all[i]);
}

/* Collectives lie between gate, check, update and undo: these are calls of their own. */
static void on_two_gpus_it_makes_few(void **state) {
    (void)state;
    const counted all[] = {
        {MLP, "cuda:0,cuda:1", true, {0}, MOMENTUM, 80},
        {MLP, "cuda:0,cuda:1", true, {.precision = YOKE_FLOAT16}, MOMENTUM, 80},
        {RESNET, "cuda:0,cuda:1", true, {0}, MOMENTUM, 110},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_few(&all[i]);
}

int main(void) {
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_on_one_gpu_makes_ten_calls_at_most),
        cmocka_unit_test(on_two_gpus_it_makes_few),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
