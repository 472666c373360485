#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/pytorch_gpu.py on the CPU: it fills every row, races equal work and refuses unequal work; without PyTorch
it measures Yoke alone.

usage: test_pytorch_gpu.py YOKE. Skipped (77) where no Python here has PyTorch.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
FASTER_LEARNER = "import sys, pytorch_contenders, pytorch_gpu; pytorch_contenders.LEARNING_RATE = 2e-2; " \
    "sys.exit(pytorch_gpu.main())"
NO_TORCH = "import importlib.util, sys; " \
    "importlib.util.find_spec = lambda name: None; import pytorch_gpu; sys.exit(pytorch_gpu.main())"

# The plain layout fails in its last turn.
FAILING = """
import sys, pytorch_contenders, pytorch_gpu
steps, turns = pytorch_contenders.Eager.steps, {}

def failing(self, count):
    turns[id(self)] = turns.get(id(self), 0) + 1
    if self.format is pytorch_contenders.torch.contiguous_format and turns[id(self)] > 4:
        raise RuntimeError("out of memory")
    return steps(self, count)

pytorch_contenders.Eager.steps = failing
sys.exit(pytorch_gpu.main())
"""


def python_with_torch():
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
            return python
    print("skipped: no PyTorch here")
    sys.exit(77)


def race(command, yoke, *options):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "rows.json"
        done = subprocess.run([*command, "--fake", "--yoke", yoke, "--json", report, *options], cwd=BENCH,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
        print(done.stdout)
        return done.returncode, json.loads(report.read_text()) if report.exists() else {"rows": []}


def check_failing_contender(python, yoke):
    """It leaves the others their race."""
    code, report = race([python, "-c", FAILING], yoke, "--only", "mlp-b8-float32 eager", "--only",
                        "resnet20-8-b16-float32 eager")
    mlp, images = report["rows"]
    assert mlp["verdict"] == "skipped" and "eager: RuntimeError: out of memory" in mlp["text"], mlp
    assert images["rival"] == "eager channels_last", images


def check_without_torch(yoke):
    """Yoke's own figures need nobody else; a setup that has none of these does not run."""
    code, report = race([sys.executable, "-c", NO_TORCH], yoke)
    measured = [row["name"] for row in report["rows"] if row["verdict"] == "measured"]
    assert code == 0 and report["whole"], report
    assert measured == ["mlp-b8-float32 kernel time", "mlp-b8-float32 processor",
                        "mlp-b8-float32-x2 one device"], measured
    absent = {row["text"].split(": ")[1] for row in report["rows"] if row["verdict"] == "skipped"}
    assert absent == {"this Python has no PyTorch"} and len(report["setups"]) == 2, report["rows"]


def check_out_of_time(yoke):
    code, report = race([sys.executable, "-c", NO_TORCH], yoke, "--seconds", "0")
    assert code == 0 and report["whole"] and {row["verdict"] for row in report["rows"]} == {"out of time"}, report


def check_equal_work(python, yoke):
    code, report = race([python, "pytorch_gpu.py"], yoke)
    rows = {row["name"]: row for row in report["rows"]}
    assert code == 0 and report["whole"] and len(rows) == 10, (code, sorted(rows))
    assert all(row["verdict"] in ("measured", "skipped") for row in rows.values()), "equal work was called unequal"
    eager = [row for name, row in rows.items() if name.endswith(" eager")]
    assert len(eager) == 2 and all(row["loss_difference"] < 1e-3 and row["value"] > 0 for row in eager)
    assert rows["mlp-b8-float32 compile"]["text"] == "compile: takes --compile"
    assert rows["mlp-b8-float32 graph"]["text"] == "graph: only on GPUs"
    assert rows["mlp-b8-float32-x2 data_parallel"]["text"] == "data_parallel: only on GPUs"
    jax = [row for name, row in rows.items() if name.endswith(" jax")]
    if subprocess.run([python, "-c", "import jax"], capture_output=True).returncode == 0:
        assert len(jax) == 2 and all(row["loss_difference"] < 1e-3 and row["value"] > 0 for row in jax), jax
    else:
        assert [row["text"] for row in jax] == ["jax: this Python has no JAX"] * 2, jax
    assert all(len(times) == 3 for times in report["setups"][0]["ms"].values())


def main():
    yoke = str(pathlib.Path(sys.argv[1]).resolve())
    check_without_torch(yoke)
    check_out_of_time(yoke)
    python = python_with_torch()
    check_equal_work(python, yoke)

    code, report = race([python, "-c", FASTER_LEARNER], yoke, "--only", "mlp-b8-float32 eager")
    assert code == 1 and report["rows"][0]["verdict"] == "losses differ", report["rows"]

    check_failing_contender(python, yoke)
    code, report = race([python, "pytorch_gpu.py"], yoke, "--only", "no-such-row")
    assert code == 1 and not report["rows"], "a row that is not there was measured"


if __name__ == "__main__":
    main()
