#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No room hides a large circle of files that call each other.

A unit is x.c with x.h, and x.cu with x.cuh. It reaches the units of its own room, the first folder below src, whose
functions (yoke_ and cli_ ones, not static) it names: a call, a declaration or a table of functions. Names in comments
and strings do not count, nor does a name that two units define. A circle is a set of units that all reach each other.

usage: circles.py ROOT [--all]. Prints the circles of more than LARGEST units, or with --all every circle; exits 1 when
one is too large.
"""
import pathlib
import re
import sys

LARGEST = 4
DEFINITION = re.compile(r"^(?!static\b|typedef\b|extern\b|struct\b|enum\b|union\b|#)[A-Za-z_][\w\s*,()]*?"
                        r"\b((?:yoke|cli)_\w+)\s*\([^;{}]*\)\s*\{", re.M)
NAME = re.compile(r"\b(?:yoke|cli)_\w+")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.S)


def room_of(path):
    """src/parallel/step/x.c lies in the room parallel."""
    return path.relative_to("src").parts[0]


def read_units(root):
    """{unit: its text without comments and strings}; a unit is a path without suffix."""
    units = {}
    for path in sorted(p for p in (root / "src").rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh")):
        name = path.relative_to(root).with_suffix("")
        units[name] = units.get(name, "") + COMMENT.sub(" ", path.read_text())
    return units


def edges_of(units):
    """{unit: the units of its room whose functions it names}."""
    defines = {}
    for unit, text in units.items():
        for name in set(DEFINITION.findall(text)):
            defines.setdefault(name, set()).add(unit)
    home = {name: next(iter(where)) for name, where in defines.items() if len(where) == 1}
    edges = {}
    for unit, text in units.items():
        reached = {home[name] for name in set(NAME.findall(text)) if name in home}
        edges[unit] = {other for other in reached if other != unit and room_of(other) == room_of(unit)}
    return edges


def circles(edges):
    """The strongly connected parts with more than one unit (Tarjan), without recursion."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for start in edges:
        if start in index:
            continue
        work = [(start, iter(sorted(edges[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            unit, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in on_stack:
                    low[unit] = min(low[unit], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[unit])
                if low[unit] == index[unit]:
                    circle = []
                    while not circle or circle[-1] != unit:
                        circle.append(stack.pop())
                        on_stack.discard(circle[-1])
                    if len(circle) > 1:
                        found.append(sorted(circle))
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    edges = edges_of(read_units(root))
    found = sorted(circles(edges), key=len, reverse=True)
    wrong = [circle for circle in found if len(circle) > LARGEST]
    for circle in found if "--all" in sys.argv else wrong:
        print(f"{room_of(circle[0])}: a circle of {len(circle)} units")
        for unit in circle:
            print(f"    {unit} -> {' '.join(other.name for other in sorted(edges[unit] & set(circle)))}")
    if not wrong:
        print(f"{len(edges)} units: no circle of more than {LARGEST}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
