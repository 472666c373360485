/* SPDX-License-Identifier: Apache-2.0 */
/* In place of count.cpp where kernels are compiled without calls around their accesses. */
#include "simcuda/count.h"

namespace sim::count {

Work launch(Kernel, std::function<void()>) {
    violation("SIMCUDA_COUNT=1 needs a build with YOKE_SIMCOUNT=ON: the preset simcount");
}
Work library(const char *, std::vector<Operand>, Arithmetic) {
    violation("SIMCUDA_COUNT=1 needs a build with YOKE_SIMCOUNT=ON: the preset simcount");
}
Work copy(const char *, void *, const void *, size_t, Work) {
    violation("SIMCUDA_COUNT=1 needs a build with YOKE_SIMCOUNT=ON: the preset simcount");
}

} // namespace sim::count
