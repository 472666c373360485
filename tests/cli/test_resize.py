#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke resize: devices and ranks that come and go while a run trains, and processes that cannot be asked.

usage: test_resize.py YOKE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

YOKE = sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/yoke"
LIMIT_S = 300
STEPS = 60
MANY_STEPS, LATE_STEP = 160, 130  # ranks compare their speeds every 16 steps, and a busy machine may spoil some
TRAIN = ["train", "--model", "resnet20", "--dataset", "synthetic:3x16x16,rows=256", "--batch", "32", "--shards", "4",
         "--steps", str(STEPS), "--threads", "1", "--algorithm", "direct", "--evaluate-every", "-1", "--json", "--quiet"]


class Resize(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.metrics = pathlib.Path(self.folder.name, "metrics.jsonl")

    def start(self, *words):
        run = subprocess.Popen([YOKE, *words, "--metrics", str(self.metrics)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: run.poll() is None and run.kill())
        return run

    def lines(self):
        text = self.metrics.read_text() if self.metrics.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, run, holds):
        end = time.monotonic() + LIMIT_S
        while not any(holds(line) for line in self.lines()):
            self.assertIsNone(run.poll(), "the run ended before")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def resize(self, pid, *words):
        return subprocess.run([YOKE, "resize", str(pid), *words], capture_output=True, text=True, timeout=LIMIT_S,
                              check=False)

    def expect_refused(self, outcome, code, *words):
        self.assertEqual(outcome.returncode, code, outcome.stderr)
        self.assertEqual(outcome.stdout, "")
        for word in words:
            self.assertIn(word, outcome.stderr)

    def end(self, run, steps=STEPS):
        """The result's JSON. Every step is in the metrics once."""
        out, err = run.communicate(timeout=LIMIT_S)
        self.assertEqual(run.returncode, 0, err)
        self.assertEqual([line["step"] for line in self.lines() if "train_loss" in line], list(range(1, steps + 1)))
        return json.loads(next(line[line.index("{"):] for line in out.splitlines() if "weights_hash" in line))

    def wanted(self, steps=STEPS):
        hash_of = self.end(self.start(*TRAIN, "--steps", str(steps), "--devices", "cpu"), steps)["weights_hash"]
        self.metrics.unlink()
        return hash_of

    def test_devices_come_and_go(self):
        wanted = self.wanted()
        trace = pathlib.Path(self.folder.name, "trace.json")
        run = self.start(*TRAIN, "--devices", "cpu", "--trace", str(trace))
        self.wait_for(run, lambda line: line["step"] >= 2)
        self.expect_refused(self.resize(run.pid, "--devices", "3xbanana"), 2, "3xbanana", str(run.pid))
        self.expect_refused(self.resize(run.pid, "--ranks", "2"), 2, "--devices")
        self.assertEqual(self.resize(run.pid, "--devices", "3xcpu").stdout, "goes on with 3xcpu from its next step\n")
        self.wait_for(run, lambda line: line.get("resized", "").startswith("3 devices go on"))
        answer = json.loads(self.resize(run.pid, "--devices", "2xcpu", "--json").stdout)
        self.assertEqual(answer, {"pid": run.pid, "answer": "goes on with 2xcpu from its next step"})
        result = self.end(run)
        self.assertEqual(result["weights_hash"], wanted)
        self.assertEqual(result["devices"], 2)
        marks = [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "i"]
        self.assertEqual(marks, [line["resized"] for line in self.lines() if "resized" in line])
        self.assertEqual(len(marks), 2)
        self.expect_refused(self.resize(run.pid, "--devices", "cpu"), 2, "does not listen")

    def test_ranks_come_and_go(self):
        wanted = self.wanted()
        run = self.start("launch", "--nproc-per-node", "2", "--min-ranks", "1", "--max-ranks", "3", "--", *TRAIN,
                         "--mode", "ddp", "--devices", "cpu")
        self.wait_for(run, lambda line: line["step"] >= 2)
        self.expect_refused(self.resize(run.pid, "--ranks", "4"), 2, "--max-ranks, 3")
        self.expect_refused(self.resize(run.pid, "--devices", "cpu"), 2, "--ranks")
        self.assertEqual(self.resize(run.pid, "--ranks", "1").stdout, "goes on with 1 rank instead of 2\n")
        self.wait_for(run, lambda line: "1 of 2 ranks" in line.get("lost", ""))
        self.assertEqual(self.resize(run.pid, "--ranks", "3").stdout, "goes on with 3 ranks instead of 1\n")
        self.wait_for(run, lambda line: "joined" in line)
        self.assertEqual(self.end(run)["weights_hash"], wanted)

    def test_ranks_share_by_speed(self):
        wanted = self.wanted(MANY_STEPS)
        for launcher, options in [([], ["--schedule", "sharded"]),
                                  (["--min-ranks", "1"], ["--fault", f"kill:0@{LATE_STEP}"])]:
            with self.subTest(options=options):
                self.metrics.unlink(missing_ok=True)
                run = self.start("launch", "--nproc-per-node", "2", *launcher, "--", *TRAIN, "--steps", str(MANY_STEPS),
                                 "--mode", "ddp", "--devices", "cpu", "--shares", "auto", "--straggler", "1:8", *options)
                self.assertEqual(self.end(run, MANY_STEPS)["weights_hash"], wanted)
                dealt = [line["resized"] for line in self.lines() if "resized" in line]
                self.assertTrue(any(text.endswith(": 3 + 1") for text in dealt), dealt)

    def test_shares_of_ranks_need_shards_and_a_share_for_each(self):
        train = [word for word in TRAIN if word not in ("--shards", "4")]
        for launcher, options, words in [([], ["--shares", "2:1"], "shards"),
                                         ([], ["--shares", "2:1:1", "--shards", "4"], "3 shares for 2 ranks"),
                                         ([], ["--shares", "9:1", "--shards", "2"], "rank 1 is 1 of 10"),
                                         (["--min-ranks", "1"], ["--shares", "2:1", "--shards", "4"], "auto_shares")]:
            with self.subTest(options=options):
                run = self.start("launch", "--nproc-per-node", "2", *launcher, "--", *train, "--mode", "ddp", "--devices",
                                 "cpu", *options)
                _, err = run.communicate(timeout=LIMIT_S)
                self.assertEqual(run.returncode, 2, err)
                self.assertIn(words, err)

    def test_wrong_commands_are_refused(self):
        self.expect_refused(self.resize(os.getpid(), "--devices", "cpu"), 2, "does not listen")
        self.expect_refused(self.resize(0, "--devices", "cpu"), 2, "number of a process")
        self.expect_refused(self.resize("x", "--devices", "cpu"), 2, "number of a process")
        self.expect_refused(self.resize(1), 2, "--devices or --ranks")
        self.expect_refused(self.resize(1, "--devices", "cpu", "--ranks", "2"), 2, "--devices or --ranks")
        outcome = subprocess.run([YOKE, "launch", "--nproc-per-node", "2", "--max-ranks", "3", "--", "true"],
                                 capture_output=True, text=True, check=False)
        self.expect_refused(outcome, 2, "--min-ranks")


if __name__ == "__main__":
    unittest.main()
