#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs of yoke train under limits of the address space, from too small to start to enough: every run ends well or with
a message and the exit code of MEMORY or SYSTEM, and none that took a step loses its weights or crashes.

usage: test_memory_limits.py YOKE [--full] [--mode dp|ddp]
"""
import argparse
import collections
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77
LIMIT_S = 900
EXIT_MEMORY = 71
EXIT_LOADER = 127  # the dynamic loader found no room for the libraries, or the launcher for the program
MIB = 1 << 20
TRAIN = ["train", "--model", "resnet20", "--dataset", "synthetic:3x16x16,classes=4,rows=32", "--batch", "16",
         "--threads", "2", "--epochs", "2", "--ema", "0.9", "--checkpoint-every", "3", "--log-every", "1"]
OUTPUTS = {"--save": "weights.safetensors", "--metrics": "metrics.jsonl", "--checkpoint-dir": "checkpoints",
           "--trace": "trace.json", "--report": "page.html"}
MODES = {"dp": ([], ["--devices", "2xcpu"]),
         "ddp": (["launch", "--nproc-per-node", "2", "--"], ["--mode", "ddp", "--devices", "cpu", "--timeout", "20"])}
FULL = 200
SHORT = {"dp": 12, "ddp": 6}
Run = collections.namedtuple("Run", "limit code stderr steps saved loads")


def is_whole(path):
    """Whether the safetensors file has all the bytes that its header promises."""
    try:
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        tensors = json.loads(data[8:8 + length])
        ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
        return len(data) == 8 + length + max(ends)
    except (OSError, ValueError, KeyError):
        return False


def count_steps(path):
    try:
        return sum('"train_loss"' in line for line in path.read_text().splitlines())
    except OSError:
        return 0


class Trial:
    """Runs of one mode, each in a new folder. They share the algorithm cache."""

    def __init__(self, yoke, mode, folder):
        before, after = MODES[mode]
        self.command = [yoke, *before, *TRAIN, *after]
        self.folder = folder
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"),
                                OMP_WAIT_POLICY="passive")  # two ranks of two threads share the cores
        self.count = 0

    def start(self, limit):
        self.count += 1
        where = self.folder / f"run{self.count}"
        where.mkdir()
        command = self.command + [word for option, name in OUTPUTS.items() for word in (option, str(where / name))]
        hold = (lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))) if limit else None
        process = subprocess.Popen(command, cwd=where, env=self.environment, preexec_fn=hold, text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        return process, where

    def run(self, limit):
        process, where = self.start(limit)
        try:
            _, stderr = process.communicate(timeout=LIMIT_S)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            _, stderr = process.communicate()
            code = None
        return Run(limit, code, stderr, count_steps(where / OUTPUTS["--metrics"]), is_whole(where / OUTPUTS["--save"]),
                   code == 0 or self.loads(limit))

    def loads(self, limit):
        """Whether the program comes to its main: CUDA's static runtime crashes before it where there is no memory."""
        hold = (lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))) if limit else None
        return subprocess.run([self.command[0], "version"], preexec_fn=hold, capture_output=True, check=False,
                              timeout=LIMIT_S).returncode == 0

    def peak(self):
        """The largest address space of a process of an unlimited run, in bytes."""
        process, _ = self.start(None)
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        peak = 0
        while process.poll() is None:
            peak = max([peak, *map(address_space, [process.pid, *children(process.pid)])])
            time.sleep(0.002)
        reader.join()
        assert process.returncode == 0, f"a run without a limit exits with {process.returncode}"
        return peak


def children(pid):
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def address_space(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmPeak:"))
    except (OSError, StopIteration):
        return 0


def classify(run):
    """A class, and whether it is one of those that must not be."""
    when = "after step 1" if run.steps > 0 else "before step 1"
    text = run.stderr
    if run.code is None:
        return f"hang {when}", True
    if run.code == 0:
        return ("ended well", False) if run.saved else ("exit 0 without the weights", True)
    if not run.loads and run.steps == 0:
        return "loader", False
    if "libgomp:" in text and "yoke:" not in text:
        return f"libgomp's exit {when}", True
    if run.code < 0 or run.code > 128 or "died of SIG" in text or "terminate called" in text:
        return f"crash {when}", True
    if run.code == EXIT_LOADER and run.steps == 0:
        return "loader", False
    if run.code != EXIT_MEMORY or "yoke:" not in text:
        return f"exit {run.code} {when}", True
    if run.steps > 0 and not run.saved:
        return "status after step 1, weights lost", True
    return f"status {when}" + (", weights saved" if run.steps > 0 else ""), False


def first_limit(trial, low, high, step, holds):
    """Halves the range down to `step` bytes: `holds` is false of low's run and true of high's."""
    while high - low > step:
        middle = (low + high) // 2
        if holds(trial.run(middle)):
            high = middle
        else:
            low = middle
    return high


def spread(low, high, count):
    return [low + (high - low) * i // max(count - 1, 1) for i in range(count)]


def limits(trial, count):
    """A half over the whole range, the rest where a run begins to take steps and where it begins to end well."""
    peak = trial.peak()
    fine = max(MIB, peak // (4 * count))
    step = first_limit(trial, 4 * MIB, peak + 64 * MIB, fine, lambda run: run.steps > 0)
    well = first_limit(trial, step - fine, peak + 64 * MIB, fine, lambda run: run.code == 0)
    print(f"  peak {peak / MIB:.0f} MiB; step 1 from {step / MIB:.0f} MiB on, the end from {well / MIB:.0f}", flush=True)
    quarter = count // 4
    return sorted(spread(8 * MIB, peak + 16 * MIB, count - 2 * quarter) +
                  spread(step - 3 * fine, step + 3 * fine, quarter) + spread(step, well + 4 * fine, quarter))


def attack(yoke, mode, count):
    """Prints a line for each class; returns the bad runs and the number of runs."""
    with tempfile.TemporaryDirectory(prefix="yoke-limits-") as folder:
        trial = Trial(yoke, mode, pathlib.Path(folder))
        print(f"{mode}:")
        runs = [trial.run(limit) for limit in limits(trial, count)]
    classes = collections.Counter()
    bad = []
    for run in runs:
        name, is_bad = classify(run)
        classes[name] += 1
        if is_bad:
            bad.append(run)
            tail = " | ".join(run.stderr.strip().splitlines()[-3:])
            print(f"  {run.limit / MIB:.2f} MiB: {name}, exit {run.code}, {run.steps} steps: {tail}")
    for name, number in sorted(classes.items()):
        print(f"  {number:4d}  {name}")
    return bad, len(runs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("yoke")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--mode", choices=list(MODES))
    arguments = parser.parse_args()
    if any(f"__{name}_init".encode() in pathlib.Path(arguments.yoke).read_bytes() for name in ("asan", "tsan")):
        print("skipped: a sanitizer reserves terabytes of address space")
        return SKIPPED
    bad, total = [], 0
    for mode in [arguments.mode] if arguments.mode else MODES:
        found, runs = attack(str(pathlib.Path(arguments.yoke).resolve()), mode, FULL if arguments.full else SHORT[mode])
        bad += found
        total += runs
    print(f"{total - len(bad)} of {total} limits of the address space end a run well or with a status")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
