/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trace_file.h"

#include <dirent.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/trace.h"
#include "train/file_work.h"

#define OF_RANK ".rank-" /* behind FILE: the number of the rank that wrote it on its own */

/* What the ranks have sent, on rank 0. */
typedef struct gathered {
    yoke_trace_process *processes; /* [world] */
    yoke_trace **traces;           /* [world] of the other ranks; [0] NULL */
} gathered;

static const yoke_trace *own_trace(yoke_run *run) {
    return yoke_data_parallel_trace(run->parallel);
}

#define BOOT_BYTES 40
typedef struct clock_reading {
    char boot[BOOT_BYTES]; /* the clock counts from it */
    int64_t now_ns;
} clock_reading;
#define READING_WORDS (sizeof(clock_reading) / sizeof(int64_t))

/* The machines' clocks differ; after a barrier all ranks read theirs at nearly the same time. */
static yoke_status align_clocks(const yoke_run *run, yoke_trace_process *processes) {
    int world = yoke_process_group_world(run->ranks);
    clock_reading *all = yoke_calloc((size_t)world, sizeof *all);
    if (all == NULL) return FAIL_MEMORY((size_t)world * sizeof *all, "the ranks' clocks");
    /* A launcher may leave the number of the machine out: the kernel's id of the boot is sure. */
    clock_reading own = {.now_ns = 0};
    char line[BOOT_BYTES] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    snprintf(own.boot, BOOT_BYTES, "machine %d", run->node);
    if (file != NULL && fgets(line, sizeof line, file) != NULL) memcpy(own.boot, line, BOOT_BYTES);
    if (file != NULL) fclose(file);
    yoke_status status = yoke_process_group_barrier(run->ranks);
    own.now_ns = (int64_t)yoke_trace_now();
    if (status == YOKE_OK)
        status =
            yoke_process_group_all_gather(run->ranks, all, &own, READING_WORDS, YOKE_ELEMENT_INT64);
    for (int rank = 0; rank < world && status == YOKE_OK; rank++) {
        processes[rank].rank = rank;
        if (memcmp(all[rank].boot, all[0].boot, BOOT_BYTES) != 0)
            processes[rank].shift_ns = all[0].now_ns - all[rank].now_ns;
    }
    yoke_free(all);
    return status;
}

/* All ranks receive the spans of one; only rank 0 keeps them. */
static yoke_status share_trace(yoke_run *run, int from, yoke_trace **received) {
    int rank = yoke_process_group_rank(run->ranks);
    int64_t *words = NULL, count = 0;
    size_t packed = 0;
    if (rank == from) TRY(yoke_trace_pack(own_trace(run), &words, &packed));
    count = (int64_t)packed;
    yoke_status status =
        yoke_process_group_broadcast(run->ranks, &count, 1, YOKE_ELEMENT_INT64, from);
    if (status == YOKE_OK && rank != from) {
        words = yoke_calloc((size_t)count, sizeof *words);
        if (words == NULL) status = FAIL_MEMORY((size_t)count * sizeof *words, "a rank's trace");
    }
    if (status == YOKE_OK)
        status = yoke_process_group_broadcast(run->ranks, words, (size_t)count, YOKE_ELEMENT_INT64,
                                              from);
    if (status == YOKE_OK && rank == 0) status = yoke_trace_unpack(received, words, (size_t)count);
    yoke_free(words);
    return status;
}

static yoke_status gather_traces(yoke_run *run, gathered *all) {
    int world = yoke_process_group_world(run->ranks);
    all->processes = yoke_calloc((size_t)world, sizeof *all->processes);
    all->traces = yoke_calloc((size_t)world, sizeof(yoke_trace *));
    if (all->processes == NULL || all->traces == NULL)
        return FAIL_MEMORY((size_t)world * sizeof *all->processes, "the ranks' traces");
    TRY(align_clocks(run, all->processes));
    all->processes[0].trace = own_trace(run);
    all->processes[0].marks = run->marks;
    all->processes[0].mark_count = run->mark_count;
    for (int rank = 1; rank < world; rank++) {
        TRY(share_trace(run, rank, &all->traces[rank]));
        all->processes[rank].trace = all->traces[rank];
    }
    return YOKE_OK;
}

