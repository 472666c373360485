#!/usr/bin/env bash
# Installs what Yoke needs to build and test on Debian or Ubuntu: only what is missing, and says so.
# Looks for the thing itself (a command, a header), not for a package, so other sources of it count.
# --launchers: also both MPIs that a transport of DDP can use and the launchers whose tests are skipped without them.
set -euo pipefail

cmake_wanted=3.25 # presets of version 6

have_command() { command -v "$1" >/dev/null 2>&1; }
have_header() { have_command cc && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; }
have_cmake() {
    have_command cmake &&
        printf '%s\n%s\n' "$cmake_wanted" "$(cmake --version | awk 'NR == 1 {print $3}')" | sort -CV
}

have_cmocka() { # its header wants others before it
    have_command cc &&
        printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' |
        cc -E -x c - >/dev/null 2>&1
}
# package, then how to see that it is there
needs=(
    "build-essential have_command c++"
    "build-essential have_header stdio.h"
    "cmake have_cmake"
    "ninja-build have_command ninja"
    "pkg-config have_command pkg-config"
    "python3 have_command python3"
    "git have_command git"
    "libdnnl-dev have_header dnnl.h"
    "libjansson-dev have_header jansson.h"
    "libxxhash-dev have_header xxhash.h"
    "librandom123-dev have_header Random123/philox.h"
    "zlib1g-dev have_header zlib.h"
    "libcmocka-dev have_cmocka"
)

launchers=(
    "libopenmpi-dev have_command mpicc"
    "openmpi-bin have_command mpirun"
    "libmpich-dev have_command mpicc.mpich"
    "mpich have_command mpirun.mpich"
    "slurm-wlm have_command srun"
    "munge have_command munge"
)
case ${1-} in
'') ;;
--launchers) needs+=("${launchers[@]}") ;;
*)
    echo "usage: scripts/install-deps.sh [--launchers]" >&2
    exit 2
    ;;
esac

find_missing() {
    missing=()
    local need package check
    for need in "${needs[@]}"; do
        read -r package check <<<"$need"
        # shellcheck disable=SC2086
        if ! $check && [[ " ${missing[*]-} " != *" $package "* ]]; then missing+=("$package"); fi
    done
}

# Never installed from here: GPUs are optional, and their packages come from NVIDIA, conda or pip.
say_cuda() {
    local nvcc
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
    if [[ -n $nvcc ]]; then
        echo "optional: CUDA $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p') by $nvcc"
    else
        echo "optional: no CUDA toolkit; Yoke builds without GPUs"
    fi
}

find_missing
if ((${#missing[@]} == 0)); then
    echo "dependencies: all present"
    say_cuda
    exit 0
fi
echo "dependencies: missing ${missing[*]}"

if ! have_command apt-get; then
    echo "This is not Debian or Ubuntu. Install what these packages hold, then run again:" >&2
    printf '    %s\n' "${missing[@]}" >&2
    exit 1
fi
as_root=()
if ((EUID != 0)); then
    if ! have_command sudo; then
        echo "Root is needed: run 'apt-get install ${missing[*]}' as root, then run again." >&2
        exit 1
    fi
    as_root=(sudo)
fi

install_missing() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends "${missing[@]}" </dev/null
}
echo "dependencies: installing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install_missing >"$log" 2>&1; then # no package lists yet, or stale ones
    "${as_root[@]}" apt-get update -qq </dev/null >>"$log" 2>&1 || true
    if ! install_missing >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "apt-get could not install: ${missing[*]}" >&2
        exit 1
    fi
fi
installed=${missing[*]}
find_missing
if ((${#missing[@]} > 0)); then
    echo "Still missing after the installation: ${missing[*]} (cmake must be $cmake_wanted or newer)" >&2
    exit 1
fi
echo "dependencies: installed $installed"
say_cuda
