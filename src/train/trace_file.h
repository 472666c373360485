/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of a run. Ranks that end together send rank 0 their spans, and it writes one file.
 * After a failure, which breaks the process group, each rank writes what it has: nothing is lost.
 */
#ifndef TRAIN_TRACE_FILE_H
#define TRAIN_TRACE_FILE_H

#include "train/run.h"

/* Removes what ranks of an earlier run wrote on their own: beside the new run's FILE these would
 * look like its. */
void yoke_trace_file_forget(const char *path);
/* together: all ranks call it. */
yoke_status yoke_trace_file_write(yoke_run *run, bool together);

#endif
