/* SPDX-License-Identifier: Apache-2.0 */
/* Where a new file goes: through links, beside strangers, past pipes; and what it needs on the way.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_check.h"

static int link_refusal; /* errno */

int __real_linkat(int from, const char *old, int to, const char *name, int flags);
int __wrap_linkat(int from, const char *old, int to, const char *name, int flags);
int __wrap_linkat(int from, const char *old, int to, const char *name, int flags) {
    errno = link_refusal;
    return link_refusal != 0 ? -1 : __real_linkat(from, old, to, name, flags);
}

static int reservations;

int __real_fallocate(int descriptor, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int descriptor, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
    reservations++;
    return __real_fallocate(descriptor, mode, offset, bytes);
}

static const char *in_folder(const char *name) {
    static char paths[4][192];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static bool is_link(const char *path) {
    struct stat file;
    return lstat(path, &file) == 0 && S_ISLNK(file.st_mode);
}

/* On this disk; others may give it a random name. */
static void a_file_in_progress_has_no_name_that_a_stranger_could_take(void **state) {
    (void)state;
    yoke_file_writer writer;
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_int_equal(entries(), writer.named);
    assert_null(strstr(writer.temporary, folder));
    char first[NAME_MAX + 1];
    memcpy(first, writer.temporary, sizeof first);
    yoke_file_abort(&writer);
    assert_int_equal(entries(), 0);
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_string_not_equal(first, writer.temporary);
    yoke_file_abort(&writer);
}

static void a_link_stays_a_link_and_its_file_is_replaced(void **state) {
    (void)state;
    assert_int_equal(mkdir(in_folder("far"), 0700), 0);
    save(in_folder("far/real"), "old");
    assert_int_equal(chmod(in_folder("far/real"), 0640), 0);
    assert_int_equal(symlink("real", in_folder("far/second")), 0);
    assert_int_equal(symlink("far/second", target), 0);
    save(target, "new");
    assert_true(is_link(target));
    assert_true(is_link(in_folder("far/second")));
    assert_content(in_folder("far/real"), "new");
    struct stat file;
    assert_int_equal(stat(target, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0640);
    assert_int_equal(entries(), 2);
}

static void the_file_that_a_dangling_link_names_is_made(void **state) {
    (void)state;
    assert_int_equal(symlink(in_folder("later"), target), 0);
    save(target, "new");
    assert_true(is_link(target));
    assert_content(in_folder("later"), "new");
    assert_int_equal(symlink("none/later", in_folder("lost")), 0);
    assert_int_equal(yoke_file_check(in_folder("lost")), YOKE_ERROR_IO);
    assert_int_equal(symlink("circle", in_folder("circle")), 0);
    assert_int_equal(yoke_file_check(in_folder("circle")), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), strerror(ELOOP)));
}

/* The kernel has the same rule where fs.protected_symlinks is set. */
static void a_strangers_link_in_a_folder_for_all_is_not_followed(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    assert_int_equal(mkdir(in_folder("all"), 0700), 0);
    assert_int_equal(chmod(in_folder("all"), 01777), 0);
    assert_int_equal(symlink(target, in_folder("all/weights")), 0);
    assert_int_equal(lchown(in_folder("all/weights"), 12345, 12345), 0);
    save(in_folder("precious"), "kept");
    assert_int_equal(link(in_folder("precious"), target), 0);
    assert_int_equal(yoke_file_check(in_folder("all/weights")), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), strerror(EACCES)));
    assert_int_equal(yoke_file_append(in_folder("all/weights")), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(yoke_file_check_links(in_folder("all/weights")), EACCES);
    assert_int_equal(lchown(in_folder("all/weights"), 0, 0), 0);
    assert_int_equal(yoke_file_check_links(in_folder("all/weights")), 0);
    int own = yoke_file_append(in_folder("all/weights"));
    assert_true(own >= 0 && close(own) == 0);
    save(in_folder("all/weights"), "new");
    assert_content(target, "new");
    assert_content(in_folder("precious"), "kept"); /* a hard link is another name */
}

