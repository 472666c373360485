#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with signal handlers trains undisturbed: signals to the process and to each of its threads, at 20 Hz, 100 Hz
and 2 kHz, end no run and change no bit of the weights.

usage: test_signals.py YOKE [--host PROGRAM] [--full] [--seconds S] [--only WORD]...

PROGRAM: of signal_host.c; by default tests/signal_host beside YOKE. --full: all models, algorithms, devices and threads at
each rate for S seconds (60) each. --only: the runs whose words include all of these.
"""
import argparse
import itertools
import pathlib
import subprocess
import sys
import tempfile

IMAGES = "synthetic:3x32x32,classes=10,rows=512"
MODELS = {"mlp": "synthetic:1x28x28,rows=512", "resnet20": IMAGES, "resnet18": IMAGES, "vgg11_bn": IMAGES}
GPT2 = ("gpt2:width=64,layers=2,heads=4", 32)
RATES = [20, 100, 2000]
# Without protection the first two end within a second.
SHORT = [("mlp", "direct", "cpu", 1), ("mlp", "direct", "2xcpu", 2), ("mlp", "measured", "cpu", 2)]
SHORT_STEPS = "150steps"


def train(host, run, dataset, folder, hertz, end):
    model, algorithm, devices, threads = run
    cache = str(folder / "algorithms") if algorithm == "measured" else ""  # the same in both runs
    limit = 300 + 4 * (float(end) if "steps" not in end else 0)
    process = subprocess.run([host, model, dataset, algorithm, devices, str(threads), cache, str(hertz), end],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, check=False)
    words = process.stdout.split()
    if process.returncode != 0 or len(words) != 5:
        return None, f"exit code {process.returncode}: {process.stderr.strip()[-300:] or process.stdout[-300:]}"
    return (int(words[0]), words[2], int(words[4])), ""


def check(host, run, dataset, hertz, end):
    """What went wrong, or the empty text, and a line about it."""
    with tempfile.TemporaryDirectory(prefix="yoke-signals-") as made:
        folder = pathlib.Path(made)
        name = f"{' '.join(map(str, run))}, {hertz} Hz"
        disturbed, wrong = train(host, run, dataset, folder, hertz, end)
        if disturbed is None:
            return f"{name}: {wrong}", ""
        steps, weights, handled = disturbed
        alone, wrong = train(host, run, dataset, folder, 0, f"{steps}steps")
        if alone is None:
            return f"{name}: without signals: {wrong}", ""
        if handled == 0:
            return f"{name}: no signal was handled", ""
        if alone[1] != weights:
            return f"{name}: weights {weights} after {steps} steps, undisturbed {alone[1]}", ""
        return "", f"{name}: {steps} steps, {handled} signals, equal weights"


def datasets(folder):
    text = folder / "text.txt"
    text.write_text("".join(f"{number} is a number and {number * number} its square. " for number in range(2000)))
    return {**MODELS, GPT2[0]: f"text:{text},context={GPT2[1]}"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("yoke", type=pathlib.Path)
    parser.add_argument("--host")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    host = options.host or str(options.yoke.resolve().parent / "tests" / "signal_host")
    failures, done = [], 0
    with tempfile.TemporaryDirectory(prefix="yoke-signals-") as made:
        data = datasets(pathlib.Path(made))
        if options.full:
            grid = itertools.product(data, ["direct", "measured"], ["cpu", "2xcpu"], [1, 2])
            runs = [(run, hertz, str(options.seconds)) for run in grid for hertz in RATES]
        else:
            runs = [(run, RATES[-1], SHORT_STEPS) for run in SHORT]
        for run, hertz, end in runs:
            words = [*map(str, run), str(hertz)]
            if any(word not in words for word in options.only):
                continue
            wrong, line = check(host, run, data[run[0]], hertz, end)
            print(wrong or line, flush=True)
            failures += [wrong] if wrong else []
            done += 1
    print(f"{done} runs under signals, {len(failures)} wrong")
    return 1 if failures else 0


sys.exit(main())
