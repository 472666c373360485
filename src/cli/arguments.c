/* Reads options by a verb's table, strictly, and prints the same table as help. */
#include "arguments.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USAGE_EXIT 2
#define WORD_BYTES 64

int cli_usage_error(const char *verb, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("yoke: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nType 'yoke help%s%s' to see what it takes.\n", verb != NULL ? " " : "",
            verb != NULL ? verb : "");
    return USAGE_EXIT;
}

/* Nearest names. */

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Letters to insert, delete, replace or swap with a neighbour; the last three rows of the table. */
static size_t edit_distance(const char *a, const char *b) {
    size_t rows[3][WORD_BYTES], length = strlen(b), i = 0;
    for (size_t j = 0; j <= length; j++)
        rows[0][j] = j;
    for (i = 1; a[i - 1] != '\0'; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            row[j] =
                smaller(above[j - 1] + (a[i - 1] != b[j - 1]), smaller(row[j - 1], above[j]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], above2[j - 2] + 1);
        }
    }
    return rows[(i - 1) % 3][length];
}

/* Of two at the same distance the one of the same length: letters are swapped more than lost. */
const char *cli_nearest(const char *word, const char *const *names, int count) {
    const char *nearest = NULL;
    size_t best = 2 * (strlen(word) / 3 + 2); /* farther than that is another word */
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) >= WORD_BYTES) continue;
        size_t distance = 2 * edit_distance(word, names[i]) + (strlen(names[i]) != strlen(word));
        if (distance >= best) continue;
        best = distance;
        nearest = names[i];
    }
    return nearest;
}

/* Words of a choice. */

/* Copies word `index` of "a|b|c"; false past the end. */
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

static int choice_error(const cli_verb *verb, const cli_option *option, const char *given) {
    char words[16][WORD_BYTES];
    const char *names[16];
    int count = 0;
    while (count < 16 && choice_word(option->value, count, words[count])) {
        names[count] = words[count];
        count++;
    }
    const char *near = cli_nearest(given, names, count);
    return cli_usage_error(verb->name, "--%s: '%s' is not one of %s%s%s%s", option->name, given,
                           option->value, near != NULL ? "; did you mean '" : "",
                           near != NULL ? near : "", near != NULL ? "'?" : "");
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
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || errno != 0 || strspn(text, "-0123456789") != strlen(text)) return false;
    if (value < INT32_MIN || value > INT32_MAX || !in_range(option, (double)value)) return false;
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
    char *end;
    double value = strtod(text, &end);
    if (*end != '\0' || strspn(text, "+-.0123456789eE") != strlen(text)) return false;
    if (!isfinite(value) || !in_range(option, value)) return false;
    *(double *)field = value;
    return true;
}

/* Stores a value; -1, or the exit code when it can't be read. */
static int store(const cli_verb *verb, const cli_option *option, const char *text, void *field) {
    bool read = true;
    if (text[0] == '\0')
        return cli_usage_error(verb->name, "--%s needs a value: %s", option->name, option->value);
    switch (option->kind) {
    case CLI_TEXT:
        *(const char **)field = text;
        break;
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
        if (choice_index(option->value, text) < 0) return choice_error(verb, option, text);
        *(int *)field = choice_index(option->value, text);
        break;
    case CLI_FLAG:
        break; /* takes none */
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

static int unknown_option(const cli_verb *verb, const char *given) {
    const char *names[WORD_BYTES];
    int count = 0;
    for (; count < verb->option_count && count < WORD_BYTES; count++)
        names[count] = verb->options[count].name;
    char word[WORD_BYTES];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given, "="), given);
    const char *near = cli_nearest(word, names, count);
    return cli_usage_error(verb->name, "%s has no option --%s%s%s%s", verb->name, word,
                           near != NULL ? "; did you mean --" : "", near != NULL ? near : "",
                           near != NULL ? "?" : "");
}

/* One "--name", "--name=value" or "--name value" at argv[*index]. */
static int parse_option(const cli_verb *verb, int argc, char **argv, int *index, void *values) {
    const char *given = argv[*index] + 2;
    size_t length = strcspn(given, "=");
    const cli_option *option = NULL;
    for (int i = 0; i < verb->option_count; i++)
        if (matches(verb->options[i].name, given, length)) option = &verb->options[i];
    if (option == NULL) return unknown_option(verb, given);
    char *field = (char *)values + option->offset;
    bool attached = given[length] == '=';
    if (option->kind == CLI_FLAG) {
        if (attached) return cli_usage_error(verb->name, "--%s takes no value", option->name);
        *(bool *)(void *)field = true;
        return -1;
    }
    if (attached) return store(verb, option, given + length + 1, field);
    if (*index + 1 >= argc || strncmp(argv[*index + 1], "--", 2) == 0)
        return cli_usage_error(verb->name, "--%s needs a value: %s", option->name, option->value);
    return store(verb, option, argv[++*index], field);
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Anywhere before "--", whatever else is wrong. */
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
        else if (!ended && is_help(argv[i])) /* a command has options of its own */
            code = print_help_page(verb);
        else if (!ended && strncmp(argv[i], "--", 2) == 0)
            code = parse_option(verb, argc, argv, &i, values);
        else if (verb->operands == NULL)
            code = cli_usage_error(verb->name, "%s does not know what to do with '%s'", verb->name,
                                   argv[i]);
        else if (!ended && verb->command && argv[i][0] == '-')
            code = cli_usage_error(verb->name, "%s has no option %s", verb->name, argv[i]);
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

/* Help. */

void cli_print_help(const cli_verb *verb) {
    printf("yoke %s: %s\n\nusage: yoke %s%s%s%s\n", verb->name, verb->summary, verb->name,
           verb->option_count > 0 ? " [options]" : "", verb->operands != NULL ? " " : "",
           verb->operands != NULL ? verb->operands : "");
    if (verb->option_count > 0) printf("\noptions:\n");
    for (int i = 0; i < verb->option_count; i++) {
        const cli_option *option = &verb->options[i];
        char left[WORD_BYTES];
        if (option->help == NULL) continue;
        int width =
            snprintf(left, sizeof left, "--%s%s%s", option->name, option->value != NULL ? " " : "",
                     option->value != NULL ? option->value : "");
        if (width > 28)
            printf("  %s\n  %-28s  %s\n", left, "", option->help);
        else
            printf("  %-28s  %s\n", left, option->help);
    }
    if (verb->more != NULL) printf("\n%s", verb->more);
}
