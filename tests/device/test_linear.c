/* SPDX-License-Identifier: Apache-2.0 */
/* Linear equals a plain loop in double. */
#include "weighted_check.h"

typedef struct shape {
    int rows, in, out;
    bool bias, first_layer;
} shape;

static const shape shapes[] = {
    {64, 784, 128, true, true},                              /* the first layer of an MLP */
    {32, 512, 10, true, false},                              /* the last of a ResNet */
    {16, 256, 256, false, false}, {1, 100, 60, true, false}, /* one row */
    {7, 33, 17, true, false},                                /* multiples of nothing */
    {5, 1, 1, true, false},
};
enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };

static check_case case_of(const shape *s, yoke_precision precision, yoke_algorithm algorithm) {
    return (check_case){.operation = {.kind = YOKE_OP_LINEAR,
                                      .name = "linear",
                                      .input = {s->in, 1, 1},
                                      .output = {s->out, 1, 1},
                                      .bias = s->bias},
                        .rows = s->rows,
                        .precision = precision,
                        .algorithm = algorithm,
                        .first_layer = s->first_layer};
}

static void compare(const char *what, const shape *s, const float *got, const double *wanted,
                    size_t count, double tolerance) {
    double distance = check_distance(got, wanted, count);
    if (distance > tolerance)
        fail_msg("%s of %d x %d to %d: relative error %.2e", what, s->rows, s->in, s->out,
                 distance);
}

static double *zeros(size_t count) {
    double *values = calloc(count, sizeof *values);
    assert_non_null(values);
    return values;
}

static void check_results(const shape *s, const check_run *run, double tolerance) {
    size_t rows = (size_t)s->rows, in = (size_t)s->in, out = (size_t)s->out;
    double *y = zeros(rows * out), *dx = zeros(rows * in), *dw = zeros(out * in), *db = zeros(out);
    for (size_t i = 0; i < rows * out; i++) {
        size_t row = i / out, o = i % out;
        double dy = (double)run->dy[i];
        y[i] = s->bias ? (double)run->b[o] : 0;
        db[o] += dy;
        for (size_t k = 0; k < in; k++) {
            double x = (double)run->x[row * in + k], w = (double)run->w[o * in + k];
            y[i] += x * w;
            dx[row * in + k] += dy * w;
            dw[o * in + k] += dy * x;
        }
    }
    compare("output", s, run->y, y, rows * out, tolerance);
    compare("weight gradient", s, run->dw, dw, out * in, tolerance);
    if (!s->first_layer) compare("input gradient", s, run->dx, dx, rows * in, tolerance);
    if (s->bias) compare("bias gradient", s, run->db, db, out, tolerance);
    free(y);
    free(dx);
    free(dw);
    free(db);
}

static void check_all(yoke_precision precision, yoke_algorithm algorithm, bool plain_weights) {
    check_rig rig;
    check_rig_open(&rig, "cpu");
    if (!yoke_device_supports(rig.device, precision)) {
        print_message("skipped: the processor does not compute in bfloat16\n");
        check_rig_close(&rig);
        skip();
    }
    double tolerance = precision == YOKE_BFLOAT16 ? 2e-2 : 5e-6;
    for (int i = 0; i < SHAPE_COUNT; i++) {
        check_case c = case_of(&shapes[i], precision, algorithm);
        check_run run = check_run_new(&c);
        const int64_t weight_shape[] = {shapes[i].out, shapes[i].in};
        yoke_layout plain;
        EXPECT_OK(yoke_layout_plain(rig.device, weight_shape, 2, &plain));
        check_execute(rig.device, &c, rig.algorithms, plain_weights ? &plain : NULL, &run);
        if (plain_weights) assert_true(yoke_layout_equal(&plain, &run.needs.parameters[0]));
        check_results(&shapes[i], &run, tolerance);
        check_run_free(&run);
    }
    check_rig_close(&rig);
}

static void direct_equals_a_plain_loop(void **state) {
    (void)state;
    check_all(YOKE_FLOAT32, YOKE_ALGORITHM_DIRECT, false);
}

static void measured_equals_a_plain_loop(void **state) {
    (void)state;
    check_all(YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED, false);
}

static void bfloat16_equals_a_plain_loop_to_its_precision(void **state) {
    (void)state;
    check_all(YOKE_BFLOAT16, YOKE_ALGORITHM_MEASURED, false);
}

