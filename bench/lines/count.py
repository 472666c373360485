#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the lines of programs that exist twice, with Yoke's C++ header and with libtorch: without blank lines and
comments, in one format (.clang-format).

usage: count.py [ROOT]. Fails where Yoke's program has more than LIMIT times the lines.
"""
import pathlib
import re
import sys

LIMIT = 1.2
PAIRS = {"residual CNN": ("samples/15_residual_cnn/main.cpp", "bench/lines/residual_cnn_libtorch.cpp"),
         "transformer": ("samples/16_transformer/main.cpp", "bench/lines/transformer_libtorch.cpp")}


def count(path):
    code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return sum(bool(re.sub(r"//.*", "", line).strip()) for line in code.splitlines())


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    failed = False
    for name, (own, other) in PAIRS.items():
        lines, most = count(root / own), count(root / other)
        failed |= lines > LIMIT * most
        print(f"{name:<13} Yoke {lines:3}  libtorch {most:3}  ratio {lines / most:.2f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
