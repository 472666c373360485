#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Races Yoke against PyTorch on one GPU: the same weights, inputs and updates, in interleaved rounds.

usage: pytorch_gpu.py --yoke PROGRAM [--only ROW]... [--compile] [--seconds X] [--json FILE]

Every ratio is formed within a round; printed are its median over the rounds, the bootstrap 95 %
interval of that median and the noise, which is how far Yoke's ratio to itself gets from 1. A ratio
is not judged when the losses of the first steps differ beyond rounding. Contenders that this Python does
not have are left out with a reason; Yoke's own figures need none. bench/README.md explains the rows.
"""
import argparse
import gc
import importlib.metadata
import importlib.util
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

import gpu_rows
from pytorch_race import DrivenError, Yoke, interval, judge, largest_difference

HAS_TORCH, WHY_NO_TORCH = importlib.util.find_spec("torch") is not None, "this Python has no PyTorch"
if HAS_TORCH:
    try:
        import torch

        torch.backends.cudnn.version()  # fails where another cuDNN comes first
        from pytorch_contenders import Compiled, DataParallel, Eager, Graph, Jax, read_batch, read_weights
        from pytorch_models import MODELS
    except Exception as error:
        HAS_TORCH, WHY_NO_TORCH = False, f"PyTorch does not start: {error}".splitlines()[0][:200]

LOSS_STEPS, FAKE_LOSS_STEPS = 20, 4
WARM_STEPS = 50          # the first of them are those of the losses
ROUNDS = 9
RUN_S, FEWEST_STEPS = 0.4, 12  # of a contender in a round: at least 108 steps in all
KERNELS, KERNEL_RUNS = ("alone", "in-order"), 20  # of Yoke's own kernels
LOSS_TOLERANCE = {"float32": 1e-4, "tf32": 2e-3, "bfloat16": 3e-2}
WINOGRAD_TOLERANCE = 1e-3  # what the CPU may choose


def contenders_of(wanted, setup, arguments):
    """({name: constructor} of the contenders that the setup's rows need, {name: why it is left out})"""
    wanted = wanted & set(gpu_rows.RIVALS)
    if not HAS_TORCH:  # JAX's contender gets the shapes of the weights from PyTorch's model
        return {}, dict.fromkeys(wanted, WHY_NO_TORCH)
    made, absent = {}, {}
    if not arguments.fake and not torch.cuda.is_available():
        absent = dict.fromkeys(wanted - {"jax"}, "this PyTorch finds no GPU")
        wanted = wanted & {"jax"}
    if "eager" in wanted:
        made["eager"] = Eager
        if setup.model != "mlp":
            made["eager channels_last"] = lambda *work: Eager(*work, channels_last=True)
    for name, make in (("graph", Graph), ("compile", Compiled), ("data_parallel", DataParallel)):
        if name in wanted and arguments.fake and make is not Compiled:
            absent[name] = "only on GPUs"
        elif name in wanted and make is Compiled and not arguments.compile:
            absent[name] = "takes --compile"
        elif name in wanted:
            made[name] = make
    if "jax" in wanted and importlib.util.find_spec("jax") is None:
        absent["jax"] = "this Python has no JAX"
    elif "jax" in wanted:
        made["jax"] = Jax
    return made, absent


# The race.


class Race:
    """All contenders of one setup."""

    def __init__(self, setup, rows, yoke, arguments):
        self.setup, self.rows, self.yoke, self.fake = setup, rows, yoke, arguments.fake
        self.wanted = {row.against for row in rows}
        self.runners, self.opened, self.apart = {}, [], {}
        self.times, self.processor_us = {}, []
        self.round_count = 3 if arguments.fake else ROUNDS
        self.loss_steps = FAKE_LOSS_STEPS if arguments.fake else LOSS_STEPS
        self.made, self.failed = contenders_of(self.wanted, setup, arguments)
        self.kept = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.kept.name)

    def open_devices(self, name, count, ways):
        self.yoke.open(name, self.setup, f"devices={count}x{self.fake or 'cuda:0'}{ways}")

    def open_yoke(self):
        name = self.setup.name
        self.open_devices(name, self.setup.devices, self.setup.ways)
        if self.made:
            self.write_work(name)
        self.losses = self.first_losses(name)
        self.runners["yoke"] = self.run_yoke
        self.runners["yoke again"] = self.run_yoke
        if "kernel time" in self.wanted:
            for how in KERNELS:
                self.runners[how] = lambda count, how=how: self.run_kernels(how, count)
        if "one device" in self.wanted:
            self.open_devices(name + "-one", 1, self.setup.ways)
            self.runners["one device"] = lambda count: self.yoke.ask("steps", name + "-one", count)["ms"]
        if "without" in self.wanted:
            self.open_devices(name + "-without", self.setup.devices, "")
            self.apart["without"] = largest_difference(self.first_losses(name + "-without"), self.losses)
            self.runners["without"] = lambda count: self.yoke.ask("steps", name + "-without", count)["ms"]

    def first_losses(self, name):
        return [self.yoke.ask("steps", name, 1)["loss"] for _ in range(self.loss_steps)]

    def write_work(self, name):
        """What the others start from, in files that Yoke writes."""
        tensors = self.yoke.ask("weights", name, self.folder / "weights")["tensors"]
        values = self.yoke.ask("batch", name, self.folder / "batch")["values"]
        self.weights = read_weights(self.folder / "weights", tensors)
        self.inputs, self.labels = read_batch(self.folder / "batch", values, self.setup)
        shapes = {key: list(tensor.shape) for key, tensor in MODELS[self.setup.model]().state_dict().items()}
        work = {"setup": self.setup, "tensors": [(key, shapes[key]) for key, _ in tensors], "values": values}
        (self.folder / "work.json").write_text(json.dumps(work))

    def run_yoke(self, count):
        answer = self.yoke.ask("steps", self.setup.name, count)
        self.processor_us.append(answer["processor_ms"] * 1e3 / self.setup.devices)
        return answer["ms"]

    def run_kernels(self, how, count):
        return self.yoke.ask("kernel_time", self.setup.name, how, min(count, KERNEL_RUNS))["ms"]

    def open_others(self):
        for name, make in self.made.items():
            try:
                contender = make(self.setup, self)
                self.opened.append(contender)
                self.apart[name] = largest_difference(contender.losses(self.loss_steps), self.losses)
                self.runners[name] = contender.steps
            except Exception as error:
                self.drop(name, error)

    def drop(self, name, error):
        """One contender's failure leaves the others their race; without Yoke there is none."""
        if name.startswith("yoke") or name in (*KERNELS, "one device", "without"):
            raise error
        self.failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        self.runners.pop(name, None)
        self.times.pop(name, None)

    def turn(self, name, count):
        """Milliseconds of a step; None: it failed."""
        try:
            return self.runners[name](count)
        except Exception as error:
            self.drop(name, error)
            return None

    def choose_steps(self):
        warm = 1 if self.fake else WARM_STEPS - self.loss_steps
        slowest = 0
        for name in list(self.runners):
            if self.turn(name, warm) is not None:
                slowest = max(slowest, self.turn(name, 2) or 0)
        if self.fake:
            return 2
        return int(min(max(RUN_S * 1e3 / slowest, FEWEST_STEPS), 2000))

    def run(self):
        self.open_yoke()
        self.open_others()
        self.steps = self.choose_steps()
        self.processor_us.clear()
        self.times = {name: [] for name in self.runners}
        order = random.Random(7)
        for _ in range(self.round_count):
            for name in order.sample(list(self.runners), len(self.runners)):
                milliseconds = self.turn(name, self.steps)
                if milliseconds is not None:
                    self.times[name].append(milliseconds)

    def close(self):
        for name in (self.setup.name, self.setup.name + "-one", self.setup.name + "-without"):
            try:
                self.yoke.ask("close", name)
            except DrivenError:
                pass  # it was never opened
        for contender in self.opened:
            contender.close()
        self.opened.clear()
        self.runners.clear()
        self.kept.cleanup()
        self.weights = self.inputs = self.labels = None
        gc.collect()
        if HAS_TORCH and torch.cuda.is_available():
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
        if row.against == "without":
            return self.ratios("without"), "without"
        rival = self.rival(gpu_rows.RIVALS[row.against])
        return (self.ratios(rival), rival) if rival else ([], None)

    def result(self, row):
        found = {"name": f"{self.setup.name} {row.against}", "line": row.line,
                 "must_be": "<=" if row.most else ">=", "rounds": self.round_count, "steps": self.steps}
        values, rival = self.values(row)
        if not values:
            return skipped(row, self.why_absent(row))
        value, low, high = interval(values)
        noise = self.noise()
        found.update(value=value, low=low, high=high, noise=noise, rival=rival,
                     yoke_ms=statistics.median(self.times["yoke"]),
                     rival_ms=statistics.median(self.times[rival]) if rival else None,
                     loss_difference=self.apart.get(rival))
        found["verdict"] = self.judge(row, found)
        found["text"] = self.text(row, found)
        return found

    def why_absent(self, row):
        return "; ".join(f"{name}: {self.failed[name]}" for name in gpu_rows.RIVALS[row.against] if name in self.failed)

    def has_nobody(self):
        """Every row is a ratio to a contender, and all of them are absent."""
        return not self.made and self.wanted <= set(gpu_rows.RIVALS)

    def judge(self, row, found):
        tolerance = WINOGRAD_TOLERANCE if self.fake else LOSS_TOLERANCE[self.setup.precision]
        if (found["loss_difference"] or 0) > tolerance:
            return "losses differ"
        if row.line is None:
            return "measured"
        return judge(found["low"], found["high"], row.line, row.most, found["noise"])

    def text(self, row, found):
        line = "" if row.line is None else f"line {found['must_be']} {row.line:g}, "
        text = (f"{found['value']:.3g} ({found['low']:.3g} .. {found['high']:.3g}), {line}"
                f"noise {100 * found['noise']:.1f} %; yoke {found['yoke_ms']:.4g} ms")
        if found["rival"]:
            text += f", {found['rival']} {found['rival_ms']:.4g} ms"
        if row.against == "kernel time":
            text += f", in order {statistics.median(self.times['in-order']):.4g} ms"
        if found["loss_difference"] is not None:
            text += f"; losses within {found['loss_difference']:.1e}"
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
        if race.has_nobody():
            report["rows"] += [skipped(row, race.why_absent(row)) for row in rows]
            return
        race.run()
        report["rows"] += [race.result(row) for row in rows]
        report["setups"].append(race.record())
    except DrivenError as error:
        report["rows"] += [{**skipped(row, str(error)), "verdict": "MISS"} for row in rows]
    finally:
        race.close()


