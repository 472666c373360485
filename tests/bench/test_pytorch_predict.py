#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/pytorch_predict.py, in tiny rounds: it races equal outputs and refuses unequal ones; without PyTorch it says so.

usage: test_pytorch_predict.py YOKE. Skipped (77) where no Python here has PyTorch.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from test_pytorch_gpu import BENCH, python_with_torch

OTHER_WEIGHTS = "import sys, pytorch_contenders, pytorch_predict; pytorch_contenders.load = lambda *_: None; " \
    "sys.exit(pytorch_predict.main())"
NO_TORCH = "import importlib.util, sys; " \
    "importlib.util.find_spec = lambda name: None; import pytorch_predict; sys.exit(pytorch_predict.main())"
TINY = ("--models", "resnet20", "--contenders", "eager", "--rows", "2", "--threads", "1", "--rounds", "3", "--seconds", "0.5")


def race(command, yoke):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "times.json"
        done = subprocess.run([*command, "--yoke", yoke, "--json", report, *TINY], cwd=BENCH, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
        print(done.stdout)
        return done.returncode, done.stdout, json.loads(report.read_text()) if report.exists() else None


def main():
    python, yoke = python_with_torch(), str(pathlib.Path(sys.argv[1]).resolve())
    code, _, (report,) = race([python, "pytorch_predict.py"], yoke)
    assert max(report["apart"].values()) < 1e-4 and report["made_ms"] > 0, report
    assert set(report["ms"]) == {"eager", "yoke", "yoke again"}, report["ms"]
    assert all(len(times) == 3 and min(times) > 0 for times in report["ms"].values()), report["ms"]
    assert (code == 1) == (report["verdict"] == "MISS") and report["verdict"] != "void", report
    code, _, (report,) = race([python, "-c", OTHER_WEIGHTS], yoke)
    assert code == 1 and report["verdict"] == "void", report
    code, text, report = race([python, "-c", NO_TORCH], yoke)
    assert code == 77 and "skipped" in text and report is None, text


if __name__ == "__main__":
    main()
