/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of work and the schedulers that run them: one host thread at a time, in an order drawn
 * from the seed, or a thread per stream. Everything here runs inside an Entry. */
#ifndef SIMCUDA_SCHEDULE_H
#define SIMCUDA_SCHEDULE_H

#include <deque>
#include <memory>

#include "simcuda/lock.h"
#include "simcuda/sim.h"

namespace sim {

/* A moment in a stream: where events, waits and the host look. */
struct Record {
    bool done = false;
    uint64_t time_ns = 0;                /* virtual */
    std::string where;                   /* for reports */
    const CUstream_st *stream = nullptr; /* lives until it is done */
    char queued, finished;               /* marks of ThreadSanitizer's order */
};
using RecordRef = std::shared_ptr<Record>;

struct Node {
    std::string what;
    uint64_t cost_ns = 0;
    Work work;          /* empty: a mark only */
    int device = 0;     /* whose memory, and that of its peers, the work may touch */
    uint64_t reach = 0; /* more devices, as a copy has them */
    bool host = false;  /* a host function: touches no device */
    std::vector<RecordRef> waits = {};
    Joint joint = nullptr;
    uint64_t queued_ns = 0;
    RecordRef done = nullptr;
};

struct JointState {
    std::string what;
    size_t wanted;
    uint64_t cost_ns;
    Work work;
    std::vector<CUstream_st *> streams = {}; /* that have joined */
    bool cancelled = false;
    bool has_run = false;
};

struct Capture;

} // namespace sim

struct CUstream_st {
    int device;
    int number;    /* of this device, 0: the default stream */
    bool blocking; /* waits for the default stream, and it for this */
    std::deque<sim::Node> queue = {};
    bool running = false, destroyed = false, has_thread = false;
    uint64_t now_ns = 0;
    sim::RecordRef last = nullptr; /* what was queued last */
    std::shared_ptr<sim::Capture> capture = nullptr;
    size_t lane = 0; /* of the capture */
    sim::Bell bell = {};
    char order = 0; /* mark: one work after another */
};

namespace sim {

CUstream_st *make_stream(int device, bool blocking);
CUstream_st *default_stream(int device);
/* NULL is the default stream of the current device; a violation if it is not live. */
CUstream_st &find_stream(cudaStream_t stream, const char *call);
void drop_stream(CUstream_st &stream); /* goes when its work is done */
std::vector<CUstream_st *> streams_of(int device);
std::string name_of(const CUstream_st &stream);

/* Into the stream's capture, or at the end of its queue. */
cudaError_t submit(CUstream_st &stream, Node node);
RecordRef push(CUstream_st &stream, Node node);

/* The host stands still until it is done. wait_for_device: until all its streams are. */
void wait_for(const RecordRef &record, const char *call);
void wait_for_device(int device, const char *call);
/* For calls that ask only: time passes between two of them. */
bool is_done(const RecordRef &record);

/* After a sticky error nothing runs any more: all that is queued counts as done. */
void abandon_all();

/* Of this host thread. */
struct Host {
    uint64_t now_ns = 0; /* virtual */
    int device = 0;
    cudaError_t last_error = cudaSuccess;
};
Host &this_host();

int running_device();       /* of the work this thread runs, -1: none, or a host function */
uint64_t running_reach();   /* the devices whose memory it may touch */
std::string running_work(); /* for reports */

} // namespace sim

#endif
