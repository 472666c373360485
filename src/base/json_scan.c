/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of RFC 8259. Like jansson it refuses texts that are not UTF-8, a NUL in a text, and
 * integers that 64 bits cannot hold. */
#include "base/json_scan.h"

#include <string.h>

#include "base/text.h"

static bool broken(yoke_json_scan *scan, const char *error) {
    if (scan->error == NULL) scan->error = error;
    return false;
}

/* -1 at the end. */
static int peek(const yoke_json_scan *scan) {
    return scan->next < scan->bytes ? (unsigned char)scan->text[scan->next] : -1;
}

/* The first character of the next token. */
static int skip_blanks(yoke_json_scan *scan) {
    int byte = peek(scan);
    while (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r') {
        scan->next++;
        byte = peek(scan);
    }
    return byte;
}

bool yoke_json_scan_mark(yoke_json_scan *scan, char mark) {
    if (scan->error != NULL) return false;
    int byte = skip_blanks(scan);
    if (byte < 0) return broken(scan, "premature end of input");
    if (byte != mark) return false;
    scan->next++;
    return true;
}

bool yoke_json_scan_more(yoke_json_scan *scan, size_t elements, char closing) {
    if (yoke_json_scan_mark(scan, closing)) return false;
    if (elements == 0) return scan->error == NULL;
    return yoke_json_scan_mark(scan, ',') ||
           broken(scan, closing == ']' ? "',' or ']' expected" : "',' or '}' expected");
}

/* Texts. */

static bool read_hex(yoke_json_scan *scan, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++) {
        int byte = peek(scan);
        int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                    : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                    : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                                 : -1;
        if (digit < 0) return broken(scan, "\\u without four hexadecimal digits");
        *code = *code << 4 | (uint32_t)digit;
        scan->next++;
    }
    return true;
}

/* Reads the hexadecimal digits behind "\u"; two surrogates give one character. */
static bool read_code(yoke_json_scan *scan, uint32_t *code) {
    uint32_t low;
    if (!read_hex(scan, code)) return false;
    if (*code == 0) return broken(scan, "\\u0000 is not allowed");
    if (*code < 0xd800 || *code > 0xdfff) return true;
    bool pair = *code < 0xdc00 && scan->bytes - scan->next >= 2 &&
                memcmp(scan->text + scan->next, "\\u", 2) == 0;
    if (!pair) return broken(scan, "a lone surrogate");
    scan->next += 2;
    if (!read_hex(scan, &low)) return false;
    if (low < 0xdc00 || low > 0xdfff) return broken(scan, "a lone surrogate");
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

/* Writes the UTF-8 of a character, which is shorter than its escape. */
static char *write_code(char *to, uint32_t code) {
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        if (code < 0x10000) {
            *to++ = (char)(0xe0 | code >> 12);
        } else {
            *to++ = (char)(0xf0 | code >> 18);
            *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        }
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* Reads the escape behind a backslash. NULL: error is set. */
static char *read_escape(yoke_json_scan *scan, char *to) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    uint32_t code;
    int byte = peek(scan);
    const char *found = byte > 0 ? strchr(names, byte) : NULL;
    if (found != NULL) {
        scan->next++;
        *to++ = values[found - names];
        return to;
    }
    if (byte != 'u') {
        (void)broken(scan, "invalid escape");
        return NULL;
    }
    scan->next++;
    return read_code(scan, &code) ? write_code(to, code) : NULL;
}

/* The length of the UTF-8 sequence here, or 0. The text may end within a sequence. */
static size_t measure_sequence(const yoke_json_scan *scan) {
    char sequence[5] = "";
    size_t left = scan->bytes - scan->next;
    if ((unsigned char)scan->text[scan->next] < 0x80) return 1;
    memcpy(sequence, scan->text + scan->next, left < 4 ? left : 4);
    return yoke_text_utf8_bytes(sequence);
}

bool yoke_json_scan_text(yoke_json_scan *scan, const char **text) {
    if (!yoke_json_scan_mark(scan, '"')) return false;
    char *to = scan->text + scan->next;
    *text = to;
    for (;;) {
        int byte = peek(scan);
        if (byte < 0) return broken(scan, "premature end of input");
        if (byte < 0x20) return broken(scan, "a control character in a text");
        if (byte == '"') break;
        if (byte == '\\') {
            scan->next++;
            to = read_escape(scan, to);
            if (to == NULL) return false;
            continue;
        }
        size_t length = measure_sequence(scan);
        if (length == 0) return broken(scan, "a text is not UTF-8");
        memmove(to, scan->text + scan->next, length);
        to += length;
        scan->next += length;
    }
    scan->next++;
    *to = '\0';
    return true;
}

bool yoke_json_scan_key(yoke_json_scan *scan, const char **key) {
    if (!yoke_json_scan_text(scan, key)) return broken(scan, "a name in quotes expected");
    return yoke_json_scan_mark(scan, ':') || broken(scan, "':' expected");
}

/* Numbers. */

static bool skip_digits(yoke_json_scan *scan) {
    size_t begin = scan->next;
    while (peek(scan) >= '0' && peek(scan) <= '9')
        scan->next++;
    return scan->next > begin || broken(scan, "a digit expected");
}

/* Consumes a fraction and an exponent. Returns whether there was one. */
static bool skip_fraction(yoke_json_scan *scan) {
    size_t begin = scan->next;
    if (peek(scan) == '.') {
        scan->next++;
        (void)skip_digits(scan);
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        scan->next++;
        if (peek(scan) == '+' || peek(scan) == '-') scan->next++;
        (void)skip_digits(scan);
    }
    return scan->next > begin;
}

yoke_json_number yoke_json_scan_number(yoke_json_scan *scan, int64_t *integer, double *real) {
    char digits[400]; /* no double needs more than 309 before its point */
    *integer = 0;
    *real = 0;
    if (scan->error != NULL) return YOKE_JSON_NO_NUMBER;
    int byte = skip_blanks(scan);
    size_t begin = scan->next;
    if (byte != '-' && (byte < '0' || byte > '9')) return YOKE_JSON_NO_NUMBER;
    if (byte == '-') scan->next++;
    if (peek(scan) == '0')
        scan->next++;
    else
        (void)skip_digits(scan);
    bool is_real = skip_fraction(scan);
    size_t length = scan->next - begin;
    if (scan->error == NULL && length >= sizeof digits) (void)broken(scan, "too long a number");
    if (scan->error != NULL) return YOKE_JSON_NO_NUMBER;
    memcpy(digits, scan->text + begin, length);
    digits[length] = '\0';
    if (!is_real && !yoke_text_integer(digits, INT64_MIN, INT64_MAX, integer)) {
        (void)broken(scan, "too big integer");
        return YOKE_JSON_NO_NUMBER;
    }
    *real = (double)*integer;
    if (is_real && !yoke_text_real(digits, -1.7976931348623157e308, 1.7976931348623157e308, real)) {
        (void)broken(scan, "real number overflow");
        return YOKE_JSON_NO_NUMBER;
    }
    return is_real ? YOKE_JSON_REAL : YOKE_JSON_INTEGER;
}

bool yoke_json_scan_is_over(yoke_json_scan *scan) {
    if (scan->error != NULL) return false;
    return skip_blanks(scan) < 0 || broken(scan, "end of text expected");
}
