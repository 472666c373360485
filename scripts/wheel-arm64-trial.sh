#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where scripts/wheel.sh --arm64 has made a wheel: installs it with numpy beside an arm64 Debian's files, and runs the
# tool and the first example of docs/python.md in qemu-user.
# usage: scripts/wheel-arm64-trial.sh FOLDER, of these files
set -euo pipefail
cd "$(dirname "$0")/.."

made=build/wheels/aarch64
emulate() { qemu-aarch64 -L "$system" -E PYTHONPATH="$PWD/$made/site" -E PYTHONHOME="$system/usr" "$@"; }
system=$1
version=$(basename "$system"/usr/bin/python3.[0-9]* | sed 's/python//')
platforms=()
for glibc in 17 27 28 35; do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
rm -rf "$made/site"
"$made/tools/bin/pip" install -q --target "$made/site" "${platforms[@]}" --only-binary :all: --python-version "$version" \
    build/wheels/yoke-*_aarch64.whl
emulate "$made/site/yoke/yoke" version
emulate "$made/site/yoke/yoke" train --model mlp --dataset synthetic --devices 2xcpu --steps 3
# shellcheck disable=SC2016
sed -n '/^```python/,/^```/{/^```/d;p}; /^```text/q' docs/python.md >"$made/example.py"
emulate "$system/usr/bin/python$version" "$made/example.py"
