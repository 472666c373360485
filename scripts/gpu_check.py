# SPDX-License-Identifier: Apache-2.0
"""The stages of gpu-check.sh and their parts. A part's failure does not stop the others. Each stage has a
budget of seconds; a part gets what the stage has left, less what its later parts need.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import signal
import sys
import time

import gpu_machine
from gpu_run import FAILED, LATE, PASSED, ROOT, SKIPPED, Failure, Late, Run, Skip
from gpu_summary import kernel_lines

CASE = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\w+)$")
VERDICTS = {"OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}
# Tests of the backend itself; the others that run on devices of any backend are the engine's.
BACKEND_TESTS = ("test_collectives", "test_concurrent_devices")
AT_ONCE = 4  # test programs on one GPU
SKIPPED_CODE = 77


def last_line(text, code=None):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit {code}"


def skip(run, text):
    """Exit code 77 says that there is no GPU; where one was listed that is a failure."""
    raise (Failure if run.facts.get("gpus") else Skip)(text)


def need(*files):
    for file in files:
        if not file.exists():
            raise Skip(f"{file.name} is not built")


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


def targets_of(run):
    """What the stage runs."""
    if run.now["stage"] == "probe":
        return ["gpu_probe"]
    if run.now["stage"] in ("race", "ways"):
        return ["yoke-tool"]
    tests = [path.stem for path in test_sources(lambda path: is_backend(path) or is_engine(path))]
    return ["yoke-tool", "test_cuda_operations", *tests]


def build(run):
    """configures and builds what the stage runs, for this machine's GPUs only"""
    targets = targets_of(run)
    for tool in ("cmake", "ninja", "cc"):
        if not gpu_machine.has(run, tool):
            raise Failure(f"{tool} is not on this machine")
    capabilities = {gpu["compute_cap"].replace(".", "") for gpu in run.facts.get("gpus", [])}
    options = ["-DYOKE_WERROR=OFF", "-DYOKE_WITH_MPI=OFF"]
    if run.preset == "cuda":
        options += ["-DYOKE_WITH_CUDA=ON",
                    f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(sorted(capabilities)) or '90'}"]
    # What does not compile leaves the rest to be built.
    make = ["cmake", "--build", run.build, "--parallel", os.cpu_count(), "--target", *targets, "--", "-k", "0"]
    for name, words in (("configure", ["cmake", "--preset", run.preset, *options]), ("compile", make)):
        begin = time.monotonic()
        code, text = run.command(words)
        if code != 0:
            error = re.search(r"^.*(?:CMake Error|error:).*(?:\n  .*)*", text, re.MULTILINE)
            raise Failure(f"{name}: {' '.join(error[0].split())[:300] if error else last_line(text, code)}")
        run.check(name, PASSED, seconds=round(time.monotonic() - begin, 1))


# The probe.


def probe(run):
    """events in graphs, launches, every way to convolve, epilogues: a table of what this GPU does best"""
    program = folder_of(run, "gpu_probe")
    need(program)
    rows, result = run.results.setdefault("probe_text", []), run.build / "gpu-probe.json"
    result.unlink(missing_ok=True)
    try:
        tiny = ["--tiny"] if run.simulated else []
        code, text = run.command([program, "--json", result, *tiny], heard=rows.append)
    finally:
        if result.exists():
            whole = [line for line in result.read_text().split("\n")[:-1] if line]  # the last one may be cut
            run.results["probe"] = [json.loads(line) for line in whole]
    if code == SKIPPED_CODE:
        skip(run, last_line(text))
    run.check("gpu_probe", PASSED if code == 0 else FAILED, last_line(text, code))


# The proof.


class Cases:
    """The cases of a cmocka program, each reported as soon as it has ended."""

    def __init__(self, run, program):
        self.run, self.program, self.found, self.reason = run, program, {}, ""

    def hear(self, line):
        case = CASE.match(line)
        if case and case[2] not in self.found:  # failures are listed once more at the end
            self.found[case[2]] = verdict = VERDICTS[case[1]]
            self.run.check(f"{self.program}: {case[2]}", verdict, "" if verdict == PASSED else self.reason[:300])
        elif line.startswith("[ RUN "):
            self.reason = ""
        elif not self.reason and re.match(r"skipped: |\[\s+ERROR\s+\] --- .", line):
            self.reason = re.sub(r"^skipped: |^\[.*?\] --- ", "", line)


