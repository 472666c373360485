/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a linear layer that computes the cross-entropy behind it, against loops in double:
 * from memory full of NaN, in less of it than the logits take. */
#include "operation_check.h"

enum { IN = 5, CLASSES = 16411, ROWS = 1027 }; /* of logits just more than 64 MiB */

typedef struct subject {
    operation_check check;
    yoke_operation output, loss;
    int most_rows;
    bool frozen;
    int32_t labels[ROWS];
    yoke_loss_scalars scalars;
    double *inputs, *weights, *bias;                 /* given */
    double *logits, *dx, *dw, *db, loss_sum, *slope; /* the reference's */
    int correct;
} subject;

static void set_up(subject *s, int rows) {
    operation_check *check = &s->check;
    check->rows = rows;
    check->operation = (yoke_operation){.kind = YOKE_OP_LINEAR,
                                        .input = {IN, 1, 1, false},
                                        .output = {CLASSES, 1, 1, false},
                                        .bias = true};
    s->output = (yoke_operation){.kind = YOKE_OP_OUTPUT,
                                 .input = check->operation.output,
                                 .output = check->operation.output};
    s->loss = s->output;
    s->loss.kind = YOKE_OP_CROSS_ENTROPY;
    s->loss.name = "loss";
}

/* As check_open does, with the loss offered. */
static void plan(subject *s, yoke_device *device) {
    operation_check *check = &s->check;
    check->device = device;
    check->operation.name = "layer";
    yoke_plan_request request = check_request(check);
    request.next[0] = &s->output;
    request.loss = &s->loss;
    request.most_rows = s->most_rows;
    request.frozen = s->frozen;
    CHECK(yoke_plan_create(&check->plan, device, &request));
    check->needs = yoke_plan_describe(check->plan);
}

static void bind(subject *s) {
    operation_check *check = &s->check;
    const yoke_plan_needs *needs = check->needs;
    yoke_plan_binding *binding = &check->binding;
    binding->inputs[0] = check_allocate(check, check->inputs[0].bytes);
    if (!check->no_input_gradient)
        binding->input_gradients[0] = check_allocate(check, check->inputs[0].bytes);
    for (int k = 0; k < YOKE_PLAN_PARAMETERS; k++) {
        binding->parameters[k] = check_allocate(check, needs->parameters[k].bytes);
        binding->parameter_gradients[k] = check_allocate(check, needs->parameters[k].bytes);
    }
    binding->saved = check_allocate(check, needs->saved_bytes);
    binding->scratch = check_allocate(check, needs->scratch_bytes);
    binding->labels = s->labels;
    binding->scalars = &s->scalars;
    check_bind(check);
}

/* Loss, logits and their slopes of one row. */
static void compute_row(subject *s, size_t row, double scale) {
    double *logits = s->logits, largest = -INFINITY, sum = 0;
    size_t best = 0, label = (size_t)s->labels[row];
    for (size_t j = 0; j < CLASSES; j++) {
        logits[j] = s->bias[j];
        for (size_t i = 0; i < IN; i++)
            logits[j] += s->inputs[row * IN + i] * s->weights[j * IN + i];
        if (logits[j] > largest) best = j, largest = logits[j];
    }
    for (size_t j = 0; j < CLASSES; j++)
        sum += exp(logits[j] - largest);
    s->loss_sum += log(sum) - (logits[label] - largest);
    s->correct += best == label;
    for (size_t j = 0; j < CLASSES; j++)
        s->slope[j] = (exp(logits[j] - largest) / sum - (j == label)) * scale;
}

static void compute_reference(subject *s, double scale) {
    size_t rows = (size_t)s->check.rows;
    for (size_t row = 0; row < rows; row++) {
        compute_row(s, row, scale);
        for (size_t j = 0; j < CLASSES; j++) {
            s->db[j] += s->slope[j];
            for (size_t i = 0; i < IN; i++) {
                s->dx[row * IN + i] += s->slope[j] * s->weights[j * IN + i];
                s->dw[j * IN + i] += s->slope[j] * s->inputs[row * IN + i];
            }
        }
    }
}

static void draw(subject *s) {
    size_t rows = (size_t)s->check.rows;
    s->inputs = check_random(rows * IN, -1, 1, 1);
    s->weights = check_random((size_t)CLASSES * IN, -2, 2, 2);
    s->bias = check_random(CLASSES, -1, 1, 3);
    s->logits = test_calloc(CLASSES, sizeof(double));
    s->slope = test_calloc(CLASSES, sizeof(double));
    s->dx = test_calloc(rows * IN, sizeof(double));
    s->dw = test_calloc((size_t)CLASSES * IN, sizeof(double));
    s->db = test_calloc(CLASSES, sizeof(double));
    for (size_t row = 0; row < rows; row++)
        s->labels[row] = (int32_t)(row * 7919 % CLASSES);
    s->labels[1] = CLASSES - 1;
}

