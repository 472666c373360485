#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the portable wheel where nothing is installed, and tries it where nothing but Python is: scripts/wheel.sh in a
# bare root of Debian 11, and `scripts/python-check.sh WHEEL` in a bare root of each suite. The wheel lies in build/wheels
# then. SUITE-lib64 is that suite with its libraries where Fedora has them: all in /usr/lib64.
# --arm64: instead, scripts/wheel.sh --arm64 in a bare root of Debian 12, where qemu-user then runs the tool and Python.
# Exit code 77: no root can be made for the build.
# usage: scripts/wheel-check.sh [SUITE...]   (bullseye bookworm trixie trixie-lib64)
#        scripts/wheel-check.sh --arm64
set -uo pipefail
cd "$(dirname "$0")/.." || exit

WHEEL_LIMIT_S=1800
TRIAL_LIMIT_S=1200

maker=bullseye # glibc 2.31
processor=x86_64
suites=("$@")
case ${1-} in
--arm64)
    maker=bookworm # whose oneDNN Yoke takes
    processor=aarch64
    suites=("$maker")
    ;;
-*)
    echo "usage: scripts/wheel-check.sh [--arm64 | SUITE...]" >&2
    exit 2
    ;;
esac
((${#suites[@]} > 0)) || suites=(bullseye bookworm trixie trixie-lib64)
logs=build/wheels
includes=python3-venv
# shellcheck source=scripts/bare-roots.sh
. scripts/bare-roots.sh

# root_with_clone SUITE ROOT
root_with_clone() {
    bare_root "$1" "$2" && git clone -q --depth 1 "file://$PWD" "$2/yoke" && let_pip_in "$2"
}

# make_wheel ROOT OPTION...: of wheel.sh.
make_wheel() {
    local root=$1
    shift
    root_with_clone "$maker" "$root" || exit 77
    try_command "$maker" "$root" "$WHEEL_LIMIT_S" "scripts/wheel.sh${*:+ $*}" || return
    rm -f "$logs"/yoke-*_"$processor".whl
    cp "$root"/yoke/build/wheels/yoke-*.whl "$logs/" && du -k "$logs"/yoke-*_"$processor".whl
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
    cp "$logs"/yoke-*_x86_64.whl "$root/yoke/"
    try_command "$suite" "$root" "$TRIAL_LIMIT_S" "scripts/python-check.sh $(basename "$logs"/yoke-*_x86_64.whl)" || code=$?
    grep -E "^(Python|ldd|pip install|yoke|import yoke|Ran|OK)" "$logs/$suite-python-check.log"
    rm -rf --one-file-system "$root"
    return "$code"
}

# try_arm64 ROOT: the packages of an arm64 Debian are unpacked in it, not set up.
try_arm64() {
    local log=$logs/arm64-root.log
    mmdebstrap --mode=root --variant=extract --architectures=arm64 --include=python3,libstdc++6 --aptopt="$work/settings" \
        --components="$components" "$maker" "$1/arm64" "$mirror" >"$log" 2>&1 || { tail -n 1 "$log"; return 1; }
    try_command "$maker" "$1" "$TRIAL_LIMIT_S" "scripts/wheel-arm64-trial.sh /arm64" || return
    grep -E "^(yoke|test loss|accuracy)" "$logs/$maker-wheel-arm64-trial.log"
}

if [[ $processor == aarch64 ]]; then
    make_wheel "$work/maker" --arm64 && try_arm64 "$work/maker"
    exit
fi
make_wheel "$work/maker" || exit 1
rm -rf --one-file-system "$work/maker"
for suite in "${suites[@]}"; do
    echo
    try_wheel "$suite" || failed=yes
done
[[ $failed == no ]]