def run_cases(run, program):
    cases = Cases(run, program.name)
    code, text = run.command([program], heard=cases.hear, folder=program.parent)
    if code == SKIPPED_CODE:
        skip(run, last_line(text))
    if code != 0 and FAILED not in cases.found.values():
        run.check(program.name, FAILED, last_line(text, code))


def operations(run):
    """every operation on the GPU against the CPU"""
    program = folder_of(run, "test_cuda_operations")
    need(program)
    run_cases(run, program)


def run_test(run, name):
    """One test program on GPUs, as one check."""
    program, begin = folder_of(run, name), time.monotonic()
    settings = {"YOKE_TEST_BACKEND": "cuda", "XDG_CACHE_HOME": str(run.build / "cache"), "SIMCUDA_SEED": "2"}
    try:
        code, text = run.command([program], folder=program.parent, **settings)
    except Late as late:
        run.check(name, LATE, str(late))
        return
    counted = collections.Counter(case[1] for case in map(CASE.match, text.splitlines()) if case)
    reason = f"{counted['OK']} cases passed, {counted['SKIPPED']} skipped"
    absent = FAILED if run.facts.get("gpus") else SKIPPED
    verdict = {0: PASSED, SKIPPED_CODE: absent}.get(code, FAILED)
    if verdict != PASSED:
        errors = re.findall(r"^\[\s+ERROR\s+\] --- (.+)$|^.*error:.*$", text, re.MULTILINE)
        reason = next(filter(None, errors), last_line(text, code))[:300]
    run.check(name, verdict, reason, seconds=round(time.monotonic() - begin, 1))


def run_side_by_side(jobs):
    """Calls without arguments, a few at a time."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def run_tests(run, wanted):
    names = [path.stem for path in test_sources(wanted) if folder_of(run, path.stem).exists()]
    if not names:
        raise Skip("no test of this part is built")
    run_side_by_side([lambda name=name: run_test(run, name) for name in names])


def backend(run):
    """devices, streams, arithmetic, collectives and own kernels"""
    run_tests(run, is_backend)


def engine(run):
    """layers, replicas, schedules, training, PyTorch's fixtures"""
    run_tests(run, is_engine)


# What each engine trains: `like` names the engine whose losses must be the same.
Engine = collections.namedtuple("Engine", "name model devices count like tolerance words", defaults=("",))
MODELS = {"mlp": (20, "learning_rate=0.05"), "resnet20": (5, "learning_rate=0.01")}  # steps
ROWS = 64
# Whose kernels are timed: model, dataset, rows.
LARGE = (("resnet18-cifar", "synthetic:3x32x32,classes=10", 256), ("resnet50", "synthetic:3x224x224,classes=1000", 256))
SMALL = (("resnet20", "synthetic:3x8x8,classes=10", 4),)


def engines_of(gpus):
    """Those of one process. Batch norm sees one shard: as many CPU devices are what it must equal."""
    found = [Engine("mlp", "mlp", "cuda:0", 1, None, 0)]
    found += [Engine(f"mlp, {count} replicas", "mlp", f"{count}xcuda:0", count, "mlp", 1e-4) for count in (2, 4, 8)]
    found += [Engine(f"mlp, 4 replicas, {schedule}", "mlp", "4xcuda:0", 4, "mlp", 1e-4, f"schedule={schedule}")
              for schedule in ("classic", "sharded")]
    half = "precision=bfloat16"
    found += [Engine("mlp, bfloat16", "mlp", "cuda:0", 1, None, 0, half),
              Engine("mlp, bfloat16, 4 replicas", "mlp", "4xcuda:0", 4, "mlp, bfloat16", 2e-2, half),
              Engine("mlp, bfloat16, every way", "mlp", "cuda:0+all", 1, "mlp, bfloat16", 2e-2, half)]
    for count in (1, 2, 4, 8):
        cpu = f"resnet20, {count} CPU devices"
        found += [Engine(cpu, "resnet20", f"{count}xcpu", count, None, 0),
                  Engine(f"resnet20, {count} replicas", "resnet20", f"{count}xcuda:0", count, cpu, 1e-3)]
    found += [Engine("resnet20, every way", "resnet20", "cuda:0+all", 1, "resnet20, 1 CPU devices", 1e-3)]
    if gpus > 1:
        found += [Engine(f"mlp, {gpus} GPUs, {way}", "mlp", f"{gpus}xcuda", gpus, "mlp", 1e-4, f"collectives={way}")
                  for way in ("nccl", "copy")]
    return found


