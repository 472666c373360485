/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of one machine meet: a folder that rank 0 makes with a random name and that only
 * its user can enter. The other ranks know the beginning of the name and look for the folder. Other
 * users can make such names, too, but no folder that belongs to this user. */
#ifndef DISTRIBUTED_MEETING_H
#define DISTRIBUTED_MEETING_H

#include "distributed/store/run_record.h"

/* "meet://NAME": the folder's name is "NAME-" and six random characters. */
#define YOKE_MEETING "meet://"

/* "NAME" for the ranks of a run: "yoke-UID-HASH". */
#define YOKE_MEETING_NAME_BYTES 64
void yoke_meeting_name(char name[YOKE_MEETING_NAME_BYTES], uint64_t hash);

/* A folder. Each rank holds a shared lock of its directory as long as it runs: whoever gets the
 * lock alone may remove the folder. */
typedef struct yoke_meeting {
    char *path;    /* the caller frees it */
    int directory; /* open and locked; the caller closes it */
} yoke_meeting;

/* On rank 0. */
yoke_status yoke_meeting_make(yoke_meeting *meeting, const char *name);
/* On rank 0, in its folder: removes the folders that dead runs of this user left. ARGUMENT if a
 * rank 0 of the same run has another folder. */
yoke_status yoke_meeting_clear(const yoke_meeting *meeting, const char *name, const char *run_id);
/* On the other ranks. False: rank 0 of this run has no folder yet. */
bool yoke_meeting_find(yoke_meeting *meeting, yoke_run_record *record, const char *name,
                       const char *run_id);
/* Says where it looked. */
yoke_status yoke_meeting_fail_absent(const char *name, int timeout_ms);

#endif
