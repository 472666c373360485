#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke model: what it lists and shows agrees with itself and with what yoke train trains.

usage: test_model_verb.py YOKE [unittest arguments]
"""
import json
import pathlib
import subprocess
import sys
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
ROOT = pathlib.Path(__file__).resolve().parents[2]


def yoke(*arguments, code=0):
    result = subprocess.run([YOKE, "model", *arguments], capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == code, (result.returncode, result.stderr)
    return result


def show(*arguments):
    return json.loads(yoke("show", *arguments, "--json").stdout)


class List(unittest.TestCase):
    def test_every_listed_model_can_be_shown(self):
        models = json.loads(yoke("list", "--json").stdout)
        text = yoke("list").stdout
        self.assertGreaterEqual(len(models), 14)
        for model in models:
            self.assertIn(f"\n{model['name']} ", text)
            shown = show(model["name"])
            self.assertEqual(shown["input"], model["input"])
            self.assertEqual(shown["parameters"], sum(layer["parameters"] for layer in shown["layers"]))

    def test_options_have_their_defaults(self):
        mlp = next(model for model in json.loads(yoke("list", "--json").stdout) if model["name"] == "mlp")
        self.assertEqual(mlp["options"], {"width": 1024, "dropout": 0})
        self.assertIn("mlp:width=1024,dropout=0\n", yoke("list").stdout)


class Show(unittest.TestCase):
    def test_totals_are_the_sums_of_the_layers(self):
        shown = show("resnet20")
        for key in ("flops", "activation_bytes"):
            self.assertEqual(shown[key], sum(layer[key] for layer in shown["layers"]))
        self.assertEqual(shown["parameters"], 272474)
        self.assertEqual(shown["layers"][0], {"name": "conv1", "kind": "conv2d", "output": [16, 32, 32],
                                              "parameters": 432, "flops": 884736, "activation_bytes": 65536})
        self.assertEqual(shown["layers"][-1]["output"], [10])

    def test_the_table_says_the_same(self):
        lines = yoke("show", "resnet20").stdout.splitlines()
        self.assertIn("3 x 32 x 32", lines[0])
        conv1 = next(line for line in lines if line.startswith("conv1 "))
        self.assertEqual(conv1.split(), "conv1 conv2d 16 x 32 x 32 432 885 k 64.0 KiB".split())
        self.assertRegex(lines[-1], r"^total +272474 +82\.3 M +2\.6 MiB$")

    def test_shape_and_classes_come_from_a_dataset_or_from_options(self):
        of_dataset = show("resnet20", "--dataset", "synthetic:1x8x8,classes=3,rows=30")
        self.assertEqual(of_dataset, show("resnet20", "--input", "1x8x8", "--classes", "3"))
        self.assertEqual((of_dataset["input"], of_dataset["output"]), ([1, 8, 8], [3]))
        self.assertEqual(show("mlp:width=8", "--input", "20", "--classes", "2")["parameters"],
                         20 * 8 + 8 + 8 * 8 + 8 + 8 * 2 + 2)

    def test_it_prints_what_the_page_shows(self):
        subprocess.run([sys.executable, ROOT / "tests/house/shown.py", ROOT / "docs/models.md",
                        "build/release/yoke model show resnet20"], input=yoke("show", "resnet20").stdout, text=True,
                       check=True)

    def test_the_page_names_every_model(self):
        page = (ROOT / "docs/models.md").read_text()
        for model in json.loads(yoke("list", "--json").stdout):
            self.assertIn(f"`{model['name']}`", page)

    def test_mistakes_are_named(self):
        for words, arguments in {
                "no model is called 'resnet19'; did you mean 'resnet1": ["show", "resnet19"],
                "mlp has no option 'w'": ["show", "mlp:w=1"],
                "'3x4' is not channels x height x width": ["show", "mlp", "--input", "3x4"],
                "'3x0x4' is not channels": ["show", "mlp", "--input", "3x0x4"],
                "--dataset and --input both": ["show", "mlp", "--input", "3", "--dataset", "synthetic"],
                "model needs 'list', 'show' and the name of one model, or 'export'": ["show"],
                "model needs 'list', 'show'": ["list", "all"]}.items():
            result = yoke(*arguments, code=2)
            self.assertIn(words, result.stderr)
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    unittest.main()
