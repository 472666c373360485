/* How ranks with GPUs join one communicator: each on a GPU of its own, by an id of rank 0's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/nccl_group.h"

#define ID_KEY "nccl/id"

/* "GPU-1c2d...", as words that a host group gathers. */
typedef struct gpu_name {
    int64_t words[6];
} gpu_name;

static yoke_status find_twins(const nccl_group *nccl, const gpu_name *names) {
    for (int rank = 1; rank < nccl->group.world; rank++) {
        for (int other = 0; other < rank; other++) {
            if (memcmp(&names[rank], &names[other], sizeof *names) != 0) continue;
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "ranks %d and %d of %s both have %.48s, and NCCL wants each GPU once: "
                        "start no more ranks than there are GPUs, each with its own",
                        other, rank, nccl->watch.peers[rank].host, (const char *)&names[rank]);
        }
    }
    return YOKE_OK;
}

/* NCCL finds them too, later and less clearly. */
static yoke_status check_twins(nccl_group *nccl, const yoke_devices *devices) {
    yoke_device_info info = {.struct_size = sizeof info};
    gpu_name own = {{0}};
    _Static_assert(sizeof own == sizeof info.uuid, "a name travels whole");
    if (nccl->group.host == NULL) return YOKE_OK;
    TRY(yoke_devices_describe(devices, 0, &info));
    memcpy(&own, info.uuid, sizeof own);
    size_t bytes = (size_t)nccl->group.world * sizeof own;
    gpu_name *names = malloc(bytes);
    if (names == NULL) return FAIL_MEMORY(bytes, "the names of all GPUs");
    const yoke_reduce_call call = {
        .count = sizeof own / sizeof(int64_t), .element = YOKE_ELEMENT_INT64, .root = -1};
    yoke_status status = nccl->group.host->all_gather(nccl->group.host, names, &own, &call);
    if (status == YOKE_OK) status = find_twins(nccl, names);
    free(names);
    return status;
}

/* Rank 0's id, or why there is none. */
typedef struct nccl_ticket {
    yoke_error error;
    uint8_t id[YOKE_COMMUNICATOR_ID_BYTES];
} nccl_ticket;

static yoke_status share_id(nccl_group *nccl, nccl_ticket *ticket) {
    size_t bytes;
    if (nccl->group.rank == 0) {
        ticket->error = yoke_error_take(yoke_communicator_id(nccl->device, ticket->id));
        TRY(yoke_store_set(nccl->watch.store, ID_KEY, ticket, sizeof *ticket));
    } else {
        TRY(yoke_store_wait(nccl->watch.store, ID_KEY, ticket, sizeof *ticket, &bytes));
    }
    return yoke_error_restore(&ticket->error);
}

yoke_status nccl_join(nccl_group *nccl, const yoke_devices *devices) {
    nccl_ticket ticket = {0};
    TRY(check_twins(nccl, devices));
    TRY(share_id(nccl, &ticket));
    const yoke_communicator_request request = {.device = nccl->device,
                                               .id = ticket.id,
                                               .rank = nccl->group.rank,
                                               .world = nccl->group.world,
                                               .timeout_ms = nccl->group.timeout_ms};
    yoke_watch_begin(&nccl->watch, CALL_JOIN);
    yoke_status status = yoke_communicator_create(&nccl->communicator, &request);
    if (status != YOKE_OK) return nccl_break(nccl, status);
    TRY(nccl_reach(nccl, YOKE_COMMUNICATOR_QUEUED));
    snprintf(nccl->group.transport, sizeof nccl->group.transport, "%s",
             yoke_communicator_name(nccl->communicator));
    return YOKE_OK;
}
