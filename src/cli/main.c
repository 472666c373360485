/* SPDX-License-Identifier: Apache-2.0 */
/* The tool `yoke`: finds the verb and runs it. */
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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

static char refusal[1400];

yoke_status cli_refuse(yoke_status status, const char *format, ...) {
    va_list arguments;
    if (refusal[0] != '\0') return status;
    va_start(arguments, format);
    vsnprintf(refusal, sizeof refusal, format, arguments);
    va_end(arguments);
    /* As the library's errors: names from files must not steer a terminal. */
    for (char *at = refusal; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
    return status;
}

const char *cli_failure(yoke_status status) {
    const char *text = refusal[0] != '\0' ? refusal : yoke_last_error();
    return text[0] != '\0' ? text : yoke_status_name(status);
}

int cli_fail(yoke_status status) {
    const char *text = cli_failure(status);
    fprintf(stderr, "yoke: %s\n", text);
    if (strstr(text, "yoke_dataset_skip_bad") != NULL)
        fprintf(stderr, "yoke: --skip-bad calls it and names the files\n");
    return yoke_status_exit_code(status);
}

int cli_system_error(const char *what) {
    fprintf(stderr, "yoke: %s: %s\n", what, strerror(errno));
    return yoke_status_exit_code(YOKE_ERROR_SYSTEM);
}

void cli_print_text(FILE *out, const char *text, int width) {
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0'; s++, width--) {
        bool upper = s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0; /* U+0080 to U+009F */
        s += upper;
        if (upper || *s < 0x20 || *s == 0x7f)
            width -= fprintf(out, "\\x%02x", *s) - 1;
        else
            fputc(*s, out);
    }
    fprintf(out, "%*s", width > 0 ? width : 0, "");
}

yoke_status cli_print_json(yoke_json *json, FILE *out) {
    yoke_status status = YOKE_OK;
    if (json->failed)
        status = cli_refuse(YOKE_ERROR_MEMORY, "no memory for the result as JSON");
    else
        fprintf(out, "%s\n", json->text);
    yoke_json_end(json);
    return status;
}

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

int main(int argc, char **argv) {
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
