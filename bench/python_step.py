#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a step costs in Python beyond the same step in C: model.step(x, y) of yoke.DataParallel beside a loop in C over
yoke_data_parallel_step, on one engine with one tiny model, in rounds of random order. And what `import yoke` costs beside
`import numpy`, in fresh interpreters.

usage: python_step.py [--rounds N] [--steps N] [--devices LIST], with cc, YOKE_LIBRARY and PYTHONPATH; with torch installed
it also times its tensors
"""
import argparse
import ctypes
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import yoke
from yoke._library import LIBRARY

ROWS, FEATURES, CLASSES = 8, 4, 3


def c_loop(folder):
    """run_steps of python_step.c."""
    source, library = pathlib.Path(__file__).with_suffix(".c"), pathlib.Path(folder, "python_step.so")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).run_steps
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int]
    return function


def made(devices):
    builder = yoke.Builder(FEATURES)
    model = builder.finish(builder.linear(builder.input(), name="fc", out_features=CLASSES))
    return yoke.DataParallel(model, devices, threads=1, learning_rate=0.01, algorithm="direct")


def rows():
    """{name: (inputs, labels)} of the kinds that a caller may have."""
    generator = numpy.random.default_rng(0)
    inputs, labels = generator.normal(size=(ROWS, FEATURES)).astype(numpy.float32), generator.integers(0, CLASSES, ROWS)
    found = {"numpy, int32 labels": (inputs, labels.astype(numpy.int32)), "numpy, int64 labels": (inputs, labels)}
    try:
        import torch
        found["torch, int64 labels"] = (torch.from_numpy(inputs), torch.from_numpy(labels))
    except ImportError:
        print("no torch: its tensors are not timed")
    return found


def from_python(model, inputs, labels, steps):
    step, begin = model.step, time.perf_counter_ns()
    for _ in range(steps):
        step(inputs, labels)
    return time.perf_counter_ns() - begin


def from_c(model, run, inputs, labels, steps):
    kept = model._batch.fill(inputs, labels)
    taken = run(ctypes.cast(LIBRARY.yoke_data_parallel_step, ctypes.c_void_p), model._engine,
                ctypes.addressof(model._batch.struct), ctypes.addressof(model._result), steps)
    del kept
    if not taken:
        raise RuntimeError(LIBRARY.yoke_last_error().decode())
    return taken


def race(devices, run, rounds, steps):
    model, given = made(devices), rows()
    found = {name: [] for name in ["C", *given]}
    first = given["numpy, int32 labels"]
    from_python(model, *first, steps)  # warms up
    for _ in range(rounds):
        for name in random.sample(list(found), len(found)):
            taken = from_c(model, run, *first, steps) if name == "C" else from_python(model, *given[name], steps)
            found[name].append(taken / steps / 1e3)
    for name, times in found.items():
        more = statistics.median(time - other for time, other in zip(times, found["C"]))
        print(f"{devices:8} {name:22} {statistics.median(times):8.2f} us a step   {more:+8.2f} us beside C")


def import_milliseconds(name, rounds):
    def once():
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {name}" if name else "pass"], check=True)
        return 1e3 * (time.perf_counter() - begin)
    return statistics.median(once() for _ in range(rounds))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--devices", default="cpu,2xcpu")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = c_loop(folder)
        for devices in options.devices.split(","):
            race(devices, run, options.rounds, options.steps)
    empty = import_milliseconds("", 11)
    for name in ("numpy", "yoke"):
        print(f"import {name:6} {import_milliseconds(name, 11) - empty:6.1f} ms")


if __name__ == "__main__":
    main()
