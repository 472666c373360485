/* SPDX-License-Identifier: Apache-2.0 */
/* Choices between computations of a model's convolutions and linear layers: how many channels the
 * first one reads, and who adds the gradients of a value's readers. Skipped without a GPU. */
#include "bench/floor/kernel_time.h"
#include "model/networks.h"
#include "model/program.h"
#include "support/devices.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define APART "added by a pass of its own"
#define JOINED "added by the same pass"

/* One after the other, where a model offers them. */
static const char *const taken[] = {"8 channels", "joined", JOINED};

static void open_model(struct rig *rig, yoke_model *model, const char *const *preferred, int count,
                       yoke_precision precision) {
    *rig = (struct rig){.list = "cuda:0",
                        .model = model,
                        .rows = 5,
                        .precision = precision,
                        .algorithm = YOKE_ALGORITHM_DIRECT};
    rig_devices(rig);
    for (int i = 0; i < count; i++)
        yoke_algorithms_prefer(rig->algorithms, preferred[i]);
    rig_replica(rig, 1);
}

static int accumulates_of(const struct rig *rig) {
    const yoke_program *program = yoke_replica_program(rig->replica, rig->rows, true);
    int count = 0;
    for (int i = 0; i < program->action_count; i++)
        count += program->actions[i].kind == YOKE_ACTION_ACCUMULATE;
    return count;
}

static void a_residual_join_costs_no_pass_of_its_own(void **state) {
    (void)state;
    static const char *const sums[] = {APART, JOINED};
    struct rig rig;
    for (int i = 0; i < 2; i++) {
        open_model(&rig, resnet20(8), &sums[i], 1, YOKE_FLOAT32);
        assert_int_equal(accumulates_of(&rig), i == 0 ? 9 : 0);
        rig_destroy(&rig);
    }
}

static void the_fixed_rule_joins_nothing(void **state) {
    (void)state;
    struct rig rig;
    open_model(&rig, resnet20(8), NULL, 0, YOKE_FLOAT32);
    assert_int_equal(accumulates_of(&rig), 9);
    rig_destroy(&rig);
}

/* In backward only the next convolution reads the output of a batch norm with a sum. */
static void the_gradient_of_a_norm_takes_the_place_of_its_input(void **state) {
    (void)state;
    struct rig rig;
    open_model(&rig, resnet20(8), NULL, 0, YOKE_BFLOAT16);
    const yoke_program *program = yoke_replica_program(rig.replica, rig.rows, true);
    int sums = 0;
    for (int i = 0; i < program->model->node_count; i++) {
        const yoke_node *node = &program->model->nodes[i];
        if (node->operation.kind != YOKE_OP_BATCH_NORM || !node->operation.add) continue;
        const yoke_node_places *places = &program->places[i];
        sums++;
        assert_int_equal(places->input_gradients[0], program->values[node->inputs[0]]);
        assert_int_equal(places->input_gradients[1], places->output_gradient);
        assert_false(yoke_plan_describe(program->plans[i])->backward_reads_output);
    }
    assert_int_equal(sums, 9);
    rig_destroy(&rig);
}

static void models_equal_the_reference(void **state) {
    (void)state;
    static yoke_model *(*const networks[])(const yoke_loss_options *) = {everything, joined};
    const yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_MSE};
    const int all = COUNT(taken);
    struct rig rig;
    for (size_t i = 0; i < COUNT(networks); i++) { /* the tolerance of tests/model */
        open_model(&rig, networks[i](&loss), taken, all, YOKE_BFLOAT16);
        assert_step_near(&rig, 0.3);
        rig_destroy(&rig);
    }
    open_model(&rig, resnet20(8), taken, all, YOKE_FLOAT32);
    assert_step_near(&rig, 1e-4);
    rig_destroy(&rig);
    for (uint32_t seed = 1; seed <= 40; seed++) {
        open_model(&rig, random_graph(seed, seed % 3 == 0, seed % 2 == 0), taken, all,
                   YOKE_FLOAT32);
        assert_step_near(&rig, 5e-4);
        rig_destroy(&rig);
    }
}

