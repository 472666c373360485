/* SPDX-License-Identifier: Apache-2.0 */
/* Block products equal plain loops in double: every number of rows that kernels take apart, one to
 * five panels, left matrices of both orders, right ones in rows, in panels apart and in panels side
 * by side, with and without an old sum, in order and, with AVX-512, in other places; nothing beside
 * the product changes. */
#include "operation_check.h"

#include "device/cpu/block_product.h"
#include "device/cpu/processor.h"

enum { ROWS = 31, DEPTH = 19, PANELS = 5, COLUMNS = PANELS * CPU_PANEL, TO_ROW = COLUMNS + 5 };
enum { IN_ROWS, IN_PANELS, SIDE_BY_SIDE, LAYOUTS };

typedef struct operands {
    float left[ROWS * DEPTH], right[DEPTH * COLUMNS];
    float to[ROWS * TO_ROW], old[ROWS * TO_ROW];
    size_t places[ROWS]; /* from the last row to the first */
} operands;

static void fill(float *to, size_t count, uint64_t stream) {
    double *values = check_random(count, -1, 1, stream);
    for (size_t i = 0; i < count; i++)
        to[i] = (float)values[i];
    test_free(values);
}

static float exact(const cpu_block_product *p, const operands *o, size_t row, size_t column) {
    const float *right = o->right + column / CPU_PANEL * p->right_panel + column % CPU_PANEL;
    size_t place = p->places != NULL ? p->places[row] : row;
    double sum = 0;
    for (size_t k = 0; k < p->depth; k++)
        sum += (double)o->left[row * p->left_row + k * p->left_step] *
               (double)right[k * p->right_step];
    return (float)(sum + (p->adds ? (double)o->old[place * TO_ROW + column] : 0));
}

static void check_product(const cpu_block_product *p, operands *o) {
    memcpy(o->to, o->old, sizeof o->to);
    cpu_find_block_multiply()(p);
    for (size_t row = 0; row < ROWS; row++) {
        size_t place = p->places != NULL ? p->places[row] : row;
        for (size_t column = 0; column < TO_ROW; column++) {
            float got = o->to[place * TO_ROW + column];
            if (row < p->rows && column < p->panels * CPU_PANEL) {
                assert_float_equal(got, exact(p, o, row, column), 1e-5);
            } else {
                assert_true(got == o->old[place * TO_ROW + column]);
            }
        }
    }
}

static void check_form(operands *o, size_t rows, unsigned form) {
    bool transposed = form & 1, wide = cpu_has_avx512();
    size_t panels = 1 + form / 2 % PANELS;
    unsigned layout = form / 2 / PANELS % LAYOUTS;
    cpu_block_product product = {.left = o->left,
                                 .right = o->right,
                                 .to = o->to,
                                 .rows = rows,
                                 .depth = rows % 5 > 0 ? DEPTH : 1,
                                 .panels = panels,
                                 .left_row = transposed ? 1 : DEPTH,
                                 .left_step = transposed ? ROWS : 1,
                                 .right_step = COLUMNS,
                                 .right_panel = CPU_PANEL,
                                 .to_row = TO_ROW,
                                 .adds = rows % 2 == 0,
                                 .places = wide && rows % 3 == 0 ? o->places : NULL,
                                 .next = wide && rows % 4 == 0 ? o->right : NULL};
    if (layout == IN_PANELS) {
        product.right_step = CPU_PANEL;
        product.right_panel = DEPTH * CPU_PANEL;
    }
    if (layout == SIDE_BY_SIDE) product.right_step = panels * CPU_PANEL;
    check_product(&product, o);
}

static void equals_a_plain_loop(void **state) {
    (void)state;
    if (cpu_find_block_multiply() == NULL) skip();
    operands *o = test_malloc(sizeof *o);
    fill(o->left, ROWS * DEPTH, 1);
    fill(o->right, DEPTH * COLUMNS, 2);
    fill(o->old, ROWS * TO_ROW, 3);
    for (size_t row = 0; row < ROWS; row++)
        o->places[row] = ROWS - 1 - row;
    for (size_t rows = 1; rows <= ROWS; rows++)
        for (unsigned form = 0; form < 2 * PANELS * LAYOUTS; form++)
            check_form(o, rows, form);
    test_free(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_a_plain_loop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
