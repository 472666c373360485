/* SPDX-License-Identifier: Apache-2.0 */
/* yoke(1) in the macros of man(7), from the tables that `yoke help VERB` prints. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* Text that roff shows as it is: ASCII minus and quotes, which a reader may copy, and no requests
 * at the begin of a line. Behind a bar a line may break. */
static void print_escaped(FILE *out, const char *text, size_t length) {
    if (length > 0 && (text[0] == '.' || text[0] == '\'')) fputs("\\&", out);
    for (size_t i = 0; i < length; i++) {
        static const char *const escapes[128] = {
            ['-'] = "\\-",   ['\\'] = "\\e",  ['\''] = "\\(aq", ['`'] = "\\(ga",
            ['^'] = "\\(ha", ['~'] = "\\(ti", ['|'] = "|\\:"};
        unsigned char byte = (unsigned char)text[i];
        if (byte < 128 && escapes[byte] != NULL)
            fputs(escapes[byte], out);
        else
            fputc(byte, out);
    }
}

static void print_plain(FILE *out, const char *text) {
    print_escaped(out, text, strlen(text));
}

/* Whether the line stays as it is: examples and tables are indented, behind their first line. */
static bool is_example(const char *line) {
    const char *next = line + strcspn(line, "\n");
    return line[0] == ' ' || (next[0] == '\n' && next[1] == ' ');
}

static void print_text(FILE *out, const char *text) {
    bool example = false, between = false; /* paragraphs */
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        if (length > 0 && example != is_example(text)) {
            example = !example;
            fputs(example ? ".nf\n" : ".fi\n", out);
        }
        if (length > 0) {
            print_escaped(out, text, length);
            fputc('\n', out);
        } else if (!between)
            fputs(example ? "\n" : ".PP\n", out);
        between = length == 0;
        text += length + (text[length] == '\n');
    }
    if (example) fputs(".fi\n", out);
}

/* What a function prints, as text; empty where there is no memory for it. */
static void print_written(FILE *out, void (*print)(FILE *out)) {
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);
    if (to == NULL) return;
    print(to);
    if (fclose(to) == 0) print_text(out, text);
    free(text);
}

static void print_option(FILE *out, const cli_option *option) {
    if (option->kind == CLI_GROUP) {
        fputs(".PP\n.B ", out);
        print_plain(out, option->name);
        fputc('\n', out);
    }
    if (option->help == NULL) return;
    fputs(".TP\n\\fB\\-\\-", out);
    print_plain(out, option->name);
    fputs("\\fR", out);
    if (option->value != NULL) {
        fputs(" \\fI", out);
        print_plain(out, option->value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_plain(out, option->help);
    fputc('\n', out);
}

static void print_verb(FILE *out, const cli_verb *verb) {
    fprintf(out, ".SS yoke %s%s%s", verb->name, verb->option_count > 0 ? " [options]" : "",
            verb->operands != NULL ? " " : "");
    if (verb->operands != NULL) print_plain(out, verb->operands);
    fprintf(out, "\n%c", toupper((unsigned char)verb->summary[0]));
    print_plain(out, verb->summary + 1);
    fputs(".\n", out);
    for (int i = 0; i < verb->option_count; i++)
        print_option(out, &verb->options[i]);
    if (verb->more != NULL || verb->print_more != NULL) fputs(".PP\n", out);
    if (verb->more != NULL) print_text(out, verb->more);
    if (verb->print_more != NULL) print_written(out, verb->print_more);
}

void cli_print_manual(FILE *out) {
    fprintf(out,
            ".\\\" Printed by yoke help \\-\\-man\n"
            ".TH YOKE 1 \"\" \"Yoke %s\" \"User Commands\"\n"
            ".nh\n.ad l\n"
            ".SH NAME\nyoke \\- data\\-parallel training of one model on many devices\n"
            ".SH SYNOPSIS\n\\fByoke\\fR \\fIVERB\\fR [options]\n.SH DESCRIPTION\n",
            yoke_version());
    print_written(out, cli_print_overview);
    fputs(".SH VERBS\nAn option takes its value as the next word or behind an equals sign. Every "
          "verb explains itself: \\fB\\-\\-help\\fR.\n",
          out);
    const cli_verb *verb;
    for (int i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        print_verb(out, verb);
    fputs(".SH EXIT STATUS\n", out);
    print_written(out, cli_print_exit_codes);
}
