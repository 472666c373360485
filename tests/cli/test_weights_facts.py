#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file of weights says its loss and the columns of its table: evaluate and predict need no training rows.

usage: test_weights_facts.py YOKE [unittest arguments]
"""
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT_S = 900
ROWS = 80


def yoke(*arguments):
    return subprocess.run([YOKE, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)


def write_npy(path, shape, values):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{len(values)}f", *values))
    return path


class WeightsFacts(unittest.TestCase):
    """A table of two features and three things to learn from them."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        draw = random.Random(2)
        cls.rows = [(draw.gauss(50, 20), draw.gauss(-3, 0.1)) for _ in range(ROWS)]
        cls.learnt = [(x / 20 - 10 * y - 32, int(x > 50), ("low", "high")[x > 50]) for x, y in cls.rows]
        cls.table = cls.write("all.csv", "x,y,value,bit,word",
                              [(*row, *learnt) for row, learnt in zip(cls.rows, cls.learnt)])

    @classmethod
    def write(cls, name, header, rows):
        path = cls.folder / name
        path.write_text(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
        return path

    def run_ok(self, *arguments):
        result = yoke(*arguments, "--threads", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def fails(self, words, *arguments):
        result = yoke(*arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def train(self, name, spec, *options):
        """The file of weights, and what the run said of its test rows."""
        save = self.folder / name
        said = self.run_ok("train", "--model", "mlp:width=8", "--dataset", spec, "--steps", "20", "--batch", "8",
                           "--devices", "cpu", "--quiet", "--json", "--save", save, "--force", *options)
        return save, json.loads(said)

    def spec(self, settings):
        return f"csv:{self.table},{settings}"

    def predict(self, weights, spec):
        return json.loads(self.run_ok("predict", "--weights", weights, "--json", spec))["predictions"]

    def test_evaluate_computes_the_loss_of_the_training(self):
        value, bit, word = "target=value,ignore=bit,ignore=word", "target=bit,ignore=value,ignore=word", \
            "label=word,ignore=bit,ignore=value"
        for settings, *options in ((value, "--loss", "mse"), (value, "--loss", "huber", "--huber-delta", "0.25"),
                                   (bit, "--loss", "bce"), (word, "--class-weights", "0.2,3"),
                                   (word, "--class-weights", "balanced")):
            with self.subTest(settings=settings, options=options):
                save, trained = self.train("loss.safetensors", self.spec(settings), *options)
                said = json.loads(self.run_ok("evaluate", "--weights", save, "--dataset", self.spec(settings),
                                              "--json"))
                self.assertAlmostEqual(said["loss"], trained["test_loss"], delta=1e-5)

    def test_predict_prints_the_probabilities_of_bce(self):
        settings = "target=bit,ignore=value,ignore=word"
        save, _ = self.train("bce.safetensors", self.spec(settings), "--loss", "bce")
        rows = self.predict(save, f"csv:{self.table},ignore=bit,ignore=value,ignore=word")
        self.assertEqual(len(rows), ROWS)
        said = json.loads(self.run_ok("evaluate", "--weights", save, "--dataset",
                                      f"csv:{self.table},{settings},test={self.table}", "--json"))
        losses = [-math.log(row["outputs"][0] if learnt[1] else 1 - row["outputs"][0])
                  for row, learnt in zip(rows, self.learnt)]
        self.assertAlmostEqual(sum(losses) / ROWS, said["loss"], delta=1e-5)

    def test_another_table_is_normalised_as_the_training_rows(self):
        save, _ = self.train("value.safetensors", self.spec("target=value,ignore=bit,ignore=word"))
        whole = self.predict(save, f"csv:{self.table},ignore=value,ignore=bit,ignore=word")
        few = self.predict(save, f"csv:{self.write('few.csv', 'x,y', self.rows[:3])}")
        for one, other in zip(few, whole):
            self.assertAlmostEqual(one["outputs"][0], other["outputs"][0], delta=1e-6)
        self.assertGreater(max(row["outputs"][0] for row in whole) - min(row["outputs"][0] for row in whole), 0.01)
        labelled = self.write("later.csv", "x,y,value", [(*row, learnt[0]) for row, learnt in
                                                         zip(self.rows[:3], self.learnt)])
        said = json.loads(self.run_ok("evaluate", "--weights", save, "--dataset",
                                      f"csv:{labelled},target=value,test={labelled}", "--json"))
        loss = sum((row["outputs"][0] - learnt[0]) ** 2 for row, learnt in zip(few, self.learnt)) / 3
        self.assertAlmostEqual(said["loss"], loss, delta=1e-4 * loss)

    def test_columns_are_those_of_the_training(self):
        save, _ = self.train("columns.safetensors", self.spec("target=value,ignore=bit,ignore=word"))
        for header, rows, words in (("y,x", [(1, 2)], ["feature 1 is 'y', of the weights 'x'"]),
                                    ("x", [(1,)], ["has no feature 'y'"]),
                                    ("x,y,z", [(1, 2, 3)], ["not trained on the column 'z'", "ignore=z"])):
            self.fails(words, "predict", "--weights", save, f"csv:{self.write('other.csv', header, rows)}")

    def test_names_in_another_encoding_are_those_of_the_training(self):
        table = self.folder / "latin.csv"
        rows = "".join(f"{x},{y},{'hoch' if x > 50 else 'tief'}\xdf\n" for x, y in self.rows)
        table.write_bytes(f"gr\xf6\xdfe,y,wort\n{rows}".encode("latin-1"))
        spec = f"csv:{table},label=wort"
        save, trained = self.train("latin.safetensors", spec)
        said = json.loads(self.run_ok("evaluate", "--weights", save, "--dataset", spec, "--json"))
        self.assertAlmostEqual(said["loss"], trained["test_loss"], delta=1e-5)
        self.fails(["has no feature 'gr"], "predict", "--weights", save,
                   f"csv:{self.write('other.csv', 'y', [(1,)])}")

    def test_rows_to_predict_cannot_be_evaluated_or_trained_on(self):
        save, _ = self.train("rows.safetensors", self.spec("target=value,ignore=bit,ignore=word"))
        few = self.write("bare.csv", "x,y", self.rows[:3])
        self.fails(["no labels", "target=COLUMN"], "evaluate", "--weights", save, "--dataset", f"csv:{few}")
        self.fails(["which column", "target=COLUMN"], "train", "--dataset", f"csv:{few}")

    def test_arrays_without_labels_are_predicted(self):
        x = write_npy(self.folder / "x.npy", (ROWS, 2), [value for row in self.rows for value in row])
        y = write_npy(self.folder / "y.npy", (ROWS,), [learnt[0] for learnt in self.learnt])
        save, _ = self.train("arrays.safetensors", f"npy:{x},{y}")
        alone = self.predict(save, f"npy:{x}")
        both = self.predict(save, f"npy:{x},{y},test={x},{y}")
        self.assertEqual(len(alone), ROWS)
        self.assertEqual(alone, both)
        self.fails(["no labels", "X.npy,Y.npy"], "evaluate", "--weights", save, "--dataset", f"npy:{x}")
        self.fails(["a file is missing", "X.npy,Y.npy"], "train", "--dataset", f"npy:{x}")

    def test_names_in_a_refusal_do_not_steer_the_terminal(self):
        save, _ = self.train("steer.safetensors", self.spec("target=value,ignore=bit,ignore=word"))
        steers = self.write("steer.csv", "x,y\x1b[31m", [(1, 2)])
        result = yoke("predict", "--weights", save, f"csv:{steers}")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("not trained on the column 'y?[31m'", result.stderr)

    def test_weights_of_a_table_are_not_evaluated_on_drawn_images(self):
        save, _ = self.train("drawn.safetensors", self.spec("target=value,ignore=bit,ignore=word"))
        self.fails(["trained on csv", "--dataset"], "evaluate", "--weights", save)

    def test_values_that_are_not_finite_are_named(self):
        inputs = write_npy(self.folder / "x.npy", (20, 2), [x / 7 for x in range(40)])
        targets = write_npy(self.folder / "y.npy", (20,), list(range(20)))
        save, _ = self.train("finite.safetensors", f"npy:{inputs},{targets}")
        nan = write_npy(self.folder / "nan.npy", (20, 2), [math.nan if x in (6, 33) else x / 7 for x in range(40)])
        result = yoke("predict", "--weights", save, f"npy:{nan},{targets},test={nan},{targets}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("2 rows", result.stderr)
        self.assertIn("row 3", result.stderr)
        plain = yoke("predict", "--weights", save, f"npy:{inputs},{targets}")
        self.assertEqual((plain.returncode, plain.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
