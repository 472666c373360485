#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much --shares auto brings: steps with it beside steps with equal shares, taken in turn on one machine.

usage: shares.py YOKE [ROUNDS [MODEL]]   (6, resnet20)

Two CPU devices, or ranks of DDP, of which the second takes three times as long (--straggler 1:3), and two that are
alike; rows, and whole shards, whose weights must be the same bits. Prints the ratio of the steps' medians in every round.
"""
import json
import statistics
import subprocess
import sys

RANKS = ["--mode", "ddp"]  # of the tool's launcher
COMMON = ["--devices", "2xcpu", "--batch", "64", "--limit-rows", "4096", "--json", "--quiet"]
CASES = {
    "rows, one device three times as slow": ["--straggler", "1:3"],
    "8 shards, one device three times as slow": ["--straggler", "1:3", "--shards", "8"],
    "rows, devices alike": [],
    "8 shards, devices alike": ["--shards", "8"],
    "8 shards, one rank three times as slow": ["--straggler", "1:3", "--shards", "8", *RANKS],
    "8 shards, ranks alike": ["--shards", "8", *RANKS],
}


def run(yoke, model, steps, options):
    launcher = ["launch", "--nproc-per-node", "2", "--"] if RANKS[0] in options else []
    command = [yoke, *launcher, "train", "--model", model, "--steps", str(steps), *COMMON, *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    yoke, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6
    model = sys.argv[3] if len(sys.argv) > 3 else "resnet20"
    for name, options in CASES.items():
        ratios, rows = [], None
        for turn in range(rounds):
            pair = {}
            for shares in ([], ["--shares", "auto"])[::1 if turn % 2 == 0 else -1]:
                pair[bool(shares)] = run(yoke, model, 80, options + shares)
            if "--shards" in options and pair[False]["weights_hash"] != pair[True]["weights_hash"]:
                raise SystemExit(f"shares.py: {name}: the weights differ")
            ratios.append(pair[False]["step_ms"]["median"] / pair[True]["step_ms"]["median"])
            rows = pair[True]["rows_of_devices"]
        print(f"{name:42} {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), rows {rows}",
              flush=True)


if __name__ == "__main__":
    main()
