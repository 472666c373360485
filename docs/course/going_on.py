#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lesson 8 in PyTorch: going on after a worker has died, with the bits of a run in which nobody died. Needs no GPU.

A batch is cut into SHARDS parts, whoever computes them. The sums of the shards are added in one fixed order, so that
the number of workers changes no bit. Every EVERY steps the run keeps a copy of its state: weights, momentum, and where
it is. When a worker dies, the others take the copy and do the steps since again.
"""
import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy

SHARDS, ROWS, STEPS, EVERY = 8, 32, 40, 8
torch.set_num_threads(1)


class Died(Exception):
    pass


def rows_of(step):
    """The rows of a step follow from its number alone: who comes back to a step gets the same ones."""
    draws = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, 16, generator=draws), torch.randint(4, (ROWS,), generator=draws)


def gradient_of(model, step, workers, dies_at):
    """Worker w computes shards w, w + N, ...; the shards' sums are added from the first to the last."""
    inputs, labels = rows_of(step)
    sums = [None] * SHARDS
    for worker, name in enumerate(workers):
        if (name, step) == dies_at:
            raise Died(name)
        for shard in range(worker, SHARDS, len(workers)):
            loss = cross_entropy(model(inputs.chunk(SHARDS)[shard]), labels.chunk(SHARDS)[shard], reduction="sum")
            sums[shard] = [part / ROWS for part in torch.autograd.grad(loss, list(model.parameters()))]
    return [sum(parts[1:], parts[0]) for parts in zip(*sums)]


def train(workers, dies_at=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = again = 0
    while step < STEPS:
        if step % EVERY == 0:
            kept = copy.deepcopy((model.state_dict(), optimizer.state_dict(), step))
        try:
            gradient = gradient_of(model, step, workers, dies_at)
        except Died as death:
            workers, dies_at = [name for name in workers if name != str(death)], None
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(copy.deepcopy(kept[1]))
            again, step = step - kept[2], kept[2]
            continue
        for parameter, part in zip(model.parameters(), gradient):
            parameter.grad = part
        optimizer.step()
        step += 1
    return nn.utils.parameters_to_vector(model.parameters()).detach(), workers, again


def main():
    quiet, _, _ = train(["a", "b", "c"])
    for dies_at in (("a", 20), ("c", 39), None):
        weights, left, again = train(["a", "b", "c"], dies_at)
        print(f"left: {' '.join(left):6} steps done again: {again}, the same bits: {torch.equal(quiet, weights)}")
    alone, _, _ = train(["a"])
    print(f"one worker from the begin, the same bits: {torch.equal(quiet, alone)}")


if __name__ == "__main__":
    main()
