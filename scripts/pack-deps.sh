#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs what Yoke's build needs beside a compiler and CMake into one archive, from the Debian packages installed here:
# for a machine that has none of it and reaches no package registry. Notes the commit, too, for a machine without git.
# scripts/gpu-check.sh there unpacks build/deps.tar.xz with Python alone.
# usage: scripts/pack-deps.sh [ARCHIVE]   (build/deps.tar.xz)
set -euo pipefail
cd "$(dirname "$0")/.."

archive=${1-build/deps.tar.xz}
packages=(libdnnl-dev libjansson-dev libxxhash-dev libsodium-dev librandom123-dev libjpeg62-turbo-dev libpng-dev zlib1g-dev libcmocka-dev)
# linker name: its file is copied under the name programs ask for at run time
libraries=(dnnl jansson xxhash sodium jpeg png16 z cmocka)
# Every machine with a compiler has these.
common='^(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libgomp|ld-linux.*|linux-vdso)\.so'

scripts/install-deps.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$(dirname "$archive")" "$folder"/{bin,include,lib/pkgconfig,lib/needed}
triplet=$(cc -print-multiarch)

copy_headers() {
    local header to files
    files=$(dpkg -L "$1") || {
        echo "pack-deps.sh: install $1: its headers are packed from the package" >&2
        exit 1
    }
    while read -r header; do
        [[ -f $header ]] || continue
        to=${header#/usr/include/}
        to=$folder/include/${to#"$triplet"/}
        mkdir -p "$(dirname "$to")"
        cp "$header" "$to"
    done < <(grep '^/usr/include/' <<<"$files")
}

# copy_needed FILE: the libraries it needs that not every machine has, for LD_LIBRARY_PATH.
copy_needed() {
    local name path
    while read -r name _ path _; do
        [[ $path == /* && ! $name =~ $common && ! -e $folder/lib/$name ]] || continue
        cp -L "$path" "$folder/lib/needed/$name"
    done < <(ldd "$1")
}

for package in "${packages[@]}"; do
    copy_headers "$package"
done
for library in "${libraries[@]}"; do
    file=$(cc -print-file-name="lib$library.so")
    name=$(readelf -d "$file" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
    cp -L "$file" "$folder/lib/$name"
    ln -sf "$name" "$folder/lib/lib$library.so"
done
for library in "$folder"/lib/*.so.*; do
    copy_needed "$library"
done
# Their paths become relative to the folder, wherever it is carried.
# shellcheck disable=SC2016
for name in jansson libxxhash libsodium libjpeg libpng zlib cmocka; do # libpng.pc requires zlib.pc
    file=$(pkg-config --variable=pcfiledir "$name")/$name.pc
    sed -e 's|^prefix=.*|prefix=${pcfiledir}/../..|' -e 's|^libdir=.*|libdir=${pcfiledir}/..|' \
        -e 's|^includedir=.*|includedir=${pcfiledir}/../../include|' \
        -e "s|/usr/lib/$triplet|\${pcfiledir}/..|" -e 's|/usr/include|${pcfiledir}/../../include|' \
        "$file" >"$folder/lib/pkgconfig/$name.pc"
done
for tool in pkg-config ninja; do
    cp -L "$(command -v "$tool")" "$folder/bin/$tool"
    copy_needed "$folder/bin/$tool"
done
git describe --always --dirty >"$folder/commit"
# The same files give the same bytes. liblzma, which Python has too, undoes the filter for x86.
tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -c . |
    xz --x86 --lzma2=preset=9e >"$archive.new"
mv "$archive.new" "$archive"
# What travels: the tree as git knows it, with what is new in it, and this archive.
mebibytes() { awk -v bytes="$1" 'BEGIN {printf "%.1f", bytes / 1048576}'; }
luggage=$(stat -c %s "$archive")
tree=$(git ls-files -z --cached --others --exclude-standard | du --files0-from=- -b 2>/dev/null | awk '{sum += $1} END {print sum}')
echo "$archive: $luggage bytes ($(mebibytes "$luggage") MiB); the tree beside it: $tree bytes ($(mebibytes "$tree") MiB);" \
    "together $(mebibytes $((luggage + tree))) MiB"
