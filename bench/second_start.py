#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long an engine takes to create: with an empty algorithm cache, with a full one, and with --algorithm direct, which
measures nothing. The last two alternate, so that a busy machine disturbs both.

usage: second_start.py [MODEL] [DATASET], with YOKE_LIBRARY=build/release/libyoke.so and PYTHONPATH=python
"""
import os
import statistics
import sys
import tempfile
import time

ROUNDS = 7
FOLDER = tempfile.TemporaryDirectory()
os.environ["XDG_CACHE_HOME"] = FOLDER.name
import yoke  # noqa: E402


def create(model, dataset, **options):
    begin = time.monotonic()
    trainer = yoke.Trainer(model, dataset=dataset, devices="2xcpu", batch=128, **options)
    seconds = time.monotonic() - begin
    del trainer
    return seconds


def main():
    model, dataset = [*sys.argv[1:], *("resnet18-cifar", "synthetic:3x32x32,rows=256")[len(sys.argv) - 1:]]
    cold = create(model, dataset)
    pairs = [(create(model, dataset), create(model, dataset, algorithm="direct")) for _ in range(ROUNDS)]
    warm, direct = (statistics.median(column) for column in zip(*pairs))
    print(f"{model}: first {cold:.2f} s, second {warm:.3f} s, direct {direct:.3f} s: {warm - direct:+.3f} s")


if __name__ == "__main__":
    main()
