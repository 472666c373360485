/* SPDX-License-Identifier: Apache-2.0 */
/* A result that cannot be written where it should be goes elsewhere, and the error says where. */
#ifndef TRAIN_RESCUE_H
#define TRAIN_RESCUE_H

#include <limits.h>

#include "base/base.h"

/* Writes the result to a new file at `path`. */
typedef yoke_status yoke_rescue_write(void *context, const char *path);

typedef struct yoke_rescue_options {
    const char *what, *path; /* "the weights"; where they should be */
    yoke_rescue_write *write;
    void *context;
} yoke_rescue_options;

/* After `failed`, whose text is the calling thread's: tries a new folder yoke-rescued-XXXXXX, which
 * only its owner may enter, beside the path, in the working directory, /tmp, /var/tmp and /dev/shm.
 * Returns `failed` with the new place in its text; where: the file, or "". */
yoke_status yoke_rescue(yoke_status failed, const yoke_rescue_options *options,
                        char where[PATH_MAX]);

#endif
