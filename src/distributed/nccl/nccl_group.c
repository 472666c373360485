/* SPDX-License-Identifier: Apache-2.0 */
/* The process group of ranks with one GPU each: how they join one communicator, and how they leave.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/nccl/nccl_group.h"
#include "distributed/transports.h"

/* Joining: each rank has a GPU of its own and uses the id that rank 0 publishes. */

#define ID_KEY "nccl/id"

/* "GPU-1c2d...", as int64 words for all_gather. */
typedef struct gpu_name {
    int64_t words[6];
} gpu_name;

static yoke_status compare_gpus(const nccl_group *nccl, const gpu_name *names) {
    for (int rank = 1; rank < nccl->group.world; rank++) {
        for (int other = 0; other < rank; other++) {
            if (memcmp(&names[rank], &names[other], sizeof *names) != 0) continue;
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "ranks %d and %d of %s both have %.48s, but NCCL takes each GPU once: "
                        "start at most one rank per GPU",
                        other, rank, nccl->watchdog.peers[rank].host, (const char *)&names[rank]);
        }
    }
    return YOKE_OK;
}

/* NCCL would refuse a GPU that two ranks share, too, but later and less clearly. */
static yoke_status check_gpus(nccl_group *nccl, const yoke_devices *devices) {
    yoke_device_info info = {.struct_size = sizeof info};
    gpu_name own = {{0}};
    _Static_assert(sizeof own == sizeof info.uuid, "the words hold a whole name");
    if (nccl->group.host == NULL) return YOKE_OK;
    TRY(yoke_devices_describe(devices, 0, &info));
    memcpy(&own, info.uuid, sizeof own);
    size_t bytes = (size_t)nccl->group.world * sizeof own;
    gpu_name *names = yoke_malloc(bytes);
    if (names == NULL) return FAIL_MEMORY(bytes, "the names of all GPUs");
    const yoke_reduce_call call = {
        .count = sizeof own / sizeof(int64_t), .element = YOKE_ELEMENT_INT64, .root = -1};
    yoke_status status = nccl->group.host->all_gather(nccl->group.host, names, &own, &call);
    if (status == YOKE_OK) status = compare_gpus(nccl, names);
    yoke_free(names);
    return status;
}

/* Rank 0's id, or its error. */
typedef struct nccl_ticket {
    yoke_error error;
    uint8_t id[YOKE_COMMUNICATOR_ID_BYTES];
} nccl_ticket;

/* The communicator's thread calls it from time to time while this rank's own thread is inside a
 * call. */
static yoke_status check_ranks(void *context) {
    nccl_group *nccl = context;
    return yoke_watchdog_wait(&nccl->watchdog);
}

static yoke_status join(nccl_group *nccl, const yoke_devices *devices) {
    nccl_ticket ticket = {0};
    TRY(check_gpus(nccl, devices));
    size_t bytes;
    if (nccl->group.rank == 0) {
        ticket.error = yoke_error_take(yoke_communicator_id(nccl->device, ticket.id));
        TRY(yoke_store_set(nccl->watchdog.store, ID_KEY, &ticket, sizeof ticket));
    } else {
        TRY(yoke_store_wait_root(nccl->watchdog.store, ID_KEY, &ticket, sizeof ticket, &bytes));
    }
    TRY(yoke_error_restore(&ticket.error));
    const yoke_communicator_request request = {.device = nccl->device,
                                               .id = ticket.id,
                                               .rank = nccl->group.rank,
                                               .world = nccl->group.world,
                                               .timeout_ms = nccl->group.timeout_ms,
                                               .check = check_ranks,
                                               .context = nccl};
    yoke_watchdog_begin(&nccl->watchdog, CALL_JOIN);
    yoke_status status = yoke_communicator_create(&nccl->communicator, &request);
    if (status != YOKE_OK) return nccl_fail(nccl, status);
    snprintf(nccl->group.transport, sizeof nccl->group.transport, "%s",
             yoke_communicator_name(nccl->communicator));
    return YOKE_OK;
}

/* Leaving and creating. */

static void leave(yoke_process_group *group) {
    nccl_group *nccl = nccl_of(group);
    if (group->broken && nccl->communicator != NULL) yoke_communicator_abort(nccl->communicator);
    yoke_communicator_destroy(nccl->communicator);
    yoke_device_free(nccl->device, nccl->stage);
    if (nccl->group.host != NULL) {
        nccl->group.host->broken = group->broken;
        nccl->group.host->destroy(nccl->group.host);
    }
    yoke_private_memory_free(nccl->memory);
    yoke_free(nccl);
}

static yoke_status abort_group(yoke_process_group *group, yoke_status status) {
    nccl_group *nccl = nccl_of(group);
    if (nccl->group.host != NULL) status = nccl->group.host->abort(nccl->group.host, status);
    return nccl_fail(nccl, status);
}

static yoke_status build(nccl_group *nccl, const yoke_transport_request *request) {
    const yoke_process_group_options *options = request->options;
    nccl->group = (yoke_process_group){.transport = "nccl",
                                       .rank = options->rank->rank,
                                       .world = options->rank->world,
                                       .timeout_ms = options->timeout_ms,
                                       .abort = abort_group,
                                       .destroy = leave};
    nccl_set_collectives(&nccl->group);
    nccl->watchdog = (yoke_watchdog){
        .name = "nccl", .group = &nccl->group, .store = request->store, .peers = request->peers};
    nccl->device = yoke_devices_at(options->devices, 0);
    if (yoke_peers_elsewhere(request->peers, nccl->group.world) == 0)
        TRY(yoke_shared_memory_group(&nccl->group.host, request));
    else if (yoke_mpi_launched(options->rank))
        TRY(yoke_mpi_group(&nccl->group.host, request));
    return join(nccl, options->devices);
}

yoke_status yoke_nccl_group(yoke_process_group **group, const yoke_transport_request *request) {
    *group = NULL;
    nccl_group *nccl = yoke_calloc(1, sizeof *nccl);
    if (nccl == NULL) return FAIL_MEMORY(sizeof *nccl, "a process group");
    yoke_status status = build(nccl, request);
    if (status == YOKE_OK) {
        *group = &nccl->group;
        return YOKE_OK;
    }
    yoke_error error = yoke_error_take(status);
    leave(&nccl->group);
    return yoke_error_restore(&error);
}

yoke_status yoke_nccl_check(const yoke_process_group_options *options) {
    if (options->devices == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a group over NCCL joins GPUs: set options.devices to this rank's one GPU");
    int count = yoke_devices_count(options->devices);
    if (count != 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "options.devices holds %d devices: a group over NCCL takes this rank's one GPU",
                    count);
    return yoke_communicator_check(yoke_devices_at(options->devices, 0));
}
