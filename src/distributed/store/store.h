/* SPDX-License-Identifier: Apache-2.0 */
/* The store of a run: small values by key, each set once, where ranks find each other and leave
 * their errors. Rank 0 serves it over TCP, or a folder that all ranks see holds it. One thread at a
 * time uses a store. */
#ifndef DISTRIBUTED_STORE_H
#define DISTRIBUTED_STORE_H

#include "base/base.h"

typedef struct yoke_store yoke_store;

typedef struct yoke_store_options {
    const char
        *address; /* "tcp://host:port", "file:///path", "meet://name" (meeting.h), "alone://" */
    bool serve;   /* this process serves the store (TCP) or owns the folder (file) */
    const char *run_id; /* the store refuses ranks of another run */
    const char *token;  /* shared secret of a TCP store; both sides prove it, nobody sends it */
    int timeout_ms;
} yoke_store_options;

#define YOKE_STORE_ALONE "alone://" /* of a world of one: nothing listens */
#define YOKE_STORE_KEY_LIMIT 256
#define YOKE_STORE_VALUE_LIMIT ((size_t)65536 - YOKE_STORE_KEY_LIMIT) /* a frame holds both */

/* A TCP server listens before it returns; with port 0 in the address it takes a free port, which
 * yoke_store_port returns. The store ends with the process that serves it. */
yoke_status yoke_store_create(yoke_store **store, const yoke_store_options *options);
void yoke_store_destroy(yoke_store *store);
int yoke_store_port(const yoke_store *store);
/* Sets the deadline of later calls and returns the one before. 0: yoke_store_wait returns at once.
 */
int yoke_store_timeout(yoke_store *store, int timeout_ms);
/* ARGUMENT if the key already has another value. */
yoke_status yoke_store_set(yoke_store *store, const char *key, const void *value, size_t bytes);
/* Waits until the key is set. TIMEOUT at the deadline; the text names the key. */
yoke_status yoke_store_wait(yoke_store *store, const char *key, void *value, size_t capacity,
                            size_t *bytes);
/* The same for a key that only rank 0 sets: the text of TIMEOUT names rank 0. */
yoke_status yoke_store_wait_root(yoke_store *store, const char *key, void *value, size_t capacity,
                                 size_t *bytes);
/* Adds to the key's sum, which begins at 0, and returns the new sum. */
yoke_status yoke_store_add(yoke_store *store, const char *key, int64_t value, int64_t *sum);

/* What each kind of store implements. */

typedef struct yoke_store_value {
    void *data;
    size_t capacity, bytes; /* bytes > capacity: nothing was copied */
} yoke_store_value;

struct yoke_store {
    char *address; /* as given, for messages */
    int timeout_ms, port;

    yoke_status (*set)(yoke_store *store, const char *key, const void *value, size_t bytes);
    /* MISSING if the key is not set at `deadline` (yoke_now_ns; 0: at once). */
    yoke_status (*wait)(yoke_store *store, const char *key, yoke_store_value *value,
                        uint64_t deadline);
    yoke_status (*add)(yoke_store *store, const char *key, int64_t value, int64_t *sum);
    void (*destroy)(yoke_store *store); /* takes half-built stores; frees `store` itself */
};

/* The options are complete: only the token may be NULL. */
yoke_status yoke_tcp_store(yoke_store **store, const yoke_store_options *options);
yoke_status yoke_file_store(yoke_store **store, const yoke_store_options *options);

#endif
