/* SPDX-License-Identifier: Apache-2.0 */
/* float16 against its definition: all 65536 of them, and the floats around each middle between two
 * neighbours. */
#include "base/float16.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* (-1)^s 2^(e - 15) 1.f, or 2^-14 0.f; the definition, in double. */
static double defined(uint32_t stored) {
    int exponent = (int)(stored >> 10 & 31), fraction = (int)(stored & 1023);
    double value = exponent > 0 ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31) value = fraction > 0 ? (double)NAN : (double)INFINITY;
    return stored & 0x8000 ? -value : value;
}

static void expect_nearest(float value, double wanted) {
    double got = (double)yoke_float16_nearest(value);
    if (got != wanted || !signbit(got) != !signbit(wanted))
        fail_msg("%a: %a, not %a", (double)value, got, wanted);
}

static void every_one_widens_to_its_value_and_stays(void **state) {
    (void)state;
    for (uint32_t stored = 0; stored < 65536; stored++) {
        double wanted = defined(stored);
        float got = yoke_float16_widen((uint16_t)stored);
        if (isnan(wanted)) {
            assert_true(isnan(got) && isnan(yoke_float16_nearest(got)));
            continue;
        }
        assert_true((double)got == wanted && !signbit(got) == !signbit(wanted));
        expect_nearest(got, wanted);
    }
}

/* Between two neighbours the nearer one, and in the middle the even one. */
static void the_nearest_wins_and_ties_go_to_even(void **state) {
    (void)state;
    for (uint32_t stored = 0; stored < 0x7c00; stored++) {
        double below = defined(stored), above = defined(stored + 1);
        if (stored == 0x7bff) above = 65536; /* what infinity stands for */
        float middle = (float)((below + above) / 2);
        assert_true((double)middle == (below + above) / 2);
        double up = stored == 0x7bff ? (double)INFINITY : above;
        expect_nearest(middle, stored % 2 == 0 ? below : up);
        expect_nearest(nextafterf(middle, 0), below);
        expect_nearest(nextafterf(middle, INFINITY), up);
        expect_nearest(-middle, stored % 2 == 0 ? -below : -up);
    }
}

static void large_and_small_ones_and_nan(void **state) {
    (void)state;
    expect_nearest(65504, 65504);
    expect_nearest(65519.996f, 65504);
    expect_nearest(65520, (double)INFINITY);
    expect_nearest(3e38f, (double)INFINITY);
    expect_nearest(-1e10f, -(double)INFINITY);
    expect_nearest(INFINITY, (double)INFINITY);
    expect_nearest(0x1p-25f, 0);
    expect_nearest(nextafterf(0x1p-25f, 1), 0x1p-24);
    expect_nearest(1e-45f, 0);
    expect_nearest(-1e-30f, -0.0);
    assert_true(isnan(yoke_float16_nearest(NAN)));
    yoke_float_bits signalling = {.bits = 0x7f800001u};
    assert_true(isnan(yoke_float16_nearest(signalling.value)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_one_widens_to_its_value_and_stays),
        cmocka_unit_test(the_nearest_wins_and_ties_go_to_even),
        cmocka_unit_test(large_and_small_ones_and_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
