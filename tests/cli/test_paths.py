#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files of a run: none is written twice, read and written, or lost to a run that failed.

usage: test_paths.py YOKE [unittest arguments]
"""
import itertools
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT_S = 900
USAGE, NUMERIC, IO = 2, 1, 74
DATA = "synthetic:1x8x8,classes=2,rows=64"
WRITTEN = ("--save", "--metrics", "--trace", "--report")
READ = ("--init", "--resume", "--algorithm-cache", "--config")


def bytes_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()}


def write_npy(path, kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


class Paths(unittest.TestCase):
    """Each test has a folder with the weights of a short run, w.safetensors."""

    @classmethod
    def setUpClass(cls):
        cls.weights = None
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        path = pathlib.Path(cls.shared.name) / "w.safetensors"
        result = subprocess.run([YOKE, "train", "--model", "mlp", "--dataset", DATA, "--batch", "16", "--steps", "4",
                                 "--threads", "1", "--no-cache", "--save", path], capture_output=True, text=True,
                                timeout=LIMIT_S, check=True)
        cls.weights = path.read_bytes()
        assert result.returncode == 0

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "w.safetensors").write_bytes(self.weights)

    def train(self, *arguments, steps=2):
        self.command = [str(a) for a in arguments]
        cache = () if "--algorithm-cache" in arguments else ("--no-cache",)
        return subprocess.run([YOKE, "train", "--model", "mlp", "--dataset", DATA, "--batch", "16", "--steps", str(steps),
                               "--threads", "1", "--quiet", *cache, *map(str, arguments)], cwd=self.folder,
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def refused(self, *arguments, words=()):
        before = bytes_of(self.folder)
        result = self.train(*arguments)
        self.assertEqual((result.returncode, result.stdout), (USAGE, ""), (arguments, result.stderr))
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertEqual(bytes_of(self.folder), before, arguments)

    def ok(self, *arguments, steps=2):
        result = self.train(*arguments, steps=steps)
        self.assertEqual(result.returncode, 0, (arguments, result.stderr))
        return result

    def test_every_pair_of_one_file_is_refused_before_a_byte_is_written(self):
        pairs = 0
        for one, other in itertools.combinations(WRITTEN, 2):
            self.refused(one, "x", other, "./x", words=(one, other, "both would write"))
            pairs += 1
        for written, read in itertools.product(WRITTEN, READ):
            if (written, read) == ("--save", "--init"):
                continue
            (self.folder / "file.json").write_text("{}")
            self.refused(written, "file.json", read, "file.json", "--force", words=(written, read, "would overwrite"))
            pairs += 1
        print(f"{pairs} of {pairs} pairs refused")

    def test_links_hide_nothing(self):
        os.link(self.folder / "w.safetensors", self.folder / "hard")
        (self.folder / "soft").symlink_to("w.safetensors")
        (self.folder / "dangling").symlink_to("later")
        (self.folder / "door").symlink_to(".")
        self.refused("--metrics", "hard", "--init", "w.safetensors", words=("--metrics hard", "--init w.safetensors"))
        self.refused("--trace", "soft", "--init", "w.safetensors")
        self.refused("--trace", "dangling", "--save", "later")
        self.refused("--trace", "door/later", "--metrics", self.folder / "later")

    def test_a_dataset_and_checkpoints_are_not_overwritten(self):
        rows = "".join(f"{i},{-i},{'ab'[i % 2]}\n" for i in range(32))
        (self.folder / "rows.csv").write_text("x,y,label\n" + rows)
        self.refused("--dataset", "csv:rows.csv,label=label", "--metrics", "rows.csv", words=("--dataset",))
        (self.folder / "saves").mkdir()
        self.refused("--checkpoint-dir", "saves", "--save", "saves/best.safetensors", words=("a checkpoint",))
        self.refused("--checkpoint-dir", "saves", "--trace", "saves/step-00000002.safetensors", words=("a checkpoint",))

    def test_weights_may_replace_those_that_the_run_began_with(self):
        self.ok("--init", "w.safetensors", "--save", "w.safetensors", "--force")
        self.assertNotEqual((self.folder / "w.safetensors").read_bytes(), self.weights)

    def test_devices_are_shared(self):
        self.ok("--metrics", "/dev/null", "--report", "r.html")
        self.ok("--metrics", "/dev/null", "--trace", "/dev/null")

    def test_the_files_of_a_page_are_not_its_place(self):
        self.ok("--metrics", "m.jsonl")
        before = bytes_of(self.folder)
        result = subprocess.run([YOKE, "report", "m.jsonl", "--html", "./m.jsonl"], cwd=self.folder, capture_output=True,
                                text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(result.returncode, USAGE, result.stderr)
        self.assertEqual(bytes_of(self.folder), before)

    def test_metrics_of_an_earlier_run_survive_a_run_that_fails_before_its_first_step(self):
        metrics = self.folder / "m.jsonl"
        metrics.write_text("of an earlier run\n")
        for arguments in (("--init", "none.safetensors"), ("--save", "none/w.safetensors"), ("--batch", "100"),
                          ("--resume", "w.safetensors")):
            result = self.train("--metrics", metrics, "--force", *arguments)
            self.assertNotEqual(result.returncode, 0, arguments)
            self.assertEqual(metrics.read_text(), "of an earlier run\n", arguments)
        self.ok("--metrics", metrics, "--force")
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines if "train_loss" in line], [1, 2])

    def test_a_pipe_that_nobody_reads_is_refused_at_once(self):
        os.mkfifo(self.folder / "pipe")
        result = self.train("--metrics", "pipe")
        self.assertEqual(result.returncode, IO, result.stderr)
        self.assertIn("a pipe needs its reader first", result.stderr)
        self.assertEqual(self.train("--init", "pipe").returncode, IO)

    def test_a_bad_loss_leaves_earlier_weights_and_puts_its_own_beside_them(self):
        for index in range(2):
            result = self.train("--init", "w.safetensors", "--save", "w.safetensors", "--force", "--lr", "1e30", steps=20)
            self.assertEqual(result.returncode, NUMERIC, result.stderr)
            self.assertEqual((self.folder / "w.safetensors").read_bytes(), self.weights)
            beside = sorted(self.folder.glob("w.step-*.safetensors"))
            self.assertEqual(len(beside), index + 1, "each run leaves its own file")
            self.assertIn("w.safetensors is as it was, and the weights of step ", result.stderr)
            self.assertTrue(any(path.name in result.stderr for path in beside), result.stderr)

    def test_a_bad_loss_without_earlier_weights_saves_where_the_option_says(self):
        result = self.train("--save", "new.safetensors", "--lr", "1e30", steps=20)
        self.assertEqual(result.returncode, NUMERIC, result.stderr)
        self.assertTrue((self.folder / "new.safetensors").exists())
        self.assertEqual(list(self.folder.glob("new.step-*")), [])

    def test_a_run_whose_losses_rise_leaves_earlier_weights(self):
        for rate, diverges in (("3", True), ("0.01", False)):
            result = self.train("--init", "w.safetensors", "--save", "copy.safetensors", "--lr", rate, "--momentum", "0",
                                steps=5)
            self.assertEqual(result.returncode, 0, result.stderr)  # no earlier file: nothing to keep
            result = self.train("--init", "w.safetensors", "--save", "copy.safetensors", "--force", "--lr", rate,
                                "--momentum", "0", steps=5)
            beside = list(self.folder.glob("copy.step-5*.safetensors"))
            self.assertEqual(result.returncode, NUMERIC if diverges else 0, (rate, result.stderr))
            self.assertEqual(len(beside), 1 if diverges else 0, (rate, result.stderr))
            if diverges:
                self.assertIn("the loss rose from", result.stderr)
                beside[0].unlink()
            (self.folder / "copy.safetensors").unlink()

    def test_weights_that_are_not_finite_are_named_by_every_verb(self):
        data = bytearray(self.weights)
        length, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        name = next(key for key, entry in header.items() if key != "__metadata__" and entry["dtype"] == "F32")
        begin = 8 + length + header[name]["data_offsets"][0]
        data[begin:begin + 4] = struct.pack("<f", float("nan"))
        (self.folder / "nan.safetensors").write_bytes(data)
        verbs = (("train", "--model", "mlp", "--dataset", DATA, "--batch", "16", "--init", "nan.safetensors"),
                 ("evaluate", "--dataset", DATA, "--weights", "nan.safetensors"),
                 ("predict", "--weights", "nan.safetensors", DATA))
        for verb in verbs:
            result = subprocess.run([YOKE, *verb], cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S,
                                    check=False)
            self.assertNotEqual(result.returncode, 0, verb)
            self.assertIn(f"element 0 of {name} is nan", result.stderr, verb)

    def test_evaluate_counts_rows_that_are_not_finite(self):
        for name, value in (("good", 1.0), ("bad", float("nan"))):
            values = [value if row in (3, 5) and column == 1 else float(row + column) for row in range(32)
                      for column in (0, 1)]
            write_npy(self.folder / f"{name}.npy", "<f4", (32, 2), struct.pack("<64f", *values))
        write_npy(self.folder / "y.npy", "<i8", (32,), struct.pack("<32q", *(row % 2 for row in range(32))))
        self.ok("--dataset", "npy:good.npy,y.npy,test=good.npy,y.npy", "--save", "t.safetensors")
        for name, warned in (("good", False), ("bad", True)):
            result = subprocess.run([YOKE, "evaluate", "--weights", "t.safetensors", "--dataset",
                                     f"npy:good.npy,y.npy,test={name}.npy,y.npy"], cwd=self.folder, capture_output=True,
                                    text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("values of 2 rows are not finite, of row 3 first" in result.stderr, warned, result.stderr)


if __name__ == "__main__":
    unittest.main()
