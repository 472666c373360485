#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX's contender, in a process of its own that serves requests: a training step under jit and shard_map
over one device, the same model, weights, batch and update as PyTorch's contenders.

usage: jax_worker.py [--fake]     --fake: on the CPU

Requests come on stdin, a line each, and answers go to stdout, as those of `yoke bench --drive`:
  hello               JAX's version and its device
  open NAME FOLDER    what Yoke wrote, with work.json: the setup, each tensor's name, count and shape, the batch's values
  losses NAME N       of the next N steps
  steps NAME N        mean milliseconds of N steps
"""
import functools
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others need the GPU's memory, too
if "--fake" in sys.argv:
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gpu_rows import Setup
from served_requests import open_answers, serve

try:
    from jax import shard_map
    UNCHECKED = {"check_vma": False}  # gradients of weights are each device's own until pmean
except ImportError:  # until JAX 0.6
    from jax.experimental.shard_map import shard_map
    UNCHECKED = {"check_rep": False}

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 1e-3, 0.9, 5e-4  # as `yoke bench`
EPSILON, KEPT = 1e-5, 0.9  # of batch norm: what running statistics keep
# model: blocks of each stage, bottleneck, a stem for large images
RESNETS = {"resnet18-cifar": ((2, 2, 2, 2), False, False), "resnet50": ((3, 4, 6, 3), True, True),
           "resnet20": ((3, 3, 3), False, False)}
ALL, ROWS = PartitionSpec(), PartitionSpec("rows")


# Models: weights by PyTorch's names and layouts, values [rows, height, width, channels].


def convolve(weights, name, x, stride):
    kernel = weights[name + ".weight"]
    margin = kernel.shape[-1] // 2
    return lax.conv_general_dilated(x, kernel.astype(x.dtype), (stride, stride), [(margin, margin)] * 2,
                                    dimension_numbers=("NHWC", "OIHW", "NHWC"))


def normalize(weights, state, name, x):
    """Batch norm over this device's rows; `state` gets the running statistics."""
    wide = x.astype(jnp.float32)
    mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    count = x.size // x.shape[-1]
    for key, value in (("running_mean", mean), ("running_var", variance * count / max(count - 1, 1))):
        state[f"{name}.{key}"] = KEPT * weights[f"{name}.{key}"] + (1 - KEPT) * value
    scale = weights[name + ".weight"] * lax.rsqrt(variance + EPSILON)
    return ((wide - mean) * scale + weights[name + ".bias"]).astype(x.dtype)


def linear(weights, name, x):
    return x @ weights[name + ".weight"].astype(x.dtype).T + weights[name + ".bias"].astype(x.dtype)


def block(weights, state, name, x, stride, bottleneck, project):
    strides = (1, stride, 1) if bottleneck else (stride, 1)
    y = x
    for i, step in enumerate(strides, 1):
        y = normalize(weights, state, f"{name}.bn{i}", convolve(weights, f"{name}.conv{i}", y, step))
        if i < len(strides):
            y = jax.nn.relu(y)
    if project:
        x = normalize(weights, state, name + ".downsample.1", convolve(weights, name + ".downsample.0", x, stride))
    return jax.nn.relu(x + y)


def resnet(weights, state, x, blocks, bottleneck, large):
    x = jax.nn.relu(normalize(weights, state, "bn1", convolve(weights, "conv1", x, 2 if large else 1)))
    if large:
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    for stage, count in enumerate(blocks):
        for i in range(count):
            stride = 2 if i == 0 and stage > 0 else 1
            project = i == 0 and (stage > 0 or bottleneck)
            x = block(weights, state, f"layer{stage + 1}.{i}", x, stride, bottleneck, project)
    return linear(weights, "fc", x.mean((1, 2)))


def mlp(weights, _state, x):
    x = x.reshape(len(x), -1)
    for name in ("fc1", "fc2"):
        x = jax.nn.relu(linear(weights, name, x))
    return linear(weights, "fc3", x)


# A step.


