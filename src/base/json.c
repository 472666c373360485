/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON. Texts may hold any bytes; those that are not UTF-8 become U+FFFD. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

#define DEPTH_MAX ((int)(sizeof((yoke_json *)0)->comma / sizeof(bool)))

void yoke_json_begin(yoke_json *json) {
    *json = (yoke_json){0};
}

void yoke_json_end(yoke_json *json) {
    yoke_free(json->text);
    *json = (yoke_json){0};
}

static void append(yoke_json *json, const char *bytes, size_t count) {
    json->failed = json->failed ||
                   !yoke_text_append(&json->text, &json->length, &json->capacity, bytes, count);
}

static void append_quoted(yoke_json *json, const char *value) {
    append(json, "\"", 1);
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        size_t bytes = yoke_text_utf8_bytes((const char *)s);
        if (bytes == 0) {
            append(json, "\\ufffd", 6);
            s++;
        } else if (*s < 0x20 || *s == 0x7f) {
            char escape[8];
            append(json, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", *s++));
        } else {
            if (*s == '"' || *s == '\\') append(json, "\\", 1);
            append(json, (const char *)s, bytes);
            s += bytes;
        }
    }
    append(json, "\"", 1);
}

/* Writes what precedes a value: a comma unless the value is the first of its list or object, and
 * its key. */
static void lead(yoke_json *json, const char *key) {
    if (json->comma[json->depth]) append(json, ",", 1);
    json->comma[json->depth] = true;
    if (key == NULL) return;
    append_quoted(json, key);
    append(json, ":", 1);
}

void yoke_json_open(yoke_json *json, const char *key, char bracket) {
    lead(json, key);
    append(json, &bracket, 1);
    if (json->depth + 1 >= DEPTH_MAX) {
        json->failed = true;
        return;
    }
    json->comma[++json->depth] = false;
}

void yoke_json_close(yoke_json *json, char bracket) {
    if (json->depth > 0) json->depth--;
    append(json, &bracket, 1);
}

void yoke_json_text(yoke_json *json, const char *key, const char *value) {
    if (value == NULL) {
        yoke_json_null(json, key);
        return;
    }
    lead(json, key);
    append_quoted(json, value);
}

void yoke_json_real(yoke_json *json, const char *key, double value) {
    if (!isfinite(value)) {
        yoke_json_null(json, key);
        return;
    }
    char text[32];
    yoke_text_of_real(value, text, sizeof text);
    lead(json, key);
    append(json, text, strlen(text));
    if (strpbrk(text, ".e") == NULL) append(json, ".0", 2);
}

void yoke_json_integer(yoke_json *json, const char *key, int64_t value) {
    char text[24];
    int length = snprintf(text, sizeof text, "%lld", (long long)value);
    lead(json, key);
    append(json, text, (size_t)length);
}

void yoke_json_hash(yoke_json *json, const char *key, uint64_t value) {
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    yoke_json_text(json, key, text);
}

void yoke_json_boolean(yoke_json *json, const char *key, bool value) {
    lead(json, key);
    append(json, value ? "true" : "false", value ? 4 : 5);
}

void yoke_json_null(yoke_json *json, const char *key) {
    lead(json, key);
    append(json, "null", 4);
}
