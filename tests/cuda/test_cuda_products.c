/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on a GPU equal plain loops, for every shape, stride, type and algorithm.
 * Skipped without a GPU. */
#include <math.h>

#include "base/base.h"
#include "gpu_rig.h"

/* One matrix, or a batch of them, on the host as floats and on the device in its type. */

typedef struct operand {
    cuda_type type;
    size_t count;
    float *host;
    void *device;
} operand;

static void *to_type(const operand *from) {
    void *values = malloc(from->count * cuda_type_bytes(from->type));
    assert_non_null(values);
    for (size_t i = 0; i < from->count; i++) {
        if (from->type == CUDA_BFLOAT16)
            ((uint16_t *)values)[i] = yoke_bfloat16_round(from->host[i]);
        else
            ((float *)values)[i] = from->host[i];
    }
    return values;
}

static void from_type(operand *to, const void *values) {
    for (size_t i = 0; i < to->count; i++)
        to->host[i] = to->type == CUDA_BFLOAT16 ? yoke_bfloat16_widen(((const uint16_t *)values)[i])
                                                : ((const float *)values)[i];
}

static void upload(cuda_device *device, operand *from) {
    size_t bytes = from->count * cuda_type_bytes(from->type);
    void *values = to_type(from);
    CHECK(yoke_device_upload(&device->base, YOKE_STREAM_COMPUTE, from->device, values, bytes));
    from_type(from, values); /* as rounded */
    free(values);
}

static void download(cuda_device *device, operand *to) {
    size_t bytes = to->count * cuda_type_bytes(to->type);
    void *values = malloc(bytes);
    assert_non_null(values);
    CHECK(yoke_device_download(&device->base, YOKE_STREAM_COMPUTE, values, to->device, bytes));
    CHECK(yoke_device_synchronize(&device->base));
    from_type(to, values);
    free(values);
}

static operand make_operand(cuda_device *device, cuda_type type, size_t count, uint32_t stream) {
    operand made = {.type = type, .count = count, .host = malloc(count * sizeof(float))};
    assert_non_null(made.host);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = ((uint32_t)i + 1) * 2654435761u + stream * 40503u;
        bits = (bits ^ bits >> 15) * 2246822519u;
        made.host[i] = (float)(bits ^ bits >> 13) * 0x1p-32f - 0.5f;
    }
    CHECK(
        yoke_device_allocate(&device->base, count * cuda_type_bytes(type), "a test", &made.device));
    upload(device, &made);
    return made;
}

static void free_operand(cuda_device *device, operand *made) {
    yoke_device_free(&device->base, made->device);
    free(made->host);
}

/* The reference. */

static int64_t stride_of(const cuda_matrix *matrix, int64_t rows, int64_t columns) {
    if (matrix->stride > 0) return matrix->stride;
    return matrix->transposed ? rows : columns;
}

static int64_t place(const cuda_matrix *matrix, int64_t stride, int64_t row, int64_t column) {
    return matrix->transposed ? column * stride + row : row * stride + column;
}

static size_t span(const cuda_matrix *matrix, int64_t rows, int64_t columns, int64_t step,
                   int batch) {
    int64_t stride = stride_of(matrix, rows, columns);
    int64_t lines = matrix->transposed ? columns : rows;
    return (size_t)(lines * stride + (batch > 1 ? (batch - 1) * step : 0));
}

static double reference(const cuda_product_shape *s, const float *a, const float *b, int64_t row,
                        int64_t column) {
    int64_t a_stride = stride_of(&s->a, s->m, s->k), b_stride = stride_of(&s->b, s->k, s->n);
    double sum = 0;
    for (int64_t i = 0; i < s->k; i++)
        sum += (double)a[place(&s->a, a_stride, row, i)] *
               (double)b[place(&s->b, b_stride, i, column)];
    return sum;
}

/* Writes what the output should be over `output`, and leaves alone what lies between its rows. */
static void expect(const cuda_product_shape *s, const float *a, const float *b, const float *bias,
                   float *output) {
    int64_t stride = stride_of(&s->output, s->m, s->n);
    for (int batch = 0; batch < (s->batch > 1 ? s->batch : 1); batch++)
        for (int64_t row = 0; row < s->m; row++)
            for (int64_t column = 0; column < s->n; column++) {
                float *to = output + batch * s->output_step + row * stride + column;
                double value =
                    reference(s, a + batch * s->a_step, b + batch * s->b_step, row, column);
                if (s->bias) value += (double)bias[column];
                if (s->add) value += (double)*to;
                *to = (float)value;
            }
}

