/* SPDX-License-Identifier: Apache-2.0 */
/* Checks arguments and waits; the kind of store that the address names does the rest. */
#include "distributed/store/store.h"

#include <stdlib.h>
#include <string.h>

#include "distributed/store/meeting.h"

#define TIMEOUT_MS 60000

static bool begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static yoke_status open_store(yoke_store **store, const yoke_store_options *options) {
    if (begins(options->address, "tcp://")) return yoke_tcp_store(store, options);
    if (begins(options->address, YOKE_STORE_ALONE)) return yoke_tcp_store(store, options);
    if (begins(options->address, "file://") || begins(options->address, YOKE_MEETING))
        return yoke_file_store(store, options);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "the store's address is \"%s\": tcp://host:port or file:///path is expected",
                options->address);
}

yoke_status yoke_store_create(yoke_store **store, const yoke_store_options *options) {
    *store = NULL;
    yoke_store_options own = *options;
    TRY(yoke_pointer_check(own.address, "the store's address"));
    if (own.run_id == NULL) own.run_id = "";
    if (own.timeout_ms == 0) own.timeout_ms = TIMEOUT_MS;
    if (own.timeout_ms < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "timeout_ms is %d: 0 (60000) or more is expected",
                    own.timeout_ms);
    if (own.token != NULL && *own.token == '\0')
        return FAIL(YOKE_ERROR_ARGUMENT, "the store's token is empty: give one, or NULL for none");
    TRY(open_store(store, &own));
    (*store)->timeout_ms = own.timeout_ms;
    return YOKE_OK;
}

void yoke_store_destroy(yoke_store *store) {
    if (store == NULL) return;
    yoke_free(store->address);
    store->destroy(store);
}

int yoke_store_port(const yoke_store *store) {
    return store->port;
}

int yoke_store_timeout(yoke_store *store, int timeout_ms) {
    int before = store->timeout_ms;
    store->timeout_ms = timeout_ms;
    return before;
}

static yoke_status check_key(const char *key) {
    if (*key != '\0' && strlen(key) < YOKE_STORE_KEY_LIMIT) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "a store key has %zu bytes: 1 to %d are expected", strlen(key),
                YOKE_STORE_KEY_LIMIT - 1);
}

yoke_status yoke_store_set(yoke_store *store, const char *key, const void *value, size_t bytes) {
    TRY(check_key(key));
    if (bytes > YOKE_STORE_VALUE_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: the value has %zu bytes: at most %zu are allowed",
                    key, bytes, YOKE_STORE_VALUE_LIMIT);
    return store->set(store, key, value, bytes);
}

/* missing: "no rank set" or who did not. */
static yoke_status wait_for_key(yoke_store *store, const char *missing, const char *key,
                                void *value, size_t capacity, size_t *bytes) {
    TRY(check_key(key));
    yoke_store_value found = {.data = value, .capacity = capacity};
    uint64_t wait_ns = (uint64_t)store->timeout_ms * 1000000u;
    yoke_status status =
        store->wait(store, key, &found, wait_ns == 0 ? 0 : yoke_now_ns() + wait_ns);
    if (status == YOKE_ERROR_MISSING)
        return FAIL(YOKE_ERROR_TIMEOUT, "%s: %s \"%s\" within %d ms", store->address, missing, key,
                    store->timeout_ms);
    TRY(status);
    if (found.bytes > capacity)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %zu bytes, but the caller has room for %zu", key,
                    found.bytes, capacity);
    *bytes = found.bytes;
    return YOKE_OK;
}

yoke_status yoke_store_wait(yoke_store *store, const char *key, void *value, size_t capacity,
                            size_t *bytes) {
    return wait_for_key(store, "no rank set", key, value, capacity, bytes);
}

yoke_status yoke_store_wait_root(yoke_store *store, const char *key, void *value, size_t capacity,
                                 size_t *bytes) {
    return wait_for_key(store, "rank 0 did not set", key, value, capacity, bytes);
}

yoke_status yoke_store_add(yoke_store *store, const char *key, int64_t value, int64_t *sum) {
    TRY(check_key(key));
    return store->add(store, key, value, sum);
}
