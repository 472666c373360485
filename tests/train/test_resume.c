/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer that goes on from its checkpoints, and the folder that it keeps them in. */
#include <signal.h>
#include <sys/resource.h>

#include "saves_check.h"
#include "support/file_place.h"
#include "train/digest.h"

static int count_saves(void) {
    int count = 0;
    DIR *directory = opendir(saves);
    if (directory == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

/* Every setting that changes what a later step computes. */
static void vary(yoke_trainer_options *options, int setting) {
    static const yoke_optimizer_options adamw = {.struct_size = sizeof adamw,
                                                 .kind = YOKE_ADAMW,
                                                 .learning_rate = 0.01,
                                                 .weight_decay = 0.1,
                                                 .beta1 = 0.9,
                                                 .beta2 = 0.99,
                                                 .epsilon = 1e-8};
    static const yoke_optimizer_options rmsprop = {.struct_size = sizeof rmsprop,
                                                   .kind = YOKE_RMSPROP,
                                                   .learning_rate = 0.001,
                                                   .momentum = 0.9,
                                                   .epsilon = 1e-8,
                                                   .alpha = 0.9};
    if (setting == 0) return;
    options->optimizer = setting == 1 ? &rmsprop : &adamw;
    options->augment = YOKE_AUGMENT_CROP_FLIP;
    options->mixup = 0.4;
    options->lr_schedule = YOKE_LR_ONECYCLE;
    small_engine.accumulate = 2;
    options->evaluate_every = 1;
    options->devices = devices_of(setting + 1);
    small_engine.schedule = setting == 1 ? YOKE_SCHEDULE_OVERLAP : YOKE_SCHEDULE_SHARDED;
}

static void a_run_stopped_after_any_step_goes_on_bit_for_bit(void **state) {
    (void)state;
    bool on_gpus = !devices_are_cpus(); /* simulated ones take seconds to open */
    for (int setting = on_gpus ? 2 : 0; setting < 3; setting++) {
        log_of_run whole = {0};
        yoke_trainer_options options = saving(&whole);
        vary(&options, setting);
        options.checkpoint_dir = options.resume = NULL;
        EXPECT_OK(train(&whole, &options));
        for (int k = 1; k < RUN_STEPS; k += on_gpus ? 9 : setting == 2 ? 3 : 1) {
            clear_saves();
            log_of_run stopped = {.stop_after = (uint64_t)k}, resumed = {0};
            options.checkpoint_dir = saves;
            options.resume = "auto";
            options.payload = &stopped;
            assert_int_equal(train(&stopped, &options), YOKE_ERROR_CANCELLED);
            assert_int_equal(stopped.warnings, 0);
            assert_true(has_save((uint64_t)k));
            yoke_trainer_destroy(stopped.trainer);
            options.payload = &resumed;
            EXPECT_OK(train(&resumed, &options));
            assert_int_equal(resumed.first_step, k);
            assert_int_equal(resumed.steps, RUN_STEPS);
            for (int step = k; step < RUN_STEPS; step++)
                assert_true(resumed.losses[step] == whole.losses[step]);
            assert_true(resumed.evaluation.loss == whole.evaluation.loss);
            assert_true(hash_of(resumed.trainer) == hash_of(whole.trainer));
            yoke_trainer_destroy(resumed.trainer);
        }
        yoke_trainer_destroy(whole.trainer);
    }
    clear_saves();
}

static void a_finished_run_can_go_on_to_more_steps(void **state) {
    (void)state;
    log_of_run whole = {0}, first = {0}, again = {0}, longer = {0};
    clear_saves();
    yoke_trainer_options options = saving(&whole);
    options.checkpoint_dir = options.resume = NULL;
    EXPECT_OK(train(&whole, &options));
    options = saving(&first);
    options.steps = 7;
    EXPECT_OK(train(&first, &options));
    yoke_trainer_destroy(first.trainer);
    options.payload = &again; /* nothing is left to do */
    EXPECT_OK(train(&again, &options));
    assert_int_equal(again.steps, 7);
    assert_non_null(strstr(again.resumed_from, "after step 7 of 7: the run is complete"));
    assert_true(again.evaluation.loss == first.evaluation.loss);
    assert_int_equal(again.evaluation.epoch, first.evaluation.epoch);
    yoke_trainer_destroy(again.trainer);
    options.payload = &longer;
    options.steps = RUN_STEPS;
    EXPECT_OK(train(&longer, &options));
    assert_true(hash_of(longer.trainer) == hash_of(whole.trainer));
    yoke_trainer_destroy(longer.trainer);
    yoke_trainer_destroy(whole.trainer);
    clear_saves();
}

/* What is kept. */

static void the_newest_checkpoints_and_the_best_are_kept(void **state) {
    (void)state;
    log_of_run run = {0};
    clear_saves();
    yoke_trainer_options options = saving(&run);
    options.checkpoint_every = 1;
    options.checkpoint_unit = YOKE_CHECKPOINT_EPOCHS;
    options.on_event = on_event_slowly;
    options.keep = 2;
    options.keep_best = true;
    options.evaluate_every = 1;
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.warnings, 0);
    assert_int_equal(count_saves(), 3);
    assert_true(has_save(RUN_STEPS));
    char path[PATH_MAX];
    yoke_checkpoint *best;
    yoke_folder_best_path(path, saves);
    EXPECT_OK(yoke_checkpoint_open(&best, path));
    const char *value = yoke_safetensors_note(&best->file, "best");
    assert_true(strtod(value, NULL) >= run.evaluation.accuracy);
    yoke_checkpoint_close(best);
    yoke_trainer_destroy(run.trainer);
    clear_saves();
}

static void every_interval_gives_a_checkpoint(void **state) {
    (void)state;
    static const struct {
        yoke_checkpoint_unit unit;
        double every;
        int at_least, at_most; /* the writer may still be busy when the next one is due */
    } cases[] = {{YOKE_CHECKPOINT_EPOCHS, 2, 2, 3},
                 {YOKE_CHECKPOINT_STEPS, 6, 2, 4},
                 {YOKE_CHECKPOINT_SECONDS, 1e-9, 2, RUN_STEPS},
                 {YOKE_CHECKPOINT_SECONDS, 3600, 1, 1}};
    for (int i = 0; i < 4; i++) {
        log_of_run run = {0};
        clear_saves();
        yoke_trainer_options options = saving(&run);
        options.checkpoint_unit = cases[i].unit;
        options.checkpoint_every = cases[i].every;
        options.keep = 100;
        options.on_event = on_event_slowly;
        EXPECT_OK(train(&run, &options));
        assert_int_equal(run.saved, count_saves());
        assert_in_range(run.saved, cases[i].at_least, cases[i].at_most);
        assert_true(has_save(RUN_STEPS));
        yoke_trainer_destroy(run.trainer);
    }
    clear_saves();
}

static void expect_refused(yoke_trainer_options options, yoke_status status, const char *word) {
    yoke_trainer *trainer;
    assert_int_equal(yoke_trainer_create(&trainer, &options), status);
    if (strstr(yoke_last_error(), word) == NULL)
        fail_msg("'%s' is not in: %s", word, yoke_last_error());
}

/* What auto passes over. */

static void spoil(uint64_t step, long length) {
    char path[PATH_MAX];
    yoke_folder_path(path, saves, step);
    if (length >= 0) {
        assert_int_equal(truncate(path, length), 0);
        return;
    }
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, length, SEEK_END), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, length, SEEK_END), 0);
    fputc(byte ^ 1, file);
    fclose(file);
}

