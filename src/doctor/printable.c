/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor/printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

void doctor_copy_printable(char *to, size_t size, const char *name) {
    size_t used = 0;
    while (*name != '\0') {
        size_t count = yoke_text_utf8_bytes(name);
        uint32_t code = count > 0 ? yoke_text_code(name, count) : 0;
        bool escape = count == 0 || yoke_text_steers(code);
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
