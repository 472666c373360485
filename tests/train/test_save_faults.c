/* SPDX-License-Identifier: Apache-2.0 */
/* Weights survive a disk that fails: any call on the files of a run's save fails, once or from then
 * on, in a child process that trains. Either the run is refused before its first step, or its
 * weights of the last step are in a file that the run names. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "support/failing_calls.h"
#include "trainer_check.h"

enum { STEPS_RUN = 2 };

/* What the child tells. */
typedef struct told {
    yoke_status status;
    int steps, calls[CALLS];
    char saved[PATH_MAX], text[1024];
} told;
static told *child; /* shared */

static char elsewhere[128]; /* working directory of the child, on a disk that works */
static uint64_t wanted;     /* hash of the weights after the last step */

static void on_event_telling(const yoke_event *event, void *payload) {
    on_event(event, payload);
    if (event->kind == YOKE_EVENT_STEP) child->steps++;
    if (event->kind == YOKE_EVENT_SAVED)
        snprintf(child->saved, sizeof child->saved, "%s", event->text);
}

static yoke_trainer_options training(log_of_run *run, const char *path) {
    yoke_trainer_options options = small(run);
    options.model = "mlp:width=8";
    options.steps = STEPS_RUN;
    options.evaluate_every = -1;
    options.save = path;
    options.on_event = on_event_telling;
    return options;
}

static _Noreturn void train_in_child(const char *path, const char *place) {
    log_of_run run = {0};
    yoke_trainer_options options = training(&run, path);
    if (chdir(elsewhere) != 0) _exit(1);
    plan.place = place;
    plan.armed = true;
    child->status = train(&run, &options);
    plan.armed = false;
    if (child->status != YOKE_OK)
        snprintf(child->text, sizeof child->text, "%s", yoke_last_error());
    yoke_trainer_destroy(run.trainer);
    _exit(0);
}

/* The pauses between tries. */
WRAPPED(int, nanosleep, const struct timespec *time, struct timespec *left) {
    (void)left;
    return plan.armed && plan.failed ? 0 : REAL(nanosleep)(time, left);
}

/* Loads a file of the child's into a new run that does not train. */
static uint64_t hash_in(const char *saved) {
    char path[2 * PATH_MAX];
    log_of_run run = {0};
    yoke_trainer_options options = training(&run, NULL);
    snprintf(path, sizeof path, "%s%s%s", saved[0] == '.' ? elsewhere : "",
             saved[0] == '.' ? "/" : "", saved);
    options.init = path;
    yoke_status status = yoke_trainer_create(&run.trainer, &options);
    uint64_t hash = status == YOKE_OK ? hash_of(run.trainer) : 0;
    yoke_trainer_destroy(run.trainer);
    return hash;
}

static void empty(const char *path) {
    char command[320];
    snprintf(command, sizeof command, "rm -rf %s && mkdir %s", path, path);
    assert_int_equal(system(command), 0);
}

static void run_with(call_kind kind, const fault *now, int at) {
    char place[128], path[192];
    int status;
    empty(in_folder("place", place));
    empty(in_folder("elsewhere", elsewhere));
    snprintf(path, sizeof path, "%s/w.safetensors", place);
    memset(child, 0, sizeof *child);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        counts = child->calls;
        plan.kind = kind;
        plan.fault = *now;
        plan.at = at;
        train_in_child(path, place);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s at %s %d: the run crashed", now->name, call_names[kind], at);
}

typedef struct tally {
    int faults, refused, in_place, rescued;
} tally;

static void check(tally *sum, call_kind kind, const fault *now, int at) {
    char place[128];
    in_folder("place", place);
    run_with(kind, now, at);
    sum->faults++;
    if (child->steps == 0 && child->status != YOKE_OK) {
        sum->refused++;
        return;
    }
    if (child->steps != STEPS_RUN || child->saved[0] == '\0' || hash_in(child->saved) != wanted)
        fail_msg("%s at %s %d: after %d steps the weights are nowhere: %s", now->name,
                 call_names[kind], at, child->steps, child->text);
    bool rescued = strstr(child->saved, "yoke-rescued-") != NULL;
    bool named = child->status == YOKE_ERROR_IO && strstr(child->text, place) != NULL &&
                 strstr(child->text, child->saved) != NULL;
    if (rescued ? !named : child->status != YOKE_OK)
        fail_msg("%s at %s %d: the weights are in %s, and the run says: %s", now->name,
                 call_names[kind], at, child->saved, child->text);
    sum->rescued += rescued;
    sum->in_place += !rescued;
}

static void a_fault_at_any_call_of_a_save_loses_no_weights(void **state) {
    (void)state;
    static const fault none = {"none", NONE, 0, false};
    static const fault faults[] = {{"ENOSPC", FAIL_CALL, ENOSPC, false},
                                   {"ENOSPC from then on", FAIL_CALL, ENOSPC, true},
                                   {"EIO", FAIL_CALL, EIO, false},
                                   {"EIO from then on", FAIL_CALL, EIO, true},
                                   {"EMFILE", FAIL_CALL, EMFILE, false},
                                   {"EMFILE from then on", FAIL_CALL, EMFILE, true},
                                   {"EDQUOT", FAIL_CALL, EDQUOT, false},
                                   {"EDQUOT from then on", FAIL_CALL, EDQUOT, true},
                                   {"EROFS from then on", FAIL_CALL, EROFS, true},
                                   {"short write", SHORT, 0, false}};
    char path[160];
    int calls[CALLS], sites = 0;
    tally sum = {0};
    run_with(CALL_OPENAT, &none, 0);
    assert_int_equal(child->status, YOKE_OK);
    memcpy(calls, child->calls, sizeof calls);
    snprintf(path, sizeof path, "%s/place/w.safetensors", folder);
    wanted = hash_in(path);
    assert_int_not_equal(wanted, 0);
    for (call_kind kind = 0; kind < CALLS; kind++) {
        sites += calls[kind];
        for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++)
            for (int at = 0; at < calls[kind]; at++)
                if (faults[f].kind != SHORT || kind == CALL_WRITE)
                    check(&sum, kind, &faults[f], at);
    }
    assert_true(sum.rescued > 0 && sum.in_place > 0 && sum.refused > 0);
    print_message("%d of %d faults at %d calls: the weights are in place %d times, elsewhere %d, "
                  "and %d runs were refused before their first step\n",
                  sum.in_place + sum.rescued + sum.refused, sum.faults, sites, sum.in_place,
                  sum.rescued, sum.refused);
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    assert_int_equal(system(command), 0);
}

static int share_memory(void **state) {
    child = mmap(NULL, sizeof *child, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return child == MAP_FAILED ? -1 : make_folder(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_at_any_call_of_a_save_loses_no_weights),
    };
    return cmocka_run_group_tests(tests, share_memory, remove_folder);
}
