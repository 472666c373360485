/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints on a disk that is slow or fails, in a folder that is a file, is gone or belongs to
 * another run. fsync is wrapped (-Wl,--wrap). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>

#include "rank_runs.h"
#include "saves_check.h"

/* What the next calls do. */
static atomic_int slow, failing, failing_once;
static atomic_int calls;

int __real_fsync(int descriptor);
int __wrap_fsync(int descriptor);
int __wrap_fsync(int descriptor) {
    atomic_fetch_add(&calls, 1);
    if (atomic_exchange(&slow, 0) != 0) usleep(SLOW_US);
    if (atomic_exchange(&failing_once, 0) != 0 || atomic_load(&failing) != 0) {
        errno = EIO;
        return -1;
    }
    return __real_fsync(descriptor);
}

static bool has_best(void) {
    char path[PATH_MAX];
    yoke_folder_best_path(path, saves);
    return access(path, R_OK) == 0;
}

static uint64_t slow_step; /* the first sync behind this step is slow */

static void on_event_of_rank_0(const yoke_event *event, void *payload) {
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_STEP && event->step == slow_step) atomic_store(&slow, 1);
}

static void set_options(rank_run ranks[RANK_RUNS]) {
    for (int k = 0; k < RANK_RUNS; k++) {
        yoke_trainer_options *options = &ranks[k].options;
        *options = small(&ranks[k].run);
        options->steps = RUN_STEPS;
        options->checkpoint_dir = saves;
        options->checkpoint_every = 1;
        options->checkpoint_unit = YOKE_CHECKPOINT_STEPS;
        options->keep_best = true;
        options->evaluate_every = 1;
    }
    ranks[0].options.on_event = on_event_of_rank_0;
}

/* Longer than the deadline of the ranks: while the best waits for an earlier file, and at the end.
 */
static void a_slow_disk_fails_no_rank(void **state) {
    (void)state;
    static const uint64_t slow_steps[] = {1, RUN_STEPS};
    for (int i = 0; i < 2; i++) {
        rank_run ranks[RANK_RUNS] = {0};
        clear_saves();
        slow_step = slow_steps[i];
        set_options(ranks);
        run_ranks(ranks);
        expect_all_well(ranks);
        assert_int_equal(atomic_load(&slow), 0);
        assert_true(has_save(RUN_STEPS) && has_best());
    }
    clear_saves();
}

/* A disk that fails. */

static void on_event_until_a_warning(const yoke_event *event, void *payload) {
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_WARNING) atomic_store(&failing, 0);
}

static void a_best_that_could_not_be_written_is_tried_again(void **state) {
    (void)state;
    const yoke_optimizer_options still = {.struct_size = sizeof still, .learning_rate = 0};
    log_of_run run = {0};
    clear_saves();
    yoke_trainer_options options = saving(&run);
    options.optimizer = &still; /* every evaluation is as good as the first */
    options.keep_best = true;
    options.evaluate_every = 1;
    options.on_event = on_event_until_a_warning;
    EXPECT_OK(yoke_trainer_create(&run.trainer, &options));
    atomic_store(&failing, 1);
    EXPECT_OK(yoke_trainer_run(run.trainer));
    assert_int_equal(atomic_load(&failing), 0);
    assert_int_equal(run.warnings, 1);
    assert_non_null(strstr(run.warning, "best.safetensors"));
    assert_true(has_best());
    yoke_trainer_destroy(run.trainer);
    clear_saves();
}

static void on_event_before_the_disk_fails(const yoke_event *event, void *payload) {
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_STEP) atomic_store(&failing, 1);
}

/* The step behind the checkpoint fails while the checkpoint is being written. */
static void a_failed_write_is_reported_after_a_loss_that_is_not_finite(void **state) {
    (void)state;
    const yoke_optimizer_options steep = {.struct_size = sizeof steep, .learning_rate = 1e30};
    log_of_run run = {0};
    clear_saves();
    yoke_trainer_options options = saving(&run);
    options.optimizer = &steep;
    options.checkpoint_every = 1;
    options.checkpoint_unit = YOKE_CHECKPOINT_STEPS;
    options.on_event = on_event_before_the_disk_fails;
    assert_int_equal(train(&run, &options), YOKE_ERROR_NUMERIC);
    atomic_store(&failing, 0);
    assert_int_equal(run.steps, 1);
    assert_int_equal(run.warnings, 1);
    assert_non_null(strstr(run.warning, "step-00000001.safetensors"));
    yoke_trainer_destroy(run.trainer);
    clear_saves();
}

