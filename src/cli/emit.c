/* Prints as it goes: nothing is kept but where commas are due. */
#include "emit.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

void emit_begin(emit *json, FILE *out) {
    *json = (emit){.out = out};
}

void emit_end(emit *json) {
    assert(json->depth == 0);
    fputc('\n', json->out);
}

static void print_quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

/* The comma that is due, and the key. */
static void lead(emit *json, const char *key) {
    if (json->comma[json->depth]) fputc(',', json->out);
    json->comma[json->depth] = true;
    if (key == NULL) return;
    print_quoted(json->out, key);
    fputc(':', json->out);
}

void emit_open(emit *json, const char *key, char bracket) {
    lead(json, key);
    fputc(bracket, json->out);
    json->depth++;
    assert(json->depth < (int)sizeof json->comma);
    json->comma[json->depth] = false;
}

void emit_close(emit *json, char bracket) {
    json->depth--;
    fputc(bracket, json->out);
}

void emit_text(emit *json, const char *key, const char *value) {
    lead(json, key);
    print_quoted(json->out, value);
}

/* The fewest digits that read back as the same number. */
void emit_real(emit *json, const char *key, double value) {
    char text[32] = "null";
    for (int digits = 6; isfinite(value) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    lead(json, key);
    fputs(text, json->out);
}

void emit_integer(emit *json, const char *key, int64_t value) {
    lead(json, key);
    fprintf(json->out, "%" PRId64, value);
}

void emit_boolean(emit *json, const char *key, bool value) {
    lead(json, key);
    fputs(value ? "true" : "false", json->out);
}

void emit_hash(emit *json, const char *key, uint64_t value) {
    lead(json, key);
    fprintf(json->out, "\"%016" PRIx64 "\"", value);
}
