/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of patterns mark the names that the shell's rules say, and many patterns over many names
 * cost what they mark. */
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"

enum { NAMES = 100000, PATTERNS = 1000, LAYERS = 1000, PARTS = NAMES / LAYERS };

static uint32_t drawn = 1;

static int draw(int below) {
    drawn = drawn * 1664525u + 1013904223u;
    return (int)((drawn >> 8) % (uint32_t)below);
}

static void draw_text(char *text, const char *letters, int most) {
    int length = draw(most + 1);
    for (int i = 0; i < length; i++)
        text[i] = letters[draw((int)strlen(letters))];
    text[length] = '\0';
}

/* Few letters, so that texts often agree; a name may come twice. */
static void patterns_mark_what_the_shell_would(void **state) {
    (void)state;
    char texts[40][8], pattern[8];
    const char *unmatched = NULL;
    int marks[40], matched = 0;
    yoke_names names;
    assert_int_equal(yoke_names_create(&names, 40), YOKE_OK);
    for (int i = 0; i < 40; i++) {
        draw_text(texts[i], "ab.", 5);
        yoke_names_add(&names, texts[i], i);
    }
    yoke_names_sort(&names);
    for (int trial = 0; trial < 20000; trial++) {
        bool any = false;
        draw_text(pattern, "ab.*?[]\\-!", 7);
        memset(marks, -1, sizeof marks);
        marks[trial % 40] = 3;
        assert_int_equal(yoke_patterns_mark(&names, pattern, 7, marks, &unmatched), YOKE_OK);
        for (int i = 0; i < 40; i++) {
            bool matches = fnmatch(pattern, texts[i], 0) == 0;
            any = any || matches;
            if (marks[i] != (i == trial % 40 ? 3 : matches ? 7 : -1))
                fail_msg("'%s' and '%s': mark %d", pattern, texts[i], marks[i]);
        }
        if (unmatched != (any ? NULL : pattern))
            fail_msg("'%s': %s", pattern, unmatched != NULL ? "unmatched" : "matched");
        matched += any;
    }
    assert_true(matched > 1000);
    yoke_names_destroy(&names);
}

/* An empty one and one longer than any name, too. */
static void the_first_pattern_of_a_list_that_matches_nothing_is_told(void **state) {
    (void)state;
    int marks[2] = {-1, -1};
    char list[1100];
    const char *unmatched = NULL;
    yoke_names names;
    assert_int_equal(yoke_names_create(&names, 2), YOKE_OK);
    yoke_names_add(&names, "fc.weight", 1);
    yoke_names_add(&names, "fc.bias", 0);
    yoke_names_sort(&names);
    snprintf(list, sizeof list, "fc.*,%01000d", 0);
    const struct {
        const char *list;
        int begin; /* of the unmatched one */
    } cases[] = {{"fc.b*,fx.*,fc.bia,*", 6}, {",*", 0}, {"*,", 2}, {"*,,*", 2}, {"", 0}, {list, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(yoke_patterns_mark(&names, cases[i].list, 5, marks, &unmatched), YOKE_OK);
        if (unmatched != cases[i].list + cases[i].begin) fail_msg("case %zu: %s", i, unmatched);
    }
    assert_true(marks[0] == 5 && marks[1] == 5);
    yoke_names_destroy(&names);
}

/* "layer17.part5" */
static char (*many_names(yoke_names *names))[24] {
    char(*texts)[24] = calloc(NAMES, sizeof *texts);
    assert_non_null(texts);
    assert_int_equal(yoke_names_create(names, NAMES), YOKE_OK);
    for (int i = 0; i < NAMES; i++) {
        snprintf(texts[i], sizeof texts[i], "layer%d.part%d", i / PARTS, i % PARTS);
        yoke_names_add(names, texts[i], i);
    }
    yoke_names_sort(names);
    return texts;
}

typedef struct outcome {
    yoke_status status;
    size_t tries, marked;
} outcome;

/* PATTERNS patterns, each of `format` with its number. */
static outcome mark_many(const char *format) {
    yoke_names names;
    outcome seen = {YOKE_OK, 0, 0};
    char(*texts)[24] = many_names(&names);
    const char *unmatched = NULL;
    char *list = malloc(PATTERNS * 32);
    int *marks = malloc(NAMES * sizeof *marks), length = 0;
    assert_true(list != NULL && marks != NULL);
    memset(marks, -1, NAMES * sizeof *marks);
    for (int i = 0; i < PATTERNS; i++) {
        char pattern[32];
        snprintf(pattern, sizeof pattern, format, i);
        length += sprintf(list + length, "%s%s", i > 0 ? "," : "", pattern);
    }
    seen.status = yoke_patterns_mark(&names, list, 0, marks, &unmatched);
    for (int i = 0; i < NAMES; i++)
        seen.marked += marks[i] == 0;
    seen.tries = names.tries;
    free(marks);
    free(list);
    free(texts);
    yoke_names_destroy(&names);
    return seen;
}

/* Each with each were 100 million comparisons. */
static void a_thousand_patterns_are_compared_with_few_of_many_names(void **state) {
    (void)state;
    static const struct {
        const char *format;
        size_t marked, tries;
    } cases[] = {{"layer%d.part5", LAYERS, 0},
                 {"layer%d.*", NAMES, NAMES},
                 {"*.part%d", NAMES, NAMES},
                 {"layer%d.p*t7", LAYERS, 10 * LAYERS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        outcome seen = mark_many(cases[i].format);
        assert_int_equal(seen.status, YOKE_OK);
        assert_int_equal(seen.marked, cases[i].marked);
        if (seen.tries > cases[i].tries)
            fail_msg("%s: %zu comparisons", cases[i].format, seen.tries);
    }
}

static void patterns_that_cost_too_much_are_refused(void **state) {
    (void)state;
    outcome seen = mark_many("*er%d.p*");
    assert_int_equal(seen.status, YOKE_ERROR_ARGUMENT);
    assert_true(seen.tries <= ((size_t)1 << 24) + 1);
    if (strstr(yoke_last_error(), "it and those before it have been compared with more than "
                                  "16777216 names; begin or end patterns with plain text") == NULL)
        fail_msg("%s", yoke_last_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_mark_what_the_shell_would),
        cmocka_unit_test(the_first_pattern_of_a_list_that_matches_nothing_is_told),
        cmocka_unit_test(a_thousand_patterns_are_compared_with_few_of_many_names),
        cmocka_unit_test(patterns_that_cost_too_much_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
