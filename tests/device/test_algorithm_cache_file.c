/* SPDX-License-Identifier: Apache-2.0 */
/* The file in which measured algorithms outlive a run: the first to measure decides for all, and
 * damage is named by its line. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/backend.h"

#define MACHINE "a machine"
#define PROCESSES 8
#define NOBODY 65534

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

static char folder[] = "/tmp/yoke-algorithms-XXXXXX";
static char path[64], lock_path[80];

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(path, sizeof path, "%s/choices-1.txt", folder);
    snprintf(lock_path, sizeof lock_path, "%s.lock", path);
    return 0;
}

static int clear_folder(void **state) {
    (void)state;
    unlink(path);
    unlink(lock_path);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static yoke_status keep(yoke_algorithms **algorithms, const char *machine, bool cache) {
    EXPECT_OK(yoke_algorithms_create(algorithms));
    return yoke_algorithms_keep(*algorithms, &(yoke_algorithm_cache_place){path, machine, cache});
}

static yoke_algorithms *record_of(const char *machine) {
    yoke_algorithms *algorithms = NULL;
    EXPECT_OK(keep(&algorithms, machine, false));
    return algorithms;
}

static int known_of(yoke_algorithms *algorithms, const char *key) {
    int known = -2;
    EXPECT_OK(yoke_algorithms_find(algorithms, key, NULL, &known));
    return known;
}

/* What a plan does: it uses a known algorithm, or measures one. */
static int choose(yoke_algorithms *algorithms, const char *key, int measured) {
    int known = known_of(algorithms, key);
    if (known >= 0) return known;
    EXPECT_OK(yoke_algorithms_add(algorithms, key, measured, "an algorithm", 0.1 + measured / 3.0));
    return measured;
}

/* One run that needs one algorithm. */
static int run_once(const char *machine, const char *key, int measured) {
    yoke_algorithms *algorithms = record_of(machine);
    int chosen = choose(algorithms, key, measured);
    EXPECT_OK(yoke_algorithms_commit(algorithms));
    assert_null(yoke_algorithms_warning(algorithms));
    yoke_algorithms_destroy(algorithms);
    return chosen;
}

static char *contents(void) {
    unsigned char *data = NULL;
    size_t bytes;
    EXPECT_OK(yoke_file_read(path, 1 << 20, &data, &bytes));
    return (char *)data;
}

static void write_bytes(const void *data, size_t bytes) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

static void write_file(const char *text) {
    write_bytes(text, strlen(text));
}

static void test_a_later_run_takes_the_algorithms_of_the_first(void **state) {
    (void)state;
    assert_int_equal(run_once(MACHINE, "conv forward", 3), 3);
    char *before = contents();
    assert_int_equal(run_once(MACHINE, "conv forward", 5), 3);
    char *after = contents();
    assert_string_equal(before, after);
    free(before);
    free(after);
}

static void test_the_record_lists_what_this_run_uses_with_the_time_once_measured(void **state) {
    (void)state;
    const char *key = NULL, *name = NULL;
    double milliseconds = 0;
    run_once(MACHINE, "conv forward", 3);
    run_once(MACHINE, "conv backward", 4);
    yoke_algorithms *algorithms = record_of(MACHINE);
    assert_false(yoke_algorithms_at(algorithms, 0, &key, &name, &milliseconds));
    choose(algorithms, "conv backward", 7);
    assert_true(yoke_algorithms_at(algorithms, 0, &key, &name, &milliseconds));
    assert_string_equal(key, "conv backward");
    assert_string_equal(name, "an algorithm");
    assert_true(fabs(milliseconds - (0.1 + 4 / 3.0)) < 1e-8);
    assert_false(yoke_algorithms_at(algorithms, 1, &key, &name, &milliseconds));
    yoke_algorithms_destroy(algorithms);
}

static void test_machines_keep_their_own_algorithms_in_one_file(void **state) {
    (void)state;
    assert_int_equal(run_once(MACHINE, "conv", 1), 1);
    assert_int_equal(run_once("another machine", "conv", 2), 2);
    assert_int_equal(run_once(MACHINE, "conv", 9), 1);
    assert_int_equal(run_once("another machine", "conv", 9), 2);
}

static void test_a_run_takes_what_another_wrote_after_it_had_read_the_file(void **state) {
    (void)state;
    yoke_algorithms *early = record_of(MACHINE);
    assert_int_equal(run_once(MACHINE, "conv", 1), 1);
    assert_int_equal(choose(early, "conv", 2), 1);
    EXPECT_OK(yoke_algorithms_commit(early));
    yoke_algorithms_destroy(early);
}

