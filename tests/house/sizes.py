#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sources stay small, have unique names and leave nothing for later; nothing strays into the top level.

usage: sizes.py ROOT. Reports functions of 70 lines and files of 400, fails at 100 and 600, at two sources
of one name and at a note to do something later. Backends mirror each other, names included. The Python module
is a thin door: more than 1000 lines fail, beside pytorch/, which translates networks. The line with the license does not count.
"""
import pathlib
import re
import subprocess
import sys

FUNCTION_NOTE, FUNCTION_LIMIT = 70, 100
FILE_NOTE, FILE_LIMIT = 400, 600
MODULE_LIMIT = 1000
LATER = re.compile(r"\b(TODO|FIXME|XXX)\b")
FOLDERS = ("include", "src", "samples", "tests", "bench", "python")
# Every sample is called main.c; its folder carries the name.
SHARED_NAMES = {"main.c"}
TOP_LEVEL = {".ci", ".clang-format", ".clang-tidy", ".github", ".gitignore", "bench", "CHANGELOG.md", "cmake",
             "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "docs", "include", "LICENSE", "pyproject.toml",
             "python", "README.md", "samples", "scripts", "SECURITY.md", "src", "tests"}


def strays(root):
    """What git keeps in the top level beside what belongs there; a tree that git does not keep has none."""
    kept = subprocess.run(["git", "-C", str(root), "ls-files"], capture_output=True, text=True, check=False).stdout
    return sorted({path.split("/")[0] for path in kept.splitlines()} - TOP_LEVEL)


def functions(lines):
    """(name, length) of each function: in formatted code a body opens and closes in column 0."""
    begin, name = None, None
    for number, line in enumerate(lines):
        head = re.match(r"[A-Za-z_].*?(\w+)\(", line)
        if head and not line.rstrip().endswith(";"):
            begin, name = number, head[1]
        elif line == "}" and begin is not None:
            yield name, number - begin + 1
            begin = None
        elif line.startswith("}"):
            begin = None


def are_mirrors(paths):
    """device/cpu/loss.c and device/cuda/loss.c are two sources of one name on purpose. A stage's file has the stage's
    name, whatever else has it."""
    others = [path for path in paths if not path.startswith("src/parallel/stages/")]
    return len(others) < 2 or all(re.fullmatch(r"src/device/\w+/[^/]+", path) for path in others)


def count_lines(path):
    return sum("SPDX-License-Identifier" not in line for line in path.read_text().splitlines())


def measure(value, note, limit, what, failures, notes):
    if value >= limit:
        failures.append(f"{what}: {value} lines, the limit is {limit}")
    elif value >= note:
        notes.append(f"note: {what}: {value} lines")


def main():
    root = pathlib.Path(sys.argv[1])
    failures, notes, owners = [f"{name}: does not belong in the top level" for name in strays(root)], [], {}
    sources = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
               if path.suffix in (".c", ".h", ".cu", ".hpp", ".py", ".sh")]
    for path in sources:
        relative = path.relative_to(root).as_posix()
        text = path.read_text()
        lines = text.splitlines()
        if path.suffix in (".c", ".h", ".cu"):
            for name, length in functions(lines):
                measure(length, FUNCTION_NOTE, FUNCTION_LIMIT, f"{relative}: {name}()", failures, notes)
            if relative.startswith("src/") and path.name not in SHARED_NAMES:
                owners.setdefault(path.name, []).append(relative)
        measure(count_lines(path), FILE_NOTE, FILE_LIMIT, relative, failures, notes)
        if path != pathlib.Path(__file__).resolve() and path.name not in ("sizes.py", "planted.py"):
            for number, line in enumerate(lines, 1):
                if LATER.search(line):
                    failures.append(f"{relative}:{number}: do it now or leave it out: {line.strip()}")
    module = sum(count_lines(path) for path in sources if path.parent == root / "python/yoke")
    if module > MODULE_LIMIT:
        failures.append(f"python/yoke: {module} lines, the limit is {MODULE_LIMIT}")
    for name, paths in owners.items():
        if len(paths) > 1 and not are_mirrors(paths):
            failures.append(f"two sources are called {name}: {', '.join(paths)}")
    print("\n".join(notes + failures) or f"{len(sources)} sources, none too large")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
