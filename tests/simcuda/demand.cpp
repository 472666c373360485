/* SPDX-License-Identifier: Apache-2.0 */
/* SIMCUDA_LATE: a host that waits runs what it waits for and all that this needs, and no more. */
#include <unordered_map>

#include "simcuda/queues.h"

namespace sim {
namespace {

/* How many works at the head of each stream's queue are needed. */
using Demand = std::unordered_map<const CUstream_st *, size_t>;
using Records = std::vector<RecordRef>;

size_t place_of(const CUstream_st &stream, size_t from, const RecordRef &record) {
    size_t i = from;
    while (i < stream.queue.size() && stream.queue[i].done != record)
        i++;
    return i;
}

/* Its waits, and where the other streams of a joint join it. */
void add_needs(const Node &node, Records &open) {
    open.insert(open.end(), node.waits.begin(), node.waits.end());
    if (node.joint == nullptr || node.joint->cancelled) return;
    for (const CUstream_st *other : node.joint->streams)
        for (const Node &partner : other->queue)
            if (partner.joint == node.joint) open.push_back(partner.done);
}

Demand demand_of(const RecordRef &wanted) {
    Demand demand;
    Records open = {wanted};
    while (!open.empty()) {
        RecordRef record = open.back();
        open.pop_back();
        if (record->done) continue;
        const CUstream_st &stream = *record->stream;
        size_t &needed = demand[&stream], place = place_of(stream, needed, record);
        if (place == stream.queue.size()) continue; /* it is needed already, or it runs */
        while (needed <= place)
            add_needs(stream.queue[needed++], open);
    }
    return demand;
}

} // namespace

bool run_towards(const RecordRef &record) {
    if (!settings().late) return run_one();
    const Demand demand = demand_of(record);
    return run_one_of([&demand](const CUstream_st &stream) {
        auto found = demand.find(&stream);
        return found != demand.end() && found->second > 0;
    });
}

} // namespace sim
