#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Races Yoke's inference-only engine against PyTorch on the CPU: ResNet-18 at 224, one row, in interleaved rounds.

usage: pytorch_predict.py [--yoke PROGRAM] [--model NAME] [--side N] [--rows N] [--threads N]
                          [--rounds N] [--seconds X] [--json FILE]

PyTorch runs eagerly, in eval() and inference_mode(), with as many threads and with Yoke's weights, as
channels_last and without; the faster counts. A ratio is formed within a round; printed are its median
over the rounds, the bootstrap 95 % interval and the noise. The outputs must be equal to 1e-4. Exits
with 77 where this Python has no PyTorch, with 1 where a line is missed.
"""
import argparse
import importlib.util
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

from gpu_rows import Setup
from pytorch_race import Yoke, interval, judge

LINE = 1             # of PyTorch's time and Yoke's
MADE_MS = 1000       # to make the engine
TOLERANCE = 1e-4     # of outputs, of their largest size
SETTLE_S = 0.02      # before a turn: the last contender's threads go from spinning to sleep


class Predictor:
    """PyTorch's model, as its users call it."""

    def __init__(self, setup, weights, inputs, channels_last):
        import torch
        from pytorch_contenders import load
        from pytorch_models import make_model
        self.torch = torch
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.model = make_model(setup)
        load(self.model, weights)
        self.model = self.model.eval().to(memory_format=layout)
        self.inputs = inputs.contiguous(memory_format=layout)

    def outputs(self):
        with self.torch.inference_mode():
            return self.model(self.inputs)

    def run(self, count):
        with self.torch.inference_mode():
            begin = time.monotonic()
            for _ in range(count):
                self.model(self.inputs)
            return (time.monotonic() - begin) * 1e3 / count


def open_yoke(yoke, setup, arguments):
    """Milliseconds to make the engine."""
    return yoke.open("yoke", setup, "devices=1xcpu", f"threads={arguments.threads}", "inference=1")["made_ms"]


def open_torch(yoke, setup):
    """({name: Predictor}, the largest difference of their outputs and Yoke's, as a part of the largest output)"""
    import torch
    from pytorch_contenders import read_batch, read_weights
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        told = {**yoke.ask("weights", "yoke", folder / "weights"), **yoke.ask("batch", "yoke", folder / "batch")}
        yoke.ask("forward", "yoke", 1, folder / "outputs")
        weights = read_weights(folder / "weights", told["tensors"])
        inputs, _ = read_batch(folder / "batch", told["values"], setup)
        wanted = torch.frombuffer(bytearray((folder / "outputs").read_bytes()), dtype=torch.float32)
    found = {name: Predictor(setup, weights, inputs, name != "eager") for name in ("eager", "eager-channels_last")}
    apart = max((one.outputs().flatten() - wanted).abs().max().item() for one in found.values())
    return found, apart / wanted.abs().max().item()


def race(runners, arguments):
    """{name: milliseconds in every round}"""
    turn_ms, steps = 1e3 * arguments.seconds / arguments.rounds / len(runners), {}
    for name, run in runners.items():
        run(3)
        steps[name] = max(1, round(turn_ms / run(5)))
    times, order = {name: [] for name in runners}, random.Random(7)
    for _ in range(arguments.rounds):
        for name in order.sample(list(runners), len(runners)):
            time.sleep(SETTLE_S)
            times[name].append(runners[name](steps[name]))
    return times


def ratio(times, name):
    return interval([other / own for other, own in zip(times[name], times["yoke"])])


def judge_times(times, made_ms, apart):
    """(rival, [(verdict, text)])"""
    rival = min((name for name in times if name.startswith("eager")), key=lambda name: statistics.median(times[name]))
    value, low, high = ratio(times, rival)
    noise = max(abs(end - 1) for end in ratio(times, "yoke again")[1:])
    verdict = judge(low, high, LINE, False, noise) if apart <= TOLERANCE else "void"
    return rival, [(verdict, f"yoke / {rival} {value:.2f} ({low:.2f} .. {high:.2f}), line {LINE}, noise {100 * noise:.1f} %, "
                             f"outputs within {apart:.0e}"),
                   ("pass" if made_ms < MADE_MS else "MISS", f"engine made in {made_ms:.0f} ms, line {MADE_MS}")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default="build/release/yoke", metavar="PROGRAM", help="(build/release/yoke)")
    parser.add_argument("--model", default="resnet18", metavar="NAME", help="(resnet18)")
    for name, default in (("side", 224), ("rows", 1), ("threads", 2), ("rounds", 9)):
        parser.add_argument("--" + name, type=int, default=default, metavar="N", help=f"({default})")
    parser.add_argument("--seconds", type=float, default=20, metavar="X", help="of the race, without preparation (20)")
    parser.add_argument("--json", metavar="FILE", help="write times and verdicts to this file")
    return parser.parse_args()


def main():
    arguments = parse()
    if importlib.util.find_spec("torch") is None:
        print(f"skipped: {sys.executable} has no PyTorch")
        return 77
    import torch
    torch.set_num_threads(arguments.threads)
    setup = Setup("predict", arguments.model, arguments.rows, "float32", 1, arguments.side)
    yoke = Yoke(arguments.yoke)
    try:
        made_ms = open_yoke(yoke, setup, arguments)
        predictors, apart = open_torch(yoke, setup)
        runners = {name: one.run for name, one in predictors.items()}
        runners["yoke"] = runners["yoke again"] = lambda count: yoke.ask("forward", "yoke", count)["ms"]
        times = race(runners, arguments)
    finally:
        yoke.close()
    rival, verdicts = judge_times(times, made_ms, apart)
    print(f"{arguments.model} at {arguments.side}, {arguments.rows} rows, {arguments.threads} threads, "
          f"PyTorch {torch.__version__}")
    for name, own in times.items():
        value, low, high = ratio(times, name)
        print(f"  {name:22} {statistics.median(own):9.2f} ms   yoke x {value:.2f} ({low:.2f} .. {high:.2f})")
    for verdict, text in verdicts:
        print(f"  {verdict:9} {text}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"ms": times, "made_ms": made_ms, "apart": apart, "rival": rival,
                       "verdicts": [verdict for verdict, _ in verdicts]}, file, indent=1)
    return 1 if any(verdict in ("MISS", "void") for verdict, _ in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
