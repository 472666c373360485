#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of its work a run of ranks does while its ranks are killed, one every so many seconds, and start again.

usage: kill_storm.py YOKE [SECONDS [PERIODS [MODEL]]]   (600, 60,30,15,5, resnet20)

As many ranks as cores train, each kill -9 takes a random one of those that run, rank 0 too, and yoke launch starts it
again. The useful share is the steps that were done once and for all, beside those of the same ranks undisturbed for a
quarter of the time. A kill ends with the first new step after it: the seconds until then, in the median and at most.
"""
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

RANKS, LOOK_S = max(2, len(os.sched_getaffinity(0))), 0.002


class Run:
    """Ranks under yoke launch, and the steps that their metrics have."""

    def __init__(self, yoke, model, folder):
        self.metrics = pathlib.Path(folder, "metrics.jsonl")
        self.metrics.write_text("")
        train = ["train", "--mode", "ddp", "--model", model, "--shards", "8", "--batch", "64", "--evaluate-every", "-1",
                 "--steps", "10000000", "--limit-rows", "4096", "--quiet", "--metrics", str(self.metrics), "--force"]
        self.launcher = subprocess.Popen([yoke, "launch", "--nproc-per-node", str(RANKS), "--min-ranks", "1",
                                          "--max-restarts", "1000", "--", *train],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.place, self.step = 0, 0
        self.wait(lambda: self.step > 3)

    def read(self):
        """Takes in the new lines; a new rank 0 may write some of them again."""
        size = self.metrics.stat().st_size
        if size < self.place:
            self.place = 0
        with self.metrics.open() as lines:
            lines.seek(self.place)
            text = lines.read()
        whole = text[:text.rfind("\n") + 1]
        self.place += len(whole)
        for line in whole.splitlines():
            try:
                values = json.loads(line)
            except ValueError:
                continue
            if "train_loss" in values:
                self.step = values["step"]

    def wait(self, condition):
        while not condition():
            if self.launcher.poll() is not None:
                raise SystemExit(f"the run ended: {self.launcher.stderr.read()}")
            time.sleep(LOOK_S)
            self.read()

    def ranks(self):
        children = pathlib.Path(f"/proc/{self.launcher.pid}/task/{self.launcher.pid}/children").read_text().split()
        return [int(child) for child in children
                if pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1:2] == [b"train"]]

    def steps_in(self, seconds):
        self.read()
        begin, first = time.monotonic(), self.step
        self.wait(lambda: time.monotonic() - begin >= seconds)
        return (self.step - first) / (time.monotonic() - begin)

    def end(self):
        self.launcher.send_signal(signal.SIGKILL)
        self.launcher.wait()


def storm(run, seconds, period, chance):
    """Steps a second, and the seconds from each kill to the first new step."""
    run.read()
    begin, first, waits = time.monotonic(), run.step, []
    while time.monotonic() - begin < seconds:
        run.wait(lambda end=time.monotonic() + period: time.monotonic() >= end)
        os.kill(chance.choice(run.ranks()), signal.SIGKILL)
        run.read()
        killed, before = time.monotonic(), run.step
        time.sleep(0.02)  # a step that was on its way
        run.read()
        before = max(before, run.step)
        run.wait(lambda: run.step > before)
        waits.append(time.monotonic() - killed)
    return (run.step - first) / (time.monotonic() - begin), sorted(waits)


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    yoke, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 600
    periods = [float(word) for word in (sys.argv[3] if len(sys.argv) > 3 else "60,30,15,5").split(",")]
    model, chance = sys.argv[4] if len(sys.argv) > 4 else "resnet20", random.Random(1)
    for period in periods:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(yoke, model, folder)
            try:
                calm = run.steps_in(seconds / 8)
                rate, waits = storm(run, seconds, period, chance)
                calm = (calm + run.steps_in(seconds / 8)) / 2
            finally:
                run.end()
        print(f"a kill every {period:g} s: {len(waits)} kills, {100 * rate / calm:.1f} % of the steps; the first new step "
              f"after {statistics.median(waits):.2f} s in the median, {waits[-1]:.2f} s at most", flush=True)


if __name__ == "__main__":
    main()
