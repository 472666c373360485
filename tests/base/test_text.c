/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers are parsed strictly; an unknown name gets the nearest known one. */
#include <float.h>
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

static void integers_parse_as_a_whole_or_fail(void **state) {
    (void)state;
    int64_t value = 77;
    assert_true(yoke_text_integer("128", 0, 1000, &value));
    assert_int_equal(value, 128);
    assert_true(yoke_text_integer("-5", -10, 10, &value));
    assert_int_equal(value, -5);
    assert_true(yoke_text_integer("9223372036854775807", 0, INT64_MAX, &value));
    assert_true(value == INT64_MAX);
    assert_true(yoke_text_integer("-9223372036854775808", INT64_MIN, 0, &value));
    assert_true(value == INT64_MIN);

    static const char *const refused[] = {"",
                                          " 1",
                                          "1 ",
                                          "+1",
                                          "1x",
                                          "0x10",
                                          "1.0",
                                          "1e3",
                                          "-",
                                          "--1",
                                          "- 1",
                                          "one",
                                          "9223372036854775808"};
    value = 77;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (yoke_text_integer(refused[i], INT64_MIN, INT64_MAX, &value))
            fail_msg("\"%s\" was taken for %lld", refused[i], (long long)value);
    }
    assert_false(yoke_text_integer("0", 1, 10, &value));
    assert_false(yoke_text_integer("11", 1, 10, &value));
    assert_int_equal(value, 77);
}

static void reals_parse_as_a_whole_or_fail(void **state) {
    (void)state;
    double value = 77;
    assert_true(yoke_text_real("0.1", 0, 1, &value));
    assert_true(value == 0.1);
    assert_true(yoke_text_real("-2.5e-3", -1, 1, &value));
    assert_true(value == -2.5e-3);
    assert_true(yoke_text_real(".5", 0, 1, &value));
    assert_true(value == 0.5);

    static const char *const refused[] = {"",    " 1",    "1 ",    "0x1p3", "inf",
                                          "nan", "1,5",   "1.5f",  "1e",    "e5",
                                          "-",   "1.2.3", "1e999", "--1",   "infinity"};
    value = 77;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (yoke_text_real(refused[i], -1e308, 1e308, &value))
            fail_msg("\"%s\" was taken for %g", refused[i], value);
    }
    assert_false(yoke_text_real("1.01", 0, 1, &value));
    assert_false(yoke_text_real("-0.01", 0, 1, &value));
    assert_true(value == 77);
}

static void a_point_is_a_point_in_every_locale(void **state) {
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    const char *set = NULL;
    for (size_t i = 0; i < sizeof commas / sizeof commas[0] && set == NULL; i++)
        set = setlocale(LC_NUMERIC, commas[i]);
    if (set == NULL) skip(); /* none of them is installed */
    double value = 0;
    bool taken = yoke_text_real("0.25", 0, 1, &value);
    bool comma_taken = yoke_text_real("0,25", 0, 1, &value);
    char text[32];
    yoke_text_of_real(0.25, text, sizeof text);
    setlocale(LC_NUMERIC, "C");
    assert_true(taken && value == 0.25);
    assert_false(comma_taken);
    assert_string_equal(text, "0.25");
}

static void reals_are_written_with_the_fewest_digits_that_read_back(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},
                 {0.1, "0.1"},
                 {-2.5e-8, "-2.5e-08"},
                 {3, "3"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {-1.7976931348623157e308, "-1.7976931348623157e+308"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        double again;
        assert_string_equal(yoke_text_of_real(cases[i].value, text, sizeof text), cases[i].text);
        assert_true(yoke_text_real(text, -DBL_MAX, DBL_MAX, &again));
        assert_true(again == cases[i].value);
    }
}

static const char *const models[] = {"mlp",      "resnet18", "resnet34",
                                     "resnet50", "resnet20", "resnet18-cifar"};

static const char *nearest_model(const char *word) {
    return yoke_text_nearest(word, models, sizeof models / sizeof models[0]);
}

