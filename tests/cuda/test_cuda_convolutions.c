/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions with rectangular windows and transposed ones compute on a GPU what they compute on
 * the CPU, by every algorithm and in every precision. Skipped without a GPU. */
#include "window_case.h"

static const window rectangular[] = {
    {2, 8, 9, 11, 12, 3, 1, 1, 1, true, 1, {5, 1, 2, 1}},
    {2, 3, 8, 9, 8, 1, 1, 0, 1, false, 1, {7, 2, 3, 1}},  /* a first layer's channels */
    {2, 16, 8, 8, 16, 3, 1, 1, 1, true, 1, {3, 1, 0, 1}}, /* paddings differ alone */
    {2, 8, 7, 13, 12, 2, 2, 0, 4, true, 3, {4, 3, 2, 2}}, /* everything, in groups */
    {2, 16, 1, 20, 24, 1, 1, 0, 1, true, 1, {5, 1, 2, 1}},
    {2, 8, 9, 7, 8, 5, 2, 2, 8, false, 1, {3, 1, 1, 2}}, /* depthwise */
    {2, 8, 3, 5, 12, 3, 1, 0, 1, true, 1, {5, 1, 0, 1}}, /* one output pixel */
    {2, 8, 4, 4, 16, 1, 1, 0, 1, true, 1, {1, 2, 0, 1}}, /* one tap, every other pixel */
};

static const window transposed[] = {
    {2, 16, 5, 4, 8, 2, 2, 0, 1, true, 1, {0}, true, 0},
    {2, 8, 4, 5, 12, 4, 2, 1, 1, false, 1, {0}, true, 0},
    {2, 12, 4, 4, 10, 3, 2, 1, 1, true, 1, {0}, true, 1},
    {3, 10, 1, 1, 16, 4, 1, 0, 1, true, 1, {0}, true, 0}, /* from one pixel */
    {2, 12, 5, 4, 6, 3, 2, 1, 3, true, 2, {0}, true, 1},  /* groups, dilated */
    {2, 8, 5, 5, 8, 3, 2, 1, 8, true, 1, {0}, true, 1},   /* depthwise */
    {2, 5, 4, 6, 7, 3, 1, 1, 1, true, 1, {5, 2, 0, 1}, true, 0},
    {2, 8, 6, 6, 16, 1, 1, 0, 1, true, 1, {0}, true, 0}, /* one tap */
    {2, 8, 3, 3, 8, 2, 4, 0, 1, true, 1, {0}, true, 2},  /* pixels that no tap meets */
};

static void rectangular_convolution_equals_the_cpu(void **state) {
    for (size_t i = 0; i < COUNT(rectangular); i++)
        check_every_way(*state, window_case(YOKE_OP_CONV2D, &rectangular[i]));
}

static void transposed_convolution_equals_the_cpu(void **state) {
    for (size_t i = 0; i < COUNT(transposed); i++)
        check_every_way(*state, window_case(YOKE_OP_CONV_TRANSPOSE2D, &transposed[i]));
}

static void measured_convolutions_equal_the_cpu(void **state) {
    for (size_t i = 0; i < COUNT(rectangular); i++)
        check_measured(*state, window_case(YOKE_OP_CONV2D, &rectangular[i]));
    for (size_t i = 0; i < COUNT(transposed); i++)
        check_measured(*state, window_case(YOKE_OP_CONV_TRANSPOSE2D, &transposed[i]));
}

int main(void) {
    if (!parity_has_gpu()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rectangular_convolution_equals_the_cpu),
        cmocka_unit_test(transposed_convolution_equals_the_cpu),
        cmocka_unit_test(measured_convolutions_equal_the_cpu),
    };
    return cmocka_run_group_tests(tests, parity_group_open_gpu, parity_group_close);
}
