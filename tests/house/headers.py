#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public header compiles alone as C11 and as C++11, without a warning; so does each INIT macro,
which must name every field of its struct. The headers for C++ (.hpp) compile as C++17, 20 and 23, with exceptions and
without, and their options have every field of the C API's.

usage: headers.py INCLUDE_FOLDER CC [CXX]
"""
import pathlib
import re
import shutil
import subprocess
import sys

INIT = re.compile(r"#define YOKE_(\w+)_OPTIONS_INIT\b")
KINDS = dict.fromkeys(["SGD", "ADAMW", "ADAM", "RMSPROP", "LION", "ADAGRAD", "LAMB", "MUON", "MUON_FILTERS"], "optimizer")
CPP_WARNINGS = ["-Wconversion", "-Wsign-conversion", "-Wshadow"]
CPP_STANDARDS = (("17", "17"), ("20", "20"), ("23", "2b"))  # clang 14 knows C++23 by its old name
# What a call of the C++ header gets as an argument, or sets itself.
GIVEN = {"struct_size", "name", "more_input_count", "out_channels", "out_features", "kernel", "hidden", "payload", "weight_count"}
FIELD = re.compile(r"[\s*](\w+)(?:\s=\s[^;]+)?;|\(\*(\w+)\)\(")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]


def uses_of_inits(text):
    return "".join(f"yoke_{KINDS.get(name, name.lower())}_options init_{name} = YOKE_{name}_OPTIONS_INIT;\n"
                   for name in INIT.findall(text))


def fields(text, struct):
    """The names of the fields of a struct, in C or in C++."""
    body = re.search(r"struct %s \{(.*?)^\}" % struct, text, re.S | re.M)
    lines = re.sub(r"/\*.*?\*/", "", body[1], flags=re.S) if body else ""
    return {name or callback for name, callback in FIELD.findall(lines)}


def left_out(include):
    """Fields of the C API's options that the C++ struct of the same name lacks."""
    c_text = "".join(path.read_text() for path in sorted(include.rglob("*.h")))
    found, count = [], 0
    for path in sorted(include.rglob("*.hpp")):
        for struct in re.findall(r"^struct (\w+) \{", path.read_text(), re.M):
            count += f"struct yoke_{struct} {{" in c_text
            missing = fields(c_text, f"yoke_{struct}") - fields(path.read_text(), struct) - GIVEN
            found += [f"{path.name}: {struct} has no {name}" for name in sorted(missing)]
    return found if count else ["no struct of a C++ header is one of the C API"]


def cpp_commands(compiler):
    """A command for each language that a C++ header is written in; none without a C++ compiler."""
    for standard, old_name in CPP_STANDARDS:
        for switch in ([], ["-fno-exceptions"]):
            for name in dict.fromkeys((standard, old_name)):
                command = [compiler, "-x", "c++", f"-std=c++{name}", *CPP_WARNINGS, *switch]
                if subprocess.run(command + ["-fsyntax-only", "-"], input="", capture_output=True, text=True,
                                  check=False).returncode == 0:
                    yield command
                    break
            else:
                print(f"the C++ compiler knows no C++{standard}: not tried")


def compiles(command, include, header):
    text = f"#include <{header}>\n#include <{header}>\nint yoke_header_is_alone();\n" if header.endswith("pp") else \
        f"#include <{header}>\n#include <{header}>\nint yoke_header_is_alone;\n"
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
    if len(languages) > 1:
        cpp_headers = sorted(p.relative_to(include).as_posix() for p in include.rglob("*.hpp"))
        commands = list(cpp_commands(compilers[1]))
        # yoke.hpp includes the others, each of which compiles alone in the oldest language
        failed += [h for h in cpp_headers for command in commands
                   if (h.endswith("/yoke.hpp") or command == commands[0]) and not compiles(command, include, h)]
        missing = left_out(include) if cpp_headers else []
        failed += missing
        print("\n".join([*missing, ""]), end="")
        print(f"{len(cpp_headers)} headers for C++ in {len(commands)} languages, {len(failed)} failures in all")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
