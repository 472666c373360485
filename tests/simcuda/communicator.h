/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's communicators, and how their calls meet. Everything here runs inside an Entry. */
#ifndef SIMCUDA_COMMUNICATOR_H
#define SIMCUDA_COMMUNICATOR_H

#include <deque>
#include <memory>
#include <pthread.h>

#include "simcuda/collectives.h"
#include "simcuda/lock.h"

namespace sim::nccl {

/* The ranks of one unique id. */
struct Clique {
    std::vector<ncclComm *> members; /* NULL: not joined, destroyed or aborted */
    int joined = 0;
    int polls = 0;         /* that still answer "in progress" before calls are queued */
    std::string why_stuck; /* non-blocking ranks that disagree wait until they are aborted */
    bool aborted = false;
    std::vector<std::weak_ptr<JointState>> queued; /* what an abort takes back */
    bool ready() const { return joined == (int)members.size(); }
};

} // namespace sim::nccl

struct ncclComm {
    std::shared_ptr<sim::nccl::Clique> clique;
    int rank, device;
    bool blocking;
    bool busy; /* non-blocking: the last call was not yet seen to have ended */
    bool finalized;
    bool aborting;      /* its waits end; the end of the abort's group frees it */
    ncclResult_t state; /* an error stays */
    pthread_t owner;    /* joined it */
    pthread_t user;     /* inside a call or a group, while uses > 0 */
    int uses;
    std::deque<sim::nccl::Call> waiting; /* called, not yet met by every rank */
};

namespace sim::nccl {

/* Keeps the reason for ncclGetLastError. */
ncclResult_t refuse(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *last_error();

/* One thread at a time may use a communicator: a violation otherwise. */
void begin_use(ncclComm *comm, const char *call);
void end_use(ncclComm *comm);

/* The calling thread's group. A call in it that fails makes the whole group fail. */
bool in_group();
void group_start();
ncclResult_t group_end();
void fail_group(ncclResult_t result);
/* Ends every wait in the communicator now; frees it at the end of the group, or now. */
void submit_abort(ncclComm *comm);
/* The join of a communicator is part of the group, or waits for the other ranks here. */
ncclResult_t submit_join(ncclComm *comm);
/* What the collectives come to. */
ncclResult_t submit(Call call);

/* Queues what all ranks have called, in the order of each rank. */
void launch_ready(Clique &clique);
/* Another answer to "has it ended?" of a non-blocking communicator. */
ncclResult_t poll(ncclComm *comm);
void ring_all(); /* something changed that a blocked rank may wait for */
void forget_registrations(const ncclComm *comm); /* nccl_memory.cpp: it ends with them */
/* Makes an end of the communicator: a violation while a thread is inside a call of it. */
void release(ncclComm *comm, const char *call);

} // namespace sim::nccl

#endif
