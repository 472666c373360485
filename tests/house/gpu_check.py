#!/usr/bin/env python3
"""scripts/gpu-check.sh without a GPU: its parts fail or skip one by one, its time limits hold, and its
report says what happened.

usage: gpu_check.py ROOT
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SMI = """#!/bin/sh
case "$2" in
*uuid*) echo "NVIDIA H200, GPU-1, 580.1, 143771, 9.0, 1980, 700.00" ;;
*) echo "1980, 3201, 40, 120.5" ;;
esac
"""
CMOCKA = """[ RUN      ] adds
[       OK ] adds
[ RUN      ] divides
[  ERROR   ] --- conv of 3: output: element 1 is 2, on the CPU 3; error 1e+00, allowed 1e-05
[  FAILED  ] divides
skipped: this device does not record
[  SKIPPED ] replays
"""


def check_run(gpu_check, folder):
    run = gpu_check.Run(argparse.Namespace(preset="none"))
    begin = time.monotonic()
    code, text = run.command(["sh", "-c", "echo begun; sleep 60 & sleep 60"], 0.5)
    assert (code, text) == (124, "begun\n") and time.monotonic() - begin < 10, (code, text)
    run.begin -= gpu_check.LIMIT_S - 0.3  # all time but a third of a second is spent
    assert run.command(["sleep", "60"], 30)[0] == 124
    run.begin = time.monotonic()

    gpu_check.report_cases(run, "program", 1, CMOCKA)
    gpu_check.report_cases(run, "other", 139, "Segmentation fault\n")
    found = {check["name"]: check for check in run.checks}
    assert found["program: adds"]["verdict"] == "passed"
    assert "on the CPU 3" in found["program: divides"]["reason"], found["program: divides"]
    assert found["program: replays"]["reason"] == "this device does not record"
    assert found["other"] == {"name": "other", "verdict": "failed", "reason": "Segmentation fault"}

    run.checks.clear()
    for wrong in (lambda _: 1 / 0, gpu_check.operations):
        gpu_check.run_part(run, wrong, 10)
    assert [check["verdict"] for check in run.checks] == ["failed", "skipped"], run.checks

    gpu_check.losses = lambda *_: [1.0, 0.5]
    run.checks.clear()
    for wanted in ([1.0, 0.50001], [1.0, 0.6], [1.0]):
        gpu_check.compare_losses(run, "losses", wanted, 1e-4, "cuda:0")
    assert [check["verdict"] for check in run.checks] == ["passed", "failed", "failed"], run.checks


def run_script(root, folder, path):
    done = subprocess.run([root / "scripts/gpu-check.sh", "--only", "operations", "--only", "sanitizer",
                           "--preset", "none", "--out", folder], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env={**os.environ, "PATH": path}, timeout=120)
    reports = list(pathlib.Path(folder).glob("*.json"))
    assert len(reports) == 1, done.stdout
    return done.returncode, reports[0], json.loads(reports[0].read_text())


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(root / "scripts"))
    sys.dont_write_bytecode = True
    import gpu_check
    with tempfile.TemporaryDirectory() as folder:
        check_run(gpu_check, folder)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as tools:
        smi = pathlib.Path(tools) / "nvidia-smi"
        smi.write_text(SMI)
        smi.chmod(0o755)
        code, path, report = run_script(root, folder, tools + os.pathsep + os.environ["PATH"])
        assert code == 0 and path.name.endswith("-nvidia-h200.json"), (code, path)
        assert report["gpus"][0]["compute_cap"] == "9.0" and report["clocks_before"][0]["clocks.sm"] == "1980"
        assert report["count"] == {"passed": 1, "failed": 0, "skipped": 2}, report["checks"]
        text = path.with_suffix(".txt").read_text()
        assert "NVIDIA H200, 143771 MiB" in text and "test_cuda_operations is not built" in text, text
    print("gpu-check.sh keeps its word without a GPU")


if __name__ == "__main__":
    main()
