/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a file of bytes: each byte that occurs is one, in ascending order. For this room only.
 */
#ifndef DATA_TEXT_TOKENS_H
#define DATA_TEXT_TOKENS_H

#include "data/data.h"

#define YOKE_BYTES 256

typedef struct yoke_tokens {
    bool occurs[YOKE_BYTES];
    uint16_t of[YOKE_BYTES]; /* the token of a byte that occurs */
} yoke_tokens;

/* Numbers the bytes for which `occurs` is set, behind `reserved` tokens; these are the dataset's
 * classes, and their names: the reserved ones as given, printable ASCII as it is with a backslash
 * as "\\", any other byte as "\x0a". MEMORY. */
yoke_status yoke_tokens_number(yoke_tokens *tokens, yoke_dataset *dataset,
                               const char *const *reserved, int reserved_count);

#endif
