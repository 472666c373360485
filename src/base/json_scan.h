/* SPDX-License-Identifier: Apache-2.0 */
/* Reads untrusted JSON of a known form, token by token, in the memory of the text itself: the
 * caller asks for what may stand at the next place, and nothing is kept of what it did not ask for.
 * So a hostile text costs no memory beside its own, and nesting costs no stack. */
#ifndef BASE_JSON_SCAN_H
#define BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct yoke_json_scan {
    char *text; /* [bytes]; texts in it are unescaped in place */
    size_t bytes, next;
    const char *error; /* NULL, or why the text is no JSON; then every call is false */
} yoke_json_scan;

typedef enum yoke_json_number {
    YOKE_JSON_NO_NUMBER, /* something else stands here, or error is set */
    YOKE_JSON_INTEGER,
    YOKE_JSON_REAL
} yoke_json_number;

/* Consumes `mark`, one of {}[]:, if it is the next token. */
bool yoke_json_scan_mark(yoke_json_scan *scan, char mark);
/* Between elements: whether another comes. It consumes the comma, or the closing bracket.
 * elements: how many came. */
bool yoke_json_scan_more(yoke_json_scan *scan, size_t elements, char closing);
/* Consumes a text; *text ends with a NUL and lies in scan->text. */
bool yoke_json_scan_text(yoke_json_scan *scan, const char **text);
/* Consumes the text of a member's name and its colon. */
bool yoke_json_scan_key(yoke_json_scan *scan, const char **key);
/* Consumes a number. Out: *real, and *integer of an INTEGER. */
yoke_json_number yoke_json_scan_number(yoke_json_scan *scan, int64_t *integer, double *real);
/* Whether only blanks are left. */
bool yoke_json_scan_is_over(yoke_json_scan *scan);

#endif