static void auto_passes_over_what_is_damaged_and_says_why(void **state) {
    (void)state;
    log_of_run whole = {0}, resumed = {0};
    clear_saves();
    yoke_trainer_options options = saving(&whole);
    options.checkpoint_dir = options.resume = NULL;
    EXPECT_OK(train(&whole, &options));
    stop_at(5);
    stop_at(9);
    stop_at(13);
    spoil(13, 100);
    spoil(9, -20);
    options = saving(&resumed);
    EXPECT_OK(train(&resumed, &options));
    assert_int_equal(resumed.warnings, 2);
    assert_non_null(strstr(resumed.warning, "step-00000009.safetensors"));
    assert_non_null(strstr(resumed.warning, "bytes"));
    assert_non_null(strstr(resumed.resumed_from, "step-00000005.safetensors, after step 5 of 20"));
    assert_true(hash_of(resumed.trainer) == hash_of(whole.trainer));
    yoke_trainer_destroy(resumed.trainer);
    yoke_trainer_destroy(whole.trainer);
    clear_saves();
}

/* A folder of any number of damaged files is told in eleven lines. */
static void auto_names_ten_damaged_files_and_counts_the_rest(void **state) {
    (void)state;
    log_of_run resumed = {0};
    char path[PATH_MAX];
    clear_saves();
    yoke_trainer_options options = saving(&resumed);
    stop_at(5);
    for (int damaged = 10; damaged <= 13; damaged++) {
        for (int i = 0; i < damaged; i++) {
            yoke_folder_path(path, saves, (uint64_t)(100 + i));
            fclose(fopen(path, "w"));
        }
        resumed = (log_of_run){.stop_after = 6};
        assert_int_equal(train(&resumed, &options), YOKE_ERROR_CANCELLED);
        yoke_trainer_destroy(resumed.trainer);
        assert_int_equal(resumed.warnings, damaged > 10 ? 11 : 10);
        assert_non_null(strstr(resumed.resumed_from, "step-00000005.safetensors"));
        char rest[64];
        snprintf(rest, sizeof rest, "passed over %d more damaged file%s", damaged - 10,
                 damaged == 11 ? "" : "s");
        if (damaged > 10) assert_string_equal(resumed.warning, rest);
        clear_saves();
        stop_at(5);
    }
    clear_saves();
}

