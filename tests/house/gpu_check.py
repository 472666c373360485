#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check.sh without a GPU, over stand-ins for the driver and all that is built: its parts fail, skip or run
out of time one by one, its report says what happened, is whole at any moment, and --missing completes it. Machines
that lack something have their rows left out, with a reason and an exit code.

usage: gpu_check.py ROOT
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

SMI = """#!/bin/sh
case "$2" in
*uuid*) echo "NVIDIA H200, GPU-1, 580.1, 143771, 9.0, 1980, 700.00" ;;
*compute-apps*) ;;
--query-gpu=utilization.gpu) echo 0 ;;
*) echo "1980, 3201, 40, 120.5" ;;
esac
"""
SOURCE = "cmocka_unit_test(adds),\ncmocka_unit_test(divides),\ncmocka_unit_test(replays),\ncmocka_unit_test(ends),\n"
# Its cases, one for each argument.
CMOCKA = """#!/bin/sh
echo "[ RUN      ] $1"
case "$1" in
adds) echo "[       OK ] adds" ;;
divides)
    echo "[  ERROR   ] --- conv of 3: output: element 1 is 2, on the CPU 3; error 1e+00, allowed 1e-05"
    echo "[   LINE   ] --- test.c:7: error: Failure!"
    echo "[  FAILED  ] divides"
    exit 1 ;;
replays)
    echo "skipped: this device does not record"
    echo "[  SKIPPED ] replays" ;;
ends) kill -SEGV $$ ;;
esac
"""
SLOW = """#!/bin/sh
[ "$1" = adds ] && echo "[       OK ] adds" && exit
echo "[ RUN      ] $1"
sleep 60 & sleep 60
"""
# `yoke bench --drive` whose losses depend on the model, and for classic on the schedule, too; for bfloat16 it ends.
# `--kernels` finds a convolution by im2col.
DRIVEN = """#!{python}
import sys
if "devices" in sys.argv:
    print('{{"backends": [{{"name": "cuda", "detail": "CUDA 13.0, cuDNN 9.1.0 (here), NCCL 2.28.9 (here)"}}], "devices": []}}')
    sys.exit()
if "--kernels" in sys.argv:
    print('{{"model": "resnet50", "rows": 256, "precision": "bfloat16", '
          '"calls": [{{"layer": "conv1", "operation": "conv2d", '
          '"direction": "forward", "algorithm": "im2col", "shape": "3x224x224", "ms": 1.5, "roofline_ms": 0.3}}]}}')
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
[ "$1" = bench ] || exit
head -n 30 | sed 's/.*/{"loss": 2}/'
exec sleep 60
"""
PROBE = """#!/bin/sh
echo "order of events: as promised"
printf '{"section": "events"}\\n{"sect' >"$2"
exec sleep 60
"""
# bench/pytorch_gpu.py, where the row SLOW takes a minute.
ROWS = """
NAMES = {"mlp eager": "pass", "mlp processor": "reported", "resnet20 eager": "losses differ", "gpt2 graph": "MISS",
         "mlp+mapped without": "measured", "mlp+decode without": "losses differ"}
ROWS = FAKE_ROWS = list(NAMES)
"""
RACE = """
import json, os, sys, time
from gpu_rows import NAMES

def name_of(row):
    return row

def select(rows, words):
    found = [row for row in rows if row in words or row.split()[0] in words
             or ("without" in row) == ("variants" in words) and (not words or "variants" in words)]
    return found or sys.exit(f"no row is called {words}")

def main():
    options = dict(zip(sys.argv[1:], sys.argv[2:]))
    report = {"torch": "2.11", "asked": [], "rows": []}
    if "--missing" in options:
        report = json.load(open(options["--missing"]))
    else:
        report["asked"] = sys.argv[sys.argv.index("--rows") + 1:]
    for name in report["asked"]:
        if name in [row["name"] for row in report["rows"]]:
            continue
        time.sleep(60 if os.environ.get("SLOW") == name else 0)
        text = "1.1 (1.0 .. 1.2); losses of yoke: 2.30 2.20; losses of eager: 2.30 2.40"
        report["rows"].append({"name": name, "verdict": NAMES[name], "text": text, "high": 1.2})
        with open(options["--json"] + ".new", "w") as file:
            json.dump(report, file)
        os.replace(options["--json"] + ".new", options["--json"])
        print(name, flush=True)

if __name__ == "__main__":
    main()
"""
TOOLS = ("sh", "cat", "sleep", "head", "sed", "dirname", "env", "bash", "setpriv")


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
        self.yoke = self.root / "build/cuda/yoke"
        write_program(self.root / "tests/cuda/test_cuda_operations.c", SOURCE)
        write_program(self.root / "bench/gpu_rows.py", ROWS)
        write_program(self.root / "bench/pytorch_gpu.py", RACE)

    def start(self, *options, **settings):
        environment = {"PATH": str(self.path), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHOME": sys.base_prefix, **settings}
        return subprocess.Popen([self.root / "scripts/gpu-check.sh", "--out", self.out, *options], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                                start_new_session=True)

    def run(self, *options, **settings):
        """(exit code, report, text) of a run with no report beside its own"""
        shutil.rmtree(self.out, ignore_errors=True)
        return self.run_again(*options, **settings)

    def run_again(self, *options, **settings):
        with self.start(*options, **settings) as process:
            printed = process.communicate(timeout=900)[0]
        found = sorted(self.out.iterdir()) if self.out.exists() else []
        assert [path.suffix for path in found] == [".json", ".log", ".txt"], (found, printed)
        return process.returncode, json.loads(found[0].read_text()), found[2].read_text()

    def refuse(self, *options):
        """(exit code, what it printed) of a run that writes no report"""
        shutil.rmtree(self.out, ignore_errors=True)
        with self.start(*options) as process:
            printed = process.communicate(timeout=900)[0]
        return process.returncode, printed

    def file(self):
        found = list(self.out.glob("*.json"))
        return found[0] if found else None

    def report(self):
        """What is there now, or None; a report is never half one."""
        return json.loads(self.file().read_text()) if self.file() else None

    def wait_for(self, name):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            report = self.report()
            if report and verdicts(report).get(name, ("not begun",))[0] != "not begun":
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
    run.facts["gpus"] = []
    run.now["piece"] = "kernels"
    run.plan("kernels", "operations", ["adds"])
    for wrong in (lambda *_: 1 / 0, gpu_check.operations):
        gpu_check.run_part(run, wrong, time.monotonic() + 10, ["adds"])
    assert [check["verdict"] for check in run.checks] == ["failed", "not begun"], run.checks
    assert "is not built" in run.checks[1]["reason"], run.checks
    gpu_check.run_part(run, gpu_check.operations, time.monotonic() - 1, ["adds"])
    assert run.checks[1]["verdict"] == "out of time", run.checks


def check_seconds(gpu_check, root):
    """No piece lasts longer than a command may, and the page says how long each is."""
    page = (root / "docs" / "gpu-hour.md").read_text()
    for piece, parts in gpu_check.PIECES.items():
        seconds = gpu_check.seconds_of(piece)
        assert seconds <= gpu_check.PIECE_S < 580, f"{piece} takes {seconds} s"
        row = f"| `{piece}` | {seconds / 60:.1f} | " + ", ".join(
            f"{part.__name__} {seconds}" for part, seconds in parts.items()) + " |"
        assert row in page, f"docs/gpu-hour.md lacks the line {row}"


def check_machine_without_tools(machine):
    """Without git, a compiler and CMake a piece says what is missing; what is built runs all the same."""
    write_program(machine.tests / "test_cuda_operations", CMOCKA)
    write_program(machine.yoke, DRIVEN.format(python=sys.executable))
    code, report, text = machine.run("--piece", "kernels")
    found = verdicts(report)
    assert code == 1 and report["gpus"][0]["compute_cap"] == "9.0" and report["commit"] is None, report
    assert report["clocks"]["before"][0]["clocks.sm"] == "1980" and "after kernels" in report["clocks"]
    assert found["build"] == ("failed", "cmake is not on this machine"), found
    assert found["adds"][0] == "passed" and "on the CPU 3" in found["divides"][1], found
    assert found["replays"] == ("skipped", "this device does not record") and found["ends"][1].startswith("ended by SIGSEGV"), found
    assert found["gpu_probe"] == ("not begun", "gpu_probe is not built"), found
    assert "NVIDIA H200, 143771 MiB" in text and "for what is missing: scripts/gpu-check.sh --piece kernels" in text, text
    assert found["resnet50, 256 rows, bfloat16"] == ("failed", "1.5 ms in 1 calls, 1 by im2col: conv1 forward")
    assert "1.5000     1    20 %  conv2d        forward          im2col         3x224x224" in text, text
    code, report, text = machine.run("--piece", "prove")
    found = verdicts(report)
    assert "compute-sanitizer is not on this machine" in text
    assert found["mlp, 8 replicas = mlp"][0] == "passed"
    assert found["mlp, 4 replicas, classic = mlp"][0] == "failed"
    assert found["mlp, bfloat16"] == ("failed", "out of memory"), found
    assert found["resnet20, 4 replicas = resnet20, 4 CPU devices"][0] == "passed", found


def check_replicas_go_on(machine):
    """An engine that does not open fails its own check only."""
    write_program(machine.yoke, DRIVEN.format(python=sys.executable).replace("bfloat16", "half"))
    found = verdicts(machine.run("--only", "replicas")[1])
    assert found["resnet20, 8 CPU devices"] == ("failed", "no eight"), found
    assert found["resnet20, 8 replicas = resnet20, 8 CPU devices"][0] == "skipped", found
    assert found["resnet20, 4 replicas = resnet20, 4 CPU devices"][0] == "passed", found
    assert found["mlp, all GPUs"][0] == "skipped" and "replicas" not in found, found


def shorten(machine, part, seconds):
    """The part gets so many seconds and the piece no others; returns how to undo that."""
    script = machine.root / "scripts" / "gpu_check.py"
    whole = script.read_text()
    text = re.sub(rf"\b{part}: \d+", f"{part}: {seconds}", whole)
    text = text.replace("end = begin + run.scale * (PIECE_S - CLOSE_S)",
                        "end = time.monotonic() + run.scale * sum(parts.values())")
    assert text.count(f"{part}: {seconds}") == 1 and text != whole, part
    script.write_text(text)
    return lambda: script.write_text(whole)


def check_replicas_out_of_time(machine):
    """The verdict names the engine that trained when the time was over."""
    write_program(machine.yoke, TIRED)
    undo = shorten(machine, "replicas", 3)
    code, report, _ = machine.run("--only", "replicas")
    undo()
    found = verdicts(report)
    assert found["mlp"][0] == "passed" and found["mlp, 2 replicas = mlp"] == ("out of time", "in mlp, 2 replicas"), found
    assert code == 3 and found["resnet20, every variant = resnet20, 1 CPU devices"][0] == "out of time", found


def check_endings(machine):
    """Killed, ended by a signal or out of time: what was known is on disk, nothing runs on, and --missing completes it."""
    write_program(machine.tests / "test_cuda_operations", SLOW)
    shutil.rmtree(machine.out)
    process = machine.start("--only", "operations")
    machine.wait_for("adds")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    found = verdicts(machine.report())
    assert found["adds"] == ("passed", "") and found["divides"] == ("not begun", ""), found
    write_program(machine.tests / "test_cuda_operations", CMOCKA.replace("adds)", "nobody)"))
    file = machine.file()
    code, report, text = machine.run_again("--only", "operations", "--missing", str(file))
    found = verdicts(report)
    assert code == 1 and found["adds"] == ("passed", ""), "what has a verdict was run again"
    assert [check.get("from") for check in report["checks"]] == [None, file.name, None, None, None], report["checks"]
    assert found["divides"][0] == "failed" and found["replays"][0] == "skipped" and "again" not in report, report
    code, report, text = machine.run_again("--only", "operations", "--missing", str(file), "--rows", "add*")
    assert verdicts(report)["adds"][0] == "failed" and verdicts(report)["divides"][0] == "failed", report["checks"]

    write_program(machine.tests / "test_cuda_operations", SLOW)
    shutil.rmtree(machine.out)
    process = machine.start("--only", "operations", "--only", "sanitizer")
    machine.wait_for("adds")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=900)
    report = machine.report()
    assert process.returncode == 3 and report["stopped"] == "SIGTERM", report
    assert verdicts(report)["divides"][0] == verdicts(report)["memcheck: own kernels"][0] == "out of time", report
    assert report["count"] == {"passed": 2, "failed": 0, "skipped": 0, "out of time": 8, "not begun": 0}, report["checks"]


