#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Races Yoke against PyTorch on the CPU: the same weights, inputs and updates, in interleaved rounds.

usage: pytorch_cpu.py [--yoke PROGRAM] [--models LIST] [--precisions LIST] [--contenders LIST]
                      [--rounds N] [--seconds X] [--json FILE]

Every ratio is formed within a round; printed are its median over the rounds, the bootstrap 95 %
interval of that median (the range of fewer than six rounds) and the noise, which is how far Yoke's
ratio to itself gets from 1. Exits with 77 where this Python has no PyTorch. bench/README.md explains the
contenders.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_rows import make_setup
from pytorch_race import (Driven, DrivenError, Yoke, interval, judge, largest_difference,
                          others_seconds)

MODELS = ("resnet18-cifar", "resnet50", "resnet20", "mlp", "mobilenet_v2:dropout=0", "vgg11_bn:dropout=0", "vit_tiny",
          "gpt2")
MORE = ("lstm-char", "lstm-char:layers=2,width=256", "resnext50", "densenet121", "efficientnet_b0:dropout=0,stochastic_depth=0",
        "convnext_tiny:stochastic_depth=0")  # where --models names them
TEXT = ("gpt2", "lstm-char", "lstm-char:layers=2,width=256")  # ranks of `yoke bench` get images
PRECISIONS = ("float32", "bfloat16")
CONTENDERS = ("eager", "compile", "ddp")
DEVICES, ROWS = 2, 32   # rows of each device, as `yoke bench` has them
LINE = 1.5              # Yoke against the best of PyTorch's; of others:
LINES = {"lstm-char": 1.2, "lstm-char:layers=2,width=256": 1.2, "convnext_tiny:stochastic_depth=0": 1.2}
LOSS_STEPS = 3          # the third knows the gradients and the momentum
LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2}  # float32: Yoke may choose Winograd
# Where rounding grows faster, as in batch norm over images of one pixel, a loss is one draw of chaos. There the weights
# judge: after steps with a part of the learning rate, Yoke's are at most so many times as far from those of float64 as
# PyTorch's.
FARTHER, PART, RATE = 2, 1e-2, 1e-3
NO_BFLOAT16 = "does not compute in bfloat16"  # what Yoke says on such a processor
SETTLE_S = 0.02         # before a turn: the last contender's threads go from spinning to sleep
QUIET = 0.04            # of a core, used by others during a round; more disturbs it
WORKER = pathlib.Path(__file__).with_name("pytorch_worker.py")


class Ranks:
    """PyTorch's processes of one thread, driven as one: the time of the slowest, the mean of the losses."""

    def __init__(self, folder, environment):
        self.processes = [Driven(f"rank {rank}", [sys.executable, WORKER, "1", str(rank), str(DEVICES),
                                                  os.path.join(folder, "store")], environment)
                          for rank in range(DEVICES)]

    def ask(self, *words):
        for process in self.processes:
            process.tell(*words)
        answers, errors = [], []
        for process in self.processes:  # read every answer, or the next request gets it
            try:
                answers.append(process.hear(words[0]))
            except DrivenError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        if "ms" in answers[0]:
            return {"ms": max(answer["ms"] for answer in answers)}
        if "losses" in answers[0]:
            return {"losses": [statistics.mean(step) for step in zip(*(answer["losses"] for answer in answers))]}
        return answers[0]

    def close(self):
        for process in self.processes:
            process.close()