class Trainings:
    """The answers of `yoke bench --drive` to requests_of(engines), checked as they come."""

    def __init__(self, run, engines):
        self.run, self.losses, self.error = run, {}, ""
        self.waiting = [(engine, word) for engine in engines for word, _ in requests_of(engine, run)]

    def hear(self, line):
        if not line.startswith("{"):
            return
        answer, (engine, word) = json.loads(line), self.waiting.pop(0)
        if word == "open":
            self.losses[engine.name], self.error = [], ""
        self.error = self.error or answer.get("error", "")
        if word == "steps" and "loss" in answer:
            self.losses[engine.name].append(answer["loss"])
        if word == "close":
            self.compare(engine)

    def compare(self, engine):
        got, wanted = self.losses[engine.name], self.losses.get(engine.like or engine.name)
        if self.error or not got:
            self.run.check(engine.name, FAILED, self.error or "no loss")
        elif engine.like is None:
            return
        elif not wanted:
            self.run.check(f"{engine.name} = {engine.like}", SKIPPED, f"{engine.like} has no losses")
        else:
            apart = max((abs(a - b) / max(abs(b), 1e-6) for a, b in zip(got, wanted)), default=math.inf)
            good = len(got) == len(wanted) and apart <= engine.tolerance
            self.run.check(f"{engine.name} = {engine.like}", PASSED if good else FAILED,
                           f"losses of {len(got)} steps within {apart:.1e}, allowed {engine.tolerance:.0e}",
                           losses=got, tolerance=engine.tolerance)


def requests_of(engine, run):
    """(word, line) of each request"""
    steps, rate = MODELS[engine.model]
    side = ""
    if run.simulated:
        steps, side = 5, "side=8" if engine.model != "mlp" else ""
    words = f"model={engine.model} devices={engine.devices} rows={ROWS // engine.count} {rate} {side} {engine.words}"
    return [("open", f"open e {words}"), *[("steps", "steps e 1")] * steps, ("close", "close e")]


def replicas(run):
    """the same losses from 1, 2, 4 and 8 replicas on one GPU, and from all GPUs, in one process"""
    need(run.yoke)
    gpus = 8 if run.simulated else len(run.facts.get("gpus", []))
    engines = engines_of(gpus)
    trainings = Trainings(run, engines)
    requests = "".join(line + "\n" for engine in engines for _, line in requests_of(engine, run))
    try:
        code, text = run.command([run.yoke, "bench", "--drive"], given=requests, heard=trainings.hear)
    except Late as late:
        raise Late(f"in {trainings.waiting[0][0].name}" if trainings.waiting else str(late)) from None
    if gpus < 2:
        run.check("mlp, all GPUs", SKIPPED, "this machine has one GPU")
    if trainings.waiting:
        raise Failure(f"{trainings.waiting[0][0].name}: {last_line(text, code)}")


