/* The thread that keeps a TCP store: strangers are dropped, ranks served. */
#ifndef DISTRIBUTED_STORE_KEEPER_H
#define DISTRIBUTED_STORE_KEEPER_H

#include "distributed/distributed.h"

typedef struct yoke_store_keeper yoke_store_keeper;

typedef struct yoke_keeper_options {
    int listener; /* becomes the keeper's, also on failure */
    const char *run_id, *token;
    int timeout_ms;
} yoke_keeper_options;

/* *own is a proven connection to it; the caller closes it. */
yoke_status yoke_store_keeper_create(yoke_store_keeper **keeper, const yoke_keeper_options *options,
                                     int *own);
/* Hears nobody new, but gives those who are here a moment to ask for what they still need, such as
 * the reason for the end. */
void yoke_store_keeper_destroy(yoke_store_keeper *keeper);

#endif
