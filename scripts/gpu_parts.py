# SPDX-License-Identifier: Apache-2.0
"""The parts of gpu-check.sh that build and test. A part names its checks before it begins (NAMES), makes those of
them that it is asked for, and says by an exception why it leaves the rest.
"""
import collections
import concurrent.futures
import json
import math
import os
import re
import signal
import time

from gpu_run import FAILED, LATE, PASSED, ROOT, SKIPPED, Failure, Late, NotBuilt, Skip
from gpu_summary import kernel_lines

CASE = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\w+)$", re.MULTILINE)
# Tests of the backend itself; the others that run on devices of any backend are the engine's.
BACKEND_TESTS = ("test_collectives", "test_concurrent_devices")
AT_ONCE = 4  # test programs on one GPU
CONFIGURE_S, TEST_S, SANITIZE_S = 40, 60, 100  # of one command at most
SKIPPED_CODE = 77


def last_line(text, code=None):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit {code}"


def need(*files):
    for file in files:
        if not file.exists():
            raise NotBuilt(f"{file.name} is not built")


def folder_of(run, *name):
    return run.build.joinpath("tests", *name)


# Building.


def test_sources(wanted):
    """Those that steer simulated GPUs have nothing to prove on others."""
    return [path for path in sorted((ROOT / "tests").glob("*/test_*.c"))
            if wanted(path) and "#include \"simcuda/" not in path.read_text()]


def is_backend(path):
    if path.stem == "test_cuda_operations":
        return False
    return path.stem.startswith("test_cuda_") or path.stem in BACKEND_TESTS


def is_engine(path):
    own = path.stem.startswith("test_cuda_") or path.stem in BACKEND_TESTS
    return not own and "RUN_ON_DEVICES" in path.read_text()


def test_names():
    return [path.stem for path in test_sources(lambda path: is_backend(path) or is_engine(path))]


TARGETS = {"build": lambda: ["yoke-tool", "gpu_probe", "test_cuda_operations", *test_names()],
           "kernels": lambda: ["yoke-tool", "gpu_probe", "test_cuda_operations",
                               *[path.stem for path in test_sources(is_backend)]],
           "race": lambda: ["yoke-tool"], "variants": lambda: ["yoke-tool"],
           "prove": lambda: ["yoke-tool", "test_cuda_operations", *[path.stem for path in test_sources(is_engine)]]}


def configure_words(run):
    capabilities = {gpu["compute_cap"].replace(".", "") + "-real" for gpu in run.facts.get("gpus", [])}
    options = ["-DYOKE_WERROR=OFF", "-DYOKE_WITH_MPI=OFF"]
    if run.preset == "cuda":
        options += ["-DYOKE_WITH_CUDA=ON",
                    f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(sorted(capabilities)) or '90-real'}"]
    return ["cmake", "--preset", run.preset, *options]


def build(run, _wanted):
    """configures, and compiles what the piece runs for this machine's GPUs only"""
    targets = TARGETS[run.now["piece"]]()
    for tool in ("cmake", "ninja", "cc"):
        if not run.has(tool):
            raise Failure(f"{tool} is not on this machine")
    # What does not compile leaves the rest to be built.
    make = ["cmake", "--build", run.build, "--parallel", os.cpu_count(), "--target", *targets, "--", "-k", "0"]
    for name, words, seconds in (("configure", configure_words(run), run.scale * CONFIGURE_S),
                                 ("compile", make, math.inf)):
        begin = time.monotonic()
        code, text = run.command(words, seconds)
        if code != 0:
            error = re.search(r"^.*(?:CMake Error|error:).*(?:\n  .*)*", text, re.MULTILINE)
            raise Failure(f"{name}: {' '.join(error[0].split())[:300] if error else last_line(text, code)}")
        run.check(name, PASSED, seconds=round(time.monotonic() - begin, 1))


# The probe.


def probe_names(_run):
    return ["gpu_probe"]


