#!/usr/bin/env python3
"""Lesson 4 in PyTorch: buckets that travel while backward goes on. Needs no GPU.

The link is modelled: a thread that sleeps for latency + bytes / bandwidth. Backward calls a hook when the gradient of a
parameter is complete, as in DistributedDataParallel; a bucket leaves when its last gradient is complete.
"""
import queue
import threading
import time

import torch
from torch import nn

LATENCY_S, BYTES_PER_S = 2e-3, 2e8
LAYERS, WIDTH, ROWS = 24, 256, 1024
ROUNDS = 3


def cut(parameters, limit):
    """Buckets of at most `limit` bytes, in the order of backward: the last layer first."""
    buckets = [[]]
    for parameter in reversed(parameters):
        if buckets[-1] and sum(4 * other.numel() for other in buckets[-1] + [parameter]) > limit:
            buckets.append([])
        buckets[-1].append(parameter)
    return buckets


def travel(link):
    while (size := link.get()) is not None:
        time.sleep(LATENCY_S + size / BYTES_PER_S)


def step_ms(model, inputs, limit):
    """(transfers, milliseconds from the end of backward to the end of the last transfer) of one step."""
    link, hooks = queue.Queue(), []
    thread = threading.Thread(target=travel, args=(link,))
    buckets = cut(list(model.parameters()), limit)
    for bucket in buckets:
        missing = set(bucket)

        def arrived(parameter, bucket=bucket, missing=missing):
            missing.discard(parameter)
            if not missing:
                link.put(sum(4 * other.numel() for other in bucket))
        hooks += [parameter.register_post_accumulate_grad_hook(arrived) for parameter in bucket]
    outputs = model(inputs).square().mean()
    thread.start()
    outputs.backward()
    end = time.perf_counter()
    link.put(None)
    thread.join()
    for hook in hooks:
        hook.remove()
    return len(buckets), 1e3 * (time.perf_counter() - end)


def main():
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    inputs = torch.randn(ROWS, WIDTH)
    size = sum(4 * parameter.numel() for parameter in model.parameters())
    print("buckets  transfers ms  of them behind backward's end")
    for limit in (size, size // 5, 1):
        count, shown = min(step_ms(model, inputs, limit) for _ in range(ROUNDS))
        print(f"{count:7}{1e3 * (count * LATENCY_S + size / BYTES_PER_S):14.1f}{shown:31.1f}")


if __name__ == "__main__":
    main()
