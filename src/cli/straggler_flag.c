/* SPDX-License-Identifier: Apache-2.0 */
/* Reads "1:2.0". */
#include "cli/straggler_flag.h"

#include <limits.h>
#include <stdlib.h>

#include "cli/cli.h"

int straggler_read(straggler *read, const char *verb, const char *text) {
    *read = (straggler){.factor = 0};
    if (text == NULL) return -1;
    char *colon, *end = NULL;
    long index = strtol(text, &colon, 10);
    double factor = *colon == ':' ? strtod(colon + 1, &end) : 0;
    bool whole = text[0] >= '0' && text[0] <= '9' && end != NULL && end > colon + 1 && *end == '\0';
    if (!whole || index > INT_MAX || !(factor >= 1 && factor <= 1e6))
        return cli_usage_error(verb,
                               "--straggler %s: K:X, a device or rank from 0 and a factor of 1 "
                               "to 1e6, as in 1:2.0",
                               text);
    *read = (straggler){.index = (int)index, .factor = factor};
    return -1;
}
