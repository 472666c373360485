/* SPDX-License-Identifier: Apache-2.0 */
/* A confined child opens and tries the exchange; another one, yoke verify, trains with it. */
#include "cli/lesson/lesson_exchange.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/lesson/confined.h"
#include "cli/lesson/exchange_trial.h"
#include "cli/lesson/lesson_results.h"
#include "cli/lesson/lesson_text.h"
#include "cli/verify/own_exchange.h"

#define LIMIT_S 20 /* of a trial, which takes a tenth of a second */
#define PYTHON_LIMIT_S 60
#define TRAINING_LIMIT_S 60
#define RESULT "training.json"
#define RESULT_LIMIT ((size_t)512 << 20)
#define RESULT_BEGIN "{\"model\":" /* as verify_print_json begins */

/* What a child works on. */
typedef struct exchange_work {
    const char *path;
    char result[LAUNCH_FOLDER_BYTES + sizeof RESULT + 1]; /* of the training */
    exchange_trial *trial;
    confined place;
} exchange_work;

/* What ended a child, if it says nothing itself. */
static void name_end(exchange_trial *trial, int state, bool late, unsigned limit_s) {
    if (trial->wrong[0] != '\0') return;
    int number = WIFSIGNALED(state) ? WTERMSIG(state) : 0;
    if (late)
        snprintf(trial->wrong, TRIAL_TEXT, "%.300s: it has no end within %u s", trial->doing,
                 limit_s);
    else if (number != 0)
        snprintf(trial->wrong, TRIAL_TEXT, "%.300s: it crashes: SIG%s, %s", trial->doing,
                 sigabbrev_np(number), strsignal(number));
    else
        snprintf(trial->wrong, TRIAL_TEXT, "%.300s: it ends the process", trial->doing);
}

/* Opening runs the student's program, too. */
static void open_and_try(void *context) {
    exchange_work *work = context;
    own_exchange own;
    snprintf(work->trial->doing, TRIAL_CASE, "while it is compiled or loaded");
    yoke_status status = own_exchange_open(&own, work->path);
    if (status != YOKE_OK) {
        work->trial->refused = cli_fail(status);
        return;
    }
    exchange_trial_run(work->trial, &own.exchange);
}

static int try_exchange(exchange_work *work) {
    unsigned limit_s = own_exchange_is_python(work->path) ? PYTHON_LIMIT_S : LIMIT_S;
    exchange_trial *trial = work->trial;
    int state;
    bool late;
    int code = confined_run(&work->place, limit_s, open_and_try, work, &state, &late);
    if (code >= 0) return code;
    if (trial->refused > 0) return trial->refused;
    if (!trial->done) name_end(trial, state, late, limit_s);
    return -1;
}

static void become_training(void *context) {
    const exchange_work *work = context;
    int result = open(work->result, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (result < 0 || dup2(result, STDOUT_FILENO) < 0) _exit(127);
    execl("/proc/self/exe", "yoke", "verify", "--exchange", work->path, "--devices", "4xcpu",
          "--threads", "1", "--model", "mlp:width=64", "--dataset", "synthetic:1x12x12", "--steps",
          "3", "--quiet", "--json", (char *)NULL);
    _exit(127);
}

/* An exchange that ends the process ends it before there is a result. The result is behind what the
 * exchange may have printed. */
static bool has_result(const exchange_work *work) {
    unsigned char *text;
    size_t bytes;
    if (yoke_file_read(work->result, RESULT_LIMIT, &text, &bytes) != YOKE_OK) return false;
    const char *begin = NULL;
    for (const char *at = (const char *)text; (at = strstr(at, RESULT_BEGIN)) != NULL; at++)
        begin = at;
    json_t *result = begin != NULL ? json_loads(begin, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    bool found = json_is_array(json_object_get(result, "pairs"));
    json_decref(result);
    yoke_free(text);
    return found;
}

/* Every tensor of three steps. */
static int train_with(exchange_work *work) {
    exchange_trial *trial = work->trial;
    int state;
    bool late;
    snprintf(work->result, sizeof work->result, "%s/" RESULT, work->place.folder);
    int code = confined_run(&work->place, TRAINING_LIMIT_S, become_training, work, &state, &late);
    if (code >= 0) return code;
    bool ended = WIFEXITED(state) && !late, result = ended && has_result(work);
    if (result && WEXITSTATUS(state) == 0) return -1;
    trial->done = false;
    snprintf(trial->doing, TRIAL_CASE, "in training");
    if (result && WEXITSTATUS(state) == 1)
        snprintf(trial->wrong, TRIAL_TEXT,
                 "three steps of training end elsewhere: yoke verify --exchange shows where");
    else if (ended && WEXITSTATUS(state) > 1)
        return WEXITSTATUS(state);
    else
        name_end(trial, state, late, TRAINING_LIMIT_S);
    return -1;
}

static void print_grade(const exchange_trial *trial) {
    if (!trial->done) {
        fputs("wrong: ", stdout);
        lesson_print_name(stdout, trial->wrong, 0, 2 * TRIAL_TEXT);
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

/* As text that JSON can hold: an exchange's error may have any bytes. */
static json_t *wrong_json(const exchange_trial *trial) {
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return NULL;
    lesson_print_name(out, trial->wrong, 0, 2 * TRIAL_TEXT);
    json_t *json = fclose(out) == 0 ? json_pack("{s:b, s:s}", "right", 0, "wrong", text) : NULL;
    free(text);
    return json;
}

static json_t *grade_json(const exchange_trial *trial) {
    if (!trial->done) return wrong_json(trial);
    return json_pack("{s:b, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "right", 1, "cases", trial->cases,
                     "sent", trial->sent, "own_ms", trial->own_ms, "ring_ms", trial->ring_ms,
                     "chain_ms", trial->chain_ms, "root_ms", trial->root_ms, "times_the_ring",
                     trial->own_ms / trial->ring_ms);
}

static yoke_status conclude(const exchange_trial *trial, const lesson_flags *flags) {
    yoke_status status = YOKE_OK;
    json_t *grade = grade_json(trial);
    if (grade == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for the grade");
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

static int grade(exchange_work *work, const lesson_flags *flags) {
    int code = confined_begin(&work->place);
    if (code >= 0) return code;
    code = try_exchange(work);
    if (code < 0 && work->trial->done) code = train_with(work);
    confined_end(&work->place);
    if (code >= 0) return code;
    yoke_status status = conclude(work->trial, flags);
    return status != YOKE_OK ? cli_fail(status) : work->trial->done ? 0 : 1;
}

int lesson_exchange(const char *path, const lesson_flags *flags) {
    exchange_work work = {.path = path};
    yoke_status status = YOKE_OK;
    if (flags->results != NULL) status = lesson_results_check(flags->results, flags->name);
    if (status != YOKE_OK) return cli_fail(status);
    exchange_trial *trial =
        mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (trial == MAP_FAILED) return cli_system_error("no memory for a trial");
    work.trial = trial;
    int code = grade(&work, flags);
    munmap(trial, sizeof *trial);
    return code;
}
