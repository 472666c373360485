/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one line of a fixed width: what does not fit is left out. */
#ifndef CLI_LIVE_LINE_H
#define CLI_LIVE_LINE_H

#include <stdbool.h>
#include <stddef.h>

#define LIVE_COLUMNS_MAX 200
/* A cell has at most 4 bytes of a character; the rest is for styles. */
#define LIVE_LINE_BYTES (LIVE_COLUMNS_MAX * 4 + 400)

typedef struct live_style {
    bool unicode; /* UTF-8; otherwise ASCII alone */
    bool color;
} live_style;

/* Attributes of the terminal, as numbers of SGR (ECMA-48). */
typedef enum live_attribute {
    LIVE_PLAIN = 0,
    LIVE_BOLD = 1,
    LIVE_FAINT = 2,
    LIVE_GREEN = 32,
    LIVE_YELLOW = 33,
    LIVE_CYAN = 36
} live_attribute;

typedef struct live_line {
    char *text; /* [LIVE_LINE_BYTES] */
    size_t bytes;
    int left; /* columns */
    live_style style;
    bool is_styled;
    bool is_full; /* something was left out, and so is what follows */
} live_line;

live_line live_line_begin(char *text, int columns, live_style style);
/* Resets attributes, and drops spaces at the end. */
void live_line_end(live_line *line);
/* Control characters, and what the style cannot show, become '?'. Wide characters count twice. */
void live_line_put(live_line *line, const char *text);
void live_line_print(live_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* ASCII text, whole or not at all. */
void live_line_add(live_line *line, const char *text);
void live_line_repeat(live_line *line, const char *character, int count);
/* The text in exactly `columns`: cut, or filled with spaces. */
void live_line_field(live_line *line, const char *text, int columns);
void live_line_set(live_line *line, live_attribute attribute);

#endif
