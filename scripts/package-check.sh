#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the Debian packages where nothing is installed: scripts/package.sh in a bare root of each suite, lintian, and
# scripts/package-trial.sh in another bare root of it. The packages lie in build/packages/SUITE then.
# --mpi: with Open MPI in the first root, so that the packages hold the MPI module.
# usage: scripts/package-check.sh [--mpi] [SUITE...]   (bookworm trixie)
set -uo pipefail
cd "$(dirname "$0")/.." || exit

PACKAGE_LIMIT_S=1800
TRIAL_LIMIT_S=1200
LINTIAN_LIMIT_S=300

mpi=no
if [[ ${1-} == --mpi ]]; then
    mpi=yes
    shift
fi
suites=("$@")
((${#suites[@]} > 0)) || suites=(bookworm trixie)
logs=build/packages
# shellcheck source=scripts/bare-roots.sh
. scripts/bare-roots.sh

# make_packages SUITE: in a root of their own, from the commit; lintian says what Debian would not take.
make_packages() {
    local suite=$1 root=$work/$1-build code=0
    bare_root "$suite" "$root" || return
    git clone -q --depth 1 "file://$PWD" "$root/yoke" || return
    if [[ $mpi == yes ]]; then
        inside "$root" "$PACKAGE_LIMIT_S" "apt-get update && apt-get -y install --no-install-recommends libopenmpi-dev" \
            >"$logs/$suite-mpi.log" 2>&1 || { echo "$suite: no Open MPI: $(tail -n 1 "$logs/$suite-mpi.log")"; failed=yes; return 1; }
    fi
    try_command "$suite" "$root" "$PACKAGE_LIMIT_S" scripts/package.sh || return
    grep -A 1 '\.deb: ' "$logs/$suite-package.log"
    rm -rf "${logs:?}/$suite"
    mkdir "$logs/$suite" && cp "$root"/yoke/build/package/*.deb "$logs/$suite/" || return
    inside "$root" "$LINTIAN_LIMIT_S" "apt-get -y install --no-install-recommends lintian" >"$logs/$suite-lintian.log" 2>&1
    inside "$root" "$LINTIAN_LIMIT_S" "lintian --fail-on error,warning --tag-display-limit 0 -I build/package/*.deb" || code=$?
    echo "$suite: lintian: exit $code"
    rm -rf --one-file-system "$root"
    return "$code"
}

# try_packages SUITE: a root where they are all there is.
try_packages() {
    local suite=$1 root=$work/$1-trial code=0
    bare_root "$suite" "$root" || return
    mkdir -p "$root/yoke/scripts"
    cp scripts/package-trial.sh "$root/yoke/scripts/"
    cp -r "$logs/$suite" "$root/yoke/packages"
    try_command "$suite" "$root" "$TRIAL_LIMIT_S" "scripts/package-trial.sh packages" || code=$?
    grep -E '^test |left behind|does not match' "$logs/$suite-package-trial.log"
    rm -rf --one-file-system "$root"
    return "$code"
}

for suite in "${suites[@]}"; do
    echo
    make_packages "$suite" && try_packages "$suite" || failed=yes
done
[[ $failed == no ]]
