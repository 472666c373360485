/* SPDX-License-Identifier: Apache-2.0 */
/* Texts on a terminal. */
#include "cli/lesson/lesson_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"

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

static uint32_t code_point(const char *text, size_t bytes) {
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)text[0] & masks[bytes];
    for (size_t i = 1; i < bytes; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    return code;
}

/* Control characters, marks and embeddings of a direction, invisible characters and line ends. */
static bool is_hidden(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0xfeff ||
           (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f);
}

/* One character of it. Returns its columns. */
static int print_character(FILE *out, const char *name, size_t bytes) {
    uint32_t code = bytes > 0 ? code_point(name, bytes) : 0;
    if (bytes == 0) return fprintf(out, "\\x%02x", (unsigned char)*name);
    if (is_hidden(code)) return fprintf(out, code < 0x100 ? "\\x%02x" : "\\u%04X", (unsigned)code);
    return fwrite(name, 1, bytes, out) > 0;
}

void lesson_print_name(FILE *out, const char *name, int width, int most) {
    int used = 0;
    while (*name != '\0') {
        size_t bytes = yoke_text_utf8_bytes(name);
        if (used + WIDEST + 3 > most && strlen(name) > (size_t)(most - used)) {
            used += fprintf(out, "...");
            break;
        }
        used += print_character(out, name, bytes);
        name += bytes > 0 ? bytes : 1;
    }
    fprintf(out, "%*s", used < width ? width - used : 0, "");
}
