/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution and transposed convolution equal a plain loop in double, whatever algorithm and
 * layout compute them. */
#include "device/backend.h"
#include "weighted_check.h"

#define FLOAT32_TOLERANCE 5e-6
#define BFLOAT16_TOLERANCE 2e-2

/* The reference. */

typedef struct reference {
    double *y, *dx, *dw, *db;
    bool transposed;
} reference;

typedef struct position {
    int row, out, in, group_in, y, x, ky, kx, in_y, in_x; /* one multiplication */
} position;

static size_t at(int a, int size_b, int b, int size_c, int c, int size_d, int d) {
    return (((size_t)a * (size_t)size_b + (size_t)b) * (size_t)size_c + (size_t)c) *
               (size_t)size_d +
           (size_t)d;
}

/* `op`: the convolution, also where the plan is that of the transposed one, which reads what the
 * convolution writes. */
static void multiply(const check_run *run, const yoke_operation *op, const position *p,
                     reference *to) {
    int group_channels = op->input.channels / op->groups;
    yoke_taps down = yoke_taps_down(op), across = yoke_taps_across(op);
    size_t i =
        at(p->row, op->input.channels, p->in, op->input.height, p->in_y, op->input.width, p->in_x);
    size_t o =
        at(p->row, op->output.channels, p->out, op->output.height, p->y, op->output.width, p->x);
    size_t k = at(p->out, group_channels, p->group_in, down.kernel, p->ky, across.kernel, p->kx);
    if (to->transposed) {
        to->y[i] += (double)run->x[o] * (double)run->w[k];
        to->dx[o] += (double)run->dy[i] * (double)run->w[k];
        to->dw[k] += (double)run->dy[i] * (double)run->x[o];
        return;
    }
    to->y[o] += (double)run->x[i] * (double)run->w[k];
    to->dx[i] += (double)run->dy[o] * (double)run->w[k];
    to->dw[k] += (double)run->dy[o] * (double)run->x[i];
}

static void apply_window(const check_run *run, const yoke_operation *op, position p,
                         reference *to) {
    yoke_taps down = yoke_taps_down(op), across = yoke_taps_across(op);
    for (p.ky = 0; p.ky < down.kernel; p.ky++) {
        p.in_y = p.y * down.stride - down.padding + p.ky * down.dilation;
        if (p.in_y < 0 || p.in_y >= op->input.height) continue;
        for (p.kx = 0; p.kx < across.kernel; p.kx++) {
            p.in_x = p.x * across.stride - across.padding + p.kx * across.dilation;
            if (p.in_x < 0 || p.in_x >= op->input.width) continue;
            multiply(run, op, &p, to);
        }
    }
}

static void apply_channels(const check_run *run, const yoke_operation *op, position p,
                           reference *to) {
    int in = op->input.channels / op->groups, out = op->output.channels / op->groups;
    for (p.group_in = 0; p.group_in < in; p.group_in++) {
        p.in = p.out / out * in + p.group_in;
        apply_window(run, op, p, to);
    }
}

/* The bias and its gradient. */
static void add_bias(const check_case *c, const check_run *run, reference *to) {
    yoke_dims output = c->operation.output;
    int pixels = output.height * output.width;
    for (int i = 0; i < c->rows * output.channels * pixels; i++) {
        int channel = i / pixels % output.channels;
        if (c->operation.bias) to->y[i] += (double)run->b[channel];
        to->db[channel] += (double)run->dy[i];
    }
}

