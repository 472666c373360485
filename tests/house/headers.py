#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public header compiles alone as C11 and as C++11, without a warning; so does each INIT macro, which must name every
field of its struct. Each struct with a struct_size that the program makes has such a macro, and it differs from zero only
in the fields that yoke.h lists. Compilers warn where a program calls a deprecated function, and nowhere else. The headers
for C++ (.hpp) compile as C++17, 20 and 23, with exceptions and without, and their options have every field of the C API's.

usage: headers.py INCLUDE_FOLDER CC [CXX]
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

INIT = re.compile(r"#define (YOKE_\w+_INIT)\s[\s\\]*\{[\s\\]*sizeof\((\w+)\)")
SIZED = re.compile(r"typedef struct (\w+) \{\s*size_t struct_size;(.*?)\n\} \1;", re.S)
FIELD = re.compile(r"\(\*(\w+)\)|(\w+)(?:\[\w+\])*$")
MADE = re.compile(r"sizeof\((\w+)\) of the library")  # a callback reads it, and the program makes none
EXCEPTIONS = re.compile(r"^ \* - (yoke_\w+): ((?:\w+,\s+(?:\*\s+)?)*\w+)$", re.M)
CPP_WARNINGS = ["-Wconversion", "-Wsign-conversion", "-Wshadow"]
CPP_STANDARDS = (("17", "17"), ("20", "20"), ("23", "2b"))  # clang 14 knows C++23 by its old name
# What a call of the C++ header gets as an argument, or sets itself.
GIVEN = {"struct_size", "name", "more_input_count", "out_channels", "out_features", "kernel", "hidden", "payload", "weight_count"}
CPP_FIELD = re.compile(r"[\s*](\w+)(?:\s=\s[^;]+)?;|\(\*(\w+)\)\(")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]


def uses_of_inits(text):
    return "".join(f"{struct} init_{macro} = {macro};\n" for macro, struct in INIT.findall(text))


def fields(text, struct):
    """The names of the fields of a struct, in C or in C++."""
    body = re.search(r"struct %s \{(.*?)^\}" % struct, text, re.S | re.M)
    lines = re.sub(r"/\*.*?\*/", "", body[1], flags=re.S) if body else ""
    return {name or callback for name, callback in CPP_FIELD.findall(lines)}


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


def check_inits(include, cc):
    """Each struct has a macro, and a field differs from zero in one of its macros if and only if yoke.h lists it."""
    text = "".join(header.read_text() for header in sorted((include / "yoke").glob("*.h")))
    made, inits, code = set(MADE.findall(text)), INIT.findall(text), ""
    structs = dict(SIZED.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S)))
    found = [f"{name} has no INIT macro" for name in structs if name not in made and name not in dict(map(reversed, inits))]
    for macro, struct in inits:
        fields = [next(filter(None, FIELD.search(" ".join(each.split())).groups()))
                  for each in structs[struct].split(";") if each.strip()]
        code += f"{{ static {struct} init = {macro}, zero;\nif (init.struct_size != sizeof init) puts(\"{struct}.struct_size\");\n"
        code += "".join(f'if (memcmp(&init.{field}, &zero.{field}, sizeof zero.{field})) puts("{struct}.{field}");\n'
                        for field in fields) + "}\n"
    headers = "".join(f"#include <yoke/{header.name}>\n" for header in sorted((include / "yoke").glob("*.h")))
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "inits.c", pathlib.Path(folder) / "inits"
        source.write_text(f"#include <stdio.h>\n#include <string.h>\n{headers}int main(void) {{\n{code}return 0;\n}}\n")
        subprocess.run([cc, "-std=c11", "-I", include, source, "-o", program], check=True)
        differ = set(subprocess.run([program], check=True, capture_output=True, text=True).stdout.split())
    listed = {f"{struct}.{field}" for struct, fields in EXCEPTIONS.findall(text) for field in re.findall(r"\w+", fields)}
    found += [f"{field} is not zero in its INIT macro: make 0 the default, or list it in yoke.h" for field in sorted(differ - listed)]
    return found + [f"yoke.h lists {field}, which is zero in its INIT macro" for field in sorted(listed - differ)]


DEPRECATED = """#include <yoke/status.h>
YOKE_DEPRECATED("use yoke_new") YOKE_API int yoke_old(void);
YOKE_API int yoke_new(void);
int call(void);
int call(void) { return %s(); }
"""


def check_deprecation(include, languages):
    """By the attribute of GNU; and by the standard's, as a compiler that has no other sees it."""
    standard = [[*command[:-1], f"-std={version}", "-U__GNUC__"]
                for command, version in zip([each[:4] for each in languages], ("c2x", "c++14"))]
    found = []
    for command in languages + standard:
        for name, wanted in (("yoke_old", "use yoke_new"), ("yoke_new", None)):
            result = subprocess.run([*command, "-fsyntax-only", "-Wall", "-I", include, "-"], input=DEPRECATED % name, text=True,
                                    capture_output=True, check=False)
            if result.returncode or (wanted or "") not in result.stderr or (not wanted and result.stderr):
                found.append(f"{' '.join(command)}: a call of {name} gives {result.stderr!r}")
    return found


def check_cpp(include, compiler):
    """What is wrong with the headers for C++. yoke.hpp includes the others, each of which compiles alone in the oldest
    language."""
    headers = sorted(p.relative_to(include).as_posix() for p in include.rglob("*.hpp"))
    commands = list(cpp_commands(compiler))
    wrong = [h for h in headers for command in commands
             if (h.endswith("/yoke.hpp") or command == commands[0]) and not compiles(command, include, h)]
    wrong += left_out(include) if headers else []
    print(*wrong, f"{len(headers)} headers for C++ in {len(commands)} languages, {len(wrong)} failures", sep="\n")
    return wrong


def main():
    include, compilers = pathlib.Path(sys.argv[1]), sys.argv[2:]
    headers = sorted(p.relative_to(include).as_posix() for p in include.rglob("*.h"))
    languages = [[compilers[0], "-x", "c", "-std=c11", "-Wstrict-prototypes"]]
    if len(compilers) > 1 and shutil.which(compilers[1]):
        languages.append([compilers[1], "-x", "c++", "-std=c++11"])
    else:
        print("no C++ compiler: C++11 not tried")
    failed = [h for h in headers for command in languages if not compiles(command, include, h)]
    wrong = [] if failed else check_inits(include, compilers[0])
    if (include / "yoke/status.h").exists():  # not in the headers of planted.py
        wrong += check_deprecation(include, languages)
    print(*wrong, f"{len(headers)} headers in {len(languages)} languages, {len(failed) + len(wrong)} failures", sep="\n")
    if len(languages) > 1:
        wrong += check_cpp(include, compilers[1])
    return 1 if failed or wrong or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
