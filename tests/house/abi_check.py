#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/abi-check.sh tells libraries that break programs from those that have grown: pairs of small libraries.

usage: abi_check.py ROOT CC. Exit code 77: there is no abidiff.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
HEADER = """#include <stddef.h>
typedef enum yoke_kind { YOKE_A, YOKE_B } yoke_kind;
typedef struct yoke_options { size_t struct_size; int rows; float rate; yoke_kind kind; int tail; } yoke_options;
typedef struct yoke_padded { size_t padded_size; int padded; } yoke_padded;
int yoke_first(const yoke_options *options);
int yoke_second(int count);
int yoke_last(const yoke_padded *padded);
"""
SOURCE = """int yoke_first(const yoke_options *options) { return options->rows; }
int yoke_second(int count) { return (int)count; }
int yoke_last(const yoke_padded *padded) { return padded->padded; }
"""
# what is replaced in header and source, by what; whether programs break
CHANGES = [
    ("int tail;", "int tail;", False),
    ("int tail;", "int tail; double more; int x, y;", False),
    ("int yoke_second", "int yoke_third(void);\nint yoke_second", False),
    ("YOKE_B }", "YOKE_B, YOKE_C }", False),
    ("{ YOKE_A, YOKE_B }", "{ YOKE_C, YOKE_A, YOKE_B }", True),
    ("int yoke_second(int count)", "static inline int second(int count)", True),
    ("int yoke_second(int count)", "int yoke_second(double count)", True),
    ("int yoke_second(int count)", "int yoke_second(int count, int more)", True),
    ("int rows; float rate;", "float rate; int rows;", True),
    ("int rows; float rate;", "float rate; int rows; double more;", True),
    ("int rows; float rate; yoke_kind kind; int tail;", "float rate; int rows; yoke_kind kind; int tail; double more;", True),
    ("float rate; yoke_kind kind; int tail;", "int rate; yoke_kind kind; int tail; double more;", True),
    ("float rate;", "int rate;", True),
    ("float rate; ", "", True),
    ("int tail;", "", True),
    ("int rows;", "int more, rows;", True),
    ("size_t padded_size; int padded;", "size_t padded_size; int padded, more;", True),
]


def build(cc, folder, header, source):
    folder.mkdir()
    (folder / "yoke.h").write_text(header)
    (folder / "yoke.c").write_text(f'#include "yoke.h"\n{source}')
    subprocess.run([cc, "-g", "-w", "-fPIC", "-shared", folder / "yoke.c", "-o", folder / "libyoke.so"], check=True)
    return [folder / "libyoke.so", folder]


def main():
    root, cc = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    if not shutil.which("abidiff"):
        print("no abidiff: scripts/install-deps.sh --abi installs it")
        return SKIPPED
    found = []
    with tempfile.TemporaryDirectory(prefix="yoke-abi-check-") as name:
        work = pathlib.Path(name)
        old = build(cc, work / "old", HEADER, SOURCE)
        for number, (before, after, breaks) in enumerate(CHANGES):
            new = build(cc, work / str(number), HEADER.replace(before, after), SOURCE.replace(before, after))
            done = subprocess.run([root / "scripts/abi-check.sh", *old, *new], capture_output=True, text=True, check=False)
            if done.returncode != breaks:
                found.append(f"{before!r} -> {after!r}: exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    print("\n".join(found) or f"{len(CHANGES)} pairs of libraries judged")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
