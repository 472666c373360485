#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each call of yoke train that asks for memory or for something of the system fails once: allocations and mappings;
open, socket, pipe, fork, pthread_create, eventfd, ... No run crashes or hangs; it ends well, with the weights saved, or
with a message and one of the exit codes of the statuses, and it leaves no temporary file.

usage: test_faults.py YOKE LIBRARY [--full] [--run NAME] [--at N]

LIBRARY: of fault_calls.c, preloaded. A sample of the calls of each process; --full: all. --run and --at: one again.
"""
import argparse
import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
LIMIT_S = 900
SAMPLE = 5
EXITS = {71, 74, 75, 76}  # SYSTEM and MEMORY, IO, TIMEOUT, PEER
LAUNCH_EXITS = EXITS | {126, 127}
TRAIN = ["train", "--model", "mlp:width=16", "--dataset", "synthetic:1x8x8,classes=3,rows=48", "--batch", "16",
         "--threads", "1", "--epochs", "2", "--log-every", "1", "--timeout", "10"]
OUTPUTS = {"--save": "weights", "--metrics": "metrics", "--checkpoint-dir": "checkpoints", "--trace": "trace",
           "--report": "page.html", "--algorithm-cache": "algorithms"}
DDP = (["launch", "--nproc-per-node", "2", "--grace", "2", "--"], ["--mode", "ddp", "--devices", "cpu"])
# Words before and behind those of TRAIN, and the process whose calls fail, by its rank.
RUNS = {"dp": ([], ["--devices", "2xcpu"], ""), "rank0": (*DDP, "0"), "rank1": (*DDP, "1"), "launcher": (*DDP, "")}
KINDS = ["system", "memory"]
Outcome = collections.namedtuple("Outcome", "code text saved left count")


def run_once(yoke, library, name, kind, at):
    before, after, rank = RUNS[name]
    with tempfile.TemporaryDirectory(prefix="yoke-faults-") as made:
        folder = pathlib.Path(made)
        count, temporary = folder / "count", folder / "tmp"
        temporary.mkdir()
        files = [word for option, path in OUTPUTS.items() for word in (option, str(folder / path))]
        environment = {"PATH": os.environ["PATH"], "TMPDIR": str(temporary), "LD_PRELOAD": str(library),
                       "XDG_RUNTIME_DIR": str(temporary), "HOME": str(folder), "FAULT_KIND": kind, "FAULT_AT": str(at),
                       "FAULT_RANK": rank, "FAULT_COUNT": str(count)}
        process = subprocess.Popen([yoke, *before, *TRAIN, *after, *files], env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   cwd=folder)
        try:
            text = process.communicate(timeout=LIMIT_S)[1]
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text = process.communicate()[1]
            code = None
        left = [str(path.relative_to(folder)) for path in folder.rglob("*")
                if temporary in path.parents or ".tmp" in path.name]
        number = int(count.read_text()) if count.exists() and count.stat().st_size else 0
        return Outcome(code, text, (folder / "weights").exists(), left, number)


def fault_of(outcome, name):
    """What is wrong with a run; None: nothing."""
    exits = EXITS if name == "dp" else LAUNCH_EXITS
    if outcome.code is None:
        return "it hangs"
    if outcome.code == 0:
        if not outcome.saved:
            return "exit 0 without the weights"
    elif outcome.code not in exits or re.search(r"SIG(SEGV|ABRT|BUS|FPE)", outcome.text):
        return f"exit {outcome.code}"
    elif not re.search(r"yoke", outcome.text):
        return f"exit {outcome.code} without a message"
    return f"it leaves {outcome.left}" if outcome.left else None


def spread(count, wanted):
    return sorted({1 + (count - 1) * i // max(wanted - 1, 1) for i in range(wanted)}) if count else []


def attack(yoke, library, name, kind, arguments):
    """The number of runs, and of bad ones."""
    count = run_once(yoke, library, name, kind, 0).count
    bad, codes = 0, collections.Counter()
    places = [arguments.at] if arguments.at else range(1, count + 1) if arguments.full else spread(count, SAMPLE)
    begin = time.monotonic()
    for at in places:
        outcome = run_once(yoke, library, name, kind, at)
        codes[outcome.code] += 1
        fault = fault_of(outcome, name)
        if fault:
            bad += 1
            print(f"  {name}, {kind} call {at}: {fault}: {' | '.join(outcome.text.strip().splitlines()[-3:])}", flush=True)
        if arguments.at:
            print(outcome.text)
    kinds = ", ".join(f"exit {code}: {number}" for code, number in sorted(codes.items(), key=str))
    print(f"{name}, {kind}: {len(places)} of {count} calls failed in turn, {time.monotonic() - begin:.0f} s: {kinds}", flush=True)
    return len(places), bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("yoke")
    parser.add_argument("library", nargs="?")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--run", choices=list(RUNS))
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--at", type=int)
    arguments = parser.parse_args()
    yoke = pathlib.Path(arguments.yoke).resolve()
    library = pathlib.Path(arguments.library or yoke.parent / "tests/libfault_calls.so").resolve()
    if any(f"__{name}_init".encode() in yoke.read_bytes() for name in ("asan", "tsan")) or not library.exists():
        print(f"skipped: a sanitizer has allocations of its own, or there is no {library}")
        return SKIPPED
    results = [attack(yoke, library, name, kind, arguments) for name in ([arguments.run] if arguments.run else RUNS)
               for kind in ([arguments.kind] if arguments.kind else KINDS)]
    total, bad = (sum(column) for column in zip(*results))
    print(f"{total - bad} of {total} failing calls end a run well or with a status")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
