/* SPDX-License-Identifier: Apache-2.0 */
/* What a device reaches at best: the bytes of a copy or a ReLU, and the operations of a matrix
 * product, each of operands that no cache holds. */
#include <math.h>
#include <stdlib.h>

#include "bench/floor/kernel_time.h"
#include "parallel/engine/engine.h"
#include "parallel/engine/entry.h"

#define REPEAT 10
/* Sizes grow up to the last, which counts; a slow device ends earlier: once a size took ROUND_NS.
 */
#define ROUND_NS ((uint64_t)300000000)
#define FIRST_BYTES ((size_t)4 << 20)
#define LAST_BYTES ((size_t)64 << 20)
#define GPU_LAST_BYTES ((size_t)256 << 20)
#define FIRST_SIDE 128 /* of a square matrix */
#define LAST_SIDE 1024
#define GPU_LAST_SIDE 8192

typedef struct rate_job {
    yoke_data_parallel *parallel;
    yoke_device *device;
    bench_rates rates;
    yoke_plan *plan, *first; /* the plan that is timed, and the one that writes its input */
    yoke_algorithms *algorithms;
    void *operands[5];
    size_t bytes;      /* of the copy */
    uint64_t timed_ns; /* of the size: calls alone; plans, contests and uploads take longer */
} rate_job;

/* Numbers from 1 to 2, in float32 and in bfloat16: products of zeros take less current, and let the
 * clocks rise. */
static yoke_status fill(const rate_job *job, void *to, size_t bytes) {
    uint16_t *values = malloc(bytes);
    if (values == NULL) return FAIL_MEMORY(bytes, "numbers to multiply");
    uint32_t state = 1;
    for (size_t i = 0; i < bytes / sizeof *values; i++) {
        state = state * 1664525 + 1013904223;
        values[i] = (uint16_t)(0x3f80 | (state >> 25));
    }
    yoke_status status = yoke_device_upload(job->device, YOKE_STREAM_COMPUTE, to, values, bytes);
    if (status == YOKE_OK) status = yoke_device_synchronize(job->device);
    free(values);
    return status;
}

static yoke_status allocate(rate_job *job, int operand, size_t bytes) {
    if (bytes == 0) return YOKE_OK;
    return yoke_device_allocate(job->device, bytes, "measuring its rates", &job->operands[operand]);
}

static yoke_status queue_copy(void *context) {
    const rate_job *job = context;
    return yoke_device_copy(job->device, YOKE_STREAM_COMPUTE, job->operands[1], job->device,
                            job->operands[0], job->bytes);
}

static yoke_status queue_forward(void *context) {
    const rate_job *job = context;
    return yoke_plan_forward(job->plan, &(yoke_plan_step){.loss_scale = 1});
}

enum { INPUT, OUTPUT, WEIGHTS, SHADOW, SCRATCH };

static yoke_status bind(rate_job *job, size_t input_bytes) {
    const yoke_plan_needs *needs = yoke_plan_describe(job->plan);
    size_t weights = needs->parameters[0].bytes;
    TRY(allocate(job, INPUT, input_bytes));
    TRY(allocate(job, OUTPUT, needs->output.bytes));
    TRY(allocate(job, WEIGHTS, weights));
    TRY(allocate(job, SHADOW, needs->reads_shadow[0] ? weights / 2 : 0));
    TRY(allocate(job, SCRATCH, needs->scratch_bytes));
    TRY(fill(job, job->operands[INPUT], input_bytes));
    if (weights > 0) TRY(fill(job, job->operands[WEIGHTS], weights));
    if (needs->reads_shadow[0]) TRY(fill(job, job->operands[SHADOW], weights / 2));
    yoke_plan_binding binding = {.inputs = {job->operands[INPUT]},
                                 .output = job->operands[OUTPUT],
                                 .parameters = {job->operands[WEIGHTS]},
                                 .shadows = {job->operands[SHADOW]},
                                 .scratch = job->operands[SCRATCH]};
    return yoke_plan_bind(job->plan, &binding);
}