static void write_other_format(const char *path) {
    const yoke_file_note notes[] = {{YOKE_FORMAT_KEY, "2"}, {YOKE_SEAL, YOKE_SEAL_BLANK}};
    yoke_file_writer writer;
    EXPECT_OK(yoke_safetensors_create(&writer, TO(path), NULL, 0, notes, 2));
    EXPECT_OK(yoke_file_commit(&writer));
}

static void auto_begins_again_only_where_no_checkpoint_is(void **state) {
    (void)state;
    char path[PATH_MAX];
    log_of_run run = {0};
    clear_saves();
    yoke_trainer_options options = saving(&run);
    stop_at(5);
    yoke_folder_path(path, saves, 9);
    write_other_format(path);
    expect_refused(options, YOKE_ERROR_DATA, "a checkpoint of format '2'");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0); /* opens, and cannot be read */
    expect_refused(options, YOKE_ERROR_IO, path);
    assert_int_equal(rmdir(path), 0);
    spoil(5, -20);
    expect_refused(options, YOKE_ERROR_DATA, "every checkpoint is damaged");
    clear_saves();
}

static void without_a_checkpoint_auto_begins_from_scratch_and_says_so(void **state) {
    (void)state;
    log_of_run run = {0};
    clear_saves();
    yoke_trainer_options options = saving(&run);
    options.steps = 1;
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.resumed, 1);
    assert_non_null(strstr(run.resumed_from, "from scratch"));
    assert_non_null(strstr(run.resumed_from, saves));
    yoke_trainer_destroy(run.trainer);
    clear_saves();
}

/* Refusals. */

