/* SPDX-License-Identifier: Apache-2.0 */
/* The transports that a process group chooses from. */
#ifndef DISTRIBUTED_TRANSPORTS_H
#define DISTRIBUTED_TRANSPORTS_H

#include "distributed/transport.h"

typedef struct yoke_transport_request {
    const yoke_process_group_options *options; /* loaded, with defaults */
    yoke_store *store;
    const yoke_peer *peers;
} yoke_transport_request;

/* A check says, before this rank meets the others, whether the build and the machine have the
 * transport; it loads the libraries that the transport needs. */
yoke_status yoke_shared_memory_group(yoke_process_group **group,
                                     const yoke_transport_request *request);
yoke_status yoke_mpi_check(void);
yoke_status yoke_mpi_group(yoke_process_group **group, const yoke_transport_request *request);
/* Whether an MPI launched this process, or initialized it, and the MPI module opens. */
bool yoke_mpi_launched(const yoke_rank_info *rank);
yoke_status yoke_nccl_check(const yoke_process_group_options *options);
yoke_status yoke_nccl_group(yoke_process_group **group, const yoke_transport_request *request);

#endif
