#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets for libFuzzer, with AddressSanitizer, and runs each of them for a while, as many at a time as
# there are cores. An input that fails stays in build/fuzz/. Exit code 77: clang, its libFuzzer or its OpenMP is not here.
# usage: scripts/fuzz.sh [SECONDS [OTHERS]]   (60); OTHERS: for targets that read no bytes of a stranger: see fuzz_one
set -euo pipefail
cd "$(dirname "$0")/.."

export limit_s=${1:-60}
export others_s=${2:-$limit_s}
if [[ ! $limit_s$others_s =~ ^[0-9]+$ ]] || (($# > 2)); then
    echo "usage: scripts/fuzz.sh [SECONDS [OTHERS]]" >&2
    exit 2
fi
if ! printf '#include <omp.h>\nint LLVMFuzzerTestOneInput(void) { return 0; }\n' |
    clang -fsanitize=fuzzer,address -fopenmp -x c - -o /dev/null 2>/dev/null; then
    echo "no clang with libFuzzer and OpenMP: scripts/install-deps.sh --fuzz installs it"
    exit 77
fi
scripts/build.sh fuzz fuzz

# fuzz_one TARGET: libFuzzer writes what it finds into its first folder, so that is not the one with the seeds.
fuzz_one() {
    local place=build/fuzz/tests/fuzz log=build/fuzz/$1.log corpus=build/fuzz/corpus/$1 seconds=$others_s
    mkdir -p "$corpus"
    [[ ! $1 =~ ^(safetensors|weights|keeper|client|specs|launch|command)$ ]] || seconds=$limit_s
    if "$place/fuzz_$1" -max_total_time="$seconds" -artifact_prefix="build/fuzz/$1-" "$corpus" "$place/seeds/$1" \
        >"$log" 2>&1 </dev/null; then
        echo "$1: $(sed -n 's/^Done \(.*\)$/\1/p' "$log")"
    else
        tail -n 60 "$log"
        echo "$1: FAILED; all it printed: $log"
        return 1
    fi
}
export -f fuzz_one
for source in tests/fuzz/fuzz_*.c; do basename "$source" .c; done | sed 's/^fuzz_//' |
    xargs -P "$(nproc)" -I TARGET bash -c 'fuzz_one TARGET'
