/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch as a way to train: processes of a Python interpreter, one for each rank, that sleep
 * between requests. torch_worker.py is the other end, and says what the lines mean. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/compare/compare_torch_work.h"
#include "cli/compare/rounds.h"

#define GRACE_MS 500 /* after a failure, for other ranks: one of them has the cause */
#define LINE_BYTES 1024
#define TAIL_BYTES 300 /* of what a rank printed last */

typedef enum rank_state { RANK_IDLE, RANK_ASKED, RANK_FAILED, RANK_GONE, RANK_REFUSED } rank_state;

typedef struct torch_rank {
    compare_child child;
    rank_state state;
    char line[LINE_BYTES]; /* the answer, behind its first word once it is complete */
    size_t length;
} torch_rank;

typedef struct compare_torch {
    const compare_meeting *meeting;
    const char *name;
    const char *interpreter;
    compare_torch_work work;
    compare_facts facts;
    double deadline; /* seconds */
    int world;
    struct pollfd *watched; /* [world] */
    torch_rank ranks[];
} compare_torch;

/* Processes. */

#define MORE_VARIABLES 6

static void add_variable(const char **variables, int *count, const char *text, bool overrides) {
    size_t name = strcspn(text, "=") + 1;
    for (int i = 0; i < *count; i++) {
        if (strncmp(variables[i], text, name) != 0) continue;
        if (overrides) variables[i] = text;
        return;
    }
    variables[(*count)++] = text;
}

/* This process's, with idle threads that sleep, and gloo on the loopback interface, unless the user
 * wants them otherwise. The caller frees it; it borrows the texts. */
static const char **make_environment(const char *threads) {
    int count = 0;
    while (environ[count] != NULL)
        count++;
    const char **variables = calloc((size_t)count + MORE_VARIABLES, sizeof *variables);
    if (variables == NULL) return NULL;
    memcpy(variables, environ, (size_t)count * sizeof *variables);
    add_variable(variables, &count, "OMP_WAIT_POLICY=passive", false);
    add_variable(variables, &count, "KMP_BLOCKTIME=0", false);
    add_variable(variables, &count, "GLOO_SOCKET_IFNAME=lo", false);
    add_variable(variables, &count, "PYTHONDONTWRITEBYTECODE=1", true);
    if (threads != NULL) add_variable(variables, &count, threads, true);
    return variables;
}

static void name_output(char path[COMPARE_TORCH_PATH], const compare_torch *torch, int rank) {
    char name[24];
    snprintf(name, sizeof name, "output-%d", rank);
    compare_torch_path(path, torch->work.folder, name);
}

static yoke_status start_one(compare_torch *torch, int index, const char *const *variables) {
    char script[COMPARE_TORCH_PATH], output[COMPARE_TORCH_PATH], number[16];
    compare_torch_path(script, torch->work.folder, COMPARE_TORCH_PROGRAM);
    name_output(output, torch, index);
    snprintf(number, sizeof number, "%d", index);
    const char *words[] = {torch->interpreter, script, torch->work.folder, number, NULL};
    const compare_command command = {.program = torch->interpreter,
                                     .words = words,
                                     .variables = variables,
                                     .output_path = output,
                                     .socket_type = SOCK_STREAM};
    torch->ranks[index].state = RANK_ASKED; /* its first line comes by itself */
    return compare_child_start(&torch->ranks[index].child, torch->meeting, &command);
}

/* Failures. */

/* The last lines that the rank printed, as one line. */
static void read_tail(const compare_torch *torch, int rank, char text[TAIL_BYTES]) {
    char path[COMPARE_TORCH_PATH];
    name_output(path, torch, rank);
    text[0] = '\0';
    FILE *file = fopen(path, "r");
    if (file == NULL) return;
    bool cut = fseek(file, -(TAIL_BYTES - 1), SEEK_END) == 0;
    if (!cut) rewind(file);
    size_t length = fread(text, 1, TAIL_BYTES - 1, file);
    fclose(file);
    const char *whole = cut ? memchr(text, '\n', length) : NULL; /* its lines are whole */
    if (whole != NULL) length -= (size_t)(++whole - text);
    if (whole != NULL) memmove(text, whole, length);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    text[length] = '\0';
    for (size_t i = 0; i < length; i++)
        if (iscntrl((unsigned char)text[i])) text[i] = text[i] == '\n' ? '|' : ' ';
}

static yoke_status refuse_gone(const compare_torch *torch, int index) {
    const torch_rank *one = &torch->ranks[index];
    char end[COMPARE_END_BYTES], tail[TAIL_BYTES];
    if (compare_child_is_no_program(&one->child))
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "--with-torch: cannot run '%s'; name an interpreter of Python that has "
                          "torch: --with-torch PATH",
                          torch->interpreter);
    compare_child_describe_end(&one->child, end);
    read_tail(torch, index, tail);
    return cli_refuse(YOKE_ERROR_PEER, "%s: rank %d of %d (process %d) %s%s%s", torch->name, index,
                      torch->world, (int)one->child.pid, end,
                      tail[0] != '\0' ? "; it printed last: " : " and printed nothing", tail);
}

