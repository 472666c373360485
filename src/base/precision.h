/* SPDX-License-Identifier: Apache-2.0 */
/* The names of yoke_precision's values, in their order: for tables, options and messages. */
#ifndef BASE_PRECISION_H
#define BASE_PRECISION_H

#define YOKE_PRECISION_LIST(FIRST, NEXT)                                                           \
    FIRST("float32") NEXT("bfloat16") NEXT("tf32") NEXT("float16")

#define YOKE_PRECISION_FIRST_WORD(name) name
#define YOKE_PRECISION_NEXT_WORD(name) "|" name
/* "float32|bfloat16|..." */
#define YOKE_PRECISION_WORDS                                                                       \
    YOKE_PRECISION_LIST(YOKE_PRECISION_FIRST_WORD, YOKE_PRECISION_NEXT_WORD)

extern const char *const yoke_precision_names[];
extern const int yoke_precision_count;

#endif
