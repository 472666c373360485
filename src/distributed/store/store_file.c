/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a folder that all ranks see: one file per key, complete when it has its name. The
 * file holds the nonce of its run, then the value. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/store/frame.h"
#include "distributed/store/run_folder.h"
#include "distributed/store/store.h"

#define WAIT_MS_LIMIT 16
#define NONCE_LENGTH ((size_t)YOKE_NONCE_TEXT - 1)

typedef struct file_store {
    yoke_store store; /* first */
    yoke_run_folder folder;
} file_store;

#define NAME_BYTES (2 * YOKE_DIGEST_BYTES + 10)

/* A hash: keys may hold bytes that file names may not. */
static void name_key(char name[NAME_BYTES], const char *key) {
    uint8_t digest[YOKE_DIGEST_BYTES];
    yoke_name_digest(digest, key);
    memcpy(name, "yoke-key-", 10);
    for (int i = 0; i < YOKE_DIGEST_BYTES; i++)
        snprintf(name + 9 + 2 * i, 3, "%02x", digest[i]);
}

static yoke_status fail_left(const file_store *own) {
    return FAIL(YOKE_ERROR_PEER, "%s: rank 0, which owns the store, has left", own->store.address);
}

/* MISSING when the key is not set. */
static yoke_status read_value(const file_store *own, const char *key, yoke_store_value *value) {
    char name[NAME_BYTES];
    name_key(name, key);
    char *path = yoke_run_folder_file(&own->folder, name);
    if (path == NULL) return FAIL_MEMORY(NAME_BYTES, "a file name");
    unsigned char *data;
    size_t bytes;
    yoke_status status = yoke_file_read(path, NONCE_LENGTH + YOKE_STORE_VALUE_LIMIT, &data, &bytes);
    yoke_free(path);
    if (status != YOKE_OK) return status;
    if (bytes < NONCE_LENGTH || memcmp(data, own->folder.nonce, NONCE_LENGTH) != 0) {
        yoke_free(data);
        return FAIL(YOKE_ERROR_DATA, "%s: another run wrote \"%s\"", own->store.address, key);
    }
    value->bytes = bytes - NONCE_LENGTH;
    if (value->bytes <= value->capacity && value->bytes > 0)
        memcpy(value->data, data + NONCE_LENGTH, value->bytes);
    yoke_free(data);
    return YOKE_OK;
}

static int publish(const file_store *own, const char *key, yoke_bytes value, bool once) {
    char name[NAME_BYTES];
    name_key(name, key);
    const yoke_bytes parts[2] = {{.data = own->folder.nonce, .bytes = NONCE_LENGTH}, value};
    return yoke_run_folder_publish(&own->folder, name, parts, once);
}

static yoke_status fail_publish(const file_store *own, const char *key, int cause) {
    if (cause == ENOENT) return fail_left(own);
    return FAIL(YOKE_ERROR_IO, "%s: cannot write \"%s\": %s", own->store.address, key,
                strerror(cause));
}

static yoke_status check_same(const file_store *own, const char *key, const void *value,
                              size_t bytes) {
    yoke_store_value found = {.data = yoke_malloc(bytes + 1), .capacity = bytes};
    if (found.data == NULL) return FAIL_MEMORY(bytes + 1, "a store value");
    yoke_status status = read_value(own, key, &found);
    bool same = found.bytes == bytes && (bytes == 0 || memcmp(found.data, value, bytes) == 0);
    yoke_free(found.data);
    if (status == YOKE_ERROR_MISSING) return fail_left(own);
    TRY(status);
    return same ? YOKE_OK
                : FAIL(YOKE_ERROR_ARGUMENT,
                       "cannot set \"%s\": %s: the key already has another value", key,
                       own->store.address);
}

static yoke_status file_set(yoke_store *store, const char *key, const void *value, size_t bytes) {
    file_store *own = (file_store *)store;
    int cause = publish(own, key, (yoke_bytes){.data = value, .bytes = bytes}, true);
    if (cause == EEXIST) return check_same(own, key, value, bytes);
    return cause == 0 ? YOKE_OK : fail_publish(own, key, cause);
}