static void release(subject *s) {
    double *const all[] = {s->inputs, s->weights, s->bias, s->logits,
                           s->slope,  s->dx,      s->dw,   s->db};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        test_free(all[i]);
    check_close(&s->check);
}

/* `tolerance` of the largest value of each gradient, which are small. */
static void compare(const char *what, const yoke_layout *layout, const void *memory,
                    const double *expected, double tolerance) {
    double largest = 0, *actual = check_load(layout, memory);
    size_t count = check_count(layout);
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(actual[i] - expected[i]) <= tolerance * largest))
            fail_msg("%s[%zu] is %g, expected %g", what, i, actual[i], expected[i]);
    test_free(actual);
}

static void check_subject(yoke_device *device, yoke_precision precision, bool frozen,
                          bool no_input_gradient) {
    subject s = {.frozen = frozen,
                 .check = {.training = true,
                           .precision = precision,
                           .no_input_gradient = no_input_gradient}};
    const double tolerance = precision == YOKE_BFLOAT16 ? 2e-2 : 2e-5;
    const yoke_plan_step step = {.loss_scale = 0.25f, .loss_only = true};
    set_up(&s, ROWS);
    draw(&s);
    plan(&s, device);
    const yoke_plan_needs *needs = s.check.needs;
    yoke_plan_binding *at = &s.check.binding;
    const size_t table = (size_t)ROWS * CLASSES * sizeof(float);
    assert_true(needs->computes_loss && needs->computes_next == 1);
    assert_true(needs->saved_bytes < table / 8);
    if (precision == YOKE_FLOAT32) assert_true(needs->scratch_bytes < table * 4 / 5);
    bind(&s);
    check_store(&s.check.inputs[0], at->inputs[0], s.inputs);
    check_store(&needs->parameters[0], at->parameters[0], s.weights);
    check_store(&needs->parameters[1], at->parameters[1], s.bias);
    compute_reference(&s, (double)step.loss_scale);
    CHECK(yoke_plan_forward(s.check.plan, &step));
    assert_true(fabs(s.scalars.loss_sum - s.loss_sum) <= tolerance * s.loss_sum);
    if (precision == YOKE_FLOAT32) assert_int_equal(s.scalars.correct, s.correct);
    CHECK(yoke_plan_backward(s.check.plan, &step));
    if (!no_input_gradient)
        compare("input gradient", &s.check.inputs[0], at->input_gradients[0], s.dx, tolerance);
    if (!frozen) {
        compare("weight gradient", &needs->parameters[0], at->parameter_gradients[0], s.dw,
                tolerance);
        compare("bias gradient", &needs->parameters[1], at->parameter_gradients[1], s.db,
                tolerance);
    }
    release(&s);
}

static void test_loss_and_gradients_equal_loops_in_double(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        yoke_devices *devices = check_devices(threads);
        yoke_device *device = yoke_devices_at(devices, 0);
        check_subject(device, YOKE_FLOAT32, false, false);
        check_subject(device, YOKE_FLOAT32, threads == 1, threads == 2);
        if (yoke_device_supports(device, YOKE_BFLOAT16))
            check_subject(device, YOKE_BFLOAT16, false, false);
        yoke_devices_close(devices);
    }
}

static bool is_joined(yoke_device *device, subject *s) {
    plan(s, device);
    bool joined = s->check.needs->computes_loss;
    assert_int_equal(s->check.needs->computes_next, joined);
    check_close(&s->check);
    return joined;
}

static void test_small_tables_and_other_losses_stay_apart(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    yoke_device *device = yoke_devices_at(devices, 0);
    subject s = {.check = {.training = true}};
    set_up(&s, 3);
    assert_false(is_joined(device, &s));
    s.most_rows = ROWS; /* a short batch of an engine whose others are joined */
    assert_true(is_joined(device, &s));
    s.check.training = false;
    assert_true(is_joined(device, &s));
    s.loss.kind = YOKE_OP_MSE;
    assert_false(is_joined(device, &s));
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_and_gradients_equal_loops_in_double),
        cmocka_unit_test(test_small_tables_and_other_losses_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
