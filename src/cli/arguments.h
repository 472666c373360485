/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a verb: one table of options makes parsing, help and messages. */
#ifndef CLI_ARGUMENTS_H
#define CLI_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/option_values.h"

/* The kind of a value, and the type of its field in the verb's struct. */
typedef enum cli_kind {
    CLI_FLAG,      /* bool; takes no value */
    CLI_TEXT,      /* const char *; borrowed from argv */
    CLI_INTEGER,   /* int */
    CLI_UNSIGNED,  /* uint64_t or size_t */
    CLI_REAL,      /* double */
    CLI_CHOICE,    /* enum or unsigned: index of the word among those of `value`, "sgd|adamw" */
    CLI_IF_SECOND, /* bool: whether the second of two such words is given */
    CLI_GROUP,     /* no option: the name of those below it, in help and manual */
    /* Values that begin with their text, option_values.h. */
    CLI_THREADS,
    CLI_STRAGGLER,
    CLI_JITTER,
    CLI_INTERVAL,
    CLI_WEIGHTS,
    CLI_LABEL,
    CLI_SHARES,
    CLI_TEXTS,
    CLI_SCALE
} cli_kind;
_Static_assert(_Generic((size_t)0, uint64_t : true, default : sizeof(size_t) < 8), "CLI_UNSIGNED");

typedef struct cli_option {
    const char *name;  /* "warmup-steps": --warmup-steps N, --warmup-steps=N, --warmup_steps N */
    const char *value; /* placeholder in help, or the words of a choice; NULL for flags. "[N=100]":
                          the value may be left out, and is then 100 */
    const char *help;  /* one line, with the default; NULL: hidden */
    cli_kind kind;
    size_t offset;    /* of the field in the verb's struct */
    double low, high; /* of numbers, inclusive; equal: no limits */
} cli_option;

typedef struct cli_verb {
    const char *name;
    const char *operands; /* in the usage line, "[VERB]"; NULL: none allowed */
    const char *summary;  /* one line, lower case */
    const cli_option *options;
    int option_count;
    const char *more;              /* text below the options: examples; NULL: none */
    void (*print_more)(FILE *out); /* prints what follows; NULL: nothing */
    bool command; /* the first operand begins a command; options behind it are the command's */
} cli_verb;

/* The row above a group of options. */
#define CLI_HEADING(name)                                                                          \
    { name, NULL, NULL, CLI_GROUP, 0, 0, 0 }
/* The kind and place of a value, by its field: the columns `kind` and `offset`. */
// clang-format off
#define CLI_FIELD(type, field)                                                                     \
    _Generic(((type *)NULL)->field,                                                                \
             bool: CLI_FLAG, const char *: CLI_TEXT, int: CLI_INTEGER, uint64_t: CLI_UNSIGNED,     \
             double: CLI_REAL, unsigned: CLI_CHOICE, thread_count: CLI_THREADS,                    \
             straggler: CLI_STRAGGLER, color_jitter: CLI_JITTER, save_interval: CLI_INTERVAL,      \
             class_weights: CLI_WEIGHTS, ignored_label: CLI_LABEL, device_shares: CLI_SHARES,      \
             text_list: CLI_TEXTS, loss_scale: CLI_SCALE),                                                                \
    offsetof(type, field)
// clang-format on
#define CLI_OPTION_COUNT(options) ((int)(sizeof(options) / sizeof((options)[0])))

/* Reads argv[1 ..] into `values`, the verb's struct, which holds its defaults. Moves the operands
 * to the front of argv[1 ..], NULL behind them, and counts them. Returns -1 to go on; otherwise the
 * exit code to leave with: help or a usage error is printed. */
int cli_parse(const cli_verb *verb, int argc, char **argv, void *values, int *operand_count);

/* Whether a word of a command is this option, "--name" or "--name=value". */
bool cli_names_option(const char *word, const char *name);
/* The option that a name stands for, with - or _; NULL: none. The nearest one's name, or NULL. */
const cli_option *cli_find_option(const cli_verb *verb, const char *name);
const char *cli_nearest_option(const cli_verb *verb, const char *name);
/* Stores a value, of a flag "true" or "false". -1, or the exit code of a usage error. The text must
 * outlive the values. */
int cli_store(const cli_verb *verb, const cli_option *option, const char *text, void *values);
/* The word of a choice. */
const char *cli_choice_word(const cli_option *option, int index, char word[64]);
/* The size of a field of this kind. */
size_t cli_value_bytes(cli_kind kind);
/* Whether the field is a text, or begins with the text that it was read from. */
bool cli_keeps_text(const cli_option *option);

/* Prints what is wrong, and on a second line where help is; returns exit code 2. */
int cli_usage_error(const char *verb, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The text of `yoke help VERB`, on stdout. */
void cli_print_help(const cli_verb *verb);

/* One word of a command, quoted where a shell needs it. */
void cli_print_word(FILE *out, const char *word);

#endif
