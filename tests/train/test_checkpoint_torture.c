/* SPDX-License-Identifier: Apache-2.0 */
/* A save that fails at any call: a kill, a full disk, a bad disk or a short write at every call on
 * its files leaves a checkpoint that verifies. The calls fail in a child process, which may die of
 * them. */
#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/engine_check.h"
#include "support/failing_calls.h"
#include "support/file_place.h"
#include "train/checkpoint_folder.h"

/* A folder with one checkpoint. */

static char folder[] = "/tmp/yoke-torture-XXXXXX";
static yoke_state *state_of_run;
static yoke_model *model; /* has the names of the state */

static int make_folder(void **state) {
    (void)state;
    counts = mmap(NULL, CALLS * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    return mkdtemp(folder) == NULL || counts == MAP_FAILED;
}

static void empty_folder(void) {
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;)
        unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory != NULL) closedir(directory);
}

static int remove_folder(void **state) {
    (void)state;
    empty_folder();
    return rmdir(folder);
}

static void take_state(void) {
    model = check_model(true, 0);
    yoke_data_parallel_options options = {.batch = 4, .algorithm = YOKE_ALGORITHM_DIRECT};
    check_engine engine = check_engine_make(model, 1, options, NULL);
    EXPECT_OK(yoke_state_create(&state_of_run, engine.parallel, false));
    EXPECT_OK(yoke_state_take(state_of_run, engine.parallel));
    check_engine_free(&engine);
}

/* What the writer's thread does. */
static yoke_status save(uint64_t step) {
    char path[PATH_MAX];
    yoke_facts facts = {0};
    yoke_folder_path(path, folder, step);
    yoke_facts_add(&facts, "step", "%d", (int)step);
    TRY(yoke_checkpoint_write(state_of_run, &facts, TO(path)));
    yoke_folder_prune(folder, step, 1);
    return YOKE_OK;
}

typedef struct ending {
    bool killed;
    yoke_status status;
} ending;

static ending save_in_child(call_kind kind, const fault *now, int at) {
    int status;
    empty_folder();
    EXPECT_OK(save(1));
    memset(counts, 0, CALLS * sizeof *counts);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        plan.place = folder;
        plan.kind = kind;
        plan.fault = *now;
        plan.at = at;
        plan.armed = true;
        _exit((int)save(2));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    assert_true(killed || WIFEXITED(status));
    return (ending){.killed = killed,
                    .status = killed ? YOKE_OK : (yoke_status)WEXITSTATUS(status)};
}

static void reject(void *payload, const char *text) {
    (void)payload;
    fail_msg("%s", text);
}

/* Every file with a checkpoint's name is whole; a save that succeeded is there. */
static uint64_t newest(void) {
    yoke_checkpoint *checkpoint;
    EXPECT_OK(yoke_folder_open_newest(&checkpoint, folder, reject, NULL));
    uint64_t step = 0;
    EXPECT_OK(yoke_checkpoint_number(checkpoint, "step", YOKE_STEPS_LIMIT, &step));
    yoke_checkpoint_close(checkpoint);
    return step;
}

/* Old files that stay, a close of a file that is on the disk, a file that cannot be without a name,
 * and a disk that cannot reserve do no harm. */
static bool is_harmless(call_kind kind, const fault *now, int at) {
    return now->kind == SHORT || kind == CALL_UNLINK || kind == CALL_CLOSE ||
           (kind == CALL_OPENAT && at == 1) || (kind == CALL_FALLOCATE && now->cause == EIO);
}

static void check(call_kind kind, const fault *now, int at) {
    ending end = save_in_child(kind, now, at);
    uint64_t step = newest();
    bool kills = now->kind == KILL_BEFORE || now->kind == KILL_AFTER || now->kind == KILL_HALFWAY;
    if (kills != end.killed)
        fail_msg("%s at %s %d: the process was not killed", now->name, call_names[kind], at);
    if (step != 1 && step != 2) fail_msg("step %llu", (unsigned long long)step);
    if (!end.killed && (end.status == YOKE_OK) && step != 2)
        fail_msg("%s at %s %d: the save succeeded, but is not there", now->name, call_names[kind],
                 at);
    if (!end.killed && (end.status == YOKE_OK) != is_harmless(kind, now, at))
        fail_msg("%s at %s %d: %s", now->name, call_names[kind], at, yoke_status_name(end.status));
    /* The next run cleans up and saves. */
    yoke_folder again;
    EXPECT_OK(yoke_folder_open(&again, folder));
    EXPECT_OK(save(3));
    yoke_folder_close(&again);
    assert_int_equal(newest(), 3);
}

static void a_fault_at_any_call_leaves_a_checkpoint_that_verifies(void **state) {
    (void)state;
    static const fault none = {"none", NONE, 0, false};
    static const fault faults[] = {
        {"kill before", KILL_BEFORE, 0, false},   {"kill after", KILL_AFTER, 0, false},
        {"kill halfway", KILL_HALFWAY, 0, false}, {"ENOSPC", FAIL_CALL, ENOSPC, false},
        {"EIO", FAIL_CALL, EIO, false},           {"short write", SHORT, 0, false}};
    int calls[CALLS], checked = 0, sites = 0;
    take_state();
    ending whole = save_in_child(CALL_OPENAT, &none, 0);
    assert_int_equal(whole.status, YOKE_OK);
    assert_int_equal(newest(), 2);
    memcpy(calls, counts, sizeof calls);
    for (int kind = 0; kind < CALLS; kind++) {
        sites += calls[kind];
        for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++)
            for (int at = 0; at < calls[kind]; at++) {
                bool partial = faults[f].kind == SHORT || faults[f].kind == KILL_HALFWAY;
                if (partial && kind != CALL_WRITE) continue;
                check((call_kind)kind, &faults[f], at);
                checked++;
            }
    }
    for (call_kind kind = CALL_OPENAT; kind <= CALL_UNLINK; kind++)
        assert_true(calls[kind] > 0);
    yoke_state_destroy(state_of_run);
    yoke_model_destroy(model);
    print_message("%d faults at %d calls of a save: a valid checkpoint remained %d times\n",
                  checked, sites, checked);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_at_any_call_leaves_a_checkpoint_that_verifies),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
