/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a run at any size: it never wraps or scrolls, and its parts add up. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

#include "cli/live/live_picture.h"

enum { LOSSES = 500 };
static double losses[LOSSES];
static const live_evaluation evaluations[] = {{100, 2.0}, {700, 1.5}};
static live_picture picture;

static live_numbers typical(void) {
    live_numbers numbers = {
        .title = "resnet20 | dp overlap | 2 x cpu | batch 64 | synthetic",
        .epoch = 2,
        .epochs = 3,
        .epoch_done = 40,
        .epoch_steps = 79,
        .done = 1000,
        .steps = 2000,
        .elapsed_s = 61,
        .left_s = 62,
        .images_now = 512,
        .images_mean = 498.7,
        .unit = "img/s",
        .devices = {{"cpu:0", 0.5, 0.25, 0.25}, {"cpu:1", 0.75, 0.25, 0}},
        .device_count = 2,
        .devices_note = "",
        .stages = {{"load", 1}, {"forward", 30}, {"backward", 60}, {"exchange", 4}, {"wait", 5}},
        .stage_count = 5,
        .step_ms = 100,
        .measured_steps = 16,
        .loss = 0.5,
        .test_loss = 1.5,
        .test_accuracy = 0.625,
        .losses = losses,
        .loss_count = LOSSES,
        .evaluations = evaluations,
        .evaluation_count = 2,
    };
    for (int i = 0; i < LOSSES; i++)
        losses[i] = 2.5 - 2.0 * i / LOSSES;
    return numbers;
}

static const live_style plain = {false, false}, utf8 = {true, false}, colored = {true, true};

static void draw(const live_numbers *numbers, int columns, int rows, live_style style) {
    live_canvas canvas = {columns, rows, style};
    memset(&picture, 'x', sizeof picture); /* nothing may depend on the picture before */
    live_picture_draw(numbers, &canvas, &picture);
}

static const char *line_with(const char *words) {
    for (int i = 0; i < picture.count; i++)
        if (strstr(picture.lines[i], words) != NULL) return picture.lines[i];
    fail_msg("no line has '%s'", words);
    return NULL;
}

/* Columns of a line without attributes; fails on control characters and broken UTF-8. */
static int columns_of(const char *text) {
    int columns = 0;
    mbstate_t state = {0};
    while (*text != '\0') {
        if (text[0] == '\033' && text[1] == '[') {
            text += strcspn(text, "m") + 1;
            continue;
        }
        wchar_t wide;
        size_t bytes = mbrtowc(&wide, text, 8, &state);
        if (bytes > 4 || wcwidth(wide) < 0) fail_msg("a line cannot be shown from '%s' on", text);
        columns += wcwidth(wide);
        text += bytes;
    }
    return columns;
}

static void check_size(int columns, int rows) {
    if (picture.count > rows - 1 || picture.count > LIVE_LINES_MAX)
        fail_msg("%d x %d: %d lines", columns, rows, picture.count);
    for (int i = 0; i < picture.count; i++)
        if (columns_of(picture.lines[i]) > columns - 1)
            fail_msg("%d x %d: line %d is too long: %s", columns, rows, i, picture.lines[i]);
}

static void check_all_sizes(const live_numbers *numbers) {
    const live_style styles[] = {plain, utf8, colored};
    for (int columns = 20; columns <= 220; columns += columns < 60 ? 1 : 5)
        for (int rows = 4; rows <= 70; rows += columns % 20 == 0 ? 1 : 7)
            for (int i = 0; i < 3; i++) {
                draw(numbers, columns, rows, styles[i]);
                check_size(columns, rows);
                bool fits = columns >= LIVE_COLUMNS_LEAST && rows >= LIVE_ROWS_LEAST;
                assert_true((picture.count > 0) == fits);
            }
}

/* Tests. */

static void a_picture_fits_every_size_or_is_empty(void **state) {
    (void)state;
    live_numbers numbers = typical();
    check_all_sizes(&numbers);
    numbers.epochs = 0;
    numbers.measured_steps = numbers.evaluation_count = 0;
    numbers.test_loss = numbers.test_accuracy = NAN;
    check_all_sizes(&numbers);
}

