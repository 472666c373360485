# SPDX-License-Identifier: Apache-2.0
"""The other side of the race: ways to take a training step in PyTorch."""
import json
import pathlib
import time
import types

import torch
import torch.nn.functional as F
from torch import nn

from gpu_rows import Setup
from pytorch_models import input_of, make_model, reads_text

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 1e-3, 0.9, 5e-4  # as `yoke bench`


# What `yoke bench --drive` writes.


def read_weights(path, tensors):
    """{state_dict name: flat tensor}; tensors: [name, count, shape] in the order of the file"""
    with open(path, "rb") as file:
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    return dict(zip((name for name, *_ in tensors), torch.split(values, [count for _, count, _ in tensors])))


def read_batch(path, values, setup):
    """inputs of as many values, as the model reads them; labels, of text [rows, tokens]"""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    inputs = torch.frombuffer(data, dtype=torch.float32, count=values)
    labels = torch.frombuffer(data, dtype=torch.int32, offset=4 * values)
    inputs = input_of(setup, inputs)
    return inputs, labels.long().view(len(inputs), -1).squeeze(1)


def read_work(folder, fake):
    """(setup, its weights and batch), as the race left them; fake: the CPU computes"""
    folder = pathlib.Path(folder)
    told = json.loads((folder / "work.json").read_text())
    setup = Setup(*told["setup"])
    inputs, labels = read_batch(folder / "batch", told["values"], setup)
    return setup, types.SimpleNamespace(fake=fake, weights=read_weights(folder / "weights", told["tensors"]),
                                        inputs=inputs, labels=labels)


# How a batch gets to the device.


class OnHost:
    """The CPU reads the batch where it is."""

    def __init__(self, *parts):
        self.parts = parts

    def take(self):
        return self.parts

    def release(self):
        """Nothing waits for the batch."""


class Prefetched:
    """The next step's batch travels while this step computes: from pinned memory, on a stream of its own, into
    the one of two buffers that this step does not read."""

    def __init__(self, *parts):
        self.pinned = [part.pin_memory() for part in parts]
        self.stream = torch.cuda.Stream()
        self.buffers = [[part.to("cuda") for part in parts] for _ in range(2)]
        self.arrived, self.read = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))
        self.now = 0
        torch.cuda.synchronize()  # the buffers exist before another stream writes them
        self.upload(0)

    def upload(self, to):
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.read[to])
            for buffer, part in zip(self.buffers[to], self.pinned):
                buffer.copy_(part, non_blocking=True)
            self.arrived[to].record()

    def take(self):
        torch.cuda.current_stream().wait_event(self.arrived[self.now])
        self.upload(1 - self.now)
        return self.buffers[self.now]

    def release(self):
        """All that reads the batch is queued."""
        self.read[self.now].record()
        self.now = 1 - self.now


# Contenders.


class Eager:
    """A training step as PyTorch's tutorials write it, at its best settings: the batch is prefetched, the
    optimizer is fused, nothing asks for the loss."""

    def __init__(self, setup, work, channels_last=False):
        self.setup, self.cuda = setup, torch.cuda.is_available() and not work.fake
        self.device = "cuda" if self.cuda else "cpu"
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.set_precision()
        self.model = make_model(setup)
        load(self.model, work.weights)
        self.model = self.model.to(self.device, memory_format=self.format)
        self.inputs, self.labels = work.inputs.contiguous(memory_format=self.format), work.labels
        self.batch = (Prefetched if self.cuda else OnHost)(self.inputs, self.labels)
        self.optimizer = torch.optim.SGD(self.model.parameters(), setup.rate or LEARNING_RATE, MOMENTUM,
                                         weight_decay=WEIGHT_DECAY, **({"fused": True} if self.cuda else {}))
        self.call = self.model

    def set_precision(self):
        tf32 = self.setup.precision != "float32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True

    def settings(self):
        """What may explain other losses."""
        return {"cudnn.benchmark": torch.backends.cudnn.benchmark,
                "cudnn.deterministic": torch.backends.cudnn.deterministic,
                "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
                "float32_matmul_precision": torch.get_float32_matmul_precision()}

    def loss(self, inputs, labels):
        half = self.setup.precision == "bfloat16"
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=half):
            return F.cross_entropy(self.call(inputs), labels.flatten())

    def step(self):
        loss = self.loss(*self.batch.take())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.batch.release()
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


def reads_images(setup):
    return setup.model != "mlp" and not reads_text(setup)


class ChannelsLast(Eager):
    def __init__(self, setup, work):
        super().__init__(setup, work, channels_last=True)


class DataParallel(Eager):
    """nn.DataParallel with all replicas on one GPU."""

    def __init__(self, setup, work):
        super().__init__(setup, work)
        self.call = nn.DataParallel(self.model, device_ids=[0] * setup.devices)


class Compiled(Eager):
    """torch.compile in its default mode, of the model and its loss."""

    def __init__(self, setup, work):
        super().__init__(setup, work, channels_last=reads_images(setup))
        self.compiled = torch.compile(super().loss)

    def loss(self, inputs, labels):
        return self.compiled(inputs, labels)


class Graph(Eager):
    """The whole step in one CUDA graph; only the batch is copied in from outside."""

    def __init__(self, setup, work):
        super().__init__(setup, work, channels_last=reads_images(setup))
        self.static = [part.to(self.device) for part in (self.inputs, self.labels)]
        self.capture()
        load(self.model, work.weights)
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()

    def update(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(*self.static)
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
        for static, part in zip(self.static, self.batch.take()):
            static.copy_(part)
        self.batch.release()
        self.graph.replay()
        return self.static_loss


CONTENDERS = {"eager": Eager, "eager channels_last": ChannelsLast, "graph": Graph, "compile": Compiled,
              "data_parallel": DataParallel}


def load(model, weights):
    """In place: what is captured or compiled goes on with the same memory."""
    state = model.state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            if name.endswith("num_batches_tracked"):
                tensor.zero_()
            else:
                tensor.copy_(weights[name].view(tensor.shape))
