/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing by rank 0 while the other ranks wait: one short collective follows another,
 * so that no deadline passes, however slow the disk is, and a rank that ends is noticed. */
#include <time.h>

#include "train/run.h"

#define ROUND_MS 100 /* of the ranks' wait; far below any deadline */

enum { MEETING, WORKING, BOTH }; /* workers of rank 0: the caller, and a thread of its own */

typedef struct file_work {
    yoke_trainer *trainer;
    yoke_workers *workers; /* NULL: another rank */
    yoke_file_work *work;
    void *context;
    uint32_t done;
} file_work;

static void wait_a_round(file_work *own) {
    for (int ms = 0; ms < ROUND_MS && !yoke_workers_reached(&own->done, 1); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static yoke_status meet(file_work *own) {
    bool busy = true;
    while (busy) {
        if (own->workers != NULL) wait_a_round(own);
        busy = own->workers != NULL && !yoke_workers_reached(&own->done, 1);
        TRY(yoke_trainer_any(own->trainer, &busy));
    }
    return YOKE_OK;
}

static yoke_status run_one(int worker, void *context) {
    file_work *own = context;
    if (worker == MEETING) return meet(own);
    yoke_status status = own->work(own->context);
    yoke_workers_signal(own->workers, &own->done);
    return status;
}

/* Without a thread to spare: the other ranks wait in one round. */
static yoke_status work_first(file_work *own) {
    yoke_error error = yoke_error_take(own->work(own->context));
    yoke_status met = meet(own);
    return error.status != YOKE_OK ? yoke_error_restore(&error) : met;
}

yoke_status yoke_trainer_file_work(yoke_trainer *trainer, yoke_file_work *work, void *context) {
    file_work own = {.trainer = trainer, .work = work, .context = context};
    if (trainer->ranks == NULL) return work(context);
    if (!yoke_trainer_writes(trainer)) return meet(&own);
    yoke_workers_options options = {.count = BOTH, .spare_cores = -1};
    if (trainer->file_workers == NULL &&
        yoke_workers_create(&trainer->file_workers, &options) != YOKE_OK)
        return work_first(&own);
    own.workers = trainer->file_workers;
    return yoke_workers_run(own.workers, BOTH, run_one, &own, NULL);
}
