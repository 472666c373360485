/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL in one process: communicators and the functions that programs call. */
#include <cstring>
#include <map>

#include "simcuda/communicator.h"

using namespace sim::nccl;
using sim::Entry;

namespace {

constexpr unsigned CONFIG_MAGIC = 0xcafebeef;
constexpr char ID_MARK[] = "simulated NCCL";

struct Id {
    char mark[sizeof ID_MARK];
    uint64_t number;
};
static_assert(sizeof(Id) <= NCCL_UNIQUE_ID_BYTES, "fits");

uint64_t ids_given;
std::map<uint64_t, std::shared_ptr<Clique>> joining; /* by the number of their id */

/* A failing call fails its group, too. */
ncclResult_t failed(ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) fail_group(result);
    return result;
}

#define FAULT(name, natural)                                                                       \
    Entry entry_;                                                                                  \
    if (int code_ = sim::fault(name, natural))                                                     \
    return failed(refuse((ncclResult_t)code_, name " was made to fail"))

ncclResult_t check_config(const ncclConfig_t *config, bool *blocking) {
    *blocking = true;
    if (config == nullptr) return ncclSuccess;
    if (config->magic != CONFIG_MAGIC || config->size != sizeof *config)
        return refuse(ncclInvalidArgument, "the configuration was not initialized");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
        return refuse(ncclInvalidArgument, "blocking is %d, not 0 or 1", config->blocking);
    *blocking = config->blocking != 0;
    return ncclSuccess;
}

ncclComm *join(const std::shared_ptr<Clique> &clique, int rank, int device, bool blocking) {
    ncclComm *comm = new ncclComm();
    comm->clique = clique;
    comm->rank = rank;
    comm->device = device;
    comm->blocking = blocking;
    comm->owner = pthread_self();
    clique->members[(size_t)rank] = comm;
    clique->joined++;
    sim::adopt(comm, "NCCL communicator");
    return comm;
}

/* All ranks have joined: none may share a GPU. One may be gone already. */
void check_devices(Clique &clique) {
    std::map<int, int> rank_of;
    for (ncclComm *member : clique.members) {
        if (member == nullptr) continue;
        auto known = rank_of.emplace(member->device, member->rank);
        if (known.second) continue;
        refuse(ncclInvalidUsage, "duplicate GPU: rank %d and rank %d both on device %d",
               known.first->second, member->rank, member->device);
        for (ncclComm *each : clique.members)
            if (each != nullptr) each->state = ncclInvalidUsage;
        return;
    }
}

ncclResult_t find_clique(const ncclUniqueId &unique, int ranks, int rank,
                         std::shared_ptr<Clique> *found) {
    Id id;
    std::memcpy(&id, &unique, sizeof id);
    if (std::memcmp(id.mark, ID_MARK, sizeof ID_MARK) != 0)
        return refuse(ncclInvalidArgument, "the id is not of ncclGetUniqueId");
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return refuse(ncclInvalidArgument, "rank %d of %d", rank, ranks);
    std::shared_ptr<Clique> &clique = joining[id.number];
    if (clique == nullptr) {
        clique = std::make_shared<Clique>();
        clique->members.resize((size_t)ranks);
    }
    if ((int)clique->members.size() != ranks || clique->ready())
        return refuse(ncclInvalidArgument, "%d ranks where the id stands for %zu", ranks,
                      clique->members.size());
    if (clique->members[(size_t)rank] != nullptr)
        return refuse(ncclInvalidUsage, "rank %d joins twice", rank);
    *found = clique;
    return ncclSuccess;
}

ncclResult_t init_rank(ncclComm_t *to, int ranks, const ncclUniqueId &id, int rank,
                       const ncclConfig_t *config) {
    if (to == nullptr) return refuse(ncclInvalidArgument, "no place for the communicator");
    *to = nullptr;
    bool blocking;
    std::shared_ptr<Clique> clique;
    if (ncclResult_t result = check_config(config, &blocking)) return result;
    if (ncclResult_t result = find_clique(id, ranks, rank, &clique)) return result;
    *to = join(clique, rank, sim::current_device(), blocking);
    if (clique->ready()) check_devices(*clique);
    return submit_join(*to);
}

ncclResult_t check_comm(const ncclComm *comm) {
    if (comm == nullptr) return refuse(ncclInvalidArgument, "no communicator");
    return ncclSuccess;
}

/* Whether it may be asked for an operation now. */
ncclResult_t check_usable(const ncclComm *comm) {
    if (ncclResult_t result = check_comm(comm)) return result;
    if (comm->state != ncclSuccess) return comm->state;
    if (comm->aborting) return refuse(ncclInternalError, "the communicator is aborted");
    if (comm->finalized) return refuse(ncclInvalidArgument, "the communicator is finalized");
    if (comm->busy)
        return refuse(ncclInvalidArgument, "rank %d: the last operation was not yet seen to end",
                      comm->rank);
    return ncclSuccess;
}

ncclResult_t check_call(const Call &call) {
    if (ncclResult_t result = check_usable(call.comm)) return result;
    int ranks = (int)call.comm->clique->members.size();
    if (type_bytes(call.type) == 0)
        return refuse(ncclInvalidArgument, "the simulated NCCL has no %s", type_name(call.type));
    if (call.op < 0 || call.op > ncclAvg)
        return refuse(ncclInvalidArgument, "the simulated NCCL has no operation %d", call.op);
    if (call.root < 0 || call.root >= ranks)
        return refuse(ncclInvalidArgument, "root %d of %d ranks", call.root, ranks);
    if (call.stream == nullptr || sim::stream_device(call.stream) != call.comm->device)
        sim::violation("%s of rank %d on device %d is given %s", call.name, call.comm->rank,
                       call.comm->device,
                       call.stream ? "a stream of another device" : "the default stream");
    sim::check_operands(call.comm->device, operands(call, call.comm->rank, ranks));
    return ncclSuccess;
}

