#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for yoke and for PyTorch's worker in the race's tests: it answers at once, with the times, losses, memory
and failures that the file named by STAND_IN gives, and logs what opens and closes.

{"log": FILE, "free_gib": 80, "ms": {who: ms}, "loss": {who: loss}, "errors": {"who verb name": text},
 "hangs": ["who verb name"], "sleep_s": 0}; who: yoke or torch
"""
import json
import os
import sys
import time

with open(os.environ["STAND_IN"]) as file:
    PLAN = json.load(file)
WHO = "torch" if "--worker" in sys.argv or len(sys.argv) == 1 else "yoke"


def log(*words):
    with open(PLAN["log"], "a") as file:
        file.write(" ".join([WHO, str(os.getpid()), *words]) + "\n")


def loss_of(words, opened):
    """A variant that changes bits changes the losses of Yoke's engines that have it."""
    loss = PLAN["loss"][WHO]
    return loss * (1 + 1e-12) if PLAN.get("variants_change_bits") and "+" in opened.get(words[1], "") else loss


def answer(words, opened):
    verb, name = words[0], words[1] if len(words) > 1 else ""
    time.sleep(PLAN.get("sleep_s", 0))
    key = " ".join([WHO, verb, *([name] if name else [])])
    if key in PLAN.get("hangs", []):
        time.sleep(600)
    if key in PLAN.get("errors", {}):
        return {"error": PLAN["errors"][key]}
    if verb in ("open", "close"):
        opened[name] = " ".join(words)
        log(*words)
    return {"hello": {"torch": "2.0"}, "open": {"cudnn.benchmark": True}, "close": {"held_gib": 0},
            "weights": {"tensors": []}, "batch": {"values": 0}, "kernel_time": {"ms": 1.0},
            "algorithms": {"algorithms": [["fc1", "linear", "forward", "matrix product"]]},
            "losses": {"losses": [loss_of(words, opened)] * 8},
            "steps": {"ms": PLAN["ms"][WHO], "processor_ms": 0.05, "loss": loss_of(words, opened)}}[verb]


def main():
    if "devices" in sys.argv:
        print(json.dumps({"devices": [{"description": "a stand-in", "memory_free": PLAN["free_gib"] * 2**30}]}))
        return
    opened = {}
    for line in sys.stdin:
        print(json.dumps(answer(line.split(), opened)), flush=True)


if __name__ == "__main__":
    main()
