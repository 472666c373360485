#!/usr/bin/env python3
"""Lesson 3 in PyTorch: replicas that stay, with all parameters in one flat buffer. Needs no GPU.

nn.DataParallel makes new replicas in every forward. Here a replica is made once; afterwards its weights are one copy,
and the gradients of all parameters are one addition.
"""
import copy
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

ROUNDS = 50


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(30) for layer in (nn.Linear(64, 64), nn.ReLU())], nn.Linear(64, 10))


def flatten(model):
    """Moves the parameters and their gradients into two buffers, with the same offsets; returns both buffers."""
    parameters = list(model.parameters())
    buffer = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    gradients = torch.zeros_like(buffer)
    offset = 0
    for parameter in parameters:
        part = slice(offset, offset + parameter.numel())
        parameter.data = buffer[part].view_as(parameter)  # a view: no memory of its own
        parameter.grad = gradients[part].view_as(parameter)
        offset = part.stop
    return buffer, gradients


def least_ms(work):
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


def main():
    root = make_model()
    replica = copy.deepcopy(root)
    pairs = [(to.detach(), of.detach()) for to, of in zip(replica.parameters(), root.parameters())]

    def one_by_one():
        for to, of in pairs:
            to.copy_(of)
    new = least_ms(lambda: copy.deepcopy(root))
    several = least_ms(one_by_one)

    weights, gradients = flatten(root)
    replica_weights, replica_gradients = flatten(replica)
    print(f"make a replica             {new:8.3f} ms")
    print(f"copy {len(pairs):3} parameters        {several:8.3f} ms")
    print(f"copy the flat buffer       {least_ms(lambda: replica_weights.copy_(weights)):8.3f} ms")

    inputs, labels = torch.randn(8, 64), torch.randint(10, (8,))
    for model, rows in ((root, slice(0, 4)), (replica, slice(4, 8))):
        (cross_entropy(model(inputs[rows]), labels[rows], reduction="sum") / len(labels)).backward()
    gradients += replica_gradients  # the reduce: one addition for the whole model
    whole = make_model()
    cross_entropy(whole(inputs), labels).backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in whole.parameters()])
    print(f"largest difference between the sum and the gradient of the whole batch: "
          f"{(gradients - expected).abs().max():.1e}")


if __name__ == "__main__":
    main()