static reference compute_reference(const check_case *c, const check_run *run) {
    bool transposed = c->operation.kind == YOKE_OP_CONV_TRANSPOSE2D;
    const yoke_operation convolution =
        transposed ? yoke_transposed_convolution(&c->operation) : c->operation;
    const yoke_operation *op = &convolution;
    reference to = {calloc(run->sizes.output, sizeof(double)),
                    calloc(run->sizes.input, sizeof(double)),
                    calloc(run->sizes.weights, sizeof(double)),
                    calloc((size_t)c->operation.output.channels, sizeof(double)), transposed};
    assert_true(to.y && to.dx && to.dw && to.db);
    int pixels = op->output.height * op->output.width;
    int outputs = c->rows * op->output.channels * pixels;
    for (int i = 0; i < outputs; i++) {
        position p = {.row = i / (op->output.channels * pixels),
                      .out = i / pixels % op->output.channels,
                      .y = i % pixels / op->output.width,
                      .x = i % op->output.width};
        apply_channels(run, op, p, &to);
    }
    add_bias(c, run, &to);
    return to;
}

static void free_reference(reference *r) {
    free(r->y);
    free(r->dx);
    free(r->dw);
    free(r->db);
}

/* Cases. */

typedef struct shape {
    int rows, in, height, width, out, kernel, stride, padding, groups;
    bool bias, first_layer;
    int dilation;
    yoke_taps across; /* kernel 0: square */
    bool transposed;
    int output_padding;
} shape;

