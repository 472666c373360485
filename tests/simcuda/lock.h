/* SPDX-License-Identifier: Apache-2.0 */
/* One lock for the whole simulator, and the bells that wake its threads. Both are futexes: a
 * lock that ThreadSanitizer knew would order works of streams that nothing orders, and hide their
 * races. For the same reason these files are never instrumented; `publish` and `observe` alone tell
 * ThreadSanitizer what CUDA promises. */
#ifndef SIMCUDA_LOCK_H
#define SIMCUDA_LOCK_H

#include <atomic>
#include <cstdint>

namespace sim {

/* Around the body of every simulated function: one thread at a time, may be nested; what happens in
 * it is not the program's and not seen by ThreadSanitizer. */
class Entry {
  public:
    Entry();
    ~Entry();
    Entry(const Entry &) = delete;
    void operator=(const Entry &) = delete;
};

/* Inside an Entry, around work of the program's own; `unlock` lets other threads in meanwhile. */
class Outside {
  public:
    explicit Outside(bool unlock);
    ~Outside();
    Outside(const Outside &) = delete;
    void operator=(const Outside &) = delete;

  private:
    int depth_;
    bool unlock_;
};

/* Inside an Entry. wait leaves it meanwhile; false: nobody rang in time. */
class Bell {
  public:
    void ring();
    bool wait(int timeout_ms); /* negative: for ever */

  private:
    std::atomic<uint32_t> rings_{0};
    int sleepers_ = 0;
};

/* What happened before publish(mark) is seen after observe(mark). */
void publish(char *mark);
void observe(char *mark);
bool under_tsan();

} // namespace sim

#endif
