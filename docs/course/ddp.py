#!/usr/bin/env python3
"""Lesson 5 in PyTorch: DistributedDataParallel with two processes on the CPU, over gloo, beside one process.

Needs no GPU. On GPUs a rank would take backend="nccl" and move model and rows to cuda:rank.
"""
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS, ROWS = 2, 5, 16


def train(rank, ranks, wrap):
    """The model after STEPS steps on every `ranks`-th part of the batches, and its optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    trained = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        inputs, labels = torch.randn(ROWS, 32), torch.randint(10, (ROWS,))  # the same on all ranks: the same seed
        loss = cross_entropy(trained(inputs.chunk(ranks)[rank]), labels.chunk(ranks)[rank])
        optimizer.zero_grad()
        loss.backward()  # with DDP, an all-reduce of each bucket of gradients hides in here
        optimizer.step()  # every rank updates the whole model
    return model, optimizer


def flat(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def momentum_bytes(optimizer):
    return sum(4 * state["momentum_buffer"].numel() for state in optimizer.state.values())


def run_rank(rank, store, folder):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    model, optimizer = train(rank, RANKS, DistributedDataParallel)
    torch.save({"weights": flat(model), "momentum": momentum_bytes(optimizer)}, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, args=(f"{folder}/store", folder), nprocs=RANKS)
        ranks = [torch.load(pathlib.Path(folder) / f"{rank}.pt") for rank in range(RANKS)]
    alone, _ = train(0, 1, lambda model: model)
    for number, rank in enumerate(ranks):
        print(f"rank {number}: momentum of {rank['momentum']} bytes, "
              f"largest difference from one process {(rank['weights'] - flat(alone)).abs().max():.1e}")
    print(f"the ranks have the same bits: {torch.equal(ranks[0]['weights'], ranks[1]['weights'])}")


if __name__ == "__main__":
    main()
