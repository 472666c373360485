/* SPDX-License-Identifier: Apache-2.0 */
/* What the rules of whole tensors are made of: products of matrices, a scale from two norms, and
 * Muon's polynomial, on every backend. */
#include <math.h>

#include "support/devices.h"

#include "optimizer/orthogonalize.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

static const yoke_stream STREAM = YOKE_STREAM_COMMUNICATION;

static yoke_devices *open_devices(int threads) {
    yoke_devices *devices = NULL;
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = devices_of(1), .threads = threads, .unbound = true};
    CHECK(yoke_devices_open(&devices, &options));
    return devices;
}

static float *draw(size_t count, uint64_t seed) {
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    yoke_random_normal(values, count, 1, seed, YOKE_RANDOM_PROBE, 0);
    return values;
}

/* Products. */

/* Larger than a thread's block of rows; nothing is a multiple of a vector. */
enum { ROWS = 131, INNER = 77, COLUMNS = 93 };

static float *multiply(yoke_device *device, yoke_product product, const float *a, const float *b,
                       const float *c) {
    float *on_device[] = {device_copy_of(device, a, ROWS * INNER * sizeof(float)),
                          device_copy_of(device, b, INNER * COLUMNS * sizeof(float)),
                          device_copy_of(device, c, ROWS * COLUMNS * sizeof(float)),
                          device_copy_of(device, c, ROWS * COLUMNS * sizeof(float))};
    product.a = on_device[0], product.b = on_device[1];
    product.c = product.beta != 0 ? on_device[2] : NULL;
    product.to = on_device[3];
    CHECK(yoke_device_synchronize(device));
    CHECK(yoke_device_product(device, STREAM, &product));
    CHECK(yoke_device_synchronize(device));
    float *result = device_values(device, product.to, ROWS * COLUMNS * sizeof(float));
    for (int i = 0; i < 4; i++)
        yoke_device_free(device, on_device[i]);
    return result;
}

static void check_product(const yoke_product *product, const float *a, const float *b,
                          const float *c, const float *result) {
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < COLUMNS; j++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < INNER; k++) {
                double left = (double)a[product->transpose_a ? k * ROWS + i : i * INNER + k];
                double right = (double)b[product->transpose_b ? j * INNER + k : k * COLUMNS + j];
                sum += left * right, size += fabs(left * right);
            }
            double wanted =
                (double)product->alpha * sum + (double)product->beta * (double)c[i * COLUMNS + j];
            double off = fabs((double)result[i * COLUMNS + j] - wanted);
            if (!(off <= 1e-6 * (size + fabs(wanted))))
                fail_msg("element %zu, %zu is off by %g", i, j, off);
        }
}

static void products_are_those_of_doubles_on_any_number_of_threads(void **state) {
    (void)state;
    float *a = draw(ROWS * INNER, 1), *b = draw(INNER * COLUMNS, 2), *c = draw(ROWS * COLUMNS, 3);
    yoke_devices *one = open_devices(1), *four = open_devices(4);
    for (int form = 0; form < 8; form++) {
        const yoke_product product = {.rows = ROWS,
                                      .inner = INNER,
                                      .columns = COLUMNS,
                                      .transpose_a = (form & 1) != 0,
                                      .transpose_b = (form & 2) != 0,
                                      .alpha = form & 4 ? 2.0315f : 1,
                                      .beta = form & 4 ? -4.775f : 0};
        float *result = multiply(yoke_devices_at(one, 0), product, a, b, c);
        float *threads = multiply(yoke_devices_at(four, 0), product, a, b, c);
        check_product(&product, a, b, c, result);
        assert_memory_equal(threads, result, ROWS * COLUMNS * sizeof *result);
        free(threads);
        free(result);
    }
    yoke_devices_close(four);
    yoke_devices_close(one);
    free(a), free(b), free(c);
}

/* Rescale. */

static float rescaled(yoke_device *device, float value, const double *numerator, double denominator,
                      double epsilon) {
    float *values = device_copy_of(device, &value, sizeof value);
    const double sums[2] = {numerator != NULL ? *numerator : 0, denominator};
    double *squares = device_copy_of(device, sums, sizeof sums);
    CHECK(yoke_device_synchronize(device));
    CHECK(yoke_device_rescale(device, STREAM, values, 1, numerator != NULL ? squares : NULL,
                              squares + 1, epsilon));
    CHECK(yoke_device_synchronize(device));
    device_take(device, &value, values, sizeof value);
    yoke_device_free(device, squares);
    yoke_device_free(device, values);
    return value;
}

