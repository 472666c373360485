#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python module into two fresh virtual environments, from the clone and from its source distribution, and
# in each trains with the tool and runs the module's tests. pip fetches numpy and what builds wheels.
# WHEEL: instead, installs this wheel; needs python3 with venv, and neither a compiler nor a library of Yoke's.
# usage: scripts/python-check.sh [WHEEL]
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# import_time PYTHON: the shortest of five, because the first reads files from the disk.
import_time() {
    for _ in {1..5}; do "$1" -X importtime -c 'import yoke' 2>&1 | tail -n 1; done | sort -t '|' -k 2 -n |
        awk -F '|' 'NR == 1 {printf "import yoke: %.0f ms, with numpy\n", $2 / 1000}'
}

# check NAME SOURCE: with pip, and what the module does there.
check() {
    local programs=$work/$1/bin begin
    python3 -m venv "$work/$1"
    begin=$SECONDS
    "$programs/pip" install -q "$2"
    echo "pip install of the $1: $((SECONDS - begin)) s"
    cd "$work"
    "$programs/yoke" version | sed -n 1p
    "$programs/yoke" train --model mlp --dataset synthetic --devices 2xcpu --steps 20
    "$programs/yoke" launch --nproc-per-node 2 -- train --mode ddp --model mlp --dataset synthetic --steps 20
    import_time "$programs/python"
    "$programs/python" "$root/tests/python/test_module.py" "$root"
    cd "$root"
}

if [[ -n ${1-} ]]; then
    if command -v cc || command -v c++ || command -v cmake; then echo "here is more than the wheel needs"; fi
    python3 --version
    ldd --version | sed -n 1p
    check wheel "$(realpath "$1")"
    exit
fi
scripts/install-deps.sh --python
python3 --version
check clone .
python3 -m venv "$work/builder"
"$work/builder/bin/pip" install -q build
"$work/builder/bin/python" -m build -q --sdist -o "$work" .
echo "$(basename "$work"/yoke-*.tar.gz): $(($(stat -c %s "$work"/yoke-*.tar.gz) / 1024)) KiB"
check distribution "$work"/yoke-*.tar.gz
