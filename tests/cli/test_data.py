#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Datasets of the user's own through the tool: what `yoke data inspect` finds, and what `yoke train` reads.

usage: test_data.py YOKE [unittest arguments]
"""
import gzip
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

import png_file

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
ARRAYS = FIXTURES / "arrays"
LIMIT_S = 900
RUN = ["--model", "mlp:width=8", "--batch", "4", "--threads", "1", "--algorithm", "direct", "--quiet"]
BAD_DATA = 65
MB = 1_000_000


def yoke(*arguments):
    return subprocess.run([YOKE, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False)


class Case(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def succeed(self, *arguments):
        run = yoke(*arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run

    def train(self, dataset, *options):
        return json.loads(self.succeed("train", *RUN, "--devices", "cpu", "--json", "--dataset", dataset, *options).stdout)

    def expect(self, run, code, *words):
        self.assertEqual(run.returncode, code, run.stderr)
        for word in words:
            self.assertIn(word, run.stderr)

    def photographs(self):
        """Eight files a class, of which one is damaged and one is no RGB image; two lie about their format."""
        for kind, good in ("ant", "color.jpg"), ("bee", "progressive.jpg"):
            (self.folder / kind).mkdir()
            for i in range(8):
                shutil.copy(FIXTURES / "images" / good, self.folder / kind / f"{i}.jpg")
        shutil.copy(FIXTURES / "images/one.png", self.folder / "ant/2.jpg")
        shutil.copy(FIXTURES / "images/wide.png", self.folder / "ant/3.jpg")
        shutil.copy(FIXTURES / "images/cmyk.jpg", self.folder / "bee/4.jpg")
        whole = (FIXTURES / "images/color.jpg").read_bytes()
        (self.folder / "ant/5.jpg").write_bytes(whole[:len(whole) * 2 // 3])
        return f"images:{self.folder},size=8"


class Inspect(Case):
    def test_a_folder_of_photographs(self):
        spec, sheet = self.photographs(), self.folder / "sheet.png"
        run = yoke("data", "inspect", spec, "--sheet", sheet, "--json")
        self.expect(run, BAD_DATA, "2 files cannot be read; yoke train --skip-bad goes on without")
        said = json.loads(run.stdout)
        bad = said["train"]["unreadable"] + said["test"]["unreadable"]
        self.assertEqual(sorted(text.split(": ", 1)[0] for text in bad),
                         [str(self.folder / "ant/5.jpg"), str(self.folder / "bee/4.jpg")])
        self.assertEqual((said["shape"], said["class_names"]), ([3, 8, 8], ["ant", "bee"]))
        rows = [sum(said[split]["class_rows"]) for split in ("train", "test")]
        self.assertEqual(rows, [said[split]["rows"] for split in ("train", "test")])
        self.assertEqual(sum(rows), 14)
        for channel in said["train"]["channels"]:
            self.assertTrue(0 < channel["mean"] < 1 and 0 < channel["std"] < 0.5)
        width, height, colours, pixels = png_file.decode(sheet.read_bytes())
        line = colours * width
        self.assertEqual((width, height), (4 + 10 * 68, 4 + 2 * 68))
        self.assertEqual((colours, pixels[:line]), (3, bytes([255]) * line))
        self.assertNotEqual(pixels[10 * line:10 * line + 3 * 64], bytes([255]) * (3 * 64))
        words = yoke("data", "inspect", spec)
        self.assertEqual(words.returncode, BAD_DATA)
        self.assertIn("2 of 16 files cannot be read", words.stdout)
        self.assertRegex(words.stdout, r"ant +\d+ +\d+\n")
        self.assertIn("bee/4.jpg: 4 colour components (CMYK?)", words.stdout)

    def test_a_table(self):
        table = self.write("t.csv", "x,kind,y\n" + "".join(f"{1e6 + i},{'ab'[i % 2]},7\n" for i in range(10)))
        said = json.loads(self.succeed("data", "inspect", f"csv:{table},label=kind,test={table}", "--json").stdout)
        x, y = said["train"]["channels"]
        self.assertEqual((x["name"], y["name"]), ("x", "y"))
        self.assertAlmostEqual(x["mean"], 1e6 + 4.5)
        self.assertAlmostEqual(x["std"], 8.25 ** 0.5)
        self.assertEqual((y["mean"], y["std"]), (7, 0))
        self.assertEqual((said["class_names"], said["train"]["class_rows"]), (["a", "b"], [5, 5]))
        self.expect(yoke("data", "inspect", f"csv:{table}"), 2, "label=COLUMN", "x, kind, y")
        self.expect(yoke("data", "inspect", f"csv:{table},label=kind", "--sheet", self.folder / "s.png"), 2,
                    "--sheet needs images")

    def test_arrays_of_floats_and_of_bytes(self):
        said = json.loads(self.succeed("data", "inspect", f"npy:{ARRAYS}/floats.npy,{ARRAYS}/targets.npy", "--json").stdout)
        self.assertEqual((said["classes"], said["targets"], len(said["train"]["targets"])), (0, 2, 2))
        said = json.loads(self.succeed("data", "inspect", f"npz:{ARRAYS}/keras.npz", "--json").stdout)
        pixels = [7 * i % 251 for i in range(20 * 12) if i // 4 % 3 == 0]
        self.assertAlmostEqual(said["train"]["channels"][0]["mean"], sum(pixels) / len(pixels) / 255, places=6)
        self.assertEqual((said["train"]["rows"], said["test"]["rows"]), (20, 6))

    def test_usage(self):
        self.expect(yoke("data"), 2, "data takes inspect SPEC")
        self.expect(yoke("data", "inspect", "csv:/nowhere,label=a"), 66, "/nowhere")
        self.expect(yoke("data", "inspect", "synthetic", "--loader-threads", "many"), 2, "neither auto nor 1 to 64")


class Train(Case):
    def test_what_is_wrong_with_a_file_is_bad_data_with_its_place(self):
        ragged = self.write("ragged.csv", "a,b\n1,x\n2\n")
        word = self.write("word.csv", "a,b\n1,x\nred,y\n")
        for spec, words in ((f"csv:{ragged},label=b", ["ragged.csv: line 3 has 1 fields"]),
                            (f"csv:{word},label=b", ["word.csv: line 3, column 'a': 'red'", "ignore=a"]),
                            (f"npy:{ARRAYS}/fortran.npy,{ARRAYS}/labels.npy", ["Fortran", "numpy.ascontiguousarray"]),
                            (f"npy:{ARRAYS}/objects.npy,{ARRAYS}/labels.npy", ["Python objects"])):
            self.expect(yoke("train", *RUN, "--devices", "cpu", "--dataset", spec), BAD_DATA, *words)

    def test_bad_files_end_the_run_or_are_left_out(self):
        spec = self.photographs()
        self.expect(yoke("train", *RUN, "--devices", "cpu", "--dataset", spec), BAD_DATA, ".jpg: ")
        options = ["--dataset", spec, "--skip-bad", "--json", "--epochs", "2"]
        alone = self.succeed("train", *RUN, "--devices", "cpu", *options)
        self.assertIn("ant/5.jpg: ", alone.stderr)
        self.assertIn("bee/4.jpg: 4 colour components", alone.stderr)
        self.assertRegex(alone.stderr, r"1 of \d+ files of the training split left out|2 of \d+ files of the training")
        ranks = self.succeed("launch", "--nproc-per-node", "2", "--", "train", *RUN, "--mode", "ddp", "--devices", "2xcpu",
                             *options)
        one, two = json.loads(alone.stdout), json.loads(ranks.stdout[ranks.stdout.index("{"):])
        self.assertEqual(one["steps"], two["steps"])
        self.assertAlmostEqual(one["test_loss"], two["test_loss"], places=4)
        self.assertEqual(ranks.stderr.count("bee/4.jpg: 4 colour components"), 1)

    def test_compare_and_verify_leave_out_the_same_rows(self):
        spec = self.photographs()
        small = ["--model", "mlp:width=8", "--batch", "4", "--threads", "1", "--quiet", "--dataset", spec]
        verify = ["verify", *small, "--steps", "4", "--reference", "no", "--devices", "2xcpu"]
        compare = ["compare", *small, "--learn-steps", "4", "--steps", "1", "--seconds", "0.1", "--algorithm", "direct",
                   "--devices", "2xcpu", "--json"]
        self.expect(yoke(*verify), BAD_DATA, "yoke_dataset_skip_bad", "yoke: --skip-bad")
        for command in verify, compare:
            with self.subTest(command=command[0]):
                run = self.succeed(*command, "--skip-bad")
                named = [line for line in run.stderr.splitlines() if "warning" in line and ".jpg: " in line]
                self.assertEqual((len(named) > 0, len(named)), (True, len(set(named))))
                self.expect(yoke(*command, "--skip-bad", "--limit-rows", "3"), 2, "is more than the")
        record = self.folder / "record.safetensors"
        alone = ["verify", *small, "--steps", "1", "--reference", "no", "--devices", "cpu", "--skip-bad"]
        self.succeed(*alone, "--limit-rows", "9", "--record", record)
        self.succeed(*alone, "--limit-rows", "9", "--against", record)
        self.expect(yoke(*alone, "--against", record), 2, "--limit-rows 9")

    def test_rows_and_batches_are_as_many_as_the_options_say(self):
        spec = f"npy:{ARRAYS}/floats.npy,{ARRAYS}/labels.npy"
        self.assertEqual(self.train(spec, "--epochs", "1")["steps"], 5)
        self.assertEqual(self.train(spec, "--epochs", "1", "--drop-last")["steps"], 4)
        self.assertEqual(self.train(spec, "--epochs", "1", "--limit-rows", "8")["steps"], 2)
        self.expect(yoke("train", *RUN, "--devices", "cpu", "--dataset", spec, "--sampling", "balanced", "--shuffle", "no"), 2,
                    "needs shuffle")

    def test_what_cannot_be_mixed_is_refused(self):
        text = f"text:{__file__},context=16"
        for dataset, words, options in [
                ("synthetic:1x8x8", "--mixup: '-0.2' is not a number from 0", ["--mixup", "-0.2"]),
                ("synthetic:1x8x8", "mixup 0.2 with ignore_index", ["--mixup", "0.2", "--ignore-index", "1"]),
                (text, "'text' has 16 labels a row", ["--mixup", "0.2", "--model", "gpt2:layers=1,width=32,heads=2"])]:
            run = yoke("train", *RUN, "--dataset", dataset, *options)
            self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
            self.assertIn(words, run.stderr)
        self.assertEqual(json.loads(self.succeed("train", "--mixup", "0.2", "--print-config").stdout), {"mixup": 0.2})

    def test_a_resumed_run_draws_as_the_uninterrupted_one(self):
        for spec in f"npy:{ARRAYS}/floats.npy,{ARRAYS}/labels.npy", f"npz:{ARRAYS}/packed.npz":
            options = ["--sampling", "balanced", "--drop-last", "--loader-threads", "2"]
            saves = ["--checkpoint-dir", self.folder / spec[:3], "--checkpoint-every", "3"]
            whole = self.train(spec, *options, "--steps", "10")
            self.train(spec, *options, *saves, "--steps", "6")
            self.assertEqual(self.train(spec, *options, *saves, "--steps", "10", "--resume", "auto")["weights_hash"],
                             whole["weights_hash"])
            refused = yoke("train", *RUN, "--devices", "cpu", "--dataset", spec, *options[2:], *saves, "--steps", "10",
                           "--resume", "auto")
            self.expect(refused, 2, "shuffle is yes here and balanced there")

    def test_other_labels_are_another_dataset(self):
        tables = [self.write(name, "x,y\n" + "".join(f"{i},{(i // step) % 2}\n" for i in range(20)))
                  for name, step in (("one.csv", 1), ("two.csv", 2))]
        saves = ["--checkpoint-dir", self.folder / "saves"]
        self.train(f"csv:{tables[0]},label=y", *saves, "--steps", "4")
        refused = yoke("train", *RUN, "--devices", "cpu", "--dataset", f"csv:{tables[1]},label=y", *saves, "--steps", "8",
                       "--resume", "auto")
        self.expect(refused, 2, "labels is ", "--resume-anyway labels")

    def test_weights_from_a_table_evaluate_on_its_test_rows(self):
        table = self.write("t.csv", "x,kind\n" + "".join(f"{i},{'ab'[i > 20]}\n" for i in range(40)))
        weights, spec = self.folder / "w.safetensors", f"csv:{table},label=kind"
        trained = self.train(spec, "--epochs", "20", "--save", weights)
        found = json.loads(self.succeed("evaluate", "--init", weights, "--model", "mlp:width=8", "--dataset", spec, "--devices",
                                        "cpu", "--batch", "4", "--json").stdout)
        self.assertEqual((found["rows"], found["accuracy"]), (4, trained["test_accuracy"]))
        few = json.loads(self.succeed("evaluate", "--init", weights, "--model", "mlp:width=8", "--dataset", spec, "--devices",
                                      "cpu", "--limit-rows", "2", "--json").stdout)
        self.assertEqual(few["rows"], 2)


def jpeg(side, scans):
    """A progressive JPEG of one component whose scans are empty: the decoder walks over the picture for each."""
    return b"\xff\xd8\xff\xdb\0C\0" + b"\1" * 64 + struct.pack(">HHBHHBHB", 0xffc2, 11, 8, side, side, 1, 0x111, 0) + \
        b"\xff\xc4\0\x14\0\1" + bytes(16) + bytes.fromhex("ffda0008010100000000") * scans + b"\xff\xd9"


class Costs(Case):
    def peak_kb(self, *arguments):
        """What the tool says, its exit code, and the most memory that it had."""
        with subprocess.Popen([YOKE, *map(str, arguments)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            said = process.stderr.read().decode()
            _, outcome, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(outcome)
        return said, process.returncode, used.ru_maxrss

    def test_arrays_that_do_not_fit_each_other_are_not_unpacked(self):
        def add(archive, name, shape, size):
            head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            with archive.open(name, "w") as file:
                file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
                for _ in range(size // MB):
                    file.write(bytes(MB))
                file.write(bytes(size % MB))

        for name, shape, words in (("lies", (10, 10), "bytes of values"), ("rows", (1000, 400 * 1000), "a label for each row")):
            with zipfile.ZipFile(self.folder / f"{name}.npz", "w", zipfile.ZIP_DEFLATED) as archive:
                add(archive, "x.npy", shape, 400 * MB)
                add(archive, "y.npy", (3,), 3)
            said, code, peak = self.peak_kb("data", "inspect", f"npz:{self.folder}/{name}.npz")
            self.assertEqual(code, BAD_DATA, said)
            self.assertIn(words, said)
            self.assertLess(peak, 300_000)

    def test_a_packed_set_that_lies_is_not_unpacked(self):
        for kind, head in (("images-idx3", struct.pack(">IIII", 0x803, 2, 28, 28)), ("labels-idx1", struct.pack(">II", 0x801, 2))):
            with gzip.open(self.folder / f"train-{kind}-ubyte.gz", "wb") as file:
                file.write(head)
                for _ in range(400):
                    file.write(bytes(MB))
        said, code, peak = self.peak_kb("data", "inspect", f"mnist:{self.folder}")
        self.assertEqual(code, BAD_DATA, said)
        self.assertIn("for the 2 rows announced", said)
        self.assertLess(peak, 300_000)

    def test_the_first_signal_ends_a_run_that_decodes(self):
        """Each picture takes the decoder seconds, and a batch many of them: no step has ended when the run ends."""
        for kind in "ab":
            (self.folder / kind).mkdir()
            for i in range(12):
                (self.folder / kind / f"{i}.jpg").write_bytes(jpeg(8000, 16))
        with subprocess.Popen([YOKE, "train", "--dataset", f"images:{self.folder},size=16", "--model", "mlp:width=8",
                               "--batch", "16", "--loader-threads", "1", "--devices", "cpu", "--threads", "1", "--algorithm",
                               "direct", "--evaluate-every", "-1", "--steps", "2"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as process:
            caught = 1 << signal.SIGINT - 1
            while process.poll() is None:
                facts = dict(line.split(":\t") for line in
                             pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines() if ":\t" in line)
                if int(facts["SigCgt"], 16) & caught:
                    break
                time.sleep(0.05)
            time.sleep(0.5)  # from there to the loader
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("stopped after step 0", said)


if __name__ == "__main__":
    unittest.main()