def probe(run, _wanted):
    """events in graphs, launches, variants to convolve, epilogues: a table of what this GPU does best"""
    program = folder_of(run, "gpu_probe")
    need(program)
    rows, result = [], run.build / "gpu-probe.json"
    result.write_text("".join(json.dumps(row) + "\n" for row in run.results.get("probe", [])))
    options = ["--missing", result] * (result.stat().st_size > 0) + ["--tiny"] * run.simulated
    run.results["probe_text"] = rows
    try:
        code, text = run.command([program, "--json", result, *options], heard=rows.append)
    finally:
        if result.exists():
            whole = [line for line in result.read_text().split("\n")[:-1] if line]  # the last one may be cut
            run.results["probe"] = [json.loads(line) for line in whole]
    if code == SKIPPED_CODE and not run.facts.get("gpus"):
        raise Skip(last_line(text))
    end = last_line(text, code)
    late = code == 0 and "no time for all of it" in end
    run.check("gpu_probe", LATE if late else PASSED if code == 0 else FAILED, end)


# Tests.


def judge_test(run, code, text):
    """(verdict, reason) of a cmocka program. Exit code 77 says that there is no GPU; where one was listed that is a
    failure."""
    counted = collections.Counter(case[1] for case in CASE.finditer(text))
    if code == SKIPPED_CODE:
        return FAILED if run.facts.get("gpus") else SKIPPED, last_line(text, code)
    if code < 0:
        return FAILED, f"ended by {signal.Signals(-code).name}: {last_line(text)}"
    if code != 0 or not counted:
        errors = re.findall(r"^\[\s+ERROR\s+\] --- (.+)$|^(.*error:.*)$", text, re.MULTILINE)
        return FAILED, next(filter(None, map("".join, errors)), last_line(text, code))[:300]
    if not counted["OK"]:
        return SKIPPED, next(iter(re.findall(r"^skipped: (.*)$", text, re.MULTILINE)), "")
    return PASSED, f"{counted['OK']} cases passed, {counted['SKIPPED']} skipped" if sum(counted.values()) > 1 else ""


def command_of(run, path):
    """What runs a test file: a program of its own, or that of its folder, which holds many."""
    own, shared = folder_of(run, path.stem), folder_of(run, f"tests_{path.parent.name}")
    return [own] if own.exists() else [shared, path.stem.removeprefix("test_")]


def run_test(run, name, program, *words):
    """A test program on GPUs, or one case of it, as one check."""
    begin = time.monotonic()
    settings = {"YOKE_TEST_BACKEND": "cuda", "XDG_CACHE_HOME": str(run.build / "cache"), "SIMCUDA_SEED": "2"}
    try:
        code, text = run.command([program, *words], run.scale * TEST_S, folder=program.parent, **settings)
    except Late as late:
        run.check(name, LATE, str(late))
        return
    run.check(name, *judge_test(run, code, text), seconds=round(time.monotonic() - begin, 1))


def run_side_by_side(jobs):
    """Calls without arguments, a few at a time."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def operations_names(_run):
    text = (ROOT / "tests" / "cuda" / "test_cuda_operations.c").read_text()
    return re.findall(r"cmocka_unit_test\((\w+)\)", text)


def operations(run, wanted):
    """every operation on the GPU against the CPU, each in a process of its own"""
    program = folder_of(run, "test_cuda_operations")
    need(program)
    run_side_by_side([lambda name=name: run_test(run, name, program, name) for name in wanted])


def run_tests(run, wanted):
    commands = {path.stem: command_of(run, path) for path in test_sources(lambda path: path.stem in wanted)}
    built = [name for name, command in commands.items() if command[0].exists()]
    run_side_by_side([lambda name=name: run_test(run, name, *commands[name]) for name in built])
    need(*[command[0] for command in commands.values()])


def backend_names(_run):
    return [path.stem for path in test_sources(is_backend)]


def backend(run, wanted):
    """devices, streams, arithmetic, collectives and own kernels"""
    run_tests(run, wanted)


def engine_names(_run):
    return [path.stem for path in test_sources(is_engine)]


def engine(run, wanted):
    """layers, replicas, schedules, training, PyTorch's fixtures"""
    run_tests(run, wanted)


