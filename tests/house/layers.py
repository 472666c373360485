#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rooms keep to src/LAYERS: who may include whom, and whose public headers, by every #include in the tree.

usage: layers.py ROOT. Prints every violation; exits 1 when there is one.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
# What a room shows to one neighbour beyond its door: a backend fills in the table, the engine sees groups, and the
# benchmark's floor runs parts of a step without the engine.
EXTRA_DOORS = {("device/cpu", "device"): ("device/backend.h", "device/view.h"), ("model", "device"): ("device/view.h",),
               ("device/cuda", "device"): ("device/backend.h", "device/collectives.h", "device/view.h"),
               ("parallel/exchange", "device"): ("device/collectives.h",),
               ("distributed", "device"): ("device/collectives.h",),
               ("bench/floor", "parallel/engine"): ("parallel/engine/entry.h", "parallel/engine/shadow.h",
                                                  "parallel/engine/spare_update.h"),
               ("bench/floor", "model"): ("model/program.h",),
               ("bench/tool", "cli"): ("cli/compare/compare_contender.h", "cli/compare/rounds.h")}
# The simulated CUDA stands in for nvcc, and counts for `yoke bench`.
STAND_INS = {("device/cuda", "simcuda/kernel.h"), ("device/cuda", "simcuda/tensor_core_on_host.h"),
             ("bench/tool", "simcuda/control.h"), ("bench/tool", "simcuda/counted.h")}
# A header that only some files of its room see: those that go through a whole run.
KEPT = {"train/trainer_parts.h": ["train/async.c", "train/epochs.c", "train/finish.c", "train/local_sgd.c",
                                  "train/lr_find.c", "train/rank_shares.c", "train/rank_survival.c", "train/record.c", "train/resize.c",
                                  "train/run_summary.c", "train/run_thread.c", "train/survival.c", "train/trainer.c", "train/turns.c"]}
# Foreign libraries that must not leave a room.
CONFINED = {"device/cpu": ("dnnl", "oneapi/"), "device/cuda": ("cuda", "cublas", "cudnn", "nccl"),
            "distributed/mpi/module": ("mpi.h",)}


def read_layers(root):
    rooms = {}
    for line in (root / "src/LAYERS").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line and " shows" not in line:
            room, _, neighbours = line.partition(":")
            rooms[room.strip()] = neighbours.split()
    return rooms


def read_public(root):
    """(room, its public headers) of each level, lowest first."""
    lines = (root / "src/LAYERS").read_text().splitlines()
    return [(line.split()[0], line.split()[2:]) for line in lines if re.match(r"\S+ shows\b", line)]


def room_of(path, rooms):
    """The innermost room that holds a path like device/cpu/conv.c, or None."""
    inside = [room for room in rooms if path.startswith(room + "/")]
    return max(inside, key=len, default=None)


def doors_of(room, visitor):
    return (f"{room}/{room.split('/')[-1]}.h",) + EXTRA_DOORS.get((visitor, room), ())


def check_public(target, quoted, _path, _rooms):
    if target.startswith("yoke/"):
        return None
    return "a quoted include that is not yoke/..." if quoted else None


def check_room(target, quoted, path, rooms):
    """path and target are relative to src/, those of bench/ to the root."""
    own = room_of(path, rooms)
    if own is None:
        return "lies in no room of src/LAYERS"
    if not quoted:
        for room, prefixes in CONFINED.items():
            if own != room and target.startswith(prefixes):
                return f"only {room} may see {target}"
        return None
    if target.startswith("yoke/"):
        return None
    if "/" not in target:
        return "an internal include names its room"
    if (own, target) in STAND_INS:
        return None
    other = room_of(target, rooms)
    if other is None:
        return "names no room"
    if other == own:
        return None if path in KEPT.get(target, [path]) else f"only {', '.join(KEPT[target])} see it"
    if other not in rooms[own]:
        return f"{own} may not see {other}"
    if target not in doors_of(other, own):
        return f"the door of {other} is {' or '.join(doors_of(other, own))}"
    return None


def check_tree(folder, base, check, rooms):
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h", ".cu", ".hpp")):
        relative = path.relative_to(base).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            problem = check(match[2], match[1] == '"', relative, rooms)
            if problem:
                found.append(f"{path}:{number}: {match[2]}: {problem}")
    return found


def check_levels(root, rooms):
    """Nobody includes a public header of a room above its own."""
    levels = read_public(root)

    def level_of(name):
        """name: a room, or a public header without its yoke/; None: on no line."""
        return next((n for n, (room, headers) in enumerate(levels)
                     if name in headers or name == room or name.startswith(room + "/")), None)

    def check(target, _quoted, path, _rooms):
        if not target.startswith("yoke/"):
            return None
        own = room_of(path, rooms) or path.split("/")[-1]
        here, there = level_of(own), level_of(target[len("yoke/"):])
        if here is None or there is None:
            return f"src/LAYERS has no line that shows {own if here is None else target}"
        return f"{own} lies below {levels[there][0]}" if there > here else None

    return (check_tree(root / "src", root / "src", check, rooms) +
            check_tree(root / "include", root / "include", check, rooms))


def main():
    root = pathlib.Path(sys.argv[1])
    rooms = read_layers(root)
    unknown = [n for known in rooms.values() for n in known if n not in rooms]
    found = [f"src/LAYERS: no such room: {name}" for name in unknown]
    found += check_tree(root / "src", root / "src", check_room, rooms)
    for room in rooms:
        if room.startswith("bench/"):
            found += check_tree(root / room, root, check_room, rooms)
    for folder in ("include", "samples"):
        found += check_tree(root / folder, root, check_public, rooms)
    found += check_levels(root, rooms)
    print("\n".join(found) or f"{len(rooms)} rooms keep to src/LAYERS")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
