#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lesson 10 in PyTorch: gradients that four workers make smaller before they send them. Needs no GPU.

One thread plays all workers, so that every run ends with the same bits. A compressor returns what the root receives of
an array and how many bytes that was. With error feedback (Seide et al. 2014, Karimireddy et al. 2019) a worker adds to
its next gradient what was left out of this one.

usage: compression.py [FIGURE.svg]
"""
import pathlib
import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy

WORKERS, ROWS, STEPS, RATE = 4, 32, 300, 0.1
torch.set_num_threads(1)


def whole(gradient):
    return gradient, 4 * gradient.numel()


def bfloat16(gradient):
    """The first 16 of 32 bits, rounded: 8 bits of the number, float32's range."""
    return gradient.bfloat16().float(), 2 * gradient.numel()


def top(share):
    """Only the largest values: 4 bytes each, and 4 more for where it belongs."""
    def compress(gradient):
        count = max(1, int(share * gradient.numel()))
        places = gradient.abs().topk(count).indices
        sent = torch.zeros_like(gradient)
        sent[places] = gradient[places]
        return sent, 8 * count
    return compress


def sign(gradient):
    """A bit for each value, and one length for all."""
    return gradient.abs().mean() * gradient.sign(), gradient.numel() // 8 + 4


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def rows_of_a_teacher():
    """Inputs, and the labels that another network gives them."""
    torch.manual_seed(1)
    teacher = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    inputs = torch.randn(8192, 64)
    return inputs, teacher(inputs).argmax(1)


def train(compress, feedback):
    """The loss of each step, and the bytes that a worker sends in one."""
    (inputs, labels), model = rows_of_a_teacher(), make_model()
    parameters = list(model.parameters())
    left = [torch.zeros(sum(parameter.numel() for parameter in parameters)) for _ in range(WORKERS)]
    draws, losses = torch.Generator().manual_seed(2), []
    for _ in range(STEPS):
        total, mean = torch.zeros_like(left[0]), 0
        for worker in range(WORKERS):
            rows = torch.randint(len(inputs), (ROWS,), generator=draws)
            loss = cross_entropy(model(inputs[rows]), labels[rows])
            gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, parameters)])
            gradient += left[worker]
            sent, size = compress(gradient)
            if feedback:
                left[worker] = gradient - sent
            total += sent / WORKERS
            mean += loss.item() / WORKERS
        weights = nn.utils.parameters_to_vector(parameters).detach() - RATE * total
        nn.utils.vector_to_parameters(weights, parameters)
        losses.append(mean)
    return losses, size


def main():
    ways = [("float32", whole, False), ("bfloat16", bfloat16, False), ("bfloat16, feedback", bfloat16, True),
            ("top 1 %", top(0.01), False), ("top 1 %, feedback", top(0.01), True),
            ("sign", sign, False), ("sign, feedback", sign, True)]
    print("what is sent         bytes  of float32  loss, last 50 steps")
    curves, full = [], None
    for name, compress, feedback in ways:
        losses, size = train(compress, feedback)
        full = full or size
        print(f"{name:19}{size:7}{size / full:11.1%}{sum(losses[-50:]) / 50:12.4f}")
        curves.append((name, losses))
    if len(sys.argv) > 1:
        import draw
        kinds = {"float32": "text", "top 1 %": "strong", "top 1 %, feedback": "quiet"}
        shown = [(name, kinds[name], [(at, sum(losses[max(0, at - 20):at]) / min(at, 20)) for at in range(5, STEPS + 1, 5)])
                 for name, losses in curves if name in kinds]
        draw.lines(pathlib.Path(sys.argv[1]), "One value in a hundred is enough, if the rest is not forgotten",
                   "Loss against the number of the step: float32 and the largest hundredth with error feedback fall "
                   "together, without feedback the loss falls more slowly.", shown, ("step", "loss, mean of 20 steps"))


if __name__ == "__main__":
    main()