/* Sums of k products of values below a half; a bias may be a second rounding to bfloat16. */
static double tolerance_of(const cuda_product_shape *s) {
    if (s->output.type == CUDA_BFLOAT16) return s->bias ? 0x1p-7 : 0x1p-8;
    return s->tf32 ? 1e-3 : 2e-6;
}

static void compare(const cuda_product_shape *s, const operand *got, const float *wanted) {
    double tolerance = tolerance_of(s) * (1 + 0.25 * sqrt((double)s->k));
    for (size_t i = 0; i < got->count; i++)
        if (!(fabs((double)got->host[i] - (double)wanted[i]) <= tolerance))
            fail_msg(
                "[%lld, %lld, %lld] transposed %d %d, batch %d, bias %d, add %d, algorithm %d: "
                "element %zu is %g, not %g",
                (long long)s->m, (long long)s->n, (long long)s->k, s->a.transposed, s->b.transposed,
                s->batch, s->bias, s->add, s->algorithm, i, (double)got->host[i],
                (double)wanted[i]);
}

/* False where the library has no algorithm of this number. */
static bool check_product(cuda_device *device, const cuda_product_shape *s) {
    cuda_product *product = NULL;
    CHECK(cuda_product_create(&product, device, s));
    if (product == NULL) return false;
    operand a = make_operand(device, s->a.type, span(&s->a, s->m, s->k, s->a_step, s->batch), 1);
    operand b = make_operand(device, s->b.type, span(&s->b, s->k, s->n, s->b_step, s->batch), 2);
    operand bias = make_operand(device, CUDA_FLOAT32, (size_t)s->n, 3);
    operand output = make_operand(device, s->output.type,
                                  span(&s->output, s->m, s->n, s->output_step, s->batch), 4);
    float *wanted = malloc(output.count * sizeof *wanted);
    assert_non_null(wanted);
    memcpy(wanted, output.host, output.count * sizeof *wanted);
    expect(s, a.host, b.host, bias.host, wanted);
    CHECK(
        cuda_product_run(product, a.device, b.device, s->bias ? bias.device : NULL, output.device));
    download(device, &output);
    compare(s, &output, wanted);
    free(wanted);
    cuda_product_destroy(product);
    operand *all[] = {&a, &b, &bias, &output};
    for (size_t i = 0; i < COUNT(all); i++)
        free_operand(device, all[i]);
    return true;
}

/* Every combination of types, with every algorithm there is. */
static void check_types(cuda_device *device, cuda_product_shape shape) {
    static const struct {
        cuda_type in, out;
        bool tf32;
    } types[] = {{CUDA_FLOAT32, CUDA_FLOAT32, false},
                 {CUDA_FLOAT32, CUDA_FLOAT32, true},
                 {CUDA_BFLOAT16, CUDA_FLOAT32, false},
                 {CUDA_BFLOAT16, CUDA_BFLOAT16, false}};
    for (size_t i = 0; i < COUNT(types); i++) {
        shape.a.type = shape.b.type = types[i].in;
        shape.output.type = types[i].out;
        shape.tf32 = types[i].tf32;
        for (shape.algorithm = 0; shape.algorithm < CUDA_PRODUCT_ALGORITHMS; shape.algorithm++)
            if (!check_product(device, &shape)) break;
        assert_true(shape.algorithm > 0);
    }
}

static const int64_t sizes[][3] = {{1, 1, 1},    {5, 3, 7},    {1, 10, 64},  {64, 1, 10},
                                   {33, 17, 65}, {64, 64, 64}, {128, 40, 9}, {3, 100, 33}};

static void every_size_and_transpose(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int transposes = 0; transposes < 4; transposes++)
            check_types(device, (cuda_product_shape){.m = sizes[i][0],
                                                     .n = sizes[i][1],
                                                     .k = sizes[i][2],
                                                     .a = {.transposed = (transposes & 1) != 0},
                                                     .b = {.transposed = (transposes & 2) != 0}});
}

static void bias_and_sums_onto_what_is_there(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int kind = 1; kind < 4; kind++)
            check_types(device, (cuda_product_shape){.m = sizes[i][0],
                                                     .n = sizes[i][1],
                                                     .k = sizes[i][2],
                                                     .b = {.transposed = true},
                                                     .bias = (kind & 1) != 0,
                                                     .add = (kind & 2) != 0});
}

