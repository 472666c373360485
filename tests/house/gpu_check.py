#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check.sh without a GPU, on a machine that has nothing but Python and a driver: its parts fail,
skip or run out of time one by one, its report says what happened and is whole at any moment.

usage: gpu_check.py ROOT
"""
import json
import os
import pathlib
import shutil
import signal
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
CMOCKA = """#!/bin/sh
cat <<END
[==========] Running 3 test(s).
[ RUN      ] adds
[       OK ] adds
[ RUN      ] divides
[  ERROR   ] --- conv of 3: output: element 1 is 2, on the CPU 3; error 1e+00, allowed 1e-05
[   LINE   ] --- test.c:7: error: Failure!
[  FAILED  ] divides
[ RUN      ] replays
skipped: this device does not record
[  SKIPPED ] replays
[  PASSED  ] 2 test(s).
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] divides
END
exit 1
"""
SLOW = """#!/bin/sh
echo "[ RUN      ] adds"
echo "[       OK ] adds"
echo "[ RUN      ] divides"
sleep 60 & sleep 60
"""
# `yoke bench --drive` whose losses depend on the model, and for classic on the schedule, too; for bfloat16 it ends.
# `--kernels` finds a convolution by im2col.
DRIVEN = """#!{python}
import sys
if "--kernels" in sys.argv:
    print('{{"model": "resnet50", "rows": 256, "precision": "bfloat16", '
          '"calls": [{{"layer": "conv1", "operation": "conv2d", '
          '"direction": "forward", "way": "im2col", "shape": "3x224x224", "ms": 1.5, "roofline_ms": 0.3}}]}}')
    sys.exit(1)
for line in sys.stdin:
    words = line.split()
    if words[0] == "open":
        loss = (2.0 if "model=mlp" in words else 3.0) + ("schedule=classic" in words)
    if "precision=bfloat16" in words:
        sys.exit("out of memory")
    if "devices=8xcpu" in words:
        loss = None
        print('{{"error": "no eight"}}', flush=True)
    elif words[0] == "steps":
        print('{{"loss": %g}}' % loss if loss else '{{"error": "not open"}}', flush=True)
    else:
        print("{{}}", flush=True)
