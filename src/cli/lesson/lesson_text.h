/* SPDX-License-Identifier: Apache-2.0 */
/* Texts on a terminal. */
#ifndef CLI_LESSON_TEXT_H
#define CLI_LESSON_TEXT_H

#include <stdio.h>

/* Prints a paragraph in lines of at most 79 columns, each behind `indent` spaces. */
void lesson_print_wrapped(FILE *out, const char *text, int indent);
/* Prints a name that somebody chose, padded to `width` columns: control characters, what turns the
 * direction of text and bytes that are not UTF-8 as \x1b or \u202E. One that takes more than some
 * `most` columns ends in "...". */
void lesson_print_name(FILE *out, const char *name, int width, int most);

#endif
