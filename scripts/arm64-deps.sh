#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the cross compiler for arm64, qemu-user and the libraries that scripts/install-deps.sh names, for arm64: what
# `cmake --preset arm64` and `scripts/wheel.sh --arm64` need. Debian, as root; adds arm64 to dpkg's architectures.
# usage: scripts/arm64-deps.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# Random123 is headers for any processor.
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
