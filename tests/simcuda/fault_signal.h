/* SPDX-License-Identifier: Apache-2.0 */
/* Touches of closed memory. The simulator opens to running work what it may reach, and reports
 * any other touch by its cause. */
#ifndef SIMCUDA_FAULT_SIGNAL_H
#define SIMCUDA_FAULT_SIGNAL_H

namespace sim {

/* Again whenever it matters: frameworks for tests put their own handlers in place for each. Other
 * faults go to whoever watched before. In an Entry. */
void watch_for_faults();

} // namespace sim

#endif
