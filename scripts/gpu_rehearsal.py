#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rehearses docs/gpu-hour.md over simulated GPUs: each piece of gpu-check.sh under `timeout 580` with its real seconds,
then the piece killed at random seconds and completed with --missing. In the end each report must hold every check once,
with a verdict. Simulated GPUs are slow, so the longest tests are left out; what ran is built before, so that it shows
that a piece ends in time and loses nothing, and not how long a compiler takes.

usage: gpu_rehearsal.py [--kills N] [--seed N] [--built] [--keep DIR] [PIECE...]
  --kills N   of each piece (2)
  --built     builds nothing: runs the parts alone, on what is in build/simcuda, and few of their checks
  --keep DIR  leaves the reports there
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import gpu_check
from gpu_run import FINAL, ROOT

LIMIT_S = 580       # of a command on a lent machine, less than ten minutes
TRIES = 5           # to complete a report
BUILD_SCALE = 30    # of the time to compile, on a small machine
# What a piece runs here; None: all of its checks.
ROWS = {"kernels": None, "race": None, "variants": None,
        "prove": ["mlp*", "resnet20, 2*", "memcheck*", "racecheck*", "test_data_parallel", "test_replica",
                  "test_pytorch_state"]}
FEW = {"kernels": ["gpu_probe", "resnet20*", "softmax*", "test_cuda_order"],
       "race": [f"mlp-b8-float32 {against}" for against in ("graph", "processor", "kernel time")], "variants": ["mlp*mapped*"], "prove": ["mlp", "mlp, 2 replicas*", "test_pytorch_state"]}


def words_of(piece, built):
    words = [str(ROOT / "scripts" / "gpu-check.sh"), "--preset", "simcuda", "--piece", piece]
    if built:
        words += [word for part in gpu_check.PIECES[piece] if part is not gpu_check.build
                  for word in ("--only", part.__name__)]
    return words


def rows_of(piece, built):
    rows = (FEW if built else ROWS)[piece]
    return ["--rows", *rows] if rows else []


def report_in(folder):
    """(file, report), or (None, None) where none is written yet; half a report ends the program."""
    found = list(folder.glob("*.json"))
    return (found[0], json.loads(found[0].read_text())) if found else (None, None)


def run(words, folder):
    """The exit code of a run that has to end by itself."""
    with open(folder / "printed", "ab") as printed:
        begin = time.monotonic()
        code = subprocess.run(["timeout", str(LIMIT_S), *words, "--out", folder], stdout=printed, stderr=printed,
                              stdin=subprocess.DEVNULL).returncode
    if code not in (0, 1, 3, 4):
        sys.exit(f"{' '.join(map(str, words))}: exit {code} after {time.monotonic() - begin:.0f} s; see {folder}")
    return code


def complete(words, folder, code):
    """(exit code, runs) once nothing is missing."""
    for i in range(TRIES):
        file, report = report_in(folder)
        if "again" not in report:
            return code, i
        code = run([*words, "--missing", file], folder)
    sys.exit(f"{folder}: after {TRIES} runs still missing: {report['count']}")


def check_whole(folder, names):
    """Every check once, with a verdict; names: those of an uncut run. Returns what the report names."""
    _, report = report_in(folder)
    found = [(check["part"], check["name"]) for check in report["checks"]
             if check["part"] not in ("machine", "packages", "build")]
    wrong = [check for check in report["checks"] if check["verdict"] not in FINAL]
    if len(set(found)) != len(found) or wrong or (names is not None and set(found) != names):
        sys.exit(f"{folder}: checks twice, without a verdict, or others than in an uncut run: {wrong}")
    return set(found)


def kill(words, folder, seconds):
    """Starts a run and kills it; returns its exit code, which is negative unless it ended before."""
    with open(folder / "printed", "ab") as printed:
        process = subprocess.Popen([*words, "--out", folder], stdout=printed, stderr=printed, stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        return process.wait()


def verdicts_in(folder):
    _, report = report_in(folder)
    return sum(check["verdict"] in FINAL for check in report["checks"]) if report else 0


def rehearse(piece, kills, built, work):
    words, rows = words_of(piece, built), rows_of(piece, built)
    uncut = work / piece
    uncut.mkdir()
    begin = time.monotonic()
    first = run([*words, *rows], uncut)
    seconds = time.monotonic() - begin
    code, again = complete(words, uncut, first)
    names = check_whole(uncut, None)
    print(f"{piece}: exit {first} after {seconds:.0f} s; {f'completed in {again} more, exit {code}; ' if again else ''}"
          f"{len(names)} checks {report_in(uncut)[1]['count']}", flush=True)
    for i in range(kills):
        folder, after = work / f"{piece}-killed-{i + 1}", random.uniform(0, seconds)
        folder.mkdir()
        code = kill([*words, *rows], folder, after)
        known = verdicts_in(folder)
        if report_in(folder)[0] is None:
            if after > 5:
                sys.exit(f"{folder}: no report after {after:.1f} s")
            code = run([*words, *rows], folder)
        code, again = complete(words, folder, code)
        check_whole(folder, names)
        print(f"{piece}: killed after {after:.1f} s with {known} verdicts; completed in {again} runs, exit {code}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help="(all but build)")
    parser.add_argument("--kills", type=int, default=2, metavar="N")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100000, metavar="N")
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()
    for piece in set(arguments.pieces) - set(ROWS):
        parser.error(f"{piece} is none of {', '.join(ROWS)}")
    random.seed(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    work = arguments.keep or pathlib.Path(tempfile.mkdtemp(prefix="gpu-rehearsal-"))
    work.mkdir(parents=True, exist_ok=True)
    if not arguments.built:
        with open(work / "build", "wb") as printed:
            code = subprocess.run([*words_of("build", False), "--scale", str(BUILD_SCALE), "--out", work / "built"],
                                  stdout=printed, stderr=printed).returncode
        if code != 0:
            sys.exit(f"the build ended with {code}; see {work}/build")
    for piece in arguments.pieces or ROWS:
        rehearse(piece, arguments.kills, arguments.built, work)
    if not arguments.keep:
        shutil.rmtree(work)
    print("every piece ended by itself, and every report was completed")


if __name__ == "__main__":
    main()
