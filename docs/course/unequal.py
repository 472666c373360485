#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lesson 7 in PyTorch: rows dealt by measured speed. Needs no GPU.

Two workers take turns on one core, so that they do not disturb each other. Worker 1 counts its time three times. A
step ends when the slower one is done.
"""
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

ROWS, SLOW, ROUNDS = 256, (1, 3), 5
torch.set_num_threads(1)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))


def gradient_of(model, inputs, labels):
    """The gradient of the sum over these rows."""
    loss = cross_entropy(model(inputs), labels, reduction="sum")
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(model.parameters()))])


def step(model, inputs, labels, deal):
    """The milliseconds of each worker, and each worker's sum of gradients."""
    times, sums = [], []
    for slow, rows, targets in zip(SLOW, inputs.split(deal), labels.split(deal)):
        least = float("inf")
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            total = gradient_of(model, rows, targets)
            least = min(least, 1e3 * (time.perf_counter() - begin))
        times.append(slow * least)
        sums.append(total)
    return times, sums


def dealt(times, deal):
    """As many rows for each worker that all are done at the same time, if a row takes as long as it took."""
    speeds = [rows / took for rows, took in zip(deal, times)]
    first = round(ROWS * speeds[0] / sum(speeds))
    return [first, ROWS - first]


def main():
    model = make_model()
    inputs, labels = torch.randn(ROWS, 512), torch.randint(10, (ROWS,))
    whole = gradient_of(model, inputs, labels) / ROWS
    deal = [ROWS // 2, ROWS // 2]
    for _ in range(3):
        times, sums = step(model, inputs, labels, deal)
        right = (sum(sums) / ROWS - whole).abs().max()
        wrong = (sum(total / rows for total, rows in zip(sums, deal)) / len(deal) - whole).abs().max()
        print(f"rows {deal[0]:3} + {deal[1]:3}: {times[0]:6.2f} and {times[1]:6.2f} ms; off by {right:.0e} if divided by "
              f"all rows, by {wrong:.0e} as a mean of means")
        deal = dealt(times, deal)


if __name__ == "__main__":
    main()
