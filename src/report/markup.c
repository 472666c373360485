/* SPDX-License-Identifier: Apache-2.0 */
#include "report/markup.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define FORMAT_BYTES 1024

void yoke_markup_end(yoke_markup *out) {
    yoke_free(out->text);
    *out = (yoke_markup){0};
}

static void append(yoke_markup *out, const char *bytes, size_t count) {
    size_t needed = out->length + count + 1;
    if (out->failed) return;
    if (needed > out->capacity) {
        size_t capacity = out->capacity > 0 ? out->capacity : 4096;
        while (capacity < needed)
            capacity *= 2;
        char *text = yoke_realloc(out->text, capacity);
        if (text == NULL) {
            out->failed = true;
            return;
        }
        out->text = text;
        out->capacity = capacity;
    }
    memcpy(out->text + out->length, bytes, count);
    out->length += count;
    out->text[out->length] = '\0';
}

static void append_word(yoke_markup *out, const char *word) {
    append(out, word, strlen(word));
}

/* Characters that XML 1.0 does not allow, even as references; DEL, U+FFFE and U+FFFF. */
static bool forbidden(const char *s, size_t bytes) {
    unsigned char c = (unsigned char)*s;
    if (bytes == 3) return strncmp(s, "\xEF\xBF\xBE", 3) == 0 || strncmp(s, "\xEF\xBF\xBF", 3) == 0;
    return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
}

static void append_escaped(yoke_markup *out, const char *text) {
    for (const char *s = text; *s != '\0';) {
        size_t bytes = yoke_text_utf8_bytes(s);
        const char *instead = *s == '<'   ? "&lt;"
                              : *s == '>' ? "&gt;"
                              : *s == '&' ? "&amp;"
                              : *s == '"' ? "&quot;"
                                          : NULL;
        if (bytes == 0 || forbidden(s, bytes)) instead = "\xEF\xBF\xBD"; /* U+FFFD */
        if (instead != NULL)
            append_word(out, instead);
        else
            append(out, s, bytes);
        s += bytes > 0 ? bytes : 1;
    }
}

static void end_tag(yoke_markup *out) {
    if (out->in_tag) append(out, ">", 1);
    out->in_tag = false;
}

void yoke_markup_open(yoke_markup *out, const char *element) {
    end_tag(out);
    if (out->depth == YOKE_MARKUP_DEPTH) {
        out->failed = true;
        return;
    }
    append(out, "<", 1);
    append_word(out, element);
    out->open[out->depth++] = element;
    out->in_tag = true;
}

/* In HTML "<p/>" opens an element and "</meta>" is an error. */
static bool is_void(const char *element) {
    return strcmp(element, "meta") == 0 || strcmp(element, "br") == 0 ||
           strcmp(element, "img") == 0;
}

void yoke_markup_close(yoke_markup *out) {
    if (out->depth == 0) {
        out->failed = true;
        return;
    }
    const char *element = out->open[--out->depth];
    if (is_void(element) && out->in_tag) {
        append_word(out, "/>");
        out->in_tag = false;
        return;
    }
    end_tag(out);
    append_word(out, "</");
    append_word(out, element);
    append_word(out, ">");
}

void yoke_markup_attribute(yoke_markup *out, const char *name, const char *value) {
    append(out, " ", 1);
    append_word(out, name);
    append_word(out, "=\"");
    append_escaped(out, value);
    append(out, "\"", 1);
}

void yoke_markup_number(yoke_markup *out, const char *name, double value) {
    char text[YOKE_NUMBER_BYTES];
    yoke_markup_attribute(out, name, yoke_decimal(isfinite(value) ? value : 0, 2, text));
}

void yoke_markup_path_begin(yoke_markup *out) {
    append_word(out, " d=\"");
}

void yoke_markup_path_add(yoke_markup *out, const char *part) {
    append_word(out, part);
}

void yoke_markup_path_end(yoke_markup *out) {
    append(out, "\"", 1);
}

void yoke_markup_text(yoke_markup *out, const char *text) {
    end_tag(out);
    append_escaped(out, text);
}

void yoke_markup_format(yoke_markup *out, const char *format, ...) {
    char text[FORMAT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    yoke_markup_text(out, text);
}

void yoke_markup_element(yoke_markup *out, const char *element, const char *class_name,
                         const char *text) {
    yoke_markup_open(out, element);
    if (class_name != NULL) yoke_markup_attribute(out, "class", class_name);
    yoke_markup_text(out, text);
    yoke_markup_close(out);
}

void yoke_markup_raw(yoke_markup *out, const char *text) {
    end_tag(out);
    append_word(out, text);
}

/* Numbers, by integers: printf's point depends on the locale. */

static const char *decimal(double value, int decimals, bool trim, char text[YOKE_NUMBER_BYTES]) {
    static const int64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000};
    if (!isfinite(value)) return strcpy(text, "-");
    if (fabs(value) > 1e12) value = copysign(1e12, value);
    int64_t scale = powers[decimals], scaled = llround(fabs(value) * (double)scale);
    while (trim && decimals > 0 && scaled % 10 == 0) {
        scaled /= 10;
        scale = powers[--decimals];
    }
    const char *sign = value < 0 && scaled > 0 ? "-" : "";
    if (decimals == 0)
        snprintf(text, YOKE_NUMBER_BYTES, "%s%" PRId64, sign, scaled);
    else
        snprintf(text, YOKE_NUMBER_BYTES, "%s%" PRId64 ".%0*" PRId64, sign, scaled / scale,
                 decimals, scaled % scale);
    return text;
}

const char *yoke_decimal(double value, int decimals, char text[YOKE_NUMBER_BYTES]) {
    return decimal(value, decimals, true, text);
}

const char *yoke_number(double value, char text[YOKE_NUMBER_BYTES]) {
    double size = fabs(value);
    if (!(size > 0) || !isfinite(size)) return decimal(value, 0, false, text);
    int decimals = 2 - (int)floor(log10(size));
    return decimal(value, decimals < 0 ? 0 : decimals > 6 ? 6 : decimals, false, text);
}

const char *yoke_scientific(double value, char text[YOKE_NUMBER_BYTES]) {
    double size = fabs(value);
    if (!(size > 0) || !isfinite(size) || (size >= 1e-3 && size < 1e6))
        return yoke_number(value, text);
    int power = (int)floor(log10(size));
    if (round(size / pow(10, power - 2)) >= 1000) power++; /* 9.999e-8 */
    (void)yoke_decimal(value / pow(10, power), 2, text);
    size_t used = strlen(text);
    snprintf(text + used, YOKE_NUMBER_BYTES - used, "e%d", power);
    return text;
}
