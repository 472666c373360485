# SPDX-License-Identifier: Apache-2.0
"""What pytorch_gpu.py races, and the lines to reach.

A setup is one piece of work for all its contenders. A row is a ratio within a setup's rounds: how
many times as long a contender takes as Yoke, or a figure of Yoke's own.
"""
import collections

# rows: per device. devices: replicas, all on one GPU. side: of the images; 0: the model's usual. ways: of the
# device list, "+waves" (docs/cuda.md).
Setup = collections.namedtuple("Setup", "name model rows precision devices side ways", defaults=("",))
# against: a rival of RIVALS, "kernel time" (Yoke's own kernels, each timed alone), "processor"
# (microseconds of host processor a step and device), "one device" (as many steps of it) or "without"
# (the same steps without the setup's ways).
# line: None where nothing is to be reached. most: the value must stay below the line instead of above.
Row = collections.namedtuple("Row", "setup against line most")
# Of several contenders the fastest counts.
RIVALS = {"eager": ("eager", "eager channels_last"), "graph": ("graph",), "compile": ("compile",),
          "data_parallel": ("data_parallel",), "jax": ("jax",)}

R18, R50 = ("resnet18-cifar", 0), ("resnet50", 224)
MLP = ("mlp", 0)


def make_setup(network, rows, precision, devices=1, ways=""):
    model, side = network
    name = f"{model}{f'-{side}' if side else ''}-b{rows}-{precision}" + (f"-x{devices}" if devices > 1 else "")
    return Setup(name + ways, model, rows, precision, devices, side, ways)


def one_device(network, rows, precision, eager):
    """Steps of less than 2 ms have no line for their kernel time."""
    setup = make_setup(network, rows, precision)
    found = [Row(setup, "eager", eager, False), Row(setup, "compile", 1.0, False),
             Row(setup, "graph", 1.0, False), Row(setup, "jax", 1.0, False)]
    if network != MLP:
        found.append(Row(setup, "kernel time", 1.02, True))
    return found + [Row(setup, "processor", 50, True)]


def replicas(network, rows, devices, line):
    setup = make_setup(network, rows, "bfloat16", devices)
    found = [Row(setup, "data_parallel", line, False)]
    return found + [Row(setup, "one device", 1.05, True)] * (devices == 8)


def in_ways(network, rows, *ways):
    return [Row(make_setup(network, rows, "bfloat16", ways="+" + way), "without", None, False) for way in ways]


# The most important first: a run may be cut short.
ROWS = [
    *one_device(R50, 256, "bfloat16", 1.3),
    *one_device(R18, 256, "bfloat16", 1.3),
    *one_device(MLP, 256, "bfloat16", 2),
    *replicas(R18, 32, 8, 6),
    *one_device(R18, 32, "bfloat16", 2),
    *one_device(MLP, 32, "bfloat16", 2),
    *one_device(R50, 32, "bfloat16", 2),
    *replicas(MLP, 32, 8, 12), *replicas(R50, 32, 8, 2),
    *one_device(R18, 256, "tf32", 1.15), *one_device(MLP, 256, "tf32", 2),
    *one_device(R18, 256, "float32", 1.0), *one_device(R50, 32, "float32", 1.0),
    *replicas(R18, 32, 2, 3), *replicas(MLP, 32, 2, 3),
    *replicas(R18, 32, 4, 4), *replicas(MLP, 32, 4, 4),
]

# One way at a time, and all that a model has. Their times decide which ways become Yoke's own.
WAY_ROWS = [
    *in_ways(R50, 256, "all", "waves", "sums", "stem4", "stem8"),
    *in_ways(MLP, 256, "all", "relu", "shadow", "loss", "mapped"),
    *in_ways(R18, 256, "all", "waves", "sums", "stem4", "stem8", "decode", "shadow"),
    *in_ways(MLP, 32, "all"), *in_ways(R18, 32, "all"), *in_ways(R50, 32, "all"),
]

# Tiny rows test the driver itself; there is no line to reach.
FAKE_SETUPS = {
    make_setup(MLP, 8, "float32"): ("eager", "compile", "graph", "jax", "kernel time", "processor"),
    make_setup(("resnet20", 8), 16, "float32"): ("eager", "jax"),
    make_setup(MLP, 8, "float32", 2): ("data_parallel", "one device"),
}
FAKE_ROWS = [Row(setup, against, None, False) for setup, rows in FAKE_SETUPS.items() for against in rows]
FAKE_WAY_ROWS = [*in_ways(MLP, 8, "all", "relu"), *in_ways(("resnet20", 8), 4, "stem4")]
