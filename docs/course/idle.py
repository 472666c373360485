#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lesson 13 in PyTorch: a profiler's trace, and by one rule what the training thread does at every instant. No GPU.

The loader is slow on purpose: reading a row sleeps. With workers, other processes read the next batches meanwhile.

usage: idle.py [TRACE.json], which keeps the trace of the run without workers.
"""
import json
import pathlib
import sys
import tempfile
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset

ROWS, BATCH, READ_S = 768, 64, 3e-4
torch.set_num_threads(1)


class Slow(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        time.sleep(READ_S)
        return torch.full((3, 32, 32), row / ROWS), row % 10


def train(workers, path):
    """Writes the trace of a pass over the rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 15 * 15, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(torch.zeros(BATCH, 3, 32, 32)).sum().backward()  # the first step warms PyTorch up
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for inputs, labels in DataLoader(Slow(), BATCH, num_workers=workers):
            optimizer.zero_grad()
            with record_function("forward"):
                loss = nn.functional.cross_entropy(model(inputs), labels)
            with record_function("backward"):
                loss.backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(path))


def account(path):
    """Milliseconds of the training thread: at every instant the first of these kinds that is on, or idle."""
    kinds = {"load": "DataLoader", "forward": "forward", "backward": "backward", "update": "Optimizer.step"}
    events = json.loads(path.read_text())["traceEvents"]
    marks = [event for event in events if event.get("ph") == "X" and event.get("cat") == "user_annotation"]
    edges = []
    for event in marks:
        kind = next((kind for kind, part in kinds.items() if part in event["name"]), None)
        if kind:
            edges += [(event["ts"], 1, kind), (event["ts"] + event["dur"], -1, kind)]
    edges.sort()
    open_now, times = dict.fromkeys(kinds, 0), dict.fromkeys([*kinds, "idle"], 0.0)
    for (begin, change, kind), (end, _, _) in zip(edges, edges[1:]):
        open_now[kind] += change
        times[next((kind for kind in kinds if open_now[kind]), "idle")] += (end - begin) / 1e3
    return times


def main():
    with tempfile.TemporaryDirectory() as folder:
        for workers in (0, 2):
            path = pathlib.Path(folder) / "trace.json"
            if workers == 0 and len(sys.argv) > 1:
                path = pathlib.Path(sys.argv[1])
            train(workers, path)
            times = account(path)
            whole = sum(times.values())
            print(f"{workers} workers: " + ", ".join(f"{kind} {time / whole:.0%}" for kind, time in times.items()))


if __name__ == "__main__":
    main()