static const shape shapes[] = {
    {4, 3, 12, 12, 16, 3, 1, 1, 1, false, true, 1},   /* the first layer of a CIFAR network */
    {2, 3, 23, 23, 32, 7, 2, 3, 1, false, true, 1},   /* of an ImageNet network */
    {2, 1, 9, 9, 8, 5, 1, 2, 1, true, true, 1},       /* of an MNIST network */
    {4, 32, 12, 12, 32, 3, 1, 1, 1, false, false, 1}, /* where Winograd serves */
    {3, 16, 13, 11, 32, 3, 1, 1, 1, true, false, 1},  /* odd sizes */
    {2, 32, 12, 12, 64, 3, 2, 1, 1, false, false, 1}, /* stride */
    {2, 32, 7, 7, 48, 1, 2, 0, 1, false, false, 1},   /* a shortcut on an odd size */
    {4, 64, 6, 6, 32, 1, 1, 0, 1, true, false, 1},    /* one tap */
    {2, 24, 7, 7, 20, 3, 1, 1, 1, true, false, 1},    /* channels not multiples of 16 */
    {2, 5, 6, 6, 7, 3, 1, 0, 1, true, false, 1},      /* nor of anything */
    {2, 32, 8, 8, 32, 3, 1, 1, 4, false, false, 1},   /* groups */
    {2, 16, 8, 8, 32, 3, 1, 1, 16, true, false, 1},   /* depthwise, two outputs a channel */
    {2, 32, 9, 9, 32, 3, 2, 1, 32, false, false, 1},  /* depthwise */
    {1, 16, 5, 5, 16, 3, 1, 1, 1, false, false, 1},   /* one row */
    {4, 64, 1, 1, 64, 3, 1, 1, 1, false, false, 1},   /* only the centre tap meets the image */
    {4, 32, 2, 2, 64, 3, 2, 1, 1, true, false, 1},    /* four of nine taps do */
    {3, 24, 1, 1, 40, 3, 1, 1, 1, false, false, 1},
    {2, 32, 1, 1, 32, 3, 1, 1, 32, false, false, 1},
    {5, 48, 1, 1, 32, 1, 1, 0, 1, true, false, 1}, /* one output pixel: all taps, all pixels */
    {3, 20, 1, 1, 12, 1, 1, 0, 1, false, false, 1},
    {4, 32, 2, 2, 48, 1, 2, 0, 1, false, false, 1}, /* one of four pixels */
    {3, 16, 5, 5, 24, 5, 1, 0, 1, true, false, 1},  /* all taps and pixels */
    {3, 16, 3, 3, 24, 2, 2, 0, 1, true, false, 1},  /* part of the pixels */
    {2, 3, 2, 2, 16, 7, 4, 3, 1, false, true, 1},
    {2, 16, 1, 2, 16, 5, 2, 2, 1, true, false, 1},        /* not square */
    {2, 16, 12, 11, 32, 3, 1, 2, 1, true, false, 2},      /* dilated, where Winograd would serve */
    {2, 3, 15, 13, 16, 3, 2, 1, 1, false, true, 3},       /* dilated by stride */
    {2, 32, 9, 9, 32, 3, 1, 2, 32, true, false, 2},       /* dilated depthwise */
    {2, 16, 5, 5, 24, 3, 1, 0, 1, true, false, 2},        /* one output pixel, nine of 25 met */
    {3, 40, 8, 8, 40, 3, 1, 1, 40, false, false, 1},      /* depthwise, channels not of 16 */
    {2, 144, 14, 14, 144, 3, 2, 1, 144, false, false, 1}, /* depthwise as in MobileNetV2 */
    {3, 48, 2, 2, 48, 3, 1, 1, 48, false, false, 1},      /* on images smaller than the kernel */
    {3, 20, 1, 3, 20, 5, 2, 2, 20, false, false, 1},
    {3, 40, 2, 2, 40, 7, 1, 3, 40, true, false, 1}, /* as in ConvNeXt */
    {2, 32, 8, 8, 32, 7, 1, 3, 32, true, false, 1},
    /* rectangular windows */
    {2, 16, 9, 11, 24, 3, 1, 1, 1, true, false, 1, {5, 1, 2, 1}},
    {2, 3, 12, 9, 16, 1, 1, 0, 1, false, true, 1, {7, 2, 3, 1}},
    {2, 32, 10, 12, 32, 3, 2, 1, 1, false, false, 1, {3, 1, 1, 1}}, /* strides differ alone */
    {2, 32, 12, 12, 32, 3, 1, 1, 1, false, false, 1, {3, 1, 0, 1}}, /* paddings, beside Winograd */
    {2, 8, 7, 13, 12, 2, 2, 0, 4, true, false, 3, {4, 3, 2, 2}},    /* everything, in groups */
    {3, 32, 1, 40, 48, 1, 1, 0, 1, true, false, 1, {5, 1, 2, 1}},   /* a line */
    {2, 16, 9, 7, 16, 5, 2, 2, 16, false, false, 1, {3, 1, 1, 2}},  /* depthwise */
    {2, 24, 1, 30, 24, 1, 1, 0, 24, false, false, 1, {7, 1, 3, 1}}, /* along a line */
    {2, 16, 3, 5, 24, 3, 1, 0, 1, true, false, 1, {5, 1, 0, 1}},    /* one output pixel */
    {2, 8, 4, 4, 16, 1, 1, 0, 1, true, false, 1, {1, 2, 0, 1}},     /* one tap, every other pixel */
    /* transposed */
    {2, 32, 6, 5, 16, 2, 2, 0, 1, true, false, 1, {0}, true, 0},
    {2, 16, 5, 7, 24, 4, 2, 1, 1, false, false, 1, {0}, true, 0},
    {2, 24, 4, 4, 20, 3, 2, 1, 1, true, false, 1, {0}, true, 1},
    {3, 20, 1, 1, 32, 4, 1, 0, 1, false, false, 1, {0}, true, 0}, /* from one pixel */
    {2, 12, 5, 4, 18, 3, 2, 1, 3, true, false, 2, {0}, true, 1},  /* groups, dilated */
    {2, 16, 5, 5, 16, 3, 2, 1, 16, true, false, 1, {0}, true, 1}, /* depthwise */
    {2, 5, 4, 6, 7, 3, 1, 1, 1, true, false, 1, {5, 2, 0, 1}, true, 0},
    {2, 8, 4, 3, 8, 2, 3, 0, 1, false, false, 2, {0}, true, 2},
    {2, 8, 6, 6, 16, 1, 1, 0, 1, true, false, 1, {0}, true, 0}, /* one tap */
    {2, 3, 6, 6, 8, 4, 2, 1, 1, true, true, 1, {0}, true, 0},   /* reads the model's input */
    {2, 8, 3, 3, 8, 2, 4, 0, 1, true, false, 1, {0}, true, 2},  /* pixels that no tap meets */
};
enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };

