#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws when each device's link is busy while gradients are summed and come back as weights: over the root, along a
chain, and around a ring (lesson 5). Prints how long each takes, in units of P / bandwidth.

usage: routes.py [FIGURE.svg]. A latency is drawn as HOP of that unit. Needs nothing but Python.
"""
import pathlib
import sys

import draw

DEVICES, HOP = 4, 0.02


def root(devices):
    """nn.DataParallel without NCCL: one whole copy after the other, to the root and back."""
    lanes, now = [[] for _ in range(devices)], 0
    for label in ("gradients", "weights"):
        now += HOP
        for other in range(1, devices):
            begin, now = now, now + 1
            lanes[0].append((begin, now, "strong", f"{label} {other}"))
            lanes[other].append((begin, now, "soft", ""))
    return lanes


def chain(devices):
    """Each device adds its own and passes on what has arrived so far; the weights come back the same way."""
    lanes, last = [[] for _ in range(devices)], (devices - 1) * HOP + 1
    for device in range(devices):
        hops = devices - 1 - device  # from the end of the chain, where the sum begins
        lanes[device] += [(hops * HOP, hops * HOP + 1, "soft", "gradients"),
                          (last + device * HOP, last + device * HOP + 1, "quiet", "weights")]
    return lanes


def ring(devices):
    """N - 1 steps to sum, N - 1 to distribute: each device sends a part of 1 / N in each, all at the same time."""
    lanes = [[] for _ in range(devices)]
    size = HOP + 1 / devices
    for device, lane in enumerate(lanes):
        for step in range(2 * (devices - 1)):
            summing = step < devices - 1
            lane.append((step * size, (step + 1) * size, "soft" if summing else "quiet", (device - step) % devices + 1))
    return lanes


def end(lanes):
    return max(span[1] for lane in lanes for span in lane)


def main():
    routes = (("over the root", root), ("chain", chain), ("ring", ring))
    print("devices" + "".join(f"{name:>16}" for name, _ in routes))
    for devices in (2, 4, 8, 64):
        print(f"{devices:7}" + "".join(f"{end(route(devices)):16.2f}" for _, route in routes))
    if len(sys.argv) > 1:
        rows = []
        for name, route in routes:
            lanes = route(DEVICES)
            rows.append((f"{name}: {end(lanes):.1f}", []))
            rows += [(f"link of {number}", lane) for number, lane in enumerate(lanes)]
        times = [end(route(DEVICES)) for _, route in routes]
        draw.lanes(pathlib.Path(sys.argv[1]),
                   "The root's link takes {:.1f} times as long as one copy, a chain {:.1f}, a ring {:.1f}".format(*times),
                   "When the links of four devices are busy: over the root one copy follows the other, along a chain all "
                   "links carry the same copy, around a ring every link carries parts of it.",
                   rows, max(times), "in copies of all weights over one link")


if __name__ == "__main__":
    main()
