"""The parts of gpu-check.sh. A part's failure does not stop the others; each has a budget of seconds
and all together have LIMIT_S.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

LIMIT_S = 525
ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPS = ROOT / "build" / "deps"  # made by pack-deps.sh
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
CASE = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\w+)$", re.MULTILINE)
# Tests of the backend itself; the others that take a backend are the engine's.
BACKEND_TESTS = ("test_device", "test_arithmetic", "test_collectives", "test_concurrent_devices")


class Skip(Exception):
    """Nothing to check here; the text says why."""


class Failure(Exception):
    """The part cannot go on; the text says why."""


class Run:
    """One run of the script: its checks, its log, its clock."""

    def __init__(self, arguments):
        self.preset = arguments.preset
        self.build = ROOT / "build" / arguments.preset
        self.yoke = self.build / "yoke"
        self.begin = time.monotonic()
        self.until = math.inf
        self.machine, self.checks, self.bench, self.log = {}, [], {}, []
        self.environment = dict(os.environ)
        self.environment["PATH"] += os.pathsep + "/usr/local/cuda/bin"
        if DEPS.is_dir():
            use_packed(self.environment)

    def left(self):
        return min(self.until, self.begin + LIMIT_S) - time.monotonic()

    def check(self, name, verdict, reason="", **figures):
        self.checks.append({"name": name, "verdict": verdict, "reason": reason, **figures})
        print(f"  {verdict:8} {name}{': ' + reason if reason else ''}", flush=True)

    def command(self, command, seconds=math.inf, **environment):
        """(exit code, output); 124 when it ran out of time, with all it started ended."""
        seconds = min(seconds, self.left())
        words = [str(word) for word in command]
        self.log.append("$ " + " ".join(words))
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True,
                                       env={**self.environment, **environment})
            try:
                code = process.wait(max(seconds, 0.1))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = 124
            output.seek(0)
            text = output.read()
        self.log.append(f"{text}[exit {code}]\n")
        return code, text


def use_packed(environment):
    """Packages carried in build/deps; only what nothing else finds goes into LD_LIBRARY_PATH."""
    def append(name, *paths):
        environment[name] = os.pathsep.join(filter(None, [environment.get(name), *map(str, paths)]))
    append("PATH", DEPS / "bin")
    append("CMAKE_PREFIX_PATH", DEPS)
    append("PKG_CONFIG_PATH", DEPS / "lib/pkgconfig")
    append("LD_LIBRARY_PATH", DEPS / "lib/needed")


def last_line(text, code=None):
    if code == 124:
        return "out of time"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit {code}"


def need(run, *files):
    for file in files:
        if not file.exists():
            raise Skip(f"{file.name} is not built")


# Parts, each a generator of nothing: they report through run.check.


def machine(run):
    """GPUs, driver, tools and their versions"""
    tools = {"nvcc": ["nvcc", "--version"], "cc": ["cc", "--version"],
             "cmake": ["cmake", "--version"], "ninja": ["ninja", "--version"],
             "compute-sanitizer": ["compute-sanitizer", "--version"]}
    versions = {name: first_version(run, command) for name, command in tools.items()}
    torch = "import torch; print(torch.__version__, torch.version.cuda, " \
            "torch.backends.cudnn.version(), torch.cuda.is_available())"
    code, text = run.command([sys.executable, "-c", torch], 60)
    versions["torch"] = last_line(text) if code == 0 else None
    run.machine = {"processor": processor(), "cores": os.cpu_count(), "versions": versions,
                   "gpus": gpus(run), "clocks_before": clocks(run)}
    if not run.machine["gpus"] and run.preset != "simcuda":
        raise Failure("nvidia-smi shows no GPU")
    names = ", ".join(gpu["name"] for gpu in run.machine["gpus"])
    run.check("machine", PASSED, names or "simulated GPUs")


def first_version(run, command):
    """The text of the command's line that holds a version; None when there is no such command."""
    if shutil.which(command[0], path=run.environment["PATH"]) is None:
        return None
    found = [line for line in run.command(command, 30)[1].splitlines() if re.search(r"\d+\.\d+", line)]
    return found[0].strip() if found else "unknown"


def processor():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return model[1] if model else None


def query(run, fields):
    if shutil.which("nvidia-smi") is None:
        return []
    code, text = run.command(["nvidia-smi", "--format=csv,noheader,nounits",
                              "--query-gpu=" + ",".join(fields)], 20)
    rows = [line.split(", ") for line in text.splitlines()] if code == 0 else []
    return [dict(zip(fields, row)) for row in rows if len(row) == len(fields)]


def gpus(run):
    return query(run, ["name", "uuid", "driver_version", "memory.total", "compute_cap",
                       "clocks.max.sm", "power.limit"])


