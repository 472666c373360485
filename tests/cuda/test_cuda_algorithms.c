/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution and linear on a GPU equal the CPU's, whichever algorithm computes them: a record
 * of algorithms imposes each in turn. Skipped without a GPU. */
#include "device/cuda/weighted.h"
#include "operation_parity.h"
#include "support/devices.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
static const yoke_precision precisions[] = {YOKE_FLOAT32, YOKE_TF32, YOKE_BFLOAT16, YOKE_FLOAT16};

/* A choice between computations, not algorithms. */
static bool is_preferred(const parity_case *c, const char *name) {
    return c->preferred != NULL && strcmp(name, c->preferred) == 0;
}

/* A contest each for forward and the two gradients writes the record whose keys are then imposed.
 */
static void measure(parity_rig *rig, const parity_case *c) {
    yoke_algorithms_destroy(rig->algorithms);
    PARITY_OK(yoke_algorithms_create(&rig->algorithms));
    if (c->preferred != NULL) yoke_algorithms_prefer(rig->algorithms, c->preferred);
    parity_check(rig, c);
    const char *key, *name;
    double milliseconds;
    int rows = 0;
    for (int i = 0; yoke_algorithms_at(rig->algorithms, i, &key, &name, &milliseconds); i++)
        rows += !is_preferred(c, name);
    assert_int_equal(rows, c->first_layer ? 2 : 3);
}

typedef yoke_status create_pass(cuda_pass **pass, const cuda_problem *problem,
                                cuda_direction direction, int variant);

/* A convolution's algorithms, the first ones a linear layer's, too. The products have the names of
 * their configurations. */
static const struct {
    const char *name;
    create_pass *create;
    int variant;
} imposable[] = {{"matrix product", cuda_product_pass, 0}, {"matrix product", cuda_product_pass, 1},
                 {"matrix product", cuda_product_pass, 2}, {"matrix product", cuda_product_pass, 3},
                 {"matrix product", cuda_product_pass, 4}, {"matrix product", cuda_product_pass, 5},
                 {"matrix product", cuda_product_pass, 6}, {"matrix product", cuda_product_pass, 7},
                 {"cuDNN 1", cuda_cudnn_pass, 1},          {"im2col", cuda_im2col_pass, 0},
                 {"cuDNN 0", cuda_cudnn_pass, 0},          {"cuDNN 2", cuda_cudnn_pass, 2},
                 {"cuDNN 3", cuda_cudnn_pass, 3},          {"cuDNN 4", cuda_cudnn_pass, 4},
                 {"cuDNN 5", cuda_cudnn_pass, 5},          {"cuDNN 6", cuda_cudnn_pass, 6},
                 {"cuDNN 7", cuda_cudnn_pass, 7},          {"cuDNN plan", cuda_graph_pass, 0},
                 {"cuDNN plan", cuda_graph_pass, 1},       {"cuDNN plan", cuda_graph_pass, 2},
                 {"cuDNN plan", cuda_graph_pass, 3},       {"cuDNN plan", cuda_graph_pass, 4},
                 {"cuDNN plan", cuda_graph_pass, 5},       {"cuDNN plan", cuda_graph_pass, 6},
                 {"cuDNN plan", cuda_graph_pass, 7}};
enum { CUDNN_1 = 8, IM2COL = 9, CUDNN_0 = 10 };

#define PRODUCTS 8 /* of them; a linear layer has no others */

static cuda_direction direction_of(const char *key) {
    return strstr(key, "backward data") != NULL      ? CUDA_BACKWARD_DATA
           : strstr(key, "backward weights") != NULL ? CUDA_BACKWARD_WEIGHTS
                                                     : CUDA_FORWARD;
}

/* The operation that the key's passes compute. */
static yoke_operation operation_of(const parity_case *c, const char *key) {
    yoke_operation operation = c->operation;
    const char *padded = strstr(key, " as ");
    if (padded != NULL) operation.input.channels = atoi(padded + 4);
    return operation;
}