class Race:
    """All contenders of one setup."""

    def __init__(self, setup, field, arguments):
        self.setup, self.field, self.arguments = setup, field, arguments
        self.runners, self.facts, self.failed, self.times = {}, {}, {}, {}
        self.line = LINES.get(setup.model, LINE)
        self.ways = [way for way in arguments.contenders if way != "ddp" or setup.model not in TEXT]
        self.opened = []  # (program, name)
        self.repeated = self.disturbed = 0  # rounds

    def ask_yoke(self, name, *devices):
        self.field.yoke.open(name, self.setup, *devices)
        self.opened.append((self.field.yoke, name))

    def run_with(self, program, name):
        return lambda count: program.ask("steps", name, count)["ms"]

    def open_yoke(self, folder):
        """What PyTorch gets is written to the folder. Its eager steps normalize over the whole batch,
        as one device does; its ranks over their parts, as each of Yoke's devices."""
        yoke = self.field.yoke
        self.ask_yoke("yoke", f"devices={DEVICES}xcpu", "threads=1")
        told = {"setup": self.setup, **yoke.ask("weights", "yoke", folder / "weights"),
                **yoke.ask("batch", "yoke", folder / "batch")}
        (folder / "work.json").write_text(json.dumps(told))
        whole = self.setup._replace(rows=ROWS * DEVICES)
        yoke.open("whole", whole, "devices=1xcpu", f"threads={DEVICES}")
        self.losses = {name: [yoke.ask("steps", name, 1)["loss"] for _ in range(LOSS_STEPS)]
                       for name in ("yoke", "whole")}
        yoke.ask("close", "whole")
        self.runners["yoke"] = self.runners["yoke again"] = self.run_with(yoke, "yoke")
        if "ddp" in self.ways:
            self.ask_yoke("yoke-ddp", f"ranks={DEVICES}", "threads=1")
            self.runners["yoke-ddp"] = self.run_with(yoke, "yoke-ddp")

    def layouts(self, way):
        """Inductor lays out every convolution channels last itself: one layout is enough of it, and
        compiling a ResNet-50 takes minutes."""
        if self.setup.model in ("mlp", *TEXT):
            return ("",)
        return ("-channels_last",) if way == "compile" else ("", "-channels_last")

    def open_torch(self, folder):
        for way in self.ways:
            for name in (way + layout for layout in self.layouts(way)):
                try:
                    self.open_contender(self.field.torch[way == "ddp"], name, folder)
                except DrivenError as error:  # its failure leaves the others their race
                    self.failed[name] = str(error)
        if any(facts["loss_difference"] > LOSS_TOLERANCE[self.setup.precision] for facts in self.facts.values()):
            self.measure_exact(folder)

    def measure_exact(self, folder):
        """How far the weights of every contender, and Yoke's, get from those of float64."""
        yoke, torch = self.field.yoke, self.field.torch[0]
        slow = self.setup._replace(rows=ROWS * DEVICES, rate=PART * RATE)
        yoke.open("slow", slow, "devices=1xcpu", f"threads={DEVICES}")
        yoke.ask("steps", "slow", LOSS_STEPS)
        yoke.ask("weights", "slow", folder / "moved")
        yoke.ask("close", "slow")
        torch.ask("open", "float64", folder)
        for name, facts in self.facts.items():
            if not name.startswith("ddp"):
                found = torch.ask("far", name, folder, PART, LOSS_STEPS)
                facts.update(from_exact=found["far"], yoke_from_exact=found["yoke"])
        torch.ask("close", "float64")

    def open_contender(self, program, name, folder):
        begin = time.monotonic()
        facts = program.ask("open", name, folder)
        self.opened.append((program, name))
        losses = program.ask("losses", name, LOSS_STEPS)["losses"]
        wanted = self.losses["yoke" if name.startswith("ddp") else "whole"]
        self.facts[name] = {**facts, "losses": losses, "loss_difference": largest_difference(losses, wanted),
                            "preparation_s": time.monotonic() - begin}
        self.runners[name] = self.run_with(program, name)

    def choose_steps(self):
        """So many of each that a turn takes its part of --seconds; a step at least."""
        turn_ms = 1e3 * self.arguments.seconds / self.arguments.rounds / len(self.runners)
        self.steps = {}
        for name, run in self.runners.items():
            warm = run(max(1, int(turn_ms / 4 / run(2))))
            self.steps[name] = max(1, round(turn_ms / warm))

    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            self.open_yoke(pathlib.Path(folder))
            self.open_torch(pathlib.Path(folder))
        self.choose_steps()
        self.race()

    def race(self):
        """Disturbed rounds are repeated until the time is twice over, then kept and counted."""
        times, order = {name: [] for name in self.runners}, random.Random(7)
        end = time.monotonic() + 2 * self.arguments.seconds
        while len(times["yoke"]) < self.arguments.rounds:
            begin, others = time.monotonic(), others_seconds()
            turns = {}
            for name in order.sample(list(self.runners), len(self.runners)):
                time.sleep(SETTLE_S)
                turns[name] = self.runners[name](self.steps[name])
            disturbed = others_seconds() - others > QUIET * (time.monotonic() - begin)
            if disturbed and time.monotonic() < end:
                self.repeated += 1
                continue
            self.disturbed += disturbed
            for name, ms in turns.items():
                times[name].append(ms)
        self.times = times

    def close(self):
        for program, name in self.opened:
            try:
                program.ask("close", name)
            except (DrivenError, OSError):
                pass  # the program has ended

    # Results.

    def median_ms(self, name):
        return statistics.median(self.times[name])

    def ratio(self, name, base):
        return interval([other / own for other, own in zip(self.times[name], self.times[base])])

    def noise(self):
        return max(abs(end - 1) for end in self.ratio("yoke again", "yoke")[1:])

    def row(self, against, base, rivals):
        found = {"name": f"{self.setup.name} {against}", "line": self.line}
        if base not in self.times or not rivals:
            return {**found, "verdict": "skipped", "text": "no contender ran"}
        rival = min(rivals, key=self.median_ms)
        value, low, high = self.ratio(rival, base)
        found.update(value=value, low=low, high=high, rival=rival, noise=self.noise())
        facts = self.facts[rival]
        within = facts["loss_difference"] <= LOSS_TOLERANCE[self.setup.precision]
        if not within and "from_exact" in facts:
            within = facts["yoke_from_exact"] <= FARTHER * facts["from_exact"]
        found["verdict"] = judge(low, high, self.line, False, found["noise"]) if within else "void"
        found["text"] = (f"{base} / {rival} {value:.2f} ({low:.2f} .. {high:.2f}), line {self.line:g}, "
                         f"noise {100 * found['noise']:.1f} %")
        if "from_exact" in facts:
            found["text"] += (f"; weights are off float64's by {facts['yoke_from_exact']:.3f} of their way, "
                              f"the rival's by {facts['from_exact']:.3f}")
        if self.disturbed:
            found["text"] += f"; {self.disturbed} of {self.arguments.rounds} rounds were disturbed"
        return found

    def rows(self):
        ran = [name for name in self.times if name in self.facts]
        rows = [self.row("best", "yoke", ran)]
        if "ddp" in self.ways:
            rows.append(self.row("ddp", "yoke-ddp", [name for name in ran if name.startswith("ddp")]))
        return rows

    def table(self):
        """One line per contender: its rate, and how many times as fast Yoke is."""
        rows = DEVICES * self.setup.rows
        for name, times in self.times.items():
            value, low, high = self.ratio(name, "yoke")
            line = (f"  {name:22} {self.median_ms(name):9.2f} ms {1e3 * rows / self.median_ms(name):9.0f} img/s"
                    f"   yoke x {value:.2f} ({low:.2f} .. {high:.2f})")
            if name in self.facts:
                facts = self.facts[name]
                line += f"   {facts['update']}, losses within {facts['loss_difference']:.0e}"
            yield line
        for name, text in self.failed.items():
            yield f"  {name:22} failed: {text}"

    def record(self):
        return {"setup": self.setup._asdict(), "ms": self.times, "steps": self.steps, "losses": self.losses,
                "repeated": self.repeated, "disturbed": self.disturbed, "contenders": self.facts, "failed": self.failed}


