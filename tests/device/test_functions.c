/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of vectorised loops against libm's in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/cpu/functions.h"

typedef struct sweep {
    const char *name;
    float (*own)(float x);
    double (*exact)(double x);
    float from, to;
    double units; /* in the last place, at most */
} sweep;

static float own_exp(float x) {
    return cpu_exp(x);
}
static float own_exp_below_zero(float x) {
    return cpu_exp_below_zero(x);
}
static float own_sigmoid(float x) {
    return cpu_sigmoid(x);
}
static float own_tanh(float x) {
    return cpu_tanh(x);
}
static double exact_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* How many floats lie between the two; below the smallest normal one they are equally far apart. */
static double distance(float own, double exact) {
    double unit = fabs(exact) < 0x1p-126 ? 0x1p-149 : ldexp(1, ilogb(exact) - 23);
    return fabs((double)own - exact) / unit;
}

static void functions_equal_libm_in_double(void **state) {
    (void)state;
    static const sweep sweeps[] = {
        {"exp", own_exp, exp, -103, 88.7f, 2},
        {"exp of what is not above 0", own_exp_below_zero, exp, -87, 0, 2},
        {"sigmoid", own_sigmoid, exact_sigmoid, -87, 87, 4},
        {"tanh", own_tanh, tanh, -20, 20, 3},
    };
    for (size_t s = 0; s < sizeof sweeps / sizeof sweeps[0]; s++) {
        const sweep *w = &sweeps[s];
        double most = 0, steps = 1 << 20;
        for (double i = 0; i <= steps; i++) {
            float x = (float)(w->from + (w->to - w->from) * (i / steps));
            double units = distance(w->own(x), w->exact((double)x));
            if (units > most) most = units;
        }
        print_message("%s: %.2f units in the last place\n", w->name, most);
        assert_true(most <= w->units);
    }
}

static void small_arguments_keep_their_digits(void **state) {
    (void)state;
    for (float x = 0.7f; x > 1e-38f; x *= 0.93f) {
        assert_true(distance(cpu_tanh(x), tanh((double)x)) <= 3);
        assert_true(cpu_tanh(-x) == -cpu_tanh(x));
    }
    assert_true(cpu_tanh(0.0f) == 0 && cpu_exp(0.0f) == 1 && cpu_sigmoid(0.0f) == 0.5f);
}

static void ends_are_libms(void **state) {
    (void)state;
    assert_true(isinf(cpu_exp(INFINITY)) && isinf(cpu_exp(89)) && cpu_exp(-INFINITY) == 0);
    assert_true(cpu_exp(-105) == 0 && cpu_exp_below_zero(-INFINITY) == 0);
    assert_true(cpu_sigmoid(INFINITY) == 1 && cpu_sigmoid(-INFINITY) == 0);
    assert_true(cpu_tanh(INFINITY) == 1 && cpu_tanh(-INFINITY) == -1);
    assert_true(isnan(cpu_exp(NAN)) && isnan(cpu_exp_below_zero(NAN)));
    assert_true(isnan(cpu_sigmoid(NAN)) && isnan(cpu_tanh(NAN)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_equal_libm_in_double),
        cmocka_unit_test(small_arguments_keep_their_digits),
        cmocka_unit_test(ends_are_libms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
