/* What the two kinds of store have in common. */
#ifndef DISTRIBUTED_STORE_H
#define DISTRIBUTED_STORE_H

#include "distributed/distributed.h"

/* Where a value goes. */
typedef struct yoke_store_value {
    void *data;
    size_t capacity, bytes;
} yoke_store_value;

struct yoke_store {
    char *address; /* as given, for messages */
    int timeout_ms, port;

    yoke_status (*set)(yoke_store *store, const char *key, const void *value, size_t bytes);
    /* MISSING when the key is not there at `deadline` (yoke_now_ns; 0: only looks). */
    yoke_status (*wait)(yoke_store *store, const char *key, yoke_store_value *value,
                        uint64_t deadline);
    yoke_status (*add)(yoke_store *store, const char *key, int64_t value, int64_t *sum);
    void (*destroy)(yoke_store *store); /* takes half-built stores; frees `store` itself */
};

/* The options are complete: nothing is NULL but the token. */
yoke_status yoke_tcp_store(yoke_store **store, const yoke_store_options *options);
yoke_status yoke_file_store(yoke_store **store, const yoke_store_options *options);

#endif