/* oneDNN 2.6 loses the gradient of the data where they are many, on several threads. */
static void odd_outputs_of_few_rows_in_bfloat16(void **state) {
    (void)state;
    static const int rows[] = {1, 3, 17, 64, 385}, outs[] = {5, 131, 2050, 4097};
    static const yoke_algorithm algorithms[] = {YOKE_ALGORITHM_DIRECT, YOKE_ALGORITHM_MEASURED};
    check_rig rig;
    check_rig_open_threads(&rig, "cpu", 2);
    if (!yoke_device_supports(rig.device, YOKE_BFLOAT16)) {
        print_message("skipped: the processor does not compute in bfloat16\n");
        check_rig_close(&rig);
        skip();
    }
    for (int i = 0; i < 5 * 4 * 2; i++) {
        shape s = {rows[i % 5], 64, outs[i / 5 % 4], true, false};
        check_case c = case_of(&s, YOKE_BFLOAT16, algorithms[i / 20]);
        check_run run = check_run_new(&c);
        check_execute(rig.device, &c, rig.algorithms, NULL, &run);
        check_results(&s, &run, 2e-2);
        check_run_free(&run);
    }
    check_rig_close(&rig);
}

static void a_given_weight_layout_is_kept(void **state) {
    (void)state;
    check_all(YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED, true);
}

/* Rows change the kernel that is best, never the result's shape or the weights' layout. */
static void another_number_of_rows_takes_the_same_weights(void **state) {
    (void)state;
    check_rig rig;
    check_rig_open(&rig, "cpu");
    shape s = {32, 96, 48, true, false};
    check_case c = case_of(&s, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
    check_run first = check_run_new(&c);
    check_execute(rig.device, &c, rig.algorithms, NULL, &first);
    for (s.rows = 1; s.rows < 32; s.rows += 5) {
        c.rows = s.rows;
        check_run run = check_run_new(&c);
        check_execute(rig.device, &c, rig.algorithms, &first.needs.parameters[0], &run);
        assert_true(yoke_layout_equal(&run.needs.parameters[0], &first.needs.parameters[0]));
        check_results(&s, &run, 5e-6);
        check_run_free(&run);
    }
    check_run_free(&first);
    check_rig_close(&rig);
}

/* value = sum of left[k * left_step] * right[k * right_step], one product after the other. */
static float chain_of(const float *left, size_t left_step, const float *right, size_t right_step,
                      size_t count) {
    float sum = 0;
    for (size_t k = 0; k < count; k++)
        sum += left[k * left_step] * right[k * right_step];
    return sum;
}

static double exact_chain_of(const float *left, size_t left_step, const float *right,
                             size_t right_step, size_t count) {
    double sum = 0;
    for (size_t k = 0; k < count; k++)
        sum += (double)left[k * left_step] * (double)right[k * right_step];
    return sum;
}

/* PyTorch's products add blocks, too. */
static void direct_is_closer_to_float64_than_one_long_sum(void **state) {
    (void)state;
    enum { ROWS = 8, SIDE = 1024 };
    static float y[ROWS * SIDE], dx[ROWS * SIDE];
    static double exact_y[ROWS * SIDE], exact_dx[ROWS * SIDE];
    check_rig rig;
    check_rig_open(&rig, "cpu");
    shape s = {ROWS, SIDE, SIDE, false, false};
    check_case c = case_of(&s, YOKE_FLOAT32, YOKE_ALGORITHM_DIRECT);
    check_run run = check_run_new(&c);
    check_execute(rig.device, &c, rig.algorithms, NULL, &run);
    for (size_t i = 0; i < (size_t)ROWS * SIDE; i++) {
        size_t row = i / SIDE * SIDE, column = i % SIDE;
        y[i] = chain_of(run.x + row, 1, run.w + column * SIDE, 1, SIDE);
        dx[i] = chain_of(run.dy + row, 1, run.w + column, SIDE, SIDE);
        exact_y[i] = exact_chain_of(run.x + row, 1, run.w + column * SIDE, 1, SIDE);
        exact_dx[i] = exact_chain_of(run.dy + row, 1, run.w + column, SIDE, SIDE);
    }
    double forward = check_distance(run.y, exact_y, (size_t)ROWS * SIDE);
    double backward = check_distance(run.dx, exact_dx, (size_t)ROWS * SIDE);
    assert_true(forward < 0.8 * check_distance(y, exact_y, (size_t)ROWS * SIDE));
    assert_true(backward < 0.8 * check_distance(dx, exact_dx, (size_t)ROWS * SIDE));
    check_run_free(&run);
    check_rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_equals_a_plain_loop),
        cmocka_unit_test(direct_is_closer_to_float64_than_one_long_sum),
        cmocka_unit_test(measured_equals_a_plain_loop),
        cmocka_unit_test(bfloat16_equals_a_plain_loop_to_its_precision),
        cmocka_unit_test(odd_outputs_of_few_rows_in_bfloat16),
        cmocka_unit_test(a_given_weight_layout_is_kept),
        cmocka_unit_test(another_number_of_rows_takes_the_same_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
