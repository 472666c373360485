/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a GPU's ways. */
#include "device/ways.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    yoke_way way;
    bool confirmed; /* true: every GPU takes it, and its name stays one that a list may have */
} table[] = {
    {"mapped", YOKE_WAY_MAPPED, false},
    {"decode", YOKE_WAY_DECODE, false},
};
enum { COUNT = sizeof table / sizeof table[0] };

unsigned yoke_ways_confirmed(void) {
    unsigned ways = 0;
    for (int i = 0; i < COUNT; i++)
        if (table[i].confirmed) ways |= (unsigned)table[i].way;
    return ways;
}

static bool is_name(const char *name, const char *text, size_t length) {
    return strncmp(name, text, length) == 0 && name[length] == '\0';
}

yoke_status yoke_ways_parse(unsigned *ways, const char *text, const char *list) {
    *ways = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, "+");
        bool all = is_name("all", at, length), found = all;
        for (int i = 0; i < COUNT; i++) {
            if (!all && !is_name(table[i].name, at, length)) continue;
            *ways |= (unsigned)table[i].way;
            found = true;
        }
        if (!found) {
            char known[YOKE_WAYS_BYTES];
            yoke_ways_write(~0u, known, sizeof known);
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "device list \"%s\": \"%.*s\" is not a way to compute; \"+all\", or some "
                        "of \"%s\"",
                        list, (int)length, at, known);
        }
        at += length;
        if (*at == '\0') return YOKE_OK;
    }
}

void yoke_ways_write(unsigned ways, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < COUNT && length < size; i++)
        if (ways & (unsigned)table[i].way)
            length += (size_t)snprintf(text + length, size - length, "+%s", table[i].name);
}
