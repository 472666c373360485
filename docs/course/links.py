#!/usr/bin/env python3
"""Lesson 6 in PyTorch: latency and bandwidth of a link, from the times of all-reduces of two sizes.

Two processes on this machine, over gloo: their "link" is memory and the loopback network. On a cluster, start the
ranks with torchrun and take init_method="env://": then the figures are those of its network.
"""
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS, ROUNDS = 2, 30
SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20]


def all_reduce_s(size):
    """The least of several rounds; other programs only make them longer."""
    values, least = torch.ones(size // 4), float("inf")
    for _ in range(ROUNDS):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(values)
        least = min(least, time.perf_counter() - begin)
    return least


def run_rank(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    times = [all_reduce_s(size) for size in SIZES]
    if rank == 0:
        for size, seconds in zip(SIZES, times):
            print(f"{size >> 10:6} KiB {1e3 * seconds:9.3f} ms")
        # A ring of N takes 2 (N - 1) (latency + bytes / (N bandwidth)).
        passes = 2 * (RANKS - 1)
        bandwidth = passes * (SIZES[-1] - SIZES[0]) / RANKS / (times[-1] - times[0])
        latency = max(0.0, times[0] / passes - SIZES[0] / RANKS / bandwidth)
        print(f"yoke simulate PROFILE --link {bandwidth / 1e9:.2f},{1e6 * latency:.0f}")
    dist.barrier()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, args=(f"{folder}/store",), nprocs=RANKS)


if __name__ == "__main__":
    main()
