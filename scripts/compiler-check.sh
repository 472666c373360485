#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds all there is with one compiler of the distribution, warnings as errors; installs it where it is missing.
# scripts/fresh-check.sh --compilers calls it for each compiler in bare roots.
# usage: scripts/compiler-check.sh gcc-NN|clang-NN
set -euo pipefail
cd "$(dirname "$0")/.."

compiler=${1:?usage: scripts/compiler-check.sh gcc-NN|clang-NN}
version=${compiler#*-}
packages=("$compiler")
[[ $compiler == gcc-* ]] || packages+=("libomp-$version-dev")
scripts/install-deps.sh
command -v "$compiler" >/dev/null ||
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >/dev/null
cmake -S . -B "build/$compiler" -G Ninja -DCMAKE_C_COMPILER="$compiler" -DYOKE_WERROR=ON -DYOKE_WITH_CUDA=OFF >/dev/null
cmake --build "build/$compiler" -- -k 0
