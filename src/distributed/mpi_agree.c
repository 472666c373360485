/* Waits of the MPI transport, and the agreement before anything moves: MPI itself would mix up,
 * cut off or hang where ranks differ. */
#include "distributed/mpi_group.h"

yoke_status yoke_mpi_answered(const mpi_group *mpi, int answer) {
    char text[256];
    if (answer == 0) return YOKE_OK;
    mpi->calls->explain(answer, text, sizeof text);
    return FAIL(YOKE_ERROR_SYSTEM, "rank %d: %s over MPI: %s", mpi->group.rank,
                yoke_call_name(mpi->watch.kind), text);
}

yoke_status yoke_mpi_wait(mpi_group *mpi, yoke_mpi_request *request) {
    for (;;) {
        int over = 0;
        TRY_MPI(mpi, test(request, &over));
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
    yoke_mpi_request request;
    const yoke_mpi_transfer transfer = {.collective = YOKE_MPI_ALL_GATHER,
                                        .channel = YOKE_MPI_AGREEMENT,
                                        .to = mpi->headers,
                                        .count = CALL_WORDS,
                                        .element = YOKE_ELEMENT_INT64};
    TRY(yoke_mpi_progress(&mpi->group, true));
    yoke_mpi_pack(call, mpi->headers + mpi->group.rank * CALL_WORDS);
    yoke_watch_begin(&mpi->watch, call->kind);
    TRY_MPI(mpi, post(mpi->world, &transfer, &request));
    TRY(yoke_mpi_wait(mpi, &request));
    yoke_status status = yoke_mpi_compare(mpi, mpi->headers);
    mpi->disagreed = status != YOKE_OK;
    return status;
}
