#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python module into two fresh virtual environments, from the clone and from its source distribution, and
# in each runs the tool and the module's tests. pip fetches numpy and what builds wheels.
# usage: scripts/python-check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check NAME SOURCE: with pip, and what the module does there.
check() {
    local programs=$work/$1/bin begin
    python3 -m venv "$work/$1"
    begin=$SECONDS
    "$programs/pip" install -q "$2"
    echo "pip install of the $1: $((SECONDS - begin)) s"
    (cd "$work" && "$programs/yoke" version | head -n 1 && "$programs/python" "$root/tests/python/test_module.py" "$root")
}

scripts/install-deps.sh --python
python3 --version
check clone .
python3 -m venv "$work/builder"
"$work/builder/bin/pip" install -q build
"$work/builder/bin/python" -m build -q --sdist -o "$work" .
echo "$(basename "$work"/yoke-*.tar.gz): $(($(stat -c %s "$work"/yoke-*.tar.gz) / 1024)) KiB"
check distribution "$work"/yoke-*.tar.gz
