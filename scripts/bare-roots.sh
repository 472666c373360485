# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# For scripts that try Yoke where nothing is installed: makes bare roots of Debian suites from the mirror that apt uses
# here, and runs commands in them. The caller sets `suites` and `logs`, a folder. It may set `includes`, packages of a
# root beside the least, `network=no`, and `missing`, what else stands against a root. Where no root can be made, this
# says why and ends the caller with 0.
ROOT_LIMIT_S=900

have() { command -v "$1" >/dev/null 2>&1; }

# Why no root can be made here at all; nothing when one can.
obstacle() {
    if ((EUID != 0)); then echo "a bare root needs root rights"; return; fi
    if ! have mmdebstrap && ! have debootstrap; then echo "neither mmdebstrap nor debootstrap is here"; return; fi
    if ! unshare --mount --pid --fork mount -t proc proc /proc 2>/dev/null; then echo "no namespaces may be made here"; return; fi
    if [[ -z $mirror ]]; then echo "apt has no mirror configured"; return; fi
    echo "${missing-}"
}

# What says names of machines here, as far as it is here.
copy_names() {
    local file
    for file in /etc/resolv.conf /etc/hosts; do
        [[ ! -e $file ]] || cp -L "$file" "$1/etc/" || return
    done
}

# make_root SUITE ROOT: its apt reaches the mirror the way apt here does.
make_root() {
    local settings=$work/settings options=(--variant=minbase --components="$components") with=${includes-}
    [[ $mirror != https:* ]] || with=${with:+$with,}ca-certificates
    [[ -z $with ]] || options+=("--include=$with")
    mkdir -p "$2"
    apt-config dump | grep -E '^Acquire::(.*Proxy.*|Check-(Date|Valid-Until)) ' >"$settings"
    if have mmdebstrap; then
        timeout -k 10 "$ROOT_LIMIT_S" mmdebstrap --mode=root "${options[@]}" --aptopt="$settings" "$1" "$2" "$mirror"
    else
        timeout -k 10 "$ROOT_LIMIT_S" debootstrap "${options[@]}" "$1" "$2" "$mirror" &&
            cp "$settings" "$2/etc/apt/apt.conf.d/99host"
    fi && copy_names "$2"
}

# bare_root SUITE ROOT: makes it and says so, or that it cannot.
bare_root() {
    local begin=$SECONDS
    if ! make_root "$1" "$2" >"$logs/$1-root.log" 2>&1; then
        echo "$1: skipped, no root could be made: $(tail -n 1 "$logs/$1-root.log")"
        return 1
    fi
    echo "$1: bare root of $(count_packages "$2") packages, $(megabytes "$2") MB, in $((SECONDS - begin)) s"
}

# let_pip_in ROOT: its pip reaches the index the way pip here does.
let_pip_in() {
    {
        echo "[global]"
        [[ -z ${PIP_INDEX_URL-} ]] || echo "index-url = $PIP_INDEX_URL"
        [[ -z ${PIP_CERT-} ]] || { cp "$PIP_CERT" "$1/etc/pip.crt" && echo "cert = /etc/pip.crt"; }
    } >"$1/etc/pip.conf"
}

# inside ROOT LIMIT_S COMMAND: in the root's folder yoke; mounts and processes end with it, and there is no terminal.
# shellcheck disable=SC2016
inside() {
    local own=(--mount --pid) code=0
    [[ ${network-} != no ]] || own+=(--net)
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

# try_command SUITE ROOT LIMIT_S COMMAND: says what came of it, and sets failed=yes when it fails.
try_command() {
    local suite=$1 root=$2 log packages size fetched begin=$SECONDS code=0
    log=$logs/$suite-$(basename "${4%% *}" .sh).log
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
end_child() { [[ -z $child ]] || { kill -KILL -- "-$child"; wait "$child"; } 2>/dev/null; }
trap 'end_child; exit 130' INT TERM # the root goes after its users
mkdir -p "$logs"
# shellcheck disable=SC2034
failed=no
[[ -z $(git status --porcelain) ]] || echo "note: what is not committed is not tried"
