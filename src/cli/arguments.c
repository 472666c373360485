/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a command line by the table of its verb, and prints the same table as help. */
#include "cli/arguments.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/other_words.h"

#include "base/base.h"

#define USAGE_EXIT 2
#define WORD_BYTES 64
#define OPTIONS_MAX 256
#define HELP_COLUMN 32 /* of an option's text */

int cli_usage_error(const char *verb, const char *format, ...) {
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) text = NULL;
    va_end(arguments);
    fputs("yoke: ", stderr);
    cli_print_text(stderr, text != NULL ? text : "no memory for the message", 0);
    free(text);
    fprintf(stderr, "\nType 'yoke help%s%s' for the usage.\n", verb != NULL ? " " : "",
            verb != NULL ? verb : "");
    return USAGE_EXIT;
}

/* Copies word `index` of the choice "a|b|c"; false past the end. */
static bool choice_word(const char *words, int index, char *word) {
    for (; index > 0; index--) {
        words = strchr(words, '|');
        if (words == NULL) return false;
        words++;
    }
    snprintf(word, WORD_BYTES, "%.*s", (int)strcspn(words, "|"), words);
    return true;
}

static int choice_index(const char *words, const char *given) {
    char word[WORD_BYTES];
    for (int i = 0; choice_word(words, i, word); i++)
        if (strcmp(word, given) == 0) return i;
    return -1;
}

size_t cli_value_bytes(cli_kind kind) {
    static const size_t sizes[] = {
        [CLI_FLAG] = sizeof(bool),
        [CLI_TEXT] = sizeof(char *),
        [CLI_INTEGER] = sizeof(int),
        [CLI_UNSIGNED] = sizeof(uint64_t),
        [CLI_REAL] = sizeof(double),
        [CLI_CHOICE] = sizeof(unsigned),
        [CLI_IF_SECOND] = sizeof(bool),
        [CLI_GROUP] = 0,
        [CLI_THREADS] = sizeof(thread_count),
        [CLI_STRAGGLER] = sizeof(straggler),
        [CLI_JITTER] = sizeof(color_jitter),
        [CLI_INTERVAL] = sizeof(save_interval),
        [CLI_WEIGHTS] = sizeof(class_weights),
        [CLI_LABEL] = sizeof(ignored_label),
        [CLI_SHARES] = sizeof(device_shares),
        [CLI_TEXTS] = sizeof(text_list),
        [CLI_SCALE] = sizeof(loss_scale),
    };
    return sizes[kind];
}

bool cli_keeps_text(const cli_option *option) {
    return option->kind == CLI_TEXT || option->kind > CLI_GROUP;
}

const char *cli_choice_word(const cli_option *option, int index, char word[64]) {
    return choice_word(option->value, index, word) ? word : "";
}

static int choice_error(const cli_verb *verb, const cli_option *option, const char *given) {
    char words[16][WORD_BYTES];
    const char *names[16];
    int count = 0;
    while (count < 16 && choice_word(option->value, count, words[count])) {
        names[count] = words[count];
        count++;
    }
    char hint[OTHER_WORDS_BYTES];
    const char *near = yoke_text_nearest(given, names, (size_t)count);
    if (other_value_hint(option->name, given, hint)[0] == '\0' && near != NULL)
        snprintf(hint, sizeof hint, "; did you mean '%s'?", near);
    return cli_usage_error(verb->name, "--%s: '%s' is not one of %s%s", option->name, given,
                           option->value, hint);
}

/* Values. */

static bool in_range(const cli_option *option, double value) {
    return option->low == option->high || (value >= option->low && value <= option->high);
}

static int number_error(const cli_verb *verb, const cli_option *option, const char *given) {
    const char *what = option->kind == CLI_REAL ? "a number" : "a whole number";
    if (option->low == option->high)
        return cli_usage_error(verb->name, "--%s: '%s' is not %s", option->name, given, what);
    if (isinf(option->high))
        return cli_usage_error(verb->name, "--%s: '%s' is not %s of at least %g", option->name,
                               given, what, option->low);
    return cli_usage_error(verb->name, "--%s: '%s' is not %s from %g to %.15g", option->name, given,
                           what, option->low, option->high);
}

