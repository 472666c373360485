#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every source names its license in its first line, or in the second behind #!, as REUSE and the Linux kernel do.

usage: licenses.py ROOT [--write]; --write adds the line where it is missing
"""
import pathlib
import sys

LICENSE = "SPDX-License-Identifier: Apache-2.0"
FOLDERS = (".ci", ".github", "bench", "cmake", "include", "python", "samples", "scripts", "src", "tests")
C = {".c", ".h", ".cu", ".cpp", ".hpp"}
HASH = {".py", ".sh", ".cmake", ".sbatch", ".supp", ".toml", ".yml"}
TEMPLATES = {".cmake.in", ".map.in", ".pc.in"}


def comment(path):
    """The line for a file of this kind; None: it is no source."""
    if path.suffix in C:
        return f"/* {LICENSE} */"
    hashed = path.suffix in HASH or "".join(path.suffixes[-2:]) in TEMPLATES or path.name in ("CMakeLists.txt", "run")
    return f"# {LICENSE}" if hashed else None


def add_line(path, lines, wanted):
    lines.insert(1 if lines and lines[0].startswith("#!") else 0, wanted)
    path.write_text("\n".join(lines))


def main():
    root = pathlib.Path(sys.argv[1])
    paths = [root / "CMakeLists.txt", root / "pyproject.toml"]
    paths += [path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.is_file()]
    count, found = 0, []
    for path in paths:
        wanted = comment(path)
        if wanted is None:
            continue
        count += 1
        lines = path.read_text().split("\n")
        if wanted in lines[:2]:
            continue
        if "--write" in sys.argv:
            add_line(path, lines, wanted)
        else:
            found.append(f"{path.relative_to(root)}: no line \"{wanted}\": tests/house/licenses.py ROOT --write adds it")
    print("\n".join(found) or f"{count} sources name their license")
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
