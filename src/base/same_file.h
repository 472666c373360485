/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a program's files are one file, before it writes to any of them. */
#ifndef BASE_SAME_FILE_H
#define BASE_SAME_FILE_H

#include <stdbool.h>

#include "yoke/status.h"

typedef enum yoke_file_use {
    YOKE_FILE_READ,
    YOKE_FILE_WRITTEN,
    YOKE_FILE_SPEC,       /* a dataset, as in csv:FILE,label=COLUMN: its files are read */
    YOKE_FILE_CHECKPOINTS /* a folder, where checkpoints are written */
} yoke_file_use;

typedef struct yoke_used_file {
    const char *name; /* of the option, for the message */
    const char *path; /* or spec, or folder; NULL: not given */
    yoke_file_use use;
} yoke_used_file;

/* Whether both are one file, through links of any kind, or would be once written. False for pipes
 * and devices, which many may share, and for folders. */
bool yoke_file_is_same(const char *one, const char *other);
/* ARGUMENT: a file that one option writes is also what another writes or reads. */
yoke_status yoke_files_check_apart(const yoke_used_file *files, int count);

#endif