def kernels(run):
    """each kernel of a step alone, and no convolution by im2col"""
    need(run.yoke)
    gate = [] if run.simulated else ["--gate"]  # simulated times choose any algorithm
    for model, dataset, rows in SMALL if run.simulated else LARGE:
        code, text = run.command([run.yoke, "bench", "--kernels", "--model", model, "--dataset", dataset,
                                  "--rows", rows, "--precision", "bfloat16", "--device", "cuda:0", "--json", *gate])
        found = next((json.loads(line) for line in text.splitlines() if line.startswith("{")), None)
        calls = found["calls"] if found else []
        if calls:
            run.results.setdefault("kernels", {})[model] = found
            run.results.setdefault("kernels_text", []).extend(kernel_lines(found))
        fallen = [f"{call['layer']} {call['direction']}" for call in calls if call.get("way") == "im2col"]
        run.check(f"{model}, {rows} rows, bfloat16", PASSED if code == 0 and calls else FAILED,
                  f"{sum(call['ms'] for call in calls):.3g} ms in {len(calls)} calls, {len(fallen)} by im2col"
                  f"{': ' if fallen else ''}{', '.join(fallen[:5])}{', ...' if len(fallen) > 5 else ''}"
                  if calls else last_line(text, code))


def sanitize(run, name, tool, command):
    try:
        code, text = run.command(["compute-sanitizer", "--tool", tool, "--error-exitcode", 9, *command])
    except Late as late:
        run.check(name, LATE, str(late))
        return
    if re.search("Device not supported|Unable to (?:find|load)", text):
        run.check(name, SKIPPED, "compute-sanitizer does not work on this machine")
        return
    found = re.findall(r"^=+ (ERROR SUMMARY.*|RACECHECK SUMMARY.*|Error.*)$", text, re.MULTILINE)
    run.check(name, PASSED if code == 0 else FAILED, found[-1] if found else last_line(text, code))


def sanitizer(run):
    """compute-sanitizer's memcheck and racecheck on small shapes"""
    if not gpu_machine.has(run, "compute-sanitizer"):
        raise Skip("compute-sanitizer is not on this machine")
    program = folder_of(run, "test_cuda_operations")
    need(program, run.yoke)
    short = [run.yoke, "train", "--model", "mlp", "--dataset", "synthetic:1x28x28,classes=10,rows=1280",
             "--devices", "2xcuda:0", "--batch", 16, "--steps", 3, "--evaluate-every", -1, "--quiet"]
    commands = (("memcheck: own kernels", "memcheck", [program, "*the_cpu"]),
                ("racecheck: own kernels", "racecheck", [program, "*_cpu_drops"]),
                ("racecheck: normalisation", "racecheck", [program, "batch_norm*"]),
                ("racecheck: losses", "racecheck", [program, "losses*"]),
                ("memcheck: a training run", "memcheck", short))
    run_side_by_side([lambda words=words: sanitize(run, *words) for words in commands])


# The race.


RACED = {"pass": PASSED, "in noise": PASSED, "measured": PASSED, "MISS": FAILED, SKIPPED: SKIPPED, LATE: LATE}


def bench(run):
    """a training step beside PyTorch's and JAX's: their time / Yoke's, the median of the rounds and its interval"""
    race(run, "bench", *(["--compile"] if run.compile else []))


def ways(run):
    """a training step in each way that is off by default: the time without it / the time with it"""
    race(run, "ways", "--ways")


def race(run, name, *options):
    need(run.yoke)
    result = run.build / f"gpu-{name}.json"
    result.unlink(missing_ok=True)
    reported = []
    unequal = FAILED if name == "ways" else SKIPPED  # Yoke must equal itself; a contender may do other work

    def report(_line=""):
        """pytorch_gpu.py replaces the file after every setup."""
        found = run.results[name] = json.loads(result.read_text()) if result.exists() else {}
        versions = {package: found[package] for package in ("torch", "jax") if package in found}
        run.facts["versions"] = {**run.facts.get("versions", {}), **versions}
        for row in found.get("rows", [])[len(reported):]:
            reported.append(row)
            verdict, word = RACED.get(row["verdict"], unequal), row["verdict"]
            run.check(row["name"], verdict, row["text"] if word in (SKIPPED, LATE) else f"{word}: {row['text']}")

    words = [sys.executable, ROOT / "bench" / "pytorch_gpu.py", "--yoke", run.yoke, "--json", result,
             "--seconds", int(max(run.left() - 30, 10)), *options, *(["--fake", "cuda:0"] if run.simulated else [])]
    try:
        code, text = run.command(words, heard=report)
    except Late:
        report()
        for row in run.results[name].get("left", []):
            run.check(row, LATE, "the race ended before it did")
        raise
    report()
    if not run.results[name].get("whole"):
        raise Failure(last_line(text, code))


