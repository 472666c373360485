#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of README.md runs, in order, in a copy of the tree as a clone has it, and prints what
the page shows. The page's C program compiles without a warning, and the page's own commands build and run it.

usage: readme.py ROOT. It does not run scripts/test.sh, which runs this test.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pages

LIMIT_S = 1800
ONE_GPU = "90-real"  # code for one kind of GPU is enough to see that commands work
RUN_BY_ITSELF = "scripts/test.sh"
PROGRAM = "train.c"


def copy_tree(root, copy):
    """All but what git would not carry: its own folder, and build folders of the root."""
    def left_out(folder, names):
        own = [name for name in names if name.startswith("build")] if folder == str(root) else []
        return own + [".git", "__pycache__"]
    shutil.copytree(root, copy, ignore=left_out)


def run(command, copy):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=copy, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          timeout=LIMIT_S, check=False,
                          env=dict(os.environ, TERM="dumb", CUDAARCHS=ONE_GPU, CCACHE_BASEDIR=str(copy)))


def check_command(command, expected, exact, copy):
    if command == RUN_BY_ITSELF:
        return None if os.access(copy / command, os.X_OK) else f"{command} can't be run"
    result = run(command, copy)
    if result.returncode:
        return f"$ {command}\nexit {result.returncode}\n{result.stdout}"
    wrong = expected is not None and pages.difference(expected, result.stdout, exact)
    return f"$ {command}\n{wrong}\nall it printed:\n{result.stdout}" if wrong else None


def check_program(program, copy):
    """Leaves it where the page's commands build it."""
    (copy / PROGRAM).write_text(program + "\n")
    result = subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Iinclude", PROGRAM],
                            cwd=copy, capture_output=True, text=True, check=False)
    return result.stderr if result.returncode else None


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    text = (root / "README.md").read_text()
    found = []
    with tempfile.TemporaryDirectory(prefix="yoke-readme-") as name:
        copy = pathlib.Path(name) / "yoke"
        copy_tree(root, copy)
        programs = [content for language, content, _ in pages.blocks(text) if language == "c"]
        found += [check_program(program, copy) for program in programs]
        commands = pages.commands(text)
        found += [check_command(*command, copy) for command in commands]
    found = [problem for problem in found if problem]
    print("\n".join(found) or f"{len(commands)} commands and {len(programs)} programs do what README.md says")
    return 1 if found or not commands else 0


if __name__ == "__main__":
    sys.exit(main())