static int places_of(const shape *s, yoke_taps taps, int size) {
    int side = yoke_taps_side(taps);
    if (s->transposed)
        return (size - 1) * taps.stride - 2 * taps.padding + side + s->output_padding;
    return (size + 2 * taps.padding - side) / taps.stride + 1;
}

static check_case case_of(const shape *s, yoke_precision precision, yoke_algorithm algorithm) {
    yoke_taps down = {s->kernel, s->stride, s->padding, s->dilation};
    int height = places_of(s, down, s->height);
    int width = places_of(s, s->across.kernel > 0 ? s->across : down, s->width);
    return (check_case){
        .operation = {.kind = s->transposed ? YOKE_OP_CONV_TRANSPOSE2D : YOKE_OP_CONV2D,
                      .across = s->across,
                      .name = "conv",
                      .input = {s->in, s->height, s->width},
                      .output = {s->out, height, width},
                      .kernel = s->kernel,
                      .stride = s->stride,
                      .padding = s->padding,
                      .groups = s->groups,
                      .dilation = s->dilation,
                      .bias = s->bias},
        .rows = s->rows,
        .precision = precision,
        .algorithm = algorithm,
        .first_layer = s->first_layer};
}

static void compare(const char *what, const shape *s, double distance, double tolerance) {
    if (distance <= tolerance) return;
    fail_msg("%s of %d x %dx%dx%d to %d, kernel %d/%d: relative error %.2e", what, s->rows, s->in,
             s->height, s->width, s->out, s->kernel, s->stride, distance);
}

static void check_results(const shape *s, const check_case *c, const check_run *run,
                          double tolerance) {
    reference r = compute_reference(c, run);
    compare("output", s, check_distance(run->y, r.y, run->sizes.output), tolerance);
    compare("weight gradient", s, check_distance(run->dw, r.dw, run->sizes.weights), tolerance);
    if (!s->first_layer)
        compare("input gradient", s, check_distance(run->dx, r.dx, run->sizes.input), tolerance);
    if (s->bias)
        compare("bias gradient", s, check_distance(run->db, r.db, (size_t)s->out), tolerance);
    free_reference(&r);
}

static void check_shape(check_rig *rig, const shape *s, yoke_precision precision,
                        yoke_algorithm algorithm) {
    check_case c = case_of(s, precision, algorithm);
    check_run run = check_run_new(&c);
    check_execute(rig->device, &c, rig->algorithms, NULL, &run);
    check_results(s, &c, &run, precision == YOKE_BFLOAT16 ? BFLOAT16_TOLERANCE : FLOAT32_TOLERANCE);
    check_run_free(&run);
}

static void check_all(yoke_precision precision, yoke_algorithm algorithm) {
    check_rig rig;
    check_rig_open(&rig, "cpu");
    if (!yoke_device_supports(rig.device, precision)) {
        print_message("skipped: the processor does not compute in bfloat16\n");
        check_rig_close(&rig);
        skip();
    }
    for (int i = 0; i < SHAPE_COUNT; i++)
        check_shape(&rig, &shapes[i], precision, algorithm);
    check_rig_close(&rig);
}

/* Promises. */

static void direct_equals_a_plain_loop(void **state) {
    (void)state;
    check_all(YOKE_FLOAT32, YOKE_ALGORITHM_DIRECT);
}

