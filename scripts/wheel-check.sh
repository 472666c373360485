#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the portable wheel where nothing is installed, and tries it where nothing but Python is: scripts/wheel.sh in a
# bare root of Debian 11, and `scripts/python-check.sh WHEEL` in a bare root of each suite. The wheel lies in build/wheels
# then. SUITE-lib64 is that suite with the folders of libraries of Fedora: all in /usr/lib64.
# usage: scripts/wheel-check.sh [SUITE...]   (bullseye bookworm trixie trixie-lib64)
set -uo pipefail
cd "$(dirname "$0")/.." || exit

MAKER=bullseye # glibc 2.31
WHEEL_LIMIT_S=1800
TRIAL_LIMIT_S=1200

suites=("$@")
((${#suites[@]} > 0)) || suites=(bullseye bookworm trixie trixie-lib64)
logs=build/wheels
includes=python3-venv
# shellcheck source=scripts/bare-roots.sh
. scripts/bare-roots.sh

# root_with_clone SUITE ROOT
root_with_clone() {
    bare_root "$1" "$2" && git clone -q --depth 1 "file://$PWD" "$2/yoke" && let_pip_in "$2"
}

make_wheel() {
    local root=$work/maker
    root_with_clone "$MAKER" "$root" && try_command "$MAKER" "$root" "$WHEEL_LIMIT_S" scripts/wheel.sh || return
    rm -f "$logs"/yoke-*.whl
    cp "$root"/yoke/build/wheels/yoke-*.whl "$logs/" && du -k "$logs"/yoke-*.whl
    rm -rf --one-file-system "$root"
}

# leave_multiarch ROOT: no folder with a name like x86_64-linux-gnu holds libraries; the loader's own path stays.
leave_multiarch() {
    local triplet
    triplet=$(basename "$1"/usr/lib/*-linux-gnu)
    rm -f "$1"/usr/lib64/ld-linux-*
    mkdir -p "$1/usr/lib64"
    mv "$1/usr/lib/$triplet"/* "$1/usr/lib64/" && rmdir "$1/usr/lib/$triplet" || return
    echo /usr/lib64 >"$1/etc/ld.so.conf.d/lib64.conf"
    chroot "$1" ldconfig
}

try_wheel() {
    local suite=$1 root=$work/trial code=0
    root_with_clone "${suite%-lib64}" "$root" || return
    if [[ $suite == *-lib64 ]]; then leave_multiarch "$root" || return; fi
    cp "$logs"/yoke-*.whl "$root/yoke/"
    try_command "$suite" "$root" "$TRIAL_LIMIT_S" "scripts/python-check.sh $(basename "$logs"/yoke-*.whl)" || code=$?
    grep -E "^(Python|ldd|pip install|yoke|import yoke|Ran|OK)" "$logs/$suite-python-check.log"
    rm -rf --one-file-system "$root"
    return "$code"
}

make_wheel || exit 1
for suite in "${suites[@]}"; do
    echo
    try_wheel "$suite" || failed=yes
done
[[ $failed == no ]]
