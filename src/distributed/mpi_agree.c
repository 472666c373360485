/* Waits of the MPI transport, and the agreement before anything moves: MPI itself would mix up,
 * cut off or hang where ranks differ. */
#include "distributed/call.h"

#ifdef YOKE_HAS_MPI

#include "distributed/mpi_group.h"

#include <string.h>

yoke_status yoke_mpi_answered(const mpi_group *mpi, int answer, const char *call) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (answer == MPI_SUCCESS) return YOKE_OK;
    MPI_Error_string(answer, text, &length);
    return FAIL(YOKE_ERROR_SYSTEM, "rank %d: %.*s: %s", mpi->group.rank, (int)strcspn(call, "("),
                call, text);
}

yoke_status yoke_mpi_wait(mpi_group *mpi, MPI_Request *request) {
    for (;;) {
        int over = 0;
        TRY_MPI(mpi, MPI_Test(request, &over, MPI_STATUS_IGNORE));
        if (over) return YOKE_OK;
        TRY(yoke_watch_wait(&mpi->watch));
    }
}

void yoke_mpi_pack(const yoke_call *call, int64_t *words) {
    words[0] = call->kind;
    words[1] = call->element;
    words[2] = call->reduction;
    words[3] = call->root;
    words[4] = (int64_t)call->count;
}

static yoke_call unpack(const int64_t *words) {
    return (yoke_call){.kind = (yoke_call_kind)words[0],
                       .element = (yoke_element)words[1],
                       .reduction = (yoke_reduction)words[2],
                       .root = (int)words[3],
                       .count = (uint64_t)words[4]};
}

yoke_status yoke_mpi_compare(const mpi_group *mpi, const int64_t *all) {
    const yoke_call first = unpack(all);
    for (int rank = 1; rank < mpi->group.world; rank++) {
        const yoke_call other = unpack(all + (size_t)rank * CALL_WORDS);
        TRY(yoke_call_compare(&first, &other, rank));
    }
    return YOKE_OK;
}

yoke_status yoke_mpi_agree(mpi_group *mpi, const yoke_call *call) {
    int64_t own[CALL_WORDS];
    MPI_Request request;
    TRY(yoke_mpi_progress(&mpi->group, true));
    yoke_mpi_pack(call, own);
    memcpy(mpi->headers + mpi->group.rank * CALL_WORDS, own, sizeof own);
    yoke_watch_begin(&mpi->watch, call->kind);
    TRY_MPI(mpi, MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, mpi->headers, CALL_WORDS,
                                MPI_INT64_T, mpi->agreement, &request));
    TRY(yoke_mpi_wait(mpi, &request));
    yoke_status status = yoke_mpi_compare(mpi, mpi->headers);
    mpi->disagreed = status != YOKE_OK;
    return status;
}

#endif
