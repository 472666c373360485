/* SPDX-License-Identifier: Apache-2.0 */
/* A file is complete or as it was before, whichever call fails. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_check.h"

static void a_committed_file_has_everything_and_no_temporary_stays(void **state) {
    (void)state;
    yoke_file_writer writer;
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_int_equal(yoke_file_write(&writer, "one ", 4), YOKE_OK);
    assert_int_equal(yoke_file_write(&writer, "", 0), YOKE_OK);
    assert_int_equal(yoke_file_write(&writer, "two", 3), YOKE_OK);
    assert_false(yoke_file_exists(target));
    assert_int_equal(yoke_file_commit(&writer), YOKE_OK);
    assert_content(target, "one two");
    assert_int_equal(entries(), 1);
}

static void a_check_finds_a_missing_folder_and_changes_nothing(void **state) {
    (void)state;
    char missing[160];
    snprintf(missing, sizeof missing, "%s/none/weights", folder);
    save(target, "old");
    assert_int_equal(yoke_file_check(target), YOKE_OK);
    assert_int_equal(yoke_file_check(NULL), YOKE_OK);
    assert_content(target, "old");
    assert_int_equal(entries(), 1);
    assert_int_equal(yoke_file_check(missing), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), missing));
}

static void until_commit_readers_see_the_old_file(void **state) {
    (void)state;
    save(target, "old");
    yoke_file_writer writer;
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_int_equal(yoke_file_write(&writer, "new", 3), YOKE_OK);
    assert_content(target, "old");
    assert_int_equal(yoke_file_commit(&writer), YOKE_OK);
    assert_content(target, "new");
}

static void abandoning_leaves_the_target_as_it_was(void **state) {
    (void)state;
    save(target, "old");
    yoke_file_writer writer;
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_int_equal(yoke_file_write(&writer, "half of the n", 13), YOKE_OK);
    yoke_file_abort(&writer);
    yoke_file_abort(&writer);
    assert_content(target, "old");
    assert_int_equal(entries(), 1);
    assert_int_equal(yoke_file_write(&writer, "x", 1), YOKE_ERROR_IO);
    assert_int_equal(yoke_file_commit(&writer), YOKE_ERROR_IO);
}

static void a_killed_writer_leaves_the_target_as_it_was(void **state) {
    (void)state;
    save(target, "old");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        yoke_file_writer writer;
        if (yoke_file_create(&writer, target) != YOKE_OK) _exit(1);
        if (yoke_file_write(&writer, "half of the n", 13) != YOKE_OK) _exit(1);
        raise(SIGKILL);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
    assert_content(target, "old");
    assert_int_equal(entries(), 1);
    save(target, "new");
    assert_content(target, "new");
}

/* A limit on the size of files stands in for a full disk: the write fails half way. */
static void a_write_that_fails_leaves_the_old_file_and_nothing_else(void **state) {
    (void)state;
    save(target, "old");
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 5000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    static const char data[9000];
    yoke_file_writer writer;
    yoke_status created = yoke_file_create(&writer, target);
    yoke_status written = yoke_file_write(&writer, data, sizeof data);
    yoke_status again = yoke_file_write(&writer, data, sizeof data);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(created, YOKE_OK);
    assert_int_equal(written, YOKE_ERROR_IO);
    assert_int_equal(again, YOKE_ERROR_IO);
    assert_content(target, "old");
    assert_int_equal(entries(), 1);
}

/* Devices are reached through a link: a writer that replaced its target would spoil the link only.
 */
static void link_to(const char *device) {
    assert_int_equal(symlink(device, target), 0);
}

static void a_full_disk_is_named_with_the_path(void **state) {
    (void)state;
    link_to("/dev/full");
    yoke_file_writer writer;
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_int_equal(yoke_file_write(&writer, "x", 1), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), target));
    assert_non_null(strstr(yoke_last_error(), strerror(ENOSPC)));
}

static void a_device_is_written_to_and_not_replaced(void **state) {
    (void)state;
    link_to("/dev/null");
    save(target, "gone");
    struct stat file;
    assert_int_equal(lstat(target, &file), 0);
    assert_true(S_ISLNK(file.st_mode));
    assert_int_equal(entries(), 1);
}

static void what_cannot_be_created_is_named_with_its_cause(void **state) {
    (void)state;
    yoke_file_writer writer;
    char path[160];
    snprintf(path, sizeof path, "%s/absent/weights", folder);
    assert_int_equal(yoke_file_create(&writer, path), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), path));
    assert_non_null(strstr(yoke_last_error(), strerror(ENOENT)));
    assert_int_equal(yoke_file_create(&writer, folder), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), strerror(EISDIR)));
}

static void a_read_only_folder_is_named_with_its_cause(void **state) {
    (void)state;
    yoke_file_writer writer;
    /* The superuser may write to any folder but not to this one. */
    const char *path = geteuid() == 0 ? "/proc/weights" : target;
    chmod(folder, 0555);
    yoke_status status = yoke_file_create(&writer, path);
    chmod(folder, 0755);
    assert_int_equal(status, YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), path));
    assert_int_equal(entries(), 0);
}