/* The name in a record of an algorithm for the key's pass; false: it does not exist. */
static bool name_algorithm(const parity_rig *rig, const parity_case *c, const char *key,
                           int algorithm, char name[CUDA_NAME_BYTES]) {
    cuda_device *device = cuda_of(yoke_devices_at(rig->devices, 0));
    const yoke_operation operation = operation_of(c, key);
    const cuda_problem problem = {.device = device,
                                  .operation = &operation,
                                  .rows = c->rows,
                                  .type = cuda_compute_type(c->precision),
                                  .tf32 = c->precision == YOKE_TF32};
    cuda_pass *pass = NULL;
    PARITY_OK(cuda_use(&device->base));
    yoke_status status = imposable[algorithm].create(&pass, &problem, direction_of(key),
                                                     imposable[algorithm].variant);
    if (status != YOKE_ERROR_DEVICE) PARITY_OK(status);
    if (pass == NULL) return false;
    snprintf(name, CUDA_NAME_BYTES, "%s%s%s", imposable[algorithm].name,
             pass->configuration[0] != '\0' ? " " : "", pass->configuration);
    pass->destroy(pass);
    return true;
}

/* A record that chooses `algorithm` for every pass that has it, and the first that exists for the
 * others. NULL: no pass has it. */
static yoke_algorithms *imposed(const parity_rig *rig, const parity_case *c, int algorithm) {
    yoke_algorithms *algorithms = NULL;
    const char *key, *measured;
    char name[CUDA_NAME_BYTES];
    double milliseconds;
    bool serves = false;
    PARITY_OK(yoke_algorithms_create(&algorithms));
    if (c->preferred != NULL) yoke_algorithms_prefer(algorithms, c->preferred);
    for (int i = 0; yoke_algorithms_at(rig->algorithms, i, &key, &measured, &milliseconds); i++) {
        if (is_preferred(c, measured)) continue;
        bool has = name_algorithm(rig, c, key, algorithm, name);
        serves = serves || has;
        for (int first = 0; !has; first++)
            has = name_algorithm(rig, c, key, first, name);
        PARITY_OK(yoke_algorithms_add(algorithms, key, 0, name, 0));
    }
    if (serves) return algorithms;
    yoke_algorithms_destroy(algorithms);
    return NULL;
}

static void impose(const parity_rig *rig, const parity_case *c, int algorithm) {
    parity_rig with = *rig;
    with.algorithms = imposed(rig, c, algorithm);
    if (with.algorithms == NULL) return;
    parity_check(&with, c);
    yoke_algorithms_destroy(with.algorithms);
}

/* One of the precisions after the other, case by case. */
static void check_every_algorithm(parity_rig *rig, parity_case c) {
    static size_t cases;
    yoke_device *device = yoke_devices_at(rig->devices, 0);
    c.precision = precisions[cases++ % COUNT(precisions)];
    c.full = c.precision == YOKE_FLOAT32; /* whose algorithm rounds an operand shows */
    if (!yoke_device_supports(device, c.precision)) return;
    measure(rig, &c);
    int count = c.operation.kind == YOKE_OP_LINEAR ? PRODUCTS : CUDA_ALGORITHMS_LIMIT;
    for (int algorithm = 0; algorithm < count; algorithm++)
        impose(rig, &c, algorithm);
}

static void check_every_precision(parity_rig *rig, const parity_case *c) {
    for (size_t i = 0; i < COUNT(precisions); i++)
        check_every_algorithm(rig, *c);
}

static int outputs(int pixels, const yoke_operation *operation) {
    int room = pixels + 2 * operation->padding - operation->kernel;
    return room < 0 ? 0 : room / operation->stride + 1;
}

static parity_case convolution(yoke_dims input, int out, int kernel, int stride, int padding) {
    yoke_operation operation = {.kind = YOKE_OP_CONV2D,
                                .name = "layer",
                                .input = input,
                                .kernel = kernel,
                                .stride = stride,
                                .padding = padding,
                                .groups = 1,
                                .dilation = 1};
    operation.output =
        (yoke_dims){out, outputs(input.height, &operation), outputs(input.width, &operation)};
    return (parity_case){.operation = operation, .rows = 3};
}

