/* SPDX-License-Identifier: Apache-2.0 */
#include "data/text_tokens.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME_BYTES = 8 };

static void write_name(char *name, int byte) {
    bool printable = byte >= ' ' && byte <= '~';
    if (byte == '\\')
        snprintf(name, NAME_BYTES, "\\\\");
    else if (printable)
        snprintf(name, NAME_BYTES, "%c", byte);
    else
        snprintf(name, NAME_BYTES, "\\x%02x", (unsigned)byte);
}

yoke_status yoke_tokens_number(yoke_tokens *tokens, yoke_dataset *dataset,
                               const char *const *reserved, int reserved_count) {
    int count = reserved_count;
    for (int byte = 0; byte < YOKE_BYTES; byte++)
        if (tokens->occurs[byte]) tokens->of[byte] = (uint16_t)count++;
    size_t bytes = (size_t)count * (sizeof(char *) + NAME_BYTES);
    char **names = yoke_calloc(1, bytes > 0 ? bytes : 1);
    if (names == NULL) return FAIL_MEMORY(bytes, "the names of a text's bytes");
    dataset->owned[2] = names;
    dataset->class_names = (const char **)names;
    dataset->classes = count;
    char *next = (char *)(names + count);
    for (int i = 0; i < reserved_count; i++)
        dataset->class_names[i] = reserved[i];
    for (int byte = 0; byte < YOKE_BYTES; byte++) {
        if (!tokens->occurs[byte]) continue;
        write_name(next, byte);
        names[tokens->of[byte]] = next;
        next += NAME_BYTES;
    }
    return YOKE_OK;
}
