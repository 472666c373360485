#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lesson 11 by hand: the schedules of a pipeline, GPipe's and 1F1B. Needs nothing but Python.

A model is cut into S stages on S devices, a batch into M micro-batches. Forward of one takes 1, backward 2, and moving
nothing. A device takes its work in the order of its schedule, each part as soon as what it needs is there.

usage: pipelines.py [FIGURE.svg]
"""
import pathlib
import sys

import draw

FORWARD, BACKWARD = 1, 2


def gpipe(stage, stages, parts):
    """Huang et al. 2019: all forwards, then all backwards, the last micro-batch first."""
    return [("f", part) for part in range(parts)] + [("b", part) for part in reversed(range(parts))]


def one_f_one_b(stage, stages, parts):
    """Narayanan et al. 2019, as in Megatron: as many forwards as stages follow, then one backward for each forward."""
    ahead = min(parts, stages - 1 - stage)
    order = [("f", part) for part in range(ahead)]
    for part in range(parts - ahead):
        order += [("f", ahead + part), ("b", part)]
    return order + [("b", part) for part in range(parts - ahead, parts)]


def run(schedule, stages, parts):
    """The spans (begin, end, "f" or "b", micro-batch) of each device."""
    orders = [list(schedule(stage, stages, parts)) for stage in range(stages)]
    ends, free, spans = {}, [0] * stages, [[] for _ in range(stages)]
    while any(orders):
        for stage, order in enumerate(orders):
            while order:
                kind, part = order[0]
                if kind == "f":
                    needs = None if stage == 0 else ("f", stage - 1, part)
                else:
                    needs = ("f", stage, part) if stage == stages - 1 else ("b", stage + 1, part)
                if needs and needs not in ends:
                    break
                begin = max(free[stage], ends.get(needs, 0))
                free[stage] = ends[kind, stage, part] = begin + (FORWARD if kind == "f" else BACKWARD)
                spans[stage].append((begin, free[stage], *order.pop(0)))
    return spans


def bubble(spans):
    """The part of the devices' time in which they are idle."""
    end = max(lane[-1][1] for lane in spans)
    work = sum(stop - begin for lane in spans for begin, stop, _, _ in lane)
    return 1 - work / (end * len(spans))


def kept(lane):
    """The most micro-batches whose activations a device keeps for backward at one time."""
    now = most = 0
    for _, _, kind, _ in lane:
        now += 1 if kind == "f" else -1
        most = max(most, now)
    return most


def figure(path, stages, parts):
    rows, end = [], 0
    for name, schedule in (("GPipe", gpipe), ("1F1B", one_f_one_b)):
        spans = run(schedule, stages, parts)
        end = max(end, spans[0][-1][1])
        rows.append((f"{name}: idle {bubble(spans):.0%}, stage 0 keeps {kept(spans[0])} micro-batches", []))
        rows += [(f"stage {number}", [(begin, stop, "soft" if kind == "f" else "quiet", part + 1)
                                      for begin, stop, kind, part in lane]) for number, lane in enumerate(spans)]
    draw.lanes(path, "Both schedules idle as long; 1F1B keeps half as many activations",
               f"Two schedules of {stages} stages and {parts} micro-batches: pale bars are forward, dark bars backward; "
               "the gaps at both ends are as large in both.", rows, end, "time, in forwards of one micro-batch")


def main():
    print("stages  micro-batches  idle  (S-1)/(M+S-1)  GPipe keeps  1F1B keeps")
    for stages, parts in ((2, 1), (2, 4), (4, 4), (4, 8), (4, 32), (8, 8), (8, 64)):
        one, other = (run(schedule, stages, parts) for schedule in (gpipe, one_f_one_b))
        assert abs(bubble(one) - bubble(other)) < 1e-12
        print(f"{stages:6}{parts:15}{bubble(one):6.0%}{(stages - 1) / (parts + stages - 1):15.0%}"
              f"{kept(one[0]):13}{kept(other[0]):12}")
    if len(sys.argv) > 1:
        figure(pathlib.Path(sys.argv[1]), 4, 8)


if __name__ == "__main__":
    main()
