/* SPDX-License-Identifier: Apache-2.0 */
/* A child tries the exchange, because it may crash, and this process waits for it for so long; then
 * yoke verify trains with it. */
#include "cli/lesson/lesson_exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/lesson/exchange_trial.h"
#include "cli/lesson/lesson_results.h"
#include "cli/lesson/lesson_text.h"
#include "cli/verify/own_exchange.h"

#define LIMIT_S 20 /* of a trial, which takes a tenth of a second */
#define PYTHON_LIMIT_S 60
#define TRAINING_LIMIT_S 60

/* Dies with this process; SIGALRM ends it after its time. */
static void become_child(pid_t parent, unsigned seconds) {
    struct rlimit no_core = {0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    if (getppid() != parent) _exit(127);
    signal(SIGALRM, SIG_DFL);
    alarm(seconds);
}

static int await(pid_t pid) {
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        continue;
    return state;
}

/* What ended the trial, if it says nothing itself. */
static void name_end(exchange_trial *trial, int state, unsigned limit_s) {
    if (trial->done || trial->wrong[0] != '\0') return;
    int number = WIFSIGNALED(state) ? WTERMSIG(state) : 0;
    if (number == SIGALRM)
        snprintf(trial->wrong, TRIAL_TEXT, "%.300s: it has no end within %u s", trial->doing,
                 limit_s);
    else if (number != 0)
        snprintf(trial->wrong, TRIAL_TEXT, "%.300s: it crashes: SIG%s, %s", trial->doing,
                 sigabbrev_np(number), strsignal(number));
    else
        snprintf(trial->wrong, TRIAL_TEXT, "%.300s: it ends the process", trial->doing);
}

static int try_exchange(exchange_trial *trial, const yoke_custom_exchange *exchange) {
    unsigned limit_s = exchange->payload != NULL ? PYTHON_LIMIT_S : LIMIT_S; /* own_python */
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) return cli_system_error("cannot start a process");
    if (pid == 0) {
        become_child(parent, limit_s);
        exchange_trial_run(trial, exchange);
        _exit(0);
    }
    name_end(trial, await(pid), limit_s);
    return -1;
}

/* Every tensor of three steps. */
static int train_with(exchange_trial *trial, const char *path) {
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) return cli_system_error("cannot start a process");
    if (pid == 0) {
        int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
        become_child(parent, TRAINING_LIMIT_S);
        dup2(nothing, STDOUT_FILENO);
        execl("/proc/self/exe", "yoke", "verify", "--exchange", path, "--devices", "4xcpu",
              "--threads", "1", "--model", "mlp:width=64", "--dataset", "synthetic:1x12x12",
              "--steps", "3", "--quiet", "--json", (char *)NULL);
        _exit(127);
    }
    int state = await(pid);
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return -1;
    trial->done = false;
    if (WIFEXITED(state) && WEXITSTATUS(state) == 1)
        snprintf(trial->wrong, TRIAL_TEXT,
                 "three steps of training end elsewhere: yoke verify --exchange shows where");
    else if (WIFEXITED(state))
        return WEXITSTATUS(state);
    else
        snprintf(trial->wrong, TRIAL_TEXT, "in training: it ends with SIG%s",
                 sigabbrev_np(WTERMSIG(state)));
    return -1;
}

static void print_grade(const exchange_trial *trial) {
    if (!trial->done) {
        fputs("wrong: ", stdout);
        lesson_print_name(stdout, trial->wrong, 0);
        fputc('\n', stdout);
        return;
    }
    printf("sums      right on 2 to 5 devices, in %d cases\n", trial->cases);
    printf(
        "training  right: every tensor of 3 steps, as with the built-in exchange and the float64 "
        "reference\n");
    printf("sent      %.2f times the least\n", trial->sent);
    printf("time      %.3f ms of modelled links (%s) for %zu elements on %d devices\n",
           trial->own_ms, TRIAL_LINK, TRIAL_COUNT, TRIAL_DEVICES);
    printf("          ring %.3f, chain %.3f, by the root %.3f ms\n", trial->ring_ms,
           trial->chain_ms, trial->root_ms);
    printf("right, %.2f times the time of the ring\n", trial->own_ms / trial->ring_ms);
}

static json_t *grade_json(const exchange_trial *trial) {
    if (!trial->done) return json_pack("{s:b, s:s}", "right", 0, "wrong", trial->wrong);
    return json_pack("{s:b, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "right", 1, "cases", trial->cases,
                     "sent", trial->sent, "own_ms", trial->own_ms, "ring_ms", trial->ring_ms,
                     "chain_ms", trial->chain_ms, "root_ms", trial->root_ms, "times_the_ring",
                     trial->own_ms / trial->ring_ms);
}

static yoke_status conclude(const exchange_trial *trial, const lesson_flags *flags) {
    yoke_status status = YOKE_OK;
    json_t *grade = grade_json(trial);
    if (grade == NULL) return cli_refuse(YOKE_ERROR_DATA, "no JSON of this grade");
    if (flags->results != NULL) {
        json_t *entry = lesson_exchange_json(trial->done, trial->own_ms / trial->ring_ms);
        status = entry != NULL ? lesson_results_add(flags->results, flags->name, entry)
                               : cli_refuse(YOKE_ERROR_MEMORY, "no memory for the result");
        json_decref(entry);
    }
    char *text = json_dumps(grade, JSON_COMPACT | JSON_REAL_PRECISION(10));
    if (flags->json && text != NULL && status == YOKE_OK) printf("%s\n", text);
    if (!flags->json && status == YOKE_OK) print_grade(trial);
    free(text);
    json_decref(grade);
    return status;
}

static int grade(const char *path, const yoke_custom_exchange *exchange,
                 const lesson_flags *flags) {
    exchange_trial *trial =
        mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (trial == MAP_FAILED) return cli_system_error("no memory for a trial");
    int code = try_exchange(trial, exchange);
    if (code < 0 && trial->done) code = train_with(trial, path);
    if (code < 0) {
        yoke_status status = conclude(trial, flags);
        code = status != YOKE_OK ? cli_fail(status) : trial->done ? 0 : 1;
    }
    munmap(trial, sizeof *trial);
    return code;
}

int lesson_exchange(const char *path, const lesson_flags *flags) {
    own_exchange own;
    yoke_status status = YOKE_OK;
    if (flags->results != NULL) status = lesson_results_check(flags->results, flags->name);
    if (status == YOKE_OK) status = own_exchange_open(&own, path);
    if (status != YOKE_OK) return cli_fail(status);
    int code = grade(path, &own.exchange, flags);
    own_exchange_close(&own);
    return code;
}
