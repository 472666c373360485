#!/usr/bin/env python3
"""Lesson 2 in PyTorch: what the lock of Python's interpreter does to nn.DataParallel's threads.

parallel_apply() calls each replica in a thread of its own. This script does the same on the CPU, with one core for a
kernel, a network of many small layers and few rows. Needs no GPU.
"""
import copy
import os
import threading
import time

os.environ["OMP_NUM_THREADS"] = "1"  # a kernel takes one core, so that threads could run beside each other

import torch
from torch import nn

LAYERS, ROUNDS = 60, 40


def forward_ms(replicas, inputs):
    """The least of several rounds, in which each replica runs in a thread of its own."""
    least = float("inf")
    for _ in range(ROUNDS):
        threads = [threading.Thread(target=replica, args=(inputs,)) for replica in replicas]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        least = min(least, 1e3 * (time.perf_counter() - begin))
    return least


def main():
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(LAYERS)])
    inputs = torch.randn(2, 32)
    cores = len(os.sched_getaffinity(0))
    print("replicas  forward ms  against one  with a core each and no lock")
    one = forward_ms([model], inputs)
    for count in (1, 2, 4):
        took = forward_ms([copy.deepcopy(model) for _ in range(count)], inputs)
        print(f"{count:8}{took:12.2f}{took / one:13.2f}{max(1, count / cores):30.2f}")


if __name__ == "__main__":
    main()
