#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows per second that Yoke's loader and torchvision's DataLoader decode, crop, flip and normalise, in turns.

usage: load_images.py LOAD_ROWS [--folder DIR] [--side N] [--workers N] [--rounds N] [--batch N]

LOAD_ROWS is build/release/bench/load_rows. Without --folder it draws 800 photographs of --side pixels (500) as JPEG
files. Both contenders have --workers (2) threads or processes, and crop at random to 224. Prints the median of the
ratio over the rounds, and its range. Needs PyTorch, torchvision and Pillow.
"""
import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from torchvision import datasets, transforms

from photographs import draw_photographs

CLASSES, EACH = 4, 200
RESIZED_CROP_FLIP = 3  # YOKE_AUGMENT_RESIZED_CROP_FLIP


class Yoke:
    def __init__(self, program, options):
        spec = f"images:{options.folder}"
        self.process = subprocess.Popen([program, spec, str(options.batch), str(options.workers),
                                         str(RESIZED_CROP_FLIP)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def seconds(self, batches):
        self.process.stdin.write(f"{batches}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


class Torchvision:
    def __init__(self, options):
        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                 transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
        rows = datasets.ImageFolder(options.folder, transforms.Compose(steps))
        self.loader = torch.utils.data.DataLoader(rows, options.batch, shuffle=True, num_workers=options.workers,
                                                  drop_last=True, persistent_workers=True)

    def seconds(self, batches):
        count, begin = -1, None
        while True:
            for _ in self.loader:
                count += 1
                begin = begin or time.perf_counter()
                if count == batches:
                    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--side", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as drawn:
        if options.folder is None:
            options.folder = pathlib.Path(drawn)
            draw_photographs(options.folder, CLASSES, EACH, options.side)
        contenders = {"yoke": Yoke(options.program, options), "torchvision": Torchvision(options)}
        batches, ratios = CLASSES * EACH // options.batch - 4, []
        for number in range(-1, options.rounds):  # the first round warms up
            order = sorted(contenders, reverse=number % 2 == 0)
            took = {name: contenders[name].seconds(batches) for name in order}
            rates = {name: batches * options.batch / took[name] for name in took}
            if number >= 0:
                ratios.append(rates["yoke"] / rates["torchvision"])
                print(f"round {number + 1}: yoke {rates['yoke']:.0f} rows/s, torchvision {rates['torchvision']:.0f}")
        print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})")


if __name__ == "__main__":
    main()
