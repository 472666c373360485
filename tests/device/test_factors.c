/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of factors equal plain loops in double, for every layout of a weight that factors know, in
 * both precisions; any part of them has the bits of the whole, and several replicas' sum those of
 * their gradients, added. */
#include "operation_check.h"

#include "device/cpu/block_product.h"
#include "device/cpu/factors.h"
#include "device/cpu/processor.h"

enum { ROWS = 13, IN = 80, OUT = 96, PARTICIPANTS = 7 };

typedef struct replica {
    yoke_factors *factors;
    double *input, *gradient; /* [ROWS, IN], [ROWS, OUT] */
    void *memory[2];          /* the two as factors read them */
    float *whole;             /* the weight's gradient, as the layout has it */
} replica;

static void *as_values(cpu_device *device, const double *exact, int columns, bool half) {
    const cpu_desc *desc = NULL;
    yoke_layout layout;
    const dnnl_dims_t dims = {ROWS, columns};
    assert_int_equal(
        cpu_desc_by_tag(&desc, &device->descs, 2, dims, half ? dnnl_bf16 : dnnl_f32, dnnl_ab),
        dnnl_success);
    cpu_layout_store(&layout, desc);
    void *memory = aligned_alloc(64, (layout.bytes + 63) / 64 * 64);
    check_store(&layout, memory, exact);
    return memory;
}

static void open_replica(replica *r, cpu_device *device, const cpu_desc *weight, bool half,
                         uint64_t stream) {
    CHECK(cpu_factors_create(&r->factors, device, weight, ROWS, half));
    assert_non_null(r->factors);
    r->input = check_random(ROWS * IN, -1, 1, stream);
    r->gradient = check_random(ROWS * OUT, -1, 1, stream + 1);
    if (half) { /* values that bfloat16 has */
        for (int i = 0; i < ROWS * IN; i++)
            r->input[i] = (double)(int)(r->input[i] * 64) / 64;
        for (int i = 0; i < ROWS * OUT; i++)
            r->gradient[i] = (double)(int)(r->gradient[i] * 64) / 64;
    }
    r->memory[0] = as_values(device, r->input, IN, half);
    r->memory[1] = as_values(device, r->gradient, OUT, half);
    r->whole = test_malloc(weight->bytes);
    cpu_factors_keep(r->factors, r->memory[0], r->memory[1]);
    cpu_factors_multiply(r->factors, device, r->whole);
}

static void close_replica(replica *r, cpu_device *device) {
    cpu_factors_destroy(r->factors, device);
    test_free(r->input);
    test_free(r->gradient);
    free(r->memory[0]);
    free(r->memory[1]);
    test_free(r->whole);
}

static void check_whole(const replica *r, const cpu_desc *weight) {
    double *exact = test_calloc(OUT * IN, sizeof *exact);
    yoke_layout layout;
    cpu_layout_store(&layout, weight);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++)
            for (int row = 0; row < ROWS; row++)
                exact[o * IN + i] += r->gradient[row * OUT + o] * r->input[row * IN + i];
    check_memory("the gradient of a weight", &layout, r->whole, exact, 1e-6);
    test_free(exact);
    double largest = 0;
    for (size_t i = 0; i < weight->bytes / sizeof(float); i++)
        largest = fmax(largest, fabs((double)r->whole[i]));
    assert_true(largest <= r->factors->bound && r->factors->bound <= ROWS);
}

static void check_sums(const replica *replicas, cpu_device *device, size_t elements) {
    const yoke_factors *list[PARTICIPANTS];
    const float *gradients[PARTICIPANTS];
    float *sums = test_malloc(elements * sizeof *sums);
    float *expected = test_malloc(elements * sizeof *expected);
    for (int k = 0; k < PARTICIPANTS; k++) {
        list[k] = replicas[k].factors;
        gradients[k] = replicas[k].whole;
    }
    CHECK(yoke_device_sum(&device->base, YOKE_STREAM_COMPUTE, expected, gradients, PARTICIPANTS,
                          elements));
    for (size_t first = 0, count = 16; first < elements; first += count, count = count * 3 + 16) {
        if (count > elements - first) count = elements - first;
        memset(sums, 0xff, elements * sizeof *sums);
        CHECK(cpu_sum_factors(&device->base, list, PARTICIPANTS, first, count, sums + first));
        for (size_t i = 0; i < elements; i++) {
            if (i < first || i >= first + count) {
                assert_true(isnan(sums[i]));
                continue;
            }
            assert_true(sums[i] == expected[i]);
        }
    }
    test_free(sums);
    test_free(expected);
}

