/* SPDX-License-Identifier: Apache-2.0 */
/* The writer writes JSON: a strict parser reads back what went in. */
#include <float.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

/* Reads back what was written and frees it. */
static json_t *parse(yoke_json *json) {
    assert_false(json->failed);
    assert_int_equal(strlen(json->text), json->length);
    json_error_t error;
    json_t *value = json_loads(json->text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (value == NULL) fail_msg("%s in: %s", error.text, json->text);
    yoke_json_end(json);
    return value;
}

static void nested_values_read_back(void **state) {
    (void)state;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_integer(&json, "step", 17);
    yoke_json_open(&json, "stage_ms", '{');
    yoke_json_real(&json, "forward", 1.5);
    yoke_json_real(&json, "backward", 3.25);
    yoke_json_close(&json, '}');
    yoke_json_open(&json, "devices", '[');
    yoke_json_text(&json, NULL, "cpu:0");
    yoke_json_text(&json, NULL, "cpu:1");
    yoke_json_close(&json, ']');
    yoke_json_hash(&json, "weights", 0xabc);
    yoke_json_open(&json, "empty", '[');
    yoke_json_close(&json, ']');
    yoke_json_boolean(&json, "stopped", false);
    yoke_json_null(&json, "accuracy");
    yoke_json_close(&json, '}');
    assert_string_equal(
        json.text,
        "{\"step\":17,\"stage_ms\":{\"forward\":1.5,\"backward\":3.25},"
        "\"devices\":[\"cpu:0\",\"cpu:1\"],\"weights\":\"0000000000000abc\",\"empty\":[],"
        "\"stopped\":false,\"accuracy\":null}");
    json_decref(parse(&json));
}

static void numbers_read_back_to_the_last_bit(void **state) {
    (void)state;
    const double numbers[] = {0,    -0.0,    1,       -1,     0.1,      1.0 / 3,
                              1e22, DBL_MAX, DBL_MIN, 5e-324, 123456.5, 2.0 / 3 * 1e-7};
    const size_t count = sizeof numbers / sizeof numbers[0];
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '[');
    for (size_t i = 0; i < count; i++)
        yoke_json_real(&json, NULL, numbers[i]);
    yoke_json_integer(&json, NULL, INT64_MIN);
    yoke_json_integer(&json, NULL, INT64_MAX);
    yoke_json_close(&json, ']');
    json_t *list = parse(&json);
    for (size_t i = 0; i < count; i++) {
        assert_true(json_is_real(json_array_get(list, i)));
        assert_true(json_real_value(json_array_get(list, i)) == numbers[i]);
    }
    assert_true(json_integer_value(json_array_get(list, count)) == INT64_MIN);
    assert_true(json_integer_value(json_array_get(list, count + 1)) == INT64_MAX);
    json_decref(list);
}

static void short_numbers_stay_short(void **state) {
    (void)state;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_real(&json, NULL, 0.1);
    assert_string_equal(json.text, "0.1");
    yoke_json_end(&json);
}

static void what_is_not_finite_becomes_null(void **state) {
    (void)state;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '[');
    yoke_json_real(&json, NULL, (double)NAN);
    yoke_json_real(&json, NULL, (double)INFINITY);
    yoke_json_real(&json, NULL, -(double)INFINITY);
    yoke_json_text(&json, NULL, NULL);
    yoke_json_close(&json, ']');
    json_t *list = parse(&json);
    assert_int_equal(json_array_size(list), 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(json_is_null(json_array_get(list, i)));
    json_decref(list);
}

static void every_text_is_escaped(void **state) {
    (void)state;
    char all[256];
    for (int i = 1; i < 128; i++)
        all[i - 1] = (char)i;
    strcpy(all + 127, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x82");
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, all, all);
    yoke_json_close(&json, '}');
    json_t *object = parse(&json);
    assert_string_equal(json_string_value(json_object_get(object, all)), all);
    json_decref(object);
}

#define LOST "\xef\xbf\xbd"

static void what_is_not_utf8_is_replaced_byte_by_byte(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *read;
    } cases[] = {{"a\xff"
                  "b",
                  "a" LOST "b"},
                 {"cut\xe2\x82", "cut" LOST LOST},
                 {"\xc0\xaf", LOST LOST},          /* overlong / */
                 {"\xe0\x80\xaf", LOST LOST LOST}, /* overlong */
                 {"\xed\xa0\x80", LOST LOST LOST}, /* surrogate */
                 {"\xf0\x80\x80\xaf", LOST LOST LOST LOST},
                 {"\xf4\x90\x80\x80", LOST LOST LOST LOST}, /* beyond U+10FFFF */
                 {"\xc3"
                  "a",
                  LOST "a"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_json json;
        yoke_json_begin(&json);
        yoke_json_text(&json, NULL, cases[i].bytes);
        json_t *text = parse(&json);
        assert_string_equal(json_string_value(text), cases[i].read);
        json_decref(text);
    }
}

static void any_bytes_make_valid_json(void **state) {
    (void)state;
    for (unsigned bytes = 0; bytes < 1u << 16; bytes++) {
        const char text[] = {(char)(bytes >> 8), (char)bytes, '\xa5', '\0'};
        yoke_json json;
        yoke_json_begin(&json);
        yoke_json_open(&json, NULL, '{');
        yoke_json_text(&json, text, text);
        yoke_json_close(&json, '}');
        json_decref(parse(&json)); /* jansson refuses what is not UTF-8 */
    }
}

static void a_point_is_a_point_in_every_locale(void **state) {
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL) skip(); /* not installed */
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_real(&json, NULL, 1234.5);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(json.text, "1234.5");
    yoke_json_end(&json);
}

static void nesting_too_deep_is_a_failure_and_not_a_crash(void **state) {
    (void)state;
    yoke_json json;
    yoke_json_begin(&json);
    for (int i = 0; i < 100; i++)
        yoke_json_open(&json, NULL, '[');
    for (int i = 0; i < 100; i++)
        yoke_json_close(&json, ']');
    assert_true(json.failed);
    yoke_json_end(&json);
    yoke_json_end(&json);
}

static void a_long_text_grows_the_buffer(void **state) {
    (void)state;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '[');
    for (int64_t i = 0; i < 20000; i++)
        yoke_json_integer(&json, NULL, i);
    yoke_json_close(&json, ']');
    json_t *list = parse(&json);
    assert_int_equal(json_array_size(list), 20000);
    assert_int_equal(json_integer_value(json_array_get(list, 19999)), 19999);
    json_decref(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_values_read_back),
        cmocka_unit_test(numbers_read_back_to_the_last_bit),
        cmocka_unit_test(short_numbers_stay_short),
        cmocka_unit_test(what_is_not_finite_becomes_null),
        cmocka_unit_test(every_text_is_escaped),
        cmocka_unit_test(what_is_not_utf8_is_replaced_byte_by_byte),
        cmocka_unit_test(any_bytes_make_valid_json),
        cmocka_unit_test(a_point_is_a_point_in_every_locale),
        cmocka_unit_test(nesting_too_deep_is_a_failure_and_not_a_crash),
        cmocka_unit_test(a_long_text_grows_the_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
