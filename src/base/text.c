/* SPDX-License-Identifier: Apache-2.0 */
/* Strict numbers and nearest names, independent of the locale that the host program sets. */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define WORD_MAX 48

bool yoke_text_integer(const char *text, int64_t low, int64_t high, int64_t *value) {
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (!isdigit((unsigned char)digits[0])) return false;
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (*end != '\0' || errno == ERANGE || number < low || number > high) return false;
    *value = number;
    return true;
}

/* strtod with a decimal point, never a comma. */
static bool parse_real(const char *text, double *value) {
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0) return false;
    char *end;
    *value = strtod_l(text, &end, plain);
    freelocale(plain);
    return *end == '\0' && end != text;
}

bool yoke_text_real(const char *text, double low, double high, double *value) {
    /* strtod would accept blanks, hexadecimal, "inf" and "nan". */
    if (text[strspn(text, "0123456789+-.eE")] != '\0') return false;
    double number;
    if (!parse_real(text, &number)) return false;
    if (!isfinite(number) || number < low || number > high) return false;
    *value = number;
    return true;
}

const char *yoke_text_of_real(double value, char *buffer, size_t size) {
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    locale_t host = plain != (locale_t)0 ? uselocale(plain) : (locale_t)0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, size, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value) break;
    }
    if (host != (locale_t)0) uselocale(host);
    if (plain != (locale_t)0) freelocale(plain);
    return buffer;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* The number of edits (insert, delete, replace, swap neighbours) that turn `a` into `b`: optimal
 * string alignment, keeping three rows of the table. Both words are shorter than WORD_MAX. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t rows[3][WORD_MAX];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i - 1) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = smaller(replaced, 1 + smaller(row[j - 1], above[j]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *yoke_text_nearest(const char *word, const char *const *names, size_t count) {
    const char *nearest = NULL;
    size_t best = WORD_MAX, word_length = strlen(word);
    if (word_length >= WORD_MAX) return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(names[i]);
        if (length >= WORD_MAX) continue;
        size_t distance = edit_distance(word, word_length, names[i], length);
        size_t longest = length > word_length ? length : word_length;
        /* With half of the letters wrong it is another word, not a typing error. */
        if (distance < best && 2 * distance < longest) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

size_t yoke_text_utf8_bytes(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return 1;
    size_t bytes = s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0; /* also stops at the closing NUL */
    }
    if (s[0] == 0xE0 && s[1] < 0xA0) return 0; /* overlong */
    if (s[0] == 0xED && s[1] > 0x9F) return 0; /* surrogate */
    if (s[0] == 0xF0 && s[1] < 0x90) return 0; /* overlong */
    if (s[0] == 0xF4 && s[1] > 0x8F) return 0; /* beyond U+10FFFF */
    return bytes;
}

uint32_t yoke_text_code(const char *text, size_t bytes) {
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)text[0] & masks[bytes];
    for (size_t i = 1; i < bytes; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    return code;
}

bool yoke_text_steers(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

void yoke_text_make_printable(char *text) {
    char *to = text;
    while (*text != '\0') {
        size_t bytes = yoke_text_utf8_bytes(text), count = bytes > 0 ? bytes : 1;
        bool steers = bytes > 0 && yoke_text_steers(yoke_text_code(text, bytes));
        if (steers)
            *to = '?';
        else
            memmove(to, text, count);
        to += steers ? 1 : count;
        text += count;
    }
    *to = '\0';
}

const char *yoke_text_bytes(double bytes, char *buffer, size_t size) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    /* 1023.95 KiB would print as "1024.0 KiB". */
    for (; unit < 4 && bytes >= (unit == 0 ? 1024.0 : 1023.95); unit++)
        bytes /= 1024;
    snprintf(buffer, size, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return buffer;
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

bool yoke_text_append(char **text, size_t *length, size_t *capacity, const char *bytes,
                      size_t count) {
    size_t needed = *length + count + 1, larger = *capacity > 0 ? *capacity : 256;
    while (larger < needed)
        larger *= 2;
    char *grown = larger > *capacity ? yoke_realloc(*text, larger) : *text;
    if (grown == NULL) return false;
    memcpy(grown + *length, bytes, count);
    *text = grown;
    *length += count;
    *capacity = larger;
    grown[*length] = '\0';
    return true;
}
