/* SPDX-License-Identifier: Apache-2.0 */
/* Recording of captured streams, graphs and their replay. */
#include "simcuda/capture.h"

#include <algorithm>

#include "simcuda/api.h"
#include "simcuda/handles.h"
#include "simcuda/memory.h"

using namespace sim;

struct CUgraph_st {
    std::vector<GraphNode> nodes;
    std::vector<int> devices; /* by lane */
};

struct CUgraphExec_st {
    CUgraph_st graph;
    std::vector<CUstream_st *> lanes; /* 0: NULL, the stream of the launch */
    RecordRef last = nullptr;
};

namespace sim {
namespace {

std::vector<std::shared_ptr<Capture>> &captures() { /* that have not ended */
    static auto *const all = new std::vector<std::shared_ptr<Capture>>;
    return *all;
}

constexpr size_t NONE = (size_t)-1;

size_t last_of_lane(const Capture &capture, size_t lane) {
    for (size_t i = capture.nodes.size(); i > 0; i--)
        if (capture.nodes[i - 1].lane == lane) return i - 1;
    return NONE;
}

Node mark(const char *what, int device) {
    Node node;
    node.what = what;
    node.device = device;
    return node;
}

/* Every lane's end lies before the end of lane 0. */
bool is_joined(const Capture &capture) {
    std::vector<bool> before(capture.nodes.size());
    std::vector<size_t> next(capture.streams.size(), NONE);
    size_t end = last_of_lane(capture, 0);
    for (size_t i = capture.nodes.size(); i-- > 0;) {
        const GraphNode &node = capture.nodes[i];
        size_t follower = next[node.lane];
        before[i] = before[i] || i == end || (follower != NONE && before[follower]);
        next[node.lane] = i;
        if (before[i])
            for (size_t wait : node.waits)
                before[wait] = true;
    }
    for (size_t lane = 1; lane < capture.streams.size(); lane++)
        if (!before[last_of_lane(capture, lane)]) return false;
    return true;
}

void end_capture(const std::shared_ptr<Capture> &capture) {
    capture->ended = true;
    for (CUstream_st *stream : capture->streams)
        if (stream != nullptr) stream->capture = nullptr;
    auto &all = captures();
    all.erase(std::remove(all.begin(), all.end(), capture), all.end());
}

cudaError_t finish_capture(const Capture &capture, CUgraph_st **graph) {
    if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
    if (!is_joined(capture)) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st{capture.nodes, {}};
    for (const CUstream_st *stream : capture.streams)
        (*graph)->devices.push_back(stream->device);
    adopt(*graph, "graph");
    return cudaSuccess;
}

} // namespace

cudaError_t capture_node(CUstream_st &stream, Node node) {
    Capture &capture = *stream.capture;
    if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
    capture.nodes.push_back({stream.lane, std::move(node), {}});
    return cudaSuccess;
}

cudaError_t capture_joint(const std::vector<CUstream_st *> &streams, const char *what,
                          uint64_t cost_ns, const Work &work) {
    Capture *capture = nullptr;
    bool one = true;
    for (CUstream_st *stream : streams) {
        if (capture == nullptr) capture = stream->capture.get();
        one = one && stream->capture != nullptr && stream->capture.get() == capture;
    }
    cudaError_t refused = cudaErrorStreamCaptureIsolation;
    for (CUstream_st *stream : streams)
        if (!one && stream->capture != nullptr) stream->capture->invalid = true;
    if (!one) return refused;
    Node node = mark(what, streams[0]->device);
    node.cost_ns = cost_ns;
    node.work = work;
    GraphNode joint = {streams[0]->lane, node, {}};
    for (CUstream_st *stream : streams) {
        joint.node.reach |= reach_of(stream->device);
        size_t last = last_of_lane(*capture, stream->lane);
        if (stream != streams[0] && last != NONE) joint.waits.push_back(last);
    }
    size_t index = capture->nodes.size();
    capture->nodes.push_back(joint);
    for (CUstream_st *stream : streams)
        if (stream != streams[0])
            capture->nodes.push_back({stream->lane, mark(what, stream->device), {index}});
    return cudaSuccess;
}

cudaError_t capture_record(CUevent_st &event, CUstream_st &stream, unsigned flags) {
    cudaError_t code = capture_node(stream, mark("cudaEventRecord", stream.device));
    if (code != cudaSuccess) return code;
    if (flags & cudaEventRecordExternal) {
        stream.capture->nodes.back().event = &event;
        return cudaSuccess;
    }
    event.capture = stream.capture;
    event.node = stream.capture->nodes.size() - 1;
    event.record = nullptr;
    return cudaSuccess;
}

cudaError_t capture_wait(CUstream_st &stream, const CUevent_st &event, unsigned flags) {
    if (event.capture == nullptr) {
        if (flags & cudaEventWaitExternal) return cudaSuccess;
        stream.capture->invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (event.capture->ended) return cudaErrorCapturedEvent;
    if (event.capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (stream.capture != nullptr && stream.capture != event.capture) {
        stream.capture->invalid = event.capture->invalid = true;
        return cudaErrorStreamCaptureMerge;
    }
    if (stream.capture == nullptr) {
        stream.lane = event.capture->streams.size();
        stream.capture = event.capture;
        stream.capture->streams.push_back(&stream);
    }
    stream.capture->nodes.push_back(
        {stream.lane, mark("cudaStreamWaitEvent", stream.device), {event.node}});
    return cudaSuccess;
}

cudaError_t refuse_capture(CUstream_st &stream) {
    if (stream.capture == nullptr) return cudaSuccess;
    stream.capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_unsafe() {
    cudaError_t code = cudaSuccess;
    for (const auto &capture : captures()) {
        bool applies =
            capture->mode == cudaStreamCaptureModeGlobal ||
            (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread == &this_host());
        if (!applies) continue;
        capture->invalid = true;
        code = cudaErrorStreamCaptureUnsupported;
    }
    return code;
}

cudaError_t refuse_default_stream(const CUstream_st &stream) {
    if (stream.number != 0) return cudaSuccess;
    for (CUstream_st *other : streams_of(stream.device))
        if (other->blocking && other->capture != nullptr) {
            other->capture->invalid = true;
            return cudaErrorStreamCaptureImplicit;
        }
    return cudaSuccess;
}

void leave_capture(CUstream_st &stream) {
    if (stream.capture == nullptr) return;
    std::shared_ptr<Capture> capture = stream.capture;
    capture->invalid = true;
    capture->streams[stream.lane] = nullptr;
    stream.capture = nullptr;
    if (stream.lane == 0) end_capture(capture);
}

} // namespace sim

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    ENTER(cudaErrorStreamCaptureUnsupported);
    CUstream_st &stream = find_stream(handle, __func__);
    if (stream.number == 0) return answer(cudaErrorStreamCaptureUnsupported);
    if (stream.capture != nullptr) return answer(cudaErrorIllegalState);
    stream.capture = std::make_shared<Capture>(Capture{mode, &this_host(), {&stream}, {}});
    stream.lane = 0;
    captures().push_back(stream.capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
    Entry entry;
    int planted = fault(__func__, cudaErrorStreamCaptureInvalidated);
    CUstream_st &stream = find_stream(handle, __func__);
    std::shared_ptr<Capture> capture = stream.capture;
    *graph = nullptr;
    if (capture == nullptr) return answer(planted ? (cudaError_t)planted : cudaErrorIllegalState);
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != &this_host())
        return answer(cudaErrorStreamCaptureWrongThread);
    if (stream.lane != 0) return answer(cudaErrorStreamCaptureUnmatched);
    end_capture(capture);
    if (planted) return answer_planted(planted);
    return answer(finish_capture(*capture, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status) {
    ENTER(cudaErrorUnknown);
    const CUstream_st &stream = find_stream(handle, __func__);
    *status = stream.capture == nullptr ? cudaStreamCaptureStatusNone
              : stream.capture->invalid ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    *exec = nullptr;
    ENTER(cudaErrorMemoryAllocation);
    const CUgraph_st &source = resolve(graph, "graph", __func__);
    CUgraphExec_st *made = new CUgraphExec_st{source, {nullptr}};
    for (size_t lane = 1; lane < source.devices.size(); lane++)
        made->lanes.push_back(make_stream(source.devices[lane], false));
    adopt(made, "executable graph");
    *exec = made;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    ENTER(cudaErrorMemoryAllocation);
    resolve(exec, "executable graph", __func__);
    CUstream_st &found = find_stream(stream, __func__);
    if (cudaError_t code = refuse_capture(found)) return answer(code);
    return answer(submit(found, mark("cudaGraphUpload", found.device)));
}

/* Launches of one graph run one after another, whatever their streams. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
    ENTER(cudaErrorLaunchFailure);
    CUgraphExec_st &exec = resolve(handle, "executable graph", __func__);
    CUstream_st &launched = find_stream(stream, __func__);
    if (cudaError_t code = refuse_capture(launched)) return answer(code);
    std::vector<RecordRef> done;
    for (const GraphNode &source : exec.graph.nodes) {
        Node node = source.node;
        for (size_t wait : source.waits)
            node.waits.push_back(done[wait]);
        if (done.empty() && exec.last != nullptr) node.waits.push_back(exec.last);
        done.push_back(push(source.lane == 0 ? launched : *exec.lanes[source.lane], node));
        if (source.event == nullptr) continue;
        CUevent_st &event = resolve(source.event, "event", __func__);
        event.record = done.back();
        event.capture = nullptr;
    }
    exec.last = launched.last;
    return answer(submit(launched, mark("cudaGraphLaunch", launched.device)));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
    Entry entry;
    int planted = fault(__func__, cudaErrorUnknown);
    CUgraphExec_st &exec = resolve(handle, "executable graph", __func__);
    for (size_t lane = 1; lane < exec.lanes.size(); lane++)
        drop_stream(*exec.lanes[lane]);
    disown(&exec);
    delete &exec;
    return answer_planted(planted);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
    Entry entry;
    int planted = fault(__func__, cudaErrorUnknown);
    CUgraph_st &graph = resolve(handle, "graph", __func__);
    disown(&graph);
    delete &graph;
    return answer_planted(planted);
}

} // extern "C"
