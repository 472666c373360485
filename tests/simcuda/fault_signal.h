/* Touches of memory that is closed or gone, told as what they are. */
#ifndef SIMCUDA_FAULT_SIGNAL_H
#define SIMCUDA_FAULT_SIGNAL_H

namespace sim {

void watch_for_faults(); /* once; other faults go to whoever watched before */

} // namespace sim

#endif
