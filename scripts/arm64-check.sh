#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-compiles all there is for arm64 with warnings as errors, then runs tests of base, data, the optimizer and the
# engine on two CPU devices in qemu-user. Debian; scripts/arm64-deps.sh installs what is missing, so try it in a bare
# root: scripts/fresh-check.sh --arm64.
# usage: scripts/arm64-check.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# No rank processes: in qemu 7.2 a process sees another start time of itself than its neighbours see.
TESTS='base/test_*.c data/test_*.c optimizer/test_*.c device/test_processor.c device/test_linear.c
    parallel/test_average.c parallel/test_groups.c parallel/test_data_parallel.c parallel/test_gpt2.c parallel/test_inference.c'

scripts/arm64-deps.sh
scripts/build.sh arm64
qemu-aarch64 build/arm64/yoke devices
names=$(cd tests && for file in $TESTS; do basename "$file" .c; done | paste -sd '|')
ctest --preset arm64 -R "^($names)\$" -j"$(nproc)"
