#!/usr/bin/env python3
"""Races Yoke against PyTorch on one GPU: the same weights, inputs and updates, in interleaved rounds.

usage: pytorch_gpu.py --yoke PROGRAM [--only ROW]... [--compile] [--seconds X] [--json FILE]

Every ratio is formed within a round; printed are its median over the rounds, the bootstrap 95 %
interval of that median and the noise, which is how far Yoke's ratio to itself gets from 1. A ratio
is void when the losses of the first steps differ beyond rounding. bench/README.md explains the rows.
"""
import argparse
import json
import random
import statistics
import sys
import tempfile
import time

import torch

import gpu_rows
from pytorch_contenders import Compiled, DataParallel, Eager, Graph, read_batch, read_weights
from pytorch_race import DrivenError, Yoke, interval, judge, largest_difference

LOSS_STEPS = 20
WARM_STEPS = 50          # the first of them are those of the losses
ROUNDS = 9
RUN_S, FEWEST_STEPS = 0.4, 12  # of a contender in a round: at least 108 steps in all
KERNELS, KERNEL_RUNS = ("alone", "in-order"), 20  # of Yoke's own kernels
LOSS_TOLERANCE = {"float32": 1e-4, "tf32": 2e-3, "bfloat16": 3e-2}
WINOGRAD_TOLERANCE = 1e-3  # what the CPU may choose


def weights_of(yoke, name):
    """{state_dict name: flat tensor}"""
    with tempfile.NamedTemporaryFile() as file:
        return read_weights(file.name, yoke.ask("weights", name, file.name)["tensors"])


def batch_of(yoke, name, setup):
    with tempfile.NamedTemporaryFile() as file:
        return read_batch(file.name, yoke.ask("batch", name, file.name)["values"], setup)


def contenders_of(wanted, setup, arguments):
    """{name: constructor} of the PyTorch contenders that the setup's rows need."""
    images = setup.model != "mlp"
    made = {}
    if "eager" in wanted:
        made["eager"] = Eager
        if images:
            made["eager channels_last"] = lambda *work: Eager(*work, channels_last=True)
    if "best" in wanted and not arguments.fake:
        made["graph"] = Graph
        if arguments.compile:
            made["compile"] = Compiled
    if "data_parallel" in wanted and not arguments.fake:
        made["data_parallel"] = DataParallel
    return made


# The race.


