#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what Yoke needs to build and test on Debian or Ubuntu: only what is missing, and says so. Asks nothing
# when there is no terminal. Looks for the thing itself (a command, a header), not for a package, so other sources count.
# --launchers: also both MPIs that a transport of DDP can use and the launchers whose tests are skipped without them.
# --docs: also doxygen, which makes the API reference and checks it in a test that is skipped without it.
# --fuzz: also clang with libFuzzer, for scripts/fuzz.sh.
# --python: also numpy and venv, for the tests of the Python module, which are skipped without them.
# --onnx: also protobuf-c and its compiler, with which a build reads and writes files of ONNX.
# --cache: also ccache, with which one run compiles nothing twice.
# --roots: also mmdebstrap, with which scripts/fresh-check.sh makes systems where nothing is installed.
# --packages: also what cpack needs for Debian packages.
# --text: also PCRE2, with which texts become tokens of a BPE vocabulary (yoke generate --tokenizer).
# --abi: also abidiff, with which scripts/abi-check.sh compares the library with a release.
# --browsers: also Chromium and Firefox, which draw the pages in tests that are skipped without them.
# --wasm: also what builds docs/play/index.html, and node, for the tests that it is a fresh build and tells the tool's numbers.
# --room MB: build/ will grow to that much; too small a disk is said here, before anything is fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C # apt's figures are read below

cmake_wanted=3.22
usage() {
    echo "usage: scripts/install-deps.sh [--launchers] [--docs] [--fuzz] [--python] [--onnx] [--text] [--cache] [--roots] [--packages] [--abi] [--browsers] [--wasm] [--room MB]" >&2
    exit 2
}

have_command() { command -v "$1" >/dev/null 2>&1; }
have_header() { have_command cc && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; }
cmake_version() { cmake --version | awk 'NR == 1 {print $3}'; }
have_cmake() { have_command cmake && printf '%s\n%s\n' "$cmake_wanted" "$(cmake_version)" | sort -CV; }

have_cmocka() { # its header wants others before it
    have_command cc &&
        printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' |
        cc -E -x c - >/dev/null 2>&1
}
have_pcre2() { have_command cc && printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n' | cc -E -x c - >/dev/null 2>&1; }
have_python() { have_command python3 && python3 -c "import $1" >/dev/null 2>&1; }
have_jpeg() { have_command cc && printf '#include <stdio.h>\n#include <jpeglib.h>\n' | cc -E -x c - >/dev/null 2>&1; }
have_chromium() { have_command chromium || have_command chromium-browser || have_command google-chrome; }
have_firefox() { have_command firefox-esr || have_command firefox; }
have_font() { [[ -n $(find /usr/share/fonts ~/.fonts -name '*.[ot]tf' -print -quit 2>/dev/null) ]]; }
have_clang_with() { have_command clang && clang "$@" -x c - -o /dev/null >/dev/null 2>&1; }
have_libfuzzer() { echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | have_clang_with -fsanitize=fuzzer,address; }
have_wasi() { [[ -f /usr/lib/wasm32-wasi/libc.a ]]; } # where docs/play/build.py looks
have_wasm_builtins() { have_command clang && [[ -f $(clang --target=wasm32-wasi -print-libgcc-file-name) ]]; }
have_clang_openmp() { printf '#include <omp.h>\nint main(void) { return 0; }\n' | have_clang_with -fopenmp; }
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
    "libsodium-dev have_header sodium.h"
    "librandom123-dev have_header Random123/philox.h"
    "libjpeg-dev have_jpeg"
    "libpng-dev have_header png.h"
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
docs=("doxygen have_command doxygen")
fuzz=(
    "clang have_command clang"
    "libclang-rt-dev have_libfuzzer"
    "libomp-dev have_clang_openmp"
)
python=(
    "python3-numpy have_python numpy"
    "python3-venv have_python ensurepip"
)
onnx=(
    "libprotobuf-c-dev have_header protobuf-c/protobuf-c.h"
    "protobuf-c-compiler have_command protoc-c"
)
cache=("ccache have_command ccache")
roots=("mmdebstrap have_command mmdebstrap")
packages=(
    "dpkg-dev have_command dpkg-shlibdeps"
    "file have_command file"
)
text=("libpcre2-dev have_pcre2")
abi=("abigail-tools have_command abidiff")
browsers=(
    "chromium have_chromium"
    "firefox-esr have_firefox"
    "fonts-dejavu-core have_font"
)
wasm=(
    "clang have_command clang"
    "lld have_command wasm-ld"
    "wasi-libc have_wasi"
    "libclang-rt-dev-wasm32 have_wasm_builtins"
    "nodejs have_command node"
)
room=0
while (($# > 0)); do
    case $1 in
    --launchers) needs+=("${launchers[@]}") ;;
    --docs) needs+=("${docs[@]}") ;;
    --fuzz) needs+=("${fuzz[@]}") ;;
    --python) needs+=("${python[@]}") ;;
    --onnx) needs+=("${onnx[@]}") ;;
    --cache) needs+=("${cache[@]}") ;;
    --roots) needs+=("${roots[@]}") ;;
    --packages) needs+=("${packages[@]}") ;;
    --abi) needs+=("${abi[@]}") ;;
    --browsers) needs+=("${browsers[@]}") ;;
    --wasm) needs+=("${wasm[@]}") ;;
    --text) needs+=("${text[@]}") ;;
    --room)
        [[ ${2-} =~ ^[0-9]+$ ]] || usage
        room=$2
        shift
        ;;
    *) usage ;;
    esac
    shift