def check_probe(machine):
    write_program(machine.tests / "gpu_probe", PROBE)
    undo = shorten(machine, "probe", 3)
    code, report, text = machine.run("--only", "probe")
    undo()
    assert code == 3 and verdicts(report)["gpu_probe"][0] == "out of time", report["checks"]
    assert report["probe"] == [{"section": "events"}] and "order of events: as promised" in text, report


def check_race(machine):
    """Verdicts of rows; a race that is killed goes on where it was."""
    write_program(machine.yoke, DRIVEN.format(python=sys.executable))
    code, report, _ = machine.run("--only", "race")
    found = verdicts(report)
    assert code == 1 and found["mlp eager"][0] == "passed" and found["mlp processor"][0] == "passed", found
    assert found["resnet20 eager"][0] == "failed" and found["gpt2 graph"][0] == "failed", found
    assert re.match("losses differ: .*losses of yoke: 2.30 2.20; losses of eager: 2.30 2.40", found["resnet20 eager"][1])
    shutil.rmtree(machine.out)
    process = machine.start("--only", "race", SLOW="resnet20 eager")
    machine.wait_for("mlp processor")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    file = machine.file()
    assert verdicts(json.loads(file.read_text()))["resnet20 eager"][0] == "not begun"
    code, report, _ = machine.run_again("--only", "race", "--missing", str(file), "--rows", "gpt2")
    found = {check["name"]: (check["verdict"], "from" in check) for check in report["checks"]}
    assert found["gpt2 graph"] == ("failed", False) and found["resnet20 eager"] == ("not begun", True), found
    code, report, _ = machine.run_again("--only", "race", "--missing", str(file))
    found = verdicts(report)
    assert code == 1 and found["resnet20 eager"][0] == "failed" and len(report["race"]["rows"]) == 4, report
    code, report, text = machine.run("--only", "variants")
    assert code == 1 and "mapped passed on this GPU" in text and "decode passed" not in text, text


