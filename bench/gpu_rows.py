"""What pytorch_gpu.py races, and the lines to reach.

A setup is one piece of work for all its contenders. A row is a ratio within a setup's rounds: how
many times as long a contender takes as Yoke, or a figure of Yoke's own.
"""
import collections

# rows: per device. devices: replicas, all on one GPU. side: of the images; 0: the model's usual.
Setup = collections.namedtuple("Setup", "name model rows precision devices side")
# against: "eager" (the faster of its layouts), "best" (of torch.compile and a CUDA graph of the whole
# step), "data_parallel" (nn.DataParallel), "kernel time" (Yoke's own kernels, each timed alone),
# "processor" (microseconds of host processor a step and device), "one device" (as many steps of it).
# most: the value must stay below the line instead of above.
Row = collections.namedtuple("Row", "setup against line most")

R18, R50, R50_224 = ("resnet18-cifar", 0), ("resnet50", 0), ("resnet50", 224)
MLP = ("mlp", 0)
LONG_STEPS = (R18, R50, R50_224)  # 2 ms at least: shorter steps have no line for their kernel time


def make_setup(network, rows, precision, devices=1):
    model, side = network
    name = f"{model}{side or ''}-b{rows}-{precision}" + (f"-x{devices}" if devices > 1 else "")
    return Setup(name, model, rows, precision, devices, side)


def one_device(network, rows, precision, eager, best=None):
    setup = make_setup(network, rows, precision)
    found = [Row(setup, "eager", eager, False)]
    if best is not None:
        found.append(Row(setup, "best", best, False))
    if network in LONG_STEPS:
        found.append(Row(setup, "kernel time", 1.02, True))
    return found + [Row(setup, "processor", 50, True)]


def replicas(network, rows, devices, line):
    setup = make_setup(network, rows, "tf32", devices)
    found = [Row(setup, "data_parallel", line, False)]
    return found + [Row(setup, "one device", 1.05, True)] * (devices == 8)


# The most important first: a run may be cut short.
ROWS = [
    *one_device(R50, 64, "bfloat16", 3.5, 1.1),
    *one_device(R18, 128, "bfloat16", 1.4, 1.03),
    *replicas(R18, 32, 8, 6),
    *one_device(MLP, 128, "tf32", 4, 1.1),
    *one_device(R50, 64, "tf32", 3.5, 1.1),
    *one_device(R18, 128, "tf32", 1.15),
    *replicas(R50, 16, 8, 12),
    *replicas(MLP, 32, 8, 12),
    *one_device(R18, 128, "float32", 1.0),
    *one_device(R18, 512, "bfloat16", 1.15, 1.0),
    *one_device(R50_224, 128, "bfloat16", 1.15, 1.0),
    *replicas(R18, 32, 2, 3), *replicas(R50, 16, 2, 3), *replicas(MLP, 32, 2, 3),
    *replicas(R18, 32, 4, 4), *replicas(R50, 16, 4, 4), *replicas(MLP, 32, 4, 4),
]

# Tiny rows on the CPU test the driver itself; their lines mean nothing.
FAKE_MLP = make_setup(MLP, 8, "float32")
FAKE_ROWS = [
    Row(FAKE_MLP, "eager", 1, False),
    Row(FAKE_MLP, "best", 1, False),
    Row(FAKE_MLP, "kernel time", 1.02, True),
    Row(FAKE_MLP, "processor", 50, True),
    Row(make_setup(("resnet20", 0), 16, "float32"), "eager", 1, False),
    Row(make_setup(MLP, 8, "float32", 2), "one device", 1.05, True),
]
