/* A folder that belongs to one run for as long as its keeper lives. Locks tell who lives: the
 * kernel drops them with their process, on whatever path it ends. */
#ifndef DISTRIBUTED_RUN_FOLDER_H
#define DISTRIBUTED_RUN_FOLDER_H

#include "distributed/distributed.h"
#include "distributed/frame.h"

#define YOKE_NONCE_TEXT (2 * YOKE_NONCE_BYTES + 1)

typedef struct yoke_run_folder {
    char *path;
    char nonce[YOKE_NONCE_TEXT]; /* of this life of the folder: what bears another is stale */
    bool keeper;
    bool is_open;             /* joined, or kept */
    int guard, alive, member; /* descriptors whose locks say so */
} yoke_run_folder;

/* The keeper takes the folder, over what a dead run left there; the others wait for it. `run_id` of
 * another living run: ARGUMENT with its name. */
yoke_status yoke_run_folder_open(yoke_run_folder *folder, const yoke_store_options *options);
/* Zeroed ones too. The keeper gives the others a moment, then removes all; so does the last one
 * whose keeper died. */
void yoke_run_folder_close(yoke_run_folder *folder);
bool yoke_run_folder_is_alive(const yoke_run_folder *folder);

/* One process or thread at a time; false at the deadline. */
bool yoke_run_folder_lock(const yoke_run_folder *folder, uint64_t deadline);
void yoke_run_folder_unlock(const yoke_run_folder *folder);

/* "path/name", to be freed; NULL when memory is short. */
char *yoke_run_folder_file(const yoke_run_folder *folder, const char *name);

/* A file that is complete when it has its name; EEXIST when `once` and the name is taken. Returns
 * an errno. parts[2]. */
typedef struct yoke_bytes {
    const void *data;
    size_t bytes;
} yoke_bytes;
int yoke_run_folder_publish(const yoke_run_folder *folder, const char *name,
                            const yoke_bytes parts[2], bool once);

#endif