def clocks(run):
    return query(run, ["clocks.sm", "clocks.mem", "temperature.gpu", "power.draw"])


def build(run):
    """configures and builds, for this machine's GPUs only"""
    capabilities = {gpu["compute_cap"].replace(".", "") for gpu in run.machine.get("gpus", [])}
    options = ["-DYOKE_WERROR=OFF"]
    if run.preset == "cuda":
        options += ["-DYOKE_WITH_CUDA=ON",
                    f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(sorted(capabilities)) or '90'}"]
    for words in (["cmake", "--preset", run.preset, *options],
                  ["cmake", "--build", run.build, "--parallel", os.cpu_count()]):
        begin = time.monotonic()
        code, text = run.command(words)
        name = "configure" if "--preset" in words else "compile"
        if code != 0:
            error = re.search(r"^.*(?:CMake Error|error:).*(?:\n  .*)*", text, re.MULTILINE)
            raise Failure(f"{name}: {' '.join(error[0].split())[:300] if error else last_line(text, code)}")
        run.check(name, PASSED, seconds=round(time.monotonic() - begin, 1))


def report_cases(run, program, code, text):
    """Every case of a cmocka program by its name."""
    cases = {}
    for word, name in CASE.findall(text):
        cases[name] = {"OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}[word]
    for name, verdict in cases.items():
        reason = re.search(r"^skipped: (.*)$", text, re.MULTILINE) if verdict == SKIPPED else None
        error = re.search(rf"^.*{name}: error: .*$|^.*ERROR.*(?:error|allowed).*$", text,
                          re.MULTILINE) if verdict == FAILED else None
        found = reason[1] if reason else error[0].strip() if error else ""
        run.check(f"{program}: {name}", verdict, found[:300])
    if code != 0 and FAILED not in cases.values():
        run.check(program, FAILED, last_line(text, code))


def operations(run):
    """every operation on the GPU against the CPU"""
    program = run.build / "tests" / "test_cuda_operations"
    need(run, program)
    code, text = run.command([program])
    if code == 77:
        raise Skip(last_line(text))
    report_cases(run, program.name, code, text)


def on_gpus(run, name):
    """The run of a test program that has GPUs as its devices, as ctest calls it."""
    both = run.preset != "simcuda" and not name.startswith("test_cuda_")
    return name + "_on_gpus" if both else name


def run_tests(run, names):
    """Test programs whose devices are GPUs, under ctest."""
    names = [name for name in names if (run.build / "tests" / name).exists()]
    if not names:
        raise Skip("no test of this part is built")
    result = run.build / "gpu-check.xml"
    result.unlink(missing_ok=True)
    code, text = run.command(["ctest", "--test-dir", run.build, "-j", 4, "--output-junit", result,
                              "-R", "^(" + "|".join(on_gpus(run, name) for name in names) + ")$"])
    if not result.exists():
        raise Failure(last_line(text, code))
    for case in xml.etree.ElementTree.parse(result).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        counted = {word: len(re.findall(rf"^\[\s+{word}\s+\] \w+$", output, re.MULTILINE))
                   for word in ("OK", "SKIPPED")}
        verdict = {"run": PASSED, "notrun": SKIPPED}.get(case.get("status"), FAILED)
        reason = f"{counted['OK']} cases, {counted['SKIPPED']} skipped"
        if verdict == FAILED:
            errors = re.findall(r"^.*error:.*$", output, re.MULTILINE)
            reason = errors[0][:300] if errors else last_line(output)
        run.check(case.get("name"), verdict, reason, seconds=float(case.get("time", 0)))


def test_names(wanted):
    sources = sorted((ROOT / "tests").glob("*/test_*.c"))
    return [path.stem for path in sources if path.stem != "test_cuda_operations" and wanted(path)]


def backend(run):
    """devices, streams, arithmetic, collectives and own kernels"""
    run_tests(run, test_names(lambda path: path.stem in BACKEND_TESTS
                              or path.stem.startswith("test_cuda_")))


def engine(run):
    """layers, replicas, schedules, training, PyTorch's fixtures"""
    run_tests(run, test_names(lambda path: path.stem not in BACKEND_TESTS
                              and not path.stem.startswith("test_cuda_")
                              and "RUN_ON_DEVICES" in path.read_text()))


def losses(run, devices, *options):
    """The losses of a short run, step by step."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics"
        code, text = run.command([run.yoke, "train", "--devices", devices, "--batch", 64, "--quiet",
                                  "--evaluate-every", -1, "--metrics", metrics, *options], 60)
        if code != 0:
            raise Failure(last_line(text, code))
        return [json.loads(line)["train_loss"] for line in metrics.read_text().splitlines()]


def compare_losses(run, name, wanted, tolerance, devices, *options):
    try:
        got = losses(run, devices, *options)
    except Failure as failure:
        run.check(name, FAILED, str(failure))
        return
    apart = max((abs(a - b) / max(abs(b), 1e-6) for a, b in zip(got, wanted)), default=math.inf)
    good = len(got) == len(wanted) and apart <= tolerance
    run.check(name, PASSED if good else FAILED,
              f"losses of {len(got)} steps within {apart:.1e}, allowed {tolerance:.0e}",
              difference=apart if math.isfinite(apart) else None, tolerance=tolerance)


MLP = ("--model", "mlp", "--dataset", "synthetic:1x28x28,classes=10,rows=1280", "--steps", 20)
RESNET = ("--model", "resnet20", "--dataset", "synthetic:3x32x32,classes=10,rows=320", "--steps", 5,
          "--lr", 0.01)


def replicas(run):
    """the same losses from 1, 2, 4 and 8 replicas on one GPU, and from all GPUs"""
    need(run, run.yoke)
    alone = losses(run, "cuda:0", *MLP)
    for count in (2, 4, 8):
        compare_losses(run, f"mlp, {count} replicas = 1", alone, 1e-4, f"{count}xcuda:0", *MLP)
    for schedule in ("classic", "sharded"):
        compare_losses(run, f"mlp, 4 replicas, {schedule} = 1", alone, 1e-4, "4xcuda:0", *MLP,
                       "--schedule", schedule)
    half = ("--precision", "bfloat16")
    compare_losses(run, "mlp, bfloat16, 4 replicas = 1", losses(run, "cuda:0", *MLP, *half), 2e-2,
                   "4xcuda:0", *MLP, *half)
    # Batch norm sees one shard: as many CPU devices are what it must equal.
    for count in (1, 2, 4, 8):
        compare_losses(run, f"resnet20, {count} replicas = {count} CPU devices",
                       losses(run, f"{count}xcpu", *RESNET), 1e-3, f"{count}xcuda:0", *RESNET)
    several = len(run.machine.get("gpus", []))
    if run.preset == "simcuda":
        several = 8
    if several < 2:
        run.check("mlp, all GPUs", SKIPPED, "this machine has one GPU")
        return
    for collectives in ("nccl", "copy"):
        compare_losses(run, f"mlp, {several} GPUs, {collectives} = 1", alone, 1e-4,
                       f"{several}xcuda", *MLP, "--collectives", collectives)


def sanitizer(run):
    """compute-sanitizer's memcheck and racecheck on small shapes"""
    if shutil.which("compute-sanitizer", path=run.environment["PATH"]) is None:
        raise Skip("compute-sanitizer is not on this machine")
    program = run.build / "tests" / "test_cuda_operations"
    need(run, program, run.yoke)
    short = [run.yoke, "train", "--model", "mlp", "--dataset", MLP[3], "--devices", "2xcuda:0",
             "--batch", 16, "--steps", 3, "--evaluate-every", -1, "--quiet"]
    for name, tool, command in (
            ("memcheck: own kernels", "memcheck", [program, "*the_cpu"]),
            ("racecheck: own kernels", "racecheck", [program, "*_cpu_drops"]),
            ("racecheck: normalisation", "racecheck", [program, "batch_norm*"]),
            ("racecheck: losses", "racecheck", [program, "losses*"]),
            ("memcheck: a training run", "memcheck", short)):
        code, text = run.command(["compute-sanitizer", "--tool", tool, "--error-exitcode", 9,
                                  *command], 25)
        summary = re.findall(r"^=+ (ERROR SUMMARY.*|RACECHECK SUMMARY.*|Error.*)$", text, re.MULTILINE)
        if re.search("Device not supported|Unable to (?:find|load)", text):
            run.check(name, SKIPPED, "compute-sanitizer does not work on this machine")
            continue
        run.check(name, PASSED if code == 0 else FAILED,
                  summary[-1] if summary and code != 124 else last_line(text, code))


def bench(run):
    """training steps beside PyTorch's in the same run"""
    need(run, run.yoke)
    if run.machine.get("versions", {}).get("torch") is None:
        raise Skip("python3 has no PyTorch")
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "rows.json"
        code, text = run.command([sys.executable, ROOT / "bench" / "pytorch_gpu.py", "--yoke", run.yoke,
                                  "--seconds", int(max(run.left() - 10, 10)), "--json", result])
        run.bench = json.loads(result.read_text()) if result.exists() else {}
    for row in run.bench.get("rows", []):
        verdict = {"pass": PASSED, "in noise": PASSED, "skipped": SKIPPED}.get(row["verdict"], FAILED)
        run.check(row["name"], verdict, row["text"])
    if code != 0 or not run.bench.get("rows"):
        raise Failure(last_line(text, code))


PARTS = {machine: 30, build: 120, operations: 40, backend: 40, engine: 60, replicas: 45,
         sanitizer: 75, bench: 150}


def run_part(run, part, budget):
    print(f"{part.__name__}: {part.__doc__}", flush=True)
    run.until = time.monotonic() + budget
    if run.left() < 3:
        run.check(part.__name__, SKIPPED, "no time is left")
        return
    begin = len(run.checks)
    try:
        part(run)
    except Skip as skip:
        run.check(part.__name__, SKIPPED, str(skip))
    except Failure as failure:
        run.check(part.__name__, FAILED, str(failure))
    except Exception as error:  # the script's own mistake must not hide the other parts
        run.check(part.__name__, FAILED, f"{type(error).__name__}: {error}")
    for check in run.checks[begin:]:
        check["part"] = part.__name__


def commit(run):
    code, text = run.command(["git", "describe", "--always", "--dirty"], 10)
    return text.strip() if code == 0 else None


def report(run):
    count = {verdict: sum(check["verdict"] == verdict for check in run.checks)
             for verdict in (PASSED, FAILED, SKIPPED)}
    devices = run.command([run.yoke, "devices", "--json"], 20) if run.yoke.exists() else (1, "")
    try:
        devices = json.loads(devices[1])
    except ValueError:
        devices = None
    return {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "commit": commit(run), "preset": run.preset,
            "seconds": round(time.monotonic() - run.begin, 1), **run.machine,
            "clocks_after": clocks(run), "yoke_devices": devices, "count": count,
            "checks": run.checks, "bench": run.bench}


def summary(result):
    """The report for a reader."""
    lines = [f"{result['date']}, commit {result['commit']}, preset {result['preset']}, "
             f"{result['seconds']:.0f} s"]
    for gpu in result.get("gpus", []):
        lines.append(f"GPU     {gpu['name']}, {gpu['memory.total']} MiB, compute capability "
                     f"{gpu['compute_cap']}, driver {gpu['driver_version']}")
    for moment in ("before", "after"):
        for now in result.get(f"clocks_{moment}") or []:
            lines.append(f"clocks  {moment}: SM {now['clocks.sm']} MHz, memory {now['clocks.mem']} MHz, "
                         f"{now['temperature.gpu']} C, {now['power.draw']} W")
    lines.append(f"CPU     {result.get('processor')}, {result.get('cores')} cores")
    for name, version in result.get("versions", {}).items():
        lines.append(f"{name:7} {version or 'not on this machine'}")
    part = None
    for check in result["checks"]:
        if check["part"] != part:
            part = check["part"]
            lines += ["", part]
        lines.append(f"  {check['verdict']:8} {check['name']}"
                     f"{': ' + check['reason'] if check['reason'] else ''}")
    lines += ["", ", ".join(f"{number} {verdict}" for verdict, number in result["count"].items()), ""]
    return "\n".join(lines)


def write(run, folder):
    result = report(run)
    names = [gpu["name"] for gpu in result.get("gpus", [])]
    gpu = re.sub(r"[^a-z0-9]+", "-", (names[0] if names else "no gpu").lower()).strip("-")
    count = f"{len(names)}x-" if len(names) > 1 else ""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['date'][:10]}-{count}{gpu}"
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    path.with_suffix(".txt").write_text(summary(result))
    log = run.build if run.build.is_dir() else folder
    (log / "gpu-check.log").write_text("\n".join(run.log))
    print(f"\n{summary(result).splitlines()[-1]}\nwrote {path}.json and .txt; what ran is in {log}/gpu-check.log")
    return result["count"][FAILED]


def main():
    parts = {part.__name__: part for part in PARTS}
    texts = "\n".join(f"  {name:11} {part.__doc__} ({PARTS[part]} s)" for name, part in parts.items())
    parser = argparse.ArgumentParser(prog="gpu-check.sh", epilog="parts and their budgets:\n" + texts,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=parts, metavar="PART",
                        help="this part alone, on what is built; may be repeated")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results", metavar="DIR",
                        help="where the two files go (bench/results)")
    parser.add_argument("--preset", default="cuda", metavar="NAME", help="of the build: cuda or simcuda")
    arguments = parser.parse_args()
    run = Run(arguments)
    for name, part in parts.items():
        if part is machine or not arguments.only or name in arguments.only:
            run_part(run, part, PARTS[part])
        if part is machine and run.checks[-1]["verdict"] == FAILED and not arguments.only:
            break
    return 1 if write(run, arguments.out.resolve()) else 0


if __name__ == "__main__":
    sys.exit(main())
