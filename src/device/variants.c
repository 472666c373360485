/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a GPU's variants. */
#include "device/variants.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    yoke_variant variant;
    bool confirmed; /* true: every GPU takes it, and its name stays one that a list may have */
} table[] = {
    {"mapped", YOKE_VARIANT_MAPPED, false},
    {"decode", YOKE_VARIANT_DECODE, false},
};
enum { COUNT = sizeof table / sizeof table[0] };

unsigned yoke_variants_confirmed(void) {
    unsigned variants = 0;
    for (int i = 0; i < COUNT; i++)
        if (table[i].confirmed) variants |= (unsigned)table[i].variant;
    return variants;
}

static bool is_name(const char *name, const char *text, size_t length) {
    return strncmp(name, text, length) == 0 && name[length] == '\0';
}

yoke_status yoke_variants_parse(unsigned *variants, const char *text, const char *list) {
    *variants = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, "+");
        bool all = is_name("all", at, length), found = all;
        for (int i = 0; i < COUNT; i++) {
            if (!all && !is_name(table[i].name, at, length)) continue;
            *variants |= (unsigned)table[i].variant;
            found = true;
        }
        if (!found) {
            char known[YOKE_VARIANTS_BYTES];
            yoke_variants_write(~0u, known, sizeof known);
            return FAIL(
                YOKE_ERROR_ARGUMENT,
                "device list \"%s\": \"%.*s\" is not a variant; \"+all\", or some of \"%s\"", list,
                (int)length, at, known);
        }
        at += length;
        if (*at == '\0') return YOKE_OK;
    }
}

void yoke_variants_write(unsigned variants, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < COUNT && length < size; i++)
        if (variants & (unsigned)table[i].variant)
            length += (size_t)snprintf(text + length, size - length, "+%s", table[i].name);
}
