/* SPDX-License-Identifier: Apache-2.0 */
/* pairs:FILE: lines of a source and its target become padded rows that say their length. */
#include "data_folder.h"
#include "fixtures/fixture.h"

/* Tokens: <pad> 0, <begin> 1, <end> 2, a 3, b 4, c 5. */
static const char text[] = "ab\tba\r\nc\tcc\n\nabc\tcba\n\tb\na\t\n";
enum { ROWS = 5, CONTEXT = 4 };
static const struct {
    float source[CONTEXT], target[CONTEXT], source_length, target_length;
    int32_t labels[CONTEXT];
} rows[ROWS] = {{{3, 4}, {1, 4, 3}, 2, 3, {4, 3, 2, -100}},
                {{5}, {1, 5, 5}, 1, 3, {5, 5, 2, -100}},
                {{3, 4, 5}, {1, 5, 4, 3}, 3, 4, {5, 4, 3, 2}},
                {{0}, {1, 4}, 0, 2, {4, 2, -100, -100}},
                {{3}, {1}, 1, 1, {2, -100, -100, -100}}};

static yoke_status open_pairs(yoke_dataset **dataset, const char *content, const char *settings,
                              yoke_split split) {
    char spec[640];
    write_file("pairs.tsv", (const uint8_t *)content, strlen(content));
    snprintf(spec, sizeof spec, "pairs:%s%s", in_folder("pairs.tsv"), settings);
    return yoke_dataset_open(dataset, spec, split);
}

static void check_rows(const yoke_dataset *dataset, int *seen) {
    static const char *const names[] = {"source_length", "target", "target_length"};
    assert_int_equal(dataset->shape.channels, CONTEXT);
    assert_int_equal(dataset->classes, 6);
    assert_string_equal(dataset->class_names[2], "<end>");
    assert_string_equal(dataset->class_names[5], "c");
    for (int k = 0; k < 3; k++)
        assert_string_equal(dataset->more[k].name, names[k]);
    for (size_t i = 0; i < dataset->rows; i++) {
        size_t row = yoke_dataset_stored(dataset, i);
        size_t bytes = CONTEXT * sizeof(float);
        seen[row]++;
        assert_memory_equal(dataset->floats + row * CONTEXT, rows[row].source, bytes);
        assert_memory_equal(dataset->more[1].floats + row * CONTEXT, rows[row].target, bytes);
        assert_memory_equal(dataset->labels + row * CONTEXT, rows[row].labels, bytes);
        assert_true(dataset->more[0].floats[row] == rows[row].source_length);
        assert_true(dataset->more[2].floats[row] == rows[row].target_length);
    }
}

static void lines_become_rows(void **state) {
    (void)state;
    int seen[ROWS] = {0};
    for (int split = 0; split < 2; split++) {
        yoke_dataset *dataset = NULL;
        must(open_pairs(&dataset, text, ",validation=0.4",
                        split == 0 ? YOKE_SPLIT_TRAIN : YOKE_SPLIT_TEST));
        assert_int_equal(dataset->rows, split == 0 ? 3 : 2);
        check_rows(dataset, seen);
        yoke_dataset_close(dataset);
    }
    for (int row = 0; row < ROWS; row++)
        assert_int_equal(seen[row], 1);
}

static void a_context_makes_rows_longer(void **state) {
    (void)state;
    yoke_dataset *dataset = NULL;
    must(open_pairs(&dataset, text, ",context=9", YOKE_SPLIT_TRAIN));
    assert_int_equal(dataset->shape.channels, 9);
    assert_int_equal(dataset->label_count, 9);
    assert_int_equal(dataset->labels[8], YOKE_NO_LABEL);
    yoke_dataset_close(dataset);
}

static void files_that_are_no_pairs_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *content, *settings, *words;
        yoke_status status;
    } cases[] = {
        {"a\tb\nc\n", "", "line 2 has no tab; expected SOURCE, one tab, TARGET", YOKE_ERROR_DATA},
        {"a\tb\tc\n", "", "line 1 has more than one tab", YOKE_ERROR_DATA},
        {"a\tb\n", "", "1 lines of SOURCE", YOKE_ERROR_DATA},
        {"", "", "0 lines of SOURCE", YOKE_ERROR_DATA},
        {text, ",context=3", "pair 3 needs 4 positions, and a row has context=3", YOKE_ERROR_DATA},
        {text, ",context=1", "context=1: expected 2..16384", YOKE_ERROR_ARGUMENT},
        {text, ",contxt=4", "did you mean 'context'", YOKE_ERROR_ARGUMENT},
        {text, ",other", "'other' is one file too many", YOKE_ERROR_ARGUMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        yoke_dataset *dataset = NULL;
        yoke_status status =
            open_pairs(&dataset, cases[i].content, cases[i].settings, YOKE_SPLIT_TRAIN);
        if (status != cases[i].status || strstr(yoke_last_error(), cases[i].words) == NULL)
            fail_msg("%s: '%s' should contain '%s'", yoke_status_name(status), yoke_last_error(),
                     cases[i].words);
        assert_null(dataset);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(lines_become_rows, empty_folder),
        cmocka_unit_test_teardown(a_context_makes_rows_longer, empty_folder),
        cmocka_unit_test_teardown(files_that_are_no_pairs_are_refused, empty_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
