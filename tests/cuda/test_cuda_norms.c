/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions that compute parts of the batch norms beside them, in float16: who computes what,
 * and that the steps equal the reference. Skipped without a GPU or without cuDNN's graphs. */
#include "device/cuda/cuda.h"
#include "model/networks.h"
#include "model/program.h"
#include "support/devices.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define TOGETHER "with batch norm"

struct layer {
    int channels, kernel, stride;
    bool relu;
};

static yoke_value normed(yoke_model *model, yoke_value input, const char *name,
                         struct layer layer) {
    char names[2][16];
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = names[0],
                                .out_channels = layer.channels,
                                .kernel = layer.kernel,
                                .stride = layer.stride,
                                .padding = layer.kernel / 2,
                                .no_bias = true};
    snprintf(names[0], sizeof names[0], "%s.conv", name);
    snprintf(names[1], sizeof names[1], "%s.norm", name);
    yoke_value value = norm(model, yoke_conv2d(model, input, &conv), names[1]);
    return layer.relu ? yoke_relu(model, value) : value;
}

/* A bottleneck block with a projection, behind a first convolution: 3 norms with one reader, a
 * convolution, and 2 of a sum. */
static yoke_model *bottleneck(int side) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "bottleneck", (yoke_shape){8, side, side, false}));
    yoke_value first =
        normed(model, yoke_model_input(model), "first", (struct layer){16, 3, 1, true});
    yoke_value value = normed(model, first, "reduce", (struct layer){24, 1, 1, true});
    value = normed(model, value, "middle", (struct layer){24, 3, 2, true});
    value = normed(model, value, "expand", (struct layer){32, 1, 1, false});
    yoke_value beside = normed(model, first, "project", (struct layer){32, 1, 2, false});
    value = yoke_relu(model, yoke_add(model, value, beside));
    value = normed(model, value, "last", (struct layer){16, 3, 1, true});
    value = normed(model, value, "end", (struct layer){8, 3, 1, true});
    value = linear(model, yoke_flatten(model, value), "fc", 5, NULL);
    const yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_CROSS_ENTROPY};
    assert_ok(yoke_model_finish(model, value, &loss));
    return model;
}

static void rig_open(struct rig *rig, yoke_model *model, bool together) {
    rig->list = "cuda:0";
    rig->model = model;
    rig->rows = 5;
    rig->algorithm = YOKE_ALGORITHM_DIRECT;
    rig_devices(rig);
    if (together) yoke_algorithms_prefer(rig->algorithms, TOGETHER);
    rig_replica(rig, 1);
}

/* In float16, unless the rig names another precision. */
static void open_model(struct rig *rig, yoke_model *model, bool together) {
    if (rig->precision == YOKE_FLOAT32) rig->precision = YOKE_FLOAT16;
    rig_open(rig, model, together);
}

/* Norms whose statistics, and whose application, a convolution computes. */
struct parts {
    int summed, applied;
};

static struct parts parts_of(const struct rig *rig) {
    const yoke_program *program = yoke_replica_program(rig->replica, rig->rows, true);
    struct parts parts = {0, 0};
    for (int i = 0; i < program->model->node_count; i++) {
        const yoke_node_places *places = &program->places[i];
        bool nowhere = program->values[program->model->nodes[i].output] == YOKE_PLACE_NOWHERE;
        parts.summed += places->summed_by != YOKE_NONE;
        parts.applied += places->applied_by != YOKE_NONE;
        assert_int_equal(places->applied_by != YOKE_NONE, nowhere);
    }
    return parts;
}

static void assert_parts(struct rig *rig, int summed, int applied) {
    struct parts parts = parts_of(rig);
    assert_int_equal(parts.summed, summed);
    assert_int_equal(parts.applied, applied);
    rig_destroy(rig);
}

/* ResNet-20 has 21 batch norms. The first convolution reads images of 3 channels, for which cuDNN
 * has no such plan; the first norm of each of 9 blocks has one reader, a convolution. */
static void convolutions_compute_parts_of_norms(void **state) {
    (void)state;
    struct rig rig = {0};
    open_model(&rig, resnet20(8), true);
    assert_parts(&rig, 20, 9);
}

static void the_fixed_rule_keeps_norms_apart(void **state) {
    (void)state;
    struct rig rig = {0};
    open_model(&rig, resnet20(8), false);
    assert_parts(&rig, 0, 0);
}

static void values_that_are_made_again_keep_norms_apart(void **state) {
    (void)state;
    struct rig rig = {.recomputes = true};
    open_model(&rig, resnet20(8), true);
    assert_parts(&rig, 0, 0);
}

/* A frozen convolution computes no gradient of its weights, and applies no norm. */
static void frozen_convolutions_apply_no_norm(void **state) {
    (void)state;
    yoke_model *model = resnet20(8);
    bool *frozen = calloc((size_t)model->tensor_count, sizeof *frozen);
    for (int i = 0; i < model->node_count; i++)
        if (model->nodes[i].operation.kind == YOKE_OP_CONV2D)
            frozen[model->nodes[i].tensors[0]] = true;
    struct rig rig = {.frozen = frozen};
    open_model(&rig, model, true);
    assert_parts(&rig, 20, 0);
    free(frozen);
}

static void bfloat16_keeps_norms_apart(void **state) {
    (void)state;
    struct rig rig = {.precision = YOKE_BFLOAT16};
    open_model(&rig, resnet20(8), true);
    assert_parts(&rig, 0, 0);
}

