/* One table of options a verb: parsing, help and messages are made from it. */
#ifndef CLI_ARGUMENTS_H
#define CLI_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

/* What a value is and the type of the field it is stored in. */
typedef enum cli_kind {
    CLI_FLAG,     /* bool; takes no value */
    CLI_TEXT,     /* const char *; borrowed from argv */
    CLI_INTEGER,  /* int */
    CLI_UNSIGNED, /* uint64_t */
    CLI_REAL,     /* double */
    CLI_CHOICE    /* int: index of the word among those of `value`, "sgd|adamw" */
} cli_kind;

typedef struct cli_option {
    const char *name;  /* "warmup-steps": --warmup-steps N, --warmup-steps=N, --warmup_steps N */
    const char *value; /* placeholder in help, or the words of a choice; NULL for flags */
    const char *help;  /* one line, with the default; NULL: works, but is not listed */
    cli_kind kind;
    size_t offset;    /* of the field in the verb's own struct */
    double low, high; /* of numbers, both included; equal: any */
} cli_option;

typedef struct cli_verb {
    const char *name;
    const char *operands; /* after the options in the usage line: "[VERB]"; NULL: takes none */
    const char *summary;  /* one line, lower case */
    const cli_option *options;
    int option_count;
    const char *more; /* text below the options: examples; NULL: none */
    bool command;     /* the first operand ends the options: what follows is another program's */
} cli_verb;

#define CLI_OPTION_COUNT(options) ((int)(sizeof(options) / sizeof((options)[0])))

/* Fills `values`, the verb's own struct with its defaults already in it, from argv[1 ..]; operands
 * are moved to the front of argv[1 ..], followed by NULL, and counted; without any, argv stays.
 * --help prints and ends. -1: go on; otherwise the exit code to leave with, all said. */
int cli_parse(const cli_verb *verb, int argc, char **argv, void *values, int *operand_count);

/* "yoke: " what is wrong, and on a second line what to type; returns exit code 2. */
int cli_usage_error(const char *verb, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The text of `yoke help VERB`, on stdout. */
void cli_print_help(const cli_verb *verb);

/* The closest of names[count] to `word`, NULL when none is near. */
const char *cli_nearest(const char *word, const char *const *names, int count);

#endif