/* Each process would measure another winner. */
static void test_processes_that_start_together_end_with_the_same_algorithms(void **state) {
    (void)state;
    pid_t children[PROCESSES];
    int first = -1;
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] != 0) continue;
        yoke_algorithms *algorithms = record_of(MACHINE);
        int one = known_of(algorithms, "one");
        if (one < 0) usleep(20000); /* measuring takes a while */
        one = choose(algorithms, "one", i);
        int two = choose(algorithms, "two", i);
        EXPECT_OK(yoke_algorithms_commit(algorithms));
        yoke_algorithms_destroy(algorithms);
        _exit(one == two ? one : 100);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        if (first < 0) first = WEXITSTATUS(status);
        assert_int_equal(WEXITSTATUS(status), first);
    }
    assert_in_range(first, 0, PROCESSES - 1);
    assert_int_equal(run_once(MACHINE, "one", 50), first);
}

static void test_a_process_that_dies_while_it_measures_leaves_the_file_free(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        yoke_algorithms *algorithms = record_of(MACHINE);
        choose(algorithms, "conv", 1);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(run_once(MACHINE, "conv", 2), 2);
}

static yoke_status fail_third(void *context) {
    int *calls = context;
    return ++*calls < 3 ? YOKE_OK : FAIL(YOKE_ERROR_PEER, "the others are gone");
}

static void test_the_hook_runs_while_another_process_measures_and_ends_the_wait(void **state) {
    (void)state;
    int calls = 0;
    yoke_algorithms *holder = record_of(MACHINE), *algorithms = record_of(MACHINE);
    choose(holder, "conv", 1);
    yoke_algorithms_watch(algorithms, fail_third, &calls);
    assert_int_equal(known_of(algorithms, "conv"), -1);
    assert_int_equal(calls, 3);
    assert_int_equal(yoke_algorithms_go_on(algorithms), YOKE_ERROR_PEER);
    assert_string_equal(yoke_last_error(), "the others are gone");
    assert_int_equal(calls, 3);
    yoke_algorithms_destroy(algorithms);
    yoke_algorithms_destroy(holder);
}

/* Of eight candidates. */
static const char *only_name(const void *context, int candidate) {
    return candidate < 8 ? context : NULL;
}

static const char *turned_name(const void *context, int candidate) {
    static const char *const names[] = {"direct", "an algorithm", "winograd"};
    return candidate < 3 ? names[(candidate + *(const int *)context) % 3] : NULL;
}

static void test_the_name_finds_an_algorithm_whatever_its_number(void **state) {
    (void)state;
    run_once(MACHINE, "conv forward", 3);
    yoke_algorithms *algorithms = record_of(MACHINE);
    for (int turn = 0; turn < 3; turn++) {
        int known = -2;
        const yoke_algorithm_names names = {.name_of = turned_name, .context = &turn};
        EXPECT_OK(yoke_algorithms_find(algorithms, "conv forward", &names, &known));
        assert_string_equal(turned_name(&turn, known), "an algorithm");
        EXPECT_OK(yoke_algorithms_find(algorithms, "unknown", &names, &known));
        assert_int_equal(known, -1);
    }
    yoke_algorithms_destroy(algorithms);
}

static void test_of_candidates_with_one_name_the_number_decides(void **state) {
    (void)state;
    int known = -2;
    run_once(MACHINE, "conv forward", 3);
    yoke_algorithms *algorithms = record_of(MACHINE);
    const yoke_algorithm_names names = {.name_of = only_name, .context = "an algorithm"};
    EXPECT_OK(yoke_algorithms_find(algorithms, "conv forward", &names, &known));
    assert_int_equal(known, 3);
    yoke_algorithms_destroy(algorithms);
}

