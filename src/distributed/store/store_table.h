/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a TCP store's server, by key: each set once, or a sum. */
#ifndef DISTRIBUTED_STORE_TABLE_H
#define DISTRIBUTED_STORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct yoke_store_table {
    void *tree;
    size_t bytes;
} yoke_store_table;

typedef struct yoke_store_entry {
    char *key;
    unsigned char *value;
    size_t bytes;
} yoke_store_entry;

/* NULL when the key is not set. */
const yoke_store_entry *yoke_store_table_find(const yoke_store_table *table, const char *key);
/* NULL: done. Otherwise the reason why not. */
const char *yoke_store_table_set(yoke_store_table *table, const char *key, const void *value,
                                 size_t bytes);
const char *yoke_store_table_add(yoke_store_table *table, const char *key, int64_t value);
void yoke_store_table_clear(yoke_store_table *table);

#endif
