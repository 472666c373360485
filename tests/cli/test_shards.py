#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke train --shards: equal weights on 1, 2, 4, 8 devices and on 1, 2, 3, 5 processes.

usage: test_shards.py YOKE [unittest arguments]. YOKE_TEST_MPIEXEC: mpiexec, where the build has MPI. YOKE_TEST_STEPS:
steps of each run (4); 200 is the measure of docs/exactness.md.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
MPIEXEC = os.environ.get("YOKE_TEST_MPIEXEC", "")
STEPS = os.environ.get("YOKE_TEST_STEPS", "4")
LIMIT_S = 900 + 10 * int(STEPS)
# 44 rows are shards of 6, the last one of 2; the last batch of an epoch of 100 is short.
RUN = ["train", "--dataset", "synthetic:3x32x32,rows=100", "--batch", "44", "--steps", STEPS, "--augment", "crop-flip",
       "--shards", "8", "--json", "--quiet"]


class Shards:
    """What holds for each model."""
    MODEL = []

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.cache = ["--algorithm-cache", str(pathlib.Path(cls.folder.name) / "algorithms")]
        cls.expected = cls.train("--devices", "cpu")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def train(cls, *arguments, launcher=()):
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                                    "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        if launcher and launcher[0] == MPIEXEC:  # what an MPI keeps until its process ends is no leak
            environment["ASAN_OPTIONS"] = "detect_leaks=0"
        run = [*RUN, *cls.MODEL, *([] if "--no-cache" in arguments else cls.cache)]
        command = [*launcher, YOKE, *run, *arguments]
        if launcher == "yoke launch":
            command = [YOKE, "launch", *arguments[:2], "--", *run, *arguments[2:]]
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                                env=environment)
        if result.returncode != 0:
            raise AssertionError(f"{command}: {result.stderr}")
        said = json.loads(result.stdout)
        return said["weights_hash"], said["test_loss"], said["test_accuracy"]

    def test_devices_and_schedules(self):
        for devices in [1, 2, 4, 8]:
            for schedule in ["overlap", "classic", "sharded"]:
                with self.subTest(devices=devices, schedule=schedule):
                    self.assertEqual(self.train("--devices", f"{devices}xcpu", "--schedule", schedule),
                                     self.expected)

    def test_any_number_of_devices_and_any_shares(self):
        for arguments in [["--devices", "3xcpu"], ["--devices", "2xcpu", "--shares", "3:1"],
                          ["--devices", "3xcpu", "--shares", "1:5:2", "--schedule", "sharded"],
                          ["--devices", "2xcpu", "--shares", "auto", "--straggler", "1:3"]]:
            with self.subTest(arguments=arguments):
                self.assertEqual(self.train(*arguments), self.expected)

    def test_processes_over_shared_memory(self):
        for ranks in [1, 2, 3, 5]:
            for schedule in ["overlap", "sharded"]:
                with self.subTest(ranks=ranks, schedule=schedule):
                    found = self.train("--nproc-per-node", str(ranks), "--mode", "ddp", "--schedule", schedule,
                                       launcher="yoke launch")
                    self.assertEqual(found[0], self.expected[0])

    def test_ranks_of_any_shares(self):
        for ranks, shares, schedule in [(2, "3:1", "overlap"), (2, "1:7", "sharded"), (3, "1:5:2", "overlap")]:
            with self.subTest(shares=shares, schedule=schedule):
                found = self.train("--nproc-per-node", str(ranks), "--mode", "ddp", "--shares", shares, "--schedule",
                                   schedule, launcher="yoke launch")
                self.assertEqual(found[0], self.expected[0])

    @unittest.skipUnless(MPIEXEC, "the build has no MPI")
    def test_processes_over_mpi(self):
        for ranks in [2, 4]:
            with self.subTest(ranks=ranks):
                found = self.train("--mode", "ddp", "--transport", "mpi", launcher=[MPIEXEC, "-n", str(ranks)])
                self.assertEqual(found[0], self.expected[0])


class Resnet20(Shards, unittest.TestCase):
    """Convolutions and batch norm."""
    MODEL = ["--model", "resnet20"]

    def test_what_shards_cannot_do_says_what_to_choose(self):
        for words, arguments in [(["8 shards on 9 devices", "every device needs one"], ["--devices", "9xcpu"]),
                                 (["accumulate 2 with 8 shards"], ["--accumulate", "2"]),
                                 (["NCCL", "collectives copy"], ["--collectives", "nccl"])]:
            result = subprocess.run([YOKE, *RUN, *self.MODEL, *self.cache, *arguments], capture_output=True,
                                    text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
            for word in words:
                self.assertIn(word, result.stderr)

    def test_without_an_algorithm_cache_the_fixed_rule_chooses(self):
        expected = self.train("--devices", "cpu", "--algorithm", "direct")
        self.assertEqual(self.train("--devices", "2xcpu", "--no-cache"), expected)
        self.assertEqual(self.train("--nproc-per-node", "2", "--mode", "ddp", "--no-cache",
                                    launcher="yoke launch")[0], expected[0])
        run = [word for word in RUN if word != "--quiet"]
        for variables, cache in [({}, ["--no-cache"]), ({"HOME": "", "XDG_CACHE_HOME": ""}, [])]:
            said = subprocess.run([YOKE, *run, *self.MODEL, *cache, "--steps", "1"], capture_output=True,
                                  text=True, timeout=LIMIT_S, check=True, env=os.environ | variables).stderr
            self.assertIn("--shards without an algorithm cache takes --algorithm direct", said)
            self.assertNotIn("warning", said)


class Dropout(Shards, unittest.TestCase):
    """Masks that depend on the row of the whole batch; linear layers."""
    MODEL = ["--model", "mlp-dropout", "--lr", "0.01"]

    def test_it_does_not_train_as_without_dropout(self):
        self.assertNotEqual(self.train("--devices", "cpu", "--model", "mlp")[0], self.expected[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
