#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# In a bare Debian of the same release: installs the packages of scripts/package.sh, trains, builds a sample, purges
# them, and names what they leave. Only for a root that goes afterwards: scripts/package-check.sh makes one.
# usage: scripts/package-trial.sh FOLDER, of the packages
set -euo pipefail
cd "$1"
export DEBIAN_FRONTEND=noninteractive HOME=/tmp/home
architecture=$(dpkg --print-architecture)
mkdir -p /tmp/home

# Runs a command and says so.
try() {
    echo "+ $*"
    "$@" </dev/null
}
get() { try apt-get -q -y -o Acquire::Retries=1 "$@"; }
# All but what apt and dpkg keep for themselves, and adduser, which a library of Open MPI calls: copies like /etc/group-.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /run -o -path '/etc/*-' -o -path "$PWD" -o -path /var/cache -o -path /var/log \
        -o -path /var/lib/apt -o -path /var/lib/dpkg \) -prune -o -print | sort
}
# of_packages NAME...: the files that they installed.
of_packages() { dpkg -L "$@" | while read -r path; do [[ -d $path ]] || echo "$path"; done; }
# leftovers BEFORE AFTER
leftovers() {
    local left
    left=$(comm -13 "$1" "$2")
    [[ -z $left ]] || { printf 'left behind:\n%s\n' "$left"; exit 1; }
    echo "nothing is left behind"
}

get update
files >/tmp/before
get install ./yoke_*.deb ./libyoke[0-9]*.deb
try yoke devices
try yoke train --devices 2xcpu --steps 20 --save /tmp/weights.safetensors
try yoke evaluate --weights /tmp/weights.safetensors
gzip -t /usr/share/man/man1/yoke.1.gz
# shellcheck source=/dev/null
. /usr/share/bash-completion/completions/yoke
get purge yoke 'libyoke[0-9]*'
get autoremove --purge
files >/tmp/after
leftovers /tmp/before /tmp/after

get install ./*.deb gcc libc6-dev pkg-config
packages=$(dpkg-query -W -f '${Package}\n' 'libyoke*' yoke)
# shellcheck disable=SC2046
cd /tmp && cc /usr/share/doc/libyoke-dev/examples/01_one_device/main.c -o shared $(pkg-config --cflags --libs yoke) -lm
# shellcheck disable=SC2046
cc /usr/share/doc/libyoke-dev/examples/01_one_device/main.c -o static \
    $(pkg-config --cflags --libs --static yoke | sed 's/-lyoke/-l:libyoke.a/')
ldd shared | grep libyoke
if ldd static | grep libyoke; then exit 1; fi
try ./shared
# shellcheck disable=SC2086
of_packages $packages >/tmp/installed
if grep libyoke_mpi.so /tmp/installed; then
    get install openmpi-bin
    try mpirun --allow-run-as-root --oversubscribe -n 2 yoke train --mode ddp --transport mpi --threads 1 --steps 20
fi
# shellcheck disable=SC2086
get purge $packages
while read -r path; do [[ ! -e $path ]] || echo "$path"; done </tmp/installed >/tmp/after
leftovers /dev/null /tmp/after

# What dpkg says to the package of another architecture.
other=$([[ $architecture == arm64 ]] && echo amd64 || echo arm64)
dpkg-deb -R "$OLDPWD"/yoke_*.deb foreign
sed -i "s/^Architecture: .*/Architecture: $other/" foreign/DEBIAN/control
dpkg-deb -b foreign foreign.deb >/dev/null
if try dpkg -i foreign.deb 2>foreign.txt; then exit 1; fi
grep "does not match system" foreign.txt
