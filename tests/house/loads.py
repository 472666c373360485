#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that trains in one process loads neither an MPI, nor an MPI's own libraries, nor NCCL: the tool and the
library do not link them, and a run does not open them. On the module, which links an MPI, the check must find one.

usage: loads.py YOKE LIBYOKE.SO [LIBYOKE_MPI.SO]
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

UNWANTED = re.compile(r"/lib(?:p?mpi\w*|open-\w+|hwloc|event\w*|pmix|ucp|fabric|nccl|yoke_mpi)[.-]\S*")
TRAIN = ["train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=4,rows=32", "--batch", "8", "--steps", "2",
         "--devices", "2xcpu", "--quiet"]


def linked(path):
    return subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout


def loaded(command):
    """What the system's loader says of every file that it opens."""
    with tempfile.TemporaryDirectory(prefix="yoke-loads-") as folder:
        environment = {**os.environ, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{folder}/files"}
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
        return "".join(path.read_text(errors="replace") for path in pathlib.Path(folder).iterdir())


def main():
    tool, library, *module = sys.argv[1:]
    texts = {f"{tool} links": linked(tool), f"{library} links": linked(library),
             f"{tool} train loads": loaded([tool, *TRAIN])}
    found = [f"{what} {name}" for what, text in texts.items() for name in sorted(set(UNWANTED.findall(text)))]
    found += [f"{what} no libdnnl: it was not looked at" for what, text in texts.items() if "libdnnl" not in text]
    found += [f"{path} links no MPI" for path in module if not UNWANTED.search(linked(path))]
    print("\n".join(found) or "one process loads no MPI, and nothing that one brings along")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