/* One failure makes other ranks fail: one that is gone, or refuses, has the cause. */
static yoke_status report_failure(const compare_torch *torch) {
    int worst = 0;
    for (int i = 1; i < torch->world; i++)
        if (torch->ranks[i].state > torch->ranks[worst].state) worst = i;
    const torch_rank *one = &torch->ranks[worst];
    if (one->state == RANK_GONE) return refuse_gone(torch, worst);
    if (one->state == RANK_REFUSED)
        return cli_refuse(YOKE_ERROR_ARGUMENT, "--with-torch: %s", one->line);
    if (one->state == RANK_FAILED)
        return cli_refuse(YOKE_ERROR_PEER, "%s: rank %d of %d: %s", torch->name, worst,
                          torch->world, one->line);
    return YOKE_OK;
}

static yoke_status refuse_nonsense(const compare_torch *torch, int index) {
    return cli_refuse(YOKE_ERROR_PEER, "%s: rank %d of %d answers '%.80s', which means nothing",
                      torch->name, index, torch->world, torch->ranks[index].line);
}

static yoke_status refuse_late(const compare_torch *torch) {
    int late = 0;
    while (torch->ranks[late].state != RANK_ASKED)
        late++;
    return cli_refuse(YOKE_ERROR_TIMEOUT,
                      "%s: rank %d of %d (process %d) has not answered for %g s; allow it more "
                      "with --torch-deadline",
                      torch->name, late, torch->world, (int)torch->ranks[late].child.pid,
                      torch->deadline);
}

/* Requests. */

/* Takes the first word of an answer away. */
static rank_state read_answer(torch_rank *one) {
    static const struct {
        const char *word;
        rank_state state;
    } words[] = {{"ok", RANK_IDLE}, {"failed", RANK_FAILED}, {"refused", RANK_REFUSED}};
    size_t length = strcspn(one->line, " ");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) != length || strncmp(one->line, words[i].word, length) != 0)
            continue;
        const char *rest = one->line + length + strspn(one->line + length, " ");
        memmove(one->line, rest, strlen(rest) + 1);
        return words[i].state;
    }
    return RANK_IDLE; /* who reads it as a number says what is wrong */
}

/* What has come of an answer; a line that is too long is cut. */
static void receive(torch_rank *one) {
    char bytes[LINE_BYTES];
    ssize_t got = recv(one->child.socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
        one->state = RANK_GONE;
        return;
    }
    for (ssize_t i = 0; i < got && one->state == RANK_ASKED; i++) {
        bool ends = bytes[i] == '\n';
        if (!ends && one->length < LINE_BYTES - 1) one->line[one->length++] = bytes[i];
        one->line[one->length] = '\0';
        if (ends) one->state = read_answer(one);
    }
}

static int count_asked(const compare_torch *torch, bool *failed) {
    int asked = 0;
    for (int i = 0; i < torch->world; i++) {
        asked += torch->ranks[i].state == RANK_ASKED;
        *failed = *failed || torch->ranks[i].state > RANK_ASKED;
    }
    return asked;
}

static void watch(compare_torch *torch, int wait_ms) {
    for (int i = 0; i < torch->world; i++) {
        bool asked = torch->ranks[i].state == RANK_ASKED;
        torch->watched[i] =
            (struct pollfd){.fd = asked ? torch->ranks[i].child.socket : -1, .events = POLLIN};
    }
    if (poll(torch->watched, (nfds_t)torch->world, wait_ms) < 0) return;
    for (int i = 0; i < torch->world; i++)
        if (torch->watched[i].revents != 0) receive(&torch->ranks[i]);
}

static yoke_status receive_answers(compare_torch *torch) {
    double end = race_clock() + torch->deadline;
    bool failed = false, hurries = false;
    while (count_asked(torch, &failed) > 0) {
        if (failed && !hurries) end = fmin(end, race_clock() + GRACE_MS * 1e-3);
        hurries = failed;
        double left_ms = (end - race_clock()) * 1e3;
        if (left_ms <= 0) return failed ? report_failure(torch) : refuse_late(torch);
        watch(torch, (int)fmin(left_ms + 1, 1e6));
    }
    return report_failure(torch);
}

static yoke_status ask(compare_torch *torch, const char *request) {
    size_t length = strlen(request);
    for (int i = 0; i < torch->world; i++) {
        torch_rank *one = &torch->ranks[i];
        ssize_t sent = send(one->child.socket, request, length, MSG_NOSIGNAL);
        one->length = 0;
        one->line[0] = '\0';
        one->state = sent == (ssize_t)length ? RANK_ASKED : RANK_GONE;
    }
    return receive_answers(torch);
}

