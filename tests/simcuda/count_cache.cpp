/* SPDX-License-Identifier: Apache-2.0 */
/* The second-level cache between launches: the least recently used pieces of 64 KiB leave. */
#include <list>
#include <unordered_map>

#include "simcuda/count.h"

namespace sim::count {
namespace {

constexpr uintptr_t PIECE = 65536;

struct Piece {
    uintptr_t number;
    bool dirty;
};

struct Cache {
    std::list<Piece> order; /* the latest first */
    std::unordered_map<uintptr_t, std::list<Piece>::iterator> at;
};

Cache &cache() {
    static Cache *const all = new Cache;
    return *all;
}

/* Bytes that move: a read that misses, and a written piece that leaves. */
double touch(uintptr_t number, double bytes, bool written) {
    Cache &all = cache();
    double moved = 0;
    auto found = all.at.find(number);
    if (found != all.at.end()) {
        all.order.splice(all.order.begin(), all.order, found->second);
        all.order.front().dirty |= written;
    } else {
        if (!written) moved += bytes;
        all.order.push_front({number, written});
        all.at[number] = all.order.begin();
    }
    if ((double)(all.order.size() * PIECE) > L2_BYTES) {
        if (all.order.back().dirty) moved += (double)PIECE;
        all.at.erase(all.order.back().number);
        all.order.pop_back();
    }
    return moved;
}

} // namespace

double through_cache(const std::vector<Range> &ranges) {
    double moved = 0;
    std::vector<uintptr_t> next, end;
    for (const Range &range : ranges) {
        next.push_back(range.from / PIECE);
        end.push_back(range.bytes > 0
                          ? ((uintptr_t)((double)range.from + range.bytes) - 1) / PIECE + 1
                          : next.back());
    }
    /* Side by side, as a kernel goes through its operands. */
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < ranges.size(); i++) {
            if (next[i] >= end[i]) continue;
            double pieces = (double)(end[i] - ranges[i].from / PIECE);
            moved += touch(next[i]++, ranges[i].bytes / pieces, ranges[i].written);
            more = true;
        }
    }
    return moved;
}

void forget_cache() {
    cache().order.clear();
    cache().at.clear();
}

} // namespace sim::count
