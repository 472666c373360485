#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lesson 12 in PyTorch: who holds what in a training step, counted in bytes, and checkpointing by hand. Needs no GPU.

Autograd keeps values of forward for backward; saved_tensors_hooks sees each of them. With checkpointing forward keeps
the inputs of ranges of layers only. Backward takes the ranges from the last to the first and runs the forward of each
again, as torch.utils.checkpoint does.
"""
import torch
from torch import nn
from torch.nn.functional import cross_entropy

LAYERS, WIDTH, ROWS = 16, 256, 1024


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)],
                         nn.Linear(WIDTH, 10))


class Kept:
    """The bytes of different arrays that wait for backward; weights do not count, they are there anyway."""

    def __init__(self, model):
        self.weights = {parameter.data_ptr() for parameter in model.parameters()}
        self.most = 0

    def see(self, tensors):
        sizes = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
        self.most = max(self.most, sum(size for place, size in sizes.items() if place not in self.weights))


def backward_of(part, inputs, others, kept, gradient=None):
    """Forward and backward of a range, while `others` wait; the gradient of its inputs."""
    saved = []

    def pack(tensor):
        saved.append(tensor)
        return tensor
    inputs = inputs.detach().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = part(inputs)
    kept.see(saved + others)
    outputs.backward(gradient)
    return inputs.grad


def step(model, inputs, labels, ranges):
    """The gradients of a step in `ranges` ranges (1: without checkpointing), and the most bytes that were kept."""
    kept, size = Kept(model), LAYERS // ranges
    parts = [model[begin:begin + size] for begin in range(0, LAYERS, size)]
    values = [inputs]  # the inputs of each range
    with torch.no_grad():
        for part in parts[:-1]:
            values.append(part(values[-1]))

    def last(inputs):
        return cross_entropy(model[-1](parts[-1](inputs)), labels)
    model.zero_grad()
    gradient = backward_of(last, values.pop(), values, kept)
    for part in reversed(parts[:-1]):
        gradient = backward_of(part, values.pop(), values, kept, gradient)
    return torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]), kept.most


def mib(size):
    return f"{size / 2**20:6.2f} MiB"


def main():
    model = make_model()
    inputs, labels = torch.randn(ROWS, WIDTH), torch.randint(10, (ROWS,))
    optimizer = torch.optim.Adam(model.parameters())
    gradients, most = step(model, inputs, labels, 1)
    optimizer.step()
    moments = [value for state in optimizer.state.values() for value in state.values() if value.dim()]
    print(f"weights         {mib(sum(4 * parameter.numel() for parameter in model.parameters()))}")
    print(f"gradients       {mib(4 * gradients.numel())}")
    print(f"Adam's moments  {mib(sum(4 * value.numel() for value in moments))}")
    for ranges in (1, 2, 4, 8, 16):
        model = make_model()
        again, fewer = step(model, inputs, labels, ranges)
        if ranges == 1:
            gradients = again
        print(f"activations     {mib(fewer)} in {ranges:2} ranges, the same bits: {torch.equal(gradients, again)}")


if __name__ == "__main__":
    main()
