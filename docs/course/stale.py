#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lesson 9 in PyTorch: asynchronous SGD with two workers, whose pushes come in an order that is written down; and the
largest rate with which stale gradients still lead to the minimum.

One thread plays all of them, so that a second run in the same order repeats the first one, bit for bit.

usage: stale.py [FIGURE.svg]
"""
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy

WORKERS, STEPS, ROWS, RATE = 2, 12, 16, 0.1
FAIR = [0, 1] * (STEPS // 2)
UNFAIR = [0, 0, 0, 1] * (STEPS // 4)  # worker 1 takes three times as long
RATE_OF_FIGURE = 0.36


def flat(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def train(order):
    """The server's weights after its updates, and how stale each push was."""
    torch.manual_seed(0)
    server = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    batches = [(torch.randn(ROWS, 32), torch.randint(10, (ROWS,))) for _ in range(STEPS + WORKERS)]
    given, staleness = 0, []
    work = []  # of each worker: its batch, the weights that it pulled, and the server's updates then
    for _ in range(WORKERS):
        work.append((batches[given], flat(server).clone(), 0))
        given += 1
    for updates, worker in enumerate(order):
        (inputs, labels), pulled, then = work[worker]
        now = flat(server).clone()
        nn.utils.vector_to_parameters(pulled, server.parameters())  # the gradient of the weights that it pulled ...
        loss = cross_entropy(server(inputs), labels)
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(server.parameters()))])
        nn.utils.vector_to_parameters(now - RATE * gradient, server.parameters())  # ... moves those of now
        staleness.append(updates - then)
        work[worker] = (batches[given], flat(server).clone(), updates + 1)
        given += 1
    return flat(server), staleness


def descend(stale, rate, updates):
    """Gradient descent on w**2 / 2, whose gradient is w, with the gradients of weights that are `stale` updates old."""
    weights = [1.0] * (stale + 1)
    for _ in range(updates):
        weights.append(weights[-1] - rate * weights[-1 - stale])
    return weights[stale:]


def largest_rate(stale):
    """Cuts an interval in halves: below the rate the weight comes to rest in the minimum, above it swings away."""
    low, high = 0.0, 4.0
    for _ in range(30):
        rate = (low + high) / 2
        end = descend(stale, rate, 4000)[-200:]
        low, high = (rate, high) if max(map(abs, end)) < 1 else (low, rate)
    return low


def main():
    for name, order in (("fair", FAIR), ("unfair", UNFAIR)):
        weights, staleness = train(order)
        again, _ = train(order)
        print(f"{name}: staleness {staleness}, the same bits again: {torch.equal(weights, again)}")
    print("staleness  largest rate times curvature  2 sin(pi / (4 staleness + 2))")
    for stale in (0, 1, 2, 3, 7, 15):
        print(f"{stale:9}{largest_rate(stale):30.4f}{2 * math.sin(math.pi / (4 * stale + 2)):31.4f}")
    if len(sys.argv) > 1:
        import draw
        curves = [(f"staleness {stale}", kind, list(enumerate(map(abs, descend(stale, RATE_OF_FIGURE, 40)))))
                  for stale, kind in ((0, "text"), (1, "quiet"), (4, "strong"))]
        draw.lines(pathlib.Path(sys.argv[1]), "With the same rate, a gradient that is 4 updates old swings away",
                   "Distance from the minimum of a parabola against the number of the update: without staleness and "
                   "with 1 it falls to zero, with 4 it swings and grows.", curves,
                   ("update", f"distance from the minimum; rate times curvature {RATE_OF_FIGURE}"))


if __name__ == "__main__":
    main()
