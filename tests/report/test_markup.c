/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever goes in, what comes out is well-formed: texts cannot leave their place. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report/markup.h"

static void texts_and_attributes_are_escaped(void **state) {
    (void)state;
    yoke_markup out = {0};
    yoke_markup_open(&out, "p");
    yoke_markup_attribute(&out, "title", "\"><script>&");
    yoke_markup_text(&out, "</p><script>alert('1')&amp;");
    yoke_markup_close(&out);
    assert_string_equal(out.text, "<p title=\"&quot;&gt;&lt;script&gt;&amp;\">"
                                  "&lt;/p&gt;&lt;script&gt;alert('1')&amp;amp;</p>");
    yoke_markup_end(&out);
}

static void bytes_that_xml_forbids_become_replacement_characters(void **state) {
    (void)state;
    yoke_markup out = {0};
    yoke_markup_text(&out, "a\x01 \xff \xc3( \xEF\xBF\xBE \xc3\xa4\t.");
    assert_string_equal(out.text,
                        "a\xEF\xBF\xBD \xEF\xBF\xBD \xEF\xBF\xBD( \xEF\xBF\xBD \xc3\xa4\t.");
    yoke_markup_end(&out);
}

static void elements_close_in_order_and_void_ones_close_themselves(void **state) {
    (void)state;
    yoke_markup out = {0};
    yoke_markup_open(&out, "a");
    yoke_markup_open(&out, "meta");
    yoke_markup_number(&out, "x", -0.001);
    yoke_markup_close(&out);
    yoke_markup_open(&out, "b");
    yoke_markup_close(&out);
    yoke_markup_close(&out);
    assert_string_equal(out.text, "<a><meta x=\"0\"/><b></b></a>");
    assert_false(out.failed);
    yoke_markup_close(&out);
    assert_true(out.failed);
    yoke_markup_end(&out);
}

static void nesting_too_deep_is_a_failure(void **state) {
    (void)state;
    yoke_markup out = {0};
    for (int i = 0; i < YOKE_MARKUP_DEPTH; i++)
        yoke_markup_open(&out, "g");
    assert_false(out.failed);
    yoke_markup_open(&out, "g");
    assert_true(out.failed);
    yoke_markup_end(&out);
}

static void numbers_have_three_digits_and_a_point(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *number, *decimal; /* of two places */
    } cases[] = {{0, "0", "0"},
                 {41.26, "41.3", "41.26"},
                 {-41.26, "-41.3", "-41.26"},
                 {0.012345, "0.0123", "0.01"},
                 {12345.6, "12346", "12345.6"},
                 {1, "1.00", "1"},
                 {-0.0001, "-0.000100", "0"},
                 {NAN, "-", "-"},
                 {INFINITY, "-", "-"},
                 {1e300, "1000000000000", "1000000000000"}};
    char text[YOKE_NUMBER_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(yoke_number(cases[i].value, text), cases[i].number);
        assert_string_equal(yoke_decimal(cases[i].value, 2, text), cases[i].decimal);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_attributes_are_escaped),
        cmocka_unit_test(bytes_that_xml_forbids_become_replacement_characters),
        cmocka_unit_test(elements_close_in_order_and_void_ones_close_themselves),
        cmocka_unit_test(nesting_too_deep_is_a_failure),
        cmocka_unit_test(numbers_have_three_digits_and_a_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