class Race:
    """All contenders of one setup."""

    def __init__(self, setup, rows, yoke, arguments):
        self.setup, self.rows, self.yoke, self.fake = setup, rows, yoke, arguments.fake
        self.wanted = {row.against for row in rows}
        self.runners, self.failed, self.apart = {}, {}, {}
        self.times, self.processor_us = {}, []
        self.round_count = 3 if arguments.fake else ROUNDS
        self.made = contenders_of(self.wanted, setup, arguments)

    def open_devices(self, name, count):
        self.yoke.open(name, self.setup, f"devices={count}x{'cpu' if self.fake else 'cuda:0'}")

    def open_yoke(self):
        name = self.setup.name
        self.open_devices(name, self.setup.devices)
        self.weights, (self.inputs, self.labels) = weights_of(self.yoke, name), batch_of(self.yoke, name, self.setup)
        self.losses = [self.yoke.ask("steps", name, 1)["loss"] for _ in range(LOSS_STEPS)]
        self.runners["yoke"] = self.run_yoke
        self.runners["yoke again"] = self.run_yoke
        if "kernel time" in self.wanted:
            for how in KERNELS:
                self.runners[how] = lambda count, how=how: self.run_kernels(how, count)
        if "one device" in self.wanted:
            self.open_devices(name + "-one", 1)
            self.runners["one device"] = lambda count: self.yoke.ask("steps", name + "-one", count)["ms"]

    def run_yoke(self, count):
        answer = self.yoke.ask("steps", self.setup.name, count)
        self.processor_us.append(answer["processor_ms"] * 1e3 / self.setup.devices)
        return answer["ms"]

    def run_kernels(self, how, count):
        return self.yoke.ask("kernel_time", self.setup.name, how, min(count, KERNEL_RUNS))["ms"]

    def open_torch(self):
        for name, make in self.made.items():
            try:
                contender = make(self.setup, self)
                self.apart[name] = largest_difference(contender.losses(LOSS_STEPS), self.losses)
                self.runners[name] = contender.steps
            except Exception as error:  # one contender's failure leaves the others their race
                self.failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]

    def choose_steps(self):
        warm = 1 if self.fake else WARM_STEPS - LOSS_STEPS
        slowest = 0
        for name, run in self.runners.items():
            run(warm)
            slowest = max(slowest, run(2))
        if self.fake:
            return 2
        return int(min(max(RUN_S * 1e3 / slowest, FEWEST_STEPS), 2000))

    def run(self):
        self.open_yoke()
        self.open_torch()
        self.steps = self.choose_steps()
        self.processor_us.clear()
        self.times = {name: [] for name in self.runners}
        order = random.Random(7)
        for _ in range(self.round_count):
            for name in order.sample(list(self.runners), len(self.runners)):
                self.times[name].append(self.runners[name](self.steps))

    def close(self):
        for name in (self.setup.name, self.setup.name + "-one"):
            try:
                self.yoke.ask("close", name)
            except DrivenError:
                pass  # it was never opened
        self.runners.clear()
        self.weights = self.inputs = self.labels = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    # Results.

    def ratios(self, name, base="yoke", scale=1.0):
        return [scale * a / b for a, b in zip(self.times[name], self.times[base])]

    def noise(self):
        _, low, high = interval(self.ratios("yoke again"))
        return max(abs(low - 1), abs(high - 1))

    def rival(self, names):
        """The fastest of the contenders named that ran."""
        ran = [name for name in names if self.times.get(name)]
        return min(ran, key=lambda name: statistics.median(self.times[name])) if ran else None

    def values(self, row):
        """(values by round, rival or None)"""
        if row.against == "processor":
            return self.processor_us, None
        if row.against == "kernel time":
            return self.ratios("yoke", "alone"), "alone"
        if row.against == "one device":
            return self.ratios("yoke", "one device", 1 / self.setup.devices), "one device"
        names = {"eager": ("eager", "eager channels_last"), "best": ("graph", "compile"),
                 "data_parallel": ("data_parallel",)}[row.against]
        rival = self.rival(names)
        return (self.ratios(rival), rival) if rival else ([], None)

    def result(self, row):
        found = {"name": f"{self.setup.name} {row.against}", "line": row.line,
                 "must_be": "<=" if row.most else ">=", "rounds": self.round_count, "steps": self.steps}
        values, rival = self.values(row)
        if not values:
            reasons = [f"{name}: {text}" for name, text in self.failed.items()]
            return {**found, "verdict": "skipped", "text": "; ".join(reasons) or "no contender ran"}
        value, low, high = interval(values)
        noise = self.noise()
        found.update(value=value, low=low, high=high, noise=noise, rival=rival,
                     yoke_ms=statistics.median(self.times["yoke"]),
                     rival_ms=statistics.median(self.times[rival]) if rival else None,
                     loss_difference=self.apart.get(rival))
        found["verdict"] = self.judge(row, found)
        found["text"] = self.text(row, found)
        return found

    def judge(self, row, found):
        tolerance = WINOGRAD_TOLERANCE if self.fake else LOSS_TOLERANCE[self.setup.precision]
        if (found["loss_difference"] or 0) > tolerance:
            return "void"
        if row.against == "best" and "compile" not in self.times:
            return "skipped"
        return judge(found["low"], found["high"], row.line, row.most, found["noise"])

    def text(self, row, found):
        text = (f"{found['value']:.3g} ({found['low']:.3g} .. {found['high']:.3g}), line "
                f"{found['must_be']} {row.line:g}, noise {100 * found['noise']:.1f} %; "
                f"yoke {found['yoke_ms']:.4g} ms")
        if found["rival"]:
            text += f", {found['rival']} {found['rival_ms']:.4g} ms"
        if row.against == "kernel time":
            text += f", in order {statistics.median(self.times['in-order']):.4g} ms"
        if found["loss_difference"] is not None:
            text += f"; losses within {found['loss_difference']:.1e}"
        if row.against == "best" and "compile" not in self.times:
            text += "; not judged: torch.compile " + self.failed.get("compile", "takes --compile")
        return text

    def record(self):
        return {"setup": self.setup._asdict(), "ms": self.times, "processor_us": self.processor_us,
                "first_losses": self.losses, "loss_difference": self.apart, "failed": self.failed}


