/* A save that fails at any call: a kill, a full disk, a bad disk or a short write at every open,
 * write, fsync, close, rename and unlink leaves a checkpoint that verifies. Wrapped calls
 * (-Wl,--wrap) fail in a child process, which may die of them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/engine_check.h"
#include "train/checkpoint_folder.h"

typedef enum call_kind { OPEN, WRITE, FSYNC, CLOSE, RENAME, UNLINK, CALLS } call_kind;
static const char *const call_names[CALLS] = {"open",  "write",  "fsync",
                                              "close", "rename", "unlink"};

typedef enum fault { NONE, KILL_BEFORE, KILL_AFTER, KILL_HALFWAY, NO_SPACE, BAD_DISK, SHORT } fault;
static const char *const fault_names[] = {"none",   "kill before", "kill after", "kill halfway",
                                          "ENOSPC", "EIO",         "short write"};

/* The fault at call number `at` of a kind. Counts are shared with the parent. */
static struct {
    bool armed;
    call_kind kind;
    fault fault;
    int at;
} plan;
static int *counts; /* [CALLS] */

static fault fault_of(call_kind kind) {
    if (!plan.armed) return NONE;
    int number = counts[kind]++;
    return kind == plan.kind && number == plan.at ? plan.fault : NONE;
}

/* True when the call must fail. */
static bool fails(fault now) {
    if (now == KILL_BEFORE) raise(SIGKILL);
    if (now == NO_SPACE) errno = ENOSPC;
    if (now == BAD_DISK) errno = EIO;
    return now == NO_SPACE || now == BAD_DISK;
}

static int after(fault now, int result) {
    if (now == KILL_AFTER || now == KILL_HALFWAY) raise(SIGKILL);
    return result;
}

#define WRAP(name) __wrap_##name
#define REAL(name) __real_##name
int REAL(open)(const char *path, int flags, ...);
int WRAP(open)(const char *path, int flags, ...);
int REAL(fsync)(int descriptor);
int WRAP(fsync)(int descriptor);
int REAL(close)(int descriptor);
int WRAP(close)(int descriptor);
int REAL(rename)(const char *from, const char *to);
int WRAP(rename)(const char *from, const char *to);
int REAL(unlink)(const char *path);
int WRAP(unlink)(const char *path);
ssize_t REAL(write)(int descriptor, const void *data, size_t bytes);
ssize_t WRAP(write)(int descriptor, const void *data, size_t bytes);

int WRAP(open)(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    fault now = fault_of(OPEN);
    return fails(now) ? -1 : after(now, REAL(open)(path, flags, mode));
}

int WRAP(fsync)(int descriptor) {
    fault now = fault_of(FSYNC);
    return fails(now) ? -1 : after(now, REAL(fsync)(descriptor));
}

/* A close that fails has closed. */
int WRAP(close)(int descriptor) {
    fault now = fault_of(CLOSE);
    bool failed = fails(now);
    int cause = errno, closed = after(now, REAL(close)(descriptor));
    errno = cause;
    return failed ? -1 : closed;
}

int WRAP(rename)(const char *from, const char *to) {
    fault now = fault_of(RENAME);
    return fails(now) ? -1 : after(now, REAL(rename)(from, to));
}

int WRAP(unlink)(const char *path) {
    fault now = fault_of(UNLINK);
    return fails(now) ? -1 : after(now, REAL(unlink)(path));
}

/* Part of a write may reach the file before the rest fails. */
ssize_t WRAP(write)(int descriptor, const void *data, size_t bytes) {
    fault now = fault_of(WRITE);
    bool part = now == SHORT || now == KILL_HALFWAY;
    if (fails(now)) {
        int cause = errno;
        (void)!REAL(write)(descriptor, data, bytes / 2);
        errno = cause;
        return -1;
    }
    ssize_t written = REAL(write)(descriptor, data, part && bytes > 1 ? bytes / 2 : bytes);
    (void)after(now, 0);
    return written;
}

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
    TRY(yoke_checkpoint_write(state_of_run, &facts, path));
    yoke_folder_prune(folder, step, 1);
    return YOKE_OK;
}

typedef struct ending {
    bool killed;
    yoke_status status;
} ending;

static ending save_in_child(call_kind kind, fault now, int at) {
    int status;
    empty_folder();
    EXPECT_OK(save(1));
    memset(counts, 0, CALLS * sizeof *counts);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        plan.kind = kind;
        plan.fault = now;
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

static void check(call_kind kind, fault now, int at) {
    ending end = save_in_child(kind, now, at);
    uint64_t step = newest();
    /* Old files that stay, and a folder that was synced but not closed, do no harm. */
    bool must_succeed = now == SHORT || kind == UNLINK || (kind == CLOSE && at > 0);
    if ((now == KILL_BEFORE || now == KILL_AFTER || now == KILL_HALFWAY) != end.killed)
        fail_msg("%s at %s %d: the process was not killed", fault_names[now], call_names[kind], at);
    if (step != 1 && step != 2) fail_msg("step %llu", (unsigned long long)step);
    if (!end.killed && (end.status == YOKE_OK) && step != 2)
        fail_msg("%s at %s %d: the save succeeded, but is not there", fault_names[now],
                 call_names[kind], at);
    if (!end.killed && (end.status == YOKE_OK) != must_succeed)
        fail_msg("%s at %s %d: %s", fault_names[now], call_names[kind], at,
                 yoke_status_name(end.status));
    /* The next run cleans up and saves. */
    yoke_folder again;
    EXPECT_OK(yoke_folder_open(&again, folder));
    EXPECT_OK(save(3));
    yoke_folder_close(&again);
    assert_int_equal(newest(), 3);
}

static void a_fault_at_any_call_leaves_a_checkpoint_that_verifies(void **state) {
    (void)state;
    static const fault faults[] = {KILL_BEFORE, KILL_AFTER, KILL_HALFWAY,
                                   NO_SPACE,    BAD_DISK,   SHORT};
    int calls[CALLS], checked = 0, sites = 0;
    take_state();
    ending whole = save_in_child(OPEN, NONE, 0);
    assert_int_equal(whole.status, YOKE_OK);
    assert_int_equal(newest(), 2);
    memcpy(calls, counts, sizeof calls);
    for (int kind = 0; kind < CALLS; kind++) {
        assert_true(calls[kind] > 0);
        sites += calls[kind];
        for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++)
            for (int at = 0; at < calls[kind]; at++) {
                bool partial = faults[f] == SHORT || faults[f] == KILL_HALFWAY;
                if (partial && kind != WRITE) continue;
                check((call_kind)kind, faults[f], at);
                checked++;
            }
    }
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
