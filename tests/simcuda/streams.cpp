/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and their queues. */
#include <algorithm>
#include <atomic>

#include "simcuda/capture.h"
#include "simcuda/handles.h"
#include "simcuda/queues.h"

namespace sim {

constexpr uint64_t CALL_NS = 1000; /* virtual time a host call takes */

std::string name_of(const CUstream_st &stream) {
    return "device " + std::to_string(stream.device) + " stream " + std::to_string(stream.number);
}

static CUstream_st *add_stream(int device, int number, bool blocking) {
    schedule().streams.emplace_back(new CUstream_st{device, number, blocking});
    return schedule().streams.back().get();
}

CUstream_st *make_stream(int device, bool blocking) {
    return add_stream(device, ++schedule().numbers[device], blocking);
}

CUstream_st *default_stream(int device) {
    CUstream_st *&stream = schedule().defaults[device];
    if (stream == nullptr) stream = add_stream(device, 0, true);
    return stream;
}

CUstream_st &find_stream(cudaStream_t stream, const char *call) {
    if (stream == nullptr || stream == cudaStreamLegacy) return *default_stream(this_host().device);
    return resolve(stream, "stream", call);
}

void drop_stream(CUstream_st &stream) {
    stream.destroyed = true;
    tell_everybody();
    forget_drained();
}

std::vector<CUstream_st *> streams_of(int device) {
    std::vector<CUstream_st *> found;
    for (const auto &stream : schedule().streams)
        if (stream->device == device) found.push_back(stream.get());
    return found;
}

/* The default stream waits for all blocking streams of the device, and they for it. */
static void order_by_default_stream(const CUstream_st &stream, Node &node) {
    if (!stream.blocking) return;
    for (const CUstream_st *other : streams_of(stream.device))
        if (other != &stream && other->blocking && (stream.number == 0 || other->number == 0) &&
            other->last != nullptr)
            node.waits.push_back(other->last);
}

static std::atomic<uint64_t> works{0};

uint64_t works_so_far() {
    return works;
}

RecordRef push(CUstream_st &stream, Node node) {
    Host &host = this_host();
    works += node.work != nullptr;
    host.now_ns += CALL_NS;
    node.queued_ns = host.now_ns;
    node.done = std::make_shared<Record>();
    node.done->where = "'" + node.what + "' of " + name_of(stream);
    node.done->stream = &stream;
    order_by_default_stream(stream, node);
    if (node.joint != nullptr) node.joint->streams.push_back(&stream);
    publish(&node.done->queued);
    RecordRef done = stream.last = node.done;
    stream.queue.push_back(std::move(node));
    start_thread(stream);
    tell_everybody();
    return done;
}

cudaError_t submit(CUstream_st &stream, Node node) {
    refuse_in_work(node.what.c_str());
    if (stream.capture != nullptr) return capture_node(stream, std::move(node));
    if (cudaError_t code = refuse_default_stream(stream)) return code;
    push(stream, std::move(node));
    let_time_pass();
    return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, const char *what, uint64_t cost_ns, Work work) {
    Entry entry;
    CUstream_st &found = find_stream(stream, what);
    return submit(found, Node{what, cost_ns, std::move(work), found.device});
}

int stream_device(cudaStream_t stream) {
    Entry entry;
    return find_stream(stream, "a call on a stream").device;
}

Joint open_joint(const char *what, size_t streams, uint64_t cost_ns, Work work) {
    Entry entry;
    return Joint(new JointState{what, streams, cost_ns, std::move(work)});
}

cudaError_t join(const Joint &joint, cudaStream_t stream) {
    Entry entry;
    CUstream_st &found = find_stream(stream, joint->what.c_str());
    if (found.capture != nullptr) return refuse_capture(found);
    Node node{joint->what, 0, nullptr, found.device};
    node.joint = joint;
    return submit(found, std::move(node));
}

void cancel(const Joint &joint) {
    Entry entry;
    joint->cancelled = !joint->has_run;
    tell_everybody();
}

cudaError_t enqueue_joint(const std::vector<cudaStream_t> &streams, const char *what,
                          uint64_t cost_ns, Work work) {
    Entry entry;
    std::vector<CUstream_st *> found; /* each once */
    for (cudaStream_t stream : streams) {
        CUstream_st *one = &find_stream(stream, what);
        if (std::find(found.begin(), found.end(), one) == found.end()) found.push_back(one);
    }
    for (CUstream_st *stream : found)
        if (stream->capture != nullptr) return capture_joint(found, what, cost_ns, work);
    Joint joint = open_joint(what, found.size(), cost_ns, std::move(work));
    for (CUstream_st *stream : found) {
        Node node{what, 0, nullptr, stream->device};
        node.joint = joint;
        push(*stream, std::move(node));
    }
    let_time_pass();
    return cudaSuccess;
}

} // namespace sim
