/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and graphs. A captured stream is a lane of the graph: a replay runs the first lane in
 * the stream it is launched in and the others beside it, in streams of the graph's own. */
#ifndef SIMCUDA_CAPTURE_H
#define SIMCUDA_CAPTURE_H

#include "simcuda/schedule.h"

struct CUevent_st {
    int device;
    unsigned flags;
    sim::RecordRef record = nullptr;                 /* NULL: never recorded */
    std::shared_ptr<sim::Capture> capture = nullptr; /* recorded last in one */
    size_t node = 0;
};

namespace sim {

struct GraphNode {
    size_t lane;
    Node node;
    std::vector<size_t> waits;   /* for earlier nodes of other lanes */
    CUevent_st *event = nullptr; /* recorded by every launch */
};

struct Capture {
    cudaStreamCaptureMode mode;
    const Host *thread;
    std::vector<CUstream_st *> streams; /* by lane; 0 began it */
    std::vector<GraphNode> nodes;
    bool invalid = false, ended = false;
};

/* What a stream under capture takes in place of its queue. */
cudaError_t capture_node(CUstream_st &stream, Node node);
cudaError_t capture_joint(const std::vector<CUstream_st *> &streams, const char *what,
                          uint64_t cost_ns, const Work &work);
cudaError_t capture_record(CUevent_st &event, CUstream_st &stream, unsigned flags);
cudaError_t capture_wait(CUstream_st &stream, const CUevent_st &event, unsigned flags);

/* The capture becomes invalid and the call fails: one that may not be made on a captured stream;
 * one that may not be made while any stream is captured in a mode that forbids it (0: it may);
 * one on the default stream while a stream is captured that is ordered with it (0: none is). */
cudaError_t refuse_capture(CUstream_st &stream);
cudaError_t refuse_unsafe();
cudaError_t refuse_default_stream(const CUstream_st &stream);
void leave_capture(CUstream_st &stream); /* it is destroyed */

} // namespace sim

#endif