static yoke_status file_wait(yoke_store *store, const char *key, yoke_store_value *value,
                             uint64_t deadline) {
    file_store *own = (file_store *)store;
    for (int pause_ms = 1;; pause_ms = pause_ms < WAIT_MS_LIMIT ? 2 * pause_ms : WAIT_MS_LIMIT) {
        yoke_status status = read_value(own, key, value);
        if (status != YOKE_ERROR_MISSING) return status;
        if (yoke_now_ns() >= deadline) return YOKE_ERROR_MISSING;
        if (!yoke_run_folder_owner_runs(&own->folder)) return fail_left(own);
        poll(NULL, 0, pause_ms);
    }
}

/* 0 where the key is not set. */
static yoke_status read_sum(const file_store *own, const char *key, int64_t *sum) {
    uint8_t bytes[8] = {0};
    yoke_store_value found = {.data = bytes, .capacity = sizeof bytes};
    yoke_status status = read_value(own, key, &found);
    if (status != YOKE_OK && status != YOKE_ERROR_MISSING) return status;
    if (status == YOKE_OK && found.bytes != sizeof bytes)
        return FAIL(YOKE_ERROR_ARGUMENT, "cannot add to \"%s\": %s: the key's value is not a sum",
                    key, own->store.address);
    *sum = yoke_int64_read(bytes);
    return YOKE_OK;
}

/* The caller holds the folder's lock. */
static yoke_status add_locked(const file_store *own, const char *key, int64_t value, int64_t *sum) {
    int64_t before = 0;
    uint8_t bytes[8];
    TRY(read_sum(own, key, &before));
    if (__builtin_add_overflow(before, value, sum))
        return FAIL(YOKE_ERROR_ARGUMENT, "cannot add to \"%s\": %s: the sum overflows an int64",
                    key, own->store.address);
    yoke_int64_write(bytes, *sum);
    int cause = publish(own, key, (yoke_bytes){.data = bytes, .bytes = sizeof bytes}, false);
    return cause == 0 ? YOKE_OK : fail_publish(own, key, cause);
}

/* Adding 0 only reads, and waits for no rank that holds the lock. */
static yoke_status file_add(yoke_store *store, const char *key, int64_t value, int64_t *sum) {
    file_store *own = (file_store *)store;
    uint64_t wait_ns = (uint64_t)store->timeout_ms * 1000000u;
    if (value == 0) {
        TRY(read_sum(own, key, sum));
        return *sum != 0 || yoke_run_folder_owner_runs(&own->folder) ? YOKE_OK : fail_left(own);
    }
    if (!yoke_run_folder_lock(&own->folder, yoke_now_ns() + wait_ns))
        return FAIL(YOKE_ERROR_TIMEOUT, "%s: another rank held the lock for %d ms", store->address,
                    store->timeout_ms);
    yoke_status status = add_locked(own, key, value, sum);
    yoke_run_folder_unlock(&own->folder);
    return status;
}

static void file_destroy(yoke_store *store) {
    file_store *own = (file_store *)store;
    yoke_run_folder_close(&own->folder);
    yoke_free(own);
}

/* Messages name the folder itself. */
static yoke_status name_folder(file_store *own) {
    char *address = yoke_format("file://%s", own->folder.path);
    if (address == NULL) return FAIL_MEMORY(strlen(own->folder.path) + 8, "a store address");
    yoke_free(own->store.address);
    own->store.address = address;
    return YOKE_OK;
}

yoke_status yoke_file_store(yoke_store **store, const yoke_store_options *options) {
    file_store *own = yoke_calloc(1, sizeof *own);
    if (own == NULL) return FAIL_MEMORY(sizeof *own, "a store");
    own->store =
        (yoke_store){.set = file_set, .wait = file_wait, .add = file_add, .destroy = file_destroy};
    own->store.address = yoke_strdup(options->address);
    yoke_status status = own->store.address == NULL
                             ? FAIL_MEMORY(strlen(options->address) + 1, "a store address")
                             : yoke_run_folder_open(&own->folder, options);
    if (status == YOKE_OK) status = name_folder(own);
    if (status == YOKE_OK) {
        *store = &own->store;
    } else {
        yoke_store_destroy(&own->store);
    }
    return status;
}