# Seconds of each stage, and of its parts what they need at least.
STAGES = {"probe": (60, {probe: 55}),
          "prove": (360, {build: 150, operations: 40, backend: 35, engine: 55, replicas: 25, kernels: 20,
                          sanitizer: 35}),
          "race": (540, {bench: 530}), "ways": (420, {ways: 410})}
BUILD_S = 150  # of a stage whose clock begins when it is built
MACHINE_S = 60


def run_part(run, part, until):
    run.now["part"], run.until = part.__name__, until
    run.parts[part.__name__] = part.__doc__
    print(f"{part.__name__}: {part.__doc__}", flush=True)
    try:
        if run.left() < 1:
            raise Late("before it began")
        part(run)
    except Skip as skip:
        run.check(part.__name__, SKIPPED, str(skip))
    except Failure as failure:
        run.check(part.__name__, FAILED, str(failure))
    except Late as late:
        run.check(part.__name__, LATE, str(late))
    except Exception as error:  # the script's own mistake must not hide the other parts
        run.check(part.__name__, FAILED, f"{type(error).__name__}: {error}")


def run_stage(run, name, only):
    run.now["stage"] = name
    seconds, parts = STAGES[name]
    if build not in parts and not only:
        run_part(run, build, time.monotonic() + run.scale * BUILD_S)
    end = time.monotonic() + run.scale * seconds
    parts = {part: run.scale * least for part, least in parts.items() if not only or part.__name__ in only}
    later = sum(parts.values())
    for part, least in parts.items():
        later -= least
        run_part(run, part, end - later)
    run.now["part"], run.until = None, time.monotonic() + MACHINE_S
    run.facts["clocks"][f"after {name}"] = gpu_machine.clocks(run)
    run.write()


def read_arguments():
    parts = {part.__name__: part for _, parts in STAGES.values() for part in parts}
    texts = [f"  {name}, {seconds} s:\n" + "\n".join(f"    {part.__name__:11} {part.__doc__}" for part in parts)
             for name, (seconds, parts) in STAGES.items()]
    parser = argparse.ArgumentParser(prog="gpu-check.sh", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="stages, their time and their parts:\n" + "\n".join(texts))
    parser.add_argument("--stage", choices=STAGES, help="this stage alone, built first")
    parser.add_argument("--only", action="append", choices=parts, metavar="PART",
                        help="this part alone, on what is built; may be repeated")
    parser.add_argument("--compile", action="store_true", help="race torch.compile, too, which takes minutes")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results", metavar="DIR",
                        help="where the two files go (bench/results)")
    parser.add_argument("--scale", type=float, default=1, metavar="X",
                        help="every time limit X times as long, for simulated GPUs or a slow machine")
    parser.add_argument("--preset", default="cuda", metavar="NAME", help="of the build: cuda or simcuda")
    return parser.parse_args()


def main():
    arguments = read_arguments()
    run = Run(arguments.preset, arguments.out.resolve(), arguments.stage)
    run.compile, run.scale = arguments.compile, arguments.scale
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, run.stop)
    run_part(run, gpu_machine.machine, time.monotonic() + MACHINE_S)
    only = arguments.only or []
    if run.checks[-1]["verdict"] == PASSED or only:
        for name, (_, parts) in STAGES.items():
            chosen = arguments.stage in (None, name)
            if chosen and (not only or any(part.__name__ in only for part in parts)):
                run_stage(run, name, only)
    count = run.count()
    print(f"\n{', '.join(f'{number} {verdict}' for verdict, number in count.items())}\n"
          f"wrote {run.path()}.json and .txt; what ran is in {run.build}/gpu-check.log")
    return 1 if count[FAILED] else 3 if count[LATE] else 0


if __name__ == "__main__":
    sys.exit(main())
