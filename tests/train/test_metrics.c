/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of a run that goes on: every line once. */
#include <fcntl.h>

#include "saves_check.h"
#include "train/metrics.h"

static int lines_of(const char *path, char *last, size_t size) {
    int lines = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(last, (int)size, file) != NULL)
        lines++;
    fclose(file);
    return lines;
}

static void a_resumed_run_goes_on_with_its_metrics(void **state) {
    (void)state;
    char metrics[128], line[256], path[PATH_MAX];
    log_of_run stopped = {.stop_after = 9}, resumed = {0};
    clear_saves();
    stop_at(6);
    yoke_trainer_options options = saving(&stopped);
    options.resume = NULL;
    options.checkpoint_dir = NULL;
    options.metrics = in_folder("metrics", metrics);
    assert_int_equal(train(&stopped, &options), YOKE_ERROR_CANCELLED);
    yoke_trainer_destroy(stopped.trainer);
    assert_int_equal(lines_of(metrics, line, sizeof line), 9);
    yoke_folder_path(path, saves, 6);
    options.resume = path;
    options.payload = &resumed;
    options.evaluate_every = -1;
    EXPECT_OK(train(&resumed, &options)); /* lines 7 to 9 come again */
    yoke_trainer_destroy(resumed.trainer);
    assert_int_equal(lines_of(metrics, line, sizeof line), RUN_STEPS);
    assert_non_null(strstr(line, "\"step\":20,"));
    unlink(metrics);
    clear_saves();
}

/* Every line of an evaluation, one after the other. */
static void evaluations_of(const char *path, char *text, size_t size) {
    char line[256];
    size_t used = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[0] = '\0';
    while (fgets(line, sizeof line, file) != NULL)
        if (strstr(line, "accuracy") != NULL && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s", line);
    fclose(file);
}

static void copy_file(const char *from, const char *to) {
    unsigned char *data;
    size_t bytes;
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    EXPECT_OK(yoke_file_read(from, 1 << 20, &data, &bytes));
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
    free(data);
}

/* Also from the checkpoint that ends an epoch, before its evaluation, and from the last. */
static void a_resumed_run_has_the_line_of_every_evaluation_once(void **state) {
    (void)state;
    char metrics[128], copy[128], line[256], whole[2048], resumed[2048], path[PATH_MAX];
    int resumes = 0;
    log_of_run run = {0};
    clear_saves();
    yoke_trainer_options options = saving(&run);
    options.checkpoint_every = 1;
    options.checkpoint_unit = YOKE_CHECKPOINT_STEPS;
    options.on_event = on_event_slowly;
    options.keep = RUN_STEPS;
    options.evaluate_every = 1;
    options.metrics = in_folder("metrics", metrics);
    EXPECT_OK(train(&run, &options));
    yoke_trainer_destroy(run.trainer);
    evaluations_of(metrics, whole, sizeof whole);
    for (uint64_t step = 1; step <= RUN_STEPS; step++) {
        if (!has_save(step)) continue; /* the writer was busy */
        log_of_run again = {0};
        resumes++;
        copy_file(metrics, in_folder("copy", copy));
        yoke_folder_path(path, saves, step);
        options.resume = path;
        options.checkpoint_dir = NULL;
        options.metrics = copy;
        options.on_event = on_event;
        options.payload = &again;
        EXPECT_OK(train(&again, &options));
        yoke_trainer_destroy(again.trainer);
        assert_int_equal(lines_of(copy, line, sizeof line), RUN_STEPS + RUN_STEPS / BATCHES);
        evaluations_of(copy, resumed, sizeof resumed);
        assert_string_equal(resumed, whole);
        unlink(copy);
    }
    assert_true(resumes > 1);
    unlink(metrics);
    clear_saves();
}

static void metrics_of_a_pipe_are_not_read(void **state) {
    (void)state;
    char path[128];
    yoke_metrics metrics;
    assert_int_equal(mkfifo(in_folder("pipe", path), 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    alarm(900); /* a reader of the pipe would wait for ever */
    EXPECT_OK(yoke_metrics_open(&metrics, path));
    EXPECT_OK(yoke_metrics_go_on(&metrics, &(yoke_metrics_place){.step = 3}));
    alarm(0);
    yoke_metrics_close(&metrics);
    close(reader);
    unlink(path);
}

static void metrics_that_cannot_be_read_are_not_cut(void **state) {
    (void)state;
    yoke_metrics metrics;
    EXPECT_OK(yoke_metrics_open(&metrics, "/proc/self/mem"));
    assert_int_equal(yoke_metrics_go_on(&metrics, &(yoke_metrics_place){.step = 3}), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "/proc/self/mem: cannot read the metrics"));
    yoke_metrics_close(&metrics);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void earlier_metrics_give_way_to_the_first_line_and_not_before(void **state) {
    (void)state;
    char path[128], line[256];
    yoke_metrics metrics;
    yoke_event event = {.kind = YOKE_EVENT_STEP, .step = 7};
    write_text(in_folder("metrics", path), "of an earlier run\nand more\n");
    EXPECT_OK(yoke_metrics_open(&metrics, path));
    assert_int_equal(lines_of(path, line, sizeof line), 2);
    EXPECT_OK(yoke_metrics_write(&metrics, &event));
    EXPECT_OK(yoke_metrics_write(&metrics, &event));
    yoke_metrics_close(&metrics);
    assert_int_equal(lines_of(path, line, sizeof line), 2);
    assert_non_null(strstr(line, "{\"step\":7,"));
    unlink(path);
}

static void a_run_that_fails_before_its_first_step_keeps_earlier_metrics(void **state) {
    (void)state;
    char path[128], line[256];
    log_of_run run = {0};
    yoke_trainer_options options = saving(&run);
    options.resume = options.checkpoint_dir = NULL;
    options.metrics = in_folder("metrics", path);
    write_text(path, "of an earlier run\n");
    options.init = "/no/such/weights.safetensors";
    assert_int_equal(train(&run, &options), YOKE_ERROR_MISSING);
    yoke_trainer_destroy(run.trainer);
    assert_int_equal(lines_of(path, line, sizeof line), 1);
    assert_string_equal(line, "of an earlier run\n");
    unlink(path);
}

static void a_pipe_without_a_reader_is_refused_and_not_waited_for(void **state) {
    (void)state;
    char path[128];
    yoke_metrics metrics;
    assert_int_equal(mkfifo(in_folder("pipe", path), 0600), 0);
    alarm(900);
    assert_int_equal(yoke_metrics_open(&metrics, path), YOKE_ERROR_IO);
    alarm(0);
    assert_non_null(strstr(yoke_last_error(), "a pipe needs its reader first"));
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_goes_on_with_its_metrics),
        cmocka_unit_test(a_resumed_run_has_the_line_of_every_evaluation_once),
        cmocka_unit_test(metrics_of_a_pipe_are_not_read),
        cmocka_unit_test(metrics_that_cannot_be_read_are_not_cut),
        cmocka_unit_test(earlier_metrics_give_way_to_the_first_line_and_not_before),
        cmocka_unit_test(a_run_that_fails_before_its_first_step_keeps_earlier_metrics),
        cmocka_unit_test(a_pipe_without_a_reader_is_refused_and_not_waited_for),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
