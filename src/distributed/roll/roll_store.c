/* SPDX-License-Identifier: Apache-2.0 */
/* A store in the roll: each generation has a region of its own. Entries follow each other; a lock
 * orders those who write, and is taken over from one that has ended. An entry counts once `used`
 * covers it, so a writer that dies leaves nothing half done. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "distributed/roll/roll.h"

#define PAUSE_NS 200000 /* between two looks for a key */
#define LOOKS 20        /* between two looks at the members */

typedef struct roll_region {
    _Atomic int writer; /* its pid; 0: nobody writes */
    _Atomic uint32_t used;
    char entries[];
} roll_region;

typedef struct roll_entry {
    char key[YOKE_STORE_KEY_LIMIT];
    _Atomic int64_t sum;  /* of a key that is added to */
    uint32_t bytes, step; /* of the value; from this entry to the next */
    char value[];
} roll_entry;

typedef struct roll_store {
    yoke_store store; /* first */
    yoke_roll *roll;
    roll_region *region;
} roll_store;

static roll_store *own_of(yoke_store *store) {
    return (roll_store *)store;
}

static yoke_status check_members(const roll_store *own) {
    int lost = yoke_roll_lost(own->roll);
    if (lost < 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_PEER, "the process that was started as rank %d is lost", lost);
}

static void lock(const roll_store *own) {
    int nobody = 0, me = getpid();
    while (!atomic_compare_exchange_strong(&own->region->writer, &nobody, me)) {
        int holder = nobody;
        if (holder != 0 && yoke_process_state_of(holder, 0) == YOKE_PROCESS_ENDED)
            if (atomic_compare_exchange_strong(&own->region->writer, &holder, me)) return;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS / 10}, NULL);
        nobody = 0;
    }
}

static void unlock(const roll_store *own) {
    atomic_store(&own->region->writer, 0);
}

static roll_entry *find(const roll_store *own, const char *key) {
    uint32_t used = atomic_load(&own->region->used);
    for (uint32_t at = 0; at < used;) {
        roll_entry *entry = (roll_entry *)(own->region->entries + at);
        if (strcmp(entry->key, key) == 0) return entry;
        at += entry->step;
    }
    return NULL;
}

/* NULL: the region is full. */
static roll_entry *append(const roll_store *own, const char *key, const void *value, size_t bytes) {
    uint32_t used = atomic_load(&own->region->used);
    size_t step = (sizeof(roll_entry) + bytes + 15) / 16 * 16;
    if (sizeof(roll_region) + used + step > YOKE_ROLL_REGION) return NULL;
    roll_entry *entry = (roll_entry *)(own->region->entries + used);
    snprintf(entry->key, sizeof entry->key, "%s", key);
    atomic_store(&entry->sum, 0);
    entry->bytes = (uint32_t)bytes;
    entry->step = (uint32_t)step;
    if (bytes > 0) memcpy(entry->value, value, bytes);
    atomic_store(&own->region->used, used + (uint32_t)step);
    return entry;
}

static yoke_status fail_full(const roll_store *own) {
    return FAIL(YOKE_ERROR_MEMORY, "%s: the store of this generation is full", own->store.address);
}

static yoke_status set(yoke_store *store, const char *key, const void *value, size_t bytes) {
    const roll_store *own = own_of(store);
    yoke_status status = YOKE_OK;
    lock(own);
    const roll_entry *found = find(own, key);
    bool other =
        found != NULL && (found->bytes != bytes || memcmp(found->value, value, bytes) != 0);
    if (other)
        status =
            FAIL(YOKE_ERROR_ARGUMENT, "%s: \"%s\" already has another value", store->address, key);
    else if (found == NULL && append(own, key, value, bytes) == NULL)
        status = fail_full(own);
    unlock(own);
    return status;
}

static yoke_status take(const roll_store *own, const char *key, yoke_store_value *value) {
    const roll_entry *found = find(own, key);
    if (found == NULL) return YOKE_ERROR_MISSING;
    value->bytes = found->bytes;
    if (value->bytes <= value->capacity && value->bytes > 0)
        memcpy(value->data, found->value, value->bytes);
    return YOKE_OK;
}

static yoke_status wait_for(yoke_store *store, const char *key, yoke_store_value *value,
                            uint64_t deadline) {
    const roll_store *own = own_of(store);
    for (int looks = 1;; looks++) {
        if (take(own, key, value) == YOKE_OK) return YOKE_OK;
        if (deadline == 0 || yoke_now_ns() >= deadline) return YOKE_ERROR_MISSING;
        if (looks % LOOKS == 0) TRY(check_members(own));
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
}

static yoke_status add(yoke_store *store, const char *key, int64_t value, int64_t *sum) {
    const roll_store *own = own_of(store);
    lock(own);
    roll_entry *entry = find(own, key);
    if (entry == NULL) entry = append(own, key, NULL, 0);
    if (entry != NULL) *sum = atomic_fetch_add(&entry->sum, value) + value;
    unlock(own);
    return entry != NULL ? YOKE_OK : fail_full(own);
}

static void destroy(yoke_store *store) {
    yoke_free(store);
}

yoke_status yoke_roll_store(yoke_store **store, yoke_roll *roll) {
    roll_store *own = yoke_calloc(1, sizeof *own);
    *store = NULL;
    if (own == NULL) return FAIL_MEMORY(sizeof *own, "a store");
    own->store = (yoke_store){.set = set, .wait = wait_for, .add = add, .destroy = destroy};
    own->store.address = yoke_strdup("roll://");
    own->roll = roll;
    own->region = yoke_roll_region(roll);
    *store = &own->store;
    return own->store.address != NULL ? YOKE_OK : FAIL_MEMORY(8, "a store's address");
}