class Field:
    """The programs: Yoke's tool, PyTorch with all threads in one process, PyTorch's ranks."""

    def __init__(self, arguments, folder):
        environment = {"GLOO_SOCKET_IFNAME": "lo", **os.environ,
                       **dict(pair.split("=", 1) for pair in arguments.environment)}
        self.yoke = Yoke(arguments.yoke)
        self.torch = [Driven("PyTorch", [sys.executable, WORKER, str(DEVICES)], environment),
                      Ranks(folder, environment) if "ddp" in arguments.contenders else None]

    def close(self):
        for program in (self.yoke, *self.torch):
            if program:
                program.close()


def processor():
    with open("/proc/cpuinfo") as file:
        facts = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    return {"name": facts.get("model name"), "family": facts.get("cpu family"), "model": facts.get("model"),
            "cores": len(os.sched_getaffinity(0))}


def describe(field, arguments):
    yoke = subprocess.run([arguments.yoke, "--version"], text=True, capture_output=True).stdout.strip()
    return {"yoke": yoke, "torch": field.torch[0].ask("hello"), "processor": processor(),
            "environment": arguments.environment, "rounds": arguments.rounds, "rows": [], "setups": []}


def race_setup(setup, field, arguments, report):
    race, begin = Race(setup, field, arguments), time.monotonic()
    try:
        race.run()
        rows = race.rows()
        report["setups"].append(race.record())
    except DrivenError as error:
        verdict = "skipped" if NO_BFLOAT16 in str(error) else "MISS"
        rows = [{"name": setup.name, "line": race.line, "verdict": verdict, "text": str(error)}]
    finally:
        race.close()
    print(f"{setup.name}, {time.monotonic() - begin:.0f} s", *race.table(), sep="\n")
    for row in rows:
        print(f"  {row['verdict']:9} {row['name']:38} {row['text']}", flush=True)
    report["rows"] += rows


