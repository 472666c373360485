#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Races Yoke's inference-only engine against PyTorch and onnxruntime on the CPU, in interleaved rounds.

usage: pytorch_predict.py [--yoke PROGRAM] [--models NAME[@SIDE],...] [--rows N,...] [--contenders NAME,...]
                          [--threads N] [--rounds N] [--seconds X] [--json FILE]

PyTorch runs in eval() and inference_mode(), with as many threads and with Yoke's weights: eagerly, as
channels_last, by torch.compile, and by torch.compile with its weights frozen. onnxruntime, where this Python
has it, reads what PyTorch exports. The fastest counts. A ratio is formed within a round; printed are its
median over the rounds, the bootstrap 95 % interval and the noise. The outputs must be equal to 1e-4. Exits
with 77 where this Python has no PyTorch, with 1 where a line is missed.
"""
import argparse
import importlib.util
import io
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time
import warnings

from gpu_rows import Setup
from pytorch_race import Yoke, interval, judge

LINE = 1.5           # of the fastest contender's time and Yoke's
MADE_MS = 1000       # to make the engine for one row
TOLERANCE = 1e-4     # of outputs, of their largest size
SETTLE_S = 0.15      # before a turn: the last contender's threads go from spinning to sleep; onnxruntime's take 0.08
FEWEST_MS = 2        # a turn lasts so long at least
MODELS = "resnet18@224,resnet18-cifar,resnet20,mlp,mobilenet_v2:dropout=0,vit_tiny,gpt2"
LARGE = 224          # an image of this side is raced in one row alone


class Predictor:
    """PyTorch's model, as its users call it."""

    def __init__(self, setup, weights, inputs, channels_last=False):
        import torch
        from pytorch_contenders import load
        from pytorch_models import make_model
        self.torch = torch
        channels_last = channels_last and inputs.dim() == 4
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.model = make_model(setup)
        load(self.model, weights)
        self.model = self.call = self.model.eval().to(memory_format=layout)
        self.inputs = inputs.contiguous(memory_format=layout)

    def outputs(self):
        with self.torch.inference_mode():
            return self.call(self.inputs).clone()

    def run(self, count):
        with self.torch.inference_mode():
            begin = time.monotonic()
            for _ in range(count):
                self.call(self.inputs)
            return (time.monotonic() - begin) * 1e3 / count


class ChannelsLast(Predictor):
    def __init__(self, setup, weights, inputs):
        if inputs.dim() != 4:
            raise Absent("no images")
        super().__init__(setup, weights, inputs, True)


class Compiled(Predictor):
    """frozen: inductor takes the weights for constants, folds batch norms into them and packs them."""

    def __init__(self, setup, weights, inputs, frozen=False):
        super().__init__(setup, weights, inputs, True)
        from torch._inductor import config
        self.torch._dynamo.reset()
        self.call = self.torch.compile(self.model)
        with config.patch(freezing=frozen), self.torch.inference_mode():
            self.call(self.inputs)


class Frozen(Compiled):
    def __init__(self, setup, weights, inputs):
        super().__init__(setup, weights, inputs, True)


class Onnxruntime(Predictor):
    def __init__(self, setup, weights, inputs):
        if importlib.util.find_spec("onnxruntime") is None:
            raise Absent(f"{sys.executable} has no onnxruntime")
        import onnxruntime
        super().__init__(setup, weights, inputs)
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.torch.onnx.export(self.model, (self.inputs,), file, dynamo=False, opset_version=17)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.torch.get_num_threads(), 1
        self.session = onnxruntime.InferenceSession(file.getvalue(), options, ["CPUExecutionProvider"])
        self.feed = {self.session.get_inputs()[0].name: self.inputs.numpy()}

    def outputs(self):
        return self.torch.from_numpy(self.session.run(None, self.feed)[0])

    def run(self, count):
        begin = time.monotonic()
        for _ in range(count):
            self.session.run(None, self.feed)
        return (time.monotonic() - begin) * 1e3 / count


class Absent(Exception):
    """This Python, or this model, has no such contender."""


CONTENDERS = {"eager": Predictor, "channels_last": ChannelsLast, "compile": Compiled, "compile frozen": Frozen,
              "onnxruntime": Onnxruntime}


def open_yoke(yoke, setup, threads):
    """Milliseconds to make the engine."""
    return yoke.open("yoke", setup, "devices=1xcpu", f"threads={threads}", "inference=1")["made_ms"]


def read_work(yoke, setup):
    """(weights, inputs, Yoke's outputs)"""
    import torch
    from pytorch_contenders import read_batch, read_weights
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        told = {**yoke.ask("weights", "yoke", folder / "weights"), **yoke.ask("batch", "yoke", folder / "batch")}
        yoke.ask("forward", "yoke", 1, folder / "outputs")
        weights = read_weights(folder / "weights", told["tensors"])
        inputs, _ = read_batch(folder / "batch", told["values"], setup)
        return weights, inputs, torch.frombuffer(bytearray((folder / "outputs").read_bytes()), dtype=torch.float32)