static void test_an_algorithm_that_does_not_exist_is_measured_anew_and_named(void **state) {
    (void)state;
    static const char *const others[] = {"an", "winograd", "an algorithm too"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        int known = -2;
        unlink(path);
        run_once("another machine", "conv forward", 6);
        run_once(MACHINE, "conv forward", 3);
        yoke_algorithms *algorithms = record_of(MACHINE);
        const yoke_algorithm_names names = {.name_of = only_name, .context = others[i]};
        EXPECT_OK(yoke_algorithms_find(algorithms, "conv forward", &names, &known));
        assert_int_equal(known, -1);
        EXPECT_OK(yoke_algorithms_add(algorithms, "conv forward", 5, others[i], 1));
        EXPECT_OK(yoke_algorithms_commit(algorithms));
        const char *warning = yoke_algorithms_warning(algorithms);
        assert_non_null(warning);
        assert_non_null(strstr(warning, path));
        assert_non_null(strstr(warning, "'conv forward' was 'an algorithm'"));
        assert_non_null(strstr(warning, "measured anew"));
        yoke_algorithms_destroy(algorithms);
        algorithms = record_of(MACHINE);
        EXPECT_OK(yoke_algorithms_find(algorithms, "conv forward", &names, &known));
        assert_int_equal(known, 5);
        assert_null(yoke_algorithms_warning(algorithms));
        yoke_algorithms_destroy(algorithms);
        assert_int_equal(run_once("another machine", "conv forward", 0), 6);
    }
}

static void test_a_plan_that_follows_neither_measures_nor_forgets(void **state) {
    (void)state;
    int known = -2;
    run_once(MACHINE, "conv forward", 3);
    yoke_algorithms *algorithms = record_of(MACHINE);
    const yoke_algorithm_names names = {only_name, "winograd", .follows = true};
    EXPECT_OK(yoke_algorithms_find(algorithms, "conv forward", &names, &known));
    assert_int_equal(known, YOKE_ALGORITHM_GONE);
    assert_non_null(
        strstr(yoke_algorithms_warning(algorithms), "'conv forward' was 'an algorithm'"));
    assert_int_equal(known_of(algorithms, "conv forward"), 3);
    yoke_algorithms_destroy(algorithms);
}

static void test_an_algorithm_of_rank_0_that_does_not_exist_is_an_error(void **state) {
    (void)state;
    int known = -2;
    char text[] = "4\t0.5\twinograd (yoke)\tconv\n";
    yoke_algorithms *algorithms = NULL;
    EXPECT_OK(yoke_algorithms_create(&algorithms));
    EXPECT_OK(yoke_algorithms_read(algorithms, text));
    const yoke_algorithm_names names = {.name_of = only_name, .context = "direct"};
    assert_int_equal(yoke_algorithms_find(algorithms, "conv", &names, &known), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "rank 0 chose 'winograd (yoke)' for 'conv'"));
    yoke_algorithms_destroy(algorithms);
}

static void test_a_peers_record_without_numbers_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"-1\t0.5\tname\tkey\n", "1x\t0.5\tname\tkey\n",
                                        "1\tsoon\tname\tkey\n", "9999999999\t1\tname\tkey\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        yoke_algorithms *algorithms = NULL;
        char text[64];
        snprintf(text, sizeof text, "%s", texts[i]);
        EXPECT_OK(yoke_algorithms_create(&algorithms));
        assert_int_equal(yoke_algorithms_read(algorithms, text), YOKE_ERROR_PEER);
        yoke_algorithms_destroy(algorithms);
    }
}

static void test_damage_is_named_by_file_and_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"yoke choices 9\n", "line 1"},
        {"yoke", "line 1"},
        {"yoke choices 1\nm\t1\t0.5\tname\tkey\nm\t1\t0.5\tname\tke", "line 3 is cut off"},
        {"yoke choices 1\nm\t1\t0.5\tname\n", "line 2 is not an algorithm"},
        {"yoke choices 1\nm\t-1\t0.5\tname\tkey\n", "line 2 is not an algorithm"},
        {"yoke choices 1\nm\t1\tsoon\tname\tkey\n", "line 2 is not an algorithm"},
        {"yoke choices 1\nm\t1\t0.5\tname\tkey\textra\n", "line 2 is not an algorithm"},
        {"yoke choices 1\n\n", "line 2 is not an algorithm"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_algorithms *algorithms = NULL;
        write_file(cases[i].text);
        assert_int_equal(keep(&algorithms, "m", false), YOKE_ERROR_DATA);
        assert_non_null(strstr(yoke_last_error(), cases[i].words));
        assert_non_null(strstr(yoke_last_error(), path));
        yoke_algorithms_destroy(algorithms);
    }
}

static void test_damage_met_behind_the_lock_fails_the_run_that_meets_it(void **state) {
    (void)state;
    yoke_algorithms *algorithms = record_of(MACHINE);
    write_file("not ours\n");
    choose(algorithms, "conv", 1);
    assert_int_equal(yoke_algorithms_commit(algorithms), YOKE_ERROR_DATA);
    yoke_algorithms_destroy(algorithms);
    char *text = contents();
    assert_string_equal(text, "not ours\n");
    free(text);
}