done

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

# check_disk MB FOLDER WHAT...: is there room for each, where several share a filesystem for all of them?
check_disk() {
    local -A needed=() free=() what=()
    local available mount
    while (($# > 0)); do
        read -r _ _ _ available _ mount < <(df -Pm "$2" | tail -n 1)
        free[$mount]=$available
        needed[$mount]=$((${needed[$mount]-0} + $1))
        what[$mount]="${what[$mount]+${what[$mount]}, }$1 MB for $3"
        shift 3
    done
    for mount in "${!needed[@]}"; do
        ((${needed[$mount]} > ${free[$mount]})) || continue
        echo "The disk is too small: $mount has ${free[$mount]} MB free, and ${needed[$mount]} MB are needed (${what[$mount]})." >&2
        exit 1
    done
}

# What the build has written already is not needed again.
built=0
[[ ! -d build ]] || built=$(du -smx build | cut -f 1)
build_room=("$((room > built ? room - built : 0))" . "the build")

find_missing
if ((${#missing[@]} == 0)); then
    check_disk "${build_room[@]}"
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
need_root() {
    echo "$1 Run this as root, then run the script again:" >&2
    echo "    apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
}
as_root=()
if ((EUID != 0)); then
    have_command sudo || need_root "Only root can install packages, and there is no sudo."
    as_root=(sudo)
    if [[ ! -t 0 ]]; then
        sudo -n true 2>/dev/null || need_root "Only root can install packages, and sudo asks for a password, but there is no terminal."
        as_root=(sudo -n)
    fi
fi

# Without questions: of debconf (tzdata), of needrestart, of dpkg about changed files. Waits for another apt, not for ever.
apt_get() {
    "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l NEEDRESTART_SUSPEND=1 \
        apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=1 -o Acquire::http::Timeout=20 \
        -o Acquire::https::Timeout=20 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
        "$@" </dev/null
}
# amount WORDS FILE...: apt's "1,234 kB" after these words, in MB and rounded up.
amount() {
    local words=$1
    shift
    cat "$@" | sed -n "s|.*$words \([0-9.,]*\) \([kMG]\{0,1\}\)B.*|\1 \2|p" | tr -d , | awk '
        {sum += $1 * ($2 == "G" ? 1000 : $2 == "M" ? 1 : $2 == "k" ? 0.001 : 0.000001)}
        END {print int(sum) + (sum > int(sum))}'
}
# show_quarters COUNT: a line for each quarter of what apt does with so many packages.
show_quarters() {
    local line got=0 ready=0
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        if [[ $line == Get:* ]] && ((++got * 4 % $1 < 4)); then echo "dependencies: fetched $got of $1"; fi
        if [[ $line == "Setting up "* ]] && ((++ready * 4 % $1 < 4)); then echo "dependencies: set up $ready of $1"; fi
    done
}
install_missing() {
    local count fetch
    if apt_get install --assume-no --no-install-recommends "${missing[@]}" >"$log" 2>&1; then return; fi # all there
    grep -q '^Need to get' "$log" || return 1 # it does not know a package
    count=$(sed -n 's/^\([0-9]*\) upgraded, \([0-9]*\) newly installed.*/\1 + \2/p' "$log")
    count=$((count))
    fetch=$(amount "Need to get" "$log")
    check_disk "$fetch" /var/cache/apt "packages" "$(amount "After this operation," "$log")" /usr "what is in them" \
        "${build_room[@]}"
    echo "dependencies: installing $count packages, $fetch MB to fetch"
    apt_get install -y --no-install-recommends "${missing[@]}" 2>&1 | show_quarters "$count"
}
log=$(mktemp)
updated=$(mktemp)
trap 'rm -f "$log" "$updated"' EXIT
if ! install_missing; then # no package lists yet, or stale ones
    echo "dependencies: fetching the lists of packages"
    apt_get update >"$updated" 2>&1 || true
    if ! install_missing; then
        for said in "$updated" "$log"; do { grep -E '^[EW]: ' "$said" || true; } | sort -u | sed -n 1,3p >&2; done
        cat >&2 <<END
apt-get could not install: ${missing[*]}
Without a network, fetch them on a machine of the same system that has one:
    apt-get install --download-only --no-install-recommends ${missing[*]}
Bring its /var/cache/apt/archives/*.deb here, run 'dpkg -i *.deb' as root, then run this again.
END
        exit 1
    fi
fi
fetched=$(amount Fetched "$updated" "$log")
installed=${missing[*]}
find_missing
if ((${#missing[@]} > 0)); then
    echo "Still missing after the installation: ${missing[*]}" >&2
    if have_command cmake && ! have_cmake; then
        echo "cmake $(cmake_version) is too old: Yoke takes $cmake_wanted or newer: pip install 'cmake>=$cmake_wanted'" >&2
    fi
    exit 1
fi
echo "dependencies: installed $installed (fetched $fetched MB)"
say_cuda