static bool read_integer(const cli_option *option, const char *text, void *field) {
    int64_t value;
    if (!yoke_text_integer(text, INT32_MIN, INT32_MAX, &value)) return false;
    if (!in_range(option, (double)value)) return false;
    *(int *)field = (int)value;
    return true;
}

static bool read_unsigned(const cli_option *option, const char *text, void *field) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end != '\0' || errno != 0 || strspn(text, "0123456789") != strlen(text)) return false;
    if (!in_range(option, (double)value)) return false;
    *(uint64_t *)field = value;
    return true;
}

static bool read_real(const cli_option *option, const char *text, void *field) {
    double value;
    if (!yoke_text_real(text, -DBL_MAX, DBL_MAX, &value) || !in_range(option, value)) return false;
    *(double *)field = value;
    return true;
}

int cli_store(const cli_verb *verb, const cli_option *option, const char *text, void *values) {
    void *field = (char *)values + option->offset;
    bool read = true;
    int choice;
    if (text[0] == '\0')
        return cli_usage_error(verb->name, "--%s needs a value: %s", option->name, option->value);
    if (cli_keeps_text(option)) {
        *(const char **)field = text;
        return option_value_read(option->kind, verb->name, field);
    }
    switch (option->kind) {
    case CLI_INTEGER:
        read = read_integer(option, text, field);
        break;
    case CLI_UNSIGNED:
        read = read_unsigned(option, text, field);
        break;
    case CLI_REAL:
        read = read_real(option, text, field);
        break;
    case CLI_CHOICE:
    case CLI_IF_SECOND:
        choice = choice_index(option->value, text);
        if (choice < 0) return choice_error(verb, option, text);
        if (option->kind == CLI_CHOICE)
            *(int *)field = choice;
        else
            *(bool *)field = choice == 1;
        break;
    case CLI_FLAG:
        *(bool *)field = strcmp(text, "true") == 0;
        break;
    default:
        break;
    }
    return read ? -1 : number_error(verb, option, text);
}

/* Parsing. */

/* "warmup_steps=5" is option warmup-steps. */
static bool matches(const char *name, const char *given, size_t length) {
    if (strlen(name) != length) return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] != (given[i] == '_' ? '-' : given[i])) return false;
    return true;
}

static const cli_option *find_option(const cli_verb *verb, const char *given, size_t length) {
    for (int i = 0; i < verb->option_count; i++)
        if (verb->options[i].kind != CLI_GROUP && matches(verb->options[i].name, given, length))
            return &verb->options[i];
    return NULL;
}

const cli_option *cli_find_option(const cli_verb *verb, const char *name) {
    return find_option(verb, name, strlen(name));
}

const char *cli_nearest_option(const cli_verb *verb, const char *name) {
    const char *names[OPTIONS_MAX];
    int count = 0;
    for (int i = 0; i < verb->option_count && count < OPTIONS_MAX; i++)
        if (verb->options[i].kind != CLI_GROUP) names[count++] = verb->options[i].name;
    return yoke_text_nearest(name, names, (size_t)count);
}

/* `given` with its dashes. */
static int unknown_option(const cli_verb *verb, const char *given) {
    char hint[OTHER_WORDS_BYTES];
    return cli_usage_error(verb->name, "%s has no option %.*s%s", verb->name,
                           (int)strcspn(given, "="), given,
                           other_option_hint(verb, given + strspn(given, "-"), hint));
}

bool cli_names_option(const char *word, const char *name) {
    return strncmp(word, "--", 2) == 0 && matches(name, word + 2, strcspn(word + 2, "="));
}

/* The value that may be left out: 100 in "[N=100]". A field may keep the text, so it stays; no verb
 * has two options of this kind. */
