#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke launch --min-ranks: ranks that go on when others die, hang or are refused, and that come back.

usage: test_survivors.py YOKE
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

YOKE = sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/yoke"
LIMIT_S = 300
STEPS = 40
TRAIN = ["train", "--mode", "ddp", "--model", "mlp:width=32", "--dataset", "synthetic:1x8x8,rows=400", "--batch", "26",
         "--shards", "4", "--steps", str(STEPS), "--threads", "1", "--devices", "cpu", "--evaluate-every", "1", "--json",
         "--quiet"]


class Survivors(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.metrics = pathlib.Path(self.folder.name, "metrics.jsonl")

    def launch(self, ranks, launcher, *options):
        """The outcome, the result's JSON, or None, and the lines of the metrics."""
        self.metrics.unlink(missing_ok=True)
        outcome = subprocess.run([YOKE, "launch", "--nproc-per-node", str(ranks), *launcher, "--", *TRAIN, "--metrics",
                                  str(self.metrics), *options], capture_output=True, text=True, timeout=LIMIT_S,
                                 check=False)
        results = [json.loads(line[line.index("{"):]) for line in outcome.stdout.splitlines() if "weights_hash" in line]
        self.assertLessEqual(len(results), 1, outcome.stdout)
        lines = [json.loads(line) for line in self.metrics.read_text().splitlines()] if self.metrics.exists() else []
        return outcome, results[0] if results else None, lines

    def expect(self, found, wanted, lost):
        """The same weights and metrics as without a failure, and every step once."""
        outcome, result, lines = found
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertEqual(result["weights_hash"], wanted[1]["weights_hash"], outcome.stderr)
        self.assertEqual(result.get("lost", 0), lost, outcome.stderr)
        keep = [[{key: value for key, value in line.items() if key != "step_ms"} for line in all_lines
                 if "lost" not in line and "joined" not in line] for all_lines in (lines, wanted[2])]
        self.assertEqual(keep[0], keep[1])
        self.assertEqual([line["step"] for line in lines if "train_loss" in line], list(range(1, STEPS + 1)))
        self.assertEqual(sum("lost" in line for line in lines) > 0, lost > 0)

    def test_the_others_go_on_from_any_stage(self):
        wanted = self.launch(3, [])
        for rank in range(3):
            for stage in ["load", "scatter", "forward", "backward", "update", "exchange", "all_reduce"]:
                with self.subTest(rank=rank, stage=stage):
                    self.expect(self.launch(3, ["--min-ranks", "1"], "--fault", f"kill:{rank}@17:{stage}"), wanted,
                                0 if stage == "load" else 1)

    def test_two_at_once_and_all_but_one(self):
        wanted = self.launch(3, [])
        for faults in ["kill:0@17,kill:2@17", "kill:1@17,kill:0@18", "error:0@9,kill:1@30"]:
            with self.subTest(faults=faults):
                self.expect(self.launch(3, ["--min-ranks", "1"], "--fault", faults), wanted, 2)

    def test_a_rank_that_hangs_is_left_out(self):
        wanted = self.launch(3, [])
        found = self.launch(3, ["--min-ranks", "2"], "--fault", "hang:1@17", "--timeout", "3")
        self.expect(found, wanted, 1)
        self.assertIn("waited 3000 ms for rank 1", found[0].stderr)

    def test_a_rank_comes_back(self):
        wanted = self.launch(3, [], "--steps", "4000")
        found = self.launch(3, ["--min-ranks", "1", "--max-restarts", "3"], "--steps", "4000", "--fault",
                            "kill:0@300,kill:2@900")
        self.assertEqual(found[0].returncode, 0, found[0].stderr)
        self.assertEqual(found[1]["weights_hash"], wanted[1]["weights_hash"], found[0].stderr)
        self.assertEqual(found[1]["lost"], 2)
        self.assertEqual(found[1]["world"] if "world" in found[1] else found[1]["devices"], 3)
        self.assertEqual(sum("joined" in line for line in found[2]), 2)
        self.assertIn("starting it again (2 of 3)", found[0].stderr)

    def test_checkpoints_and_weights_go_on(self):
        folders = [pathlib.Path(self.folder.name, name) for name in ["calm", "storm"]]
        for folder, faults in zip(folders, ["", "kill:0@11,kill:1@25"]):
            folder.mkdir()
            options = ["--checkpoint-dir", str(folder / "checkpoints"), "--checkpoint-every", "10steps", "--keep", "9",
                       "--save", str(folder / "weights.safetensors"), "--optimizer", "adamw"]
            outcome, _, _ = self.launch(3, ["--min-ranks", "1"], *options, *(["--fault", faults] if faults else []))
            self.assertEqual(outcome.returncode, 0, outcome.stderr)
        calm, storm = [str(folder / "checkpoints" / f"step-{STEPS:08}.safetensors") for folder in folders]
        found = subprocess.run([YOKE, "checkpoint", "diff", calm, storm], capture_output=True, text=True,
                               timeout=LIMIT_S, check=False).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in found if ", and " in line], ["run.ranks"])
        self.assertRegex(found[-1], "^0 of [0-9]+ tensors differ$")
        weights = [(folder / "weights.safetensors").read_bytes() for folder in folders]
        self.assertTrue(weights[0] == weights[1])

    def test_too_few_are_left(self):
        weights = pathlib.Path(self.folder.name, "weights.safetensors")
        outcome, _, _ = self.launch(3, ["--min-ranks", "3"], "--fault", "kill:1@17", "--save", str(weights))
        self.assertEqual(outcome.returncode, 137, outcome.stderr)
        self.assertIn("2 ranks are left, fewer than min_ranks, 3", outcome.stderr)
        self.assertTrue(weights.exists(), outcome.stderr)

    def test_what_cannot_go_on_says_so(self):
        for words, launcher, options in [
                ("--min-ranks is 4, but --nproc-per-node is 3", ["--min-ranks", "4"], []),
                ("--min-ranks works on one machine", ["--min-ranks", "2", "--nnodes", "2", "--node-rank", "0",
                                                      "--master-addr", "localhost", "--master-port", "1"], []),
                ("own_buffers", ["--min-ranks", "1"], ["--broadcast-buffers", "no"])]:
            with self.subTest(words=words):
                outcome, _, _ = self.launch(3, launcher, *options)
                self.assertEqual(outcome.returncode, 2, outcome.stderr)
                self.assertIn(words, outcome.stderr)

    def test_random_kills(self):
        wanted = self.launch(3, [])
        chance = random.Random(1)
        for _ in range(8):
            first, second = chance.sample(range(3), 2)
            faults = f"kill:{first}@{chance.randrange(STEPS)},kill:{second}@{chance.randrange(STEPS)}"
            with self.subTest(faults=faults):
                self.expect(self.launch(3, ["--min-ranks", "1"], "--fault", faults), wanted, 2)


if __name__ == "__main__":
    unittest.main()
