/* All-reduces that go on while the caller computes. They agree and move in the order they were
 * started in; MPI gets on with them whenever this process calls it. */
#include "distributed/mpi_group.h"

static mpi_started *at(mpi_group *mpi, int index) {
    return &mpi->started[(mpi->first + index) % STARTED_LIMIT];
}

static yoke_status test(mpi_group *mpi, mpi_started *one, bool *over) {
    int answer = 0;
    TRY_MPI(mpi, test(&one->request, &answer));
    *over = answer != 0;
    return YOKE_OK;
}

/* From agreement to moving. */
static yoke_status move(mpi_group *mpi, mpi_started *one) {
    TRY(yoke_mpi_compare(mpi, one->all));
    TRY(yoke_mpi_check_count(mpi, &one->call));
    one->moves = true;
    const yoke_mpi_transfer transfer = {.collective = YOKE_MPI_ALL_REDUCE,
                                        .channel = YOKE_MPI_DATA,
                                        .to = one->buffer,
                                        .count = one->call.count};
    TRY_MPI(mpi, post(mpi->world, &transfer, &one->request));
    return YOKE_OK;
}

/* What can be done by now. */
static yoke_status advance(mpi_group *mpi) {
    bool in_order = true; /* all before this one move */
    for (int i = 0; i < mpi->started_count && in_order; i++) {
        mpi_started *one = at(mpi, i);
        bool over;
        TRY(test(mpi, one, &over));
        if (over && !one->moves) TRY(move(mpi, one));
        in_order = one->moves;
    }
    return YOKE_OK;
}

static yoke_status retire(mpi_group *mpi) {
    while (mpi->started_count > 0) {
        mpi_started *oldest = at(mpi, 0);
        bool over = false;
        if (oldest->moves) TRY(test(mpi, oldest, &over));
        if (!over) return YOKE_OK;
        mpi->first = (mpi->first + 1) % STARTED_LIMIT;
        mpi->started_count--;
    }
    return YOKE_OK;
}

/* Waits until the oldest is over. */
static yoke_status wait_oldest(mpi_group *mpi) {
    int64_t operation = at(mpi, 0)->operation;
    yoke_watch_await(&mpi->watch, CALL_START, operation);
    for (;;) {
        TRY(advance(mpi));
        TRY(retire(mpi));
        if (mpi->started_count == 0 || at(mpi, 0)->operation != operation) return YOKE_OK;
        TRY(yoke_watch_wait(&mpi->watch));
    }
}

static yoke_status progress(mpi_group *mpi, bool wait) {
    while (wait && mpi->started_count > 0)
        TRY(wait_oldest(mpi));
    TRY(advance(mpi));
    return retire(mpi);
}

yoke_status yoke_mpi_progress(yoke_process_group *group, bool wait) {
    mpi_group *mpi = mpi_of(group);
    yoke_status status = progress(mpi, wait);
    return status == YOKE_OK ? YOKE_OK : yoke_watch_break(&mpi->watch, status);
}

static yoke_status announce(mpi_group *mpi, mpi_started *one) {
    const yoke_mpi_transfer transfer = {.collective = YOKE_MPI_ALL_GATHER,
                                        .channel = YOKE_MPI_AGREEMENT,
                                        .from = one->own,
                                        .to = one->all,
                                        .count = CALL_WORDS,
                                        .element = YOKE_ELEMENT_INT64};
    yoke_mpi_pack(&one->call, one->own);
    yoke_watch_begin(&mpi->watch, CALL_START);
    one->operation = mpi->watch.operation;
    TRY_MPI(mpi, post(mpi->world, &transfer, &one->request));
    mpi->started_count++;
    return progress(mpi, false);
}

yoke_status yoke_mpi_start(yoke_process_group *group, float *buffer, size_t count) {
    mpi_group *mpi = mpi_of(group);
    if (mpi->started_count == STARTED_LIMIT) TRY(yoke_mpi_progress(group, true));
    mpi_started *one = at(mpi, mpi->started_count);
    one->buffer = buffer;
    one->call = (yoke_call){.kind = CALL_START, .root = -1, .count = count};
    one->moves = false;
    yoke_status status = announce(mpi, one);
    return status == YOKE_OK ? YOKE_OK : yoke_watch_break(&mpi->watch, status);
}
