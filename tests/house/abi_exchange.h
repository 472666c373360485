/* SPDX-License-Identifier: Apache-2.0 */
/* abi_host.c's exchange. */
#ifndef ABI_EXCHANGE_H
#define ABI_EXCHANGE_H

/* Device 0 adds up and sends the sum back. */
static yoke_status sum_by_root(void *payload, const yoke_bucket_gradients *bucket) {
    (void)payload;
    for (int k = 1; k < bucket->devices; k++) {
        must(bucket->send(bucket, k, 0, 0, bucket->count));
        for (size_t i = 0; i < bucket->count; i++)
            bucket->gradients[0][i] += bucket->inboxes[0][i];
    }
    for (int k = 1; k < bucket->devices; k++) {
        must(bucket->send(bucket, 0, k, 0, bucket->count));
        for (size_t i = 0; i < bucket->count; i++)
            bucket->gradients[k][i] = bucket->inboxes[k][i];
    }
    return YOKE_OK;
}

/* The newest field of the options: a program of an older header has none. */
static void use_exchange(yoke_data_parallel_options *options) {
    static yoke_custom_exchange exchange = YOKE_CUSTOM_EXCHANGE_INIT;
    exchange.all_reduce = sum_by_root;
    if (exchange.all_reduce == NULL) abort();
#ifndef CUT
    options->custom_exchange = &exchange;
#else
    (void)options;
#endif
}

#endif