static void huge_and_unknown_numbers_fit_too(void **state) {
    (void)state;
    live_numbers numbers = typical();
    numbers.title =
        "模型|\t\033[31m\xff a path of many words that no terminal has the columns for "
        "at all, however wide it may be: 数据数据数据数据数据数据数据数据数据数据数据数据"
        "数据数据数据数据数据数据数据数据数据数据数据数据数据数据数据数据数据数据数据数据";
    numbers.epochs = numbers.epoch = 1 << 30;
    numbers.done = numbers.steps = numbers.epoch_done = numbers.epoch_steps = UINT64_MAX;
    numbers.images_now = numbers.loss = 1e300;
    numbers.images_mean = INFINITY;
    numbers.left_s = numbers.elapsed_s = INFINITY;
    numbers.step_ms = numbers.stages[1].ms = 1e200;
    numbers.test_loss = -INFINITY;
    snprintf(numbers.devices[1].name, sizeof numbers.devices[1].name, "cuda:3#14 with more words");
    numbers.device_count = LIVE_DEVICES_MAX;
    losses[7] = 1e300;
    losses[8] = -1e300;
    check_all_sizes(&numbers);
    draw(&numbers, 80, 24, utf8);
    line_with("?[31m?"); /* an escape sequence of a name does not reach the terminal */
}

static void losses_that_are_not_finite_leave_a_gap(void **state) {
    (void)state;
    live_numbers numbers = typical();
    for (int i = 0; i < LOSSES / 2; i++)
        losses[i] = i % 2 ? NAN : INFINITY;
    numbers.evaluation_count = 0;
    draw(&numbers, 100, 40, plain);
    check_size(100, 40);
    line_with("    1.49 ");
    const char *last = picture.lines[picture.count - 1];
    assert_true(strstr(last, "   0.514") == last);
    for (int i = 0; i < 2; i++) { /* the left half of the curve's first and last row is empty */
        const char *row = picture.lines[picture.count - (i == 0 ? 1 : 8)];
        assert_int_equal(strspn(row + 9, " ") >= 44, 1);
    }
    for (int i = 0; i < LOSSES; i++)
        losses[i] = NAN;
    numbers.loss = NAN;
    check_all_sizes(&numbers);
    draw(&numbers, 100, 40, plain);
    line_with("train -");
}

/* The numbers of the lines between "step" and "loss". */
static double sum_of_stages(double *shares) {
    double sum = 0;
    int i = 0;
    while (strncmp(picture.lines[i], "step", 4) != 0)
        i++;
    *shares = 0;
    for (i++; strncmp(picture.lines[i], "loss", 4) != 0; i++) {
        char name[16];
        double ms, share;
        assert_int_equal(sscanf(picture.lines[i], " %15s %lf ms %lf %%", name, &ms, &share), 3);
        sum += ms;
        *shares += share;
    }
    return sum;
}

static void stages_add_up_to_the_step_even_when_lines_are_short(void **state) {
    (void)state;
    live_numbers numbers = typical();
    int with_others = 0;
    for (int rows = 10; rows <= 40; rows++) {
        double shares;
        draw(&numbers, 80, rows, plain);
        bool has_stages = false;
        for (int i = 0; i < picture.count; i++)
            has_stages |= strncmp(picture.lines[i], "step", 4) == 0;
        if (!has_stages) continue;
        assert_true(fabs(sum_of_stages(&shares) - 100) < 1e-6);
        assert_true(fabs(shares - 100) < 1e-6);
        for (int i = 0; i < picture.count; i++)
            with_others += strstr(picture.lines[i], "others") != NULL;
    }
    assert_true(with_others > 0);
    draw(&numbers, 80, 40, plain);
    line_with(" forward       30.00 ms  30.0 %");
}

static int count_of(const char *line, const char *character) {
    int count = 0;
    for (; (line = strstr(line, character)) != NULL; line++)
        count++;
    return count;
}

static void a_devices_bar_has_the_lengths_of_its_shares(void **state) {
    (void)state;
    live_numbers numbers = typical();
    draw(&numbers, 92, 40, plain); /* 40 cells */
    const char *first = line_with(" cpu:0"), *second = line_with(" cpu:1");
    assert_non_null(strstr(first, " ####################==========..........  work"));
    assert_non_null(strstr(second, " ##############################==========  work"));
    line_with("work  50.0 %  wait  25.0 %  idle  25.0 %");
    draw(&numbers, 92, 40, utf8);
    assert_int_equal(count_of(line_with(" cpu:0"), "█"), 20);
    draw(&numbers, 50, 40, plain);
    assert_null(strstr(line_with(" cpu:0"), "idle"));
    line_with("work  50.0 %");
}