static int store_implied(const cli_verb *verb, const cli_option *option, void *values) {
    static char text[WORD_BYTES];
    const char *begin = strchr(option->value, '=') + 1;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(begin, "]"), begin);
    return cli_store(verb, option, text, values);
}

/* One "--name", "--name=value" or "--name value" at argv[*index]. */
static int parse_option(const cli_verb *verb, int argc, char **argv, int *index, void *values) {
    const char *given = argv[*index] + 2;
    size_t length = strcspn(given, "=");
    const cli_option *option = find_option(verb, given, length);
    if (option == NULL) return unknown_option(verb, argv[*index]);
    bool attached = given[length] == '=';
    if (option->kind == CLI_FLAG && attached)
        return cli_usage_error(verb->name, "--%s takes no value", option->name);
    if (option->kind == CLI_FLAG) return cli_store(verb, option, "true", values);
    if (attached) return cli_store(verb, option, given + length + 1, values);
    bool alone = *index + 1 >= argc || strncmp(argv[*index + 1], "--", 2) == 0;
    if (alone && option->value[0] == '[') return store_implied(verb, option, values);
    if (alone)
        return cli_usage_error(verb->name, "--%s needs a value: %s", option->name, option->value);
    return cli_store(verb, option, argv[++*index], values);
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* --help before "--" counts, even beside mistakes. */
static bool asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (is_help(argv[i])) return true;
    return false;
}

static int print_help_page(const cli_verb *verb) {
    cli_print_help(verb);
    return 0;
}

int cli_parse(const cli_verb *verb, int argc, char **argv, void *values, int *operand_count) {
    int operands = 0;
    bool ended = false;
    if (!verb->command && asks_for_help(argc, argv)) return print_help_page(verb);
    for (int i = 1; i < argc; i++) {
        int code = -1;
        if (!ended && strcmp(argv[i], "--") == 0)
            ended = true;
        else if (!ended && is_help(argv[i])) /* options after a command belong to that command */
            code = print_help_page(verb);
        else if (!ended && strncmp(argv[i], "--", 2) == 0)
            code = parse_option(verb, argc, argv, &i, values);
        else if (!ended && argv[i][0] == '-' && (verb->operands == NULL || verb->command))
            code = unknown_option(verb, argv[i]);
        else if (verb->operands == NULL)
            code = cli_usage_error(verb->name, "%s takes no operand, but got '%s'", verb->name,
                                   argv[i]);
        else {
            argv[++operands] = argv[i];
            ended = ended || verb->command;
        }
        if (code >= 0) return code;
    }
    if (verb->operands != NULL && operands + 1 < argc) argv[operands + 1] = NULL;
    if (operand_count != NULL) *operand_count = operands;
    return -1;
}

/* Printing. */

void cli_print_word(FILE *out, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=:,./@%"; /* no shell changes these */
    if (word[0] != '\0' && strspn(word, plain) == strlen(word)) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    fputc('\'', out);
}

static void print_option(const cli_option *option) {
    int width = printf("  --%s%s%s", option->name, option->value != NULL ? " " : "",
                       option->value != NULL ? option->value : "");
    if (width > HELP_COLUMN - 2) {
        printf("\n");
        width = 0;
    }
    printf("%*s%s\n", HELP_COLUMN - width, "", option->help);
}

void cli_print_help(const cli_verb *verb) {
    printf("yoke %s: %s\n\nusage: yoke %s%s%s%s\n", verb->name, verb->summary, verb->name,
           verb->option_count > 0 ? " [options]" : "", verb->operands != NULL ? " " : "",
           verb->operands != NULL ? verb->operands : "");
    if (verb->option_count > 0 && verb->options[0].kind != CLI_GROUP) printf("\noptions:\n");
    for (int i = 0; i < verb->option_count; i++) {
        const cli_option *option = &verb->options[i];
        if (option->kind == CLI_GROUP)
            printf("\n%s:\n", option->name);
        else if (option->help != NULL)
            print_option(option);
    }
    if (verb->more != NULL) printf("\n%s", verb->more);
    if (verb->print_more != NULL) verb->print_more(stdout);
}
