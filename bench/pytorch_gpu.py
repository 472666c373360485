#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Races Yoke against PyTorch and JAX on one GPU: the same weights, inputs and updates, in interleaved rounds.

usage: pytorch_gpu.py --yoke PROGRAM [--rows ROW...] [--missing FILE] [--seconds S] [--json FILE]

ROW is a row ('mlp-b256-tf32 eager'), a setup (mlp-b256-tf32), what it races against (eager) or a
group (decide); --list shows all. Contenders open one by one beside Yoke's engine. Every ratio is
formed within a round of such a pair; printed are its median over the rounds, the bootstrap 95 %
interval of that median and the noise, which is how far Yoke's ratio to itself gets from 1. A ratio
is not judged when the losses of the first steps differ beyond rounding. What this machine lacks is
left out with a reason. The race ends by itself within --seconds, and --missing does the rows that
an earlier one has not done. bench/README.md explains the rows.
"""
import argparse
import importlib.metadata
import itertools
import json
import math
import pathlib
import sys

import gpu_rows
from gpu_race import Budget, Field, SetupRace, named

FINAL = ("pass", "in noise", "measured", "reported", "MISS", "losses differ")
FAILURES = ("MISS", "losses differ")
BETWEEN_S = 3  # to end within --seconds: the last programs end, too


def name_of(row):
    return named(row)["name"]


def select(rows, words):
    """Without words all but those that only their name selects."""
    if not words:
        return [row for row in rows if row.group not in gpu_rows.ONLY_NAMED]
    chosen = []
    for row in rows:
        of_row = {row.setup.name, row.against, row.group, name_of(row)}
        if of_row & set(words):
            chosen.append(row)
    known = {word for row in rows for word in (row.setup.name, row.against, row.group, name_of(row))}
    unknown = [word for word in words if word not in known]
    if unknown:
        sys.exit(f"pytorch_gpu.py: no row is called {' or '.join(unknown)}; --list shows all")
    return chosen


# The report.


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def plain(value):
    """JSON has no infinity and no NaN."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class Report:
    """Written whole before the first row and after each, in case the race is ended."""

    def __init__(self, path, rows, field):
        self.path, self.rows, self.field = path and pathlib.Path(path), rows, field
        self.found = {"torch": version_of("torch"), "jax": version_of("jax"), "gpu": field.gpu,
                      "free_gib": field.free_gib, "whole": False, "asked": [name_of(row) for row in rows],
                      "left": [], "rows": [], "setups": []}

    def take_over(self, earlier, path):
        """The rows that an earlier race has judged."""
        asked = set(self.found["asked"])
        source = {"file": str(path), **{key: earlier.get(key) for key in ("gpu", "torch", "jax")}}
        for row in earlier["rows"]:
            if row["name"] in asked and row["verdict"] in FINAL:
                self.found["rows"].append({**row, "from": row.get("from", source)})
        taken = {(record["setup"]["name"], record["rival"]): record for record in earlier.get("setups", [])}
        self.found["setups"] = list(taken.values())

    def add(self, row, records):
        self.found["rows"].append(row)
        self.found["setups"] += records
        self.save()
        print(f"{row['name']:44} {row['verdict']:13} {row['text']}", flush=True)

    def save(self):
        done = {row["name"] for row in self.found["rows"]}
        self.found.update(self.field.versions)
        self.found["left"] = [name_of(row) for row in self.rows if name_of(row) not in done]
        if not self.path:
            return
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(json.dumps(plain(self.found), indent=1, allow_nan=False))
        new.replace(self.path)

    def end(self):
        self.found["whole"] = True
        self.save()
        return 1 if any(row["verdict"] in FAILURES for row in self.found["rows"]) else 0


def read_report(path):
    try:
        report = json.loads(pathlib.Path(path).read_text())
        if not isinstance(report["rows"], list) or not isinstance(report["asked"], list):
            raise ValueError("it has no rows")
        return report
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"pytorch_gpu.py: --missing {path}: {error}; give a file that --json wrote, or leave --missing out")


def in_order(rows, earlier):
    """Rows that no earlier race began come first, then those it left out: what was missing may be there now."""
    before = {row["name"]: row["verdict"] for row in earlier["rows"]} if earlier else {}
    todo = [row for row in rows if before.get(name_of(row)) not in FINAL]
    return sorted(todo, key=lambda row: before.get(name_of(row)) == "skipped")


# The race.


def measure(rows, field, report):
    report.save()
    for setup, block in itertools.groupby(rows, key=lambda row: row.setup):
        race = SetupRace(setup, field)
        try:
            for row in block:
                result = race.result(row)
                report.add(result, race.take_records())
        finally:
            race.close()


def show(rows, pace):
    """The rows, what they need, and what the groups mean."""
    opened = None
    for row in rows:
        seconds = gpu_rows.row_seconds(row, pace) + (gpu_rows.open_seconds(row.setup, pace) if row.setup != opened else 0)
        opened = row.setup
        line = "" if row.line is None else f"{'<=' if row.most else '>='} {row.line}"
        print(f"{row.group:12} {name_of(row):44} {line:8} {seconds:5.0f} s {gpu_rows.row_gib(row):5.1f} GiB")
    for group, text in gpu_rows.GROUPS.items():
        if any(row.group == group for row in rows):
            print(f"{group}: {text}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default="build/cuda/yoke", metavar="PROGRAM", help="(build/cuda/yoke)")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="a row, a setup, what it races against, or a group")
    parser.add_argument("--missing", metavar="FILE",
                        help="take over what the race that wrote this file has judged, and do the others that it was "
                             "asked for, or --rows")
    parser.add_argument("--seconds", type=float, default=540, help="end within these (540)")
    parser.add_argument("--json", metavar="FILE", help="write the report to this file")
    parser.add_argument("--list", action="store_true", help="list the rows and what they need; measure nothing")
    parser.add_argument("--fake", nargs="?", const="cpu", metavar="DEVICE",
                        help="tiny rows, to test this program: Yoke on DEVICE (cpu), the others on the CPU")
    return parser.parse_args()


def main():
    arguments = parse()
    budget = Budget(arguments.seconds - BETWEEN_S)
    earlier = read_report(arguments.missing) if arguments.missing else None
    every = gpu_rows.FAKE_ROWS if arguments.fake else gpu_rows.ROWS
    rows = select(every, arguments.rows or (earlier and earlier["asked"]))
    if arguments.list:
        show(every if not arguments.rows else rows, gpu_rows.FAKE_PACE if arguments.fake else gpu_rows.PACE)
        return 0
    field = Field(arguments.yoke, budget, arguments.fake)
    report = Report(arguments.json, rows, field)
    if earlier:
        report.take_over(earlier, arguments.missing)
    try:
        measure(in_order(rows, earlier), field, report)
    finally:
        field.close()
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
