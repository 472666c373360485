#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every test, as the first command after a clone: the release build (with CUDA where nvcc is), then
# AddressSanitizer and UndefinedBehaviorSanitizer, ThreadSanitizer where threads meet, both with simulated GPUs where the
# headers of the CUDA toolkit are, and builds and tests without each part that a machine may lack. --quick: the release
# build only. What takes hours or judges a clock: scripts/nightly.sh. Where ccache is, it compiles nothing twice.
set -uo pipefail
cd "$(dirname "$0")/.."

quick=no
case ${1-} in
'') ;;
--quick) quick=yes ;;
*)
    echo "usage: scripts/test.sh [--quick]" >&2
    exit 2
    ;;
esac

jobs=$(($(nproc 2>/dev/null || echo 2) + 1)) # some tests wait: for a link's time, for a deadline
summary=()
failed=no

# The cases of a run, of cmocka and of Python's unittest, counted from ctest's log: "passed failed skipped". What unittest
# skips is among those that it ran.
count_cases() {
    awk 'function said(word) {
             return match($0, "[( ]" word "=[0-9]+") ? substr($0, RSTART + length(word) + 2, RLENGTH - length(word) - 2) : 0
         }
         /^\[  PASSED  \] [0-9]+ test/ {passed += $4}
         /^\[  FAILED  \] [0-9]+ test/ {failed += $4}
         /^\[  SKIPPED \] [0-9]+ test/ {skipped += $4}
         /^Ran [0-9]+ tests? in / {ran = $2}
         /^(OK|FAILED|NO TESTS RAN)( \(|$)/ {
             bad = said("failures") + said("errors")
             left = ran - bad - said("skipped")
             passed += left > 0 ? left : 0; failed += bad; skipped += said("skipped"); ran = 0
         }
         END {print passed + 0, failed + 0, skipped + 0}' "$1"
}

# run_preset NAME [TARGET]: TARGET is what its tests need; all by default.
run_preset() {
    local name=$1 start=$SECONDS result=passed
    echo
    echo "== $name"
    if ! scripts/build.sh "$@"; then
        summary+=("$name: does not build")
        failed=yes
        return
    fi
    "${prefix[@]}" ctest --preset "$name" -j "$jobs" --no-tests=error \
        --output-junit "$PWD/build/$name.xml" </dev/null || result=FAILED
    [[ $result == passed ]] || failed=yes
    local suite passed failures skipped
    suite=$(sed -n 's/.*\(tests="[0-9]*"\).*/\1/p; s/.*\(failures="[0-9]*"\).*/\1/p; s/.*\(skipped="[0-9]*"\).*/\1/p' \
        "build/$name.xml" | head -n 3 | tr '\n' ' ')
    read -r passed failures skipped < <(count_cases "build/$name/Testing/Temporary/LastTest.log")
    summary+=("$name: $result; programs: ${suite//\"/}; cases: passed=$passed failed=$failures skipped=$skipped; $((SECONDS - start)) s")
}

# run_check NAME WHY_SKIPPED COMMAND...: exit code 77 of the command is "skipped".
run_check() {
    local name=$1 why_skipped=$2 start=$SECONDS code=0
    shift 2
    echo
    echo "== $name"
    "$@" </dev/null || code=$?
    case $code in
    0) summary+=("$name: passed; $((SECONDS - start)) s") ;;
    77) summary+=("$name: skipped, $why_skipped") ;;
    *)
        summary+=("$name: FAILED; $((SECONDS - start)) s")
        failed=yes
        ;;
    esac
}

room=1500 # MB: sanitizers make large programs
[[ $quick == no ]] || room=200
scripts/install-deps.sh --room "$room" || exit 1
mkdir -p build
if command -v ccache >/dev/null 2>&1; then export CMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache; fi

# With a CUDA compiler the release build has GPUs in it, warnings are errors, and the libraries are linked for real.
prefix=()
if [[ -n ${CUDACXX-} ]] || command -v nvcc >/dev/null 2>&1; then run_preset cuda; else
    run_preset release
    summary+=("cuda: skipped, there is no nvcc")
fi
if [[ $quick == no ]]; then
    # gcc's ThreadSanitizer can't map its shadow when addresses are randomised too widely.
    no_randomising=()
    if setarch "$(uname -m)" -R true 2>/dev/null; then no_randomising=(setarch "$(uname -m)" -R); fi
    # With simulated GPUs a build has the tests of the CPU's devices, too.
    sanitizers=()
    if cmake --preset simcuda >build/simcuda.log 2>&1; then
        sanitizers=(simcuda simcuda-tsan)
    elif grep -q "needs the headers of the CUDA toolkit" build/simcuda.log; then
        sanitizers=(check tsan)
        summary+=("simcuda: skipped, the headers of the CUDA toolkit are not here")
    else
        tail -n 20 build/simcuda.log
        summary+=("simcuda: does not configure, see build/simcuda.log")
        failed=yes
    fi
    for preset in "${sanitizers[@]}"; do
        if [[ $preset == *tsan ]]; then
            prefix=("${no_randomising[@]}")
            run_preset "$preset" threaded
        else
            prefix=()
            run_preset "$preset"
        fi
    done
    # What a green run on this machine says about one that lacks some of its parts.
    run_check absences "no view of this machine without a part of it can be made" python3 tests/house/absences.py .
    build=build/release
    [[ ! -d build/cuda/tests ]] || build=build/cuda
    run_check bare "no view of this machine without a part of it can be made" python3 tests/house/bare.py "$build"
fi

echo
echo "== summary"
printf '%s\n' "${summary[@]}"
[[ $failed == no ]] && echo "all passed" || echo "FAILED"
[[ $failed == no ]]
