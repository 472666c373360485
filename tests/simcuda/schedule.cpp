/* SPDX-License-Identifier: Apache-2.0 */
/* The schedulers: which queued work runs, and when. */
#include <algorithm>
#include <pthread.h>
#include <thread>

#include "simcuda/fault_signal.h"
#include "simcuda/queues.h"

namespace sim {
namespace {

uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

/* What this thread runs, and whose memory it may touch. */
thread_local const Node *running;
thread_local uint64_t reach;

uint64_t draw() {
    return mix(schedule().random++);
}

bool waits_are_over(const Node &node) {
    return std::all_of(node.waits.begin(), node.waits.end(),
                       [](const RecordRef &record) { return record->done; });
}

/* Taken from the queues to be run: one work, or a joint one and its streams. */
struct Claim {
    std::vector<CUstream_st *> streams;
    std::vector<Node> nodes;
    Joint joint; /* NULL: the work of nodes[0] */
};

Claim claim(CUstream_st &stream) {
    Claim taken;
    Joint joint = stream.queue.front().joint;
    taken.streams = {&stream};
    if (joint != nullptr && !joint->cancelled) {
        taken.joint = joint;
        taken.streams = joint->streams;
        joint->has_run = true;
    }
    for (CUstream_st *one : taken.streams) {
        taken.nodes.push_back(std::move(one->queue.front()));
        one->queue.pop_front();
        one->running = true;
    }
    return taken;
}

uint64_t reach_of(const Claim &taken) {
    uint64_t devices = 0;
    for (const Node &node : taken.nodes)
        devices |= node.host ? 0 : node.reach | sim::reach_of(node.device);
    return devices;
}

void observe_all(const Claim &taken) {
    for (size_t i = 0; i < taken.nodes.size(); i++) {
        observe(&taken.streams[i]->order);
        observe(&taken.nodes[i].done->queued);
        for (const RecordRef &record : taken.nodes[i].waits)
            observe(&record->finished);
    }
}

void publish_all(const Claim &taken) {
    for (size_t i = 0; i < taken.nodes.size(); i++) {
        publish(&taken.streams[i]->order);
        publish(&taken.nodes[i].done->finished);
    }
}

uint64_t finish_time(const Claim &taken) {
    uint64_t start = 0, cost = taken.joint ? taken.joint->cost_ns : taken.nodes[0].cost_ns;
    for (size_t i = 0; i < taken.nodes.size(); i++) {
        start = std::max({start, taken.streams[i]->now_ns, taken.nodes[i].queued_ns});
        for (const RecordRef &record : taken.nodes[i].waits)
            start = std::max(start, record->time_ns);
    }
    return start + cost;
}

void execute(Claim taken) {
    const Work &work = taken.joint ? taken.joint->work : taken.nodes[0].work;
    observe_all(taken);
    if (work && context_error(taken.nodes[0].device) == 0) { /* a poisoned one runs nothing */
        bool threads = settings().threads;
        reach = reach_of(taken);
        close_memory_but(reach);
        watch_for_faults();
        running = &taken.nodes[0];
        {
            Outside outside(threads);
            work();
        }
        running = nullptr;
    }
    publish_all(taken);
    uint64_t time_ns = finish_time(taken);
    for (size_t i = 0; i < taken.nodes.size(); i++) {
        taken.streams[i]->now_ns = time_ns;
        taken.streams[i]->running = false;
        mark_done(taken.nodes[i].done, time_ns);
    }
    tell_everybody();
}

void serve(CUstream_st *stream) {
    Entry entry;
    while (!stream->destroyed || !stream->queue.empty() || stream->running) {
        if (head_can_run(*stream))
            execute(claim(*stream));
        else
            stream->bell.wait(-1);
    }
    observe(&stream->order);
    publish(&schedule().ended[stream->device]);
    stream->has_thread = false;
    schedule().threads--;
    forget_drained();
}

} // namespace

/* Every third seed leaves all work to the moment the host waits, and the next runs it at once:
 * most bugs need one of the two. */
Schedule::Schedule() : random(settings().seed) {
    static const uint64_t often[] = {0, 16, 4};
    eager = settings().late ? 0 : often[settings().seed % 3];
    loyal = mix(random) % 16;
}

Schedule &schedule() {
    static Schedule *const all = new Schedule;
    return *all;
}

bool stands_at(const CUstream_st &stream, const Joint &joint) {
    return !stream.running && !stream.queue.empty() && stream.queue.front().joint == joint &&
           waits_are_over(stream.queue.front());
}

bool head_can_run(const CUstream_st &stream) {
    if (stream.running || stream.queue.empty()) return false;
    const Node &head = stream.queue.front();
    if (!waits_are_over(head)) return false;
    const Joint &joint = head.joint;
    if (joint == nullptr || joint->cancelled) return true;
    return joint->streams.size() == joint->wanted &&
           std::all_of(joint->streams.begin(), joint->streams.end(),
                       [&](const CUstream_st *other) { return stands_at(*other, joint); });
}

bool anything_runs() {
    const auto &streams = schedule().streams;
    return std::any_of(streams.begin(), streams.end(),
                       [](const auto &stream) { return stream->running || head_can_run(*stream); });
}

void mark_done(const RecordRef &record, uint64_t time_ns) {
    record->time_ns = time_ns;
    record->done = true;
}

void tell_everybody() {
    for (const auto &stream : schedule().streams)
        if (stream->has_thread && (head_can_run(*stream) || stream->destroyed)) stream->bell.ring();
    schedule().progress.ring();
}

void forget_drained() {
    auto &streams = schedule().streams;
    auto gone = [](const std::unique_ptr<CUstream_st> &stream) {
        return stream->destroyed && stream->queue.empty() && !stream->running &&
               !stream->has_thread;
    };
    streams.erase(std::remove_if(streams.begin(), streams.end(), gone), streams.end());
}

void start_thread(CUstream_st &stream) {
    if (stream.has_thread || !settings().threads) return;
    stream.has_thread = true;
    schedule().threads++;
    std::thread thread(serve, &stream);
    std::string name =
        "GPU" + std::to_string(stream.device) + " stream" + std::to_string(stream.number);
    pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
    thread.detach();
}

bool run_one() {
    return run_one_of([](const CUstream_st &) { return true; });
}

bool run_one_of(const std::function<bool(const CUstream_st &)> &may_run) {
    if (settings().threads) return false;
    std::vector<CUstream_st *> able;
    for (const auto &stream : schedule().streams)
        if (head_can_run(*stream) && may_run(*stream)) able.push_back(stream.get());
    if (able.empty()) return false;
    CUstream_st *chosen = able[draw() % able.size()];
    if (draw() % 16 < schedule().loyal)
        for (CUstream_st *stream : able)
            if (stream == schedule().last) chosen = stream;
    schedule().last = chosen;
    execute(claim(*chosen));
    forget_drained();
    return true;
}

void let_time_pass() {
    while (draw() % 16 < schedule().eager && run_one())
        if (draw() % 2) break;
}

bool flip_coin() {
    return draw() % 2;
}

void refuse_in_work(const char *call) {
    if (running != nullptr)
        violation("%s is called by work of a stream: no function of CUDA may be", call);
}

int running_device() {
    return running == nullptr || running->host ? -1 : running->device;
}

uint64_t running_reach() {
    return reach;
}

std::string running_work() {
    if (running == nullptr) return "";
    return running->what + " of device " + std::to_string(running->device);
}

} // namespace sim
