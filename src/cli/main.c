/* SPDX-License-Identifier: Apache-2.0 */
/* The tool `yoke`: finds the verb and runs it. */
#include <fcntl.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/cli.h"

static const struct {
    const cli_verb *verb;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {&train_verb, train_main},
    {&evaluate_verb, evaluate_main},
    {&predict_verb, predict_main},
    {&generate_verb, generate_main},
    {&devices_verb, devices_main},
    {&bench_verb, bench_main},
    {&compare_verb, compare_main},
    {&verify_verb, verify_main},
    {&launch_verb, launch_main},
    {&resize_verb, resize_main},
    {&checkpoint_verb, checkpoint_main},
    {&model_verb, model_main},
    {&data_verb, data_main},
    {&report_verb, report_main},
    {&simulate_verb, simulate_main},
    {&advise_verb, advise_main},
    {&doctor_verb, doctor_main},
    {&lesson_verb, lesson_main},
    {&completion_verb, completion_main},
    {&version_verb, version_main},
    {&help_verb, help_main},
};
#define STACK_BYTES (256 << 10)
#define VERB_COUNT ((int)(sizeof verbs / sizeof verbs[0]))

const cli_verb version_verb = {.name = "version", .summary = "print the version"};

static int find_verb(const char *name) {
    for (int i = 0; i < VERB_COUNT; i++)
        if (strcmp(verbs[i].verb->name, name) == 0) return i;
    return -1;
}

const cli_verb *cli_find_verb(const char *name) {
    int index = find_verb(name);
    return index < 0 ? NULL : verbs[index].verb;
}

const cli_verb *cli_verb_at(int index) {
    return index < VERB_COUNT ? verbs[index].verb : NULL;
}

int cli_unknown_verb(const char *name) {
    const char *names[VERB_COUNT];
    for (int i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i].verb->name;
    const char *near = yoke_text_nearest(name, names, (size_t)VERB_COUNT);
    fprintf(stderr, "yoke: no verb is called '%s'", name);
    if (near != NULL) fprintf(stderr, "; did you mean '%s'?", near);
    fprintf(stderr, "\nVerbs:");
    for (int i = 0; i < VERB_COUNT; i++)
        fprintf(stderr, " %s", names[i]);
    fprintf(stderr, "\n");
    return yoke_status_exit_code(YOKE_ERROR_ARGUMENT);
}

int version_main(int argc, char **argv) {
    int code = cli_parse(&version_verb, argc, argv, NULL, NULL);
    if (code < 0) printf("yoke %s\n", yoke_version());
    return code < 0 ? 0 : code;
}

static int dispatch(int argc, char **argv) {
    static char help_word[] = "help", version_word[] = "version";
    if (argc < 2) {
        cli_print_overview(stderr);
        return yoke_status_exit_code(YOKE_ERROR_ARGUMENT);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) argv[1] = help_word;
    if (strcmp(argv[1], "--version") == 0) argv[1] = version_word;
    int index = find_verb(argv[1]);
    return index < 0 ? cli_unknown_verb(argv[1]) : verbs[index].run(argc - 1, argv + 1);
}

/* Threads share one heap where the address space is limited: glibc takes 64 MiB of it for the heap
 * of each thread. */
static void share_heap(void) {
#ifdef M_ARENA_MAX
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
#endif
}

/* A stack that is too small ends a program with SIGSEGV and without a word. */
static bool has_stack(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES) return true;
    fprintf(stderr,
            "yoke: the stack is limited to %llu KiB; yoke needs %d: raise it with ulimit -s\n",
            (unsigned long long)limit.rlim_cur / 1024, STACK_BYTES / 1024);
    return false;
}

/* A file or pipe that is opened later never becomes a standard stream that was closed. Reading it,
 * or writing to it, fails as before. */
static void hold_streams(void) {
    for (int stream = 0; stream < 3; stream++)
        if (fcntl(stream, F_GETFD) < 0)
            (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
    hold_streams();
    if (!has_stack()) return yoke_status_exit_code(YOKE_ERROR_MEMORY);
    share_heap();
    setlocale(LC_CTYPE, ""); /* the progress bar draws block characters where UTF-8 allows it */
    /* Replicas that share a GPU use more streams than CUDA's default of 8 connections. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    int code = dispatch(argc, argv);
    if (code == 128 + SIGPIPE) return code; /* no program reads the output */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("yoke: cannot write the result to standard output");
        return code != 0 ? code : yoke_status_exit_code(YOKE_ERROR_IO);
    }
    return code;
}
