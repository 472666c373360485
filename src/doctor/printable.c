/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor/printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

static uint32_t code_of(const unsigned char *text, size_t count) {
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = text[0] & masks[count];
    for (size_t i = 1; i < count; i++)
        code = code << 6 | (text[i] & 0x3f);
    return code;
}

static bool steers(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || code == 0x2028 || code == 0x2029 ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

void doctor_copy_printable(char *to, size_t size, const char *name) {
    size_t used = 0;
    while (*name != '\0') {
        size_t count = yoke_text_utf8_bytes(name);
        uint32_t code = count > 0 ? code_of((const unsigned char *)name, count) : 0;
        bool escape = count == 0 || steers(code);
        char piece[16];
        if (escape)
            snprintf(piece, sizeof piece, "\\u%04x", count == 0 ? (unsigned char)*name : code);
        else
            snprintf(piece, sizeof piece, "%.*s", (int)count, name);
        size_t length = strlen(piece);
        if (used + length >= size) break;
        memcpy(to + used, piece, length);
        used += length;
        name += count == 0 ? 1 : count;
    }
    to[used] = '\0';
}
