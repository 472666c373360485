/* The process group of ranks that MPI joins: on any number of machines, started by mpirun or srun.
 * MPI can be begun once a process; who embeds Yoke may have begun it before. */
#include "distributed/distributed.h"

#ifdef YOKE_HAS_MPI

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/mpi_group.h"
#include "distributed/reduce_kernels.h"

/* A minimum or maximum that keeps a NaN: the left fold of two. */
static void fold_two(void *from, void *to, int count, yoke_element element,
                     yoke_reduction reduction) {
    const yoke_fold_set fold = {
        .element = element, .reduction = reduction, .ranks = 2, .from = {from, to}};
    yoke_fold(to, &fold, 0, (size_t)count);
}

static void least_real(void *from, void *to, int *count, MPI_Datatype *type) {
    (void)type;
    fold_two(from, to, *count, YOKE_ELEMENT_FLOAT32, YOKE_MIN);
}

static void greatest_real(void *from, void *to, int *count, MPI_Datatype *type) {
    (void)type;
    fold_two(from, to, *count, YOKE_ELEMENT_FLOAT32, YOKE_MAX);
}

static yoke_status make_operations(mpi_group *mpi) {
    mpi->extreme[1][0] = MPI_MIN;
    mpi->extreme[1][1] = MPI_MAX;
    TRY_MPI(mpi, MPI_Op_create(least_real, 1, &mpi->extreme[0][0]));
    TRY_MPI(mpi, MPI_Op_create(greatest_real, 1, &mpi->extreme[0][1]));
    return YOKE_OK;
}

/* Beginning. */

static yoke_status initialize(mpi_group *mpi) {
    int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
    TRY_MPI(mpi, MPI_Finalized(&finalized));
    if (finalized)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "MPI was finalized in this process, and can't be begun again: make all groups "
                    "between one MPI_Init_thread and MPI_Finalize of the program's own");
    TRY_MPI(mpi, MPI_Initialized(&initialized));
    if (initialized)
        TRY_MPI(mpi, MPI_Query_thread(&level));
    else
        TRY_MPI(mpi, MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level));
    mpi->initialized_here = !initialized;
    if (level >= MPI_THREAD_SERIALIZED) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "MPI serves one thread only here: begin it with MPI_Init_thread and "
                "MPI_THREAD_SERIALIZED");
}

static yoke_status check_rank(const mpi_group *mpi) {
    int rank = 0, world = 0;
    TRY_MPI(mpi, MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    TRY_MPI(mpi, MPI_Comm_size(MPI_COMM_WORLD, &world));
    if (rank == mpi->group.rank && world == mpi->group.world) return YOKE_OK;
    if (world == 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "rank %d of %d is alone as MPI sees it: start the ranks with mpirun or srun",
                    mpi->group.rank, mpi->group.world);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "rank %d of %d is rank %d of %d as MPI sees it: let both come from one launcher",
                mpi->group.rank, mpi->group.world, rank, world);
}

static yoke_status duplicate(mpi_group *mpi, MPI_Comm *to) {
    MPI_Request request;
    yoke_watch_begin(&mpi->watch, CALL_JOIN);
    TRY_MPI(mpi, MPI_Comm_idup(MPI_COMM_WORLD, to, &request));
    TRY(yoke_mpi_wait(mpi, &request));
    TRY_MPI(mpi, MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN));
    return YOKE_OK;
}

static yoke_status name_library(mpi_group *mpi) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    TRY_MPI(mpi, MPI_Get_library_version(text, &length));
    /* "Open MPI v4.1.4, package: ..." */
    snprintf(mpi->group.transport, sizeof mpi->group.transport, "mpi (%.*s)",
             (int)strcspn(text, ",\n"), text);
    return YOKE_OK;
}

static yoke_status make_lists(mpi_group *mpi) {
    size_t bytes = (size_t)mpi->group.world * CALL_WORDS * sizeof *mpi->headers;
    mpi->headers = malloc((STARTED_LIMIT + 1) * bytes);
    if (mpi->headers == NULL)
        return FAIL_MEMORY((STARTED_LIMIT + 1) * bytes, "what all ranks call");
    for (size_t i = 0; i < STARTED_LIMIT; i++)
        mpi->started[i].all = mpi->headers + (i + 1) * (bytes / sizeof *mpi->headers);
    return YOKE_OK;
}

