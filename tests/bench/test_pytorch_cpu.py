#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/pytorch_cpu.py, in tiny rounds: it races equal work and refuses unequal work; when one contender
fails the others go on; without PyTorch it says so.

usage: test_pytorch_cpu.py YOKE. Skipped (77) where no Python here has PyTorch.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

from test_pytorch_gpu import BENCH, python_with_torch

# Other tests run meanwhile: threads that spin for each other would lose their turns.
PATIENT = ("--environment", "OMP_WAIT_POLICY=passive")
NO_TORCH = "import importlib.util, sys; " \
    "importlib.util.find_spec = lambda name: None; import pytorch_cpu; sys.exit(pytorch_cpu.main())"
FASTER_LEARNER = "import pytorch_contenders; pytorch_contenders.LEARNING_RATE = 2e-2; " \
    "import pytorch_worker; pytorch_worker.LEARNING_RATE = 2e-2; pytorch_worker.main()"

OTHER_EPSILON = "import torch; norm = torch.nn.BatchNorm2d; " \
    "torch.nn.BatchNorm2d = lambda channels: norm(channels, eps=1e-3); import pytorch_worker; pytorch_worker.main()"
OTHER_MOMENTUM = "import pytorch_worker; pytorch_worker.MOMENTUM = 0.5; pytorch_worker.main()"


def race(command, yoke, *options):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "rows.json"
        done = subprocess.run([*command, "--yoke", yoke, "--json", report, "--rounds", "3", "--seconds", "1",
                               *PATIENT, *options], cwd=BENCH, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=900)
        print(done.stdout)
        return done.returncode, done.stdout, json.loads(report.read_text()) if report.exists() else None


def check_equal_work(python, yoke):
    _, _, report = race([python, "pytorch_cpu.py"], yoke, "--models", "resnet20,mlp,gpt2", "--contenders", "eager,ddp",
                        "--precisions", "float32")
    names = [row["name"] for row in report["rows"]]
    assert names == [*(f"{model}-b32-float32-x2 {against}" for model in ("resnet20", "mlp")
                       for against in ("best", "ddp")), "gpt2-b32-float32-x2 best"], names
    assert all(row["verdict"] in ("pass", "in noise", "MISS") and row["value"] > 0 for row in report["rows"]), \
        "equal work was called unequal"
    images, mlp, text = report["setups"]
    assert set(images["contenders"]) == {"eager", "eager-channels_last", "ddp", "ddp-channels_last"}
    assert set(mlp["ms"]) == {"yoke", "yoke again", "yoke-ddp", "eager", "ddp"}
    assert set(text["contenders"]) == {"eager"}, "the ranks of `yoke bench` read no text"
    for setup in (images, mlp, text):
        assert not setup["failed"], setup["failed"]
        assert all(len(times) == 3 and min(times) > 0 for times in setup["ms"].values())
        assert all(math.isfinite(loss) for facts in setup["contenders"].values() for loss in facts["losses"])
    assert report["torch"]["threads"] == 2 and report["processor"]["cores"] >= 1 and report["yoke"]


def race_worker(python, yoke, model, code):
    """(exit code, row) of a race against a worker that does something else first."""
    with tempfile.TemporaryDirectory() as folder:
        worker = pathlib.Path(folder) / "worker.py"
        worker.write_text(f"import sys; sys.path.insert(0, {str(BENCH)!r}); {code}")
        other = f"import pathlib, sys, pytorch_cpu; pytorch_cpu.WORKER = pathlib.Path({str(worker)!r}); " \
            "sys.exit(pytorch_cpu.main())"
        code, _, report = race([python, "-c", other], yoke, "--models", model, "--contenders", "eager",
                               "--precisions", "float32")
    return code, report["rows"][0]


def check_unequal_work(python, yoke):
    code, row = race_worker(python, yoke, "mlp", FASTER_LEARNER)
    assert code == 1 and row["verdict"] == "void", row


def check_chaos(python, yoke):
    """Losses of resnet50 on small images say nothing: the weights decide."""
    _, row = race_worker(python, yoke, "resnet50", "import pytorch_worker; pytorch_worker.main()")
    assert row["verdict"] != "void" and "off float64's" in row["text"], row
    for wrong in (OTHER_EPSILON, OTHER_MOMENTUM):
        code, row = race_worker(python, yoke, "resnet50", wrong)
        assert code == 1 and row["verdict"] == "void", row


def check_failure(python, yoke):
    """A compiler that is not there: only torch.compile needs one."""
    _, _, report = race([python, "pytorch_cpu.py"], yoke, "--models", "mlp", "--contenders", "compile,eager",
                        "--precisions", "float32", "--environment", "CXX=/nothing/here",
                        "--environment", "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1")
    assert set(report["setups"][0]["failed"]) == {"compile"}, report["setups"]
    assert report["rows"][0]["rival"] == "eager"


def main():
    python, yoke = python_with_torch(), str(pathlib.Path(sys.argv[1]).resolve())
    check_equal_work(python, yoke)
    check_unequal_work(python, yoke)
    check_chaos(python, yoke)
    check_failure(python, yoke)
    code, text, report = race([python, "-c", NO_TORCH], yoke, "--models", "mlp")
    assert code == 77 and text.count("skipped") == 2 and report is None, text
    code, text, _ = race([python, "pytorch_cpu.py"], yoke, "--models", "alexnet")
    assert code == 2 and "alexnet is none of" in text, text


if __name__ == "__main__":
    main()