static void another_run_is_refused_unless_the_field_is_named(void **state) {
    (void)state;
    log_of_run run = {0};
    clear_saves();
    stop_at(6);
    yoke_trainer_options options = saving(&run);
    options.batch = 25;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "batch is 25 here and 16 there");
    options.resume_anyway = "batch";
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.steps, RUN_STEPS);
    assert_int_equal(run.rows[6], 25); /* 32 rows of the epoch were done: the second half again */
    yoke_trainer_destroy(run.trainer);
    clear_saves();
    stop_at(6);
    options = saving(&run);
    options.seed = 8;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "seed is 8 here and 7 there");
    options = saving(&run);
    options.dataset = "synthetic:1x8x8,classes=3,rows=60";
    expect_refused(options, YOKE_ERROR_ARGUMENT, "synthetic of 60 rows");
    options = saving(&run);
    options.augment = YOKE_AUGMENT_CROP_FLIP;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "augment is crop-flip here and none there");
    options.augment = YOKE_AUGMENT_NONE;
    options.erasing = 0.25;
    expect_refused(options, YOKE_ERROR_ARGUMENT,
                   "augment is none, erasing 0.25 here and none there");
    options = saving(&run);
    options.mixup = 0.2;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "augment is none, mixup 0.2 here and none there");
    options = saving(&run);
    options.sampling = YOKE_SAMPLING_BALANCED;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "shuffle is balanced here and yes there");
    options = saving(&run);
    options.drop_last = true;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "drop_last is yes here and no there");
    options = saving(&run);
    options.limit_rows = 40;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "synthetic of 40 rows");
    options = saving(&run);
    options.lr_schedule = YOKE_LR_COSINE;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "lr_schedule is cosine here and constant there");
    options = saving(&run);
    options.dataset = "synthetic:1x8x8,classes=4,rows=50";
    expect_refused(options, YOKE_ERROR_DATA, "of a different shape");
    clear_saves();
}

static void a_folder_with_later_steps_is_refused(void **state) {
    (void)state;
    char path[PATH_MAX];
    log_of_run run = {0};
    clear_saves();
    stop_at(3);
    stop_at(6);
    yoke_trainer_options options = saving(&run);
    options.resume = NULL;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "step 6, and this run begins after step 0");
    yoke_folder_path(path, saves, 3);
    options.resume = path;
    expect_refused(options, YOKE_ERROR_ARGUMENT, "step 6, and this run begins after step 3");
    options.checkpoint_dir = NULL;
    EXPECT_OK(train(&run, &options)); /* from the file, without a folder */
    assert_int_equal(run.first_step, 3);
    yoke_trainer_destroy(run.trainer);
    options.resume = "auto";
    expect_refused(options, YOKE_ERROR_ARGUMENT, "checkpoint_dir");
    options.resume = "/no-such-file";
    expect_refused(options, YOKE_ERROR_MISSING, "/no-such-file");
    clear_saves();
}

/* A limit on the size of files stands in for a full disk. */
static void a_full_disk_is_a_warning_and_the_older_checkpoint_stays(void **state) {
    (void)state;
    struct rlimit before, limit;
    log_of_run run = {0};
    clear_saves();
    stop_at(4);
    yoke_trainer_options options = saving(&run);
    options.checkpoint_unit = YOKE_CHECKPOINT_STEPS;
    options.checkpoint_every = 1;
    options.keep = 1;
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 3000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    yoke_status status = yoke_trainer_run(run.trainer);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, YOKE_ERROR_IO); /* the last one */
    assert_int_equal(run.steps, RUN_STEPS);
    assert_true(run.warnings >= 1);
    assert_non_null(strstr(run.warning, "no file may have more than 3000"));
    assert_int_equal(count_saves(), 1);
    assert_true(has_save(4));
    yoke_trainer_destroy(run.trainer);
    clear_saves();
}

static void another_batch_size_trains_what_is_left_of_the_epochs(void **state) {
    (void)state;
    log_of_run stopped = {.stop_after = 6}, resumed = {0};
    clear_saves();
    yoke_trainer_options options = saving(&stopped);
    options.steps = 0;
    options.epochs = 5;
    assert_int_equal(train(&stopped, &options), YOKE_ERROR_CANCELLED);
    yoke_trainer_destroy(stopped.trainer);
    options.payload = &resumed;
    options.resume_anyway = "batch";
    options.batch = 25; /* two batches an epoch */
    EXPECT_OK(train(&resumed, &options));
    int left = 4 * 2 - 2 * small(&resumed).batch / 25; /* of epochs 1 to 4 */
    assert_int_equal(resumed.steps, 6 + left);
    yoke_trainer_destroy(resumed.trainer);
    clear_saves();
}

