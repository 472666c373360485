/* SPDX-License-Identifier: Apache-2.0 */
/* yoke help: the verbs, the options of one, the exit codes, or all of it as a manual page. */
#include <stddef.h>
#include <string.h>

#include "cli/cli.h"

typedef struct help_flags {
    bool man;
} help_flags;

static const cli_option options[] = {
    {"man", NULL, "print the manual page yoke(1), all verbs in one: yoke help --man | man -l -",
     CLI_FIELD(help_flags, man)},
};

const cli_verb help_verb = {.name = "help",
                            .operands = "[VERB | exit-codes]",
                            .summary = "explain a verb and its options",
                            .options = options,
                            .option_count = CLI_OPTION_COUNT(options)};

void cli_print_overview(FILE *out) {
    fprintf(out, "Yoke trains one model on many devices: data-parallel training from one "
                 "process.\n\nusage: yoke VERB [options]\n\n");
    const cli_verb *verb;
    for (int i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        fprintf(out, "  %-10s  %s\n", verb->name, verb->summary);
    fprintf(out,
            "\n'yoke train' without options trains a small network on synthetic images in under "
            "a minute.\n'yoke help VERB' lists the options of a verb, 'yoke help exit-codes' "
            "the exit codes.\n");
}

void cli_print_exit_codes(FILE *out) {
    static const struct {
        yoke_status status;
        const char *text;
    } rows[] = {
#define STATUS_ROW(name, text, exit_code) {name, text},
        YOKE_STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        fprintf(out, "%4d  %-22s  %s\n", yoke_status_exit_code(rows[i].status),
                yoke_status_name(rows[i].status), rows[i].text);
    fprintf(out,
            " 126  launch: cannot start the program\n"
            " 127  launch: cannot find the program\n"
            "128+N  signal N ended the run, 130: SIGINT, 143: SIGTERM; train finished its step and "
            "wrote\n"
            "      --save and a checkpoint, also on SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, "
            "SIGXFSZ\n"
            "      and SIGXCPU\n");
}

static int print_topic(const char *name) {
    const cli_verb *verb = cli_find_verb(name);
    if (strcmp(name, "exit-codes") == 0)
        cli_print_exit_codes(stdout);
    else if (verb == NULL)
        return cli_unknown_verb(name);
    else
        cli_print_help(verb);
    return 0;
}

int help_main(int argc, char **argv) {
    help_flags flags = {0};
    int operands = 0, code = cli_parse(&help_verb, argc, argv, &flags, &operands);
    if (code >= 0) return code;
    if (flags.man && operands > 0)
        return cli_usage_error("help", "--man prints all verbs and takes no '%s'", argv[1]);
    if (operands > 0) return print_topic(argv[1]);
    if (flags.man)
        cli_print_manual(stdout);
    else
        cli_print_overview(stdout);
    return 0;
}
