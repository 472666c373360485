/* SPDX-License-Identifier: Apache-2.0 */
/* Texts on a terminal. */
#include "cli/lesson/lesson_text.h"

#include <string.h>

#include "base/base.h"
#include "cli/cli.h"

#define COLUMNS 79
#define WIDEST 6 /* columns of a character: \u202E */

void lesson_print_wrapped(FILE *out, const char *text, int indent) {
    int column = 0;
    while (*(text += strspn(text, " ")) != '\0') {
        int length = (int)strcspn(text, " ");
        if (column > 0 && indent + column + 1 + length > COLUMNS) {
            fputc('\n', out);
            column = 0;
        }
        if (column == 0)
            fprintf(out, "%*s%.*s", indent, "", length, text);
        else
            fprintf(out, " %.*s", length, text);
        column += length + (column > 0);
        text += length;
    }
    fputc('\n', out);
}

void lesson_print_name(FILE *out, const char *name, int width, int most) {
    int used = 0;
    while (*name != '\0') {
        if (used + WIDEST + 3 > most && strlen(name) > (size_t)(most - used)) {
            used += fprintf(out, "...");
            break;
        }
        used += cli_print_character(out, &name);
    }
    fprintf(out, "%*s", used < width ? width - used : 0, "");
}
