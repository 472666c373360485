#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a step of `yoke train` on photographs waits for its batch.

usage: wait_for_images.py [--yoke PROGRAM] [--folder DIR] [--model NAME] [--devices LIST] [--batch N] [--steps N]
                          [--runs N] [--loader-threads N]

Without --folder it draws 200 photographs of 500 x 375 as JPEG files. Every run decodes and crops them at random to 224
while it trains. Prints for each run, from its trace, how long the first batch took to load, for which devices must
wait, and for the steps behind it what share of their time they waited, all together and at worst. Exits with 1 where
the share of all is 1 % or more. Needs NumPy and Pillow.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from photographs import draw_photographs

CLASSES, EACH, SIDE = 4, 50, 375
LINE = 0.01  # of the steps' time


def run(arguments, trace):
    """Milliseconds of each step's stages: [{"load": .., "step": ..}, ...]; a step begins behind its load."""
    command = [arguments.yoke, "train", "--dataset", f"images:{arguments.folder}", "--model", arguments.model,
               "--devices", arguments.devices, "--batch", str(arguments.batch), "--steps", str(arguments.steps),
               "--augment", "resized-crop-flip", "--evaluate-every", "-1", "--trace", str(trace)]
    if arguments.loader_threads:
        command += ["--loader-threads", arguments.loader_threads]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    steps = [{} for _ in range(arguments.steps)]
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event["ph"] == "X" and event["name"] in ("load", "step"):
            steps[event["args"]["step"]][event["name"]] = event["dur"] / 1e3
    return steps


def measure(arguments, trace):
    """The largest share of all runs."""
    shares = []
    for number in range(arguments.runs):
        first, *steps = run(arguments, trace)
        loads = [step["load"] for step in steps]
        whole = [step["load"] + step["step"] for step in steps]
        shares.append(sum(loads) / sum(whole))
        worst = max(load / own for load, own in zip(loads, whole))
        print(f"run {number + 1}: first batch after {first['load']:.0f} ms; {len(steps)} more steps of "
              f"{statistics.median(whole):.1f} ms wait {100 * shares[-1]:.4f} % of their time, the worst "
              f"{100 * worst:.4f} %", flush=True)
    return max(shares)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default="build/release/yoke", metavar="PROGRAM", help="(build/release/yoke)")
    parser.add_argument("--folder", type=pathlib.Path, metavar="DIR", help="of photographs, a folder for each class")
    parser.add_argument("--model", default="resnet18", metavar="NAME", help="(resnet18)")
    parser.add_argument("--devices", default="2xcpu", metavar="LIST", help="(2xcpu)")
    for name, default in (("batch", 32), ("steps", 12), ("runs", 2)):
        parser.add_argument("--" + name, type=int, default=default, metavar="N", help=f"({default})")
    parser.add_argument("--loader-threads", metavar="N", help="as in yoke train (auto)")
    return parser.parse_args()


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory() as drawn:
        if arguments.folder is None:
            arguments.folder = pathlib.Path(drawn) / "photographs"
            draw_photographs(arguments.folder, CLASSES, EACH, SIDE)
        largest = measure(arguments, pathlib.Path(drawn) / "trace.json")
    print(f"{'pass' if largest < LINE else 'MISS'}: waits {100 * largest:.4f} % at most, line {100 * LINE:g} %")
    return 0 if largest < LINE else 1


if __name__ == "__main__":
    sys.exit(main())
