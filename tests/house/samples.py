#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every sample prints what its README shows. Those in C++ (main.cpp) are skipped where this build has none of them.

usage: samples.py ROOT BUILD_FOLDER. Commands name build/release/; the test puts the build under test
in its place. It reports and leaves out commands whose launcher this machine lacks.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pages

LINES = 150
LAUNCHERS = ("mpirun",)
# Open MPI runs as root, and more ranks than there are cores, only where it is told to.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def is_missing(command):
    launcher = command.split()[0]
    return launcher in LAUNCHERS and shutil.which(launcher) is None


def run_command(command, build):
    words = command.replace("build/release/", f"{build}/").split()
    with tempfile.TemporaryDirectory(prefix="yoke-sample-") as work:
        return subprocess.run(words, cwd=work, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=900,
                              check=False, env=dict(os.environ, **MPI))


def check_sample(folder, build):
    found = []
    commands = pages.commands((folder / "README.md").read_text())
    if not any(expected for _, expected, _ in commands):
        found.append(f"{folder.name}/README.md shows no output")
    for source in sorted(folder.glob("*.c*")):
        lines = [line for line in source.read_text().splitlines() if line.strip()]
        if len(lines) > LINES:
            found.append(f"{folder.name}/{source.name} has {len(lines)} lines, a sample {LINES} at most")
    if (folder / "main.cpp").exists() and not (build / f"sample_{folder.name}").exists():
        print(f"skipped, this build has no C++: {folder.name}")
        return found
    for command, expected, exact in commands:
        if is_missing(command):
            print(f"skipped, there is no {command.split()[0]}: {command}")
            continue
        result = run_command(command, build)
        wrong = pages.difference(expected or "", result.stdout, exact)
        if result.returncode or wrong:
            found.append(f"$ {command}\nexit {result.returncode}; {wrong}\n{result.stdout}")
    return found


def main():
    root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    folders = sorted(path.parent for path in root.glob("samples/*/README.md"))
    found = [problem for folder in folders for problem in check_sample(folder, build)]
    print("\n".join(found) or f"{len(folders)} samples print what they say")
    return 1 if found or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