/* A cache. */

/* One run with the path as its cache. The warning's text; "": there is none. */
static int run_cached(const char *key, int measured, char warning[YOKE_ERROR_TEXT_BYTES]) {
    yoke_algorithms *algorithms = NULL;
    EXPECT_OK(keep(&algorithms, MACHINE, true));
    int chosen = choose(algorithms, key, measured);
    EXPECT_OK(yoke_algorithms_commit(algorithms));
    const char *text = yoke_algorithms_warning(algorithms);
    snprintf(warning, YOKE_ERROR_TEXT_BYTES, "%s", text != NULL ? text : "");
    yoke_algorithms_destroy(algorithms);
    return chosen;
}

static void test_a_broken_cache_is_one_warning_and_then_whole_again(void **state) {
    (void)state;
    static const char pixels[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    static const struct {
        const char *text;
        size_t bytes; /* 0: to the NUL */
        const char *words;
    } cases[] = {
        {"yoke choices 2\nsomething newer\n", 0, "line 1 is not"},
        {"[section]\nkey = value\n", 0, "line 1 is not"},
        {pixels, sizeof pixels, "no text file"},
        {"yoke choices 1\n" MACHINE "\t1\t0.5\tname\tke", 0, "line 2 is cut off"},
        {"yoke choices 1\n" MACHINE "\t1\tsoon\tname\tkey\n", 0, "line 2 is not an algorithm"},
    };
    char warning[YOKE_ERROR_TEXT_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t bytes = cases[i].bytes > 0 ? cases[i].bytes : strlen(cases[i].text);
        write_bytes(cases[i].text, bytes);
        assert_int_equal(run_cached("conv", 4, warning), 4);
        assert_non_null(strstr(warning, path));
        assert_non_null(strstr(warning, cases[i].words));
        assert_non_null(strstr(warning, "writes the file anew"));
        assert_int_equal(run_cached("conv", 5, warning), 4);
        assert_string_equal(warning, "");
    }
}

static void test_a_cache_with_nothing_new_to_write_is_mended_all_the_same(void **state) {
    (void)state;
    char warning[YOKE_ERROR_TEXT_BYTES];
    run_once(MACHINE, "conv", 2);
    char *text = contents();
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs("another machine\t1", file);
    fclose(file);
    assert_int_equal(run_cached("conv", 9, warning), 2);
    assert_non_null(strstr(warning, "line 3 is cut off"));
    char *mended = contents();
    assert_string_equal(mended, text);
    free(mended);
    free(text);
}

static void test_an_algorithm_of_a_cache_that_does_not_fit_is_measured_and_replaced(void **state) {
    (void)state;
    const yoke_algorithm_names names = {.name_of = only_name, .context = "winograd"};
    yoke_algorithms *algorithms = NULL;
    int known = -2;
    run_once(MACHINE, "conv", 3);
    run_once(MACHINE, "linear", 4);
    EXPECT_OK(keep(&algorithms, MACHINE, true));
    EXPECT_OK(yoke_algorithms_find(algorithms, "conv", &names, &known));
    assert_int_equal(known, -1);
    EXPECT_OK(yoke_algorithms_add(algorithms, "conv", 7, "winograd (yoke)", 1));
    EXPECT_OK(yoke_algorithms_commit(algorithms));
    assert_non_null(strstr(yoke_algorithms_warning(algorithms), "'conv' was 'an algorithm'"));
    yoke_algorithms_destroy(algorithms);
    algorithms = record_of(MACHINE);
    EXPECT_OK(yoke_algorithms_find(algorithms, "conv", &names, &known));
    assert_int_equal(known, 7);
    assert_int_equal(known_of(algorithms, "linear"), 4);
    yoke_algorithms_destroy(algorithms);
}

/* Both found the file broken; the one that came first mends it. */
static void test_a_cache_that_another_process_has_mended_is_used(void **state) {
    (void)state;
    char warning[YOKE_ERROR_TEXT_BYTES];
    yoke_algorithms *late = NULL;
    write_file("not ours\n");
    EXPECT_OK(keep(&late, MACHINE, true));
    assert_int_equal(run_cached("conv", 1, warning), 1);
    assert_int_equal(choose(late, "conv", 2), 1);
    EXPECT_OK(yoke_algorithms_commit(late));
    assert_null(yoke_algorithms_warning(late));
    yoke_algorithms_destroy(late);
}

static void test_a_cache_broken_while_a_run_measures_is_mended_with_all_it_uses(void **state) {
    (void)state;
    char warning[YOKE_ERROR_TEXT_BYTES];
    yoke_algorithms *algorithms = NULL;
    run_once(MACHINE, "conv", 1);
    EXPECT_OK(keep(&algorithms, MACHINE, true));
    write_file("not ours\n");
    assert_int_equal(choose(algorithms, "conv", 8), 1);
    assert_int_equal(choose(algorithms, "linear", 2), 2);
    EXPECT_OK(yoke_algorithms_commit(algorithms));
    yoke_algorithms_destroy(algorithms);
    assert_int_equal(run_cached("conv", 9, warning), 1);
    assert_int_equal(run_cached("linear", 9, warning), 2);
    assert_string_equal(warning, "");
}

static void test_a_folder_in_place_of_a_cache_is_a_warning(void **state) {
    (void)state;
    char warning[YOKE_ERROR_TEXT_BYTES];
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(run_cached("conv", 4, warning), 4);
    assert_int_equal(rmdir(path), 0);
    assert_non_null(strstr(warning, path));
    assert_non_null(strstr(warning, "are not kept"));
}

static void test_what_the_time_did_not_suffice_for_is_measured_by_the_next_run(void **state) {
    (void)state;
    yoke_algorithms *algorithms = NULL;
    int known = -2;
    EXPECT_OK(keep(&algorithms, MACHINE, true));
    yoke_algorithms_limit(algorithms, 1e-9);
    assert_false(yoke_algorithms_late(algorithms));
    assert_int_equal(choose(algorithms, "conv", 3), 3);
    assert_true(yoke_algorithms_late(algorithms));
    EXPECT_OK(yoke_algorithms_assume(algorithms, "linear", 0, "direct"));
    const yoke_algorithm_names names = {.name_of = only_name, .context = "direct"};
    EXPECT_OK(yoke_algorithms_find(algorithms, "linear", &names, &known));
    assert_int_equal(known, 0);
    EXPECT_OK(yoke_algorithms_commit(algorithms));
    assert_non_null(strstr(yoke_algorithms_warning(algorithms), "1 passes run unmeasured"));
    yoke_algorithms_destroy(algorithms);
    algorithms = record_of(MACHINE);
    assert_int_equal(known_of(algorithms, "conv"), 3);
    assert_int_equal(known_of(algorithms, "linear"), -1);
    assert_false(yoke_algorithms_late(algorithms));
    yoke_algorithms_destroy(algorithms);
}

/* The other ranks follow rank 0, in what it did not measure, too. */
static void test_ranks_agree_on_what_was_not_measured(void **state) {
    (void)state;
    yoke_algorithms *first = NULL, *other = NULL;
    char *text = NULL;
    EXPECT_OK(yoke_algorithms_create(&first));
    EXPECT_OK(yoke_algorithms_create(&other));
    assert_int_equal(known_of(first, "conv"), -1);
    EXPECT_OK(yoke_algorithms_assume(first, "conv", 4, "winograd"));
    EXPECT_OK(yoke_algorithms_write(first, &text));
    EXPECT_OK(yoke_algorithms_read(other, text));
    assert_int_equal(known_of(other, "conv"), 4);
    free(text);
    yoke_algorithms_destroy(first);
    yoke_algorithms_destroy(other);
}

/* Root may read everything, so root becomes somebody else. */
static void test_a_cache_that_may_not_be_read_is_replaced(void **state) {
    (void)state;
    char warning[YOKE_ERROR_TEXT_BYTES];
    uid_t self = geteuid();
    run_once(MACHINE, "conv", 1);
    assert_int_equal(chmod(path, 0), 0);
    if (self == 0) {
        assert_int_equal(chown(folder, NOBODY, (gid_t)-1), 0);
        assert_int_equal(chown(lock_path, NOBODY, (gid_t)-1), 0);
        assert_int_equal(seteuid(NOBODY), 0);
    }
    assert_int_equal(run_cached("conv", 4, warning), 4);
    assert_non_null(strstr(warning, "Permission denied"));
    assert_int_equal(run_cached("conv", 5, warning), 4);
    assert_int_equal(seteuid(self), 0);
    assert_string_equal(warning, "");
}

static void test_a_folder_that_cannot_be_written_is_a_warning(void **state) {
    (void)state;
    yoke_algorithms *algorithms = NULL;
    EXPECT_OK(yoke_algorithms_create(&algorithms));
    EXPECT_OK(yoke_algorithms_keep(
        algorithms, &(yoke_algorithm_cache_place){"/proc/yoke/choices-1.txt", MACHINE, true}));
    assert_int_equal(choose(algorithms, "conv", 4), 4);
    assert_int_equal(choose(algorithms, "conv", 5), 4);
    EXPECT_OK(yoke_algorithms_commit(algorithms));
    assert_non_null(strstr(yoke_algorithms_warning(algorithms), "/proc/yoke/choices-1.txt.lock"));
    yoke_algorithms_destroy(algorithms);
}

static void test_a_disk_that_is_full_is_a_warning_and_leaves_the_file_as_it_was(void **state) {
    (void)state;
    struct rlimit before, limit; /* on the size of files: writing stops as on a full disk */
    run_once(MACHINE, "conv", 1);
    yoke_algorithms *algorithms = record_of(MACHINE);
    assert_int_equal(choose(algorithms, "linear", 2), 2);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 8;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    yoke_status status = yoke_algorithms_commit(algorithms);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, YOKE_OK);
    assert_non_null(yoke_algorithms_warning(algorithms));
    yoke_algorithms_destroy(algorithms);
    assert_int_equal(run_once(MACHINE, "conv", 9), 1);
    assert_int_equal(run_once(MACHINE, "linear", 3), 3);
}

