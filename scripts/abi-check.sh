#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does a program that was built against an older Yoke run with this one? Builds the shared library of a commit and of the
# working tree, both with debug information, and lets abidiff compare what the public headers show of them. A changed or
# removed function and a moved field are errors; new functions and fields at the end of a struct are not. Unlike
# tests/house/abi.txt, which records the tree's own interface, it asks a release.
# usage: scripts/abi-check.sh [REV]              REV: the last tag v*; without one there is nothing to compare
#        scripts/abi-check.sh OLD.so HEADERS NEW.so HEADERS   compares two libraries that are there
# Exit code 77: there is no abidiff.
set -euo pipefail

if ! command -v abidiff >/dev/null 2>&1; then
    echo "skipped: there is no abidiff; scripts/install-deps.sh --abi installs it" >&2
    exit 77
fi

here=$(cd "$(dirname "$0")" && pwd)

# compare OLD HEADERS NEW HEADERS. Of abidiff's exit code, 1 and 2 are errors of its own, 8 is a removed function.
compare() {
    local code=0 report
    report=$(abidiff --no-added-syms --headers-dir1 "$2" --headers-dir2 "$4" "$1" "$3") || code=$?
    if ((code & 3)); then
        echo "$report"
        echo "abidiff fails, exit code $code" >&2
        exit 1
    fi
    if ((code & 8)) || ! python3 "$here/abi_breaks.py" <<<"$report" >/dev/null; then
        echo "$report"
        echo "programs break: raise YOKE_ABI in CMakeLists.txt, or keep the interface (CONTRIBUTING.md#abi)" >&2
        exit 1
    fi
    echo "programs of the older library run with the newer one"
}

if (($# == 4)); then
    compare "$@"
    exit
fi

cd "$here/.."
rev=${1-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [[ -z $rev ]]; then
    echo "no tag v* yet: compared with nothing"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build SOURCE NAME: the shared library, without what it can lack. Sets `library`.
build() {
    cmake -S "$1" -B "$work/$2" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-g -DYOKE_WITH_CUDA=OFF \
        -DYOKE_WITH_MPI=OFF -DBUILD_TESTING=OFF >"$work/$2.log" 2>&1 &&
        cmake --build "$work/$2" --target yoke_shared >>"$work/$2.log" 2>&1 || {
        tail -n 20 "$work/$2.log" >&2
        exit 1
    }
    library=$(readlink -f "$work/$2/libyoke.so")
}
soname() { readelf -d "$1" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p'; }

git archive --prefix=old/ "$rev" | tar -x -C "$work"
build "$work/old" old-build
old=$library
build . new-build
if [[ $(soname "$old") != $(soname "$library") ]]; then
    echo "$(soname "$old") of $rev and $(soname "$library") may differ"
    exit 0
fi
echo "$rev and the working tree:"
compare "$old" "$work/old/include/yoke" "$library" include/yoke
