/* SPDX-License-Identifier: Apache-2.0 */
#include "report/html.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

void yoke_html_end(yoke_html *out) {
    yoke_free(out->text);
    *out = (yoke_html){0};
}

void yoke_html_raw(yoke_html *out, const char *bytes, size_t count) {
    out->failed =
        out->failed || !yoke_text_append(&out->text, &out->length, &out->capacity, bytes, count);
}

static void append(yoke_html *out, const char *word) {
    yoke_html_raw(out, word, strlen(word));
}

/* Characters that XML 1.0 does not allow, even as references; DEL, U+FFFE and U+FFFF. */
static bool forbidden(uint32_t code) {
    bool control = code < 0x20 && code != '\t' && code != '\n' && code != '\r';
    return control || code == 0x7F || code == 0xFFFE || code == 0xFFFF;
}

/* How a page shows the first character of a text. Returns its bytes. */
static size_t show(const char *s, char shown[8]) {
    size_t bytes = yoke_text_utf8_bytes(s);
    uint32_t code = yoke_text_code(s, bytes); /* of no character: 0 */
    if (forbidden(code))
        strcpy(shown, "\xEF\xBF\xBD"); /* U+FFFD */
    else if (code >= 0x80 && yoke_text_steers(code))
        snprintf(shown, 8, "\\u%04X", (unsigned)code & 0xFFFF);
    else
        snprintf(shown, 8, "%.*s", (int)bytes, s);
    return bytes > 0 ? bytes : 1;
}

void yoke_html_shown(yoke_html *out, const char *text) {
    char shown[8];
    for (const char *s = text; *s != '\0'; append(out, shown))
        s += show(s, shown);
}

static void append_escaped(yoke_html *out, const char *text) {
    char shown[8];
    for (const char *s = text; *s != '\0';) {
        s += show(s, shown);
        append(out, *shown == '<'   ? "&lt;"
                    : *shown == '>' ? "&gt;"
                    : *shown == '&' ? "&amp;"
                    : *shown == '"' ? "&quot;"
                                    : shown);
    }
}

void yoke_html_write(yoke_html *out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    for (const char *s = format, *end; *s != '\0'; s = end) {
        end = strstr(s, "%s");
        if (end != NULL && end == s) append_escaped(out, va_arg(arguments, const char *));
        if (end == NULL) end = s + strlen(s);
        yoke_html_raw(out, s, (size_t)(end - s));
        if (end == s) end += 2;
    }
    va_end(arguments);
}

void yoke_html_json(yoke_html *out, const char *json) {
    for (const char *s = json; *s != '\0'; s++) {
        char escape[8];
        if (strchr("<>&", *s) != NULL)
            yoke_html_raw(out, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", *s));
        else
            yoke_html_raw(out, s, 1);
    }
}
