/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: stacks that one OS thread changes between. This file reports each change to a
 * sanitizer, if one is linked in; it finds them by their symbols, so it needs no special build. */
#ifndef SIMCUDA_FIBER_H
#define SIMCUDA_FIBER_H

#include <cstddef>

namespace sim {

class Fiber {
  public:
    Fiber();                               /* the OS thread itself */
    Fiber(void (*main)(), unsigned index); /* a stack of its own; main never returns */
    ~Fiber();
    Fiber(const Fiber &) = delete;
    void operator=(const Fiber &) = delete;
    void switch_to(Fiber &next); /* returns when something switches back to this one */

  private:
    static void enter();
    void arrived();
    void *context_ = nullptr; /* the stack pointer while another fiber runs */
    void (*main_)() = nullptr;
    char *stack_ = nullptr; /* its lowest byte; of an OS thread known to AddressSanitizer alone */
    size_t bytes_ = 0;
    void *fake_stack_ = nullptr; /* AddressSanitizer's */
    void *tsan_ = nullptr;       /* ThreadSanitizer's thread, under racecheck */
};

/* Order for ThreadSanitizer's eyes: what happened before release(a) is seen after acquire(a).
 * Nothing without racecheck. */
void tsan_release(void *address);
void tsan_acquire(void *address);

} // namespace sim

#endif
