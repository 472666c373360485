/* SPDX-License-Identifier: Apache-2.0 */
/* What a run's folder says about its run, for whoever looks into the folder before it joins. */
#ifndef DISTRIBUTED_RUN_RECORD_H
#define DISTRIBUTED_RUN_RECORD_H

#include "distributed/store/run_folder.h"

#define YOKE_RUN_FILE "yoke-run" /* the record */

typedef struct yoke_run_record {
    char run_id[YOKE_RUN_ID_LIMIT], nonce[YOKE_NONCE_TEXT], owner[128]; /* owner: host:pid */
} yoke_run_record;

/* Opens a file of the folder without waiting, as a FIFO's open would. -1 with errno, also if it is
 * not a regular file of this user. */
int yoke_run_file_open(int directory, const char *name, int flags);
/* Whether there is a record of this version, and its owner runs. *found: there is a record. */
bool yoke_run_record_read(int directory, yoke_run_record *record, bool *found);
/* Whether a process holds the owner's lock of this nonce. */
bool yoke_run_owner_runs(int directory, const char *nonce);
#define YOKE_OWNER_FILE_BYTES (YOKE_NONCE_TEXT + 16)
void yoke_run_owner_file(char name[YOKE_OWNER_FILE_BYTES], const char *nonce);
/* Only the files that a store makes: the user may have made the folder. */
void yoke_run_files_remove(int directory, bool guard_too);

#endif