def measure(setups, arguments):
    with tempfile.TemporaryDirectory() as folder:
        field = Field(arguments, folder)
        try:
            report = describe(field, arguments)
            print(json.dumps({key: report[key] for key in ("yoke", "torch", "processor")}))
            for setup in setups:
                race_setup(setup, field, arguments, report)
                if arguments.json:  # after every setup, in case the run ends early
                    with open(arguments.json, "w") as file:
                        json.dump(report, file, indent=1)
        finally:
            field.close()
    return report


def choice(names):
    def read(text):
        chosen = re.split(r",(?![a-z_]+=)", text)  # not between the options of a model
        for name in chosen:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(names)}")
        return chosen
    return read


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default="build/release/yoke", metavar="PROGRAM", help="(build/release/yoke)")
    for option, names, more in (("models", MODELS, MORE), ("precisions", PRECISIONS, ()),
                                ("contenders", CONTENDERS, ())):
        parser.add_argument("--" + option, type=choice(names + more), default=list(names), metavar="LIST",
                            help=f"some of {','.join(names)} (all){', ' * bool(more)}{', '.join(more)}")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="(7)")
    parser.add_argument("--seconds", type=float, default=30, metavar="X",
                        help="of a model's race in one precision, without preparation (30)")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE",
                        help="for PyTorch's processes: LD_PRELOAD=..., OMP_PROC_BIND=true")
    parser.add_argument("--json", metavar="FILE", help="write the report to this file")
    return parser.parse_args()


def main():
    arguments = parse()
    setups = [make_setup((model, 0), ROWS, precision, DEVICES)
              for model in arguments.models for precision in arguments.precisions]
    if importlib.util.find_spec("torch") is None:
        for setup in setups:
            print(f"{setup.name}: skipped: {sys.executable} has no PyTorch")
        return 77
    report = measure(setups, arguments)
    return 1 if any(row["verdict"] in ("MISS", "void") for row in report["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
