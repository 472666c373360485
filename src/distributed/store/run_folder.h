/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that one run holds for as long as its owner, rank 0, runs. File locks show which ranks
 * run: the kernel releases a process's locks however it ends. */
#ifndef DISTRIBUTED_RUN_FOLDER_H
#define DISTRIBUTED_RUN_FOLDER_H

#include "distributed/store/frame.h"
#include "distributed/store/proof.h"
#include "distributed/store/store.h"

#define YOKE_NONCE_TEXT (2 * YOKE_NONCE_BYTES + 1)

typedef struct yoke_run_folder {
    char *path;
    char nonce[YOKE_NONCE_TEXT]; /* of this run: a file with another nonce is stale */
    bool owner;
    bool is_open;
    bool is_private;                          /* its name is random, so no later run takes it */
    int directory;                            /* the open folder; -1: none */
    int change_lock, owner_lock, member_lock; /* descriptors of the lock files; -1: none */
} yoke_run_folder;

/* The address is file:///path or meet://name (meeting.h). The owner takes the folder and removes
 * what an ended run left there; the other ranks wait for the owner. ARGUMENT, naming the run, if
 * another run holds the folder. */
yoke_status yoke_run_folder_open(yoke_run_folder *folder, const yoke_store_options *options);
/* Takes zeroed ones. The owner waits up to a second for the other ranks and removes the files; if
 * the owner died, the last rank removes them. */
void yoke_run_folder_close(yoke_run_folder *folder);
bool yoke_run_folder_owner_runs(const yoke_run_folder *folder);

/* Excludes every other process and thread; false at the deadline. */
bool yoke_run_folder_lock(const yoke_run_folder *folder, uint64_t deadline);
void yoke_run_folder_unlock(const yoke_run_folder *folder);

/* "path/name"; the caller frees it. NULL: out of memory. */
char *yoke_run_folder_file(const yoke_run_folder *folder, const char *name);

typedef struct yoke_bytes {
    const void *data;
    size_t bytes;
} yoke_bytes;
/* Writes a file of two parts under a temporary name, then gives it its own. Returns 0 or an errno:
 * EEXIST if `once` and the file exists. */
int yoke_run_folder_publish(const yoke_run_folder *folder, const char *name,
                            const yoke_bytes parts[2], bool once);

#endif
