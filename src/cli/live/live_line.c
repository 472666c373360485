/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/live/live_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "base/base.h"

#define RESET "\033[0m"

live_line live_line_begin(char *text, int columns, live_style style) {
    text[0] = '\0';
    return (live_line){.text = text, .left = columns, .style = style};
}

/* There is always room for the reset and the final zero. */
static bool append(live_line *line, const char *bytes, size_t count) {
    if (line->bytes + count + sizeof RESET > LIVE_LINE_BYTES) return false;
    memcpy(line->text + line->bytes, bytes, count);
    line->bytes += count;
    line->text[line->bytes] = '\0';
    return true;
}

/* What follows on the terminal is cleared, so that spaces need not be sent. */
void live_line_end(live_line *line) {
    while (line->bytes > 0 && line->text[line->bytes - 1] == ' ')
        line->text[--line->bytes] = '\0';
    if (!line->is_styled) return;
    memcpy(line->text + line->bytes, RESET, sizeof RESET);
    line->bytes += sizeof RESET - 1;
    line->is_styled = false;
}

void live_line_set(live_line *line, live_attribute attribute) {
    char code[16];
    if (!line->style.color || (attribute == LIVE_PLAIN && !line->is_styled)) return;
    int length = snprintf(code, sizeof code, "\033[%dm", (int)attribute);
    if (append(line, code, (size_t)length)) line->is_styled = attribute != LIVE_PLAIN;
}

/* Columns of a UTF-8 character in this locale; -1: it is none, or cannot be shown. */
static int columns_of(const char *character, size_t bytes) {
    wchar_t wide;
    mbstate_t state = {0};
    if (mbrtowc(&wide, character, bytes, &state) != bytes) return -1;
    return wcwidth(wide);
}

void live_line_put(live_line *line, const char *text) {
    while (*text != '\0' && !line->is_full) {
        size_t bytes = yoke_text_utf8_bytes(text);
        bool is_ascii = (unsigned char)*text < 0x80;
        int columns = is_ascii ? (*text >= 0x20 && *text != 0x7f ? 1 : -1) : -1;
        if (!is_ascii && bytes > 0 && line->style.unicode) columns = columns_of(text, bytes);
        const char *shown = columns < 0 ? "?" : text;
        size_t shown_bytes = columns < 0 ? 1 : bytes;
        columns = columns < 0 ? 1 : columns;
        line->is_full = columns > line->left || !append(line, shown, shown_bytes);
        if (line->is_full) return;
        line->left -= columns;
        text += bytes > 0 ? bytes : 1;
    }
}

void live_line_print(live_line *line, const char *format, ...) {
    char text[2 * LIVE_COLUMNS_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    live_line_put(line, text);
}

void live_line_add(live_line *line, const char *text) {
    if ((int)strlen(text) > line->left) line->is_full = true;
    live_line_put(line, text);
}

void live_line_repeat(live_line *line, const char *character, int count) {
    for (int i = 0; i < count; i++)
        live_line_put(line, character);
}

void live_line_field(live_line *line, const char *text, int columns) {
    int behind = line->left > columns ? line->left - columns : 0;
    if (line->is_full) return;
    line->left -= behind;
    live_line_put(line, text);
    line->is_full = false;
    live_line_repeat(line, " ", line->left);
    line->left += behind;
}