"""
# `yoke bench --drive` that answers thirty requests.
TIRED = """#!/bin/sh
head -n 30 | sed 's/.*/{"loss": 2}/'
exec sleep 60
"""
PROBE = """#!/bin/sh
echo "order of events: as promised"
printf '{"section": "events"}\\n{"sect' >"$2"
exec sleep 60
"""
TOOLS = ("sh", "cat", "sleep", "head", "sed", "dirname", "env", "bash")


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Machine:
    """A tree with the scripts alone and a PATH without git, a compiler, CMake and pkg-config."""

    def __init__(self, root, folder):
        self.root, self.path, self.out = folder / "yoke", folder / "bin", folder / "out"
        shutil.copytree(root / "scripts", self.root / "scripts")
        self.path.mkdir()
        for tool in TOOLS:
            (self.path / tool).symlink_to(shutil.which(tool))
        (self.path / "python3").symlink_to(sys.executable)
        write_program(self.path / "nvidia-smi", SMI)
        self.tests = self.root / "build" / "cuda" / "tests"

    def start(self, *options):
        environment = {"PATH": str(self.path), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHOME": sys.base_prefix}
        return subprocess.Popen([self.root / "scripts/gpu-check.sh", "--out", self.out, *options], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                                start_new_session=True)

    def run(self, *options):
        """(exit code, report, text)"""
        shutil.rmtree(self.out, ignore_errors=True)
        with self.start(*options) as process:
            printed = process.communicate(timeout=120)[0]
        found = sorted(self.out.iterdir()) if self.out.exists() else []
        assert [path.suffix for path in found] == [".json", ".txt"], (found, printed)
        return process.returncode, json.loads(found[0].read_text()), found[1].read_text()

    def report(self):
        """What is there now, or None; a report is never half one."""
        found = list(self.out.glob("*.json"))
        return json.loads(found[0].read_text()) if found else None

    def wait_for(self, name):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            report = self.report()
            if report and name in [check["name"] for check in report["checks"]]:
                return
            time.sleep(0.05)
        raise AssertionError(f"{name} is in no report: {self.report()}")


def verdicts(report):
    return {check["name"]: (check["verdict"], check["reason"]) for check in report["checks"]}


def check_commands(gpu_run, folder):
    run = gpu_run.Run("none", folder / "out")
    heard, begin = [], time.monotonic()
    try:
        run.command(["sh", "-c", "echo begun; sleep 60 & sleep 60"], 0.5, heard.append)
        raise AssertionError("a command outlived its time")
    except gpu_run.Late as late:
        assert str(late) == "begun" and heard == ["begun"] and time.monotonic() - begin < 30
    assert run.command(["sh", "-c", "cat; printf last; exit 3"], given="a\nb\n") == (3, "a\nb\nlast")
    begin = time.monotonic()
    assert run.command(["sh", "-c", "echo left; sleep 60 &"]) == (0, "left") and time.monotonic() - begin < 30
    run.until = time.monotonic() - 1
    try:
        run.command(["echo", "never"])
        raise AssertionError("a command began after the end")
    except gpu_run.Late:
        pass


def check_parts(gpu_check, folder):
    run = gpu_check.Run("none", folder / "parts")
    run.now["stage"] = "prove"
    for wrong in (lambda _: 1 / 0, gpu_check.operations):
        gpu_check.run_part(run, wrong, time.monotonic() + 10)
    gpu_check.run_part(run, gpu_check.operations, time.monotonic() - 1)
    assert [check["verdict"] for check in run.checks] == ["failed", "skipped", "out of time"], run.checks


def check_machine_without_tools(machine):
    """Without git, a compiler and CMake a stage says what is missing; what is built runs all the same."""
    write_program(machine.tests / "test_cuda_operations", CMOCKA)
    write_program(machine.root / "build/cuda/yoke", DRIVEN.format(python=sys.executable))
    code, report, text = machine.run("--stage", "prove")
    found = verdicts(report)
    assert code == 1 and report["gpus"][0]["compute_cap"] == "9.0" and report["commit"] is None, report
    assert report["clocks"]["before"][0]["clocks.sm"] == "1980" and "after prove" in report["clocks"]
    assert found["build"] == ("failed", "cmake is not on this machine"), found
    assert found["test_cuda_operations: adds"][0] == "passed"
    assert "on the CPU 3" in found["test_cuda_operations: divides"][1], found
    assert found["test_cuda_operations: replays"] == ("skipped", "this device does not record")
    assert "NVIDIA H200, 143771 MiB" in text and "no test of this part is built" in text, text
    assert "compute-sanitizer is not on this machine" in text
    assert found["resnet50, 256 rows, bfloat16"] == ("failed", "1.5 ms in 1 calls, 1 by im2col: conv1 forward")
    assert "1.5000     1    20 %  conv2d        forward          im2col         3x224x224" in text, text
    assert found["mlp, 8 replicas = mlp"][0] == "passed"
    assert found["mlp, 4 replicas, classic = mlp"][0] == "failed"
    assert found["replicas"] == ("failed", "mlp, bfloat16: out of memory"), found


def check_replicas_go_on(machine):
    """An engine that does not open fails its own check only."""
    write_program(machine.root / "build/cuda/yoke", DRIVEN.format(python=sys.executable).replace("bfloat16", "half"))
    found = verdicts(machine.run("--only", "replicas")[1])
    assert found["resnet20, 8 CPU devices"] == ("failed", "no eight"), found
    assert found["resnet20, 8 replicas = resnet20, 8 CPU devices"][0] == "skipped", found
    assert found["resnet20, 4 replicas = resnet20, 4 CPU devices"][0] == "passed", found
    assert found["mlp, all GPUs"][0] == "skipped" and "replicas" not in found, found


def check_replicas_out_of_time(machine):
    """The verdict names the engine that trained when the time was over."""
    write_program(machine.root / "build/cuda/yoke", TIRED)
    scripts = machine.root / "scripts" / "gpu_check.py"
    whole = scripts.read_text()
    scripts.write_text(whole.replace('"prove": (360,', '"prove": (3,').replace("replicas: 25", "replicas: 1"))
    code, report, _ = machine.run("--only", "replicas")
    scripts.write_text(whole)
    assert code == 3 and verdicts(report)["replicas"] == ("out of time", "in mlp, 2 replicas"), report["checks"]


def check_endings(machine):
    """Killed, ended by a signal or out of time: what was known is on disk, and nothing runs on."""
    write_program(machine.tests / "test_cuda_operations", SLOW)
    shutil.rmtree(machine.out)
    process = machine.start("--only", "operations")
    machine.wait_for("test_cuda_operations: adds")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert verdicts(machine.report())["test_cuda_operations: adds"] == ("passed", ""), machine.report()

    shutil.rmtree(machine.out)
    process = machine.start("--only", "operations", "--only", "sanitizer")
    machine.wait_for("test_cuda_operations: adds")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    report = machine.report()
    assert process.returncode == 3 and report["stopped"] == "SIGTERM", report
    assert verdicts(report)["operations"][0] == verdicts(report)["sanitizer"][0] == "out of time", report
    assert report["count"] == {"passed": 2, "failed": 0, "skipped": 0, "out of time": 2}, report["checks"]


def check_probe(machine):
    code, report, text = machine.run("--stage", "probe")
    assert code == 1 and verdicts(report)["build"][0] == "failed", report["checks"]
    assert verdicts(report)["probe"] == ("skipped", "gpu_probe is not built"), report["checks"]
    write_program(machine.tests / "gpu_probe", PROBE)
    scripts = machine.root / "scripts" / "gpu_check.py"
    scripts.write_text(scripts.read_text().replace('"probe": (60, {probe: 55})', '"probe": (2, {probe: 1})'))
    code, report, text = machine.run("--only", "probe")
    assert code == 3 and verdicts(report)["probe"][0] == "out of time", report["checks"]
    assert report["probe"] == [{"section": "events"}] and "order of events: as promised" in text, report


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        machine = Machine(root, folder)
        sys.path.insert(0, str(machine.root / "scripts"))
        import gpu_check
        import gpu_run
        check_commands(gpu_run, folder)
        check_parts(gpu_check, folder)
        check_machine_without_tools(machine)
        check_replicas_go_on(machine)
        check_replicas_out_of_time(machine)
        check_endings(machine)
        check_probe(machine)
    print("gpu-check.sh keeps its word without a GPU")


if __name__ == "__main__":
    main()
