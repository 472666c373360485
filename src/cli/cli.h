/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of the tool share. Results go to stdout, everything else to stderr. Of the library
 * the tool sees include/yoke and base. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdio.h>

#include "base/base.h"
#include "cli/arguments.h"
#include "yoke/yoke.h"

/* A file or folder each; bench is in bench/tool. argv[0] is the verb, argv[-1] the tool as the user
 * called it. Each returns the tool's exit code. */
int train_main(int argc, char **argv);
int evaluate_main(int argc, char **argv);
int predict_main(int argc, char **argv);
int generate_main(int argc, char **argv);
int devices_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int compare_main(int argc, char **argv);
int verify_main(int argc, char **argv);
int launch_main(int argc, char **argv);
int resize_main(int argc, char **argv);
int checkpoint_main(int argc, char **argv);
int model_main(int argc, char **argv);
int report_main(int argc, char **argv);
int data_main(int argc, char **argv);
int simulate_main(int argc, char **argv);
int advise_main(int argc, char **argv);
int doctor_main(int argc, char **argv);
int lesson_main(int argc, char **argv);
int completion_main(int argc, char **argv);
int version_main(int argc, char **argv);
int help_main(int argc, char **argv);

/* Their options: cli_parse and `yoke help VERB` read them. */
extern const cli_verb train_verb, evaluate_verb, predict_verb, generate_verb, devices_verb,
    bench_verb, compare_verb, verify_verb, launch_verb, resize_verb, checkpoint_verb, model_verb,
    data_verb, report_verb, simulate_verb, advise_verb, doctor_verb, lesson_verb, completion_verb,
    version_verb, help_verb;

/* Records a failure of the tool itself; the first text stays. Returns `status`. */
yoke_status cli_refuse(yoke_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The text of a failure: cli_refuse's, else yoke_last_error's. */
const char *cli_failure(yoke_status status);
/* Prints that text on stderr; returns the exit code of the status. */
int cli_fail(yoke_status status);
/* Prints a failed system call on stderr, with errno's text; returns the exit code. */
int cli_system_error(const char *what);

/* Prints a text that a file holds, padded to `width`. What would steer a terminal, or turn a line
 * around, and bytes that are not UTF-8 become \x1b or \u202E. */
void cli_print_text(FILE *out, const char *text, int width);
/* The first character of it; moves behind it. Returns its columns, at most 6. */
int cli_print_character(FILE *out, const char **text);

/* Prints the finished JSON and a newline, and frees it. */
yoke_status cli_print_json(yoke_json *json, FILE *out);

/* NULL: no such verb. */
const cli_verb *cli_find_verb(const char *name);
/* The verbs in the order of help; NULL behind the last. */
const cli_verb *cli_verb_at(int index);
/* Prints that there is no such verb; returns exit code 2. */
int cli_unknown_verb(const char *name);

/* What `yoke help` prints, its page of exit codes, and the manual page of all verbs, yoke(1). */
void cli_print_overview(FILE *out);
void cli_print_exit_codes(FILE *out);
void cli_print_manual(FILE *out);

#endif