static void a_stop_in_the_last_evaluation_still_leads_to_the_best(void **state) {
    (void)state;
    char path[PATH_MAX];
    log_of_run stopped = {.stop_after = RUN_STEPS}, resumed = {0};
    clear_saves();
    yoke_trainer_options options = saving(&stopped);
    options.keep_best = true;
    assert_int_equal(train(&stopped, &options), YOKE_ERROR_CANCELLED);
    yoke_trainer_destroy(stopped.trainer);
    yoke_folder_best_path(path, saves);
    assert_int_equal(access(path, F_OK), -1);
    options.payload = &resumed;
    EXPECT_OK(train(&resumed, &options));
    assert_int_equal(resumed.evaluations, 1);
    assert_int_equal(access(path, F_OK), 0);
    yoke_trainer_destroy(resumed.trainer);
    clear_saves();
}

static void another_number_of_threads_is_a_warning(void **state) {
    (void)state;
    log_of_run same = {0}, other = {0};
    if (!devices_are_cpus()) skip();
    clear_saves();
    stop_at(6);
    yoke_trainer_options options = saving(&same);
    options.steps = 7;
    EXPECT_OK(train(&same, &options));
    assert_int_equal(same.warnings, 0);
    yoke_trainer_destroy(same.trainer);
    options = saving(&other);
    options.threads = 2;
    EXPECT_OK(train(&other, &options));
    assert_int_equal(other.warnings, 1);
    assert_non_null(strstr(other.warning, "2 threads here and had 1 there"));
    yoke_trainer_destroy(other.trainer);
    clear_saves();
}

/* As a step's file of an earlier run is. */
static void the_best_of_an_earlier_run_is_not_overwritten(void **state) {
    (void)state;
    char path[PATH_MAX];
    log_of_run first = {0}, second = {0};
    clear_saves();
    yoke_trainer_options options = saving(&first);
    options.keep_best = true;
    EXPECT_OK(train(&first, &options));
    yoke_trainer_destroy(first.trainer);
    yoke_folder_path(path, saves, RUN_STEPS);
    assert_int_equal(unlink(path), 0);
    options = saving(&second);
    options.resume = NULL;
    expect_refused(options, YOKE_ERROR_ARGUMENT,
                   "best.safetensors is a checkpoint of step 20, and this run begins after step 0");
    clear_saves();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_stopped_after_any_step_goes_on_bit_for_bit),
        cmocka_unit_test(a_finished_run_can_go_on_to_more_steps),
        cmocka_unit_test(the_newest_checkpoints_and_the_best_are_kept),
        cmocka_unit_test(every_interval_gives_a_checkpoint),
        cmocka_unit_test(auto_passes_over_what_is_damaged_and_says_why),
        cmocka_unit_test(auto_names_ten_damaged_files_and_counts_the_rest),
        cmocka_unit_test(auto_begins_again_only_where_no_checkpoint_is),
        cmocka_unit_test(without_a_checkpoint_auto_begins_from_scratch_and_says_so),
        cmocka_unit_test(another_run_is_refused_unless_the_field_is_named),
        cmocka_unit_test(a_folder_with_later_steps_is_refused),
        cmocka_unit_test(a_full_disk_is_a_warning_and_the_older_checkpoint_stays),
        cmocka_unit_test(another_number_of_threads_is_a_warning),
        cmocka_unit_test(the_best_of_an_earlier_run_is_not_overwritten),
        cmocka_unit_test(another_batch_size_trains_what_is_left_of_the_epochs),
        cmocka_unit_test(a_stop_in_the_last_evaluation_still_leads_to_the_best),
    };
    /* The others are about files and options, the same on all devices. */
    const struct CMUnitTest on_gpus[] = {
        cmocka_unit_test(a_run_stopped_after_any_step_goes_on_bit_for_bit),
        cmocka_unit_test(a_finished_run_can_go_on_to_more_steps),
        cmocka_unit_test(another_batch_size_trains_what_is_left_of_the_epochs),
    };
    if (devices_are_cpus()) return cmocka_run_group_tests(tests, make_folder, remove_folder);
    return RUN_ON_DEVICES(on_gpus, make_folder, remove_folder);
}
