/* SPDX-License-Identifier: Apache-2.0 */
/* A command is a child with its words, --json and a pipe. */
#include "cli/lesson/lesson_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch/launch_guard.h"

#define OUTPUT_LIMIT ((size_t)64 << 20)
#define NOTES "notes" /* what a command says where no terminal shows it */

/* Cuts the words in place; json: adds --json. */
static void cut_words(char *text, char *words[LESSON_WORDS], bool json) {
    static char tool[] = "yoke", option[] = "--json";
    int count = 0;
    words[count++] = tool;
    for (char *word = strtok(text, " "); word != NULL && count < LESSON_WORDS - 2;
         word = strtok(NULL, " "))
        words[count++] = word;
    if (json) words[count++] = option;
    words[count] = NULL;
}

static void become(const char *folder, const char *command, int output, pid_t parent) {
    char text[2048], *words[LESSON_WORDS];
    snprintf(text, sizeof text, "%s", command);
    cut_words(text, words, output >= 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || chdir(folder) != 0) _exit(127);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        if (!isatty(STDERR_FILENO)) {
            int notes = open(NOTES, O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (notes >= 0) dup2(notes, STDERR_FILENO);
        }
    }
    execv("/proc/self/exe", words);
    _exit(127);
}

/* Ctrl-C reaches the child, too; this process waits for its end and cleans up. */
static int await(pid_t pid) {
    int state;
    while (waitpid(pid, &state, 0) < 0)
        if (errno != EINTR) return cli_system_error("cannot wait for a command");
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static pid_t start(const char *folder, const char *command, int output) {
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        become(folder, command, output, parent);
    }
    return pid;
}

/* All that comes; NULL: too much or no memory. */
static char *read_all(int input) {
    size_t used = 0, room = 1 << 16;
    char *text = malloc(room);
    for (ssize_t got; text != NULL; used += (size_t)got) {
        got = read(input, text + used, room - used - 1);
        if (got < 0 && errno == EINTR)
            got = 0;
        else if (got <= 0)
            break;
        if (room - used - (size_t)got > 1) continue;
        char *more = room < OUTPUT_LIMIT ? realloc(text, room *= 2) : NULL;
        if (more == NULL) free(text);
        text = more;
    }
    if (text != NULL) text[used] = '\0';
    return text;
}

static void show_notes(const char *folder) {
    char path[LAUNCH_FOLDER_BYTES + sizeof NOTES + 1], line[512];
    snprintf(path, sizeof path, "%s/" NOTES, folder);
    FILE *notes = fopen(path, "r");
    if (notes == NULL) return;
    while (fgets(line, sizeof line, notes) != NULL)
        fputs(line, stderr);
    fclose(notes);
}

static int run_one(const char *folder, const char *command, json_t **result) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return cli_system_error("cannot make a pipe");
    pid_t pid = start(folder, command, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return cli_system_error("cannot start a command");
    }
    char *text = read_all(ends[0]);
    close(ends[0]);
    int code = await(pid);
    *result = text != NULL && code == 0 ? json_loads(text, 0, NULL) : NULL;
    free(text);
    if (code != 0) {
        show_notes(folder);
        fprintf(stderr, "yoke: the lesson's command ended with exit code %d: yoke %s\n", code,
                command);
        return code;
    }
    if (*result != NULL) return -1;
    return cli_fail(cli_refuse(YOKE_ERROR_INTERNAL, "the result of yoke %s is no JSON", command));
}

static int run_all(const char *folder, const lesson_row *lesson, json_t *results[LESSON_COMMANDS]) {
    int code = -1;
    for (int i = 0; i < LESSON_COMMANDS && lesson->commands[i] != NULL && code < 0; i++) {
        if (isatty(STDERR_FILENO)) fprintf(stderr, "\n$ yoke %s\n", lesson->commands[i]);
        code = run_one(folder, lesson->commands[i], &results[i]);
    }
    return code;
}

int lesson_run(const lesson_row *lesson, json_t *results[LESSON_COMMANDS]) {
    char folder[LAUNCH_FOLDER_BYTES];
    launch_guard guard;
    if (lesson->commands[0] == NULL) return -1;
    int code = launch_folder_make(folder, "lesson");
    if (code < 0) code = launch_guard_start(&guard, folder);
    if (code >= 0) return code;
    void (*before)(int) = signal(SIGINT, SIG_IGN);
    code = run_all(folder, lesson, results);
    signal(SIGINT, before);
    launch_guard_end(&guard);
    return code;
}

int lesson_look(const lesson_row *lesson) {
    fprintf(stderr, "\n$ yoke %s\n", lesson->look);
    void (*before)(int) = signal(SIGINT, SIG_IGN);
    pid_t pid = start(".", lesson->look, -1);
    int code = pid < 0 ? cli_system_error("cannot start a command") : await(pid);
    signal(SIGINT, before);
    return code == 0 || code == 128 + SIGINT ? -1 : code;
}
