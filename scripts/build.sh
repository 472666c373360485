#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds one preset and shows how far it is: ninja's status line on a terminal, elsewhere
# a plain line for each tenth. What a compiler says is shown at once; what CMake says when it fails.
# usage: scripts/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift
targets=()
(($# == 0)) || targets=(--target "$@")

show_tenths() {
    local line shown=0 tenths
    while IFS= read -r line; do
        if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
            tenths=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
            ((tenths == shown)) || echo "built ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
            shown=$tenths
        else
            printf '%s\n' "$line"
        fi
    done
}

mkdir -p build
echo "configuring $preset"
cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log" >&2
    exit 1
}
echo "building $preset"
if [[ -t 1 ]]; then
    cmake --build --preset "$preset" "${targets[@]}"
else
    cmake --build --preset "$preset" "${targets[@]}" 2>&1 </dev/null | show_tenths
fi