static void measured_equals_a_plain_loop(void **state) {
    (void)state;
    check_all(YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
}

static void bfloat16_equals_a_plain_loop_to_its_precision(void **state) {
    (void)state;
    check_all(YOKE_BFLOAT16, YOKE_ALGORITHM_DIRECT);
}

static void measured_bfloat16_equals_a_plain_loop_to_its_precision(void **state) {
    (void)state;
    check_all(YOKE_BFLOAT16, YOKE_ALGORITHM_MEASURED);
}

/* Copies the keys of a record with another candidate for all of them. */
static yoke_algorithms *with_candidate(const yoke_algorithms *measured, int candidate) {
    yoke_algorithms *algorithms = NULL;
    EXPECT_OK(yoke_algorithms_create(&algorithms));
    const char *key, *name;
    double milliseconds;
    const char *algorithm = candidate < 4 ? "direct" : candidate < 12 ? "winograd" : "depthwise";
    for (int i = 0; yoke_algorithms_at(measured, i, &key, &name, &milliseconds); i++)
        EXPECT_OK(yoke_algorithms_add(algorithms, key, candidate, algorithm, 0));
    return algorithms;
}

/* Direct convolution and Winograd compute every pass of the shape in row 3: both have been run. */
static void expect_times(const yoke_algorithms *measured) {
    const char *key, *name;
    double milliseconds;
    int rows = 0;
    while (yoke_algorithms_at(measured, rows, &key, &name, &milliseconds)) {
        if (milliseconds <= 0) fail_msg("'%s' of '%s' has not been measured", name, key);
        rows++;
    }
    assert_int_equal(rows, 3);
}

/* Winograd and every way of keeping layouts, where the shape has them; direct where it has not. */
static void every_candidate_equals_a_plain_loop(void **state) {
    (void)state;
    static const int imposed[] = {1, 2, 3, 4, 5, 7};
    check_rig rig;
    check_rig_open(&rig, "cpu");
    const shape *s = &shapes[3];
    check_shape(&rig, s, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
    yoke_algorithms *measured = rig.algorithms;
    expect_times(measured);
    for (size_t i = 0; i < sizeof imposed / sizeof imposed[0]; i++) {
        rig.algorithms = with_candidate(measured, imposed[i]);
        check_shape(&rig, s, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
        yoke_algorithms_destroy(rig.algorithms);
    }
    rig.algorithms = measured;
    check_rig_close(&rig);
}

/* Forward and the gradient of the weights; that of the data falls back to direct. */
static void depthwise_loops_equal_a_plain_loop(void **state) {
    (void)state;
    int checked = 0;
    for (int i = 0; i < SHAPE_COUNT; i++) {
        const shape *s = &shapes[i];
        if (s->groups != s->in || s->in == 1 || s->out != s->in) continue;
        check_rig rig;
        check_rig_open(&rig, "cpu");
        check_shape(&rig, s, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
        yoke_algorithms *measured = rig.algorithms;
        rig.algorithms = with_candidate(measured, 12);
        check_shape(&rig, s, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
        yoke_algorithms_destroy(rig.algorithms);
        rig.algorithms = measured;
        check_rig_close(&rig);
        checked++;
    }
    assert_true(checked >= 6);
}

/* oneDNN 2 needs a product for these, which takes long. */
static void small_depthwise_convolutions_are_measured_to_be_fast(void **state) {
    (void)state;
    static const shape small[] = {{32, 960, 2, 2, 960, 3, 1, 1, 960, false, false, 1},
                                  {32, 384, 2, 2, 384, 7, 1, 3, 384, true, false, 1}};
    for (size_t s = 0; s < sizeof small / sizeof small[0]; s++) {
        check_rig rig;
        check_rig_open(&rig, "cpu");
        check_shape(&rig, &small[s], YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
        const char *key, *name;
        double milliseconds;
        int gemm = 0;
        for (int i = 0; yoke_algorithms_at(rig.algorithms, i, &key, &name, &milliseconds); i++)
            gemm += strstr(name, "gemm") != NULL || strstr(name, "ref") != NULL;
        assert_int_equal(gemm, 0);
        check_shape(&rig, &small[s], YOKE_FLOAT32, YOKE_ALGORITHM_DIRECT);
        check_rig_close(&rig);
    }
}

/* A candidate that does not exist for a shape falls back to direct. */
static void an_impossible_choice_falls_back_to_direct(void **state) {
    (void)state;
    check_rig rig;
    check_rig_open(&rig, "cpu");
    const shape *strided = &shapes[5];
    check_shape(&rig, strided, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
    yoke_algorithms *measured = rig.algorithms;
    rig.algorithms = with_candidate(measured, 4);
    check_shape(&rig, strided, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
    yoke_algorithms_destroy(rig.algorithms);
    rig.algorithms = measured;
    check_rig_close(&rig);
}

static int count_algorithms(const yoke_algorithms *algorithms) {
    const char *key, *name;
    double milliseconds;
    int count = 0;
    while (yoke_algorithms_at(algorithms, count, &key, &name, &milliseconds)) {
        assert_true(milliseconds > 0);
        count++;
    }
    return count;
}

static void a_shape_is_measured_once_for_all_rows(void **state) {
    (void)state;
    check_rig rig;
    check_rig_open(&rig, "cpu");
    shape s = shapes[3];
    check_shape(&rig, &s, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
    assert_int_equal(count_algorithms(rig.algorithms), 3);
    s.rows = 3;
    check_shape(&rig, &s, YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
    assert_int_equal(count_algorithms(rig.algorithms), 3);
    check_rig_close(&rig);
}

static void direct_measures_nothing_and_repeats_its_bits(void **state) {
    (void)state;
    check_rig rig;
    check_rig_open(&rig, "cpu");
    check_case c = case_of(&shapes[4], YOKE_FLOAT32, YOKE_ALGORITHM_DIRECT);
    check_run a = check_run_new(&c), b = check_run_new(&c);
    check_execute(rig.device, &c, rig.algorithms, NULL, &a);
    check_execute(rig.device, &c, rig.algorithms, NULL, &b);
    assert_int_equal(count_algorithms(rig.algorithms), 0);
    assert_memory_equal(a.y, b.y, a.sizes.output * sizeof(float));
    assert_memory_equal(a.dx, b.dx, a.sizes.input * sizeof(float));
    assert_memory_equal(a.dw, b.dw, a.sizes.weights * sizeof(float));
    check_run_free(&a);
    check_run_free(&b);
    check_rig_close(&rig);
}

static void a_given_weight_layout_is_kept(void **state) {
    (void)state;
    check_rig rig;
    check_rig_open(&rig, "cpu");
    for (int i = 0; i < SHAPE_COUNT; i++) {
        check_case c = case_of(&shapes[i], YOKE_FLOAT32, YOKE_ALGORITHM_DIRECT);
        check_run run = check_run_new(&c);
        yoke_layout plain = check_plain(rig.device, run.sizes.weight_shape);
        /* Groups have five dimensions inside; the layout of a first plan is what is given then. */
        if (shapes[i].groups > 1) {
            check_execute(rig.device, &c, rig.algorithms, NULL, &run);
            plain = run.needs.parameters[0];
        }
        check_execute(rig.device, &c, rig.algorithms, &plain, &run);
        assert_true(yoke_layout_equal(&plain, &run.needs.parameters[0]));
        check_results(&shapes[i], &c, &run, FLOAT32_TOLERANCE);
        check_run_free(&run);
    }
    check_rig_close(&rig);
}

static void evaluation_gives_the_bits_of_training(void **state) {
    (void)state;
    check_rig rig;
    check_rig_open(&rig, "cpu");
    check_case c = case_of(&shapes[3], YOKE_FLOAT32, YOKE_ALGORITHM_MEASURED);
    check_run run = check_run_new(&c);
    check_execute(rig.device, &c, rig.algorithms, NULL, &run);
    yoke_layout input, plain_x = check_plain(rig.device, run.sizes.input_shape);
    yoke_layout plain_y = check_plain(rig.device, run.sizes.output_shape);
    yoke_layout plain_w = check_plain(rig.device, run.sizes.weight_shape);
    yoke_plan *plan =
        check_plan(rig.device, &c, rig.algorithms, &run.needs.parameters[0], false, &input);
    const yoke_plan_needs *needs = yoke_plan_describe(plan);
    assert_false(needs->backward_reads[0]);
    assert_true(yoke_layout_equal(&needs->output, &run.needs.output));
    yoke_plan_binding binding = {
        .inputs = {check_memory(rig.device, input.bytes)},
        .output = check_memory(rig.device, needs->output.bytes),
        .parameters = {check_memory(rig.device, needs->parameters[0].bytes)},
        .scratch = check_memory(rig.device, needs->scratch_bytes)};
    EXPECT_OK(yoke_plan_bind(plan, &binding));
    EXPECT_OK(yoke_layout_convert(rig.device, &input, binding.inputs[0], &plain_x, run.x));
    EXPECT_OK(yoke_layout_convert(rig.device, &needs->parameters[0], binding.parameters[0],
                                  &plain_w, run.w));
    yoke_plan_step step = {0};
    EXPECT_OK(yoke_plan_forward(plan, &step));
    EXPECT_OK(yoke_layout_convert(rig.device, &plain_y, run.dy, &needs->output, binding.output));
    assert_memory_equal(run.dy, run.y, run.sizes.output * sizeof(float));
    void *all[] = {binding.inputs[0], binding.output, binding.parameters[0], binding.scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        yoke_device_free(rig.device, all[i]);
    yoke_plan_destroy(plan);
    check_run_free(&run);
    check_rig_close(&rig);
}

static void plain_to_blocked_and_back_loses_nothing_and_pads_with_zeros(void **state) {
    (void)state;
    check_rig rig;
    check_rig_open(&rig, "cpu");
    for (int i = 0; i < SHAPE_COUNT; i++) {
        check_case c = case_of(&shapes[i], YOKE_FLOAT32, YOKE_ALGORITHM_DIRECT);
        yoke_layout input;
        yoke_plan *plan = check_plan(rig.device, &c, rig.algorithms, NULL, true, &input);
        const yoke_layout *blocked = &yoke_plan_describe(plan)->parameters[0];
        check_run run = check_run_new(&c);
        yoke_layout plain = check_plain(rig.device, run.sizes.weight_shape);
        float *memory = check_memory(rig.device, blocked->bytes);
        EXPECT_OK(yoke_layout_convert(rig.device, blocked, memory, &plain, run.w));
        double padded = check_sum(memory, blocked->bytes / sizeof(float));
        assert_true(fabs(padded - check_sum(run.w, run.sizes.weights)) <= 1e-9 * padded);
        EXPECT_OK(yoke_layout_convert(rig.device, &plain, run.dw, blocked, memory));
        assert_memory_equal(run.dw, run.w, run.sizes.weights * sizeof(float));
        yoke_device_free(rig.device, memory);
        yoke_plan_destroy(plan);
        check_run_free(&run);
    }
    check_rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_equals_a_plain_loop),
        cmocka_unit_test(measured_equals_a_plain_loop),
        cmocka_unit_test(bfloat16_equals_a_plain_loop_to_its_precision),
        cmocka_unit_test(measured_bfloat16_equals_a_plain_loop_to_its_precision),
        cmocka_unit_test(every_candidate_equals_a_plain_loop),
        cmocka_unit_test(depthwise_loops_equal_a_plain_loop),
        cmocka_unit_test(small_depthwise_convolutions_are_measured_to_be_fast),
        cmocka_unit_test(an_impossible_choice_falls_back_to_direct),
        cmocka_unit_test(a_shape_is_measured_once_for_all_rows),
        cmocka_unit_test(direct_measures_nothing_and_repeats_its_bits),
        cmocka_unit_test(a_given_weight_layout_is_kept),
        cmocka_unit_test(evaluation_gives_the_bits_of_training),
        cmocka_unit_test(plain_to_blocked_and_back_loses_nothing_and_pads_with_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