def check_machines_that_lack(machine):
    """Rows are left out with a reason, and the exit code says so."""
    smi, yoke = machine.path / "nvidia-smi", DRIVEN.format(python=sys.executable)
    write_program(smi, SMI.replace("143771", "8192"))
    code, report, _ = machine.run("--only", "kernels", "--rows", "resnet50*")
    assert code == 4 and "needs 20 GiB of GPU memory; this GPU has 8" in report["checks"][1]["reason"], report["checks"]

    write_program(smi, SMI)
    write_program(machine.yoke, yoke.replace("cuDNN 9.1.0 (here)", "cuDNN is not in this build"))
    code, report, text = machine.run("--only", "race", "--rows", "resnet20*", "mlp processor")
    found = verdicts(report)
    assert code == 4 and "im2col computes every convolution" in found["resnet20 eager"][1], found
    assert found["mlp processor"][0] == "passed" and "no cuDNN that Yoke can use" in text, text

    write_program(machine.yoke, yoke.replace("NCCL 2.28.9 (here)", "NCCL 2.18 is older than 2.22 (there)"))
    write_program(smi, SMI.replace('echo "NVIDIA', 'echo "NVIDIA H200, GPU-0, 580.1, 143771, 9.0, 1980, 700.00"; echo "NVIDIA'))
    code, report, _ = machine.run("--only", "replicas", "--rows", "mlp, 2 GPUs*")
    assert code == 4 and verdicts(report)["mlp, 2 GPUs, nccl = mlp"] == ("skipped", "no NCCL 2.22 or newer"), report
    assert verdicts(report)["mlp, 2 GPUs, copy = mlp"][0] == "passed", report["checks"]

    write_program(machine.yoke, yoke)
    write_program(smi, SMI.replace("*compute-apps*) ;;", "*compute-apps*) echo '4711, python3' ;;"))
    code, report, text = machine.run("--only", "race", "--rows", "mlp")
    found = verdicts(report)
    assert code == 4 and "not judged, since the GPU was busy" in found["mlp eager"][1], found
    assert found["mlp processor"][0] == "passed" and "process 4711 (python3)" in text, text
    write_program(smi, SMI.replace("gpu) echo 0", "gpu) echo 87"))
    assert "at work 87 % of the time" in machine.run("--only", "race", "--rows", "mlp")[2]

    write_program(smi, "#!/bin/sh\nexit 9\n")
    code, report, text = machine.run("--piece", "race")
    assert code == 77 and "shows a GPU" in text and len(report["checks"]) == 1, report["checks"]
    write_program(smi, SMI)


