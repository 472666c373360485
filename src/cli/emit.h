/* Writes one JSON object to a stream: commas, escapes and numbers are its business. Numbers that
 * are not finite become null. key NULL: an element of a list, or the outermost value. */
#ifndef CLI_EMIT_H
#define CLI_EMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct emit {
    FILE *out;
    int depth;
    bool comma[16];
} emit;

void emit_begin(emit *json, FILE *out);
void emit_end(emit *json);                                 /* the newline */
void emit_open(emit *json, const char *key, char bracket); /* '{' or '[' */
void emit_close(emit *json, char bracket);                 /* '}' or ']' */
void emit_text(emit *json, const char *key, const char *value);
void emit_real(emit *json, const char *key, double value);
void emit_integer(emit *json, const char *key, int64_t value);
void emit_boolean(emit *json, const char *key, bool value);
void emit_hash(emit *json, const char *key, uint64_t value); /* "0123456789abcdef" */

#endif