/* The gradients of one step, tensor after tensor, freed by the caller. */
static float *gradients_of(struct rig rig, uint64_t seed, bool together, size_t *bytes) {
    open_model(&rig, bottleneck(12), together);
    rig_batch(&rig, seed);
    yoke_plan_step step = rig_step(&rig);
    assert_ok(yoke_replica_forward(rig.replica, rig.rows, true, &step));
    assert_ok(yoke_replica_loss(rig.replica, &step));
    rig_backward(&rig, &step);
    float *gradients = NULL;
    size_t count = 0;
    for (int i = 0; i < rig.model->tensor_count; i++) {
        const yoke_tensor *tensor = &rig.model->tensors[i];
        if (!tensor->trainable) continue;
        gradients = realloc(gradients, (count + tensor->count) * sizeof *gradients);
        assert_ok(yoke_replica_read(rig.replica, i, true, gradients + count));
        count += tensor->count;
    }
    *bytes = count * sizeof *gradients;
    rig_destroy(&rig);
    return gradients;
}

static double distance(const float *a, const float *b, size_t count) {
    double sum = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(sum / norm);
}

/* Near the reference, and no farther from float32 than with norms of their own. */
static void steps_equal_the_reference(void **state) {
    (void)state;
    double together_sum = 0, apart_sum = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        size_t bytes;
        float *exact = gradients_of((struct rig){.precision = YOKE_TF32}, seed, false, &bytes);
        float *apart = gradients_of((struct rig){0}, seed, false, &bytes);
        float *together = gradients_of((struct rig){0}, seed, true, &bytes);
        together_sum += distance(together, exact, bytes / sizeof *exact);
        apart_sum += distance(apart, exact, bytes / sizeof *exact);
        free(exact);
        free(apart);
        free(together);
    }
    print_message("relative distance to float32: together %g, apart %g\n", together_sum / 6,
                  apart_sum / 6);
    assert_true(together_sum <= 1.5 * apart_sum);
    struct rig rig = {0};
    open_model(&rig, bottleneck(12), true);
    struct parts parts = parts_of(&rig);
    assert_int_equal(parts.summed, 6);
    assert_int_equal(parts.applied, 3);
    assert_step_near(&rig, 0.1);
    rig_destroy(&rig);
}

static void two_runs_give_the_same_bits(void **state) {
    (void)state;
    const struct rig rig = {0};
    size_t bytes;
    float *once = gradients_of(rig, 1, true, &bytes), *again = gradients_of(rig, 1, true, &bytes);
    float *apart = gradients_of(rig, 1, false, &bytes);
    assert_memory_equal(once, again, bytes);
    assert_memory_not_equal(once, apart, bytes);
    free(once);
    free(again);
    free(apart);
}

/* Norms of more than 2048 pixels, in every precision: the sum of two norms applies the second one.
 */
static void a_sum_applies_its_second_norm(void **state) {
    (void)state;
    static const struct {
        yoke_precision precision;
        double tolerance;
    } cases[] = {{YOKE_FLOAT32, 1e-4}, {YOKE_BFLOAT16, 0.3}, {YOKE_FLOAT16, 0.1}};
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int together = 0; together < 2; together++) {
            struct rig rig = {.precision = cases[i].precision};
            bool half = cases[i].precision == YOKE_FLOAT16;
            rig_open(&rig, bottleneck(42), together);
            struct parts parts = parts_of(&rig);
            assert_int_equal(parts.summed, half && together ? 6 : 0);
            assert_int_equal(parts.applied, half && together ? 4 : 1);
            assert_step_near(&rig, cases[i].tolerance);
            rig_destroy(&rig);
        }
}

/* A contest decides for each shape, and its record decides in the next run. */
static void a_contest_decides(void **state) {
    (void)state;
    struct rig rig = {.list = "cuda:0", .model = resnet20(8), .rows = 3, .precision = YOKE_FLOAT16};
    const char *key, *name;
    double milliseconds;
    int rows = 0, together = 0;
    rig_devices(&rig);
    rig_replica(&rig, 1);
    for (int i = 0; yoke_algorithms_at(rig.algorithms, i, &key, &name, &milliseconds); i++) {
        bool decides = strstr(key, " a batch norm float16") != NULL;
        rows += decides;
        together += decides && strcmp(name, TOGETHER) == 0;
    }
    assert_true(rows >= 6); /* three widths, before and behind a norm */
    struct parts parts = parts_of(&rig);
    assert_int_equal(parts.summed + parts.applied > 0, together > 0);
    yoke_replica_destroy(rig.replica);
    rig_replica(&rig, 1);
    assert_int_equal(parts_of(&rig).summed, parts.summed);
    assert_int_equal(parts_of(&rig).applied, parts.applied);
    rig_destroy(&rig);
}

static bool has_graphs(void) {
#ifdef YOKE_HAS_CUDNN
    return devices_gpus() > 0 && cuda_cudnn_graph() != NULL;
#else
    return false;
#endif
}

int main(void) {
    if (!has_graphs()) {
        print_message("skipped: no usable GPU, or no cuDNN with graphs\n");
        return DEVICES_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_compute_parts_of_norms),
        cmocka_unit_test(the_fixed_rule_keeps_norms_apart),
        cmocka_unit_test(values_that_are_made_again_keep_norms_apart),
        cmocka_unit_test(frozen_convolutions_apply_no_norm),
        cmocka_unit_test(bfloat16_keeps_norms_apart),
        cmocka_unit_test(steps_equal_the_reference),
        cmocka_unit_test(two_runs_give_the_same_bits),
        cmocka_unit_test(a_sum_applies_its_second_norm),
        cmocka_unit_test(a_contest_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
