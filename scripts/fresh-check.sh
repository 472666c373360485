#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the README where nothing is installed: makes a bare root of each Debian suite from the mirror that apt
# uses here, puts a clone of HEAD in it and runs scripts/demo.sh as the first command, without a terminal. Says what
# each command fetched and how long it took, and holds what the demo printed against README.md.
# --tests: scripts/test.sh --quick as the second command. --compilers: instead, every gcc from 11 to 14 and clang
# from 14 to 19 of the suite builds all there is with warnings as errors.
# --arm64: instead, scripts/arm64-check.sh cross-compiles for arm64 and runs tests in qemu-user.
# --python: instead, scripts/python-check.sh installs the Python module with pip and tests it.
# --gpu-check: instead, scripts/gpu_rehearsal.py (gpu-check.sh over simulated GPUs, piece by piece, killed and completed)
# where there is a compiler, CMake, Python and this machine's CUDA toolkit, but neither git nor a network; what else the
# build needs comes from scripts/pack-deps.sh.
# usage: scripts/fresh-check.sh [--tests | --compilers | --arm64 | --python | --gpu-check] [SUITE...]   (bookworm trixie)
set -uo pipefail
cd "$(dirname "$0")/.." || exit

DEMO_LIMIT_S=900
TESTS_LIMIT_S=3600
COMPILER_LIMIT_S=1800
ARM64_LIMIT_S=7200
GPU_CHECK_LIMIT_S=14400
PYTHON_LIMIT_S=3600
CUDA=/usr/local/cuda

what=demo
suites=()
for word in "$@"; do
    case $word in
    --tests) what=tests ;;
    --compilers) what=compilers ;;
    --arm64) what=arm64 ;;
    --python) what=python ;;
    --gpu-check) what=gpu-check ;;
    -*)
        echo "usage: scripts/fresh-check.sh [--tests | --compilers | --arm64 | --python | --gpu-check] [SUITE...]" >&2
        exit 2
        ;;
    *) suites+=("$word") ;;
    esac
done
((${#suites[@]} > 0)) || suites=(bookworm trixie)
if [[ $what == gpu-check ]]; then
    network=no
    includes="g++,cmake,python3"
    [[ -d $CUDA ]] || missing="there is no CUDA toolkit in $CUDA"
fi
logs=build/fresh
# shellcheck source=scripts/bare-roots.sh
. scripts/bare-roots.sh

compare_readme() {
    python3 tests/house/shown.py README.md scripts/demo.sh <"build/fresh/$1-demo.log" && return
    echo "$1: scripts/demo.sh did not print what README.md shows; all it printed: build/fresh/$1-demo.log"
    failed=yes
}

try_compilers() {
    local suite=$1 root=$2 compiler
    inside "$root" "$ROOT_LIMIT_S" "apt-get update" >/dev/null 2>&1
    for compiler in gcc-{11..14} clang-{14..19}; do
        inside "$root" 60 "apt-cache show $compiler" >/dev/null 2>&1 || continue
        try_command "$suite" "$root" "$COMPILER_LIMIT_S" "scripts/compiler-check.sh $compiler"
    done
}

try_python() {
    local suite=$1 root=$2
    let_pip_in "$root"
    try_command "$suite" "$root" "$PYTHON_LIMIT_S" scripts/python-check.sh || return
    grep -E "^(Python|pip install|yoke|Ran|OK)" "build/fresh/$suite-python-check.log"
}

# Without .git, and with the archive of packages.
try_gpu_check() {
    local suite=$1 root=$2
    rm -rf "$root/yoke"
    mkdir -p "$root/yoke" "$root/usr/local/cuda"
    git archive HEAD | tar -x -C "$root/yoke"
    scripts/pack-deps.sh "$root/yoke/build/deps.tar.xz" || failed=yes
    try_command "$suite" "$root" "$GPU_CHECK_LIMIT_S" "scripts/gpu_rehearsal.py --keep out"
    cat "build/fresh/$suite-gpu_rehearsal.py.log"
    cp "$root"/yoke/out/{kernels,race,variants,prove}/*.{json,txt} build/fresh/ || failed=yes
}

check_suite() {
    local suite=$1 root=$work/$1
    echo
    bare_root "$suite" "$root" || return
    git clone -q --depth 1 "file://$PWD" "$root/yoke" || failed=yes
    case $what in
    compilers) try_compilers "$suite" "$root" ;;
    arm64)
        try_command "$suite" "$root" "$ARM64_LIMIT_S" scripts/arm64-check.sh
        grep -A 20 "^backend " "build/fresh/$suite-arm64-check.log"
        ;;
    python) try_python "$suite" "$root" ;;
    gpu-check) try_gpu_check "$suite" "$root" ;;
    *)
        try_command "$suite" "$root" "$DEMO_LIMIT_S" scripts/demo.sh && compare_readme "$suite"
        [[ $what == demo ]] || try_command "$suite" "$root" "$TESTS_LIMIT_S" "scripts/test.sh --quick"
        ;;
    esac
    rm -rf --one-file-system "$root"
}

# While one installs packages, the other compiles.
check_at_once() {
    local suite jobs=()
    for suite in "${suites[@]}"; do
        {
            trap 'end_child; exit 130' INT TERM
            check_suite "$suite"
            [[ $failed == no ]]
        } >"$logs/$suite.log" 2>&1 &
        jobs+=($!)
    done
    trap 'kill "${jobs[@]}" 2>/dev/null; wait; exit 130' INT TERM
    for suite in "${suites[@]}"; do
        wait "${jobs[0]}" || failed=yes
        jobs=("${jobs[@]:1}")
        cat "$logs/$suite.log"
    done
}

if [[ $what == demo ]]; then check_at_once; else
    for suite in "${suites[@]}"; do check_suite "$suite"; done
fi
[[ $failed == no ]]