static void check_layout(const cpu_desc *weight, cpu_device *device, bool half) {
    replica replicas[PARTICIPANTS];
    for (int k = 0; k < PARTICIPANTS; k++) {
        open_replica(&replicas[k], device, weight, half, (uint64_t)(2 * k));
        check_whole(&replicas[k], weight);
    }
    check_sums(replicas, device, weight->bytes / sizeof(float));
    for (int k = 0; k < PARTICIPANTS; k++)
        close_replica(&replicas[k], device);
}

static const dnnl_dims_t shape = {OUT, IN};

static void sums_equal_plain_loops(void **state) {
    (void)state;
    if (cpu_find_block_multiply() == NULL) skip();
    static const dnnl_format_tag_t tags[] = {dnnl_ab, dnnl_ba, dnnl_AB16b16a, dnnl_AB16b32a,
                                             dnnl_BA16a16b};
    for (int threads = 1; threads <= 2; threads++) {
        yoke_devices *devices = check_devices(threads);
        cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
        for (int half = 0; half <= cpu_computes_bfloat16(); half++) {
            const cpu_desc *weight = NULL;
            for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
                assert_int_equal(
                    cpu_desc_by_tag(&weight, &device->descs, 2, shape, dnnl_f32, tags[i]),
                    dnnl_success);
                check_layout(weight, device, half);
            }
            const dnnl_dims_t padded = {1, OUT + 16};
            assert_int_equal(
                cpu_desc_by_strides(&weight, &device->descs, 2, shape, dnnl_f32, padded),
                dnnl_success);
            check_layout(weight, device, half);
        }
        yoke_devices_close(devices);
    }
}

static void refuses_other_layouts(void **state) {
    (void)state;
    static const dnnl_format_tag_t tags[] = {dnnl_AB8b16a2b, dnnl_AB4b16a4b};
    yoke_devices *devices = check_devices(1);
    cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        const cpu_desc *weight = NULL;
        yoke_factors *factors = NULL;
        assert_int_equal(cpu_desc_by_tag(&weight, &device->descs, 2, shape, dnnl_f32, tags[i]),
                         dnnl_success);
        CHECK(cpu_factors_create(&factors, device, weight, ROWS, false));
        assert_null(factors);
    }
    yoke_devices_close(devices);
}

static void a_bound_tells_what_is_not_finite(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    if (cpu_find_block_multiply() == NULL) skip();
    yoke_devices *devices = check_devices(1);
    cpu_device *device = cpu_of(yoke_devices_at(devices, 0));
    const cpu_desc *weight = NULL;
    assert_int_equal(cpu_desc_by_tag(&weight, &device->descs, 2, shape, dnnl_f32, dnnl_ab),
                     dnnl_success);
    yoke_factors *factors = NULL;
    CHECK(cpu_factors_create(&factors, device, weight, ROWS, false));
    float *input = test_calloc(ROWS * IN, sizeof *input), *gradient = test_calloc(ROWS * OUT, 4);
    input[7] = -3;
    gradient[ROWS * OUT - 1] = 2;
    cpu_factors_keep(factors, input, gradient);
    assert_true(factors->bound == 3.0 * 2 * ROWS);
    for (int i = 0; i < 3; i++) {
        gradient[5] = bad[i];
        cpu_factors_keep(factors, input, gradient);
        assert_true(isinf(factors->bound));
    }
    test_free(input);
    test_free(gradient);
    cpu_factors_destroy(factors, device);
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_equal_plain_loops),
        cmocka_unit_test(refuses_other_layouts),
        cmocka_unit_test(a_bound_tells_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
