/* SPDX-License-Identifier: Apache-2.0 */
/* Stores under test, their keepers and joiners, and the checks that both kinds of store must
 * pass. For one file a program. */
#ifndef STORE_CHECK_H
#define STORE_CHECK_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "distributed/store/store.h"

#define SOON_MS 300       /* for what is expected to pass */
#define PATIENT_MS 600000 /* for what is not */

static char base[64], place[128];

static const char *kind; /* "tcp" or "file" */

static inline int make_base(void **state) {
    (void)state;
    strcpy(base, "/tmp/yoke-store-XXXXXX");
    if (mkdtemp(base) == NULL) return -1;
    snprintf(place, sizeof place, "file://%s/run", base);
    return 0;
}

static inline int remove_base(void **state) {
    (void)state;
    return rmdir(base); /* fails when anything was left behind */
}

static inline yoke_store *open_store(yoke_store_options options) {
    yoke_store *store;
    if (options.timeout_ms == 0) options.timeout_ms = PATIENT_MS;
    if (yoke_store_create(&store, &options) != YOKE_OK) fail_msg("%s", yoke_last_error());
    return store;
}

/* The address by which others find a keeper. */
static inline const char *address_of(const yoke_store *keeper) {
    static char address[64];
    if (strcmp(kind, "file") == 0) return place;
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", yoke_store_port(keeper));
    return address;
}

static inline yoke_store *keep(const char *run_id, const char *token) {
    return open_store(
        (yoke_store_options){.address = strcmp(kind, "file") == 0 ? place : "tcp://127.0.0.1:0",
                             .serve = true,
                             .run_id = run_id,
                             .token = token});
}

static inline yoke_store *join(const yoke_store *keeper) {
    return open_store((yoke_store_options){.address = address_of(keeper), .run_id = "run"});
}

static inline void assert_says(const char *words) {
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", yoke_last_error(), words);
}

static inline void assert_refused(yoke_store_options options, yoke_status status,
                                  const char *words) {
    yoke_store *store;
    if (options.timeout_ms == 0) options.timeout_ms = PATIENT_MS;
    assert_int_equal(yoke_store_create(&store, &options), status);
    assert_null(store);
    assert_says(words);
}

static inline void assert_value(yoke_store *store, const char *key, const char *wanted) {
    char value[64] = "";
    size_t bytes = 0;
    if (yoke_store_wait(store, key, value, sizeof value, &bytes) != YOKE_OK)
        fail_msg("%s", yoke_last_error());
    assert_int_equal(bytes, strlen(wanted));
    assert_memory_equal(value, wanted, bytes);
}

static inline void assert_serves(yoke_store *keeper) {
    yoke_store *other = join(keeper);
    assert_int_equal(yoke_store_set(other, "still", "here", 4), YOKE_OK);
    assert_value(keeper, "still", "here");
    yoke_store_destroy(other);
}

static inline int count_files(const char *folder) {
    DIR *directory = opendir(folder);
    int count = 0;
    if (directory == NULL) return -1;
    for (struct dirent *each; (each = readdir(directory)) != NULL;)
        count += each->d_name[0] != '.';
    closedir(directory);
    return count;
}

#endif