/* The gradients of one step, freed by the caller. */
static float *gradients_of(int preferred, size_t *bytes) {
    struct rig rig;
    open_model(&rig, resnet20(8), taken, preferred, YOKE_BFLOAT16);
    yoke_plan_step step = rig_step(&rig);
    assert_ok(yoke_replica_forward(rig.replica, rig.rows, true, &step));
    assert_ok(yoke_replica_loss(rig.replica, &step));
    rig_backward(&rig, &step);
    *bytes = yoke_replica_flat(rig.replica)->trainable_elements * sizeof(float);
    float *gradients =
        device_values(rig.device, yoke_replica_memory_of(rig.replica)->gradients, *bytes);
    rig_destroy(&rig);
    return gradients;
}

static void two_runs_give_the_same_bits(void **state) {
    (void)state;
    const int all = COUNT(taken);
    size_t bytes;
    float *once = gradients_of(all, &bytes), *again = gradients_of(all, &bytes);
    float *without = gradients_of(0, &bytes);
    assert_memory_equal(once, again, bytes);
    assert_memory_not_equal(once, without, bytes);
    free(once);
    free(again);
    free(without);
}

/* Contests. */

/* Rows of the record whose key contains `words`, and how many of them name `candidate`. */
static int decisions(const yoke_algorithms *algorithms, const char *words, const char *candidate,
                     int *found) {
    const char *key, *name;
    double milliseconds;
    int rows = 0;
    *found = 0;
    for (int i = 0; yoke_algorithms_at(algorithms, i, &key, &name, &milliseconds); i++) {
        if (strstr(key, words) == NULL) continue;
        assert_true(milliseconds > 0);
        rows++;
        *found += strcmp(name, candidate) == 0;
    }
    return rows;
}

/* ResNet-20 has residual joins of three shapes. */
static void a_contest_decides_who_adds(void **state) {
    (void)state;
    struct rig rig = {.list = "cuda:0", .model = resnet20(8), .rows = 3};
    rig_devices(&rig);
    rig_replica(&rig, 1);
    assert_step_near(&rig, 1e-4);
    int apart = 0;
    assert_true(decisions(rig.algorithms, " and sum float32", APART, &apart) > 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(accumulates_of(&rig) > 0, apart > 0);
        yoke_replica_destroy(rig.replica);
        rig_replica(&rig, 1);
    }
    rig_destroy(&rig);
}

static const char *algorithm_of(const bench_kernel_call *calls, int count, const char *layer,
                                const char *direction) {
    for (int i = 0; i < count; i++)
        if (strcmp(calls[i].layer, layer) == 0 && strcmp(calls[i].direction, direction) == 0)
            return calls[i].algorithm;
    return "";
}

/* Its plan names what won. */
static void a_contest_decides_what_the_first_convolution_reads(void **state) {
    (void)state;
    enum { CALLS = 512 };
    static bench_kernel_call calls[CALLS];
    static const yoke_precision precisions[] = {YOKE_FLOAT32, YOKE_BFLOAT16};
    for (size_t i = 0; i < COUNT(precisions); i++) {
        struct rig rig = {
            .list = "cuda:0", .model = resnet20(8), .rows = 3, .precision = precisions[i]};
        int four = 0, eight = 0, count = 0;
        rig_devices(&rig);
        rig_replica(&rig, 1);
        assert_int_equal(decisions(rig.algorithms, " groups 1 channels ", "4 channels", &four), 1);
        assert_int_equal(decisions(rig.algorithms, " groups 1 channels ", "8 channels", &eight), 1);
        assert_ok(bench_replica_calls(rig.replica, rig.rows, 1, calls, CALLS, &count));
        const char *algorithm = algorithm_of(calls, count, "conv1", "forward");
        assert_int_equal(strstr(algorithm, ", 4 channels") != NULL, four);
        assert_int_equal(strstr(algorithm, ", 8 channels") != NULL, eight);
        rig_destroy(&rig);
    }
}

int main(void) {
    if (devices_gpus() == 0) {
        print_message("skipped: no usable GPU\n");
        return DEVICES_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_residual_join_costs_no_pass_of_its_own),
        cmocka_unit_test(the_fixed_rule_joins_nothing),
        cmocka_unit_test(the_gradient_of_a_norm_takes_the_place_of_its_input),
        cmocka_unit_test(models_equal_the_reference),
        cmocka_unit_test(two_runs_give_the_same_bits),
        cmocka_unit_test(a_contest_decides_who_adds),
        cmocka_unit_test(a_contest_decides_what_the_first_convolution_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
