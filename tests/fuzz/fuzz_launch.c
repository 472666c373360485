/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a launcher: lines "NAME=value" that anyone may have set. */
#include <stdio.h>

#include "fuzz/fuzz.h"
#include "yoke/distributed.h"

/* The value of a line; the lines are already apart, and two zeros end them. */
static const char *lookup(const char *name, void *payload) {
    size_t length = strlen(name);
    for (const char *line = payload; *line != '\0'; line += strlen(line) + 1)
        if (strncmp(line, name, length) == 0 && line[length] == '=') return line + length + 1;
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    yoke_rank_info info = {.struct_size = sizeof info};
    char *lines = malloc(size + 2);
    if (lines == NULL) abort();
    if (size > 0) memcpy(lines, data, size);
    lines[size] = lines[size + 1] = '\0';
    for (size_t i = 0; i < size; i++)
        if (lines[i] == '\n') lines[i] = '\0';
    yoke_status status = yoke_rank_detect(&info, lookup, lines);
    if (status == YOKE_OK &&
        (info.rank < 0 || info.world < 1 || info.rank >= info.world || info.local_rank < 0 ||
         memchr(info.address, 0, sizeof info.address) == NULL ||
         memchr(info.run_id, 0, sizeof info.run_id) == NULL)) {
        fprintf(stderr, "rank %d of %d, local rank %d\n", info.rank, info.world, info.local_rank);
        abort();
    }
    free(lines);
    return 0;
}
