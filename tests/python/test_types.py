#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Type hints: mypy, and pyright where it is, accept a user's script and the module's public face, complete options by name,
and refuse an option or a method that there is not.

usage: test_types.py ROOT, with YOKE_LIBRARY, beside which the build laid _declared.pyi. Exit code 77: there is no mypy.
"""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
STUBS = pathlib.Path(os.environ.get("YOKE_LIBRARY", "")).resolve().with_name("_declared.pyi")
if importlib.util.find_spec("mypy") is None or not STUBS.is_file():
    print("no mypy for this Python, or no _declared.pyi beside the library: pip install mypy, and build yoke-layout")
    sys.exit(77)

USER = '''
from __future__ import annotations

from typing import Any

import numpy
import yoke


def swish(x: numpy.ndarray, beta: numpy.ndarray) -> numpy.ndarray:
    return numpy.asarray(x / (1 + numpy.exp(-beta * x)))


def built() -> yoke.Model:
    builder = yoke.Builder((1, 8, 8), name="own")
    value = builder.relu(builder.conv2d(builder.input(), name="conv", out_channels=8, kernel=3, padding=1))
    value = builder.clamp(builder.reduce_axes(value, "mean", ("height", "width")), -1, 1) * 2.0
    value = builder.python_operation(swish, swish, value, name="swish", parameters={"beta": 1})
    return builder.finish(builder.linear(builder.flatten(value), name="fc", out_features=3))


def on_step(event: dict[str, Any]) -> None:
    print(event["loss"])


def main(x: numpy.ndarray, y: numpy.ndarray) -> None:
    model = yoke.DataParallel(built(), "2xcpu", optimizer="adamw", learning_rate=0.01, schedule="sharded", clip_norm=1.0,
                              groups=[{"params": "*.bias", "weight_decay": 0}], lr_schedule="cosine", steps=10,
                              on_step=on_step)
    loss: float = model.step(x, y)
    model.save("checkpoint.safetensors")
    model.load("checkpoint.safetensors")
    result = yoke.train("resnet20", x, y, epochs=2, batch=16, test=(x, y), on_epoch=on_step, optimizer="sgd")
    history: dict[str, list[Any]] = result.history
    trainer = yoke.Trainer(built(), x, y, devices="2xcpu", augment="crop-flip")
    weights: dict[str, numpy.ndarray] = trainer.weights()
    rank = yoke.DistributedDataParallel(built(), momentum=0.9).process_group.rank
    print(loss, history, weights, rank + 1, yoke.launch(main, 2, x, y), yoke.tool("devices"))
'''
WRONG = {'yoke.DataParallel(object(), lr=0.1)': '"lr"', 'yoke.Trainer("mlp", bath=3)': '"bath"',
         'yoke.DataParallel(object(), schedule="fast")': "schedule",
         'yoke.train("mlp", None, epochs="many")': "epochs", 'yoke.Builder(3).conv2d(1)': "conv2d",
         'yoke.Builder(3).convolve()': '"convolve"', 'yoke.trainer': '"trainer"'}


class Checked(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="yoke-types-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "python/yoke", self.folder / "yoke", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(STUBS, self.folder / "yoke")

    def check(self, command, code):
        (self.folder / "script.py").write_text(code, encoding="utf-8")
        done = subprocess.run([sys.executable, "-m", *command, "script.py"], cwd=self.folder, text=True, capture_output=True,
                              check=False, env={**os.environ, "PYTHONPATH": "", "MYPYPATH": str(self.folder)})
        return done.returncode, done.stdout + done.stderr

    mypy = ("mypy", "--strict", "--disable-error-code=type-arg", "--follow-imports=silent")

    def test_mypy_accepts_a_user_s_script(self):
        code, printed = self.check(self.mypy, USER)
        self.assertEqual(code, 0, printed)

    def test_mypy_refuses_what_there_is_not(self):
        code, printed = self.check(self.mypy, "import yoke\n" + "".join(f"{line}\n" for line in WRONG))
        self.assertEqual(code, 1, printed)
        for number, (line, word) in enumerate(WRONG.items(), 2):
            self.assertRegex(printed, rf"(?m)^script.py:{number}: error: .*{re.escape(word)}", line)

    def test_pyright_agrees(self):
        if importlib.util.find_spec("pyright") is None:
            self.skipTest("no pyright for this Python: pip install pyright")
        code, printed = self.check(("pyright", "--pythonpath", sys.executable), USER)
        if "error" not in printed and code:
            self.skipTest(f"pyright does not run here: {printed[-300:]}")
        self.assertEqual(code, 0, printed)
        code, printed = self.check(("pyright", "--pythonpath", sys.executable),
                                   "import yoke\n" + "".join(f"{line}\n" for line in WRONG))
        for number, line in enumerate(WRONG, 2):
            self.assertRegex(printed, rf"script.py:{number}:\d+ - error", line)

    def test_the_public_face_has_hints_and_docstrings(self):
        import inspect
        import yoke
        for name in yoke.__all__:
            thing = getattr(yoke, name)
            self.assertTrue(inspect.getdoc(thing), name)
            parts = inspect.getmembers(thing, inspect.isfunction) if inspect.isclass(thing) else [(name, thing)]
            for part, function in parts:
                if part.startswith("_") and part not in ("__init__", "__call__") or name == "Builder":
                    continue
                known = inspect.signature(function).parameters.values()
                lacking = [one.name for one in known if one.name != "self" and one.annotation is inspect.Parameter.empty]
                self.assertFalse(lacking, f"{name}.{part}: {lacking}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
