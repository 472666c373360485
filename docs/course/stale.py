#!/usr/bin/env python3
"""Lesson 7 in PyTorch: asynchronous SGD with two workers, whose pushes come in an order that is written down.

One thread plays all of them, so that a second run in the same order repeats the first one, bit for bit.
"""
import torch
from torch import nn
from torch.nn.functional import cross_entropy

WORKERS, STEPS, ROWS, RATE = 2, 12, 16, 0.1
FAIR = [0, 1] * (STEPS // 2)
UNFAIR = [0, 0, 0, 1] * (STEPS // 4)  # worker 1 takes three times as long


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


def main():
    for name, order in (("fair", FAIR), ("unfair", UNFAIR)):
        weights, staleness = train(order)
        again, _ = train(order)
        print(f"{name}: staleness {staleness}, the same bits again: {torch.equal(weights, again)}")


if __name__ == "__main__":
    main()
