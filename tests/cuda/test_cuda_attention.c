/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in bfloat16 equals the CPU's in float32, whether Yoke's kernels or plans of cuDNN's
 * graph compute it, and the record names what was chosen. Skipped without a GPU. */
#include "device/cuda/cuda.h"
#include "operation_parity.h"
#include "support/devices.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static parity_case attention_case(int rows, int positions, int heads, int size, bool causal) {
    int channels = heads * size;
    return (parity_case){.operation = {.kind = YOKE_OP_ATTENTION,
                                       .name = "attention",
                                       .input = {3 * channels, positions, 1, true},
                                       .output = {channels, positions, 1, true},
                                       .heads = heads,
                                       .causal = causal},
                         .rows = rows,
                         .precision = YOKE_BFLOAT16,
                         .algorithm = YOKE_ALGORITHM_MEASURED};
}

static const struct {
    int rows, positions, heads, size;
} shapes[] = {{2, 5, 2, 8}, {1, 64, 1, 16}, {1, 33, 2, 40}, {2, 17, 1, 64}, {1, 20, 1, 128}};

static void check_all(const parity_rig *rig, const char *name) {
    for (size_t i = 0; i < 2 * COUNT(shapes); i++) {
        size_t s = i / 2;
        parity_case c = attention_case(shapes[s].rows, shapes[s].positions, shapes[s].heads,
                                       shapes[s].size, i % 2 != 0);
        parity_check_preferring(rig, &c, name);
        c.recorded = true;
        parity_check_preferring(rig, &c, name);
        c.recorded = false;
        c.evaluation = true;
        parity_check_preferring(rig, &c, name);
    }
}

static void own_kernels_equal_the_cpu(void **state) {
    check_all(*state, "own kernels");
}

static void plans_of_cudnn_equal_the_cpu(void **state) {
    check_all(*state, "cuDNN plan");
}

/* Whether there is such a plan: where cuDNN offers none, own kernels stand in. */
static void a_plan_names_what_computes_it(void **state) {
    const parity_rig *rig = *state;
    static const char *const names[] = {"own kernels", "cuDNN plan"};
    const parity_case c = attention_case(2, 17, 1, 64, true);
    parity_side side = {.c = &c, .device = yoke_devices_at(rig->devices, 0)};
    if (cuda_of(side.device)->cudnn == NULL) skip();
    for (size_t i = 0; i < COUNT(names); i++) {
        yoke_algorithms *algorithms;
        PARITY_OK(yoke_algorithms_create(&algorithms));
        yoke_algorithms_prefer(algorithms, names[i]);
        parity_plan(&side, algorithms);
        assert_string_equal(yoke_plan_algorithm(side.plan, YOKE_FORWARD), names[i]);
        assert_string_equal(yoke_plan_algorithm(side.plan, YOKE_BACKWARD_DATA), names[i]);
        yoke_plan_destroy(side.plan);
        yoke_algorithms_destroy(algorithms);
    }
}

/* A contest for each direction; the record's names make the same choice again. */
static void a_record_holds_the_choice(void **state) {
    parity_rig rig = *(parity_rig *)*state;
    parity_case c = attention_case(1, 12, 2, 16, true);
    PARITY_OK(yoke_algorithms_create(&rig.algorithms));
    parity_check(&rig, &c);
    const char *key, *name;
    double milliseconds;
    int count = 0;
    for (; yoke_algorithms_at(rig.algorithms, count, &key, &name, &milliseconds); count++) {
        assert_memory_equal(key, "attention 2 x 12 of 16 causal ", 30);
        if (strcmp(name, "own kernels") != 0)
            assert_memory_equal(name, "cuDNN plan eng", strlen("cuDNN plan eng"));
        assert_true(milliseconds > 0);
    }
    assert_true(count == 0 || count == 2); /* 0: there is no cuDNN */
    c.rows = 3;
    parity_check(&rig, &c);
    assert_false(yoke_algorithms_at(rig.algorithms, count, &key, &name, &milliseconds));
    yoke_algorithms_destroy(rig.algorithms);
}

/* What cuDNN does not compute has no contest. */
static void shapes_that_cudnn_lacks_are_left_to_own_kernels(void **state) {
    parity_rig rig = *(parity_rig *)*state;
    const parity_case cases[] = {attention_case(1, 9, 1, 12, false),
                                 attention_case(2, 1, 1, 16, true)};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *key, *name;
        double milliseconds;
        PARITY_OK(yoke_algorithms_create(&rig.algorithms));
        parity_check(&rig, &cases[i]);
        assert_false(yoke_algorithms_at(rig.algorithms, 0, &key, &name, &milliseconds));
        yoke_algorithms_destroy(rig.algorithms);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_kernels_equal_the_cpu),
        cmocka_unit_test(plans_of_cudnn_equal_the_cpu),
        cmocka_unit_test(a_plan_names_what_computes_it),
        cmocka_unit_test(a_record_holds_the_choice),
        cmocka_unit_test(shapes_that_cudnn_lacks_are_left_to_own_kernels),
    };
    if (devices_gpus() == 0) return DEVICES_SKIPPED;
    return cmocka_run_group_tests(tests, parity_group_open_gpu, parity_group_close);
}