def loss_of(weights, statistics, inputs, labels, model, half):
    """(loss, running statistics)"""
    state, x = {}, inputs.astype(jnp.bfloat16 if half else jnp.float32)
    known = {**statistics, **weights}
    if model in RESNETS:
        outputs = resnet(known, state, x, *RESNETS[model])
    else:
        outputs = mlp(known, state, x)
    chances = jax.nn.log_softmax(outputs.astype(jnp.float32))
    return -jnp.take_along_axis(chances, labels[:, None], 1).mean(), state


def train(weights, momenta, statistics, inputs, labels, *, model, half):
    values = jax.value_and_grad(loss_of, has_aux=True)
    (loss, statistics), gradients = values(weights, statistics, inputs, labels, model, half)
    loss, gradients = lax.pmean((loss, gradients), "rows")
    momenta = jax.tree.map(lambda m, g, w: MOMENTUM * m + g + WEIGHT_DECAY * w, momenta, gradients, weights)
    weights = jax.tree.map(lambda w, m: w - LEARNING_RATE * m, weights, momenta)
    return weights, momenta, statistics, loss


class Contender:
    def __init__(self, folder):
        work = json.loads((folder / "work.json").read_text())
        self.setup = Setup(*work["setup"])
        # jit keys on it: set for the whole process, which has one contender
        jax.config.update("jax_default_matmul_precision",
                          {"tf32": "tensorfloat32", "float32": "float32"}.get(self.setup.precision))
        mesh = Mesh(numpy.array(jax.devices()[:1]), ("rows",))
        self.everywhere, self.by_rows = NamedSharding(mesh, ALL), NamedSharding(mesh, ROWS)
        self.read_weights(folder, work["tensors"])
        self.read_batch(folder, work["values"])
        step = functools.partial(train, model=self.setup.model, half=self.setup.precision == "bfloat16")
        sharded = shard_map(step, mesh=mesh, in_specs=(ALL, ALL, ALL, ROWS, ROWS),
                            out_specs=(ALL, ALL, ALL, ALL), **UNCHECKED)
        self.call = jax.jit(sharded, donate_argnums=(0, 1, 2))

    def read_weights(self, folder, tensors):
        values, begin = numpy.fromfile(folder / "weights", numpy.float32), 0
        weights, statistics = {}, {}
        for name, count, shape in tensors:
            end = begin + count
            part = jax.device_put(values[begin:end].reshape(shape), self.everywhere)
            (statistics if ".running_" in name else weights)[name] = part
            begin = end
        self.state = [weights, jax.tree.map(jnp.zeros_like, weights), statistics]

    def read_batch(self, folder, count):
        """In pinned memory where this device has such."""
        bytes_of = (folder / "batch").read_bytes()
        labels = numpy.frombuffer(bytes_of, numpy.int32, offset=4 * count)
        channels, usual = (1, 28) if self.setup.model == "mlp" else (3, 32)
        side = self.setup.side or usual
        inputs = numpy.frombuffer(bytes_of, numpy.float32, count).reshape(-1, channels, side, side)
        self.batch = [numpy.ascontiguousarray(inputs.transpose(0, 2, 3, 1)), labels]
        try:
            self.batch = [jax.device_put(part, self.by_rows.with_memory_kind("pinned_host")) for part in self.batch]
        except ValueError:
            pass

    def step(self):
        *self.state, loss = self.call(*self.state, *(jax.device_put(part, self.by_rows) for part in self.batch))
        return loss

    def losses(self, count):
        return [float(self.step()) for _ in range(count)]

    def steps(self, count):
        jax.block_until_ready(self.state)
        begin = time.monotonic()
        for _ in range(count):
            self.step()
        jax.block_until_ready(self.state)
        return (time.monotonic() - begin) * 1e3 / count


def hello():
    if "--fake" not in sys.argv and jax.default_backend() == "cpu":
        raise RuntimeError("this JAX finds no GPU")
    return {"jax": jax.__version__, "device": str(jax.devices()[0])}


def answer(contenders, verb, name="", argument=""):
    if verb == "hello":
        return hello()
    if verb == "open":
        contenders[name] = Contender(pathlib.Path(argument))
        return {}
    if verb == "losses":
        return {"losses": contenders[name].losses(int(argument))}
    return {"ms": contenders[name].steps(int(argument))}


def main():
    serve(open_answers(), functools.partial(answer, {}))


if __name__ == "__main__":
    main()
