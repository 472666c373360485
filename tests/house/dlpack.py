#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke/dlpack.h in C99 and in C++11: dlpack_host.c compiles without a warning and runs, with declarations of its own
and, where one is installed, with DLPack's header.

usage: dlpack.py ROOT LIBYOKE.SO CC [CXX]
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wcast-qual", "-Werror"]


def run(command, source, library, include, work):
    program = work / "host"
    subprocess.run([*command, *WARNINGS, "-I", include, source, "-x", "none", library,
                    f"-Wl,-rpath,{library.parent}", "-o", program], check=True)
    return subprocess.run([program], check=False).returncode == 0


def main():
    root, library = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    languages = [[sys.argv[3], "-x", "c", "-std=c99"]]
    if len(sys.argv) > 4 and shutil.which(sys.argv[4]):
        languages.append([sys.argv[4], "-x", "c++", "-std=c++11"])
    installed = subprocess.run([sys.argv[3], "-E", "-x", "c", "-"], input="#include <dlpack/dlpack.h>\n", text=True,
                               capture_output=True, check=False).returncode == 0
    ways = [[]] + ([["-include", "dlpack/dlpack.h"]] if installed else [])
    with tempfile.TemporaryDirectory(prefix="yoke-dlpack-") as work:
        source, include = root / "tests/house/dlpack_host.c", root / "include"
        passed = [run([*language, *way], source, library, include, pathlib.Path(work))
                  for language in languages for way in ways]
    print(f"{sum(passed)} of {len(passed)} programs agree")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