static void rows_apart_and_nothing_between_them_is_written(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    for (int transposes = 0; transposes < 4; transposes++) {
        cuda_product_shape shape = {.m = 9,
                                    .n = 6,
                                    .k = 14,
                                    .a = {.transposed = (transposes & 1) != 0, .stride = 19},
                                    .b = {.transposed = (transposes & 2) != 0, .stride = 17},
                                    .output = {.stride = 11},
                                    .bias = true,
                                    .alignment = 2};
        check_types(device, shape);
    }
}

/* Groups of a convolution: what one product leaves between its rows belongs to the others. */
static void batches_side_by_side(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    check_types(device, (cuda_product_shape){.m = 12,
                                             .n = 3,
                                             .k = 5,
                                             .batch = 4,
                                             .a = {.stride = 20},
                                             .a_step = 5,
                                             .b = {.transposed = true},
                                             .b_step = 15,
                                             .output = {.stride = 12},
                                             .output_step = 3,
                                             .alignment = 2});
}

static void batches_that_share_an_operand(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    check_types(
        device,
        (cuda_product_shape){
            .m = 7, .n = 4, .k = 6, .batch = 3, .b_step = 24, .output_step = 28, .alignment = 2});
}

/* TF32 keeps ten bits behind the leading one. */
static void strict_float32_keeps_what_tf32_would_round(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    cuda_product_shape shape = {.m = 1, .n = 1, .k = 1};
    const float value = 1 + 0x1p-20f;
    operand a = make_operand(device, CUDA_FLOAT32, 1, 1),
            b = make_operand(device, CUDA_FLOAT32, 1, 2);
    operand output = make_operand(device, CUDA_FLOAT32, 1, 3);
    a.host[0] = value;
    b.host[0] = 1;
    upload(device, &a);
    upload(device, &b);
    cuda_product *product = NULL;
    CHECK(cuda_product_create(&product, device, &shape));
    CHECK(cuda_product_run(product, a.device, b.device, NULL, output.device));
    download(device, &output);
    assert_true(output.host[0] == value);
    cuda_product_destroy(product);
    free_operand(device, &a);
    free_operand(device, &b);
    free_operand(device, &output);
}

/* What convolution and linear need beside products. */

static void check_column_sums(cuda_device *device, cuda_type type, size_t rows, size_t columns) {
    operand values = make_operand(device, type, rows * columns, 1);
    operand sums = make_operand(device, CUDA_FLOAT32, columns, 2);
    operand partial = make_operand(device, CUDA_FLOAT32, CUDA_COLUMN_PARTS * columns, 3);
    cuda_column_sums job = {.values = values.device,
                            .type = type,
                            .shape = {rows, columns, columns},
                            .sums = sums.device,
                            .partial = partial.device};
    assert_int_equal(cuda_run_column_sums(&job, device->streams[YOKE_STREAM_COMPUTE]), cudaSuccess);
    download(device, &sums);
    for (size_t column = 0; column < columns; column++) {
        double sum = 0;
        for (size_t row = 0; row < rows; row++)
            sum += (double)values.host[row * columns + column];
        assert_true(fabs((double)sums.host[column] - sum) <= 1e-6 * (double)rows);
    }
    operand *all[] = {&values, &sums, &partial};
    for (size_t i = 0; i < COUNT(all); i++)
        free_operand(device, all[i]);
}

static void sums_of_columns_for_every_number_of_rows(void **state) {
    static const size_t shapes[][2] = {{1, 1},    {3, 10},   {127, 33},
                                       {129, 32}, {1000, 5}, {9000, 40}};
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int type = CUDA_FLOAT32; type <= CUDA_BFLOAT16; type++)
            check_column_sums(((rig *)*state)->device, (cuda_type)type, shapes[i][0], shapes[i][1]);
}

int main(void) {
    if (devices_gpus() == 0) return DEVICES_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_and_transpose),
        cmocka_unit_test(bias_and_sums_onto_what_is_there),
        cmocka_unit_test(rows_apart_and_nothing_between_them_is_written),
        cmocka_unit_test(batches_side_by_side),
        cmocka_unit_test(batches_that_share_an_operand),
        cmocka_unit_test(strict_float32_keeps_what_tf32_would_round),
        cmocka_unit_test(sums_of_columns_for_every_number_of_rows),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
