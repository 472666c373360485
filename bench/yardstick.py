#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far float32 is from float64: Yoke's gradients beside PyTorch's, over twenty steps of ten models.

usage: yardstick.py [--yoke PROGRAM] [--algorithm direct|measured] [--models LIST] [--steps N] [--json FILE]

`yoke verify --record` trains on one device. PyTorch computes every step of that run again, in float32 and in
float64, from the weights that Yoke had before the step: so a rounding error, or a ReLU that switches because
of one, stays in its step and does not grow. A distance is |gradient - gradient in float64| / |gradient in
float64| over all parameters; printed are the medians over the steps, and Yoke's divided by PyTorch's. The
inputs are small, so that few of their steps meet a ReLU that switches, which moves a gradient by percents. Exits
with 1 when that ratio is above 2 (direct) or 20 (measured, which may choose Winograd), with 77 where this
Python has no PyTorch.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = {  # name: model, shape of a row, batch, options
    "mlp": ("mlp", "1x28x28", 32, []),
    "mlp adamw": ("mlp", "3x16x16", 16, ["--optimizer", "adamw"]),
    "resnet20": ("resnet20", "3x16x16", 8, []),
    "resnet20 adamw": ("resnet20", "3x8x8", 8, ["--optimizer", "adamw"]),
    "resnet32": ("resnet32", "3x8x8", 8, []),
    "resnet44": ("resnet44", "3x8x8", 8, []),
    "resnet56": ("resnet56", "3x8x8", 8, ["--optimizer", "adamw"]),
    "resnet18": ("resnet18", "3x32x32", 8, []),
    "resnet18-cifar": ("resnet18-cifar", "3x8x8", 8, []),
    "resnet34": ("resnet34", "3x32x32", 8, []),
}
BARS = {"direct": 2, "measured": 20}


def norm(tensors):
    return sum(float(tensor.double().square().sum()) for tensor in tensors) ** 0.5


def distance(values, exact):
    return norm(value.double() - other for value, other in zip(values, exact)) / norm(exact)


def measure(torch, pytorch, path, steps):
    """The median distance to float64 of PyTorch and of Yoke, and what Yoke computed with."""
    recorded, metadata = pytorch.load(path)
    single, double = (pytorch.Run(recorded, metadata, kind) for kind in (torch.float32, torch.float64))
    found = {"pytorch": [], "yoke": []}
    for step in range(1, steps + 1):
        for run in (single, double):
            run.follow(step - 1)
            run.step(step)
        exact = [double.tensors[name].grad for name in double.weights]
        found["pytorch"].append(distance([single.tensors[name].grad for name in double.weights], exact))
        found["yoke"].append(distance([recorded[f"gradient_{step:06d}/{name}"] for name in double.weights], exact))
    return found, metadata.get("algorithms", "")


def record(arguments, name, path):
    model, shape, batch, options = MODELS[name]
    command = [arguments.yoke, "verify", "--devices", "cpu", "--reference", "no", "--quiet", "--lr", "0.001",
               "--model", model, "--dataset", f"synthetic:{shape},rows={batch * arguments.steps}", *options,
               "--batch", str(batch), "--steps", str(arguments.steps), "--algorithm", arguments.algorithm,
               "--record", path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--yoke", default=str(ROOT / "build/release/yoke"))
    parser.add_argument("--algorithm", choices=BARS, default="direct")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("this Python has no PyTorch")
        return 77
    sys.path.insert(0, str(ROOT / "scripts"))
    import torch  # pylint: disable=import-outside-toplevel
    import verify_pytorch  # pylint: disable=import-outside-toplevel
    bar, results = BARS[arguments.algorithm], {}
    print(f"{'model':<15} {'PyTorch float32':>15} {'Yoke float32':>13} {'ratio':>6}  Yoke's algorithms", flush=True)
    for name in arguments.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.safetensors")
            record(arguments, name, path)
            found, algorithms = measure(torch, verify_pytorch, path, arguments.steps)
        medians = {side: statistics.median(values) for side, values in found.items()}
        ratio = medians["yoke"] / medians["pytorch"]
        results[name] = {**found, "ratio": ratio, "algorithms": algorithms}
        print(f"{name:<15} {medians['pytorch']:15.2e} {medians['yoke']:13.2e} {ratio:6.2f}  {algorithms}"
              f"{'' if ratio <= bar else '  ABOVE ' + str(bar)}", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(result["ratio"] <= bar for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
