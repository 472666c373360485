/* SPDX-License-Identifier: Apache-2.0 */
/* Where NCCL's calls meet: an operation is queued once all ranks have called it. Until then a
 * blocking rank waits in its call, as NCCL may, and a non-blocking rank's call is in progress. */
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "simcuda/communicator.h"
#include "simcuda/schedule.h"

namespace sim::nccl {
namespace {

Bell bell;

uint64_t draw() {
    static uint64_t state = settings().seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

struct Group {
    int depth = 0;
    ncclResult_t failure = ncclSuccess;
    std::vector<Call> calls;
    std::vector<ncclComm *> joins, aborts;
};
thread_local Group group;

std::string describe(const Call &call) {
    std::string text =
        std::string(call.name) + "(" + std::to_string(call.count) + " " + type_name(call.type);
    if (reduces(call.kind)) text += std::string(", ") + op_name(call.op);
    if (rooted(call.kind)) text += ", root " + std::to_string(call.root);
    if (call.kind == Kind::send) text += ", to " + std::to_string(call.root);
    if (call.kind == Kind::receive) text += ", from " + std::to_string(call.root);
    return text + ")";
}

/* What every rank of a clique is at. */
std::string describe(const Clique &clique) {
    std::string text;
    for (size_t r = 0; r < clique.members.size(); r++) {
        const ncclComm *member = clique.members[r];
        text += (r == 0 ? "rank " : "; rank ") + std::to_string(r) + " ";
        if (member == nullptr)
            text += clique.ready() ? "was destroyed or aborted" : "has not joined";
        else if (member->waiting.empty())
            text += clique.ready() ? "has called nothing" : "has joined";
        else
            text += "waits in " + describe(member->waiting.front());
    }
    return text;
}

bool point_to_point(const Call &call) {
    return call.kind == Kind::send || call.kind == Kind::receive;
}

bool agree(const Call &one, const Call &other) {
    return one.kind == other.kind && one.count == other.count && one.type == other.type &&
           (!reduces(one.kind) || one.op == other.op) &&
           (!rooted(one.kind) || one.root == other.root);
}

/* Calls that never meet: NCCL would hang, or write past the end of a buffer. */
void disagree(Clique &clique) {
    clique.why_stuck = describe(clique);
    for (const ncclComm *member : clique.members)
        if (member != nullptr && member->blocking)
            violation("NCCL would hang, its ranks disagree: %s", clique.why_stuck.c_str());
}

uint64_t cost_ns(const Call &call) {
    return 10000 + call.count * type_bytes(call.type) / 100; /* 100 GB/s */
}

/* Into the graph when the streams are captured; otherwise so that an abort can take it back. */
cudaError_t queue(Clique &clique, const std::vector<cudaStream_t> &streams, const Call &call,
                  const Work &work) {
    for (cudaStream_t stream : streams)
        if (stream->capture != nullptr)
            return enqueue_joint(streams, call.name, cost_ns(call), work);
    auto gone = [](const std::weak_ptr<JointState> &joint) { return joint.expired(); };
    clique.queued.erase(std::remove_if(clique.queued.begin(), clique.queued.end(), gone),
                        clique.queued.end());
    Joint joint = open_joint(call.name, streams.size(), cost_ns(call), work);
    clique.queued.push_back(joint);
    cudaError_t error = cudaSuccess;
    for (cudaStream_t stream : streams)
        if (error == cudaSuccess) error = join(joint, stream);
    if (error != cudaSuccess) cancel(joint);
    return error;
}

void launch(const std::shared_ptr<Clique> &clique, const std::vector<Call> &calls) {
    std::vector<cudaStream_t> streams;
    std::vector<std::vector<Operand>> touched;
    std::vector<int> devices;
    for (const Call &call : calls) {
        streams.push_back(call.stream);
        devices.push_back(call.comm->device);
        touched.push_back(operands(call, call.comm->rank, (int)clique->members.size()));
    }
    Work work = [calls, devices, touched] {
        for (const Call &call : calls)
            observe(call.order.get());
        for (size_t i = 0; i < calls.size(); i++) {
            check_operands(devices[i], touched[i]);
            touch_operands(touched[i]);
        }
        run(calls);
    };
    count_collective(calls[0].count * type_bytes(calls[0].type));
    cudaError_t error = queue(*clique, streams, calls[0], work);
    for (const Call &call : calls)
        if (error != cudaSuccess) call.comm->state = ncclUnhandledCudaError;
}

/* The next call of every rank, when it is the same collective on all. */
bool launch_collective(const std::shared_ptr<Clique> &clique) {
    std::vector<Call> calls;
    for (const ncclComm *member : clique->members) {
        if (member == nullptr || member->waiting.empty()) return false;
        if (point_to_point(member->waiting.front())) return false;
        calls.push_back(member->waiting.front());
    }
    for (const Call &call : calls)
        if (!agree(call, calls[0])) {
            disagree(*clique);
            return false;
        }
    for (ncclComm *member : clique->members)
        member->waiting.pop_front();
    launch(clique, calls);
    return true;
}

/* The first send or receive with this peer before any collective; -1: none. */
int find_peer_call(const ncclComm &comm, Kind kind, int peer) {
    for (size_t i = 0; i < comm.waiting.size() && point_to_point(comm.waiting[i]); i++)
        if (comm.waiting[i].kind == kind && comm.waiting[i].root == peer) return (int)i;
    return -1;
}

bool launch_pair(const std::shared_ptr<Clique> &clique, ncclComm &from, ncclComm &to) {
    int send = find_peer_call(from, Kind::send, to.rank);
    int receive = find_peer_call(to, Kind::receive, from.rank);
    if (send < 0 || receive < 0) return false;
    Call sent = from.waiting[(size_t)send], received = to.waiting[(size_t)receive];
    if (sent.count != received.count || sent.type != received.type)
        violation("NCCL would hang: rank %d calls %s but rank %d calls %s", from.rank,
                  describe(sent).c_str(), to.rank, describe(received).c_str());
    from.waiting.erase(from.waiting.begin() + send);
    if (&from == &to && receive > send) receive--;
    to.waiting.erase(to.waiting.begin() + receive);
    launch(clique, {sent, received});
    return true;
}

bool launch_pairs(const std::shared_ptr<Clique> &clique) {
    for (ncclComm *from : clique->members)
        for (ncclComm *to : clique->members)
            if (from != nullptr && to != nullptr && launch_pair(clique, *from, *to)) return true;
    return false;
}

bool settled(const ncclComm &comm) {
    return comm.clique->ready() && comm.waiting.empty();
}

/* A blocking rank stays until every rank has called what it called, or until its own abort: of
 * another rank's it learns nothing. */
ncclResult_t wait_for_ranks(ncclComm *comm) {
    while (!settled(*comm) && comm->state == ncclSuccess) {
        if (comm->aborting) {
            comm->waiting.clear();
            return refuse(ncclInternalError, "rank %d was aborted", comm->rank);
        }
        if (!bell.wait(settings().deadlock_ms) && !settled(*comm))
            violation("NCCL would hang: %s. One thread that owns several communicators must call "
                      "them between ncclGroupStart and ncclGroupEnd",
                      describe(*comm->clique).c_str());
    }
    return comm->state;
}

/* Non-blocking: NCCL's own thread does the rest, in its own time. */
void leave_in_progress(ncclComm *comm) {
    comm->busy = true;
    comm->clique->polls = (int)(draw() % 4);
}

ncclResult_t settle(const std::vector<ncclComm *> &comms) {
    ncclResult_t result = ncclSuccess;
    for (ncclComm *comm : comms)
        if (!comm->blocking) leave_in_progress(comm);
    for (ncclComm *comm : comms)
        launch_ready(*comm->clique);
    ring_all();
    for (ncclComm *comm : comms) {
        ncclResult_t one = comm->blocking ? wait_for_ranks(comm) : ncclInProgress;
        if (result == ncclSuccess || (result == ncclInProgress && one != ncclSuccess)) result = one;
    }
    return result;
}

bool overlap(const Operand &one, const Operand &other) {
    const char *a = (const char *)one.pointer, *b = (const char *)other.pointer;
    return (one.written || other.written) && a < b + other.bytes && b < a + one.bytes;
}

/* NCCL may run the calls of a group at the same time and in any order. */
void check_independent(const std::vector<Call> &calls) {
    for (size_t i = 0; i < calls.size(); i++)
        for (size_t j = 0; j < i; j++) {
            if (calls[i].comm != calls[j].comm) continue;
            int rank = calls[i].comm->rank, ranks = (int)calls[i].comm->clique->members.size();
            for (const Operand &one : operands(calls[i], rank, ranks))
                for (const Operand &other : operands(calls[j], rank, ranks))
                    if (overlap(one, other))
                        violation("%s and %s of rank %d touch the same memory in one group, whose "
                                  "calls have no order",
                                  describe(calls[j]).c_str(), describe(calls[i]).c_str(), rank);
        }
}

void add_once(std::vector<ncclComm *> &comms, ncclComm *comm) {
    for (const ncclComm *known : comms)
        if (known == comm) return;
    comms.push_back(comm);
}

thread_local char error_text[512];

} // namespace

ncclResult_t refuse(ncclResult_t result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(error_text, sizeof error_text, format, arguments);
    va_end(arguments);
    return result;
}

const char *last_error() {
    return error_text;
}

void begin_use(ncclComm *comm, const char *call) {
    if (comm->uses > 0 && !pthread_equal(comm->user, pthread_self()))
        violation("%s on the communicator of rank %d while another thread is inside a call or a "
                  "group of it",
                  call, comm->rank);
    comm->user = pthread_self();
    comm->uses++;
}

void end_use(ncclComm *comm) {
    comm->uses--;
}

void release(ncclComm *comm, const char *call) {
    if (comm->uses > 0)
        violation("%s frees the communicator of rank %d while a thread is inside a call or a group "
                  "of it",
                  call, comm->rank);
    comm->clique->members[(size_t)comm->rank] = nullptr;
    forget_registrations(comm);
    disown(comm);
    delete comm;
    ring_all();
}

void submit_abort(ncclComm *comm) {
    Clique &clique = *comm->clique;
    if (comm->aborting) violation("ncclCommAbort of rank %d, which was aborted", comm->rank);
    if (comm->uses > 0 && (!comm->blocking || pthread_equal(comm->user, pthread_self())))
        violation("ncclCommAbort of rank %d inside %s", comm->rank,
                  comm->blocking ? "its open group" : "a call of a non-blocking communicator");
    for (const ncclComm *member : clique.members)
        if (!in_group() && member != nullptr && member != comm &&
            pthread_equal(member->owner, comm->owner))
            violation("ncclCommAbort of rank %d alone may wait for the work of rank %d, which the "
                      "same thread joined: abort both between ncclGroupStart and ncclGroupEnd",
                      comm->rank, member->rank);
    comm->aborting = clique.aborted = true;
    for (const std::weak_ptr<JointState> &queued : clique.queued)
        if (Joint joint = queued.lock()) cancel(joint);
    ring_all();
    if (in_group())
        group.aborts.push_back(comm);
    else
        release(comm, "ncclCommAbort");
}

void ring_all() {
    bell.ring();
}

void launch_ready(Clique &clique) {
    if (!clique.ready() || clique.polls > 0 || clique.aborted) return;
    for (const ncclComm *member : clique.members)
        if (member != nullptr) {
            std::shared_ptr<Clique> shared = member->clique;
            while (clique.why_stuck.empty() && (launch_collective(shared) || launch_pairs(shared)))
                continue;
            return;
        }
}

ncclResult_t poll(ncclComm *comm) {
    if (comm->state != ncclSuccess || !comm->busy) return comm->state;
    if (comm->clique->polls > 0) {
        comm->clique->polls--;
        return ncclInProgress;
    }
    launch_ready(*comm->clique);
    ring_all();
    if (!settled(*comm)) {
        refuse(ncclInProgress, "%s", describe(*comm->clique).c_str());
        return ncclInProgress;
    }
    comm->busy = false;
    return comm->state;
}

bool in_group() {
    return group.depth > 0;
}

void group_start() {
    group.depth++;
}

void fail_group(ncclResult_t result) {
    if (in_group() && group.failure == ncclSuccess) group.failure = result;
}

/* A group that failed does nothing at all. */
ncclResult_t group_end() {
    if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0) return ncclSuccess;
    Group ended;
    std::swap(ended, group);
    std::vector<ncclComm *> comms;
    for (ncclComm *comm : ended.joins)
        add_once(comms, comm);
    for (const Call &call : ended.calls)
        add_once(comms, call.comm);
    ncclResult_t result = ended.failure;
    if (result == ncclSuccess) {
        check_independent(ended.calls);
        for (const Call &call : ended.calls)
            call.comm->waiting.push_back(call);
        result = settle(comms);
    } else {
        for (ncclComm *comm : comms)
            comm->state = result;
    }
    for (ncclComm *comm : comms)
        comm->uses = 0;
    for (ncclComm *comm : ended.aborts)
        release(comm, "ncclGroupEnd after ncclCommAbort");
    return result;
}

ncclResult_t submit_join(ncclComm *comm) {
    begin_use(comm, "ncclCommInitRankConfig");
    if (in_group()) {
        group.joins.push_back(comm);
        return ncclSuccess;
    }
    ncclResult_t result = settle({comm});
    end_use(comm);
    return result;
}

ncclResult_t submit(Call call) {
    begin_use(call.comm, call.name);
    call.order = std::make_shared<char>();
    publish(call.order.get());
    if (in_group()) {
        group.calls.push_back(call);
        return ncclSuccess;
    }
    call.comm->waiting.push_back(call);
    ncclResult_t result = settle({call.comm});
    end_use(call.comm);
    return result;
}

} // namespace sim::nccl
