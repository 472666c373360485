/* SPDX-License-Identifier: Apache-2.0 */
/* A balanced tree: the C library's tsearch. */
#include "distributed/store/store_table.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "distributed/store/frame.h"

/* Far more than a run needs; bounds what a faulty rank can cost the server. */
#define TABLE_BYTES_LIMIT ((size_t)64 << 20)
#define ENTRY_BYTES 128 /* estimated overhead of the tree and the allocator */

static int compare(const void *a, const void *b) {
    return strcmp(((const yoke_store_entry *)a)->key, ((const yoke_store_entry *)b)->key);
}

static void free_entry(void *memory) {
    yoke_store_entry *entry = memory;
    if (entry == NULL) return;
    yoke_free(entry->key);
    yoke_free(entry->value);
    yoke_free(entry);
}

static yoke_store_entry *find(const yoke_store_table *table, const char *key) {
    char *borrowed;
    memcpy(&borrowed, &key, sizeof borrowed);
    const yoke_store_entry wanted = {.key = borrowed};
    yoke_store_entry *const *found = tfind(&wanted, &table->tree, compare);
    return found == NULL ? NULL : *found;
}

const yoke_store_entry *yoke_store_table_find(const yoke_store_table *table, const char *key) {
    return find(table, key);
}

static yoke_store_entry *make_entry(const char *key, const void *value, size_t bytes) {
    yoke_store_entry *entry = yoke_calloc(1, sizeof *entry);
    if (entry == NULL) return NULL;
    entry->key = yoke_strdup(key);
    entry->value = yoke_malloc(bytes > 0 ? bytes : 1);
    if (entry->key == NULL || entry->value == NULL) {
        free_entry(entry);
        return NULL;
    }
    if (bytes > 0) memcpy(entry->value, value, bytes);
    entry->bytes = bytes;
    return entry;
}

static const char *insert(yoke_store_table *table, const char *key, const void *value,
                          size_t bytes) {
    size_t cost = strlen(key) + bytes + ENTRY_BYTES;
    if (table->bytes + cost > TABLE_BYTES_LIMIT) return "the store is full (64 MiB)";
    yoke_store_entry *entry = make_entry(key, value, bytes);
    if (entry == NULL || tsearch(entry, &table->tree, compare) == NULL) {
        free_entry(entry);
        return "the store is out of memory";
    }
    table->bytes += cost;
    return NULL;
}

const char *yoke_store_table_set(yoke_store_table *table, const char *key, const void *value,
                                 size_t bytes) {
    const yoke_store_entry *entry = find(table, key);
    if (entry == NULL) return insert(table, key, value, bytes);
    if (entry->bytes == bytes && (bytes == 0 || memcmp(entry->value, value, bytes) == 0))
        return NULL;
    return "the key already has another value";
}

const char *yoke_store_table_add(yoke_store_table *table, const char *key, int64_t value) {
    yoke_store_entry *entry = find(table, key);
    uint8_t bytes[8];
    int64_t sum;
    if (entry != NULL && entry->bytes != sizeof bytes) return "the key's value is not a sum";
    if (__builtin_add_overflow(entry == NULL ? 0 : yoke_int64_read(entry->value), value, &sum))
        return "the sum overflows an int64";
    yoke_int64_write(bytes, sum);
    if (entry == NULL) return insert(table, key, bytes, sizeof bytes);
    memcpy(entry->value, bytes, sizeof bytes);
    return NULL;
}

void yoke_store_table_clear(yoke_store_table *table) {
    tdestroy(table->tree, free_entry);
    *table = (yoke_store_table){0};
}
