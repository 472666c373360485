#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library is a good guest: it exports the functions of its headers and no other name, calls them itself without a detour
through the PLT, keeps no mutable globals, and never prints, exits, reads the environment or installs signal handlers.
libyoke.a has the same names, hidden: what links it does not export them.

usage: symbols.py LIBYOKE_INSIDE.A LIBYOKE.A LIBYOKE.SO SOVERSION HEADERS_FOLDER
"""
import pathlib
import re
import subprocess
import sys

FORBIDDEN = {
    "exit", "_exit", "quick_exit", "abort", "getenv", "secure_getenv", "setenv", "putenv", "signal",
    "sigaction", "printf", "puts", "putchar", "perror", "vprintf", "stdout", "stderr", "setlocale",
    "__printf_chk", "atexit", "srand", "rand", "malloc", "calloc", "realloc", "aligned_alloc",
    "posix_memalign", "free", "strdup", "strndup", "__strdup", "__strndup", "asprintf", "__asprintf_chk",
    "open_memstream",
}
# Once a process: libraries are opened, memory gets its allocator, oneDNN's prints are turned off. metrics.c frees what
# getline has allocated. What nvcc writes around kernels is its own, and Random123's
# header brings the standard streams of C++ with it.
ALLOWED = re.compile(r"library\.c\.o: libraries$|onednn\.c\.o: first\.\d+$|metrics\.c\.o: free$|"
                     r"memory\.c\.o: (memory_of_process|malloc|calloc|realloc|aligned_alloc|free)$|"
                     r"\.cu\.o: (\w*__device_stub__|\w*__cudaFatCubinHandle|DW\.ref\.|atexit$|"
                     r"_ZStL8__ioinit$)")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_archive(path):
    """Undefined names and data of every member, by readelf."""
    found, sections, member = [], {}, "?"
    for line in run("readelf", "-W", "-S", "-s", path).splitlines():
        if line.startswith("File:"):
            member, sections = line.split("(")[-1].rstrip(")"), {}
        header = re.match(r"\s*\[\s*(\d+)\]\s+(\S+)", line)
        if header:
            sections[header[1]] = header[2]
        symbol = re.match(r"\s*\d+:\s+[0-9a-f]+\s+(\d+)\s+(\w+)\s+\w+\s+\w+\s+(\w+)\s+(\S+)", line)
        if not symbol:
            continue
        _size, kind, section, name = symbol.groups()
        if ALLOWED.search(f"{member}: {name}"):
            continue
        if section == "UND" and name in FORBIDDEN:
            found.append(f"{member}: uses {name}")
        place = sections.get(section, "")
        writable = place.startswith((".data", ".bss")) and not place.startswith(".data.rel.ro")
        if kind == "OBJECT" and writable:
            found.append(f"{member}: {name} is a mutable global")
    return found


def declared(headers):
    """Tests that are made from the headers, as tests/train/test_null.c, then know every function."""
    text = "".join(header.read_text() for header in headers.glob("*.h"))
    return set(re.findall(r"^YOKE_API [^;]*?\b(yoke_\w+)\(", text, re.M))


def check_static(path, functions):
    """Its global names are the functions, and each is hidden."""
    symbols = re.findall(r"(?:GLOBAL|WEAK|UNIQUE)\s+(\w+)\s+(?!UND)\w+\s+(\S+)$", run("readelf", "-sW", path), re.M)
    names = [name for _, name in symbols]
    found = [f"{path}: {name} is global, and no public header has it" for name in sorted(set(names) - functions)]
    found += [f"{path} has no {name}" for name in sorted(functions - set(names))]
    return found + [f"{path}: {name} is not hidden: what links it exports {name}" for visibility, name in symbols
                    if visibility != "HIDDEN" and name in functions]


def check_shared(path, soversion, functions):
    found = []
    exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", path).splitlines()]
    version = f"@@YOKE_{soversion}"
    names = [name.removesuffix(version) for name in exported if name.endswith(version)]
    found += [f"{path}: {name} has no version, which is {version}" for name in exported
              if not name.endswith(version) and name != version[2:]]
    found += [f"{path} exports {name}, which no public header has" for name in set(names) - functions]
    found += [f"{path} does not export {name}" for name in functions - set(names)]
    detours = re.findall(r"R_\w+ .* (yoke_\w+)", run("readelf", "-rW", path))
    found += [f"{path} looks its own {name} up while it is loaded: link it with -Bsymbolic-functions" for name in detours]
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", path))
    wanted = f"libyoke.so.{soversion}"
    if not soname or soname[1] != wanted:
        found.append(f"{path}: SONAME is {soname and soname[1]}, not {wanted}")
    return found


def main():
    inside, archive, shared, soversion, headers = sys.argv[1:6]
    functions = declared(pathlib.Path(headers))
    found = check_archive(inside) + check_static(archive, functions) + check_shared(shared, soversion, functions)
    print("\n".join(found) or "exports the headers' functions only; no mutable globals; nothing forbidden")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
