/* SPDX-License-Identifier: Apache-2.0 */
/* What the program holds, where it got it, and reports that name places in its code. */
#ifndef SIMCUDA_HANDLES_H
#define SIMCUDA_HANDLES_H

#include <cstdio>
#include <string>

#include "simcuda/sim.h"

namespace sim {

/* The calls that led to one of the simulator's, innermost first. */
class Site {
  public:
    Site();
    void print(FILE *to) const;
    std::string caller() const; /* the innermost line that is not the simulator's own */

  private:
    void *frames_[24];
    int count_;
};

/* `handle`, or a violation when it is not a live one of this kind. */
void check_handle(const void *handle, const char *kind, const char *call);
template <typename T> T &resolve(T *handle, const char *kind, const char *call) {
    check_handle(handle, kind, call);
    return *handle;
}

} // namespace sim

#endif
