# SPDX-License-Identifier: Apache-2.0
"""What pytorch_gpu.py races, the lines to reach, and what each row is expected to cost.

A setup is one piece of work for all its contenders. A row is a ratio between two of them: how many
times as long a contender takes as Yoke, or a figure of Yoke's own.
"""
import collections

# rows: per device. devices: replicas, all on one GPU. side: of the images, or tokens of a row; 0: the model's
# usual. variants: of the device list, "+all" (docs/cuda.md). classes: of the labels, or tokens that there are; 0: the
# usual. rate: the learning rate; 0: that of `yoke bench`.
Setup = collections.namedtuple("Setup", "name model rows precision devices side variants classes rate",
                               defaults=("", 0, 0))
# against: a rival of RIVALS, "kernel time" (Yoke's own kernels, each timed alone), "processor"
# (microseconds of host processor a step and device), "one device" (as many steps of it) or "without"
# (the same steps without the setup's variants).
# line: None where nothing is to be reached. most: the value must stay below the line instead of above.
# group: what --rows takes them by.
Row = collections.namedtuple("Row", "setup against line most group")
# Of several contenders the fastest counts.
RIVALS = {"eager": ("eager", "eager channels_last"), "graph": ("graph",), "compile": ("compile",),
          "data_parallel": ("data_parallel",), "jax": ("jax",)}
ALONE = ("processor", "kernel time")  # Yoke is
GROUPS = {"decide": "what decides the design, in bfloat16", "float32": "the same in float32", "tf32": "the same in TF32",
          "replicas": "several replicas on one GPU", "small": "32 rows", "kernels": "Yoke's own kernels",
          "jax": "beside JAX", "variants": "what a GPU must confirm: the same steps without; only where it is named",
          "fake compile": "torch.compile on the CPU, which takes a minute; only where it is named"}
ONLY_NAMED = ("variants", "fake compile")

# (model, side, what else differs from a usual setup)
R18, R50, MLP = ("resnet18-cifar", 0, {}), ("resnet50", 224, {}), ("mlp", 0, {})
# With the usual learning rate its losses would say nothing: they would not move.
GPT2 = ("gpt2:layers=12,width=768,heads=12", 1024, {"classes": 50257, "rate": 0.02})
SHORT = {GPT2[0]: "gpt2-124m", "gpt2:layers=2,width=32,heads=2": "gpt2-tiny"}


def make_setup(network, rows, precision, devices=1, variants=""):
    model, side, *other = network
    name = (f"{SHORT.get(model, model)}{f'-{side}' if side else ''}-b{rows}-{precision}"
            + (f"-x{devices}" if devices > 1 else "") + variants)
    return Setup(name, model, rows, precision, devices, side, variants, **(other[0] if other else {}))


# Estimates: whether a row may still begin, and whether its setup fits a GPU's memory.

# Of one device's step in bfloat16 on an H100. step_ms: of the slower contender, with that many rows. compile_s: of
# torch.compile. open_s: of Yoke's engine, with what it measures. gib: of Yoke and a contender together.
Cost = collections.namedtuple("Cost", "rows step_ms compile_s open_s gib")
COSTS = {"resnet50": Cost(256, 70, 100, 25, 31), "resnet18-cifar": Cost(256, 7, 45, 12, 5),
         "mlp": Cost(256, 0.5, 10, 4, 2), GPT2[0]: Cost(16, 150, 75, 15, 38),
         "resnet20": Cost(16, 10, 60, 2, 0.2), "gpt2:layers=2,width=32,heads=2": Cost(2, 10, 60, 2, 0.2)}
SLOWER = {"bfloat16": 1, "tf32": 1.8, "float32": 4}
CONTEXTS_GIB = 1.5  # two processes' libraries
START_S, CAPTURE_S = 3, 3
# Of a race: its rounds, how long a contender runs in each, at least so many steps; how long it warms up; of how many
# first steps the losses are compared. The third knows the gradients and the momentum, and rounding grows with each.
Pace = collections.namedtuple("Pace", "rounds run_s fewest_steps warm_s loss_steps")
PACE, FAKE_PACE = Pace(9, 0.25, 3, 0.5, 8), Pace(3, 0, 2, 0, 4)


def step_s(setup):
    cost = COSTS[setup.model]
    return cost.step_ms / 1e3 * setup.rows / cost.rows * setup.devices * SLOWER[setup.precision]


def contender_seconds(setup, name, pace):
    """To open it, to take the first losses and to race it; name: of a contender, or what a row of Yoke's own is against."""
    turns = 3 * (pace.rounds * max(pace.run_s, pace.fewest_steps * step_s(setup)) + pace.warm_s)
    again = 0.4 if setup.variants else 1  # PyTorch has compiled this model before, and kept it
    own = {"compile": again * COSTS[setup.model].compile_s, "graph": CAPTURE_S, "one device": open_seconds(setup, pace),
           "without": 3 * open_seconds(setup, pace)}.get(name, 0)
    return START_S + pace.loss_steps * step_s(setup) + turns + own