def setups_of(rows):
    return list(dict.fromkeys(row.setup for row in rows))


def select(rows, only):
    """ROW is a setup (mlp-b128-tf32), what it races against (eager), or both (mlp-b128-tf32 eager)."""
    chosen = [row for row in rows
              if not only or {row.against, row.setup.name, f"{row.setup.name} {row.against}"} & set(only)]
    if not chosen:
        sys.exit(f"pytorch_gpu.py: no row is called {' or '.join(only)}; --list shows all")
    return chosen


def skipped(row, text):
    return {"name": f"{row.setup.name} {row.against}", "line": row.line, "verdict": "skipped", "text": text}


def race_setup(setup, rows, yoke, arguments, report):
    race = Race(setup, rows, yoke, arguments)
    try:
        race.run()
        report["rows"] += [race.result(row) for row in rows]
        report["setups"].append(race.record())
    except DrivenError as error:
        report["rows"] += [{**skipped(row, str(error)), "verdict": "MISS"} for row in rows]
    finally:
        race.close()


def measure(rows, arguments):
    report = {"torch": torch.__version__, "rows": [], "setups": [],
              "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None}
    begin = time.monotonic()
    yoke = Yoke(arguments.yoke)
    for setup in setups_of(rows):
        of_setup = [row for row in rows if row.setup == setup]
        done = len(report["rows"])
        if time.monotonic() - begin > arguments.seconds:
            report["rows"] += [skipped(row, "no time left") for row in of_setup]
        else:
            if yoke.process.poll() is not None:
                yoke = Yoke(arguments.yoke)
            race_setup(setup, of_setup, yoke, arguments, report)
        for row in report["rows"][done:]:
            print(f"{row['name']:40} {row['verdict']:9} {row['text']}", flush=True)
        if arguments.json:  # after every setup, in case the run ends early
            with open(arguments.json, "w") as file:
                json.dump(report, file, indent=1)
    yoke.close()
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default="build/cuda/yoke", metavar="PROGRAM", help="(build/cuda/yoke)")
    parser.add_argument("--only", action="append", metavar="ROW", help="a setup, what it races against, or both: 'mlp-b128-tf32 eager'")
    parser.add_argument("--compile", action="store_true", help="race torch.compile too, which takes minutes a setup")
    parser.add_argument("--seconds", type=float, default=450, help="start no setup later than this (450)")
    parser.add_argument("--json", metavar="FILE", help="write the report to this file")
    parser.add_argument("--list", action="store_true", help="list the rows; measure nothing")
    parser.add_argument("--fake", action="store_true", help="tiny rows on the CPU, to test this program")
    arguments = parser.parse_args()
    rows = select(gpu_rows.FAKE_ROWS if arguments.fake else gpu_rows.ROWS, arguments.only)
    if arguments.list:
        for row in rows:
            print(f"{row.setup.name} {row.against}  {'<=' if row.most else '>='} {row.line:g}")
        return 0
    if not torch.cuda.is_available() and not arguments.fake:
        sys.exit("pytorch_gpu.py: PyTorch finds no GPU; --fake tests this program without one")
    report = measure(rows, arguments)
    return 1 if any(row["verdict"] in ("MISS", "void") for row in report["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
