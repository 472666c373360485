# SPDX-License-Identifier: Apache-2.0
"""The other side of the race: ways to take a training step in PyTorch, and JAX's."""
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from pytorch_models import MODELS, input_of
from pytorch_race import Driven, DrivenError

JAX_WORKER = pathlib.Path(__file__).with_name("jax_worker.py")

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 1e-3, 0.9, 5e-4  # as `yoke bench`


# What `yoke bench --drive` writes.


def read_weights(path, tensors):
    """{state_dict name: flat tensor}; tensors: [name, count] in the order of the file"""
    with open(path, "rb") as file:
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    return dict(zip((name for name, _ in tensors), torch.split(values, [count for _, count in tensors])))


def read_batch(path, values, setup):
    """inputs of as many values, as the model reads them; labels, of text [rows, tokens]"""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    inputs = torch.frombuffer(data, dtype=torch.float32, count=values)
    labels = torch.frombuffer(data, dtype=torch.int32, offset=4 * values)
    inputs = input_of(setup.model, inputs, setup.side)
    return inputs, labels.long().view(len(inputs), -1).squeeze(1)


# Contenders.


class Eager:
    """A training step as PyTorch's tutorials write it, at its best settings: the batch comes from
    pinned memory without waiting, the optimizer is fused, nothing asks for the loss."""

    def __init__(self, setup, work, channels_last=False):
        self.setup, self.cuda = setup, torch.cuda.is_available() and not work.fake
        self.device = "cuda" if self.cuda else "cpu"
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.set_precision()
        self.model = MODELS[setup.model]()
        load(self.model, work.weights)
        self.model = self.model.to(self.device, memory_format=self.format)
        self.inputs = self.pinned(work.inputs.contiguous(memory_format=self.format))
        self.labels = self.pinned(work.labels)
        self.optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, MOMENTUM,
                                         weight_decay=WEIGHT_DECAY, **({"fused": True} if self.cuda else {}))
        self.call = self.model

    def set_precision(self):
        tf32 = self.setup.precision != "float32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True

    def pinned(self, tensor):
        return tensor.pin_memory() if self.cuda else tensor

    def loss(self, inputs, labels):
        half = self.setup.precision == "bfloat16"
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=half):
            return F.cross_entropy(self.call(inputs), labels.flatten())

    def step(self):
        inputs = self.inputs.to(self.device, non_blocking=True)
        labels = self.labels.to(self.device, non_blocking=True)
        loss = self.loss(inputs, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def losses(self, count):
        self.set_precision()
        return [self.step().item() for _ in range(count)]

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()

    def steps(self, count):
        """Milliseconds of one of `count` steps, from an idle device to an idle device."""
        self.set_precision()
        self.wait()
        begin = time.monotonic()
        for _ in range(count):
            self.step()
        self.wait()
        return (time.monotonic() - begin) * 1e3 / count

    def close(self):
        """Nothing holds more than its memory."""


class DataParallel(Eager):
    """nn.DataParallel with all replicas on one GPU."""

    def __init__(self, setup, work):
        super().__init__(setup, work)
        self.call = nn.DataParallel(self.model, device_ids=[0] * setup.devices)


class Compiled(Eager):
    """torch.compile in its default mode, of the model and its loss."""

    def __init__(self, setup, work):
        super().__init__(setup, work, channels_last=setup.model != "mlp")
        self.compiled = torch.compile(super().loss)

    def loss(self, inputs, labels):
        return self.compiled(inputs, labels)


class Graph(Eager):
    """The whole step in one CUDA graph; only the batch is copied in from outside."""

    def __init__(self, setup, work):
        super().__init__(setup, work, channels_last=setup.model != "mlp")
        self.static_inputs = self.inputs.to(self.device)
        self.static_labels = self.labels.to(self.device)
        self.capture()
        load(self.model, work.weights)
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()

    def update(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.static_inputs, self.static_labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self):
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(11):
                self.update()
        torch.cuda.current_stream().wait_stream(aside)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.static_loss = self.update()

    def step(self):
        self.static_inputs.copy_(self.inputs, non_blocking=True)
        self.static_labels.copy_(self.labels, non_blocking=True)
        self.graph.replay()
        return self.static_loss


class Jax:
    """bench/jax_worker.py: a step under jit and shard_map over one device."""

    def __init__(self, _setup, work):
        self.worker = Driven("JAX", [sys.executable, JAX_WORKER, *(["--fake"] if work.fake else [])])
        try:
            self.version = self.worker.ask("open", work.folder)["jax"]
        except DrivenError:
            self.worker.close()
            raise

    def losses(self, count):
        return self.worker.ask("losses", count)["losses"]

    def steps(self, count):
        return self.worker.ask("steps", count)["ms"]

    def close(self):
        self.worker.close()


def load(model, weights):
    """In place: what is captured or compiled goes on with the same memory."""
    state = model.state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            if name.endswith("num_batches_tracked"):
                tensor.zero_()
            else:
                tensor.copy_(weights[name].view(tensor.shape))