/* The number that is a rank's whole answer. */
static yoke_status read_number(const compare_torch *torch, int index, double *number) {
    char *end;
    const char *line = torch->ranks[index].line;
    *number = strtod(line, &end);
    return end != line && *end == '\0' ? YOKE_OK : refuse_nonsense(torch, index);
}

/* Life. */

static void clear(void *inside) {
    compare_torch *torch = inside;
    char path[COMPARE_TORCH_PATH];
    if (torch == NULL) return;
    for (int i = 0; i < torch->world; i++) {
        compare_child_reap(&torch->ranks[i].child, torch->meeting);
        name_output(path, torch, i);
        unlink(path);
    }
    compare_torch_work_close(&torch->work);
    free(torch->watched);
    free(torch);
}

static yoke_status start_all(compare_torch *torch, const compare_setup *setup) {
    char threads[32];
    snprintf(threads, sizeof threads, "OMP_NUM_THREADS=%d", setup->threads);
    const char **variables = make_environment(setup->threads > 0 ? threads : NULL);
    yoke_status status =
        variables != NULL ? YOKE_OK : cli_refuse(YOKE_ERROR_MEMORY, "no memory for variables");
    for (int i = 0; i < torch->world && status == YOKE_OK; i++)
        status = start_one(torch, i, variables);
    free(variables);
    return status == YOKE_OK ? receive_answers(torch) : status;
}

/* "272474 torch 2.6.0, Python 3.11.2" */
static yoke_status read_facts(compare_torch *torch, const char *way) {
    char *end;
    const char *line = torch->ranks[0].line;
    torch->facts.parameters = strtoull(line, &end, 10);
    if (end == line || strncmp(end, " torch ", 7) != 0) return refuse_nonsense(torch, 0);
    snprintf(torch->facts.torch, sizeof torch->facts.torch, "%s", end + 1);
    if (strcmp(way, "ddp") == 0)
        snprintf(torch->facts.transport, sizeof torch->facts.transport, "gloo");
    return YOKE_OK;
}

static yoke_status open_torch(compare_torch *torch, const compare_entry *entry) {
    yoke_status status = compare_torch_work_open(&torch->work, entry, torch->world);
    if (status == YOKE_OK) status = start_all(torch, entry->setup);
    return status == YOKE_OK ? read_facts(torch, entry->torch) : status;
}

static yoke_status build(void **inside, const compare_entry *entry) {
    int world = strcmp(entry->torch, "ddp") == 0 ? entry->role.devices : 1;
    compare_torch *torch = calloc(1, sizeof *torch + (size_t)world * sizeof torch->ranks[0]);
    struct pollfd *watched = calloc((size_t)world, sizeof *watched);
    *inside = NULL;
    if (torch == NULL || watched == NULL) {
        free(torch);
        free(watched);
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d ranks", world);
    }
    torch->meeting = entry->meeting;
    torch->name = entry->name;
    torch->interpreter = entry->setup->torch;
    torch->deadline = entry->setup->torch_deadline;
    torch->world = world;
    torch->watched = watched;
    for (int i = 0; i < world; i++)
        torch->ranks[i].child.socket = -1;
    yoke_status status = open_torch(torch, entry);
    if (status == YOKE_OK)
        *inside = torch;
    else
        clear(torch);
    return status;
}

static void describe(const void *inside, compare_facts *facts) {
    *facts = ((const compare_torch *)inside)->facts;
}

/* Training and racing. */

static yoke_status learn(void *inside, int steps, compare_learned *learned) {
    compare_torch *torch = inside;
    yoke_status status = YOKE_OK;
    learned->steps = steps;
    for (int i = 0; i < steps && status == YOKE_OK; i++) {
        status = compare_torch_work_next(&torch->work);
        if (status == YOKE_OK) status = ask(torch, "learn\n");
        if (status == YOKE_OK) status = read_number(torch, 0, &learned->losses[i]);
    }
    return status;
}

/* The time of the slowest rank. */
static yoke_status run(void *inside, int steps, bool fresh, double *milliseconds) {
    compare_torch *torch = inside;
    char request[32];
    (void)fresh; /* no trace */
    snprintf(request, sizeof request, "run %d\n", steps);
    yoke_status status = ask(torch, request);
    *milliseconds = 0;
    for (int i = 0; i < torch->world && status == YOKE_OK; i++) {
        double own = 0;
        status = read_number(torch, i, &own);
        if (status == YOKE_OK && !(own > 0 && isfinite(own))) status = refuse_nonsense(torch, i);
        *milliseconds = fmax(*milliseconds, own);
    }
    return status;
}

static double seconds(const void *inside) {
    const compare_torch *torch = inside;
    double sum = 0;
    for (int i = 0; i < torch->world; i++)
        sum += compare_child_seconds(&torch->ranks[i].child);
    return sum;
}

const compare_way compare_by_torch = {.build = build,
                                      .clear = clear,
                                      .describe = describe,
                                      .learn = learn,
                                      .run = run,
                                      .seconds = seconds};