static bool has_output(const parity_case *c) {
    return c->operation.output.height > 0 && c->operation.output.width > 0;
}

/* Tests. */

static void every_kernel_stride_and_padding(void **state) {
    parity_rig *rig = *state;
    static const int kernels[] = {1, 2, 3, 5, 7};
    for (size_t k = 0; k < COUNT(kernels); k++)
        for (int stride = 1; stride <= 3; stride++)
            for (int padding = 0; padding <= 3 && padding < kernels[k]; padding++) {
                parity_case c = convolution((yoke_dims){3, 6, 5}, 5, kernels[k], stride, padding);
                if (has_output(&c)) check_every_algorithm(rig, c);
            }
}

static bool is_one_pixel(const parity_case *c) {
    return c->operation.output.height == 1 && c->operation.output.width == 1;
}

/* Only part of the taps meets the image. */
static void every_image_that_becomes_one_pixel(void **state) {
    parity_rig *rig = *state;
    for (int kernel = 1; kernel <= 5; kernel++)
        for (int pixels = 1; pixels <= 4; pixels++)
            for (int padding = 0; padding < kernel; padding++) {
                yoke_dims input = {4, pixels, pixels == 3 ? 2 : pixels};
                parity_case c = convolution(input, 6, kernel, 2, padding);
                if (is_one_pixel(&c)) check_every_algorithm(rig, c);
            }
}

static void images_of_one_pixel_in_every_precision(void **state) {
    parity_case c = convolution((yoke_dims){8, 1, 1}, 8, 3, 1, 1);
    check_every_precision(*state, &c);
    c = convolution((yoke_dims){8, 2, 2}, 8, 3, 2, 1);
    check_every_precision(*state, &c);
}

static void groups(void **state) {
    for (int kernel = 1; kernel <= 3; kernel += 2)
        for (int count = 2; count <= 8; count *= 4) {
            parity_case c = convolution((yoke_dims){8, 5, 4}, 16, kernel, 1, kernel / 2);
            c.operation.groups = count;
            check_every_precision(*state, &c);
        }
}

static void biases(void **state) {
    static const int shapes[][4] = {
        {1, 1, 0, 1}, {3, 1, 1, 1}, {3, 2, 1, 1}, {1, 1, 0, 2}, {3, 1, 1, 2}};
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int pixels = 1; pixels <= 5; pixels += 4) {
            const int *s = shapes[i];
            parity_case c = convolution((yoke_dims){4, pixels, pixels}, 6, s[0], s[1], s[2]);
            c.operation.groups = s[3];
            c.operation.bias = true;
            check_every_algorithm(*state, c);
        }
}

static void first_layers_that_read_plain_float32(void **state) {
    for (int channels = 1; channels <= 3; channels += 2) {
        parity_case c = convolution((yoke_dims){channels, 7, 6}, 8, 3, 1, 1);
        c.plain = c.first_layer = true;
        c.preferred = channels > 1 ? "3 channels" : NULL;
        check_every_precision(*state, &c);
    }
}

static const char *own_channels(int channels) {
    return channels == 3 ? "3 channels" : channels == 5 ? "5 channels" : "7 channels";
}

/* The record of algorithms names what the passes read. */
static void expect_channels(const parity_rig *rig, int channels, int wanted) {
    char shape[32], padded[32];
    const char *key, *name;
    double milliseconds;
    int found = 0, with_more = 0;
    snprintf(shape, sizeof shape, "conv %dx", channels);
    snprintf(padded, sizeof padded, " as %d channels", wanted);
    for (int i = 0; yoke_algorithms_at(rig->algorithms, i, &key, &name, &milliseconds); i++) {
        if (strncmp(key, shape, strlen(shape)) != 0 || strstr(key, "ward") == NULL) continue;
        found++;
        with_more += strstr(key, padded) != NULL;
    }
    assert_int_equal(found, 2);
    assert_int_equal(with_more, channels > 1 && channels < wanted ? found : 0);
}

