/* A store of a few keys in memory that threads and forked processes share: what a transport needs
 * of one, without a rendezvous. A program that includes it has these functions, not the library's.
 */
#ifndef TESTS_SHARED_STORE_H
#define TESTS_SHARED_STORE_H

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "distributed/distributed.h"

enum { STORE_KEYS = 8, STORE_VALUE = 600 };

struct yoke_store {
    atomic_int count;
    struct {
        char key[64];
        char value[STORE_VALUE];
        size_t bytes;
        atomic_bool set;
    } rows[STORE_KEYS];
};

static inline yoke_store *shared_store_new(void) {
    void *store =
        mmap(NULL, sizeof(yoke_store), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return store == MAP_FAILED ? NULL : store;
}

static inline void shared_store_delete(yoke_store *store) {
    munmap(store, sizeof *store);
}

yoke_status yoke_store_set(yoke_store *store, const char *key, const void *value, size_t bytes) {
    int row = atomic_fetch_add(&store->count, 1);
    if (row >= STORE_KEYS || bytes > STORE_VALUE) return FAIL(YOKE_ERROR_INTERNAL, "store full");
    snprintf(store->rows[row].key, sizeof store->rows[row].key, "%s", key);
    memcpy(store->rows[row].value, value, bytes);
    store->rows[row].bytes = bytes;
    atomic_store(&store->rows[row].set, true);
    return YOKE_OK;
}

yoke_status yoke_store_wait(yoke_store *store, const char *key, void *value, size_t capacity,
                            size_t *bytes) {
    for (uint64_t begin = yoke_now_ns(); yoke_now_ns() - begin < 20000000000u; sched_yield()) {
        for (int row = 0; row < STORE_KEYS; row++) {
            if (!atomic_load(&store->rows[row].set)) continue;
            if (strcmp(store->rows[row].key, key) != 0 || store->rows[row].bytes > capacity)
                continue;
            *bytes = store->rows[row].bytes;
            memcpy(value, store->rows[row].value, *bytes);
            return YOKE_OK;
        }
    }
    return FAIL(YOKE_ERROR_CANCELLED, "nobody set %s", key);
}

#endif
