/* The tool's own words, shared by its verbs. The tool sees include/yoke only, as a stranger would.
 * Results go to stdout, everything else to stderr. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "arguments.h"
#include "emit.h"
#include "yoke/yoke.h"

/* One file per verb. argv[0] is the verb, argv[-1] the tool as it was called; the answer is the
 * tool's exit code. */
int train_main(int argc, char **argv);
int evaluate_main(int argc, char **argv);
int devices_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int compare_main(int argc, char **argv);
int launch_main(int argc, char **argv);
int version_main(int argc, char **argv);
int help_main(int argc, char **argv);

/* Their options, from which parsing and `yoke help VERB` are made. */
extern const cli_verb train_verb, evaluate_verb, devices_verb, bench_verb, compare_verb,
    launch_verb, version_verb, help_verb;

/* Says what failed (cli_failure) on stderr; the exit code of the status. */
int cli_fail(yoke_status status);
/* The words of a failure: cli_refuse's, else yoke_last_error's. */
const char *cli_failure(yoke_status status);
/* A failure that is the tool's own; the first one's words stay. Returns `status`. */
yoke_status cli_refuse(yoke_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Likewise what the system refused, with errno's words. */
int cli_system_error(const char *what);

/* NULL when there is none of that name. */
const cli_verb *cli_find_verb(const char *name);

#endif