static void first_layers_with_more_channels(void **state) {
    parity_rig *rig = *state;
    static const char *const stems[] = {"4 channels", "8 channels"};
    for (size_t i = 0; i < 2 * COUNT(stems); i++)
        for (int channels = 1; channels <= 7; channels += 2) {
            int wanted = i / 2 == 0 ? 4 : 8;
            bool exists = channels > 1 && channels < wanted;
            parity_case c = convolution((yoke_dims){channels, 7, 6}, 8, i % 2 == 0 ? 3 : 1, 2, 0);
            c.operation.bias = channels == 3;
            c.plain = c.first_layer = true;
            c.preferred = exists ? stems[i / 2] : channels == 1 ? NULL : own_channels(channels);
            check_every_precision(rig, &c);
            expect_channels(rig, channels, wanted);
        }
}

static void linear(void **state) {
    static const int shapes[][3] = {{1, 1, 1}, {5, 7, 3}, {32, 64, 10}, {200, 33, 17}};
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int first = 0; first < 2; first++) {
            parity_case c = {.rows = shapes[i][0],
                             .operation = {.kind = YOKE_OP_LINEAR,
                                           .name = "layer",
                                           .input = {shapes[i][1], 1, 1},
                                           .output = {shapes[i][2], 1, 1},
                                           .bias = i % 2 == 0}};
            c.plain = c.first_layer = first == 1;
            check_every_algorithm(*state, c);
        }
}

static void expect_algorithms(const parity_rig *rig, const parity_case *c,
                              yoke_algorithms *algorithms, const char *expected) {
    parity_side side = {.c = c, .device = yoke_devices_at(rig->devices, 0)};
    parity_plan(&side, algorithms);
    for (int direction = 0; direction < YOKE_DIRECTIONS; direction++)
        assert_string_equal(yoke_plan_algorithm(side.plan, (yoke_direction)direction), expected);
    yoke_plan_destroy(side.plan);
    yoke_algorithms_destroy(algorithms);
}

static void a_plan_names_the_algorithms_that_compute_it(void **state) {
    parity_rig *rig = *state;
    parity_case c = convolution((yoke_dims){8, 6, 6}, 8, 3, 1, 1);
    measure(rig, &c);
    expect_algorithms(rig, &c, imposed(rig, &c, IM2COL), "im2col");
    if (cuda_of(yoke_devices_at(rig->devices, 0))->cudnn != NULL)
        expect_algorithms(rig, &c, imposed(rig, &c, CUDNN_1), "cuDNN 1");
    c = convolution((yoke_dims){8, 6, 6}, 8, 1, 1, 0);
    measure(rig, &c);
    expect_algorithms(rig, &c, imposed(rig, &c, 0), "matrix product");
}

/* A record for every pass of the last measured case. */
static yoke_algorithms *named(const parity_rig *rig, const char *name) {
    yoke_algorithms *algorithms = NULL;
    const char *key, *measured;
    double milliseconds;
    PARITY_OK(yoke_algorithms_create(&algorithms));
    for (int i = 0; yoke_algorithms_at(rig->algorithms, i, &key, &measured, &milliseconds); i++)
        PARITY_OK(yoke_algorithms_add(algorithms, key, 0, name, 0));
    return algorithms;
}

