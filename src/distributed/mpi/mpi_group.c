/* SPDX-License-Identifier: Apache-2.0 */
/* The process group of ranks that mpirun or srun started, on any number of machines. A process can
 * initialize MPI once, and the program that embeds Yoke may have done so before. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/mpi/mpi_group.h"
#include "distributed/transports.h"

/* Joining. */

static yoke_status name_library(mpi_group *mpi) {
    static const char open_mpi[] = "Open MPI";
    char text[256];
    TRY_MPI(mpi, name(text, sizeof text));
    /* "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\n..." */
    text[strcspn(text, ",\n")] = '\0';
    char *tab = strchr(text, '\t');
    if (tab != NULL) *tab = ' ';
    snprintf(mpi->group.transport, sizeof mpi->group.transport, "mpi (%.25s)", text);
    if (mpi->calls->open_mpi == (strncmp(text, open_mpi, strlen(open_mpi)) == 0)) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE,
                "this process loaded %s, but Yoke was built with %s: build both with one MPI", text,
                mpi->calls->open_mpi ? open_mpi : "another MPI");
}

/* Ranks whose program has initialized MPI begin the operation, too, so that all count alike. */
static yoke_status initialize(mpi_group *mpi) {
    int initialized = 0, finalized = 0, serialized = 0, code = 0;
    yoke_watchdog_begin(&mpi->watchdog, CALL_JOIN);
    TRY_MPI(mpi, is_finalized(&finalized));
    if (finalized)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "MPI was finalized in this process and cannot start again: create all groups between "
            "the program's own MPI_Init_thread and MPI_Finalize");
    TRY_MPI(mpi, is_initialized(&initialized));
    if (!initialized) TRY(yoke_mpi_thread_begin(&mpi->thread, mpi->calls, &mpi->watchdog, &code));
    TRY(yoke_mpi_check_code(mpi, code));
    TRY_MPI(mpi, is_serialized(&serialized));
    if (serialized) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "this process initialized MPI for one thread only: call MPI_Init_thread with "
                "MPI_THREAD_SERIALIZED");
}

static yoke_status check_rank(const mpi_group *mpi) {
    int rank = 0, world = 0;
    TRY_MPI(mpi, place(&rank, &world));
    if (rank == mpi->group.rank && world == mpi->group.world) return YOKE_OK;
    if (world == 1)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "rank %d of %d is the only rank as MPI sees it: start the ranks with srun, or with the "
            "mpirun of Yoke's MPI (%s)",
            mpi->group.rank, mpi->group.world, mpi->group.transport);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "rank %d of %d is rank %d of %d as MPI sees it: start all ranks with one launcher",
                mpi->group.rank, mpi->group.world, rank, world);
}

static yoke_status open_channel(mpi_group *mpi, yoke_mpi_channel channel) {
    yoke_mpi_request request;
    yoke_watchdog_begin(&mpi->watchdog, CALL_JOIN);
    mpi->posted = true;
    TRY_MPI(mpi, open(mpi->world, channel, &request));
    return yoke_mpi_wait(mpi, &request);
}

static yoke_status join(mpi_group *mpi) {
    mpi->world = yoke_calloc(1, mpi->calls->world_bytes);
    if (mpi->world == NULL) return FAIL_MEMORY(mpi->calls->world_bytes, "MPI's state of a group");
    size_t bytes = (size_t)mpi->group.world * CALL_WORDS * sizeof *mpi->headers;
    mpi->headers = yoke_malloc((PENDING_LIMIT + 1) * bytes);
    if (mpi->headers == NULL)
        return FAIL_MEMORY((PENDING_LIMIT + 1) * bytes, "the calls of all ranks");
    for (size_t i = 0; i < PENDING_LIMIT; i++)
        mpi->pending[i].all = mpi->headers + (i + 1) * (bytes / sizeof *mpi->headers);
    TRY(name_library(mpi));
    TRY(initialize(mpi));
    TRY(check_rank(mpi));
    TRY(open_channel(mpi, YOKE_MPI_AGREEMENT));
    TRY(open_channel(mpi, YOKE_MPI_DATA));
    TRY_MPI(mpi, complete(mpi->world));
    return YOKE_OK;
}

/* Leaving. */

static yoke_status abort_group(yoke_process_group *group, yoke_status status) {
    return yoke_watchdog_fail(&mpi_of(group)->watchdog, status);
}

static void release(mpi_group *mpi) {
    yoke_free(mpi->world);
    yoke_free(mpi->headers);
    yoke_free(mpi->wide);
    yoke_free(mpi->slices);
    yoke_free(mpi->collected);
    yoke_free(mpi);
}

/* A group broken by anything but a disagreement is leaked on purpose: MPI may still write to its
 * buffers, and closing it is a collective that other ranks may not reach. That one has no deadline,
 * so the ranks meet once more before it. */
static void leave(yoke_process_group *group) {
    mpi_group *mpi = mpi_of(group);
    if (group->broken && !mpi->disagreed) return;
    if (group->barrier(group) != YOKE_OK) return;
    mpi->calls->close(mpi->world);
    yoke_mpi_thread_end(mpi->thread);
    yoke_private_memory_free(mpi->memory);
    release(mpi);
}

/* Releases a group that failed to join, unless MPI has requests in flight that use it. Finalizing
 * is a collective, so only a rank that is alone does it. */
static yoke_status release_failed(mpi_group *mpi, yoke_status status) {
    int rank, world = 0;
    yoke_error error = yoke_error_take(yoke_watchdog_fail(&mpi->watchdog, status));
    if (mpi->posted) return yoke_error_restore(&error);
    if (mpi->thread != NULL && mpi->calls->place(&rank, &world) == 0 && world == 1)
        yoke_mpi_thread_end(mpi->thread);
    release(mpi);
    return yoke_error_restore(&error);
}

yoke_status yoke_mpi_group(yoke_process_group **group, const yoke_transport_request *request) {
    const yoke_mpi_calls *calls;
    *group = NULL;
    TRY(yoke_mpi_open(&calls));
    mpi_group *mpi = yoke_calloc(1, sizeof *mpi);
    if (mpi == NULL) return FAIL_MEMORY(sizeof *mpi, "a process group");
    mpi->group = (yoke_process_group){.transport = "mpi",
                                      .rank = request->options->rank->rank,
                                      .world = request->options->rank->world,
                                      .timeout_ms = request->options->timeout_ms,
                                      .abort = abort_group,
                                      .destroy = leave};
    yoke_mpi_set_collectives(&mpi->group);
    mpi->watchdog = (yoke_watchdog){
        .name = "mpi", .group = &mpi->group, .store = request->store, .peers = request->peers};
    mpi->calls = calls;
    yoke_status status = join(mpi);
    if (status == YOKE_OK)
        *group = &mpi->group;
    else
        status = release_failed(mpi, status);
    return status;
}

yoke_status yoke_mpi_check(void) {
    const yoke_mpi_calls *calls;
    return yoke_mpi_open(&calls);
}

/* A program that initialized MPI has its functions loaded. */
static bool is_initialized(void) {
    int (*initialized)(int *yes);
    int yes = 0;
    void *address = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    memcpy(&initialized, &address, sizeof address);
    return address != NULL && initialized(&yes) == 0 && yes != 0;
}

bool yoke_mpi_launched(const yoke_rank_info *rank) {
    static const char *const launchers[] = {"Open MPI", "PMIx", "Hydra"};
    bool launched = is_initialized();
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        launched = launched || strcmp(rank->source, launchers[i]) == 0;
    return launched && yoke_mpi_check() == YOKE_OK;
}