static void on_event_before_the_disk_fails_once(const yoke_event *event, void *payload) {
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_STEP && event->step == RUN_STEPS) atomic_store(&failing_once, 1);
}

/* Beside it, in a folder that only its owner may enter; a run goes on from there. */
static void a_last_checkpoint_that_cannot_be_written_is_elsewhere(void **state) {
    (void)state;
    static const char says[] = "; the weights and the optimizer's state are in ";
    char place[512];
    log_of_run run = {0}, next = {0};
    clear_saves();
    yoke_trainer_options options = saving(&run);
    options.on_event = on_event_before_the_disk_fails_once;
    assert_int_equal(train(&run, &options), YOKE_ERROR_IO);
    assert_int_equal(atomic_load(&failing_once), 0);
    const char *where = strstr(yoke_last_error(), says);
    assert_non_null(where);
    snprintf(place, sizeof place, "%s", where + strlen(says));
    assert_memory_equal(place, saves, strlen(saves));
    assert_false(has_save(RUN_STEPS));
    options = saving(&next);
    options.checkpoint_dir = NULL;
    options.resume = place;
    options.steps = RUN_STEPS + 2;
    EXPECT_OK(train(&next, &options));
    assert_int_equal(next.first_step, RUN_STEPS);
    yoke_trainer_destroy(run.trainer);
    yoke_trainer_destroy(next.trainer);
    assert_int_equal(unlink(place), 0);
    *strrchr(place, '/') = '\0';
    struct stat folder_of_it;
    assert_int_equal(stat(place, &folder_of_it), 0);
    assert_int_equal(folder_of_it.st_mode & 0777, 0700);
    assert_int_equal(rmdir(place), 0);
    clear_saves();
}

static void a_new_folder_is_on_the_disk_before_the_first_file(void **state) {
    (void)state;
    yoke_folder opened;
    clear_saves();
    atomic_store(&failing, 1);
    assert_int_equal(yoke_folder_open(&opened, saves), YOKE_ERROR_IO);
    atomic_store(&failing, 0);
    assert_int_equal(access(saves, F_OK), -1);
    atomic_store(&calls, 0);
    EXPECT_OK(yoke_folder_open(&opened, saves));
    yoke_folder_close(&opened);
    assert_int_equal(atomic_load(&calls), 1);
    EXPECT_OK(yoke_folder_open(&opened, saves)); /* not new */
    yoke_folder_close(&opened);
    assert_int_equal(atomic_load(&calls), 1);
    clear_saves();
}

/* The folder. */

static void a_best_that_the_folder_has_not_is_written_again(void **state) {
    (void)state;
    const yoke_optimizer_options still = {.struct_size = sizeof still, .learning_rate = 0};
    char path[PATH_MAX];
    clear_saves();
    for (int part = 0; part < 2; part++) {
        log_of_run run = {.stop_after = part == 0 ? RUN_STEPS / 2 : 0};
        yoke_trainer_options options = saving(&run);
        options.optimizer = &still; /* every evaluation is as good as the first */
        options.keep_best = true;
        options.evaluate_every = 1;
        assert_int_equal(train(&run, &options), part == 0 ? YOKE_ERROR_CANCELLED : YOKE_OK);
        yoke_trainer_destroy(run.trainer);
        assert_true(has_best());
        yoke_folder_best_path(path, saves);
        assert_int_equal(unlink(path), 0);
    }
    clear_saves();
}

static void a_file_is_no_folder(void **state) {
    (void)state;
    log_of_run run = {0};
    clear_saves();
    yoke_trainer_options options = saving(&run);
    FILE *file = fopen(saves, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(yoke_trainer_create(&run.trainer, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "saves: is a file; checkpoints need a folder"));
    unlink(saves);
}

static void on_event_removing_the_folder(const yoke_event *event, void *payload) {
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_STEP && event->step == 6) clear_saves();
}

