#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long runs that scripts/test.sh has no time for: each fuzz target for minutes, every attack of tests/torture/ in
# full (fault injection, memory limits, stopped ranks, half an hour of training, ...), and the GPU check rehearsed over
# simulated GPUs and killed. What each printed stays in build/nightly/. One that fails does not stop the others.
# usage: scripts/nightly.sh [--minutes N] [NAME...]
#   --minutes N  for each fuzz target (10); 0: no fuzzing
#   NAME...      these of tests/torture/test_NAME.py only, as in: soak faults
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
        [[ -f tests/torture/test_$1.py ]] || usage
        names+=("$1")
        shift
        ;;
    esac
done
everything=no
if ((${#names[@]} == 0)); then
    everything=yes
    for script in tests/torture/test_*.py; do names+=("$(basename "$script" .py)"); done
    names=("${names[@]#test_}")
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

mkdir -p build/nightly
scripts/build.sh release || exit 1
for name in "${names[@]}"; do
    attack "$name" python3 "tests/torture/test_$name.py" build/release/yoke --full
done
((minutes == 0)) || attack fuzz scripts/fuzz.sh $((60 * minutes))
[[ $everything == no || ! -d /usr/local/cuda ]] || attack gpu_rehearsal scripts/gpu_rehearsal.py --kills 3

echo
echo "== summary (build/nightly/ has all they printed)"
printf '%s\n' "${summary[@]}"
[[ $failed == no ]] && echo "all passed" || echo "FAILED"
[[ $failed == no ]]
