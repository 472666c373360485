#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Races builds of Yoke against each other: other versions of oneDNN, other compilers, other commits.

usage: builds.py [--models LIST] [--precisions LIST] [--rounds N] [--seconds X] [--devices WORDS]
                 [--direct] [--json FILE] NAME=COMMAND NAME=COMMAND...

Each COMMAND starts a build's `yoke`, the words of a shell allowed. In each round every build runs as
many steps as take it its part of --seconds, in random order. Ratios are formed within a round and
count images per second against the first build; printed are their median, its bootstrap 95 %
interval (the range of fewer than six rounds) and the noise: the first build against itself.
"""
import argparse
import json
import random
import shlex
import statistics
import sys
import time

from gpu_rows import make_setup
from pytorch_race import Driven, DrivenError, interval, others_seconds

ROWS = 32
QUIET = 0.04  # of a core, used by others during a round; more disturbs it


def open_contenders(builds, setup, arguments):
    """{name: (program, engine)}; prints the errors of builds that fail."""
    opened = {}
    for build, program in builds.items():
        for suffix, algorithm in (("", "measured"), ("-direct", "direct"))[:2 if arguments.direct else 1]:
            try:
                program.ask("open", algorithm, f"model={setup.model}", f"rows={setup.rows}",
                            f"precision={setup.precision}", f"algorithm={algorithm}", *arguments.devices.split())
                opened[build + suffix] = program, algorithm
            except DrivenError as error:
                print(f"{setup.name} {build}{suffix}: {error}")
    return opened


def race(contenders, arguments):
    """({name: ms of each round}, disturbed rounds); the first races itself as "again"."""
    field = {**contenders, "again": next(iter(contenders.values()))}
    run = {name: (lambda count, own=own: own[0].ask("steps", own[1], count)["ms"])
           for name, own in field.items()}
    turn_ms = 1e3 * arguments.seconds / arguments.rounds / len(run)
    steps = {name: max(1, round(turn_ms / one(max(1, int(turn_ms / 4 / one(2))))))
             for name, one in run.items()}
    times, order, disturbed = {name: [] for name in run}, random.Random(7), 0
    for _ in range(arguments.rounds):
        begin, others = time.monotonic(), others_seconds()
        for name in order.sample(list(run), len(run)):
            times[name].append(run[name](steps[name]))
        disturbed += others_seconds() - others > QUIET * (time.monotonic() - begin)
    return times, disturbed


def show(setup, names, times, disturbed, rounds):
    ratios = {name: interval([first / other for first, other in zip(times[names[0]], own)])
              for name, own in times.items()}
    noise = max(abs(end - 1) for end in ratios["again"][1:])
    for name in names:
        value, low, high = ratios[name]
        print(f"{setup.name:28} {name:16} {statistics.median(times[name]):9.2f} ms  "
              f"x {value:.3f} ({low:.3f} .. {high:.3f}), noise {100 * noise:.1f} %"
              + (f", {disturbed} of {rounds} rounds disturbed" if disturbed else ""), flush=True)
    return {"setup": setup._asdict(), "ms": times, "ratios": ratios, "noise": noise, "disturbed": disturbed}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18-cifar,resnet50,resnet20", metavar="LIST")
    parser.add_argument("--precisions", default="float32,bfloat16", metavar="LIST")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="(7)")
    parser.add_argument("--seconds", type=float, default=20, metavar="X", help="of one model and precision (20)")
    parser.add_argument("--devices", default="devices=1xcpu threads=1", metavar="WORDS",
                        help="(devices=1xcpu threads=1)")
    parser.add_argument("--direct", action="store_true", help="each build also with direct algorithms alone")
    parser.add_argument("--json", metavar="FILE", help="write the report to this file")
    parser.add_argument("builds", nargs="+", metavar="NAME=COMMAND")
    return parser.parse_args()


def main():
    arguments = parse()
    builds = {}
    for text in arguments.builds:
        name, _, command = text.partition("=")
        builds[name] = Driven(name, [*shlex.split(command), "bench", "--drive"])
    report = []
    for model in arguments.models.split(","):
        for precision in arguments.precisions.split(","):
            setup = make_setup((model, 0), ROWS, precision)
            contenders = open_contenders(builds, setup, arguments)
            if contenders:
                times, disturbed = race(contenders, arguments)
                report.append(show(setup, list(contenders), times, disturbed, arguments.rounds))
            for program, engine in contenders.values():
                program.ask("close", engine)
    for program in builds.values():
        program.close()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)
    return 0 if report else 1


if __name__ == "__main__":
    sys.exit(main())