static void devices_without_a_line_show_their_mean(void **state) {
    (void)state;
    live_numbers numbers = typical();
    numbers.device_count = 8;
    for (int i = 0; i < 8; i++)
        numbers.devices[i] = (live_device){.name = "cpu", .work = i < 2 ? 1 : 0.5, .wait = 0};
    draw(&numbers, 100, 16, plain);
    assert_non_null(strstr(line_with(" other "), "work  50.0 %"));
    draw(&numbers, 100, 10, plain);
    assert_non_null(strstr(line_with(" all 8"), "work  62.5 %"));
}

static void a_curve_that_falls_begins_high_and_ends_low(void **state) {
    (void)state;
    live_numbers numbers = typical();
    numbers.evaluation_count = 0;
    draw(&numbers, 80, 40, plain);
    const char *first = picture.lines[picture.count - 8], *last = picture.lines[picture.count - 1];
    assert_int_equal(first[9], '\'');
    assert_int_equal(last[9], ' ');
    assert_int_equal(last[78], '.');
    assert_true(strlen(first) < 78);
    draw(&numbers, 80, 40, utf8);
    assert_true(strncmp(picture.lines[picture.count - 8] + 9, "⠉", 3) == 0 ||
                strncmp(picture.lines[picture.count - 8] + 9, "⠑", 3) == 0);
    line_with("; last 500 steps");
}

static void evaluations_are_marks_where_they_were(void **state) {
    (void)state;
    live_numbers numbers = typical(); /* of steps 501 to 1000; the one after step 100 is too old */
    draw(&numbers, 80, 40, plain);
    int marks = 0;
    for (int i = picture.count - 8; i < picture.count; i++) {
        const char *mark = strchr(picture.lines[i] + 9, 'o');
        if (mark == NULL) continue;
        marks++;
        assert_int_equal(mark - picture.lines[i] - 9, 199 * 70 / 500);
    }
    assert_int_equal(marks, 1);
    line_with("test 1.5000 (o), accuracy 62.50 %");
}

static void ascii_and_no_color_hold_what_they_promise(void **state) {
    (void)state;
    live_numbers numbers = typical();
    draw(&numbers, 120, 40, plain);
    for (int i = 0; i < picture.count; i++)
        for (const char *s = picture.lines[i]; *s != '\0'; s++)
            assert_true(*s >= 0x20 && *s < 0x7f);
    draw(&numbers, 120, 40, utf8);
    for (int i = 0; i < picture.count; i++)
        assert_null(strchr(picture.lines[i], '\033'));
    draw(&numbers, 120, 40, colored);
    for (int i = 0; i < picture.count; i++) { /* no attribute outlives its line */
        const char *escape = strrchr(picture.lines[i], '\033');
        assert_true(escape == NULL || strncmp(escape, "\033[0m", 4) == 0);
    }
    line_with("\033[32m");
}

static void a_bar_is_full_at_the_end_only(void **state) {
    (void)state;
    live_numbers numbers = typical();
    numbers.epochs = 0;
    draw(&numbers, 80, 24, plain);
    const char *half = line_with("1000/2000, 01:01 gone, 01:02 left");
    assert_non_null(strstr(half, " 50 %"));
    int cells = count_of(half, "#");
    numbers.done = numbers.steps;
    draw(&numbers, 80, 24, plain);
    assert_int_equal(count_of(line_with("2000/2000"), "#"), 2 * cells);
}

int main(void) {
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_picture_fits_every_size_or_is_empty),
        cmocka_unit_test(huge_and_unknown_numbers_fit_too),
        cmocka_unit_test(losses_that_are_not_finite_leave_a_gap),
        cmocka_unit_test(stages_add_up_to_the_step_even_when_lines_are_short),
        cmocka_unit_test(a_devices_bar_has_the_lengths_of_its_shares),
        cmocka_unit_test(devices_without_a_line_show_their_mean),
        cmocka_unit_test(a_curve_that_falls_begins_high_and_ends_low),
        cmocka_unit_test(evaluations_are_marks_where_they_were),
        cmocka_unit_test(ascii_and_no_color_hold_what_they_promise),
        cmocka_unit_test(a_bar_is_full_at_the_end_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
