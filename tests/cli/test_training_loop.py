#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sample 07 prints the losses that PyTorch printed for the same loop: its page holds both outputs. With
YOKE_TEST_TORCH=PYTHON, an interpreter that has PyTorch, loop.py runs, too.

usage: test_training_loop.py SAMPLE ROOT [unittest arguments]
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

SAMPLE, ROOT = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
FOLDER = ROOT / "samples/07_training_loop"
TOLERANCE = 2e-5  # two units of the last digit printed


def losses(text):
    found = [(int(step), float(loss)) for step, loss in re.findall(r"^step +(\d+)  loss (\d+\.\d+)$", text, re.M)]
    assert len(found) == 6, text
    return found


def run(*command):
    return losses(subprocess.run(command, text=True, stdout=subprocess.PIPE, timeout=900, check=True).stdout)


class TrainingLoop(unittest.TestCase):
    def setUp(self):
        page = (FOLDER / "README.md").read_text()
        self.recorded = losses(page[page.index("loop.py\n```"):])

    def expect_recorded(self, printed):
        self.assertEqual([step for step, _ in printed], [step for step, _ in self.recorded])
        for (step, loss), (_, wanted) in zip(printed, self.recorded):
            self.assertLessEqual(abs(loss - wanted), TOLERANCE, f"step {step}")

    def test_the_loop_in_c_prints_pytorchs_losses_on_any_number_of_devices(self):
        for devices in ["cpu", "2xcpu", "5xcpu"]:
            with self.subTest(devices=devices):
                self.expect_recorded(run(SAMPLE, devices))

    @unittest.skipUnless(os.environ.get("YOKE_TEST_TORCH"), "YOKE_TEST_TORCH names no interpreter with PyTorch")
    def test_pytorch_still_prints_what_the_page_shows(self):
        self.expect_recorded(run(os.environ["YOKE_TEST_TORCH"], FOLDER / "loop.py"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
