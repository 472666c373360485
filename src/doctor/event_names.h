/* SPDX-License-Identifier: Apache-2.0 */
/* Which event of PyTorch's profiler is a part of which stage: one table. For the files of this room
 * only. */
#ifndef DOCTOR_EVENT_NAMES_H
#define DOCTOR_EVENT_NAMES_H

#include "doctor/kineto_event.h"
#include "trace/trace.h"

/* What an event is to the reader. */
typedef enum doctor_kind {
    DOCTOR_NOTHING,
    DOCTOR_STEP,       /* one step, marked by the profiler */
    DOCTOR_SPAN,       /* a thread of the host is in the stage */
    DOCTOR_OPERATION,  /* computes; in which stage depends on what surrounds it */
    DOCTOR_CALL,       /* a thread asks for a collective */
    DOCTOR_COLLECTIVE, /* a collective of the host runs */
    DOCTOR_GRADIENT,   /* the gradient of a parameter is complete */
    DOCTOR_LAUNCH,     /* the host starts work of a GPU */
    DOCTOR_WORK        /* a GPU computes, copies or communicates */
} doctor_kind;

/* What it tells of the run. */
enum {
    DOCTOR_DDP = 1,         /* DistributedDataParallel */
    DOCTOR_DP = 2,          /* nn.DataParallel */
    DOCTOR_FSDP = 4,        /* a schedule that the simulator does not have */
    DOCTOR_OPTIMIZER = 8,   /* an update of the weights, which ends a step */
    DOCTOR_FORWARD = 16,    /* all of a step's forward */
    DOCTOR_ROWS = 32,       /* its first operand has a row of the batch in each row */
    DOCTOR_LOSS_ROWS = 64,  /* the same of the loss */
    DOCTOR_NCCL = 128,      /* NCCL carries it */
    DOCTOR_FROM_HOST = 256, /* a copy from the host */
    DOCTOR_PEER = 512       /* a copy between GPUs */
};

typedef struct doctor_name {
    const char *category;
    const char *name;
    enum {
        DOCTOR_IS,
        DOCTOR_BEGINS,
    } match;
    doctor_kind kind;
    yoke_stage stage;
    unsigned marks;
} doctor_name;

/* The first row that fits; NULL: the event tells nothing. */
const doctor_name *doctor_name_of(const kineto_event *event);

#endif