static void a_misspelled_name_finds_the_right_one(void **state) {
    (void)state;
    assert_string_equal(nearest_model("resnet18"), "resnet18");
    assert_string_equal(nearest_model("rsenet18"), "resnet18");
    assert_string_equal(nearest_model("resnet81"), "resnet18");
    assert_string_equal(nearest_model("resnet-18"), "resnet18");
    assert_string_equal(nearest_model("resnet5"), "resnet50");
    assert_string_equal(nearest_model("resnet18-cifra"), "resnet18-cifar");
    assert_string_equal(nearest_model("mpl"), "mlp");
}

static void another_word_finds_nothing(void **state) {
    (void)state;
    assert_null(nearest_model("vgg"));
    assert_null(nearest_model("transformer"));
    assert_null(nearest_model(""));
    assert_null(yoke_text_nearest("mlp", NULL, 0));
    char long_word[500];
    memset(long_word, 'r', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    assert_null(nearest_model(long_word));
}

static void bytes_are_readable(void **state) {
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1536.0 * 1024 * 1024, "1.5 GiB"},
                 {1024.0 * 1024 - 1, "1.0 MiB"},
                 {3.0 * 1024 * 1024 * 1024 * 1024 * 1024, "3072.0 TiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        assert_string_equal(yoke_text_bytes(cases[i].bytes, text, sizeof text), cases[i].text);
    }
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

/* Unicode 15: Cc, Bidi_Control, and both line ends. */
static void what_steers_a_terminal_is_found(void **state) {
    (void)state;
    static const uint32_t yes[] = {0,      0x1f,   0x7f,   0x80,   0x9f,   0x61c,  0x200e, 0x200f,
                                   0x2028, 0x2029, 0x202a, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069};
    static const uint32_t no[] = {0x20,   0x7e,   0xa0,   0x61b,  0x61d,  0x200d,  0x2010,
                                  0x2027, 0x202f, 0x2065, 0x206a, 0xfeff, 0x1f600, 0x10ffff};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(yoke_text_steers(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(yoke_text_steers(no[i]));
    assert_int_equal(yoke_text_code("a", 1), 'a');
    assert_int_equal(yoke_text_code("\xc3\xa4", 2), 0xe4);
    assert_int_equal(yoke_text_code("\xe2\x80\xae", 3), 0x202e);
    assert_int_equal(yoke_text_code("\xf4\x8f\xbf\xbf", 4), 0x10ffff);
    char text[] = "a\xe2\x80\xae\xc2\x9b\xc3\xa4\t\xff\xe2\x80";
    yoke_text_make_printable(text);
    assert_string_equal(text, "a??\xc3\xa4?\xff\xe2\x80");
}

static void a_text_grows_by_what_is_appended(void **state) {
    (void)state;
    char *text = NULL;
    size_t length = 0, capacity = 0;
    assert_true(yoke_text_append(&text, &length, &capacity, "", 0));
    assert_string_equal(text, "");
    for (size_t i = 0; i < 1000; i++)
        assert_true(yoke_text_append(&text, &length, &capacity, "abc", i % 4));
    assert_int_equal(length, 1500);
    assert_int_equal(strlen(text), 1500);
    assert_memory_equal(text, "aababcaab", 9);
    yoke_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_parse_as_a_whole_or_fail),
        cmocka_unit_test(reals_parse_as_a_whole_or_fail),
        cmocka_unit_test(reals_are_written_with_the_fewest_digits_that_read_back),
        cmocka_unit_test(a_point_is_a_point_in_every_locale),
        cmocka_unit_test(a_misspelled_name_finds_the_right_one),
        cmocka_unit_test(another_word_finds_nothing),
        cmocka_unit_test(bytes_are_readable),
        cmocka_unit_test(a_text_grows_by_what_is_appended),
        cmocka_unit_test(what_steers_a_terminal_is_found),
        cmocka_unit_test(numbers_have_three_digits_and_a_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
