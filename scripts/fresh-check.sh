#!/usr/bin/env bash
# Tries the README where nothing is installed: makes a bare root of each Debian suite from the mirror that apt
# uses here, puts a clone of HEAD in it and runs scripts/demo.sh as the first command, without a terminal. Says what
# each command fetched and how long it took, and holds what the demo printed against README.md.
# --tests: scripts/test.sh --quick as the second command. --compilers: instead, every gcc from 11 to 14 and clang
# from 14 to 19 of the suite builds all there is with warnings as errors.
# --gpu-check: instead, scripts/gpu-check.sh over simulated GPUs where there is a compiler, CMake, Python and this
# machine's CUDA toolkit, but neither git nor a network; what else the build needs comes from scripts/pack-deps.sh.
# usage: scripts/fresh-check.sh [--tests | --compilers | --gpu-check] [SUITE...]   (bookworm trixie)
set -uo pipefail
cd "$(dirname "$0")/.." || exit

ROOT_LIMIT_S=300
DEMO_LIMIT_S=900
TESTS_LIMIT_S=3600
COMPILER_LIMIT_S=1800
GPU_CHECK_LIMIT_S=14400
CUDA=/usr/local/cuda

what=demo
suites=()
for word in "$@"; do
    case $word in
    --tests) what=tests ;;
    --compilers) what=compilers ;;
    --gpu-check) what=gpu-check ;;
    -*)
        echo "usage: scripts/fresh-check.sh [--tests | --compilers | --gpu-check] [SUITE...]" >&2
        exit 2
        ;;
    *) suites+=("$word") ;;
    esac
