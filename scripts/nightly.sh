#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/test.sh has no time for, or must not judge on a busy machine: tests with the label night (the course, each
# MPI, the wheel, the whole tool under sanitizers), claims about measured times, a Debug build with its assertions, the ABI
# of the last release, kernels
# for every architecture, each fuzz target for minutes, every attack of tests/torture/ in full (fault injection, memory
# limits, stopped ranks, half an hour of training, ...), more orders of simulated GPUs, the portable wheel in bare roots,
# and the GPU check rehearsed over simulated GPUs and killed. What each printed stays in build/nightly/. One that fails does
# not stop the others.
# usage: scripts/nightly.sh [--minutes N] [NAME...]
#   --minutes N  for each fuzz target (10); 0: no fuzzing
#   NAME...      these only: clock, labelled, sanitized, debug, abi, architectures, seeds, fuzz, wheel, gpu_rehearsal or NAME of
#                tests/torture/test_NAME.py, as in: soak faults
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n 's/^# usage: /usage: /p; s/^#   /  /p' scripts/nightly.sh >&2
    exit 2
}

minutes=10
names=()
while (($# > 0)); do
    case $1 in
    --minutes)
        minutes=${2-}
        [[ $minutes =~ ^[0-9]+$ ]] || usage
        shift 2
        ;;
    -*) usage ;;
    *)
        [[ -f tests/torture/test_$1.py || $1 =~ ^(clock|labelled|sanitized|debug|abi|architectures|seeds|fuzz|wheel|gpu_rehearsal)$ ]] || usage
        names+=("$1")
        shift
        ;;
    esac
done
if ((${#names[@]} == 0)); then
    for script in tests/torture/test_*.py; do names+=("$(basename "$script" .py)"); done
    names=(clock labelled sanitized debug abi architectures "${names[@]#test_}" seeds wheel gpu_rehearsal fuzz)
fi

summary=()
failed=no

# attack NAME COMMAND...: its last line is its result. Exit code 77: it cannot run here, and the last line says why.
attack() {
    local name=$1 log=build/nightly/$1.log start=$SECONDS code=0 result=passed
    shift
    echo "$(date +%H:%M:%S) $name: $*"
    "$@" >"$log" 2>&1 </dev/null || code=$?
    case $code in
    0) ;;
    77) result=skipped ;;
    *)
        result=FAILED
        failed=yes
        tail -n 20 "$log" | sed 's/^/    /'
        ;;
    esac
    summary+=("$name: $result; $((SECONDS - start)) s; $(tail -n 1 "$log")")
    echo "$(date +%H:%M:%S) ${summary[-1]}"
}

# Tests whose results could depend on an order, over simulated GPUs under seeds that no test of the preset has.
reordered='^test_(simcuda_.*|cuda_(order|recorded|resident|undo|libraries)|(collectives|data_parallel|finite|no_sync|replica|shards)_on_gpus)$'
configure_simcuda() {
    cmake --preset simcuda >build/nightly/simcuda.log 2>&1 && return
    echo "preset simcuda does not configure here: $(grep -m 1 'needs the headers' build/nightly/simcuda.log)"
    grep -q "needs the headers of the CUDA toolkit" build/nightly/simcuda.log && return 77 || return 1
}
try_seeds() {
    configure_simcuda || return
    scripts/build.sh simcuda && scripts/simulated_seeds.py --first 4 --seeds 20 --late 4 -R "$reordered"
}

# Two at a time: some wait for a deadline, none judges a clock.
try_labelled() { ctest --preset "$1" -L '^night$' -j "$(nproc)" --no-tests=error; }
try_sanitized() {
    local preset=simcuda code=0
    configure_simcuda || code=$?
    ((code != 77)) || preset=check
    ((code == 0 || code == 77)) && scripts/build.sh "$preset" && try_labelled "$preset"
}

# The presets define NDEBUG.
try_debug() {
    cmake -S . -B build/debug -G Ninja -DCMAKE_BUILD_TYPE=Debug -DYOKE_WITH_CUDA=OFF && cmake --build build/debug &&
        ctest --test-dir build/debug -R '^(test_.*|cli|launch)$' -j "$(nproc)" --no-tests=error
}

try_architectures() {
    [[ -n ${CUDACXX-} ]] || command -v nvcc >/dev/null 2>&1 || {
        echo "there is no nvcc"
        return 77
    }
    env -u CUDAARCHS cmake --preset cuda -B build/architectures && cmake --build build/architectures --target yoke
}

# Alone on the machine: nothing else of this script runs at the time.
try_clock() { YOKE_TEST_CLOCK=yes ctest --preset release -L clock -j 1 --no-tests=error; }

mkdir -p build/nightly
if command -v ccache >/dev/null 2>&1; then export CMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache; fi
scripts/build.sh release || exit 1
for name in "${names[@]}"; do
    case $name in
    clock | sanitized | debug | architectures) attack "$name" "try_$name" ;;
    labelled) attack labelled try_labelled release ;;
    seeds) attack seeds try_seeds ;;
    abi) attack abi scripts/abi-check.sh ;;
    wheel) attack wheel scripts/wheel-check.sh ;;
    fuzz) ((minutes == 0)) || attack fuzz scripts/fuzz.sh $((60 * minutes)) ;;
    gpu_rehearsal) [[ ! -d /usr/local/cuda ]] || attack gpu_rehearsal scripts/gpu_rehearsal.py --kills 3 ;;
    *) attack "$name" python3 "tests/torture/test_$name.py" build/release/yoke --full ;;
    esac
done

echo
echo "== summary (build/nightly/ has all they printed)"
printf '%s\n' "${summary[@]}"
[[ $failed == no ]] && echo "all passed" || echo "FAILED"
[[ $failed == no ]]
