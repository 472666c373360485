#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's contenders on the CPU, in a process of their own that serves requests.

usage: pytorch_worker.py THREADS [RANK RANKS STORE]

Requests come on stdin, a line each, and answers go to stdout, as those of `yoke bench --drive`:
  hello               PyTorch's version and what it was built with
  open NAME FOLDER    eager, compile or ddp, with -channels_last or without, or float64; FOLDER: what Yoke wrote
  losses NAME N       of the next N steps
  far NAME FOLDER PART N
                      how far the weights are from those of float64 after the first N steps with that part of the
                      usual learning rate, divided by the way that they moved: NAME's and Yoke's, of the file `moved`
  steps NAME N        mean milliseconds of N steps; ranks begin together
  close NAME
"""
import datetime
import functools
import gc
import json
import pathlib
import re
import sys
import time
import warnings

import torch
import torch.distributed as dist

from pytorch_contenders import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, Eager, OnHost, load, read_weights, read_work
from served_requests import open_answers, serve

warnings.simplefilter("ignore", FutureWarning)  # DDP renames broadcast_buffers
UPDATES = ({"fused": True}, {"foreach": True}, {"foreach": False})
LOST_RANK_S = 120


def make_optimizer(model, update, rate):
    return torch.optim.SGD(model.parameters(), rate, MOMENTUM, weight_decay=WEIGHT_DECAY, **update)


class Contender(Eager):
    def __init__(self, setup, work, name):
        way, _, layout = name.partition("-")
        super().__init__(setup, work, channels_last=layout == "channels_last")
        if way == "ddp":  # running statistics have no part in a training step: nothing sends them
            self.call = torch.nn.parallel.DistributedDataParallel(
                self.model, broadcast_buffers=False, gradient_as_bucket_view=True)
        if way == "compile":
            self.loss = torch.compile(self.loss)
        self.loss(self.inputs, self.labels).backward()
        self.update = self.fastest_update()
        self.optimizer = make_optimizer(self.model, self.update, LEARNING_RATE)
        load(self.model, work.weights)

    def fastest_update(self):
        """By its best of five; ranks decide together, or their weights would part."""
        best = torch.tensor([self.time_update(update) for update in UPDATES])
        if dist.is_initialized():
            dist.all_reduce(best)
        return UPDATES[int(best.argmin())]

    def time_update(self, update):
        optimizer = make_optimizer(self.model, update, 0.0)
        times = []
        for _ in range(6):  # the first makes the momentum
            begin = time.monotonic()
            optimizer.step()
            times.append(time.monotonic() - begin)
        return min(times[1:])

    def steps(self, count):
        if dist.is_initialized():
            dist.barrier()
        return super().steps(count)


class Exact(Eager):
    """The same steps in float64: nobody races it."""

    def __init__(self, setup, work):
        super().__init__(setup._replace(precision="float32"), work)
        self.model = self.call = self.model.double()
        self.batch = OnHost(self.inputs.double(), self.labels)
        self.update = {}


def read_part(folder):
    """(setup, weights and this rank's part of the batch), as pytorch_cpu.py left them"""
    setup, work = read_work(folder, fake=True)
    if dist.is_initialized():
        work.inputs, work.labels = (part.chunk(dist.get_world_size())[dist.get_rank()]
                                    for part in (work.inputs, work.labels))
    return setup, work


def move(contender, weights, part, steps):
    """How each parameter changes in the first steps."""
    load(contender.model, weights)
    contender.optimizer = make_optimizer(contender.model, contender.update, part * LEARNING_RATE)
    contender.losses(steps)
    return {name: parameter.detach().double() - weights[name].view(parameter.shape)
            for name, parameter in contender.model.named_parameters()}


def measure_far(contenders, name, folder, part, steps):
    tensors = json.loads((pathlib.Path(folder) / "work.json").read_text())["tensors"]
    weights, moved = (read_weights(pathlib.Path(folder) / file, tensors) for file in ("weights", "moved"))
    exact, found = (move(contenders[way], weights, part, steps) for way in ("float64", name))
    yoke = {key: (moved[key].double() - weights[key]).view(way.shape) for key, way in exact.items()}

    def far(ways):
        return (sum((ways[key] - way).square().sum() for key, way in exact.items()) /
                sum(way.square().sum() for way in exact.values())).sqrt().item()

    return {"far": far(found), "yoke": far(yoke)}


def describe():
    onednn = re.search(r"MKL-DNN v([\w.]+)", torch.__config__.show())
    return {"torch": torch.__version__, "onednn": onednn and onednn[1], "threads": torch.get_num_threads(),
            "capability": torch.backends.cpu.get_cpu_capability()}


def open_contender(contenders, name, folder):
    parts = read_part(folder)
    contender = contenders[name] = Exact(*parts) if name == "float64" else Contender(*parts, name)
    return {"update": next((key if on else "single tensor" for key, on in contender.update.items()), "default"),
            "parameters": sum(values.numel() for values in contender.model.parameters())}


def close_contender(contenders, name):
    del contenders[name]
    torch.compiler.reset()
    gc.collect()
    return {}


def answer(contenders, verb, name="", argument="", part="", steps=""):
    if verb == "hello":
        return describe()
    if verb == "open":
        return open_contender(contenders, name, argument)
    if verb == "losses":
        return {"losses": contenders[name].losses(int(argument))}
    if verb == "far":
        return measure_far(contenders, name, argument, float(part), int(steps))
    if verb == "steps":
        return {"ms": contenders[name].steps(int(argument))}
    return close_contender(contenders, name)


def main():
    threads, ranks = sys.argv[1], sys.argv[2:]
    torch.set_num_threads(int(threads))
    answers = open_answers()
    if ranks:
        dist.init_process_group("gloo", init_method=f"file://{ranks[2]}", rank=int(ranks[0]),
                                world_size=int(ranks[1]), timeout=datetime.timedelta(seconds=LOST_RANK_S))
    serve(answers, functools.partial(answer, {}))


if __name__ == "__main__":
    main()
