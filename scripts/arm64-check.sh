#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-compiles all there is for arm64 with warnings as errors, then runs tests of base, data, the optimizer and the
# engine on two CPU devices in qemu-user. Debian; what is missing it installs as root, and adds arm64 to dpkg's
# architectures, so try it in a bare root: scripts/fresh-check.sh --arm64.
# usage: scripts/arm64-check.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# No rank processes: in qemu 7.2 a process sees another start time of itself than its neighbours see.
TESTS='base/test_*.c data/test_*.c optimizer/test_*.c device/test_processor.c device/test_linear.c
    parallel/test_average.c parallel/test_groups.c parallel/test_data_parallel.c parallel/test_gpt2.c parallel/test_inference.c'

# The libraries that scripts/install-deps.sh names, for arm64; Random123 is headers for any processor.
libraries() {
    sed -n '/^needs=/,/^)/s/^    "\(lib[a-z0-9-]*-dev\|zlib1g-dev\) .*/\1/p' scripts/install-deps.sh | sed '/random123/! s/$/:arm64/'
}
present() { dpkg-query -W -f '${db:Status-Status}\n' "$@" 2>/dev/null | grep -cx installed; }
packages=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user cmake ninja-build pkg-config python3 git gcc
    libc6-dev)
mapfile -t -O "${#packages[@]}" packages < <(libraries)
if [[ $(present "${packages[@]}") != "${#packages[@]}" ]]; then
    echo "installing the cross compiler, qemu-user and the libraries for arm64"
    dpkg --add-architecture arm64
    apt-get -q update >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" </dev/null >/dev/null
fi

scripts/build.sh arm64
qemu-aarch64 build/arm64/yoke devices
names=$(cd tests && for file in $TESTS; do basename "$file" .c; done | paste -sd '|')
ctest --preset arm64 -R "^($names)\$" -j"$(nproc)"
