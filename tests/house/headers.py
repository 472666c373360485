#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public header compiles alone as C11 and as C++11, without a warning; so does each INIT macro,
which must name every field of its struct.

usage: headers.py INCLUDE_FOLDER CC [CXX]
"""
import pathlib
import re
import shutil
import subprocess
import sys

INIT = re.compile(r"#define YOKE_(\w+)_OPTIONS_INIT\b")
KINDS = dict.fromkeys(["SGD", "ADAMW", "ADAM", "RMSPROP", "LION", "ADAGRAD", "LAMB", "MUON", "MUON_FILTERS"], "optimizer")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]


def uses_of_inits(text):
    return "".join(f"yoke_{KINDS.get(name, name.lower())}_options init_{name} = YOKE_{name}_OPTIONS_INIT;\n"
                   for name in INIT.findall(text))


def compiles(command, include, header):
    text = f"#include <{header}>\n#include <{header}>\nint yoke_header_is_alone;\n"
    text += uses_of_inits((include / header).read_text())
    result = subprocess.run(command + WARNINGS + ["-I", str(include), "-"], input=text,
                            capture_output=True, text=True, check=False)
    if result.returncode:
        print(f"{header}: {' '.join(command)}\n{result.stderr}")
    return result.returncode == 0


def main():
    include, compilers = pathlib.Path(sys.argv[1]), sys.argv[2:]
    headers = sorted(p.relative_to(include).as_posix() for p in include.rglob("*.h"))
    languages = [[compilers[0], "-x", "c", "-std=c11", "-Wstrict-prototypes"]]
    if len(compilers) > 1 and shutil.which(compilers[1]):
        languages.append([compilers[1], "-x", "c++", "-std=c++11"])
    else:
        print("no C++ compiler: C++11 not tried")
    failed = [h for h in headers for command in languages if not compiles(command, include, h)]
    print(f"{len(headers)} headers in {len(languages)} languages, {len(failed)} failures")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