static void a_pipe_or_device_is_no_place_for_a_whole_file(void **state) {
    (void)state;
    static const struct {
        const char *path, *kind;
    } places[] = {{NULL, "pipe"}, {"/dev/null", "device"}};
    assert_int_equal(mkfifo(target, 0600), 0);
    alarm(900); /* instead of waiting for a reader */
    for (size_t i = 0; i < 2; i++) {
        const char *path = places[i].path != NULL ? places[i].path : target;
        assert_int_equal(yoke_file_check_whole(path), YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), path));
        assert_non_null(strstr(yoke_last_error(), places[i].kind));
    }
    yoke_file_writer writer;
    assert_int_equal(yoke_file_create(&writer, target), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "nobody reads"));
    assert_int_equal(yoke_file_check(target), YOKE_OK); /* a reader may come */
    alarm(0);
}

/* Once such a save made a file `memfd:weights (deleted)` in the root folder, and answered OK. */
static void a_file_without_a_name_is_refused(void **state) {
    (void)state;
    char deleted[256], path[64];
    snprintf(deleted, sizeof deleted, "%s (deleted)", target);
    for (int kind = 0; kind < 3; kind++) {
        int file = kind == 0 ? memfd_create("weights", 0) : open(target, O_RDWR | O_CREAT, 0600);
        assert_true(file >= 0);
        if (kind == 2) assert_int_equal(link(target, in_folder("another")), 0);
        if (kind > 0) assert_int_equal(unlink(target), 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        for (int by_link = 0; by_link < 2; by_link++) {
            yoke_file_writer writer;
            if (by_link) assert_int_equal(symlink(path, in_folder("way")), 0);
            const char *to = by_link ? in_folder("way") : path;
            assert_int_equal(yoke_file_check_whole(to), YOKE_ERROR_ARGUMENT);
            assert_int_equal(yoke_file_create_whole(&writer, to), YOKE_ERROR_ARGUMENT);
            assert_non_null(strstr(yoke_last_error(), "without a name"));
            if (by_link) unlink(to);
        }
        assert_int_equal(access(deleted, F_OK), -1);
        close(file);
    }
    assert_int_equal(access("/memfd:weights (deleted)", F_OK), -1);
}

static void a_file_in_a_folder_may_be_named_by_its_descriptor(void **state) {
    (void)state;
    char path[64];
    int file = open(target, O_RDWR | O_CREAT, 0600);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    save(path, "new");
    assert_content(target, "new");
    close(file);
}

static void a_text_may_go_to_a_pipe_and_a_check_does_not_end_it(void **state) {
    (void)state;
    char text[8] = "";
    assert_int_equal(mkfifo(target, 0600), 0);
    int reader = open(target, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    yoke_file_writer writer;
    assert_int_equal(yoke_file_check(target), YOKE_OK);
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_int_equal(yoke_file_reserve(&writer, 4), YOKE_OK);
    assert_int_equal(fcntl(writer.descriptor, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(yoke_file_write(&writer, "text", 4), YOKE_OK);
    assert_int_equal(yoke_file_commit(&writer), YOKE_OK);
    assert_int_equal(read(reader, text, sizeof text), 4);
    assert_string_equal(text, "text");
    close(reader);
}

/* A process that has used up its descriptors, or whose folder was moved. */
static void to_commit_needs_no_new_descriptor(void **state) {
    (void)state;
    struct rlimit before, none;
    yoke_file_writer writer;
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int refused = open("/dev/null", O_RDONLY);
    yoke_status written = yoke_file_write(&writer, "new", 3);
    yoke_status status = yoke_file_commit(&writer);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(refused, -1);
    assert_int_equal(written, YOKE_OK);
    assert_int_equal(status, YOKE_OK);
    assert_content(target, "new");
}

static void where_links_are_refused_the_file_is_copied_to_one_with_a_name(void **state) {
    (void)state;
    struct stat file;
    save(target, "old");
    assert_int_equal(chmod(target, 0640), 0);
    link_refusal = EPERM;
    save(target, "new");
    link_refusal = 0;
    assert_content(target, "new");
    assert_int_equal(stat(target, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0640);
    assert_int_equal(entries(), 1);
}

static void in_a_folder_that_is_gone_nothing_is_copied(void **state) {
    (void)state;
    yoke_file_writer writer;
    assert_int_equal(mkdir(in_folder("gone"), 0700), 0);
    assert_int_equal(yoke_file_create(&writer, in_folder("gone/weights")), YOKE_OK);
    bool was_named = writer.named;
    if (was_named) yoke_file_abort(&writer);
    assert_int_equal(rmdir(in_folder("gone")), 0);
    if (was_named) skip();
    assert_int_equal(yoke_file_commit(&writer), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), strerror(ENOENT)));
}

/* A disk that a reservation fills, if only for a moment, fails other programs. */
static void space_that_is_not_there_is_named_in_bytes_and_not_taken(void **state) {
    (void)state;
    struct statvfs disk;
    yoke_file_writer writer;
    char needed[32];
    assert_int_equal(statvfs(folder, &disk), 0);
    size_t bytes = (size_t)disk.f_blocks * disk.f_frsize + 12345;
    snprintf(needed, sizeof needed, "needs %zu bytes", bytes);
    reservations = 0;
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_int_equal(yoke_file_reserve(&writer, bytes), YOKE_ERROR_IO);
    assert_int_equal(reservations, 0);
    assert_non_null(strstr(yoke_last_error(), needed));
    assert_non_null(strstr(yoke_last_error(), "are free"));
    assert_null(strstr(yoke_last_error(), "and 0 are free"));
    assert_non_null(strstr(yoke_last_error(), strerror(ENOSPC)));
    assert_int_equal(entries(), 0);
    assert_int_equal(yoke_file_create(&writer, target), YOKE_OK);
    assert_int_equal(yoke_file_reserve(&writer, 4096), YOKE_OK);
    assert_int_equal(reservations, 1);
    yoke_file_abort(&writer);
}

/* SIGXFSZ would kill this process. */
static void a_limit_on_files_is_named_before_the_first_byte(void **state) {
    (void)state;
    struct rlimit before, limit;
    yoke_file_writer writer;
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 5000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    yoke_status created = yoke_file_create(&writer, target);
    yoke_status fits = yoke_file_reserve(&writer, 5000);
    yoke_status status = yoke_file_reserve(&writer, 5001);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(created, YOKE_OK);
    assert_int_equal(fits, YOKE_OK);
    assert_int_equal(status, YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "5001"));
    assert_non_null(strstr(yoke_last_error(), "ulimit -f"));
    assert_int_equal(entries(), 0);
}

static void names_as_long_as_they_may_be_are_written(void **state) {
    (void)state;
    char path[512];
    int length = snprintf(path, sizeof path, "%s/", folder);
    memset(path + length, 'n', NAME_MAX);
    path[length + NAME_MAX] = '\0';
    save(path, "new");
    assert_content(path, "new");
    path[length + NAME_MAX] = 'n';
    path[length + NAME_MAX + 1] = '\0';
    yoke_file_writer writer;
    assert_int_equal(yoke_file_create(&writer, path), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), strerror(ENAMETOOLONG)));
    assert_int_equal(yoke_file_check(in_folder("weights/")), YOKE_ERROR_IO);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_file_in_progress_has_no_name_that_a_stranger_could_take),
        IN_FOLDER(a_link_stays_a_link_and_its_file_is_replaced),
        IN_FOLDER(the_file_that_a_dangling_link_names_is_made),
        IN_FOLDER(a_strangers_link_in_a_folder_for_all_is_not_followed),
        IN_FOLDER(a_pipe_or_device_is_no_place_for_a_whole_file),
        IN_FOLDER(a_file_without_a_name_is_refused),
        IN_FOLDER(a_file_in_a_folder_may_be_named_by_its_descriptor),
        IN_FOLDER(a_text_may_go_to_a_pipe_and_a_check_does_not_end_it),
        IN_FOLDER(to_commit_needs_no_new_descriptor),
        IN_FOLDER(space_that_is_not_there_is_named_in_bytes_and_not_taken),
        IN_FOLDER(a_limit_on_files_is_named_before_the_first_byte),
        IN_FOLDER(names_as_long_as_they_may_be_are_written),
        IN_FOLDER(where_links_are_refused_the_file_is_copied_to_one_with_a_name),
        IN_FOLDER(in_a_folder_that_is_gone_nothing_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