# Whose kernels are timed: model, dataset, rows.
LARGE = (("resnet18-cifar", "synthetic:3x32x32,classes=10", 256), ("resnet50", "synthetic:3x224x224,classes=1000", 256))
SMALL = (("resnet20", "synthetic:3x8x8,classes=10", 4),)


def timed_models(run):
    return {f"{model}, {rows} rows, bfloat16": (model, dataset, rows)
            for model, dataset, rows in (SMALL if run.simulated else LARGE)}


def kernels_names(run):
    return list(timed_models(run))


def kernels(run, wanted):
    """each kernel of a step alone, and no convolution by im2col"""
    need(run.yoke)
    gate = [] if run.simulated else ["--gate"]  # simulated times choose any algorithm
    for name in wanted:
        model, dataset, rows = timed_models(run)[name]
        code, text = run.command([run.yoke, "bench", "--kernels", "--model", model, "--dataset", dataset,
                                  "--rows", rows, "--precision", "bfloat16", "--device", "cuda:0", "--json", *gate])
        found = next((json.loads(line) for line in text.splitlines() if line.startswith("{")), None)
        calls = found["calls"] if found else []
        if calls:
            run.results.setdefault("kernels", {})[model] = found
            run.results["kernels_text"] = [line for each in run.results["kernels"].values()
                                           for line in kernel_lines(each)]
        fallen = [f"{call['layer']} {call['direction']}" for call in calls if call.get("algorithm") == "im2col"]
        run.check(name, PASSED if code == 0 and calls else FAILED,
                  f"{sum(call['ms'] for call in calls):.3g} ms in {len(calls)} calls, {len(fallen)} by im2col"
                  f"{': ' if fallen else ''}{', '.join(fallen[:5])}{', ...' if len(fallen) > 5 else ''}"
                  if calls else last_line(text, code))


# The sanitizer.


def sanitized(run):
    """{check: (tool, command)}"""
    program = folder_of(run, "test_cuda_operations")
    short = [run.yoke, "train", "--model", "mlp", "--dataset", "synthetic:1x28x28,classes=10,rows=1280",
             "--devices", "2xcuda:0", "--batch", 16, "--steps", 3, "--evaluate-every", -1, "--quiet"]
    return {"memcheck: own kernels": ("memcheck", [program, "*the_cpu"]),
            "racecheck: own kernels": ("racecheck", [program, "*_cpu_drops"]),
            "racecheck: normalisation": ("racecheck", [program, "batch_norm*"]),
            "racecheck: losses": ("racecheck", [program, "losses*"]),
            "memcheck: a training run": ("memcheck", short)}


def sanitize(run, name, tool, command):
    try:
        code, text = run.command(["compute-sanitizer", "--tool", tool, "--error-exitcode", 9, *command],
                                 run.scale * SANITIZE_S)
    except Late as late:
        run.check(name, LATE, str(late))
        return
    if re.search("Device not supported|Unable to (?:find|load)", text):
        run.check(name, SKIPPED, "compute-sanitizer does not work on this machine")
        return
    found = re.findall(r"^=+ (ERROR SUMMARY.*|RACECHECK SUMMARY.*|Error.*)$", text, re.MULTILINE)
    run.check(name, PASSED if code == 0 else FAILED, found[-1] if found else last_line(text, code))


def sanitizer_names(run):
    return list(sanitized(run))


def sanitizer(run, wanted):
    """compute-sanitizer's memcheck and racecheck on small shapes"""
    if not run.has("compute-sanitizer"):
        raise Skip("compute-sanitizer is not on this machine")
    need(folder_of(run, "test_cuda_operations"), run.yoke)
    run_side_by_side([lambda name=name: sanitize(run, name, *sanitized(run)[name]) for name in wanted])
