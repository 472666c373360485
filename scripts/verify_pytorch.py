#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a recorded run again in PyTorch, from its initial weights and on its batches.

usage: verify_pytorch.py RECORDED OUTPUT [float32|float64]

RECORDED is a file of `yoke verify --record`; compare OUTPUT with `yoke verify --against`. Needs PyTorch alone.
"""
import json
import mmap
import struct
import sys

import torch
import torch.nn.functional as F

TYPES = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32}
NAMES = {kind: name for name, kind in TYPES.items()}


def load(path):
    """The tensors and the metadata of a safetensors file."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__")
    return {name: torch.frombuffer(data, dtype=TYPES[entry["dtype"]], offset=begin + entry["data_offsets"][0],
                                   count=torch.Size(entry["shape"]).numel()).reshape(entry["shape"])
            for name, entry in header.items()}, metadata


def save(path, tensors, metadata):
    header, end = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        bytes_ = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + bytes_]}
        end += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().numpy().tobytes())


class Model:
    """Yoke's presets, from the names and shapes of their tensors: torchvision's ResNets, and an MLP."""

    def __init__(self, tensors):
        self.p = tensors

    def conv(self, x, name, stride):
        weight = self.p[name + ".weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[2] // 2)

    def norm(self, x, name):
        mean, variance, weight, bias = (self.p[f"{name}.{part}"]
                                        for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, mean, variance, weight, bias, training=True)

    def block(self, x, name, stride):
        bottleneck = name + "conv3.weight" in self.p
        y = F.relu(self.norm(self.conv(x, name + "conv1", 1 if bottleneck else stride), name + "bn1"))
        y = self.norm(self.conv(y, name + "conv2", stride if bottleneck else 1), name + "bn2")
        if bottleneck:
            y = self.norm(self.conv(F.relu(y), name + "conv3", 1), name + "bn3")
        if name + "downsample.0.weight" in self.p:
            x = self.norm(self.conv(x, name + "downsample.0", stride), name + "downsample.1")
        return F.relu(y + x)

    def __call__(self, x):
        p = self.p
        if "fc1.weight" in p:
            for name in ("fc1", "fc2"):
                x = F.relu(F.linear(x.flatten(1), p[name + ".weight"], p[name + ".bias"]))
            return F.linear(x, p["fc3.weight"], p["fc3.bias"])
        large = p["conv1.weight"].shape[2] == 7
        x = F.relu(self.norm(self.conv(x, "conv1", 2 if large else 1), "bn1"))
        x = F.max_pool2d(x, 3, 2, 1) if large else x
        for stage in range(1, 5):
            index = 0
            while f"layer{stage}.{index}.conv1.weight" in p:
                x = self.block(x, f"layer{stage}.{index}.", 2 if index == 0 and stage > 1 else 1)
                index += 1
        return F.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])


class Run:
    """One run in one precision, from the first weights of a recorded one and on its batches."""

    def __init__(self, recorded, metadata, kind):
        self.recorded, self.kind = recorded, kind
        self.tensors = {name[len("step_000000/"):]: tensor.to(kind, copy=True) for name, tensor in recorded.items()
                        if name.startswith("step_000000/")}
        self.model = Model(self.tensors)
        self.weights = [name for name in self.tensors if "running_" not in name]
        parameters = [self.tensors[name].requires_grad_() for name in self.weights]
        rate, momentum, decay, beta1, beta2, epsilon = (float(metadata[key]) for key in (
            "learning_rate", "momentum", "weight_decay", "beta1", "beta2", "epsilon"))
        of, name = torch.optim, metadata["optimizer"]
        if name in ("lion", "lamb"):
            raise SystemExit(f"verify_pytorch: torch.optim has no {name} to compare with")
        if name == "muon":
            raise SystemExit("verify_pytorch: torch.optim.Muon multiplies in bfloat16, which says nothing of a run in float32; "
                             "the float64 reference of yoke verify does")
        if name == "sgd":
            self.optimizer = of.SGD(parameters, rate, momentum, weight_decay=decay)
        elif name == "rmsprop":
            self.optimizer = of.RMSprop(parameters, rate, float(metadata["alpha"]), epsilon, decay, momentum)
        elif name == "adagrad":
            self.optimizer = of.Adagrad(parameters, rate, weight_decay=decay, eps=epsilon)
        else:
            kind = of.Adam if name == "adam" else of.AdamW
            self.optimizer = kind(parameters, rate, (beta1, beta2), epsilon, decay)

    def follow(self, step):
        """Takes the weights that the recorded run had after a step."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(self.recorded[f"step_{step:06d}/{name}"])

    def step(self, step):
        inputs, labels = (self.recorded[f"batch_{step:06d}/{part}"] for part in ("inputs", "labels"))
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(inputs.to(self.kind)), labels.long()).backward()
        self.optimizer.step()

    def after(self, step):
        """Copies of all tensors, and of the gradients, by their names in a file."""
        found = {f"step_{step:06d}/{name}": tensor.detach().clone() for name, tensor in self.tensors.items()}
        if step > 0:
            found.update({f"gradient_{step:06d}/{name}": self.tensors[name].grad.clone() for name in self.weights})
        return found


def main():
    recorded, metadata = load(sys.argv[1])
    if float(metadata["shards"]) > 0:
        sys.exit("%s: a run with --shards; record it without" % sys.argv[1])
    if metadata["model"] == "mlp-dropout":
        sys.exit("%s: a run of mlp-dropout, whose masks PyTorch does not draw; record mlp" % sys.argv[1])
    run = Run(recorded, metadata, getattr(torch, sys.argv[3] if len(sys.argv) > 3 else "float32"))
    steps, every = int(metadata["steps"]), int(metadata["every"])
    written = run.after(0)
    for step in range(1, steps + 1):
        run.step(step)
        if step % every == 0 or step == steps:
            written.update(run.after(step))
    save(sys.argv[2], written, {**metadata, "writer": "pytorch " + torch.__version__})


if __name__ == "__main__":
    main()
