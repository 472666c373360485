#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long runs of DataParallel and DDP, with checkpoints, evaluations and metrics, keep no more memory, descriptors and
threads than at their beginning: in every process the last third of the samples is like the first third. Memory is
compared by its median; descriptors and threads by their minimum. On a slow disk every sample may see a checkpoint that
is being written, so its two descriptors, of the folder and of the file, are no leak: a leak of one for each checkpoint
is far more, since many checkpoints lie between the thirds. A short run still fills its rings: it counts descriptors and
threads alone.

usage: test_soak.py YOKE [--full] [--minutes M]

M minutes for each of the two runs, after a warm-up of a sixth; --full: 15. The steps are small, so that the ring of the
last 65536 spans of each thread, a few MB, is full after the warm-up.
"""
import argparse
import collections
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
SHORT_MINUTES, FULL_MINUTES = 0.12, 15
TOLERANCE, PAGES_KIB = 0.02, 256
START_S = END_S = 900
# A run goes on, whatever the clock says, until so many checkpoints lie between the first third and the last.
CHECKPOINTS_BETWEEN, OF_A_CHECKPOINT = 20, 2
TRAIN = ["train", "--model", "resnet20", "--dataset", "synthetic:1x8x8,classes=10,rows=512", "--batch", "8",
         "--threads", "1", "--epochs", "1000000", "--augment", "crop-flip", "--ema", "0.9", "--keep-best",
         "--no-cache"]
RUNS = {"dp": ([], ["--devices", "2xcpu"]),
        "ddp": (["launch", "--nproc-per-node", "2", "--"], ["--mode", "ddp", "--devices", "cpu"])}
# What must not grow, its unit, and by how much it may differ in a run that leaks nothing.
FIGURES = {"VmRSS": "KiB", "VmData": "KiB", "descriptors": "", "threads": ""}
ROOM = {"VmRSS": PAGES_KIB, "VmData": PAGES_KIB, "descriptors": OF_A_CHECKPOINT, "threads": 0}


def family(pid):
    """A process and those that it started."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in family(int(child)))]


def sample(pid):
    """The figures of a process now; None: it has ended."""
    try:
        status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        return {"VmRSS": int(status["VmRSS"].split()[0]), "VmData": int(status["VmData"].split()[0]),
                "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(status["Threads"])}
    except (OSError, KeyError):
        return None


def await_first_step(process, metrics):
    """Measuring algorithms is no training: the threads of a run come after it."""
    latest = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < latest:
        if metrics.exists() and metrics.stat().st_size:
            return
        time.sleep(0.02)


def newest_checkpoint(folder):
    """The step of the newest checkpoint that is complete; 0: there is none yet."""
    return max((int(file.stem.split("-")[1]) for file in folder.glob("step-*.safetensors")), default=0)


def checkpoints_between(newest):
    """At least so many checkpoints were completed after the first third of the samples and before the last."""
    third = len(newest) // 3
    return len(set(newest[third:-third])) if third else 0


def watch(process, checkpoints, seconds):
    """{pid: its figures, a list}, from after the warm-up on; and how many checkpoints lie between the thirds."""
    samples, newest = collections.defaultdict(list), []
    begin = time.monotonic()
    latest = begin + START_S + seconds * 2
    while process.poll() is None and time.monotonic() < latest:
        late = time.monotonic() - begin >= seconds * 7 / 6
        if late and checkpoints_between(newest) >= CHECKPOINTS_BETWEEN:
            break
        time.sleep(min(2, seconds / 60))
        if time.monotonic() - begin < seconds / 6:
            continue
        newest.append(newest_checkpoint(checkpoints))
        for pid in family(process.pid):
            figures = sample(pid)
            if figures:
                samples[pid].append(figures)
    return samples, checkpoints_between(newest)


def end(process):
    """The exit code after one SIGTERM; None: it did not end."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(timeout=END_S)
    except subprocess.TimeoutExpired:
        for pid in family(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        return None


def growth(figures, name):
    """What stands for the first third, what for the last, and whether the difference is small."""
    values = [one[name] for one in figures]
    third = len(values) // 3
    typical = statistics.median if FIGURES[name] else min
    first, last = typical(values[:third]), typical(values[-third:])
    room = max(TOLERANCE * first, ROOM[name]) if FIGURES[name] else ROOM[name]
    return first, last, last - first <= room


def soak(yoke, mode, minutes, folder):
    """Prints a line for each process; returns how many figures were looked at, and how many grew."""
    before, after = RUNS[mode]
    metrics = folder / f"{mode}.jsonl"
    often = "20steps" if minutes < 1 else "2s"
    command = [yoke, *before, *TRAIN, *after, "--metrics", metrics, "--checkpoint-dir", folder / mode,
               "--checkpoint-every", often]
    with open(folder / f"{mode}.log", "w+", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                                   start_new_session=True)
        await_first_step(process, metrics)
        samples, between = watch(process, folder / mode, minutes * 60)
        alive = process.poll() is None
        code = end(process)
        log.seek(0)
        steps = sum('"train_loss"' in line for line in metrics.read_text().splitlines()) if metrics.exists() else 0
        print(f"{mode}: {minutes:g} minutes, {steps} steps, {between} checkpoints between the thirds, exit {code}",
              flush=True)
        if not alive or code is None or not steps or between < CHECKPOINTS_BETWEEN:
            print(log.read())
            return 1, 1
    looked, grew = 0, 0
    most = max(map(len, samples.values()))
    for number, figures in enumerate(one for one in samples.values() if len(one) >= most - 1):
        words = []
        for name, unit in FIGURES.items():
            if unit and minutes < 1:
                continue
            first, last, flat = growth(figures, name)
            looked += 1
            grew += not flat
            words.append(f"{name} {first:g} -> {last:g} {unit}".strip() + ("" if flat else " GREW"))
        print(f"  process {number}, {len(figures)} samples: {'; '.join(words)}", flush=True)
    return looked, grew


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("yoke")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--minutes", type=float)
    arguments = parser.parse_args()
    yoke = pathlib.Path(arguments.yoke).resolve()
    if any(f"__{name}_init".encode() in yoke.read_bytes() for name in ("asan", "tsan")):
        print("skipped: a sanitizer's own memory grows")
        return SKIPPED
    minutes = arguments.minutes or (FULL_MINUTES if arguments.full else SHORT_MINUTES)
    with tempfile.TemporaryDirectory(prefix="yoke-soak-") as folder:
        results = [soak(yoke, mode, minutes, pathlib.Path(folder)) for mode in RUNS]
    looked, grew = (sum(column) for column in zip(*results))
    print(f"{looked - grew} of {looked} figures flat: memory, descriptors and threads of every process")
    return 1 if grew else 0


if __name__ == "__main__":
    sys.exit(main())
