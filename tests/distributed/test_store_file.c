/* SPDX-License-Identifier: Apache-2.0 */
/* A run's folder belongs to its keeper while the keeper lives; another run notices what a dead
 * keeper left, and no run leaves anything. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "store_check.h"

static const char *run_folder(void) {
    return place + strlen("file://");
}

static void keep_and_die(const char *run_id) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        yoke_store *keeper;
        yoke_store_options options = {
            .address = place, .serve = true, .run_id = run_id, .timeout_ms = PATIENT_MS};
        if (yoke_store_create(&keeper, &options) == YOKE_OK)
            yoke_store_set(keeper, "left", "behind", 6);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    assert_true(count_files(run_folder()) > 0);
}

static void leftovers_of_a_dead_run_are_noticed_and_replaced(void **state) {
    (void)state;
    kind = "file";
    static const char *const runs[] = {"old", "run"};
    for (int i = 0; i < 2; i++) {
        keep_and_die(runs[i]);
        assert_refused(
            (yoke_store_options){.address = place, .run_id = "run", .timeout_ms = SOON_MS},
            YOKE_ERROR_TIMEOUT, runs[i]);
        assert_says("has ended");
        yoke_store *keeper = keep("run", NULL);
        char value[8];
        size_t bytes;
        yoke_store_timeout(keeper, 0);
        assert_int_equal(yoke_store_wait(keeper, "left", value, sizeof value, &bytes),
                         YOKE_ERROR_TIMEOUT);
        yoke_store_timeout(keeper, PATIENT_MS);
        assert_serves(keeper);
        yoke_store_destroy(keeper);
        assert_int_equal(count_files(run_folder()), -1);
    }
}

static void a_living_runs_folder_is_not_taken(void **state) {
    (void)state;
    kind = "file";
    yoke_store *keeper = keep("run", NULL);
    char pid[32];
    snprintf(pid, sizeof pid, ":%ld", (long)getpid());
    assert_refused((yoke_store_options){.address = place, .serve = true, .run_id = "second"},
                   YOKE_ERROR_ARGUMENT, pid);
    assert_refused((yoke_store_options){.address = place, .serve = true, .run_id = "run"},
                   YOKE_ERROR_ARGUMENT, pid);
    assert_serves(keeper);
    yoke_store_destroy(keeper);
}

static void the_last_one_removes_a_dead_keepers_files(void **state) {
    (void)state;
    kind = "file";
    int ready[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        yoke_store *keeper;
        yoke_store_options options = {
            .address = place, .serve = true, .run_id = "run", .timeout_ms = PATIENT_MS};
        bool made = yoke_store_create(&keeper, &options) == YOKE_OK;
        if (made && write(ready[1], "k", 1) == 1) pause();
        _exit(1);
    }
    close(ready[1]);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    yoke_store *first = join(NULL), *second = join(NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    size_t bytes;
    assert_int_equal(yoke_store_wait(first, "never", &byte, 1, &bytes), YOKE_ERROR_PEER);
    assert_says("has left");
    yoke_store_destroy(first);
    assert_true(count_files(run_folder()) > 0);
    yoke_store_destroy(second);
    assert_int_equal(count_files(run_folder()), -1);
}

static void a_folder_that_others_may_write_is_refused(void **state) {
    (void)state;
    kind = "file";
    yoke_store_options options = {.address = place, .serve = true, .run_id = "run"};
    assert_int_equal(mkdir(run_folder(), 0700), 0);
    assert_int_equal(chmod(run_folder(), 0777), 0);
    assert_refused(options, YOKE_ERROR_ARGUMENT, "only you can write");
    assert_int_equal(rmdir(run_folder()), 0);
    int file = open(run_folder(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    close(file);
    assert_refused(options, YOKE_ERROR_ARGUMENT, "is not a folder");
    assert_int_equal(unlink(run_folder()), 0);
}

/* Left there when others could still write to the folder. */
static void a_fifo_in_the_place_of_a_file_holds_nobody_up(void **state) {
    (void)state;
    kind = "file";
    static const char *const names[] = {"yoke-run", "yoke-guard"};
    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%s", run_folder(), names[i]);
        assert_int_equal(mkdir(run_folder(), 0700), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        yoke_store_options options = {.address = place, .run_id = "run", .timeout_ms = SOON_MS};
        assert_refused(options, YOKE_ERROR_TIMEOUT, "rank 0 did not open a store");
        options.serve = true;
        if (i == 1) {
            assert_refused(options, YOKE_ERROR_IO, "cannot lock a file");
            assert_int_equal(unlink(path), 0);
        }
        yoke_store_destroy(open_store(options));
        assert_int_equal(count_files(run_folder()), -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leftovers_of_a_dead_run_are_noticed_and_replaced),
        cmocka_unit_test(a_living_runs_folder_is_not_taken),
        cmocka_unit_test(the_last_one_removes_a_dead_keepers_files),
        cmocka_unit_test(a_folder_that_others_may_write_is_refused),
        cmocka_unit_test(a_fifo_in_the_place_of_a_file_holds_nobody_up),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