static void a_folder_that_somebody_removes_is_made_again(void **state) {
    (void)state;
    log_of_run run = {0};
    yoke_folder other;
    clear_saves();
    yoke_trainer_options options = saving(&run);
    options.on_event = on_event_removing_the_folder;
    EXPECT_OK(train(&run, &options));
    assert_int_equal(run.warnings, 0);
    assert_true(has_save(RUN_STEPS));
    assert_int_equal(yoke_folder_open(&other, saves), YOKE_ERROR_ARGUMENT); /* locked again */
    yoke_trainer_destroy(run.trainer);
    clear_saves();
}

static void a_folder_has_one_run_at_a_time(void **state) {
    (void)state;
    char path[192];
    yoke_folder first, second;
    clear_saves();
    EXPECT_OK(yoke_folder_open(&first, saves));
    snprintf(path, sizeof path, "%s/step-00000001.safetensors.tmp.77", saves);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(yoke_folder_open(&second, saves), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "another run writes its checkpoints here"));
    assert_int_equal(access(path, F_OK), 0); /* its file in progress */
    yoke_folder_close(&second);
    yoke_folder_close(&first);
    EXPECT_OK(yoke_folder_open(&second, saves));
    assert_int_equal(access(path, F_OK), -1);
    yoke_folder_close(&second);
    clear_saves();
}

/* Every user may open and lock a folder that he may read. */
static void who_may_only_read_a_folder_keeps_no_run_out(void **state) {
    (void)state;
    char path[192];
    yoke_folder own;
    struct stat facts;
    clear_saves();
    EXPECT_OK(yoke_folder_open(&own, saves));
    yoke_folder_close(&own);
    int stranger = open(saves, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(stranger >= 0 && flock(stranger, LOCK_EX | LOCK_NB) == 0);
    EXPECT_OK(yoke_folder_open(&own, saves));
    snprintf(path, sizeof path, "%s/.lock", saves);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    yoke_folder_close(&own);
    assert_int_equal(access(path, F_OK), -1);
    close(stranger);
    clear_saves();
}

/* A run whose folder was moved away, and another run made a new one of that name. */
static void a_folder_of_another_run_stays_refused(void **state) {
    (void)state;
    char moved[128], path[PATH_MAX];
    yoke_folder first, second;
    clear_saves();
    EXPECT_OK(yoke_folder_open(&first, saves));
    assert_int_equal(rename(saves, in_folder("moved", moved)), 0);
    EXPECT_OK(yoke_folder_open(&second, saves));
    for (int i = 0; i < 2; i++)
        assert_int_equal(yoke_folder_restore(&first), YOKE_ERROR_ARGUMENT);
    yoke_folder_path(path, saves, 1);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    yoke_folder_close(&second);
    for (int i = 0; i < 2; i++)
        assert_int_equal(yoke_folder_restore(&first), YOKE_ERROR_ARGUMENT);
    assert_int_equal(unlink(path), 0);
    EXPECT_OK(yoke_folder_restore(&first));
    assert_int_equal(yoke_folder_open(&second, saves), YOKE_ERROR_ARGUMENT); /* locked again */
    yoke_folder_close(&first);
    assert_int_equal(rmdir(moved), 0);
    clear_saves();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_disk_fails_no_rank),
        cmocka_unit_test(a_best_that_could_not_be_written_is_tried_again),
        cmocka_unit_test(a_failed_write_is_reported_after_a_loss_that_is_not_finite),
        cmocka_unit_test(a_last_checkpoint_that_cannot_be_written_is_elsewhere),
        cmocka_unit_test(a_new_folder_is_on_the_disk_before_the_first_file),
        cmocka_unit_test(a_best_that_the_folder_has_not_is_written_again),
        cmocka_unit_test(a_file_is_no_folder),
        cmocka_unit_test(a_folder_that_somebody_removes_is_made_again),
        cmocka_unit_test(who_may_only_read_a_folder_keeps_no_run_out),
        cmocka_unit_test(a_folder_has_one_run_at_a_time),
        cmocka_unit_test(a_folder_of_another_run_stays_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
