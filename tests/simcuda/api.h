/* SPDX-License-Identifier: Apache-2.0 */
/* How every simulated function of the runtime begins and ends. */
#ifndef SIMCUDA_API_H
#define SIMCUDA_API_H

#include "simcuda/lock.h"
#include "simcuda/sim.h"

namespace sim {

inline cudaError_t answer(cudaError_t code) {
    if (code != cudaSuccess) remember(code);
    return code;
}

/* What gives something back does so, and then answers the planted failure: nothing could be given
 * back twice. */
inline cudaError_t answer_planted(int planted) {
    return answer((cudaError_t)planted);
}

} // namespace sim

/* `natural`: the failure that is planted when none is named. */
#define ENTER(natural)                                                                             \
    sim::Entry entry;                                                                              \
    if (int planted_ = sim::fault(__func__, natural)) return sim::answer_planted(planted_)

#endif