static yoke_status join(mpi_group *mpi) {
    TRY(make_lists(mpi));
    TRY(initialize(mpi));
    TRY(check_rank(mpi));
    TRY(duplicate(mpi, &mpi->agreement));
    TRY(duplicate(mpi, &mpi->data));
    TRY(make_operations(mpi));
    return name_library(mpi);
}

/* End. */

static yoke_status abandon(yoke_process_group *group, yoke_status status) {
    return yoke_watch_break(&mpi_of(group)->watch, status);
}

/* After other failures ranks may still write to what was given to MPI, and need not meet for a
 * farewell: all of it stays as it is until the process ends. */
static void leave(yoke_process_group *group) {
    mpi_group *mpi = mpi_of(group);
    if (group->broken && !mpi->disagreed) return;
    if (yoke_mpi_progress(group, true) != YOKE_OK) return;
    MPI_Op_free(&mpi->extreme[0][0]);
    MPI_Op_free(&mpi->extreme[0][1]);
    MPI_Comm_free(&mpi->data);
    MPI_Comm_free(&mpi->agreement);
    if (mpi->initialized_here) MPI_Finalize();
    yoke_plain_memory_free(mpi->memory);
    free(mpi->headers);
    free(mpi->wide);
    free(mpi);
}

/* A group that never was. Nothing but requests keeps it; a farewell needs all or nobody else. */
static yoke_status give_up(mpi_group *mpi, yoke_status status) {
    int world = 0;
    yoke_error error = yoke_error_take(yoke_watch_break(&mpi->watch, status));
    if (mpi->watch.operation > 0) return yoke_error_restore(&error);
    if (mpi->initialized_here && MPI_Comm_size(MPI_COMM_WORLD, &world) == MPI_SUCCESS && world == 1)
        MPI_Finalize();
    free(mpi->headers);
    free(mpi);
    return yoke_error_restore(&error);
}

static void prepare(mpi_group *mpi, const yoke_transport_request *request) {
    mpi->group = (yoke_process_group){.transport = "mpi",
                                      .rank = request->options->rank.rank,
                                      .world = request->options->rank.world,
                                      .timeout_ms = request->options->timeout_ms,
                                      .barrier = yoke_mpi_barrier,
                                      .broadcast = yoke_mpi_broadcast,
                                      .reduce = yoke_mpi_reduce,
                                      .all_gather = yoke_mpi_all_gather,
                                      .reduce_scatter = yoke_mpi_reduce_scatter,
                                      .scatter = yoke_mpi_scatter,
                                      .allocate = yoke_mpi_allocate,
                                      .start = yoke_mpi_start,
                                      .progress = yoke_mpi_progress,
                                      .abandon = abandon,
                                      .destroy = leave};
    mpi->watch = (yoke_watch){
        .name = "mpi", .group = &mpi->group, .store = request->store, .peers = request->peers};
    mpi->agreement = mpi->data = MPI_COMM_NULL;
    mpi->extreme[0][0] = mpi->extreme[0][1] = MPI_OP_NULL;
}

yoke_status yoke_mpi_group(yoke_process_group **group, const yoke_transport_request *request) {
    *group = NULL;
    mpi_group *mpi = calloc(1, sizeof *mpi);
    if (mpi == NULL) return FAIL_MEMORY(sizeof *mpi, "a process group");
    prepare(mpi, request);
    yoke_status status = join(mpi);
    if (status == YOKE_OK)
        *group = &mpi->group;
    else
        status = give_up(mpi, status);
    return status;
}

yoke_status yoke_mpi_check(void) {
    return YOKE_OK;
}

bool yoke_mpi_launched(const yoke_rank_info *rank) {
    static const char *const launchers[] = {"Open MPI", "PMIx", "Hydra"};
    int initialized = 0;
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        if (strcmp(rank->source, launchers[i]) == 0) return true;
    }
    return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized;
}

#else

yoke_status yoke_mpi_check(void) {
    return FAIL(YOKE_ERROR_DEVICE,
                "this build of Yoke has no MPI: configure it with -DYOKE_WITH_MPI=ON");
}

yoke_status yoke_mpi_group(yoke_process_group **group, const yoke_transport_request *request) {
    (void)request;
    *group = NULL;
    return yoke_mpi_check();
}

bool yoke_mpi_launched(const yoke_rank_info *rank) {
    (void)rank;
    return false;
}

#endif
