#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python module into two fresh virtual environments, from the clone and from its source distribution, and
# in each runs the tool, the lines of docs/python.md and the module's tests. pip fetches numpy and what builds wheels.
# usage: scripts/python-check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# install NAME SOURCE: with pip, and what the module does there.
install() {
    local programs=$work/$1/bin begin
    python3 -m venv "$work/$1"
    begin=$SECONDS
    "$programs/pip" install -q "$2"
    echo "pip install of the $1: $((SECONDS - begin)) s"
    (cd "$work" && "$programs/yoke" version | head -n 1 && "$programs/python" lines.py)
    (cd "$work" && "$programs/python" "$root/tests/python/test_module.py" "$root")
}

scripts/install-deps.sh --python
python3 --version
# shellcheck disable=SC2016
sed -n '/^```python/,/^```/p' docs/python.md | sed '/^```/d' >"$work/lines.py"
install clone .
python3 -m venv "$work/builder"
"$work/builder/bin/pip" install -q build
"$work/builder/bin/python" -m build -q --sdist -o "$work" .
echo "$(basename "$work"/yoke-*.tar.gz): $(($(stat -c %s "$work"/yoke-*.tar.gz) / 1024)) KiB"
install distribution "$work"/yoke-*.tar.gz