static void what_does_not_exist_is_measured_anew_and_named(void **state) {
    parity_rig *rig = *state;
    static const char *const names[] = {"cuDNN 77", "matrix product 3",
                                        "matrix product 9999:0:0:1:0:0:0:0:0",
                                        "matrix product 21:20:0:1:0:0:0:0:70000"};
    parity_case c = convolution((yoke_dims){8, 6, 6}, 8, 1, 1, 0);
    measure(rig, &c);
    for (size_t i = 0; i < COUNT(names); i++) {
        parity_rig with = *rig;
        with.algorithms = named(rig, names[i]);
        parity_check(&with, &c);
        const char *warning = yoke_algorithms_warning(with.algorithms), *key, *name;
        double milliseconds;
        assert_non_null(warning);
        assert_non_null(strstr(warning, names[i]));
        for (int k = 0; yoke_algorithms_at(with.algorithms, k, &key, &name, &milliseconds); k++)
            assert_string_not_equal(name, names[i]);
        yoke_algorithms_destroy(with.algorithms);
    }
}

/* Atomic additions: an algorithm of cuDNN, and a split of k that is added in place. */
static void what_adds_in_any_order_does_not_exist(void **state) {
    parity_rig *rig = *state;
    static const char *const names[] = {"cuDNN 0", "matrix product 21:20:0:2:1:0:0:0:2"};
    parity_case c = convolution((yoke_dims){8, 6, 6}, 8, 1, 1, 0);
    measure(rig, &c);
    for (size_t i = 0; i < COUNT(names); i++) {
        yoke_algorithms *algorithms = named(rig, names[i]);
        parity_side side = {.c = &c, .device = yoke_devices_at(rig->devices, 0)};
        parity_plan(&side, algorithms);
        const char *algorithm = yoke_plan_algorithm(side.plan, YOKE_BACKWARD_WEIGHTS);
        assert_string_not_equal(algorithm, "cuDNN 0");
        assert_non_null(yoke_algorithms_warning(algorithms));
        yoke_plan_destroy(side.plan);
        yoke_algorithms_destroy(algorithms);
    }
}

/* In the library's list for 512 rows another algorithm has the rank; and splits of k, which need
 * memory for each row, do not fit. Both rows' results equal the CPU's. */
static void algorithms_measured_at_8_rows_serve_512(void **state) {
    parity_rig *rig = *state;
    for (int algorithm = 0; algorithm < PRODUCTS; algorithm++) {
        parity_case c = convolution((yoke_dims){8, 4, 4}, 16, 1, 1, 0);
        c.rows = 8;
        measure(rig, &c);
        parity_rig with = *rig;
        with.algorithms = imposed(rig, &c, algorithm);
        if (with.algorithms == NULL) continue;
        parity_check(&with, &c);
        assert_null(yoke_algorithms_warning(with.algorithms));
        char before[YOKE_DIRECTIONS][CUDA_NAME_BYTES];
        const char *key, *name, *warning;
        double milliseconds;
        for (int i = 0; i < YOKE_DIRECTIONS; i++) {
            assert_true(yoke_algorithms_at(with.algorithms, i, &key, &name, &milliseconds));
            snprintf(before[i], sizeof before[i], "%s", name);
        }
        c.rows = 512;
        parity_check(&with, &c);
        bool same = true;
        for (int i = 0; i < YOKE_DIRECTIONS; i++) {
            assert_true(yoke_algorithms_at(with.algorithms, i, &key, &name, &milliseconds));
            same = same && strcmp(before[i], name) == 0;
        }
        warning = yoke_algorithms_warning(with.algorithms);
        assert_int_equal(same, warning == NULL);
        yoke_algorithms_destroy(with.algorithms);
    }
}

/* Every algorithm adds. */
static void gradients_that_are_added_to_others(void **state) {
    parity_rig *rig = *state;
    static const int shapes[][4] = {{1, 1, 0, 1}, {1, 2, 0, 1}, {3, 1, 1, 1},
                                    {3, 2, 1, 1}, {5, 5, 0, 1}, {3, 1, 1, 2}};
    static const char *const sums[] = {"added by the same pass", "added by a pass of its own"};
    for (size_t i = 0; i < 2 * COUNT(shapes); i++) {
        const int *s = shapes[i / 2];
        parity_case c = convolution((yoke_dims){8, 5, 5}, 16, s[0], s[1], s[2]);
        c.operation.groups = s[3];
        c.adds = true;
        c.preferred = sums[i % 2];
        check_every_precision(rig, &c);
    }
    parity_case fc = {.rows = 5,
                      .operation = {.kind = YOKE_OP_LINEAR,
                                    .name = "layer",
                                    .input = {16, 1, 1},
                                    .output = {8, 1, 1}},
                      .adds = true,
                      .preferred = sums[0]};
    check_every_precision(rig, &fc);
}

