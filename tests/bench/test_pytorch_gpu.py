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
NO_TORCH = "import importlib.util, sys; " \
    "importlib.util.find_spec = lambda name: None; import pytorch_gpu; sys.exit(pytorch_gpu.main())"
# A worker in whose process something else is the case.
WORKER = """
import pathlib, sys
import gpu_race, pytorch_gpu
worker = pathlib.Path({folder!r}) / "worker.py"
worker.write_text("import sys; sys.path.insert(0, {bench!r})\\n" + {change!r} + "\\nimport pytorch_gpu_worker; "
                  "pytorch_gpu_worker.main()")
gpu_race.WORKERS["torch"] = worker
sys.exit(pytorch_gpu.main())
"""
NOT_CAUSAL = """
import torch.nn.functional as F
attend = F.scaled_dot_product_attention
F.scaled_dot_product_attention = lambda query, key, value, is_causal: attend(query, key, value)
"""
FASTER_LEARNER = "import pytorch_contenders; pytorch_contenders.LEARNING_RATE = 2e-2"
# The plain layout fails in its last turn.
FAILING = """
import pytorch_contenders
steps, turns = pytorch_contenders.Eager.steps, {}

def failing(self, count):
    turns[id(self)] = turns.get(id(self), 0) + 1
    if self.format is pytorch_contenders.torch.contiguous_format and turns[id(self)] > 4:
        raise RuntimeError("CUDA out of memory")
    return steps(self, count)

pytorch_contenders.Eager.steps = failing
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
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
        print(done.stdout)
        return done.returncode, json.loads(report.read_text()) if report.exists() else {"rows": []}


def race_changed(python, yoke, change, *options):
    with tempfile.TemporaryDirectory() as folder:
        return race([python, "-c", WORKER.format(folder=folder, bench=str(BENCH), change=change)], yoke, *options)


def check_failing_contender(python, yoke):
    """It leaves the others their race."""
    code, report = race_changed(python, yoke, FAILING, "--rows", "mlp-b8-float32 eager", "resnet20-8-b16-float32 eager")
    mlp, images = report["rows"]
    assert mlp["verdict"] == "skipped" and "eager: out of memory: needs about" in mlp["text"], mlp
    assert images["rival"] == "eager channels_last", images


def check_without_torch(yoke):
    """Yoke's own figures need nobody else."""
    code, report = race([sys.executable, "-c", NO_TORCH], yoke)
    found = {row["name"]: row["verdict"] for row in report["rows"] if row["verdict"] != "skipped"}
    assert code == 0 and report["whole"], report
    assert found == {"mlp-b8-float32 processor": "reported", "mlp-b8-float32-x2 one device": "measured",
                     "mlp-b8-float32 kernel time": "measured"}, found
    absent = {row["text"].rpartition(": ")[2] for row in report["rows"] if row["verdict"] == "skipped"}
    assert absent == {"this Python has no PyTorch", "this Python has no JAX", "only on GPUs"}, report["rows"]


def check_out_of_time(yoke):
    code, report = race([sys.executable, "-c", NO_TORCH], yoke, "--seconds", "0", "--rows", "processor", "kernels")
    assert code == 0 and report["whole"] and {row["verdict"] for row in report["rows"]} == {"out of time"}, report


def check_equal_work(python, yoke):
    code, report = race([python, "pytorch_gpu.py"], yoke)
    rows = {row["name"]: row for row in report["rows"]}
    assert code == 0 and report["whole"] and len(rows) == 10, (code, sorted(rows))
    assert all(row["verdict"] in ("measured", "reported", "skipped") for row in rows.values()), rows
    eager = [row for name, row in rows.items() if name.endswith(" eager")]
    assert len(eager) == 3 and all(row["loss_difference"] < 1e-3 and row["value"] > 0 for row in eager)
    assert rows["gpt2-tiny-16-b2-float32 eager"]["loss_difference"] < 1e-5, "another transformer"
    assert rows["mlp-b8-float32 graph"]["text"] == "graph: only on GPUs"
    assert rows["mlp-b8-float32-x2 data_parallel"]["text"] == "data_parallel: only on GPUs"
    jax = [row for name, row in rows.items() if name.endswith(" jax")]
    if subprocess.run([python, "-c", "import jax"], capture_output=True).returncode == 0:
        assert len(jax) == 2 and all(row["loss_difference"] < 1e-3 and row["value"] > 0 for row in jax), jax
    else:
        assert [row["text"] for row in jax] == ["jax: this Python has no JAX"] * 2, jax
    assert all(len(times) == 3 for times in report["setups"][0]["ms"].values())


def check_unequal_work(python, yoke):
    for change, name in ((FASTER_LEARNER, "mlp-b8-float32 eager"), (NOT_CAUSAL, "gpt2-tiny-16-b2-float32 eager")):
        code, report = race_changed(python, yoke, change, "--rows", name)
        row, = report["rows"]
        assert code == 1 and row["verdict"] == "losses differ", row
        assert row["losses"]["yoke"] != row["losses"]["eager"] and len(row["losses"]["eager"]) == 4, row
        assert "linear forward" in row["text"] and "cudnn.benchmark" in row["text"], row


def main():
    yoke = str(pathlib.Path(sys.argv[1]).resolve())
    check_without_torch(yoke)
    check_out_of_time(yoke)
    python = python_with_torch()
    check_equal_work(python, yoke)
    check_unequal_work(python, yoke)
    check_failing_contender(python, yoke)
    code, report = race([python, "pytorch_gpu.py"], yoke, "--rows", "no-such-row")
    assert code == 1 and not report["rows"], "a row that is not there was measured"


if __name__ == "__main__":
    main()
