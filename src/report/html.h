/* SPDX-License-Identifier: Apache-2.0 */
/* Writes HTML that is well-formed XML too: texts are escaped. Characters that a reader would not
 * see, or that turn the line around, show as texts. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include <stdbool.h>
#include <stddef.h>

typedef struct yoke_html {
    char *text; /* written so far, NUL-terminated; NULL: nothing yet */
    size_t length, capacity;
    bool failed; /* out of memory: text is incomplete */
} yoke_html;

/* Frees the text; takes a zeroed struct. */
void yoke_html_end(yoke_html *out);
/* As it is: a style sheet, a script. */
void yoke_html_raw(yoke_html *out, const char *bytes, size_t count);
/* The format is markup; each %s is a text of any bytes, which is escaped. It knows no other. */
void yoke_html_write(yoke_html *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A text as a page shows it, in HTML and in JSON alike, but not escaped: bytes that are no
 * characters become U+FFFD, controls of the direction of writing become "\u202E". */
void yoke_html_shown(yoke_html *out, const char *text);
/* JSON within an element <script>, which nothing in it can end. */
void yoke_html_json(yoke_html *out, const char *json);

#endif
