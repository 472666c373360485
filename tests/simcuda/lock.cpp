/* SPDX-License-Identifier: Apache-2.0 */
/* The lock, Entry and Outside, bells, and the notes to ThreadSanitizer. */
#include "simcuda/lock.h"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simcuda/memory.h"

extern "C" {
__attribute__((weak)) void __tsan_ignore_thread_begin(void);
__attribute__((weak)) void __tsan_ignore_thread_end(void);
__attribute__((weak)) void __tsan_acquire(void *address);
__attribute__((weak)) void __tsan_release(void *address);
}

namespace sim {
namespace {

enum : uint32_t { FREE, HELD, WANTED };
std::atomic<uint32_t> lock{FREE};
thread_local int depth; /* entries of this thread; above 0 it holds the lock */

bool futex_wait(std::atomic<uint32_t> &word, uint32_t value, const timespec *timeout) {
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout, nullptr, 0) == 0;
}

void futex_wake(std::atomic<uint32_t> &word, int count) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void take_lock() {
    uint32_t free = FREE;
    if (lock.compare_exchange_strong(free, HELD)) return;
    while (lock.exchange(WANTED) != FREE)
        futex_wait(lock, WANTED, nullptr);
}

void leave_lock() {
    close_memory();
    if (lock.exchange(FREE) == WANTED) futex_wake(lock, 1);
}

void look_away(int times) {
    for (int i = 0; i < times && __tsan_ignore_thread_begin != nullptr; i++)
        __tsan_ignore_thread_begin();
}

void look_again(int times) {
    for (int i = 0; i < times && __tsan_ignore_thread_end != nullptr; i++)
        __tsan_ignore_thread_end();
}

} // namespace

Entry::Entry() {
    look_away(1);
    if (depth == 0) take_lock();
    depth++;
}

Entry::~Entry() {
    if (--depth == 0) leave_lock();
    look_again(1);
}

Outside::Outside(bool unlock) : depth_(depth), unlock_(unlock) {
    if (unlock_) {
        depth = 0;
        leave_lock();
    }
    look_again(depth_);
}

Outside::~Outside() {
    look_away(depth_);
    if (!unlock_) return;
    take_lock();
    depth = depth_;
}

void Bell::ring() {
    rings_++;
    if (sleepers_ > 0) futex_wake(rings_, INT_MAX);
}

bool Bell::wait(int timeout_ms) {
    timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    uint32_t rings = rings_;
    int depth_before = depth;
    sleepers_++;
    depth = 0;
    leave_lock();
    futex_wait(rings_, rings, timeout_ms < 0 ? nullptr : &timeout);
    take_lock();
    depth = depth_before;
    sleepers_--;
    return rings_ != rings;
}

void publish(char *mark) {
    if (__tsan_release != nullptr) __tsan_release(mark);
}

void observe(char *mark) {
    if (__tsan_acquire != nullptr) __tsan_acquire(mark);
}

bool under_tsan() {
    return __tsan_acquire != nullptr;
}

} // namespace sim