#define PIECE_BYTES ((size_t)64 << 20)

static size_t scratch_of(const parity_rig *rig, const parity_case *c, int algorithm) {
    parity_side side = {.c = c, .device = yoke_devices_at(rig->devices, 0)};
    yoke_algorithms *algorithms = imposed(rig, c, algorithm);
    if (algorithms == NULL) return 0;
    parity_plan(&side, algorithms);
    size_t bytes = side.needs->scratch_bytes;
    yoke_plan_destroy(side.plan);
    yoke_algorithms_destroy(algorithms);
    return bytes;
}

/* Their columns do not fit at once: pieces and a rest add up. */
static void images_in_pieces(void **state) {
    parity_rig *rig = *state;
    parity_case c = convolution((yoke_dims){32, 24, 24}, 2, 7, 1, 3);
    c.operation.bias = true;
    c.rows = 1;
    measure(rig, &c); /* keys are without the number of rows */
    c.rows = 20;
    const size_t image_bytes = (size_t)24 * 24 * 7 * 7 * 32 * sizeof(float);
    int algorithm = 0;
    while (algorithm < CUDA_ALGORITHMS_LIMIT &&
           scratch_of(rig, &c, algorithm) != PIECE_BYTES / image_bytes * image_bytes)
        algorithm++;
    assert_true(algorithm < CUDA_ALGORITHMS_LIMIT);
    impose(rig, &c, algorithm);
}

static void a_fixed_choice_gives_the_same_bits(void **state) {
    parity_rig *rig = *state;
    for (int kernel = 1; kernel <= 3; kernel += 2) {
        parity_case c = convolution((yoke_dims){8, 9, 9}, 8, kernel, 1, kernel / 2);
        c.algorithm = YOKE_ALGORITHM_DIRECT;
        c.full = true;
        yoke_device *device = yoke_devices_at(rig->devices, 0);
        parity_values values = parity_values_new(&c);
        const yoke_plan_step step = {.loss_scale = 1};
        parity_side sides[2];
        yoke_device_scope scope;
        PARITY_OK(yoke_device_enter(device, false, &scope));
        for (int i = 0; i < 2; i++) {
            parity_open(&sides[i], &c, device, rig->algorithms);
            parity_run(&sides[i], &values, &step);
        }
        parity_compare_sides(&sides[0], &sides[1], 0);
        for (int i = 0; i < 2; i++)
            parity_close(&sides[i]);
        yoke_device_leave(device, &scope);
        parity_values_free(&values);
    }
}

int main(void) {
    if (devices_gpus() == 0) return DEVICES_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_stride_and_padding),
        cmocka_unit_test(every_image_that_becomes_one_pixel),
        cmocka_unit_test(images_of_one_pixel_in_every_precision),
        cmocka_unit_test(groups),
        cmocka_unit_test(biases),
        cmocka_unit_test(first_layers_that_read_plain_float32),
        cmocka_unit_test(first_layers_with_more_channels),
        cmocka_unit_test(linear),
        cmocka_unit_test(a_plan_names_the_algorithms_that_compute_it),
        cmocka_unit_test(what_does_not_exist_is_measured_anew_and_named),
        cmocka_unit_test(what_adds_in_any_order_does_not_exist),
        cmocka_unit_test(algorithms_measured_at_8_rows_serve_512),
        cmocka_unit_test(gradients_that_are_added_to_others),
        cmocka_unit_test(images_in_pieces),
        cmocka_unit_test(a_fixed_choice_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, parity_group_open_gpu, parity_group_close);
}
