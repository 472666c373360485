#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats every C file, and C++ but for the simulated GPUs', with the repository's .clang-format; --check
# changes nothing and fails on a difference (77, "skipped" to ctest, without clang-format 14: other versions format differently).
set -euo pipefail
cd "$(dirname "$0")/.."

check=no
case ${1-} in
'') ;;
--check) check=yes ;;
*)
    echo "usage: scripts/format.sh [--check]" >&2
    exit 2
    ;;
esac

formatter=
for candidate in clang-format-14 clang-format; do
    if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q 'version 14\.'; then
        formatter=$candidate
        break
    fi
done
if [[ -z $formatter ]]; then
    echo "skipped: clang-format 14 is not here (Debian 12: apt-get install clang-format)"
    exit 77
fi

sources=()
while IFS= read -r -d '' source; do sources+=("$source"); done < <(
    find include src samples tests bench \( -name '*.[ch]' -o -name '*.cu' -o \
        \( -name '*.[ch]pp' -not -path 'tests/simcuda/*' \) \) -print0 | sort -z)
if [[ $check == no ]]; then
    "$formatter" -i "${sources[@]}"
    exit
fi
bad=$({ "$formatter" --dry-run --Werror "${sources[@]}" 2>&1 || true; } |
    sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: error: .*/\1: run scripts\/format.sh/p' | sort -u)
if [[ -n $bad ]]; then
    echo "$bad"
    exit 1
fi
