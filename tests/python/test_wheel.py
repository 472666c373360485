#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`pip wheel .` builds a wheel that works in a bare virtual environment: the module passes its tests, and the tool runs.

usage: test_wheel.py ROOT BUILD_FOLDER. Exit code 77: this machine makes no virtual environment, or pip gets no packages.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

SKIPPED = 77
WANTED = {"yoke/__init__.py", "yoke/_library.py", "yoke/layout.json", "yoke/libyoke.so", "yoke/py.typed",
          "yoke/_declared.pyi", "yoke/yoke", "yoke/training/train.py"}


def call(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)
    return done.returncode, done.stdout


def need(*command, **options):
    code, printed = call(*command, **options)
    if code:
        sys.exit(f"{' '.join(map(str, command))}\n{printed}")
    return printed


def make_environment(folder, *packages):
    """The folder's programs, or None and why not."""
    code, printed = call(sys.executable, "-m", "venv", folder)
    if code == 0:
        code, printed = call(folder / "bin/pip", "install", "--quiet", "--retries", "0", "--timeout", "20", *packages)
    if code:
        print(printed)
        return None
    return folder / "bin"


def main():
    root, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    bare = {name: value for name, value in os.environ.items() if name not in ("YOKE_LIBRARY", "PYTHONPATH")}
    with tempfile.TemporaryDirectory(prefix="yoke-wheel-") as name:
        folder = pathlib.Path(name)
        builder = make_environment(folder / "builder", "scikit-build-core>=0.11")
        programs = builder and make_environment(folder / "bare", "numpy")
        if not programs:
            return SKIPPED
        # The build folder stays, so that the next run compiles what has changed. CUDA would take minutes.
        need(builder / "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder,
             "--config-settings", f"build-dir={build}", "--config-settings", "cmake.define.YOKE_WITH_CUDA=OFF", root)
        wheel = next(folder.glob("yoke-*-py3-none-*.whl"))
        lacking = WANTED - set(zipfile.ZipFile(wheel).namelist())
        if lacking:
            sys.exit(f"{wheel.name} lacks {sorted(lacking)}")
        need(programs / "pip", "install", "--no-index", "--no-deps", wheel)
        version = need(programs / "yoke", "--version", cwd=folder, env=bare)
        print(wheel.name, version.strip())
        if version.split()[1] != wheel.name.split("-")[1]:
            sys.exit(f"{wheel.name} has {version}")
        print(need(programs / "python", root / "tests/python/test_module.py", root, cwd=folder, env=bare))
    return 0


if __name__ == "__main__":
    sys.exit(main())