static void a_private_file_stays_private(void **state) {
    (void)state;
    save(target, "old");
    assert_int_equal(chmod(target, 0600), 0);
    save(target, "new");
    struct stat file;
    assert_int_equal(stat(target, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
}

static void a_name_without_a_folder_is_in_the_current_one(void **state) {
    (void)state;
    int here = open(".", O_RDONLY | O_DIRECTORY);
    assert_true(here >= 0);
    assert_int_equal(chdir(folder), 0);
    save("weights", "here");
    assert_int_equal(fchdir(here), 0);
    close(here);
    assert_content(target, "here");
}

static void a_missing_file_is_missing_and_a_folder_is_an_io_error(void **state) {
    (void)state;
    unsigned char *data = (unsigned char *)target;
    size_t bytes = 1;
    assert_int_equal(yoke_file_read(target, 100, &data, &bytes), YOKE_ERROR_MISSING);
    assert_non_null(strstr(yoke_last_error(), target));
    assert_null(data);
    assert_int_equal(bytes, 0);
    assert_int_equal(yoke_file_read(folder, 100, &data, &bytes), YOKE_ERROR_IO);
    assert_null(data);
}

static void a_file_beyond_the_limit_is_refused(void **state) {
    (void)state;
    save(target, "12345678");
    unsigned char *data;
    size_t bytes;
    assert_int_equal(yoke_file_read(target, 7, &data, &bytes), YOKE_ERROR_IO);
    assert_null(data);
    assert_int_equal(yoke_file_read(target, 8, &data, &bytes), YOKE_OK);
    free(data);
    /* Without a size to look at: an endless file. */
    assert_int_equal(yoke_file_read("/dev/zero", 100000, &data, &bytes), YOKE_ERROR_IO);
    assert_null(data);
}

static void files_of_any_length_are_read_whole(void **state) {
    (void)state;
    static const size_t lengths[] = {0, 1, 4095, 4096, 4097, 100000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        unsigned char *sent = malloc(lengths[i] + 1), *data;
        size_t bytes;
        for (size_t j = 0; j < lengths[i]; j++)
            sent[j] = (unsigned char)(j * 31 >> 3);
        yoke_file_writer writer;
        assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
        assert_int_equal(yoke_file_write(&writer, sent, lengths[i]), YOKE_OK);
        assert_int_equal(yoke_file_commit(&writer), YOKE_OK);
        assert_int_equal(yoke_file_read(target, 100000, &data, &bytes), YOKE_OK);
        assert_int_equal(bytes, lengths[i]);
        assert_memory_equal(data, sent, bytes);
        free(data);
        free(sent);
    }
}

static void ignore(int signal) {
    (void)signal;
}

/* A signal in the wait is no end of it. */
static void a_pipe_is_read_and_not_waited_for_for_ever(void **state) {
    (void)state;
    unsigned char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(mkfifo(target, 0600), 0);
    yoke_file_mapping mapping;
    assert_int_equal(yoke_file_map(&mapping, target), YOKE_ERROR_IO);
    pid_t writer = fork();
    if (writer == 0) {
        usleep(300000);
        int descriptor = open(target, O_WRONLY);
        bool first = write(descriptor, "late", 4) == 4;
        usleep(300000);
        _exit(first && write(descriptor, "r", 1) == 1 ? 0 : 1);
    }
    const struct itimerval soon = {.it_value.tv_usec = 100000};
    signal(SIGALRM, ignore);
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    assert_int_equal(yoke_file_read(target, 100, &data, &bytes), YOKE_OK);
    assert_string_equal((const char *)data, "later");
    free(data);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    assert_int_equal(yoke_file_read(target, 100, &data, &bytes), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "no program has written for 10 s"));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_committed_file_has_everything_and_no_temporary_stays),
        IN_FOLDER(a_check_finds_a_missing_folder_and_changes_nothing),
        IN_FOLDER(until_commit_readers_see_the_old_file),
        IN_FOLDER(abandoning_leaves_the_target_as_it_was),
        IN_FOLDER(a_killed_writer_leaves_the_target_as_it_was),
        IN_FOLDER(a_write_that_fails_leaves_the_old_file_and_nothing_else),
        IN_FOLDER(a_full_disk_is_named_with_the_path),
        IN_FOLDER(a_device_is_written_to_and_not_replaced),
        IN_FOLDER(what_cannot_be_created_is_named_with_its_cause),
        IN_FOLDER(a_read_only_folder_is_named_with_its_cause),
        IN_FOLDER(a_private_file_stays_private),
        IN_FOLDER(a_name_without_a_folder_is_in_the_current_one),
        IN_FOLDER(a_missing_file_is_missing_and_a_folder_is_an_io_error),
        IN_FOLDER(a_file_beyond_the_limit_is_refused),
        IN_FOLDER(files_of_any_length_are_read_whole),
        IN_FOLDER(a_pipe_is_read_and_not_waited_for_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
