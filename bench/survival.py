#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs to be able to go on when a device fails, how long it takes, and what audits cost.

usage: survival.py YOKE [ROUNDS [MODEL]]   (10, resnet20)

Four CPU devices, 8 shards. Runs with --survive: how long they copied their state, beside how long their steps took.
Steps with --audit 1 beside steps without, taken in turn: the ratio of their medians. Failures of a random device in a
random step and stage: the seconds from each until the steps before it were done again. Every run must end with the
weights of the first.
"""
import json
import random
import statistics
import subprocess
import sys

COMMON = ["--devices", "4xcpu", "--shards", "8", "--batch", "64", "--limit-rows", "4096", "--evaluate-every", "-1",
          "--json", "--quiet", "--steps", "120"]
STAGES = ["forward", "loss", "backward", "exchange"]


def run(yoke, model, options):
    command = [yoke, "train", "--model", model, *COMMON, *options, "--metrics", "/dev/stdout"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    lines = [json.loads(line) for line in lines]
    steps = [line["step_ms"] for line in lines if "train_loss" in line and "weights_hash" not in line]
    return steps, lines[-1]


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    yoke, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    model = sys.argv[3] if len(sys.argv) > 3 else "resnet20"
    weights = run(yoke, model, [])[1]["weights_hash"]
    shares, ratios = [], []
    for turn in range(rounds):
        steps, result = run(yoke, model, ["--survive"])
        assert result["weights_hash"] == weights
        shares.append(1e3 * result["kept_seconds"] / sum(steps))
        pair = {}
        for audits in (False, True)[::1 if turn % 2 == 0 else -1]:
            steps, result = run(yoke, model, ["--audit", "1"] if audits else [])
            assert result["weights_hash"] == weights
            pair[audits] = statistics.median(steps)
        ratios.append(pair[True] / pair[False])
    print(f"--survive: copies of the state take {100 * statistics.median(shares):.2f} % of the time of the steps "
          f"({100 * min(shares):.2f} to {100 * max(shares):.2f})")
    print(f"--audit 1: steps take {statistics.median(ratios):.3f} times as long "
          f"({min(ratios):.3f} to {max(ratios):.3f}), 1 + 1/8 if the work of a ninth shard of 8 is all", flush=True)
    seconds, chance = [], random.Random(1)
    for _ in range(3 * rounds):
        fault = f"error:{chance.randrange(4)}@{chance.randrange(120)}:{chance.choice(STAGES)}"
        _, result = run(yoke, model, ["--survive", "--fault", fault])
        assert result["weights_hash"] == weights and result["lost"] == 1, fault
        seconds.append(result["lost_seconds"])
    seconds.sort()
    print(f"{len(seconds)} failures: back where the run was after {statistics.median(seconds):.2f} s in the median, "
          f"{seconds[-1]:.2f} s at most, all with the same weights")


if __name__ == "__main__":
    main()
