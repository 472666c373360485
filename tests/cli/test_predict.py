#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What was trained is used: yoke predict and yoke evaluate on weights that describe themselves.

usage: test_predict.py YOKE [unittest arguments]
"""
import csv
import io
import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import png_file

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT_S = 900
COLOURS = {"blue": (30, 40, 220), "green, light": (60, 230, 80), "red": (220, 40, 30)}


def yoke(*arguments):
    return subprocess.run([YOKE, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)


def write_png(path, colour, width, height, noise):
    """A picture of one colour with noise."""
    path.write_bytes(png_file.encode(width, height, bytes(
        max(0, min(255, value + noise.randrange(-25, 26))) for _ in range(width * height) for value in colour)))


def rewrite_header(source, target, change):
    """A copy of a safetensors file whose header went through `change`."""
    data = source.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(len(text).to_bytes(8, "little") + text + data[end:])


class Predict(unittest.TestCase):
    """Three colours in folders, a network that has seen them for some steps."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        noise = random.Random(1)
        for split, count in (("train", 16), ("val", 7)):
            for name, colour in COLOURS.items():
                place = cls.folder / "data" / split / name
                place.mkdir(parents=True)
                for i in range(count):
                    write_png(place / f"{i}.png", colour, 24 + i, 40 - i, noise)
        cls.weights = cls.folder / "w.safetensors"
        said = yoke("train", "--dataset", f"images:{cls.folder}/data,size=16,resize=20", "--model", "resnet20",
                    "--epochs", "8", "--lr", "0.02", "--batch", "16", "--devices", "cpu", "--threads", "1",
                    "--save", cls.weights, "--json", "--quiet", "--algorithm", "direct")
        assert said.returncode == 0, said.stderr
        cls.trained = json.loads(said.stdout)
        cls.pictures = sorted((cls.folder / "data" / "val").rglob("*.png"))

    def run_ok(self, *arguments):
        result = yoke(*arguments, "--threads", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def predict(self, *arguments):
        return json.loads(self.run_ok("predict", "--weights", self.weights, "--json", *arguments))["predictions"]

    def fails(self, code, words, *arguments):
        result = yoke(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(word, result.stderr)

    def test_photographs_get_the_names_of_their_folders(self):
        said = self.predict("--devices", "cpu", *self.pictures)
        self.assertEqual([row["name"] for row in said], [str(path) for path in self.pictures])
        right = sum(row["class"] == path.parent.name for row, path in zip(said, self.pictures))
        self.assertGreaterEqual(right, 19)  # of 21; by chance 7
        self.assertEqual(list(COLOURS)[said[0]["index"]], said[0]["class"])

    def test_files_and_the_folder_they_lie_in_are_the_same_rows(self):
        files = self.predict("--devices", "cpu", *self.pictures)
        rows = self.predict("--devices", "cpu", f"images:{self.folder}/data")  # sizes come from the weights
        self.assertEqual([row["name"] for row in rows], [row["name"] for row in files])
        for one, other in zip(files, rows):
            self.assertEqual(one["class"], other["class"])
            self.assertAlmostEqual(one["probability"], other["probability"], delta=1e-6)

    def test_all_devices_and_any_batch_say_the_same_in_order(self):
        one = self.predict("--devices", "cpu", *self.pictures)
        many = self.predict("--devices", "3xcpu", "--batch", "5", *self.pictures)
        self.assertEqual([row["name"] for row in one], [row["name"] for row in many])
        for left, right in zip(one, many):
            self.assertAlmostEqual(left["probability"], right["probability"], delta=1e-5)

    def test_limited_and_skipped_rows_keep_their_names(self):
        folder = self.folder / "holes"
        for name in COLOURS:
            (folder / "train" / name).mkdir(parents=True)
            (folder / "val" / name).mkdir(parents=True)
            write_png(folder / "train" / name / "0.png", COLOURS[name], 20, 20, random.Random(3))
        bad = folder / "val" / "blue" / "0.png"
        bad.write_text("no picture")
        good = [folder / "val" / name / f"{i}.png" for name in COLOURS for i in (1, 2)]
        for path in good:
            write_png(path, COLOURS[path.parent.name], 30, 20, random.Random(4))
        wanted = {row["name"]: row["probability"] for row in self.predict(*good)}
        for flags in (["--skip-bad"], ["--skip-bad", "--limit-rows", "5", "--loader-threads", "2"]):
            result = yoke("predict", "--weights", self.weights, "--json", *flags, f"images:{folder}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("0.png", result.stderr)
            rows = json.loads(result.stdout)["predictions"]
            self.assertGreaterEqual(len(rows), 4)
            for row in rows:
                self.assertAlmostEqual(row["probability"], wanted[row["name"]], delta=1e-5)

    def test_top_k_are_probabilities_in_order(self):
        row = self.predict("--top-k", "9", self.pictures[0])[0]
        shares = [one["probability"] for one in row["top"]]
        self.assertEqual(len(shares), 3)
        self.assertEqual(shares, sorted(shares, reverse=True))
        self.assertAlmostEqual(sum(shares), 1, delta=1e-6)
        self.assertEqual(row["class"], row["top"][0]["class"])
        self.assertEqual({one["class"] for one in row["top"]}, set(COLOURS))

    def test_csv_and_text_have_the_numbers_of_json(self):
        chosen = self.pictures[::8]
        said = self.predict("--top-k", "2", *chosen)
        table = list(csv.DictReader(io.StringIO(
            self.run_ok("predict", "--weights", self.weights, "--csv", "--top-k", "2", *chosen))))
        wanted = [(row["name"], str(rank + 1), one["class"], str(one["index"]))
                  for row in said for rank, one in enumerate(row["top"])]
        self.assertEqual([(row["name"], row["rank"], row["class"], row["index"]) for row in table], wanted)
        lines = self.run_ok("predict", "--weights", self.weights, *chosen).splitlines()
        for line, row in zip(lines, said, strict=True):
            self.assertEqual(line, f'{row["name"]}  {row["class"]} {100 * row["probability"]:.2f} %')

    def test_a_file_that_only_claims_a_model_costs_no_memory_for_it(self):
        claims = self.folder / "claims.safetensors"

        def claim(header):
            header["__metadata__"] |= {"yoke.model": "mlp:width=12000", "yoke.input": "[3,16,16]"}
            for name in set(header) - {"__metadata__"}:
                del header[name]

        rewrite_header(self.weights, claims, claim)
        claims.write_bytes(claims.read_bytes()[:8 + int.from_bytes(claims.read_bytes()[:8], "little")])
        for command in (["predict", self.pictures[0]], ["evaluate", "--dataset", "synthetic"]):
            child = subprocess.Popen([YOKE, *command, "--weights", claims, "--no-cache"], stderr=subprocess.PIPE)
            said = child.stderr.read().decode()
            _, outcome, used = os.wait4(child.pid, 0)
            child.stderr.close()
            child.returncode = os.waitstatus_to_exitcode(outcome)
            self.assertEqual(child.returncode, 65, said)
            self.assertIn("6 missing (fc1.weight", said)
            self.assertLess(used.ru_maxrss, 500_000)  # kB; 144 million weights would be 580 MB

    def test_rows_that_no_machine_has_memory_for_are_refused(self):
        huge = self.folder / "huge.safetensors"
        rewrite_header(self.weights, huge, lambda header: header["__metadata__"].update(
            {"yoke.input": "[3,4096,4096]", "yoke.resize": "4096"}))
        for command in (["predict", *8000 * self.pictures[:1]],
                        ["evaluate", "--dataset", f"images:{self.folder}/data,size=4096"]):
            self.fails(71, ["of 3x4096x4096 need", "more than half", "--batch"], *command, "--weights", huge, "--batch",
                       "8000")

    def test_what_is_no_image_is_named_and_the_others_are_predicted(self):
        broken, cut = self.folder / "broken.jpg", self.folder / "cut.png"
        broken.write_text("no picture")
        cut.write_bytes(self.pictures[0].read_bytes()[:200])
        given = [self.pictures[0], broken, self.pictures[1], cut, self.folder / "none.png", self.pictures[-1]]
        result = yoke("predict", "--weights", self.weights, "--csv", *given)
        self.assertEqual(result.returncode, 65, result.stderr)
        self.assertEqual([row["name"] for row in csv.DictReader(io.StringIO(result.stdout))],
                         [str(given[i]) for i in (0, 2, 5)])
        for name, line in zip(("broken.jpg", "cut.png", "none.png"), result.stderr.splitlines(), strict=True):
            self.assertIn(name, line)
        alone = yoke("predict", "--weights", self.weights, self.folder / "none.png")
        self.assertEqual((alone.returncode, alone.stdout), (66, ""))

    def test_evaluate_needs_neither_model_nor_sizes(self):
        said = json.loads(self.run_ok("evaluate", "--weights", self.weights, "--dataset",
                                      f"images:{self.folder}/data", "--json"))
        self.assertEqual((said["model"], said["rows"]), ("resnet20", 21))
        self.assertAlmostEqual(said["accuracy"], self.trained["test_accuracy"], delta=1e-9)
        self.assertAlmostEqual(said["loss"], self.trained["test_loss"], delta=1e-4)

    def test_precision_recall_and_confusion_are_those_of_the_predictions(self):
        spec = f"images:{self.folder}/data"
        pairs = [(pathlib.Path(row["name"]).parent.name, row["class"]) for row in self.predict(spec)]
        said = json.loads(self.run_ok("evaluate", "--weights", self.weights, "--dataset", spec, "--json"))
        names = list(COLOURS)
        self.assertEqual(said["confusion"], [[pairs.count((true, taken)) for taken in names] for true in names])
        for one in said["per_class"]:
            right = pairs.count((one["class"], one["class"]))
            taken = sum(pair[1] == one["class"] for pair in pairs)
            self.assertEqual(one["rows"], 7)
            self.assertAlmostEqual(one["recall"], right / 7)
            if taken:
                self.assertAlmostEqual(one["precision"], right / taken)
            else:
                self.assertIsNone(one["precision"])
        self.assertEqual(said["accuracy_top5"], 1)  # of three classes
        text = self.run_ok("evaluate", "--weights", self.weights, "--dataset", spec, "--confusion")
        self.assertIn("precision", text)
        head = next(line for line in text.splitlines() if line.startswith("true"))
        self.assertEqual(re.split(" {2,}", head)[1:], names)
        cells = {re.split(" {2,}", line)[0]: line.split()[-len(names):] for line in text.split(head)[1].strip().splitlines()}
        self.assertEqual(cells, {true: list(map(str, row)) for true, row in zip(names, said["confusion"])})

    def test_top_5_is_counted_from_all_probabilities(self):
        save, spec = self.folder / "ten.safetensors", "synthetic:3x8x8,classes=10,rows=300"
        self.run_ok("train", "--dataset", spec, "--model", "mlp", "--steps", "3", "--batch", "32", "--quiet", "--save",
                    save)
        rows = json.loads(self.run_ok("predict", "--weights", save, "--top-k", "10", "--json", spec))["predictions"]
        said = json.loads(self.run_ok("evaluate", "--weights", save, "--dataset", spec, "--json"))
        labels = [i for i, row in enumerate(said["confusion"]) for _ in range(sum(row))]
        self.assertEqual(len(labels), len(rows))
        # Classes alternate in a drawn set: the label of row i is i % 10.
        hits = sum(i % 10 in [one["index"] for one in row["top"][:5]] for i, row in enumerate(rows))
        self.assertAlmostEqual(said["accuracy_top5"], hits / len(rows))
        self.assertTrue(0 < hits < len(rows))

    def test_of_many_classes_evaluate_says_that_it_keeps_no_counts(self):
        save, page = self.folder / "many.safetensors", self.folder / "many.html"
        table = self.folder / "many.csv"
        table.write_text("x,y,kind\n" + "".join(f"{i % 7},{i % 11},k{i % 4200}\n" for i in range(8400)))
        spec, why = f"csv:{table},label=kind", "4200 classes: counts by class are kept of up to 4096"
        self.run_ok("train", "--dataset", spec, "--model", "mlp", "--steps", "1", "--batch", "32", "--quiet", "--save",
                    save, "--report", page)
        self.assertIn("too many classes", page.read_text())
        text = self.run_ok("evaluate", "--weights", save, "--dataset", spec, "--confusion")
        self.assertIn("top-5", text)
        self.assertEqual(text.splitlines()[1:], [why])
        said = json.loads(self.run_ok("evaluate", "--weights", save, "--dataset", spec, "--json"))
        self.assertEqual(said["counts_left_out"], why)
        self.assertTrue(0 <= said["accuracy"] <= said["accuracy_top5"] <= 1)
        self.assertNotIn("confusion", said)

    def test_classes_of_another_folder_are_refused_by_name(self):
        other = self.folder / "other"
        for name in ("blue", "green, light", "rot"):
            (other / name).mkdir(parents=True)
            for i in range(2):
                write_png(other / name / f"{i}.png", (1, 2, 3), 20, 20, random.Random(i))
        self.fails(2, ["'rot'", "'red'"], "evaluate", "--weights", self.weights, "--dataset", f"images:{other}")
        self.fails(2, ["3x8x8", "3x16x16"], "predict", "--weights", self.weights, "synthetic:3x8x8,classes=3")

    def test_weights_that_say_nothing_need_a_model(self):
        plain = self.folder / "plain.safetensors"
        rewrite_header(self.weights, plain, lambda header: header.pop("__metadata__"))
        self.fails(2, ["--model"], "predict", "--weights", plain, self.pictures[0])
        said = json.loads(self.run_ok("predict", "--weights", plain, "--model", "resnet20", "--json", "--top-k", "5",
                                      self.pictures[0]))["predictions"][0]
        self.assertEqual([len(said["top"]), said["class"].isdigit()], [3, True])  # of fc.bias's three elements
        again = json.loads(self.run_ok("evaluate", "--weights", plain, "--model", "resnet20", "--dataset",
                                       f"images:{self.folder}/data,size=16,resize=20", "--json"))
        self.assertAlmostEqual(again["loss"], self.trained["test_loss"], delta=1e-4)

    def test_a_lying_description_is_refused(self):
        wrong = self.folder / "wrong.safetensors"

        def change(key, value):
            rewrite_header(self.weights, wrong, lambda header: header["__metadata__"].__setitem__(key, value))
            return wrong

        self.fails(65, ["yoke.class_names", "2 names for 3"], "predict", "--weights",
                   change("yoke.class_names", '["a","b"]'), self.pictures[0])
        self.fails(65, ["yoke.input"], "predict", "--weights", change("yoke.input", "[3]x"), self.pictures[0])
        self.fails(2, ["network of its own program, 'resnet21'"], "predict", "--weights", change("yoke.model", "resnet21"),
                   self.pictures[0])
        self.fails(65, ["fc.weight", "wrong.safetensors"], "predict", "--weights",
                   change("yoke.classes", "4") and self.without_names(wrong), self.pictures[0])

    def test_names_of_other_classes_than_the_head_s_are_not_used(self):
        wrong = self.folder / "two.safetensors"
        rewrite_header(self.weights, wrong, lambda header: header["__metadata__"].update(
            {"yoke.model": "resnet32", "yoke.classes": "2", "yoke.class_names": '["a","b"]'}))
        said = json.loads(self.run_ok("predict", "--weights", wrong, "--model", "resnet20", "--top-k", "3", "--json",
                                      self.pictures[0]))["predictions"][0]
        self.assertEqual(sorted(one["class"] for one in said["top"]), ["0", "1", "2"])

    def test_the_name_that_the_file_says_changes_nothing(self):
        for one, other in zip(self.predict("--model", "resnet20", *self.pictures), self.predict(*self.pictures)):
            self.assertEqual(one["class"], other["class"])
            self.assertAlmostEqual(one["probability"], other["probability"], delta=1e-5)

    def test_photographs_need_a_normalisation(self):
        wrong = self.folder / "raw.safetensors"
        rewrite_header(self.weights, wrong, lambda header: header["__metadata__"].pop("yoke.deviation"))
        self.fails(2, ["raw.safetensors", "yoke.deviation"], "predict", "--weights", wrong,
                   self.pictures[0])

    def test_weights_of_other_targets_are_refused(self):
        def save(name, shape):
            values = [random.Random(name).random() for _ in range(math.prod(shape))]
            head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            path = self.folder / name
            path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                             struct.pack(f"<{len(values)}f", *values))
            return path

        inputs, three, one = save("x.npy", (40, 4)), save("three.npy", (40, 3)), save("one.npy", (40,))
        weights = self.folder / "targets.safetensors"
        self.run_ok("train", "--model", "mlp:width=8", "--dataset", f"npy:{inputs},{three}", "--steps", "1", "--batch",
                    "8", "--devices", "cpu", "--quiet", "--save", weights)
        self.fails(2, ["1 targets a row", "have 3"], "evaluate", "--weights", weights, "--dataset",
                   f"npy:{inputs},{one}")

    def test_labels_of_other_classes_do_not_matter_to_predict(self):
        self.run_ok("predict", "--weights", self.weights, "synthetic:3x16x16,classes=9,rows=60")

    @staticmethod
    def without_names(path):
        rewrite_header(path, path, lambda header: header["__metadata__"].pop("yoke.class_names"))
        return path

    def test_mistakes_in_the_command_say_what_to_type(self):
        self.fails(2, ["--weights"], "predict", self.pictures[0])
        self.fails(2, ["images"], "predict", "--weights", self.weights)
        self.fails(2, ["--json and --csv"], "predict", "--weights", self.weights, "--json", "--csv", self.pictures[0])
        self.fails(66, ["none.safetensors"], "predict", "--weights", "none.safetensors", self.pictures[0])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
