/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one machine meet in a private folder: names that other users can make neither lead a
 * rank astray nor hold it up, and no folder of a dead run remains. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "distributed/store/meeting.h"
#include "store_check.h"

#define NOBODY 65534

static char address[96], prefix[96]; /* prefix: "/tmp/NAME-" */

static void choose_name(const char *run_id) {
    char name[YOKE_MEETING_NAME_BYTES];
    uint64_t hash = (uint64_t)getpid() << 8 | (uint8_t)run_id[0];
    yoke_meeting_name(name, hash);
    snprintf(address, sizeof address, YOKE_MEETING "%s", name);
    snprintf(prefix, sizeof prefix, "/tmp/%s-", name);
}

static yoke_store_options options_of(const char *run_id, bool serve, int timeout_ms) {
    choose_name(run_id);
    return (yoke_store_options){
        .address = address, .run_id = run_id, .serve = serve, .timeout_ms = timeout_ms};
}

static yoke_store *keep_meeting(const char *run_id) {
    return open_store(options_of(run_id, true, PATIENT_MS));
}

static yoke_store *join_meeting(const char *run_id) {
    return open_store(options_of(run_id, false, PATIENT_MS));
}

static const char *folder_of(const yoke_store *store) {
    return store->address + strlen("file://");
}

static void assert_meets(const char *run_id) {
    yoke_store *keeper = keep_meeting(run_id), *other = join_meeting(run_id);
    assert_string_equal(keeper->address, other->address);
    assert_int_equal(yoke_store_set(other, "a", "b", 1), YOKE_OK);
    assert_value(keeper, "a", "b");
    char path[128];
    snprintf(path, sizeof path, "%s", folder_of(keeper));
    yoke_store_destroy(other);
    yoke_store_destroy(keeper);
    assert_int_equal(access(path, F_OK), -1);
}

static void write_file(const char *folder, const char *name, const char *text) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
}

static void ranks_meet_in_a_folder_of_a_random_name(void **state) {
    (void)state;
    char first[128];
    yoke_store *keeper = keep_meeting("run");
    struct stat found;
    snprintf(first, sizeof first, "%s", folder_of(keeper));
    assert_memory_equal(first, prefix, strlen(prefix));
    assert_int_equal(stat(first, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0700);
    yoke_store_destroy(keeper);
    keeper = keep_meeting("run");
    assert_string_not_equal(first, folder_of(keeper));
    yoke_store_destroy(keeper);
    assert_meets("run");
}

/* What every user of the machine can do in /tmp: all that begins as the folder does. */
static const char *const lures[] = {"aaaaaa", "bbbbbb", "cccccc", "dddddd", "eeeeee", "ffffff"};

static void lay_lures(const char *victim) {
    char path[128], record[256], nonce[YOKE_NONCE_TEXT];
    memset(nonce, 'a', sizeof nonce - 1);
    nonce[sizeof nonce - 1] = '\0';
    snprintf(record, sizeof record, "yoke store 2\nnonce %s\nowner here:1\nrun run\n", nonce);
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s%s", prefix, lures[i]);
        if (i < 3) {
            assert_int_equal(mkdir(path, 0700), 0);
            write_file(path, "yoke-run", record);
            write_file(path, "yoke-guard", "");
            write_file(path, "yoke-members", "");
        }
    }
    snprintf(path, sizeof path, "%saaaaaa", prefix); /* of this user, but open to others */
    assert_int_equal(chmod(path, 0777), 0);
    snprintf(path, sizeof path, "%sbbbbbb/yoke-run", prefix);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0666), 0);
    snprintf(path, sizeof path, "%sbbbbbb", prefix);
    assert_int_equal(chmod(path, 0755), 0);
    snprintf(path, sizeof path, "%scccccc", prefix); /* of another user, where root tests */
    assert_int_equal(chmod(path, 0755), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, NOBODY, NOBODY), 0);
        assert_int_equal(chmod(path, 0700), 0);
    }
    snprintf(path, sizeof path, "%sdddddd", prefix);
    assert_int_equal(mkfifo(path, 0666), 0);
    snprintf(path, sizeof path, "%seeeeee", prefix);
    assert_int_equal(symlink(victim, path), 0);
    snprintf(path, sizeof path, "%sffffff", prefix);
    assert_int_equal(symlink("/dev/zero", path), 0);
}

static void remove_lures(void) {
    char path[128], file[160];
    static const char *const files[] = {"yoke-run", "yoke-guard", "yoke-members"};
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s%s", prefix, lures[i]);
        for (int k = 0; i < 3 && k < 3; k++) {
            snprintf(file, sizeof file, "%s/%s", path, files[k]);
            assert_int_equal(unlink(file), 0); /* nobody else removed it */
        }
        assert_int_equal(remove(path), 0);
    }
}

static void names_that_others_made_change_nothing(void **state) {
    (void)state;
    choose_name("run");
    write_file(base, "kept", "mine");
    lay_lures(base);
    yoke_store_options soon = options_of("run", false, SOON_MS);
    uint64_t begin = yoke_now_ns();
    assert_refused(soon, YOKE_ERROR_TIMEOUT, "rank 0 did not come");
    assert_says(prefix + strlen("/tmp/"));
    assert_says("/tmp");
    assert_true(yoke_now_ns() - begin < (uint64_t)PATIENT_MS * 1000000u);
    assert_meets("run");
    assert_int_equal(count_files(base), 1);
    remove_lures();
    char path[80];
    snprintf(path, sizeof path, "%s/kept", base);
    assert_int_equal(unlink(path), 0);
}