ncclResult_t collective(const Call &call) {
    ncclResult_t result = check_call(call);
    return failed(result != ncclSuccess ? result : submit(call));
}

} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
    FAULT("ncclGetVersion", ncclInternalError);
    if (version == nullptr) return refuse(ncclInvalidArgument, "no place for the version");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

const char *ncclGetLastError(ncclComm_t) {
    return last_error();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    FAULT("ncclGetUniqueId", ncclSystemError);
    if (id == nullptr) return refuse(ncclInvalidArgument, "no place for the id");
    Id own{};
    std::memcpy(own.mark, ID_MARK, sizeof ID_MARK);
    own.number = ++ids_given;
    std::memset(id, 0, sizeof *id);
    std::memcpy(id, &own, sizeof own);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    if (comm != nullptr) *comm = nullptr;
    FAULT("ncclCommInitRankConfig", ncclSystemError);
    return failed(init_rank(comm, ranks, id, rank, config));
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    if (comm != nullptr) *comm = nullptr;
    FAULT("ncclCommInitRank", ncclSystemError);
    return failed(init_rank(comm, ranks, id, rank, nullptr));
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices) {
    FAULT("ncclCommInitAll", ncclSystemError);
    if (comms == nullptr || count < 1) return refuse(ncclInvalidArgument, "%d devices", count);
    std::vector<bool> used((size_t)sim::settings().devices);
    for (int i = 0; i < count; i++) {
        int device = devices == nullptr ? i : devices[i];
        if (device < 0 || device >= sim::settings().devices)
            return refuse(ncclInvalidArgument, "there is no device %d", device);
        if (used[(size_t)device])
            return refuse(ncclInvalidUsage, "duplicate GPU: device %d is listed twice", device);
        used[(size_t)device] = true;
    }
    std::shared_ptr<Clique> clique = std::make_shared<Clique>();
    clique->members.resize((size_t)count);
    for (int i = 0; i < count; i++)
        comms[i] = join(clique, i, devices == nullptr ? i : devices[i], true);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    FAULT("ncclCommFinalize", ncclInternalError);
    if (ncclResult_t result = check_usable(comm)) return result;
    comm->finalized = true;
    comm->busy = !comm->blocking;
    return comm->blocking ? ncclSuccess : ncclInProgress;
}

/* A destroy that fails has destroyed all the same: what else could its caller do. */
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    Entry entry;
    int code = sim::fault("ncclCommDestroy", ncclInternalError);
    if (ncclResult_t result = check_comm(comm)) return result;
    if (!comm->waiting.empty())
        sim::violation("ncclCommDestroy of rank %d, which still waits in %s for other ranks",
                       comm->rank, comm->waiting.front().name);
    release(comm, "ncclCommDestroy");
    return (ncclResult_t)code;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    Entry entry;
    int code = sim::fault("ncclCommAbort", ncclInternalError);
    if (ncclResult_t result = check_comm(comm)) return result;
    submit_abort(comm);
    return (ncclResult_t)code;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    FAULT("ncclCommGetAsyncError", ncclInternalError);
    if (ncclResult_t result = check_comm(comm)) return result;
    *error = poll(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    FAULT("ncclCommCount", ncclInternalError);
    if (ncclResult_t result = check_comm(comm)) return result;
    *count = (int)comm->clique->members.size();
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    FAULT("ncclCommCuDevice", ncclInternalError);
    if (ncclResult_t result = check_comm(comm)) return result;
    *device = comm->device;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    FAULT("ncclCommUserRank", ncclInternalError);
    if (ncclResult_t result = check_comm(comm)) return result;
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
    FAULT("ncclGroupStart", ncclInternalError);
    group_start();
    return ncclSuccess;
}

/* One that fails has ended the group all the same. */
ncclResult_t ncclGroupEnd(void) {
    Entry entry;
    int code = sim::fault("ncclGroupEnd", ncclInternalError);
    if (code != 0) fail_group((ncclResult_t)code);
    return group_end();
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    FAULT("ncclAllReduce", ncclUnhandledCudaError);
    return collective(
        {Kind::all_reduce, "ncclAllReduce", from, to, count, type, op, 0, comm, stream});
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    FAULT("ncclReduce", ncclUnhandledCudaError);
    return collective({Kind::reduce, "ncclReduce", from, to, count, type, op, root, comm, stream});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    FAULT("ncclBroadcast", ncclUnhandledCudaError);
    return collective(
        {Kind::broadcast, "ncclBroadcast", from, to, count, type, ncclSum, root, comm, stream});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    FAULT("ncclReduceScatter", ncclUnhandledCudaError);
    return collective(
        {Kind::reduce_scatter, "ncclReduceScatter", from, to, count, type, op, 0, comm, stream});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    FAULT("ncclAllGather", ncclUnhandledCudaError);
    return collective(
        {Kind::all_gather, "ncclAllGather", from, to, count, type, ncclSum, 0, comm, stream});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    FAULT("ncclSend", ncclUnhandledCudaError);
    return collective(
        {Kind::send, "ncclSend", from, nullptr, count, type, ncclSum, peer, comm, stream});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    FAULT("ncclRecv", ncclUnhandledCudaError);
    return collective(
        {Kind::receive, "ncclRecv", nullptr, to, count, type, ncclSum, peer, comm, stream});
}
}
