/* SPDX-License-Identifier: Apache-2.0 */
/* The one writer of JSON: it places commas, escapes texts and formats numbers. NaN and infinities
 * become null. json_scan.h reads the JSON of weights, jansson that of other files. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct yoke_json {
    char *text; /* written so far, NUL-terminated */
    size_t length, capacity;
    int depth;
    bool comma[32];
    bool failed; /* out of memory or nested too deep: text is incomplete */
} yoke_json;

void yoke_json_begin(yoke_json *json);
/* Frees the text; takes a zeroed struct. */
void yoke_json_end(yoke_json *json);

/* key NULL: an element of a list, or the outermost value. */
void yoke_json_open(yoke_json *json, const char *key, char bracket); /* '{' or '[' */
void yoke_json_close(yoke_json *json, char bracket);                 /* '}' or ']' */
void yoke_json_text(yoke_json *json, const char *key, const char *value);
void yoke_json_real(yoke_json *json, const char *key, double value);
void yoke_json_integer(yoke_json *json, const char *key, int64_t value);
void yoke_json_hash(yoke_json *json, const char *key, uint64_t value); /* "0123456789abcdef" */
void yoke_json_boolean(yoke_json *json, const char *key, bool value);
void yoke_json_null(yoke_json *json, const char *key);

#endif