static pid_t keep_in_child(const char *run_id, char path[128]) {
    int ready[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    yoke_store_options options = options_of(run_id, true, PATIENT_MS);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        yoke_store *keeper;
        bool made = yoke_store_create(&keeper, &options) == YOKE_OK;
        if (made && write(ready[1], folder_of(keeper), strlen(folder_of(keeper))) > 0) pause();
        _exit(1);
    }
    close(ready[1]);
    ssize_t got = read(ready[0], path, 127);
    assert_true(got > 0);
    path[got] = '\0';
    close(ready[0]);
    return child;
}

static void kill_child(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Another run of this user on this machine may be about to remove it. */
static void await_removal(const char *path) {
    for (int waited_ms = 0; access(path, F_OK) == 0; waited_ms += 10) {
        if (waited_ms > PATIENT_MS) fail_msg("%s remains", path);
        poll(NULL, 0, 10);
    }
}

static void the_next_run_removes_what_dead_runs_left(void **state) {
    (void)state;
    char dead[128], other[128], living[128];
    pid_t children[] = {keep_in_child("run", dead), keep_in_child("other", other),
                        keep_in_child("living", living)};
    kill_child(children[0]);
    kill_child(children[1]);
    assert_meets("run");
    await_removal(dead);
    await_removal(other);
    assert_true(count_files(living) > 0);
    yoke_store *member = join_meeting("living");
    kill_child(children[2]);
    assert_meets("run");
    assert_true(count_files(living) > 0); /* a rank of it runs */
    yoke_store_destroy(member);
    assert_int_equal(access(living, F_OK), -1);
}

/* As in a file system that keeps no owners and modes. */
static bool opens_all;
char *__real_mkdtemp(char *name);
char *__wrap_mkdtemp(char *name);
char *__wrap_mkdtemp(char *name) {
    char *made = __real_mkdtemp(name);
    if (made != NULL && opens_all) chmod(made, 0755);
    return made;
}

static int count_folders(const char *where) {
    DIR *list = opendir(where);
    int count = 0;
    if (list == NULL) return 0;
    for (struct dirent *each; (each = readdir(list)) != NULL;)
        count +=
            strncmp(each->d_name, prefix + strlen("/tmp/"), strlen(prefix + strlen("/tmp/"))) == 0;
    closedir(list);
    return count;
}

static void folders_that_others_could_enter_are_removed(void **state) {
    (void)state;
    opens_all = true;
    assert_refused(options_of("run", true, PATIENT_MS), YOKE_ERROR_IO,
                   "in /tmp (Operation not permitted)");
    opens_all = false;
    assert_int_equal(count_folders("/tmp") + count_folders("/var/tmp") + count_folders("/dev/shm"),
                     0);
}

static void a_second_rank_0_of_a_run_is_refused(void **state) {
    (void)state;
    char pid[32];
    yoke_store *keeper = keep_meeting("run");
    snprintf(pid, sizeof pid, ":%ld already", (long)getpid());
    assert_refused(options_of("run", true, 0), YOKE_ERROR_ARGUMENT, pid);
    yoke_store *member = join_meeting("run");
    assert_string_equal(member->address, keeper->address);
    yoke_store_destroy(member);
    yoke_store_destroy(keeper);
}

static void *destroy(void *store) {
    yoke_store_destroy(store);
    return NULL;
}

/* Ends a run whose rank 1 stays: rank 0 waits for it up to a second. Returns whether this thread
 * saw the folder in that second. */
static bool saw_the_end(void) {
    char folder[128], record[160];
    pthread_t thread;
    yoke_store *keeper = keep_meeting("run"), *member = join_meeting("run");
    snprintf(folder, sizeof folder, "%s", folder_of(keeper));
    snprintf(record, sizeof record, "%s/yoke-run", folder);
    assert_int_equal(pthread_create(&thread, NULL, destroy, keeper), 0);
    while (access(record, F_OK) == 0)
        poll(NULL, 0, 1);
    bool saw = access(folder, F_OK) == 0;
    assert_refused(options_of("run", false, 50), YOKE_ERROR_TIMEOUT, "did not come");
    assert_meets("run");
    yoke_store_destroy(member);
    pthread_join(thread, NULL);
    return saw;
}

static void a_run_that_ends_gets_no_new_ranks(void **state) {
    (void)state;
    bool saw = false;
    for (int i = 0; i < 10 && !saw; i++) /* a busy machine may skip the second */
        saw = saw_the_end();
    assert_true(saw);
}

static void no_descriptor_is_left(void **state) {
    (void)state;
    int before = count_files("/proc/self/fd");
    assert_meets("run");
    assert_refused(options_of("run", false, 20), YOKE_ERROR_TIMEOUT, "did not come");
    assert_int_equal(count_files("/proc/self/fd"), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_in_a_folder_of_a_random_name),
        cmocka_unit_test(names_that_others_made_change_nothing),
        cmocka_unit_test(the_next_run_removes_what_dead_runs_left),
        cmocka_unit_test(folders_that_others_could_enter_are_removed),
        cmocka_unit_test(a_second_rank_0_of_a_run_is_refused),
        cmocka_unit_test(a_run_that_ends_gets_no_new_ranks),
        cmocka_unit_test(no_descriptor_is_left),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
