#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests, as the first command after a clone: the release build (with CUDA where nvcc is), then
# AddressSanitizer and UndefinedBehaviorSanitizer, ThreadSanitizer where threads meet, both with simulated GPUs where the
# headers of the CUDA toolkit are, and builds and tests without each part that a machine may lack. --quick: the release
# build only. What takes hours, judges a clock or has the label night: scripts/nightly.sh. Where ccache is, it compiles
# nothing twice.
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

# More tests than cores run at a time: a thread of OpenMP that spins while it waits takes the core of what it waits for.
# With OpenMP's own setting, as users have it: scripts/nightly.sh.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY-passive}
jobs=$(($(nproc 2>/dev/null || echo 2) + 1)) # some tests wait: for a link's time, for a deadline
stages=()
notes=()
failed=no

# stage NAME RESULT SECONDS: a row of the table at the end.
stage() {
    stages+=("$(printf '%-22s %-8s %5s s' "$1" "$2" "$3")")
    [[ $2 != FAILED ]] || failed=yes
}

# run_preset NAME [TARGET]: TARGET is what its tests need; all by default. Tests with the label night are nightly.sh's.
run_preset() {
    local name=$1 start=$SECONDS result=passed
    echo
    echo "== $name"
    scripts/build.sh "$@" || result=FAILED
    stage "$name, build" "$result" $((SECONDS - start))
    [[ $result == passed ]] || return
    start=$SECONDS
    "${prefix[@]}" ctest --preset "$name" -LE '^night$' -j "$jobs" --no-tests=error \
        --output-junit "$PWD/build/$name.xml" </dev/null || result=FAILED
    stage "$name, tests" "$result" $((SECONDS - start))
    notes+=("$name: $(python3 scripts/count_cases.py "build/$name.xml" "build/$name/Testing/Temporary/LastTest.log")")
}

# run_check NAME WHY_SKIPPED COMMAND...: exit code 77 of the command is "skipped".
run_check() {
    local name=$1 why_skipped=$2 start=$SECONDS code=0
    shift 2
    echo
    echo "== $name"
    "$@" </dev/null || code=$?
    case $code in
    0) stage "$name" passed $((SECONDS - start)) ;;
    77)
        stage "$name" skipped $((SECONDS - start))
        notes+=("$name: skipped, $why_skipped")
        ;;
    *) stage "$name" FAILED $((SECONDS - start)) ;;
    esac
}

room=1500 # MB: sanitizers make large programs
[[ $quick == no ]] || room=200
scripts/install-deps.sh --room "$room" || exit 1
mkdir -p build
if command -v ccache >/dev/null 2>&1; then
    export CMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache
    export CCACHE_BASEDIR=$PWD # a copy of the sources, built two folders deep, compiles nothing again
fi

# With a CUDA compiler the release build has GPUs in it, warnings are errors, and the libraries are linked for real.
prefix=()
if [[ -n ${CUDACXX-} ]] || command -v nvcc >/dev/null 2>&1; then run_preset cuda; else
    run_preset release
    notes+=("cuda: skipped, there is no nvcc")
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
        notes+=("simcuda: skipped, the headers of the CUDA toolkit are not here")
    else
        tail -n 20 build/simcuda.log
        stage "simcuda, configure" FAILED 0
        notes+=("simcuda: does not configure, see build/simcuda.log")
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
printf '%s\n' "${notes[@]}"
echo
printf '%s\n' "${stages[@]}" "$(printf '%-22s %-8s %5s s' all '' "$SECONDS")"
[[ $failed == no ]] && echo "all passed" || echo "FAILED"
[[ $failed == no ]]
