/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that writes checkpoints. The mutex protects the phase; in phase BUSY the thread owns
 * the rest, in every other phase the caller does. */
#include "train/checkpoint_writer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "train/rescue.h"

#define NICENESS 5 /* it shares cores with the devices */

typedef enum phase { IDLE, BUSY, DONE, ENDING } phase;

struct yoke_checkpoint_writer {
    const yoke_state *state;
    yoke_folder *folder;
    int keep;
    yoke_save_kind kind;
    yoke_facts facts;
    char path[PATH_MAX];
    yoke_error error; /* of the last file */

    phase phase;
    bool running;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
};

static yoke_status write_to(void *context, const char *path) {
    const yoke_checkpoint_writer *writer = context;
    const yoke_file_target target = yoke_target_path(path);
    return yoke_checkpoint_write(writer->state, &writer->facts, &target);
}

static void write_one(yoke_checkpoint_writer *writer) {
    uint64_t step = writer->state->steps;
    const char *folder = writer->folder->path;
    char where[PATH_MAX];
    yoke_rescue_options rescue = {.what = "the weights and the optimizer's state",
                                  .path = writer->path,
                                  .write = write_to,
                                  .context = writer};
    if (writer->kind == YOKE_SAVE_BEST)
        yoke_folder_best_path(writer->path, folder);
    else
        yoke_folder_path(writer->path, folder, step);
    yoke_status status = yoke_folder_restore(writer->folder);
    if (status == YOKE_OK) status = write_to(writer, writer->path);
    if (writer->kind == YOKE_SAVE_LAST && status != YOKE_OK && status != YOKE_ERROR_NUMERIC)
        status = yoke_rescue(status, &rescue, where);
    writer->error = yoke_error_take(status);
    /* The new file is complete and on the disk. */
    if (status == YOKE_OK && writer->kind != YOKE_SAVE_BEST)
        yoke_folder_prune(folder, step, writer->keep);
}

static void set_phase(yoke_checkpoint_writer *writer, phase next) {
    pthread_mutex_lock(&writer->mutex);
    writer->phase = next;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->mutex);
}

/* Waits while the phase is `busy` (caller) or is not (thread); returns the phase. */
static phase await_phase(yoke_checkpoint_writer *writer, bool busy) {
    pthread_mutex_lock(&writer->mutex);
    while (writer->phase != ENDING && (writer->phase == BUSY) == busy)
        pthread_cond_wait(&writer->changed, &writer->mutex);
    phase now = writer->phase;
    pthread_mutex_unlock(&writer->mutex);
    return now;
}

bool yoke_checkpoint_writer_wait(yoke_checkpoint_writer *writer, int timeout_ms) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t ns = end.tv_nsec + (int64_t)timeout_ms * 1000000;
    end.tv_sec += (time_t)(ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&writer->mutex);
    while (writer->phase == BUSY &&
           pthread_cond_timedwait(&writer->changed, &writer->mutex, &end) == 0) {
    }
    bool idle = writer->phase != BUSY;
    pthread_mutex_unlock(&writer->mutex);
    return idle;
}

static void *thread_main(void *context) {
    yoke_checkpoint_writer *writer = context;
    id_t id = (id_t)gettid();
    (void)setpriority(PRIO_PROCESS, id, getpriority(PRIO_PROCESS, id) + NICENESS);
    while (await_phase(writer, false) == BUSY) {
        write_one(writer);
        set_phase(writer, DONE);
    }
    return NULL;
}

yoke_status yoke_checkpoint_writer_create(yoke_checkpoint_writer **writer, const yoke_state *state,
                                          yoke_folder *folder, int keep) {
    pthread_condattr_t steady; /* an adjusted clock must not lengthen a wait */
    *writer = NULL;
    yoke_checkpoint_writer *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the writer of checkpoints");
    made->state = state;
    made->folder = folder;
    made->keep = keep;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &steady);
    pthread_condattr_destroy(&steady);
    int code = yoke_thread_start(&made->thread, thread_main, made);
    made->running = code == 0;
    if (made->running) {
        *writer = made;
        return YOKE_OK;
    }
    yoke_checkpoint_writer_destroy(made);
    return FAIL(YOKE_ERROR_SYSTEM, "the thread that writes checkpoints cannot start: %s",
                strerror(code));
}

void yoke_checkpoint_writer_destroy(yoke_checkpoint_writer *writer) {
    if (writer == NULL) return;
    if (writer->running) {
        (void)await_phase(writer, true);
        set_phase(writer, ENDING);
        pthread_join(writer->thread, NULL);
    }
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->mutex);
    yoke_free(writer);
}

bool yoke_checkpoint_writer_is_busy(yoke_checkpoint_writer *writer) {
    pthread_mutex_lock(&writer->mutex);
    bool busy = writer->phase == BUSY;
    pthread_mutex_unlock(&writer->mutex);
    return busy;
}

void yoke_checkpoint_writer_start(yoke_checkpoint_writer *writer, const yoke_facts *facts,
                                  yoke_save_kind kind) {
    writer->facts = *facts;
    writer->kind = kind;
    set_phase(writer, BUSY);
}

bool yoke_checkpoint_writer_collect(yoke_checkpoint_writer *writer, yoke_status *status,
                                    const char **path) {
    pthread_mutex_lock(&writer->mutex);
    bool finished = writer->phase == DONE;
    if (finished) writer->phase = IDLE;
    pthread_mutex_unlock(&writer->mutex);
    if (!finished) return false;
    *status = yoke_error_restore(&writer->error);
    *path = writer->path;
    return true;
}