def check_usage(machine):
    """Refused before anything is measured."""
    lost, wrong = machine.root / "lost.json", machine.root / "wrong.json"
    wrong.write_text('{"checks": [')
    for code, options, text in ((2, ("--piece", "stage"), "invalid choice"),
                                (2, ("--piece", "race", "--only", "probe"), "has no part probe"),
                                (2, ("--piece", "race", "--rows", "nobody"), "nothing here is called nobody"),
                                (66, ("--piece", "race", "--missing", str(lost)), "No such file"),
                                (65, ("--piece", "race", "--missing", str(wrong)), "no JSON")):
        found = machine.refuse(*options)
        assert found[0] == code and text in found[1], found


def check_luggage(machine):
    """The archive is unpacked without network, once, and anew when another one comes."""
    archive = machine.root / "build" / "deps.tar.xz"
    for commit in ("one", "two"):
        folder = machine.root / "luggage"
        write_program(folder / "commit", commit)
        (folder / "library").write_bytes(os.urandom(100000))
        with tarfile.open(archive, "w:xz") as file:
            file.add(folder, ".")
        code, report, text = machine.run("--piece", "build")
        assert verdicts(report)["build"] == ("failed", "cmake is not on this machine") and code == 1, report["checks"]
        assert (machine.root / "build/deps/commit").read_text() == commit and report["commit"] == commit, report["commit"]
    archive.write_bytes(archive.read_bytes()[:50000])
    code, report, text = machine.run("--piece", "build")
    assert code == 1 and "cannot be unpacked" in verdicts(report)["packages"][1], report["checks"]
    assert (machine.root / "build/deps/commit").read_text() == "two", "a broken archive took away what was there"


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
        check_seconds(gpu_check, root)
        check_usage(machine)
        check_machine_without_tools(machine)
        check_replicas_go_on(machine)
        check_replicas_out_of_time(machine)
        check_endings(machine)
        check_probe(machine)
        check_race(machine)
        check_machines_that_lack(machine)
        check_luggage(machine)
    print("gpu-check.sh keeps its word without a GPU")


if __name__ == "__main__":
    main()