#define IN_CLEAN_FOLDER(test) cmocka_unit_test_teardown(test, clear_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_CLEAN_FOLDER(test_a_later_run_takes_the_algorithms_of_the_first),
        IN_CLEAN_FOLDER(test_the_record_lists_what_this_run_uses_with_the_time_once_measured),
        IN_CLEAN_FOLDER(test_machines_keep_their_own_algorithms_in_one_file),
        IN_CLEAN_FOLDER(test_a_run_takes_what_another_wrote_after_it_had_read_the_file),
        IN_CLEAN_FOLDER(test_processes_that_start_together_end_with_the_same_algorithms),
        IN_CLEAN_FOLDER(test_a_process_that_dies_while_it_measures_leaves_the_file_free),
        IN_CLEAN_FOLDER(test_the_hook_runs_while_another_process_measures_and_ends_the_wait),
        IN_CLEAN_FOLDER(test_the_name_finds_an_algorithm_whatever_its_number),
        IN_CLEAN_FOLDER(test_of_candidates_with_one_name_the_number_decides),
        IN_CLEAN_FOLDER(test_an_algorithm_that_does_not_exist_is_measured_anew_and_named),
        IN_CLEAN_FOLDER(test_a_plan_that_follows_neither_measures_nor_forgets),
        IN_CLEAN_FOLDER(test_an_algorithm_of_rank_0_that_does_not_exist_is_an_error),
        IN_CLEAN_FOLDER(test_a_peers_record_without_numbers_is_refused),
        IN_CLEAN_FOLDER(test_damage_is_named_by_file_and_line),
        IN_CLEAN_FOLDER(test_damage_met_behind_the_lock_fails_the_run_that_meets_it),
        IN_CLEAN_FOLDER(test_a_broken_cache_is_one_warning_and_then_whole_again),
        IN_CLEAN_FOLDER(test_a_cache_with_nothing_new_to_write_is_mended_all_the_same),
        IN_CLEAN_FOLDER(test_an_algorithm_of_a_cache_that_does_not_fit_is_measured_and_replaced),
        IN_CLEAN_FOLDER(test_a_cache_that_another_process_has_mended_is_used),
        IN_CLEAN_FOLDER(test_a_cache_broken_while_a_run_measures_is_mended_with_all_it_uses),
        IN_CLEAN_FOLDER(test_a_folder_in_place_of_a_cache_is_a_warning),
        IN_CLEAN_FOLDER(test_a_cache_that_may_not_be_read_is_replaced),
        IN_CLEAN_FOLDER(test_what_the_time_did_not_suffice_for_is_measured_by_the_next_run),
        IN_CLEAN_FOLDER(test_ranks_agree_on_what_was_not_measured),
        IN_CLEAN_FOLDER(test_a_folder_that_cannot_be_written_is_a_warning),
        IN_CLEAN_FOLDER(test_a_disk_that_is_full_is_a_warning_and_leaves_the_file_as_it_was),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
