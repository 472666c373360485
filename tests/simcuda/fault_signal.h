/* Touches of memory that is closed: what the running work may reach is opened to it, everything
 * else is told as what it is. */
#ifndef SIMCUDA_FAULT_SIGNAL_H
#define SIMCUDA_FAULT_SIGNAL_H

namespace sim {

/* Again whenever it matters: frameworks for tests put their own handlers in place for each. Other
 * faults go to whoever watched before. In an Entry. */
void watch_for_faults();

} // namespace sim

#endif
