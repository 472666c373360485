/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks wait in one short collective after another, so that no deadline passes, however slow
 * the disk is, and a rank that ends is noticed. */
#include "train/file_work.h"

#include <time.h>

#define ROUND_MS 100 /* of the ranks' wait; far below any deadline */

enum { MEETING, WORKING, BOTH }; /* workers of rank 0: the caller, and a thread of its own */

typedef struct file_work {
    yoke_run *run;
    yoke_workers *workers; /* NULL: another rank */
    yoke_file_work *work;
    void *context;
    uint32_t done;
} file_work;

static yoke_status meet(file_work *own) {
    bool busy = true;
    while (busy) {
        for (int ms = 0; own->workers != NULL && ms < ROUND_MS; ms++) {
            if (yoke_workers_reached(&own->done, 1)) break;
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        busy = own->workers != NULL && !yoke_workers_reached(&own->done, 1);
        TRY(yoke_run_any(own->run, &busy));
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

yoke_status yoke_run_file_work(yoke_run *run, yoke_file_work *work, void *context) {
    file_work own = {.run = run, .work = work, .context = context};
    yoke_workers_options options = {.count = BOTH, .spare_cores = -1};
    if (run->ranks == NULL) return work(context);
    if (!yoke_run_writes(run)) return meet(&own);
    if (run->file_workers != NULL || yoke_workers_create(&run->file_workers, &options) == YOKE_OK) {
        own.workers = run->file_workers;
        return yoke_workers_run(own.workers, BOTH, run_one, &own, NULL);
    }
    /* There is no thread to spare: the other ranks wait for this one in one round. */
    yoke_error error = yoke_error_take(work(context));
    yoke_status met = meet(&own);
    return error.status != YOKE_OK ? yoke_error_restore(&error) : met;
}
