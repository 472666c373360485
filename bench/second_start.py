#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long an engine takes to create: with an empty algorithm cache, with a full one, and with --algorithm direct, which
measures nothing. The three take turns, so that a busy machine disturbs all of them; each start is that of a new process,
and its imports do not count.

usage: second_start.py [MODEL] [DATASET], with YOKE_LIBRARY=build/release/libyoke.so and PYTHONPATH=python
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

import yoke

ROUNDS = 7
STARTS = {"cold": "measured", "second": "measured", "direct": "direct"}


def create(model, dataset, algorithm, cache):
    begin = time.monotonic()
    trainer = yoke.Trainer(model, dataset=dataset, devices="2xcpu", batch=128, algorithm=algorithm,
                           algorithm_cache=cache)
    print(time.monotonic() - begin)
    del trainer


def create_in_a_process(*arguments):
    command = [sys.executable, __file__, "--create", *arguments]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    if sys.argv[1:2] == ["--create"]:
        return create(*sys.argv[2:])
    model, dataset = [*sys.argv[1:], *("resnet18-cifar", "synthetic:3x32x32,rows=256")[len(sys.argv) - 1:]]
    seconds = {name: [] for name in STARTS}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(ROUNDS):
            for name, algorithm in STARTS.items():
                cache = os.path.join(folder, f"algorithms{i}")
                seconds[name].append(create_in_a_process(model, dataset, algorithm, cache))
    for name, column in seconds.items():
        print(f"{model}: {name} {statistics.median(column):.3f} s ({min(column):.3f} to {max(column):.3f})")
    later = [second - direct for second, direct in zip(seconds["second"], seconds["direct"])]
    print(f"{model}: second - direct {statistics.median(later):+.3f} s")


if __name__ == "__main__":
    main()
