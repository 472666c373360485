/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL's collectives do to the buffers of all ranks at once. */
#ifndef SIMCUDA_COLLECTIVES_H
#define SIMCUDA_COLLECTIVES_H

#include <memory>

#include <nccl.h>

#include "simcuda/library.h"

namespace sim::nccl {

enum class Kind { all_reduce, reduce, broadcast, reduce_scatter, all_gather, send, receive };

/* One rank's part of an operation. */
struct Call {
    Kind kind;
    const char *name;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; /* or the peer of a send or receive */
    ncclComm_t comm;
    cudaStream_t stream;
    std::shared_ptr<char> order = nullptr; /* mark: what its host did before is seen by the work */
};

size_t type_bytes(ncclDataType_t type); /* 0: the simulation does not have it */
const char *type_name(ncclDataType_t type);
const char *op_name(ncclRedOp_t op);
bool reduces(Kind kind);
bool rooted(Kind kind);
std::vector<Operand> operands(const Call &call, int rank, int ranks);

/* calls[r] is rank r's; of a send and its receive, in this order. Reductions go rank by rank. */
void run(const std::vector<Call> &calls);

} // namespace sim::nccl

#endif
