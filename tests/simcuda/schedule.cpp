#include "simcuda/schedule.h"

#include <pthread.h>
#include <thread>

#include <algorithm>
#include <cstdlib>
#include <dirent.h>

#include "simcuda/capture.h"
#include "simcuda/handles.h"
#include "simcuda/memory.h"

namespace sim {
namespace {

constexpr uint64_t CALL_NS = 1000; /* virtual time a host call takes */

struct Schedule {
    std::vector<std::unique_ptr<CUstream_st>> streams;
    CUstream_st *defaults[DEVICES_LIMIT] = {};
    int numbers[DEVICES_LIMIT] = {};
    Bell progress;              /* rung when anything is queued or done */
    int hosts = 0, waiting = 0; /* host threads that ever called, and that wait now */
    int threads = 0;            /* of streams */
    /* The seeded scheduler: its random numbers, how often of 16 times a call lets time pass, and
     * how often the stream that ran last goes on. */
    uint64_t random, eager, loyal;
    const CUstream_st *last = nullptr;
    Schedule();
};

uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

/* Every third seed leaves all work to the moment the host waits, and the next runs it at once:
 * most bugs need one of the two. */
Schedule::Schedule() : random(settings().seed) {
    static const uint64_t often[] = {0, 16, 4};
    eager = often[settings().seed % 3];
    loyal = mix(random) % 16;
}

Schedule &schedule() {
    static Schedule *const all = new Schedule;
    return *all;
}

uint64_t draw() {
    return mix(schedule().random++);
}

struct Member {
    Host host;
    Member() { schedule().hosts++; }
    ~Member() {
        Entry entry;
        schedule().hosts--;
        schedule().progress.ring();
    }
};

/* What this thread runs. */
thread_local const Node *running;

bool waits_are_over(const Node &node) {
    return std::all_of(node.waits.begin(), node.waits.end(),
                       [](const RecordRef &record) { return record->done; });
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
    uint64_t reach = 0;
    for (const Node &node : taken.nodes)
        reach |= node.host ? 0 : node.reach | sim::reach_of(node.device);
    return reach;
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

void mark_done(const RecordRef &record, uint64_t time_ns) {
    record->time_ns = time_ns;
    record->done = true;
}

/* Those whose turn has come, and the hosts that wait. */
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

void execute(Claim taken) {
    const Work &work = taken.joint ? taken.joint->work : taken.nodes[0].work;
    observe_all(taken);
    if (work) {
        bool threads = settings().threads;
        open_memory(reach_of(taken));
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

/* The threads scheduler. */

void serve(CUstream_st *stream) {
    Entry entry;
    while (!stream->destroyed || !stream->queue.empty() || stream->running) {
        if (head_can_run(*stream))
            execute(claim(*stream));
        else
            stream->bell.wait(-1);
    }
    stream->has_thread = false;
    schedule().threads--;
    forget_drained();
}

void start_thread(CUstream_st &stream) {
    if (stream.has_thread || !settings().threads) return;
    stream.has_thread = true;
    schedule().threads++;
    std::thread thread(serve, &stream);
    pthread_setname_np(thread.native_handle(), name_of(stream).substr(0, 15).c_str());
    thread.detach();
}

/* The seeded scheduler. */

bool run_one() {
    std::vector<CUstream_st *> able;
    for (const auto &stream : schedule().streams)
        if (head_can_run(*stream)) able.push_back(stream.get());
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
    while (!settings().threads && draw() % 16 < schedule().eager && run_one())
        if (draw() % 2) break;
}

/* Deadlocks. */

std::string describe_wait(const CUstream_st &stream) {
    const Node &head = stream.queue.front();
    std::string text = name_of(stream) + ": " + head.what;
    for (const RecordRef &record : head.waits)
        if (!record->done) text += " waits for " + record->where;
    if (head.joint == nullptr) return text;
    text += " waits for ";
    if (head.joint->streams.size() < head.joint->wanted)
        return text + std::to_string(head.joint->wanted - head.joint->streams.size()) +
               " more of " + std::to_string(head.joint->wanted) + " streams to join";
    for (const CUstream_st *other : head.joint->streams)
        if (!stands_at(*other, head.joint)) text += name_of(*other) + " ";
    return text + "to get there";
}

[[noreturn]] void report_deadlock(const RecordRef &record, const char *call) {
    std::string graph;
    for (const auto &stream : schedule().streams)
        if (!stream->queue.empty()) graph += "\n    " + describe_wait(*stream);
    violation("deadlock: %s waits for %s, which nothing can bring about:%s", call,
              record->where.c_str(), graph.c_str());
}

int count_threads() {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (folder == nullptr) return -1;
    while (const dirent *entry = readdir(folder))
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* No stream can go on, and there is no host thread but those that wait: nobody is left to queue
 * what is missing. */
bool is_stuck() {
    for (const auto &stream : schedule().streams)
        if (stream->running || head_can_run(*stream)) return false;
    return schedule().waiting == schedule().hosts &&
           count_threads() == schedule().hosts + schedule().threads;
}

bool anything_runs() {
    for (const auto &stream : schedule().streams)
        if (stream->running || head_can_run(*stream)) return true;
    return false;
}

void refuse_in_work(const char *call) {
    if (running != nullptr)
        violation("%s is called by work of a stream: no function of CUDA may be", call);
}

} // namespace

Host &this_host() {
    static thread_local Member member;
    return member.host;
}

int running_device() {
    return running == nullptr || running->host ? -1 : running->device;
}

std::string running_work() {
    if (running == nullptr) return "";
    return running->what + " of device " + std::to_string(running->device);
}

std::string name_of(const CUstream_st &stream) {
    return "device " + std::to_string(stream.device) + " stream " + std::to_string(stream.number);
}

CUstream_st *make_stream(int device, bool blocking) {
    if (schedule().defaults[device] == nullptr) { /* it is number 0 */
        schedule().defaults[device] = new CUstream_st{device, 0, true};
        schedule().streams.emplace_back(schedule().defaults[device]);
    }
    schedule().streams.push_back(std::unique_ptr<CUstream_st>(
        new CUstream_st{device, ++schedule().numbers[device], blocking}));
    return schedule().streams.back().get();
}

CUstream_st *default_stream(int device) {
    if (schedule().defaults[device] == nullptr) {
        schedule().defaults[device] = new CUstream_st{device, 0, true};
        schedule().streams.emplace_back(schedule().defaults[device]);
    }
    return schedule().defaults[device];
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

RecordRef push(CUstream_st &stream, Node node) {
    Host &host = this_host();
    host.now_ns += CALL_NS;
    node.queued_ns = host.now_ns;
    node.done = std::make_shared<Record>();
    node.done->where = "'" + node.what + "' of " + name_of(stream);
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

void wait_for(const RecordRef &record, const char *call) {
    refuse_in_work(call);
    Schedule &all = schedule();
    while (record != nullptr && !record->done) {
        if (!settings().threads && run_one()) continue;
        this_host();
        all.waiting++;
        if (is_stuck()) report_deadlock(record, call);
        bool rung = all.progress.wait(settings().deadlock_ms);
        all.waiting--;
        if (!rung && !anything_runs()) report_deadlock(record, call);
    }
    if (record == nullptr) return;
    this_host().now_ns = std::max(this_host().now_ns, record->time_ns);
    observe(&record->finished);
}

void wait_for_device(int device, const char *call) {
    std::vector<RecordRef> records;
    for (const CUstream_st *stream : streams_of(device))
        records.push_back(stream->last);
    for (const RecordRef &record : records)
        wait_for(record, call);
}

bool is_done(const RecordRef &record) {
    if (record == nullptr) return true;
    if (!record->done && !settings().threads && draw() % 2) run_one();
    if (record->done) observe(&record->finished);
    return record->done;
}

void abandon_all() {
    for (const auto &stream : schedule().streams) {
        for (const Node &node : stream->queue)
            mark_done(node.done, stream->now_ns);
        stream->queue.clear();
    }
    tell_everybody();
    while (settings().threads && anything_runs())
        schedule().progress.wait(-1);
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

int current_device() {
    Entry entry;
    return this_host().device;
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
    std::vector<CUstream_st *> found;
    for (cudaStream_t stream : streams)
        found.push_back(&find_stream(stream, what));
    for (CUstream_st *stream : found)
        if (stream->capture != nullptr) return capture_joint(found, what, cost_ns, work);
    Joint joint = open_joint(what, streams.size(), cost_ns, std::move(work));
    for (CUstream_st *stream : found) {
        Node node{what, 0, nullptr, stream->device};
        node.joint = joint;
        push(*stream, std::move(node));
    }
    let_time_pass();
    return cudaSuccess;
}

} // namespace sim
