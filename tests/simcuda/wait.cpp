/* SPDX-License-Identifier: Apache-2.0 */
/* Host threads that wait, and deadlocks: waits that nothing can end. */
#include <algorithm>
#include <dirent.h>

#include "simcuda/queues.h"

namespace sim {
namespace {

struct Member {
    Host host;
    Member() { schedule().hosts++; }
    ~Member() {
        Entry entry;
        schedule().hosts--;
        schedule().progress.ring();
    }
};

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

/* There is no host thread but those that wait: nobody is left to queue what is missing.
 * ThreadSanitizer has a thread of its own. */
bool is_alone() {
    return schedule().waiting == schedule().hosts &&
           count_threads() <= schedule().hosts + schedule().threads + under_tsan();
}

/* Late work does not run by itself: a host that found none to run has none. */
bool nothing_runs() {
    return settings().late || !anything_runs();
}

/* Stands still until something was queued or done. */
void wait_for_news(const RecordRef &record, const char *call) {
    this_host(); /* counts */
    schedule().waiting++;
    if (nothing_runs() && is_alone()) report_deadlock(record, call);
    bool rung = schedule().progress.wait(settings().deadlock_ms);
    schedule().waiting--;
    if (!rung && nothing_runs()) report_deadlock(record, call);
}

} // namespace

Host &this_host() {
    static thread_local Member member;
    return member.host;
}

int current_device() {
    Entry entry;
    return this_host().device;
}

void wait_for(const RecordRef &record, const char *call) {
    refuse_in_work(call);
    while (record != nullptr && !record->done)
        if (!run_towards(record)) wait_for_news(record, call);
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
    observe(&schedule().ended[device]);
}

bool is_done(const RecordRef &record) {
    if (record == nullptr) return true;
    if (!record->done && flip_coin()) run_towards(record);
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

} // namespace sim