def open_contenders(yoke, setup, names):
    """({name: Predictor}, {name: the largest difference of outputs, as a part of the largest}, {name: why it is absent})"""
    weights, inputs, wanted = read_work(yoke, setup)
    found, apart, absent = {}, {}, {}
    for name in names:
        try:
            found[name] = CONTENDERS[name](setup, weights, inputs)
        except Absent as why:
            absent[name] = str(why)
            continue
        largest = wanted.abs().max().item() or 1  # a new vit_tiny's head gives 0
        apart[name] = (found[name].outputs().flatten() - wanted).abs().max().item() / largest
    return found, apart, absent


def race(runners, rounds, seconds):
    """{name: milliseconds in every round}"""
    turn_ms, steps = max(FEWEST_MS, 1e3 * seconds / rounds / len(runners)), {}
    for name, run in runners.items():
        run(3)
        steps[name] = max(1, round(turn_ms / run(5)))
    times, order = {name: [] for name in runners}, random.Random(7)
    for _ in range(rounds):
        for name in order.sample(list(runners), len(runners)):
            time.sleep(SETTLE_S)
            times[name].append(runners[name](steps[name]))
    return times


def ratio(times, name):
    return interval([other / own for other, own in zip(times[name], times["yoke"])])


def judge_times(times, apart):
    """(rival, verdict, text)"""
    rival = min(apart, key=lambda name: statistics.median(times[name]))
    value, low, high = ratio(times, rival)
    noise = max(abs(end - 1) for end in ratio(times, "yoke again")[1:])
    verdict = judge(low, high, LINE, False, noise) if max(apart.values()) <= TOLERANCE else "void"
    return rival, verdict, (f"{rival} / yoke {value:.2f} ({low:.2f} .. {high:.2f}), line {LINE}, noise "
                            f"{100 * noise:.1f} %, outputs within {max(apart.values()):.0e}")


def race_setup(setup, arguments):
    """What became of one model in so many rows."""
    yoke = Yoke(arguments.yoke)
    try:
        made_ms = open_yoke(yoke, setup, arguments.threads)
        predictors, apart, absent = open_contenders(yoke, setup, arguments.contenders.split(","))
        runners = {name: one.run for name, one in predictors.items()}
        runners["yoke"] = runners["yoke again"] = lambda count: yoke.ask("forward", "yoke", count)["ms"]
        times = race(runners, arguments.rounds, arguments.seconds)
    finally:
        yoke.close()
    rival, verdict, text = judge_times(times, apart)
    return {"model": setup.model, "side": setup.side, "rows": setup.rows, "ms": times, "made_ms": made_ms,
            "apart": apart, "absent": absent, "rival": rival, "verdict": verdict, "text": text}


def report(result, threads):
    print(f"{result['model']}{' at ' + str(result['side']) if result['side'] else ''}, {result['rows']} "
          f"row{'s' if result['rows'] > 1 else ''}, {threads} threads, engine made in {result['made_ms']:.0f} ms")
    for name, own in result["ms"].items():
        value, low, high = ratio(result["ms"], name)
        print(f"  {name:22} {statistics.median(own):9.3f} ms   yoke x {value:.2f} ({low:.2f} .. {high:.2f})")
    for name, why in result["absent"].items():
        print(f"  {name:22} absent: {why}")
    print(f"  {result['verdict']:9} {result['text']}", flush=True)


def setups(arguments):
    for network in arguments.models.split(";" if ";" in arguments.models else ","):
        model, _, side = network.partition("@")
        for rows in map(int, arguments.rows.split(",")):
            if int(side or 0) < LARGE or rows == 1 or len(arguments.rows.split(",")) == 1:
                yield Setup("predict", model, rows, "float32", 1, int(side or 0))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default="build/release/yoke", metavar="PROGRAM", help="(build/release/yoke)")
    parser.add_argument("--models", default=MODELS, metavar="NAME[@SIDE],...", help=f"({MODELS}); at {LARGE} pixels the "
                        "first number of rows alone; between names with several options semicolons")
    parser.add_argument("--rows", default="1,64", metavar="N,...", help="(1,64)")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), metavar="NAME,...", help="(all)")
    for name, default in (("threads", 2), ("rounds", 9)):
        parser.add_argument("--" + name, type=int, default=default, metavar="N", help=f"({default})")
    parser.add_argument("--seconds", type=float, default=20, metavar="X",
                        help="of each race, without preparation (20)")
    parser.add_argument("--json", metavar="FILE", help="write times and verdicts to this file")
    return parser.parse_args()


def main():
    arguments = parse()
    if importlib.util.find_spec("torch") is None:
        print(f"skipped: {sys.executable} has no PyTorch")
        return 77
    import torch
    torch.set_num_threads(arguments.threads)
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}", flush=True)
    results = []
    for setup in setups(arguments):
        results.append(race_setup(setup, arguments))
        report(results[-1], arguments.threads)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(results, file, indent=1)
    slow = [one for one in results if one["rows"] == 1 and one["made_ms"] >= MADE_MS]
    for one in slow:
        print(f"  MISS      {one['model']}: engine made in {one['made_ms']:.0f} ms, line {MADE_MS}")
    return 1 if slow or any(one["verdict"] in ("MISS", "void") for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
