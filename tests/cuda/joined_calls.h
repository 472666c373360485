/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers whose passes take over what lies behind and before them: rigs in every precision,
 * and what the passes of a step are. */
#ifndef TESTS_JOINED_CALLS_H
#define TESTS_JOINED_CALLS_H

#include "bench/floor/kernel_time.h"
#include "model/networks.h"
#include "model/program.h"
#include "support/devices.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
enum { CALLS = 64 };

static const struct {
    yoke_precision precision;
    double tolerance;
} precisions[] = {
    {YOKE_FLOAT32, 1e-5}, {YOKE_TF32, 2e-2}, {YOKE_BFLOAT16, 0.1}, {YOKE_FLOAT16, 2e-2}};

static inline bool is_half(yoke_precision precision) {
    return precision == YOKE_BFLOAT16 || precision == YOKE_FLOAT16;
}

/* choice: "joined", or "apart". */
static inline void open_rig(struct rig *rig, const char *choice) {
    rig->list = "cuda:0";
    rig_devices(rig);
    yoke_algorithms_prefer(rig->algorithms, choice);
    rig_replica(rig, 1);
}

static inline void open_model(struct rig *rig, yoke_model *model, const char *choice,
                              yoke_precision precision) {
    *rig = (struct rig){
        .model = model, .rows = 5, .precision = precision, .algorithm = YOKE_ALGORITHM_DIRECT};
    open_rig(rig, choice);
}

/* Output 0 and the gradients of one training step, or output 0 alone, one behind the other.
 * Destroys the rig; the caller frees the values. */
static inline float *results_of(struct rig rig, const char *choice, bool training, size_t *count) {
    rig.algorithm = YOKE_ALGORITHM_DIRECT;
    open_rig(&rig, choice);
    yoke_plan_step step = rig_step(&rig);
    assert_ok(yoke_replica_prepare(rig.replica, rig.rows, training));
    assert_ok(yoke_replica_forward(rig.replica, rig.rows, training, &step));
    size_t outputs = (size_t)rig.rows * yoke_model_output_elements(rig.model, 0), gradients = 0;
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig.replica);
    float *values = device_values(rig.device, memory->outputs[0], outputs * sizeof(float));
    if (training) {
        assert_ok(yoke_replica_loss(rig.replica, &step));
        rig_backward(&rig, &step);
        gradients = yoke_replica_flat(rig.replica)->trainable_elements;
        values = realloc(values, (outputs + gradients) * sizeof(float));
        device_take(rig.device, values + outputs, memory->gradients, gradients * sizeof(float));
    }
    *count = outputs + gradients;
    rig_destroy(&rig);
    return values;
}

static inline yoke_value dense(yoke_model *model, yoke_value input, const char *name, int features,
                               bool bias) {
    yoke_linear_options options = YOKE_LINEAR_OPTIONS_INIT;
    options.name = name;
    options.out_features = features;
    options.no_bias = !bias;
    return yoke_linear(model, input, &options);
}

static inline int list_calls(yoke_model *model, const char *choice, yoke_precision precision,
                             bench_kernel_call *calls) {
    struct rig rig;
    int count = 0;
    open_model(&rig, model, choice, precision);
    assert_ok(bench_replica_calls(rig.replica, rig.rows, 1, calls, CALLS, &count));
    assert_in_range(count, 1, CALLS);
    rig_destroy(&rig);
    return count;
}

static inline int passes_of(const bench_kernel_call *calls, int count, const char *operation,
                            const char *direction) {
    int found = 0;
    for (int i = 0; i < count; i++)
        found += calls[i].operation != NULL && strcmp(calls[i].operation, operation) == 0 &&
                 strcmp(calls[i].direction, direction) == 0;
    return found;
}

static inline int passes_by(const bench_kernel_call *calls, int count, const char *algorithm) {
    int found = 0;
    for (int i = 0; i < count; i++)
        found += calls[i].algorithm != NULL && strcmp(calls[i].algorithm, algorithm) == 0;
    return found;
}

#endif