def open_seconds(setup, pace):
    return COSTS[setup.model].open_s + pace.loss_steps * step_s(setup)


def contenders_of(row):
    """PyTorch's channels last is the faster for images, except perhaps in float32."""
    names = RIVALS.get(row.against, (row.against,))
    if row.against != "eager":
        return names
    if row.setup.model == "mlp" or row.setup.model.startswith("gpt2"):
        return names[:1]
    return names if row.setup.precision == "float32" else names[1:]


def row_seconds(row, pace):
    """Without opening Yoke's engine, which several rows share. A row of the processor takes its figures from the
    races before it."""
    if row.against == "processor":
        return 0
    return sum(contender_seconds(row.setup, name, pace) for name in contenders_of(row))


def row_gib(row, contexts_gib=CONTEXTS_GIB):
    cost, setup = COSTS[row.setup.model], row.setup
    part = setup.rows / cost.rows * setup.devices * (1 if setup.precision == "bfloat16" else 1.6)
    return contexts_gib + cost.gib * part * (0.5 if row.against in ALONE else 1)


# Rows.


def beside_pytorch(group, network, rows, precision, eager, variants="", line=1.0):
    setup = make_setup(network, rows, precision, variants=variants)
    return [Row(setup, "eager", eager, False, group), Row(setup, "graph", line, False, group),
            Row(setup, "compile", line, False, group), Row(setup, "processor", None, True, group)]


def of_kernels(network, rows, precision):
    return Row(make_setup(network, rows, precision), "kernel time", 1.02, True, "kernels")


def beside_jax(network, rows, precision):
    return Row(make_setup(network, rows, precision), "jax", 1.0, False, "jax")


def replicas(network, rows, devices, line):
    setup = make_setup(network, rows, "bfloat16", devices)
    found = [Row(setup, "data_parallel", line, False, "replicas")]
    return found + [Row(setup, "one device", 1.05, True, "replicas")] * (devices == 8)


def in_variants(network, rows, precision="bfloat16"):
    return [Row(make_setup(network, rows, precision, variants="+" + variant), "without", None, False, "variants")
            for variant in ("mapped", "decode", "all")]


# The most important first: a run may be cut short.
DECIDING = ((R50, 256, 1.3), (R18, 256, 1.3), (MLP, 256, 2), (GPT2, 16, 1.0))
ROWS = [
    *[row for network, rows, eager in DECIDING for row in beside_pytorch("decide", network, rows, "bfloat16", eager)],
    *[row for network, rows, eager in DECIDING
      for row in beside_pytorch("decide", network, rows, "bfloat16", eager, "+all")],
    *[row for network, rows, _ in DECIDING for row in beside_pytorch("float32", network, rows, "float32", 1.0)],
    *beside_pytorch("tf32", R50, 256, "tf32", 1.15), *beside_pytorch("tf32", R18, 256, "tf32", 1.15),
    *beside_pytorch("tf32", MLP, 256, "tf32", 2), *beside_pytorch("tf32", GPT2, 16, "tf32", 1.0),
    *replicas(R18, 32, 8, 6), *replicas(MLP, 32, 8, 12), *replicas(R50, 32, 8, 2),
    *replicas(R18, 32, 2, 3), *replicas(MLP, 32, 2, 3), *replicas(R18, 32, 4, 4), *replicas(MLP, 32, 4, 4),
    *[row for network in (R18, MLP, R50) for row in beside_pytorch("small", network, 32, "bfloat16", 2)],
    # Steps of less than 2 ms have no line for their kernel time.
    *[of_kernels(network, rows, "bfloat16") for network, rows in ((R50, 256), (R18, 256), (GPT2, 16), (R18, 32), (R50, 32))],
    *[beside_jax(network, rows, "bfloat16") for network, rows in ((R50, 256), (R18, 256), (MLP, 256), (R50, 32), (R18, 32))],
    *[row for network in (R50, R18, MLP) for row in in_variants(network, 256)],
]

# Tiny rows test the driver itself; there is no line to reach.
TINY_IMAGES, TINY_TEXT = ("resnet20", 8, {}), ("gpt2:layers=2,width=32,heads=2", 16, {"classes": 50, "rate": 0.1})


def fake(group, setup, *against):
    return [Row(setup, name, None, False, group) for name in against]


FAKE_ROWS = [
    *fake("decide", make_setup(MLP, 8, "float32"), "eager", "graph", "processor"),
    *fake("decide", make_setup(TINY_IMAGES, 16, "float32"), "eager"),
    *fake("decide", make_setup(TINY_TEXT, 2, "float32"), "eager"),
    *fake("replicas", make_setup(MLP, 8, "float32", 2), "data_parallel", "one device"),
    *fake("kernels", make_setup(MLP, 8, "float32"), "kernel time"),
    *fake("jax", make_setup(MLP, 8, "float32"), "jax"), *fake("jax", make_setup(TINY_IMAGES, 16, "float32"), "jax"),
    *fake("fake compile", make_setup(MLP, 8, "float32"), "compile"),
    *in_variants(MLP, 8, "float32"),
]