done
((${#suites[@]} > 0)) || suites=(bookworm trixie)

have() { command -v "$1" >/dev/null 2>&1; }

# Why no root can be made here at all; nothing when one can.
obstacle() {
    if ((EUID != 0)); then echo "a bare root needs root rights"; return; fi
    if ! have mmdebstrap && ! have debootstrap; then echo "neither mmdebstrap nor debootstrap is here"; return; fi
    if ! unshare --mount --pid --fork mount -t proc proc /proc 2>/dev/null; then echo "no namespaces may be made here"; return; fi
    if [[ -z $mirror ]]; then echo "apt has no mirror configured"; return; fi
    [[ $what != gpu-check || -d $CUDA ]] || echo "there is no CUDA toolkit in $CUDA"
}

# make_root SUITE ROOT: its apt reaches the mirror the way apt here does.
make_root() {
    local settings=$work/settings options=(--variant=minbase --components="$components")
    [[ $mirror != https:* ]] || options+=(--include=ca-certificates)
    [[ $what != gpu-check ]] || options+=("--include=g++,cmake,python3")
    mkdir -p "$2"
    apt-config dump | grep -E '^Acquire::(.*Proxy.*|Check-(Date|Valid-Until)) ' >"$settings"
    if have mmdebstrap; then
        timeout -k 10 "$ROOT_LIMIT_S" mmdebstrap --mode=root "${options[@]}" --aptopt="$settings" "$1" "$2" "$mirror"
    else
        timeout -k 10 "$ROOT_LIMIT_S" debootstrap "${options[@]}" "$1" "$2" "$mirror" &&
            cp "$settings" "$2/etc/apt/apt.conf.d/99host"
    fi && cp -L /etc/resolv.conf /etc/hosts "$2/etc/"
}

# inside ROOT LIMIT_S COMMAND: mounts and processes end with it, and there is no terminal. For gpu-check no network.
# shellcheck disable=SC2016
inside() {
    local own=(--mount --pid) code=0
    [[ $what != gpu-check ]] || own+=(--net)
    timeout -s KILL "$2" unshare "${own[@]}" --fork --kill-child bash -c '
        mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount --rbind /dev "$1/dev" &&
            if [[ -d $1/usr/local/cuda ]]; then mount --rbind /usr/local/cuda "$1/usr/local/cuda"; fi &&
            exec chroot "$1" setsid -w env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
                ${http_proxy+"http_proxy=$http_proxy"} ${https_proxy+"https_proxy=$https_proxy"} \
                ${no_proxy+"no_proxy=$no_proxy"} bash -c "cd /yoke && $2"' - "$1" "$3" </dev/null &
    child=$!
    wait "$child" || code=$? # unlike a command in the foreground it lets a signal through
    child=
    return "$code"
}

count_packages() { grep -c '^Status: install ok installed' "$1/var/lib/dpkg/status"; }
megabytes() { du -smx "$1" | cut -f 1; }

# try_command SUITE ROOT LIMIT_S COMMAND
try_command() {
    local suite=$1 root=$2 log packages size fetched begin=$SECONDS code=0
    log=build/fresh/$suite-$(basename "${4%% *}" .sh).log
    packages=$(count_packages "$root")
    size=$(megabytes "$root")
    inside "$root" "$3" "$4" >"$log" 2>&1 || code=$?
    fetched=$(sed -n 's/^dependencies: installed .*(\(fetched .*\))$/, \1/p' "$log")
    echo "$suite: $4: exit $code, $((SECONDS - begin)) s;" \
        "$(($(count_packages "$root") - packages)) packages installed$fetched; $(($(megabytes "$root") - size)) MB more on disk"
    if ((code != 0)); then
        tail -n 40 "$log"
        failed=yes
    fi
    return "$code"
}

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

# Without .git, and with packages in build/deps.
try_gpu_check() {
    local suite=$1 root=$2
    rm -rf "$root/yoke"
    mkdir -p "$root/yoke" "$root/usr/local/cuda"
    git archive HEAD | tar -x -C "$root/yoke"
    scripts/pack-deps.sh "$root/yoke/build/deps" || failed=yes
    try_command "$suite" "$root" "$GPU_CHECK_LIMIT_S" "scripts/gpu-check.sh --preset simcuda --scale 30 --out out"
    cp "$root"/yoke/out/*.{json,txt} build/fresh/ || failed=yes
    sed -n 2p "$root"/yoke/out/*.txt
}

check_suite() {
    local suite=$1 root=$work/$1 begin=$SECONDS
    echo
    if ! make_root "$suite" "$root" >"build/fresh/$suite-root.log" 2>&1; then
        echo "$suite: skipped, no root could be made: $(tail -n 1 "build/fresh/$suite-root.log")"
        return
    fi
    echo "$suite: bare root of $(count_packages "$root") packages, $(megabytes "$root") MB, in $((SECONDS - begin)) s"
    git clone -q --depth 1 "file://$PWD" "$root/yoke" || failed=yes
    case $what in
    compilers) try_compilers "$suite" "$root" ;;
    gpu-check) try_gpu_check "$suite" "$root" ;;
    *)
        try_command "$suite" "$root" "$DEMO_LIMIT_S" scripts/demo.sh && compare_readme "$suite"
        [[ $what == demo ]] || try_command "$suite" "$root" "$TESTS_LIMIT_S" "scripts/test.sh --quick"
        ;;
    esac
    rm -rf --one-file-system "$root"
}

# What apt here has of its own release: $1 of its indexes.
of_apt() { apt-get indextargets --format "\$($1)" "Codename: $codename" 2>/dev/null | sort -u; }
codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
mirror=$(of_apt SITE | head -n 1)
components=$(of_apt COMPONENT | paste -sd ,)
why=$(obstacle)
if [[ -n $why ]]; then
    echo "${suites[*]}: skipped, $why"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
child=
trap '[[ -z $child ]] || { kill -KILL -- "-$child"; wait "$child"; } 2>/dev/null; exit 130' INT TERM # the root goes after its users
mkdir -p build/fresh
[[ -z $(git status --porcelain) ]] || echo "note: what is not committed is not tried"
failed=no
for suite in "${suites[@]}"; do check_suite "$suite"; done
[[ $failed == no ]]
