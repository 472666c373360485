/* SPDX-License-Identifier: Apache-2.0 */
/* Writes HTML and SVG that are well-formed XML too: elements close in order, texts and attributes
 * are escaped, numbers have a point in every locale. */
#ifndef REPORT_MARKUP_H
#define REPORT_MARKUP_H

#include <stdbool.h>
#include <stddef.h>

#define YOKE_MARKUP_DEPTH 32

typedef struct yoke_markup {
    char *text; /* written so far, NUL-terminated; NULL: nothing yet */
    size_t length, capacity;
    const char *open[YOKE_MARKUP_DEPTH]; /* names of the open elements; borrowed */
    int depth;
    bool in_tag; /* attributes may follow */
    bool failed; /* out of memory or nested too deep: text is incomplete */
} yoke_markup;

/* Frees the text; takes a zeroed struct. */
void yoke_markup_end(yoke_markup *out);

void yoke_markup_open(yoke_markup *out, const char *element);
void yoke_markup_close(yoke_markup *out);
/* Follow yoke_markup_open at once. number: at most two decimals. */
void yoke_markup_attribute(yoke_markup *out, const char *name, const char *value);
void yoke_markup_number(yoke_markup *out, const char *name, double value);
/* An attribute in parts; the parts are not escaped. */
void yoke_markup_path_begin(yoke_markup *out); /* d=" */
void yoke_markup_path_add(yoke_markup *out, const char *part);
void yoke_markup_path_end(yoke_markup *out);
/* Texts may hold any bytes; those that XML does not allow become U+FFFD. */
void yoke_markup_text(yoke_markup *out, const char *text);
void yoke_markup_format(yoke_markup *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* An element with a text and, unless NULL, a class. */
void yoke_markup_element(yoke_markup *out, const char *element, const char *class_name,
                         const char *text);
/* As it is: a style sheet, a doctype. */
void yoke_markup_raw(yoke_markup *out, const char *text);

#define YOKE_NUMBER_BYTES 32
/* All return `text`. decimal: rounded, without closing zeros. number: three significant digits, as
 * people read them ("0.0123", "41.3", "12345"). scientific: likewise, below 0.001 and from a
 * million as "1.23e-7". A value that is not finite gives "-". */
const char *yoke_decimal(double value, int decimals, char text[YOKE_NUMBER_BYTES]);
const char *yoke_number(double value, char text[YOKE_NUMBER_BYTES]);
const char *yoke_scientific(double value, char text[YOKE_NUMBER_BYTES]);

#endif
