#!/usr/bin/env python3
"""Lesson 1 in PyTorch: one step of nn.DataParallel, stage by stage, and the same step on one device.

usage: step.py [REPLICAS]. The replicas lie on the GPUs, if there are that many; otherwise all of them on the CPU, where
nn.DataParallel itself would only call the module. Nobody has run this on GPUs yet.
"""
import copy
import sys
import threading
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

ROWS, LEARNING_RATE = 30, 0.1  # 4 replicas get 8, 8, 8 and 6 rows


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
                         nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16 * 16, 10))


def each(work, *lists):
    """Calls work(...) for every replica in a thread of its own, as parallel_apply() does; the results in order."""
    results = [None] * len(lists[0])

    def run(index):
        results[index] = work(*(items[index] for items in lists))
    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Clock:
    """Keeps how long each stage took since the one before it."""

    def __init__(self):
        self.begin, self.stages = time.perf_counter(), []

    def stage(self, name):
        end = time.perf_counter()
        self.stages.append((name, 1e3 * (end - self.begin)))
        self.begin = time.perf_counter()


def add_gradients(replicas):
    root = replicas[0]
    for replica in replicas[1:]:
        for mine, other in zip(root.parameters(), replica.parameters()):
            mine.grad += other.grad.to(mine.device)


def update(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= LEARNING_RATE * parameter.grad


def step_on_several(model, inputs, labels, devices):
    clock = Clock()
    shards = [shard.to(device) for shard, device in zip(inputs.chunk(len(devices)), devices)]
    clock.stage("scatter")
    replicas = [model] + [copy.deepcopy(model).to(device) for device in devices[1:]]
    clock.stage("replicate")
    outputs = each(lambda replica, shard: replica(shard), replicas, shards)
    clock.stage("forward")
    gathered = torch.cat([output.detach().to(devices[0]) for output in outputs]).requires_grad_()
    clock.stage("gather")
    cross_entropy(gathered, labels.to(devices[0])).backward()  # the mean over the rows of the whole batch
    clock.stage("loss")
    gradients = [part.to(device) for part, device in zip(gathered.grad.chunk(len(devices)), devices)]
    clock.stage("scatter")
    each(lambda output, gradient: output.backward(gradient), outputs, gradients)
    clock.stage("backward")
    add_gradients(replicas)
    clock.stage("reduce")
    update(model)
    clock.stage("update")
    return clock.stages


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    gpus = torch.cuda.device_count()
    devices = [f"cuda:{index}" for index in range(count)] if gpus >= count else ["cpu"] * count
    inputs, labels = torch.randn(ROWS, 3, 32, 32), torch.randint(10, (ROWS,))

    alone = make_model()
    cross_entropy(alone(inputs), labels).backward()
    update(alone)
    for _ in range(3):  # the first steps warm PyTorch up
        several = make_model().to(devices[0])
        stages = step_on_several(several, inputs, labels, devices)
    for name, milliseconds in stages:
        print(f"{name:<10}{milliseconds:8.2f} ms")
    difference = max((one - other.cpu()).abs().max() for one, other in zip(alone.parameters(), several.parameters()))
    print(f"largest difference between the weights of 1 and of {count} replicas: {difference:.1e}")


if __name__ == "__main__":
    main()