static void a_scale_comes_from_two_norms(void **state) {
    (void)state;
    yoke_devices *devices = open_devices(1);
    yoke_device *device = yoke_devices_at(devices, 0);
    const double nine = 9, none = 0;
    assert_true(rescaled(device, 2, &nine, 36, 0) == 1);
    assert_true(rescaled(device, 2, NULL, 16, 0) == 0.5f);
    assert_true(rescaled(device, 2, NULL, 1e-16, 1e-4) == 20000);
    assert_true(rescaled(device, 2, &none, 36, 0) == 2);
    assert_true(rescaled(device, 2, &nine, 0, 0) == 2);
    yoke_devices_close(devices);
}

/* The polynomial. */

static void orthogonalize(yoke_device *device, float *values, size_t rows, size_t columns) {
    const int64_t shape[] = {(int64_t)rows, (int64_t)columns};
    yoke_layout plain;
    CHECK(yoke_layout_plain(device, shape, 2, &plain));
    const yoke_matrix matrix = {rows, columns, &plain, &plain};
    void *work = NULL;
    float *on_device = device_copy_of(device, values, rows * columns * sizeof *values);
    CHECK(yoke_device_allocate(device, yoke_orthogonalize_bytes(&matrix), "work", &work));
    CHECK(yoke_device_synchronize(device));
    CHECK(yoke_orthogonalize(device, STREAM, &matrix, 5, on_device, work));
    CHECK(yoke_device_synchronize(device));
    device_take(device, values, on_device, rows * columns * sizeof *values);
    yoke_device_free(device, work);
    yoke_device_free(device, on_device);
}

/* u s v^T with known singular vectors: columns of the orthogonal matrices of a cosine transform. */
static double cosine(size_t n, size_t row, size_t column) {
    double scale = sqrt((column == 0 ? 1.0 : 2.0) / (double)n);
    return scale * cos(3.14159265358979323846 * ((double)row + 0.5) * (double)column / (double)n);
}

/* Singular values from 1 down to 0.05 of the largest come to 0.65 .. 1.25, and each keeps its
 * vectors: what Jordan et al. promise. */
static void check_orthogonal(yoke_device *device, size_t rows, size_t columns) {
    size_t side = rows < columns ? rows : columns;
    float *values = malloc(rows * columns * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            double sum = 0;
            for (size_t k = 0; k < side; k++)
                sum += cosine(rows, i, k) * cosine(columns, j, k) *
                       (1 - 0.95 * (double)k / (double)side);
            values[i * columns + j] = (float)(7 * sum);
        }
    orthogonalize(device, values, rows, columns);
    for (size_t k = 0; k < side; k++)
        for (size_t l = 0; l < side; l++) {
            double along = 0;
            for (size_t i = 0; i < rows; i++)
                for (size_t j = 0; j < columns; j++)
                    along += cosine(rows, i, k) * (double)values[i * columns + j] *
                             cosine(columns, j, l);
            bool is_singular = k == l;
            if (is_singular ? !(along > 0.65 && along < 1.25) : !(fabs(along) < 1e-4))
                fail_msg("%zu x %zu: vectors %zu and %zu give %g", rows, columns, k, l, along);
        }
    free(values);
}

static void singular_values_come_to_about_one(void **state) {
    (void)state;
    yoke_devices *devices = open_devices(2);
    yoke_device *device = yoke_devices_at(devices, 0);
    check_orthogonal(device, 12, 12);
    check_orthogonal(device, 9, 70);
    check_orthogonal(device, 70, 9);
    check_orthogonal(device, 1, 5);
    yoke_devices_close(devices);
}

static void a_gradient_of_zero_gives_no_direction(void **state) {
    (void)state;
    yoke_devices *devices = open_devices(1);
    float values[12] = {0}, zero[12] = {0};
    orthogonalize(yoke_devices_at(devices, 0), values, 3, 4);
    assert_memory_equal(values, zero, sizeof zero);
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_doubles_on_any_number_of_threads),
        cmocka_unit_test(a_scale_comes_from_two_norms),
        cmocka_unit_test(singular_values_come_to_about_one),
        cmocka_unit_test(a_gradient_of_zero_gives_no_direction),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
