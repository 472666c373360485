#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning with the tool: a new head, averages in DP and DDP, early stopping, the learning rate finder.

usage: test_fine_tuning.py YOKE [unittest arguments]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
RUN = ["--model", "mlp", "--batch", "20", "--threads", "1", "--algorithm", "direct"]
OLD = [*RUN, "--dataset", "synthetic:1x8x8,classes=3,rows=60"]
NEW = [*RUN, "--dataset", "synthetic:1x8x8,classes=5,rows=60"]
LIMIT_S = 900


class FineTuning(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.weights = self.folder / "old.safetensors"

    def yoke(self, *arguments, code=0):
        result = subprocess.run([YOKE, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def tensors(self, path):
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        return {name: data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]
                for name, entry in json.loads(data[8:begin]).items() if name != "__metadata__"}

    def train_old(self):
        self.yoke("train", *OLD, "--steps", "2", "--devices", "cpu", "--save", self.weights)

    def test_a_new_head_needs_no_pattern_and_is_told(self):
        self.train_old()
        refused = self.yoke("train", *NEW, "--steps", "1", "--init", self.weights, code=65).stderr
        self.assertIn("--new-head starts this last layer anew", refused)
        save = self.folder / "new.safetensors"
        result = self.yoke("train", *NEW, "--steps", "1", "--lr", "0", "--init", self.weights, "--new-head", "--json",
                           "--save", save)
        for name, shape in [("fc3.weight", "[5,1024]"), ("fc3.bias", "[5]")]:
            self.assertIn(f"init     {name} {shape} is not loaded: the new head begins with random values\n", result.stderr)
        self.assertEqual(json.loads(result.stdout.splitlines()[-1])["init_missing"], ["fc3.weight", "fc3.bias"])
        old, new = self.tensors(self.weights), self.tensors(save)
        self.assertEqual([name for name in old if old[name] != new[name]], ["fc3.bias", "fc3.weight"])
        self.yoke("train", *NEW, "--new-head", code=2)

    def test_a_new_head_is_new_also_where_the_shapes_fit(self):
        self.train_old()
        save = self.folder / "new.safetensors"
        self.yoke("train", *OLD, "--steps", "1", "--lr", "0", "--init", self.weights, "--new-head", "--save", save)
        old, new = self.tensors(self.weights), self.tensors(save)
        self.assertEqual([name for name in old if old[name] != new[name]], ["fc3.bias", "fc3.weight"])

    def test_no_decay_on_norms_and_biases_is_one_flag(self):
        run = ["train", "--model", "resnet20", "--dataset", "synthetic:3x8x8,rows=20", "--batch", "20", "--steps", "1",
               "--algorithm", "direct", "--lr", "0.1", "--weight-decay", "1"]
        said = self.yoke(*run, "--no-decay", "norms-and-biases").stderr
        self.assertIn("groups   norms-and-biases: 43 tensors, ", said)
        saved = []
        for words in ["norms-and-biases", "*bn?.*,*.bias,*downsample.1.*"]:
            path = self.folder / str(len(saved))
            self.yoke(*run, "--no-decay", words, "--save", path)
            saved.append(self.tensors(path))
        self.assertTrue(saved[0] == saved[1])

    def test_ranks_average_as_devices_do(self):
        run = [*OLD, "--ema", "0.8", "--epochs", "3", "--quiet"]
        paths = [self.folder / name for name in ("dp", "ddp")]
        self.yoke("train", *run, "--devices", "2xcpu", "--save", paths[0])
        self.yoke("launch", "--nproc-per-node", "2", "--", "train", *run, "--mode", "ddp", "--devices", "cpu", "--save", paths[1])
        self.assertEqual(self.tensors(paths[0]), self.tensors(paths[1]))
        plain = self.folder / "plain"
        self.yoke("train", *run[:-5], "--epochs", "3", "--quiet", "--devices", "2xcpu", "--save", plain)
        self.assertNotEqual(self.tensors(plain), self.tensors(paths[0]))

    def test_ranks_stop_early_together_with_the_best_weights(self):
        run = [*OLD, "--patience", "2", "--epochs", "40", "--lr", "0.2", "--lr-schedule", "plateau", "--lr-patience", "0"]
        paths = [self.folder / name for name in ("dp", "ddp")]
        said = self.yoke("train", *run, "--devices", "2xcpu", "--save", paths[0], "--json")
        self.assertIn("stopped early: 2 evaluations without a better test loss than ", said.stderr)
        result = json.loads(said.stdout.splitlines()[-1])
        self.yoke("launch", "--nproc-per-node", "2", "--", "train", *run, "--mode", "ddp", "--devices", "cpu", "--save", paths[1])
        self.assertEqual(self.tensors(paths[0]), self.tensors(paths[1]))
        evaluated = json.loads(self.yoke("evaluate", "--init", paths[0], "--model", "mlp", "--dataset", OLD[-1], "--json").stdout)
        self.assertAlmostEqual(evaluated["loss"], result["test_loss"], delta=1e-6)
        self.yoke("train", *OLD, "--min-delta", "1", code=2)


if __name__ == "__main__":
    unittest.main()
