/* SPDX-License-Identifier: Apache-2.0 */
/* The buckets of gradients of a step. For the files of this room only. */
#ifndef DOCTOR_BUCKETS_H
#define DOCTOR_BUCKETS_H

#include "doctor/analysis.h"

typedef struct bucket_list {
    struct bucket {
        double bytes, ms; /* ms: of the backward that completes it; 0 in all: unknown */
    } * list;             /* [count], the caller frees */
    int count;
    double bytes;  /* of all */
    bool measured; /* they are those of the run's all-reduces */
} bucket_list;

/* From all-reduces; else from gradients, in the order of backward; else `stated` bytes, which count
 * before both unless 0. count 0: nothing says how many bytes there are. MEMORY; ARGUMENT: of the
 * stated bytes. */
yoke_status buckets_find(const analysis *found, yoke_doctor_run run, double stated,
                         bucket_list *buckets, yoke_doctor_figure *figure);

#endif
