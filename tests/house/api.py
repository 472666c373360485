#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The API reference is complete: Doxygen reads every public header without a warning, and finds what is
planted: a parameter that does not exist, one that is not documented, a member without a word.

usage: api.py ROOT OUTPUT_FOLDER. Exit code 77: there is no doxygen here.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
PLANTED = '''/** @file
 * A header. */
/** Options. */
typedef struct yoke_planted_options {
    int rows;    /**< At least 1. */
    int columns;
} yoke_planted_options;
/** Plants.
 * @param options  Copied.
 * @param started  Does not exist.
 * @return OK.
 */
int yoke_plant(const yoke_planted_options *options, int count);
'''
FAULTS = ["columns", "'started'", "'count'"]


def doxygen(root, headers, output):
    """Doxygen's exit code and what it complains about, over headers/include/yoke."""
    output.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, YOKE_ROOT=str(headers), YOKE_API=str(output), YOKE_VERSION="test")
    done = subprocess.run(["doxygen", root / "docs/Doxyfile"], env=environment, capture_output=True, text=True,
                          check=False, timeout=900)
    return done.returncode, done.stderr


def main():
    root, output = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    if not shutil.which("doxygen"):
        print("no doxygen: scripts/install-deps.sh --docs installs it")
        return SKIPPED
    code, complaints = doxygen(root, root, output)
    found = [complaints] if code or complaints else []
    with tempfile.TemporaryDirectory() as folder:
        header = pathlib.Path(folder) / "include/yoke/planted.h"
        header.parent.mkdir(parents=True)
        header.write_text(PLANTED)
        code, complaints = doxygen(root, pathlib.Path(folder), pathlib.Path(folder) / "api")
        if code == 0:
            found.append("doxygen accepts a header with three faults")
        found += [f"doxygen does not complain about {fault}:\n{complaints}" for fault in FAULTS
                  if fault not in complaints]
    print("\n".join(found) or f"{len(list(output.glob('*_8h.html')))} headers documented, 3 faults found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
