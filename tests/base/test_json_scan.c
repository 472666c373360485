/* SPDX-License-Identifier: Apache-2.0 */
/* JSON read token by token: what it takes, what it refuses, and where it writes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_scan.h"

/* The text lies in memory of its own size, where a sanitizer sees what reads behind it. */
static yoke_json_scan scan_of(const char *text) {
    size_t bytes = strlen(text);
    char *own = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(own);
    memcpy(own, text, bytes);
    return (yoke_json_scan){.text = own, .bytes = bytes};
}

static void expect_text(const char *json, const char *expected) {
    yoke_json_scan scan = scan_of(json);
    const char *text = NULL;
    if (!yoke_json_scan_text(&scan, &text)) fail_msg("%s: %s", json, scan.error);
    assert_string_equal(text, expected);
    assert_true(yoke_json_scan_is_over(&scan));
    free(scan.text);
}

static void refuse_text(const char *json) {
    yoke_json_scan scan = scan_of(json);
    const char *text = NULL;
    if (yoke_json_scan_text(&scan, &text)) fail_msg("accepted: %s", json);
    assert_non_null(scan.error);
    assert_false(yoke_json_scan_mark(&scan, '"')); /* an error is final */
    free(scan.text);
}

static void texts_are_unescaped_in_place(void **state) {
    (void)state;
    expect_text("\"\"", "");
    expect_text(" \t\r\n\"fc.weight\" ", "fc.weight");
    expect_text("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t");
    expect_text("\"\\u0041\\u00e4\\u20AC\\ud83d\\ude00!\"",
                "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80!");
    expect_text("\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
}

static void texts_that_are_no_json_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"\"",
                                        "\"a",
                                        "\"\\",
                                        "\"\\x\"",
                                        "\"\\u12\"",
                                        "\"\\u12g4\"",
                                        "\"\\u0000\"",
                                        "\"\\ud800\"",
                                        "\"\\ud800\\u0041\"",
                                        "\"\\udc00\"",
                                        "\"a\nb\"",
                                        "\"\xff\"",
                                        "\"\xc3\"",
                                        "\"\xc3",
                                        "\"\xed\xa0\x80\"",
                                        "\"\\ud800\\",
                                        "\"\xf0\x9f\x98\""};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refuse_text(wrong[i]);
}

static void expect_number(const char *json, yoke_json_number kind, double expected) {
    yoke_json_scan scan = scan_of(json);
    int64_t integer;
    double real;
    yoke_json_number found = yoke_json_scan_number(&scan, &integer, &real);
    if (found != kind) fail_msg("%s: %d, not %d", json, (int)found, (int)kind);
    if (kind == YOKE_JSON_INTEGER) assert_int_equal(integer, (int64_t)expected);
    if (kind != YOKE_JSON_NO_NUMBER) assert_true(real == expected);
    free(scan.text);
}

static void numbers_are_read_by_their_grammar(void **state) {
    (void)state;
    expect_number("0", YOKE_JSON_INTEGER, 0);
    expect_number(" -17,", YOKE_JSON_INTEGER, -17);
    expect_number("9007199254740992", YOKE_JSON_INTEGER, 9007199254740992.0);
    expect_number("1.5e2", YOKE_JSON_REAL, 150);
    expect_number("-0.25]", YOKE_JSON_REAL, -0.25);
    expect_number("2E-1", YOKE_JSON_REAL, 0.2);
    static const char *const wrong[] = {
        "-", "1.", "1.e5", ".5", "1e", "1e+", "+1", "\"1\"", "[", "99999999999999999999", "1e999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect_number(wrong[i], YOKE_JSON_NO_NUMBER, 0);
}

/* "[1,2]" has 2 elements; -1: an error, or something else than an integer. */
static int count_integers(const char *json) {
    yoke_json_scan scan = scan_of(json);
    int64_t integer;
    double real;
    int count = 0;
    bool right = yoke_json_scan_mark(&scan, '[');
    for (; right && yoke_json_scan_more(&scan, (size_t)count, ']'); count++)
        right = yoke_json_scan_number(&scan, &integer, &real) == YOKE_JSON_INTEGER;
    right = right && scan.error == NULL && yoke_json_scan_is_over(&scan);
    free(scan.text);
    return right ? count : -1;
}

static void lists_end_where_their_bracket_is(void **state) {
    (void)state;
    assert_int_equal(count_integers("[]"), 0);
    assert_int_equal(count_integers("[ 1 , 2,3 ] "), 3);
    static const char *const wrong[] = {"",      "[",   "[1",   "[1,",  "[1,]", "[,1]",
                                        "[1 2]", "[1}", "[1]]", "[1]x", "{}",   "[[1]]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(count_integers(wrong[i]), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_unescaped_in_place),
        cmocka_unit_test(texts_that_are_no_json_are_refused),
        cmocka_unit_test(numbers_are_read_by_their_grammar),
        cmocka_unit_test(lists_end_where_their_bracket_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