def save(report, arguments):
    """Before and after every setup, and whole, in case the run is ended."""
    if not arguments.json:
        return
    path = pathlib.Path(arguments.json)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(report, indent=1))
    new.replace(path)


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe():
    """Whom this Python has."""
    found = {"torch": version_of("torch"), "jax": version_of("jax")}
    if not HAS_TORCH:
        return found
    return {**found, "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None}


def measure(rows, arguments):
    report = {**describe(), "whole": False, "rows": [], "setups": []}
    if HAS_TORCH and arguments.fake:
        torch.set_num_threads(1)  # more would spin on cores that the other contenders need
    begin = time.monotonic()
    yoke = Yoke(arguments.yoke)
    setups = setups_of(rows)
    for i, setup in enumerate(setups):
        of_setup = [row for row in rows if row.setup == setup]
        done = len(report["rows"])
        report["left"] = [f"{row.setup.name} {row.against}" for row in rows if row.setup in setups[i:]]
        save(report, arguments)
        if time.monotonic() - begin > arguments.seconds:
            report["rows"] += [{**skipped(row, "before it began"), "verdict": "out of time"} for row in of_setup]
        else:
            if yoke.process.poll() is not None:
                yoke = Yoke(arguments.yoke)
            race_setup(setup, of_setup, yoke, arguments, report)
        report["whole"], report["left"] = setup == setups[-1], report["left"][len(of_setup):]
        save(report, arguments)
        for row in report["rows"][done:]:
            print(f"{row['name']:40} {row['verdict']:13} {row['text']}", flush=True)
    yoke.close()
    return report


def rows_of(arguments):
    if arguments.ways:
        return gpu_rows.FAKE_WAY_ROWS if arguments.fake else gpu_rows.WAY_ROWS
    return gpu_rows.FAKE_ROWS if arguments.fake else gpu_rows.ROWS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default="build/cuda/yoke", metavar="PROGRAM", help="(build/cuda/yoke)")
    parser.add_argument("--only", action="append", metavar="ROW", help="a setup, what it races against, or both: 'mlp-b128-tf32 eager'")
    parser.add_argument("--ways", action="store_true", help="measure Yoke's ways of docs/cuda.md, and no contender")
    parser.add_argument("--compile", action="store_true", help="race torch.compile, too: a minute a setup")
    parser.add_argument("--seconds", type=float, default=450, help="start no setup later than this (450)")
    parser.add_argument("--json", metavar="FILE", help="write the report to this file")
    parser.add_argument("--list", action="store_true", help="list the rows; measure nothing")
    parser.add_argument("--fake", nargs="?", const="cpu", metavar="DEVICE",
                        help="tiny rows, to test this program: Yoke on DEVICE (cpu), the others on the CPU")
    arguments = parser.parse_args()
    rows = select(rows_of(arguments), arguments.only)
    if arguments.list:
        for row in rows:
            line = "" if row.line is None else f"  {'<=' if row.most else '>='} {row.line}"
            print(f"{row.setup.name} {row.against}{line}")
        return 0
    report = measure(rows, arguments)
    return 1 if any(row["verdict"] in ("MISS", "losses differ") for row in report["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
