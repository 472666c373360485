#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits what `yoke simulate` adds to profiles of published GPUs: the spread between the devices of a machine.

usage: fit_spread.py YOKE

One parameter: the slowest of N devices takes 1 + spread e(N) times the mean, and a synchronous step waits for it. It is
fitted on rows 1, 2, 4, 5, 7 and 8 of `yoke simulate --list`, by the least squares of the logarithms of published by
simulated throughput in ddp-ring; every third row (3, 6, 9) is held out. Then the same with each of the 84 choices of
three rows. A second parameter is tried and not taken: a host that loads real images for all devices at a limited rate,
in the steps of rows 6 to 9 as the root of a sum of squares. It must predict rows that it has not seen better than the
spread alone.
"""
import itertools
import json
import math
import statistics
import subprocess
import sys

HELD_OUT = (2, 5, 8)  # every third row
REAL_IMAGES = ("dgx-",)  # [2]: photographs; [1] draws its images
HOST_RATES = [None] + [10000 * 1.06**i for i in range(40)]  # images/s; None: no limit


class Row:
    """A published machine, and its simulated step, which is a straight line over the spread."""

    def __init__(self, yoke, name, devices, published):
        self.name, self.devices, self.published = name, devices, published
        self.images, self.step = None, None
        even, wide = (self.simulated(yoke, spread) for spread in (0, 0.1))
        self.even, self.slope = even, (wide - even) / 0.1

    def simulated(self, yoke, spread):
        command = [yoke, "simulate", self.name, "--devices", str(self.devices), "--mode", "ddp-ring", "--spread", str(spread), "--json"]
        run = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["runs"][0]
        self.images = run["rows_per_second"] * run["step_ms"] / 1e3
        return run["step_ms"]

    def rate(self, spread, host=None):
        """Images/s of all devices."""
        step = self.even + self.slope * spread
        if host and self.name.startswith(REAL_IMAGES):
            step = math.hypot(step, 1e3 * self.images / host)
        return 1e3 * self.images / step

    def error(self, spread, host=None):
        """In percent; above 0: simulated too fast."""
        return 100 * (self.rate(spread, host) / self.published - 1)


def listed(yoke):
    """[(name, devices, images/s of all)]"""
    lines = subprocess.run([yoke, "simulate", "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    words = [line.split() for line in lines if ":resnet50" in line.split(" ")[0]]
    return [(row[0], int(row[-4]), float(row[-3])) for row in words]


def fit_spread(rows, host):
    """By bisection of the derivative's sign, in steps that end at 1e-5."""
    def squares(spread):
        return sum(math.log(row.rate(spread, host) / row.published)**2 for row in rows)
    low, high = 0.0, 0.3
    while high - low > 1e-5:
        third = (high - low) / 3
        low, high = (low, high - third) if squares(low + third) < squares(high - third) else (low + third, high)
    return squares(low), low, host


def fit(rows, hosts=(None,)):
    return min((fit_spread(rows, host) for host in hosts), key=lambda found: found[0])[1:]


def held_out_errors(rows, hosts=(None,)):
    """Of every row in each of the 84 choices that hold it out."""
    errors = []
    for held in itertools.combinations(range(len(rows)), 3):
        found = fit([row for i, row in enumerate(rows) if i not in held], hosts)
        errors += [abs(rows[i].error(*found)) for i in held]
    return errors


def main():
    rows = [Row(sys.argv[1], *row) for row in listed(sys.argv[1])]
    spread = round(fit([row for i, row in enumerate(rows) if i not in HELD_OUT])[0], 3)
    print(f"fitted on six rows: spread {spread:.3f}\n")
    print(f"{'profile':<24}{'devices':>7}{'images/s':>10}{'alike':>8}{'error':>8}{'spread':>8}{'error':>8}")
    for i, row in enumerate(rows):
        print(f"{row.name:<24}{row.devices:7}{row.published:10.0f}{row.rate(0):8.0f}{row.error(0):+7.1f}%{row.rate(spread):8.0f}"
              f"{row.error(spread):+7.1f}%{'  held out' if i in HELD_OUT else ''}")
    errors = [row.error(spread) for row in rows]
    held = [abs(errors[i]) for i in HELD_OUT]
    print(f"\nmedian error of all nine {statistics.median(map(abs, errors)):.1f} %, of those held out {statistics.median(held):.1f} %; "
          f"{sum(error > 0 for error in errors)} too fast, {sum(error < 0 for error in errors)} too slow")
    for name, hosts in (("spread", (None,)), ("spread and host", HOST_RATES)):
        unseen = held_out_errors(rows, hosts)
        print(f"84 choices of three rows held out, {name}: median error {statistics.median(unseen):.1f} %, mean "
              f"{statistics.mean(unseen):.1f} %, largest {max(unseen):.1f} %")


if __name__ == "__main__":
    main()