/* The better of a copy and of a ReLU, which all cores of a CPU compute. */
static yoke_status measure_bytes(rate_job *job, size_t bytes) {
    job->bytes = bytes;
    yoke_operation relu = {.kind = YOKE_OP_ACTIVATION,
                           .name = "a ReLU",
                           .input = {(int)(job->bytes / sizeof(float) / 1024), 1, 1, false}};
    relu.output = relu.input;
    yoke_plan_request request = {.operation = &relu, .rows = 1024, .precision = YOKE_FLOAT32};
    const int64_t shape[4] = {1024, relu.input.channels, 1, 1};
    TRY(yoke_layout_plain(job->device, shape, 4, &request.inputs[0]));
    TRY(yoke_plan_create(&job->plan, job->device, &request));
    TRY(bind(job, job->bytes));
    double copy = 0, relu_ms = 0;
    uint64_t begin = yoke_now_ns();
    TRY(bench_time_calls(job->device, queue_copy, job, REPEAT, &copy));
    TRY(bench_time_calls(job->device, queue_forward, job, REPEAT, &relu_ms));
    job->timed_ns = yoke_now_ns() - begin;
    job->rates.bytes_per_s = 2 * (double)job->bytes / (fmin(copy, relu_ms) * 1e-3);
    return YOKE_OK;
}

/* The second of two linear layers, which reads what the first one writes: both in the engine's
 * precision. */
static yoke_status measure_operations(rate_job *job, size_t side) {
    int width = (int)side;
    yoke_operation linear = {.kind = YOKE_OP_LINEAR,
                             .name = "a product",
                             .input = {width, 1, 1, false},
                             .output = {width, 1, 1, false},
                             .groups = 1,
                             .dilation = 1};
    TRY(yoke_algorithms_create(&job->algorithms));
    yoke_plan_request request = {.operation = &linear,
                                 .rows = width,
                                 .inference = true,
                                 .precision = job->parallel->step.options.precision,
                                 .algorithms = job->algorithms};
    const int64_t shape[4] = {width, width, 1, 1};
    TRY(yoke_layout_plain(job->device, shape, 4, &request.inputs[0]));
    TRY(yoke_plan_create(&job->first, job->device, &request));
    request.inputs[0] = yoke_plan_describe(job->first)->output;
    TRY(yoke_plan_create(&job->plan, job->device, &request));
    TRY(bind(job, request.inputs[0].bytes));
    double milliseconds = 0;
    uint64_t begin = yoke_now_ns();
    TRY(bench_time_calls(job->device, queue_forward, job, REPEAT, &milliseconds));
    job->timed_ns = yoke_now_ns() - begin;
    job->rates.operations_per_s = 2 * pow((double)side, 3) / (milliseconds * 1e-3);
    return YOKE_OK;
}

typedef struct size_range {
    size_t first, last, factor;
} size_range;

static yoke_status grow(rate_job *job, yoke_status (*measure_size)(rate_job *, size_t),
                        size_range sizes) {
    bool fast = true;
    for (size_t size = sizes.first; fast && size <= sizes.last; size *= sizes.factor) {
        yoke_status status = measure_size(job, size);
        yoke_plan_destroy(job->plan);
        yoke_plan_destroy(job->first);
        yoke_algorithms_destroy(job->algorithms);
        job->plan = job->first = NULL;
        job->algorithms = NULL;
        for (int i = 0; i < 5; i++) {
            yoke_device_free(job->device, job->operands[i]);
            job->operands[i] = NULL;
        }
        TRY(status);
        fast = job->timed_ns < ROUND_NS;
    }
    return YOKE_OK;
}

static yoke_status measure(int lane, void *context) {
    rate_job *job = context;
    job->device = job->parallel->step.lanes[lane].device;
    bool gpu = yoke_device_records(job->device);
    TRY(grow(job, measure_bytes, (size_range){FIRST_BYTES, gpu ? GPU_LAST_BYTES : LAST_BYTES, 4}));
    return grow(job, measure_operations,
                (size_range){FIRST_SIDE, gpu ? GPU_LAST_SIDE : LAST_SIDE, 2});
}

yoke_status bench_measure_rates(yoke_data_parallel *parallel, bench_rates *rates) {
    rate_job job = {.parallel = parallel};
    TRY(yoke_enter_settled(parallel, "yoke bench"));
    TRY(yoke_leave(parallel, yoke_apply(&parallel->step, 1, "rates", measure, &job)));
    *rates = job.rates;
    return YOKE_OK;
}