typedef struct joint_file {
    const yoke_trace_process *processes; /* [count] */
    int count;
    const char *path;
} joint_file;

static yoke_status write_joint(void *context) {
    const joint_file *file = context;
    return yoke_trace_write_processes(file->processes, file->count, file->path);
}

static yoke_status write_together(yoke_run *run, bool *sent) {
    gathered all = {0};
    int world = yoke_process_group_world(run->ranks);
    yoke_status status = gather_traces(run, &all);
    joint_file file = {all.processes, world, run->options.trace};
    *sent = status == YOKE_OK;
    if (status == YOKE_OK) status = yoke_run_file_work(run, write_joint, &file);
    if (status == YOKE_OK && yoke_run_writes(run)) yoke_run_say(run, YOKE_EVENT_SAVED, file.path);
    for (int rank = 1; all.traces != NULL && rank < world; rank++)
        yoke_trace_destroy(all.traces[rank]);
    yoke_free(all.traces);
    yoke_free(all.processes);
    return status;
}

/* Rank 0 writes the file itself, rank k writes FILE.rank-k. */
static yoke_status write_own(yoke_run *run) {
    const char *path = run->options.trace;
    char *own = NULL;
    yoke_trace_process all[YOKE_DEVICES_LIMIT + 1];
    int past = run->past.count, rank = -1;
    for (int i = 0; i < past; i++)
        all[i] = (yoke_trace_process){
            .rank = -1, .trace = run->past.traces[i], .name = run->past.names[i], .engine = i};
    if (run->ranks != NULL) rank = yoke_process_group_rank(run->ranks);
    all[past] = (yoke_trace_process){.rank = rank,
                                     .trace = own_trace(run),
                                     .engine = past,
                                     .marks = run->marks,
                                     .mark_count = run->mark_count};
    if (past > 0) all[past].name = run->past.names[past];
    if (rank > 0 && (own = yoke_format("%s" OF_RANK "%d", path, rank)) == NULL)
        return FAIL_MEMORY(4096, "a path");
    if (rank > 0) path = own;
    yoke_status status = yoke_trace_write_processes(all, past + 1, path);
    if (status == YOKE_OK) yoke_run_say(run, YOKE_EVENT_SAVED, path);
    yoke_free(own);
    return status;
}

yoke_status yoke_trace_file_write(yoke_run *run, bool together) {
    bool sent;
    if (run->options.trace == NULL) return YOKE_OK;
    if (run->ranks == NULL || !together) return write_own(run);
    yoke_status status = write_together(run, &sent);
    if (sent) return status;
    yoke_error error = yoke_error_take(status);
    if (write_own(run) != YOKE_OK) yoke_run_warn(run);
    return yoke_error_restore(&error);
}

/* "trace.json.rank-12" of "trace.json". */
static bool is_of_rank(const char *name, const char *trace) {
    size_t length = strlen(trace), tail = strlen(OF_RANK);
    if (strncmp(name, trace, length) != 0 || strncmp(name + length, OF_RANK, tail) != 0)
        return false;
    const char *digits = name + length + tail;
    return *digits != '\0' && digits[strspn(digits, "0123456789")] == '\0';
}

void yoke_trace_file_forget(const char *path) {
    if (path == NULL) return;
    char *folder = yoke_strdup(path), *file = yoke_strdup(path);
    const char *name = file != NULL ? basename(file) : "";
    DIR *directory = folder != NULL ? opendir(dirname(folder)) : NULL;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;)
        if (file != NULL && is_of_rank(entry->d_name, name))
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory != NULL) closedir(directory);
    yoke_free(file);
    yoke_free(folder);
}
