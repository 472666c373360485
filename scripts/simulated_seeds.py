#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of preset simcuda under many seeds, and some with SIMCUDA_LATE.

A seed draws the order of streams, of a kernel's blocks and of a block's threads; SIMCUDA_LATE leaves all work that no
host waits for. Build first: scripts/build.sh simcuda. What failed is in build/simulated-seeds/."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "build/simulated-seeds"
PRESET = "simcuda"


def preset_environment(presets, name):
    """What ctest --preset sets: a preset's own variables over those of the presets that it inherits."""
    preset = presets[name]
    parents = preset.get("inherits", [])
    environment = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        environment |= preset_environment(presets, parent)
    return environment | preset.get("environment", {})


class Program:
    """A test of ctest, without the seed and the scheduler that ctest gives it."""

    def __init__(self, test):
        properties = {one["name"]: one["value"] for one in test["properties"]}
        self.name = test["name"]
        self.command = test["command"]
        self.folder = properties["WORKING_DIRECTORY"]
        self.timeout = properties.get("TIMEOUT", 300)
        self.skipped = properties.get("SKIP_RETURN_CODE")
        self.environment = dict(one.split("=", 1) for one in properties.get("ENVIRONMENT", []))
        self.threads = self.environment.get("SIMCUDA_SCHEDULER") == "threads"
        self.environment.pop("SIMCUDA_SEED", None)
        self.chooses_lateness = self.name.startswith("test_simcuda_")  # the simulator's own tests

    def key(self):
        return json.dumps([self.command, sorted(self.environment.items())])

    def run(self, seed, late, patience):
        """"passed", "skipped", "FAILED" or "NO END"; the output of the last two stays in a file."""
        order = {"SIMCUDA_SEED": str(seed), "SIMCUDA_LATE": str(int(late))}
        environment = os.environ | BASE | self.environment | order
        try:
            done = subprocess.run(self.command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=patience * self.timeout)
            code, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as expired:
            code, output = None, expired.stdout or b""
        if code == 0:
            return "passed"
        if code == self.skipped:
            return "skipped"
        log = LOGS / f"{self.name}.seed{seed}{'.late' if late else ''}.log"
        log.write_bytes(output)
        verdict = "NO END" if code is None else "FAILED"
        settings = " ".join(f"{name}={value}" for name, value in order.items())
        print(f"{self.name}: {verdict}, {settings}: {log.relative_to(ROOT)}", flush=True)
        return verdict


def find_programs(only, without):
    """Each program once, though ctest runs some in several orders."""
    command = ["ctest", "--preset", PRESET, "--show-only=json-v1"]
    command += ["-R", only] if only else []
    command += ["-E", without] if without else []
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    if listed.returncode != 0:
        sys.exit("simulated_seeds.py: ctest lists no tests; build them with scripts/build.sh simcuda")
    tests = json.loads(listed.stdout)["tests"]
    unbuilt = [test["name"] for test in tests if not pathlib.Path(test.get("command", ["/no program"])[0]).exists()]
    if unbuilt:
        print(f"not built, left out: {' '.join(unbuilt)}")
    programs = [Program(test) for test in tests if test["name"] not in unbuilt]
    return list({program.key(): program for program in reversed(programs) if not program.threads}.values())


def parse_arguments():
    parser = argparse.ArgumentParser(description="Runs the tests over simulated GPUs under many seeds.")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="(0)")
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="how many (20)")
    parser.add_argument("--late", type=int, default=4, metavar="N", help="the first N with SIMCUDA_LATE, too (4)")
    parser.add_argument("--minutes", type=float, default=1e6, metavar="N", help="begins no run after them")
    parser.add_argument("--patience", type=float, default=1, metavar="N", help="times ctest's limits (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (one a core)")
    parser.add_argument("-R", dest="only", metavar="REGEX", help="these tests of ctest alone")
    parser.add_argument("-E", dest="without", metavar="REGEX", help="all but these")
    return parser.parse_args()


def count(results):
    return ", ".join(f"{results.count(result)} {result}" for result in sorted(set(results)))


def main():
    options = parse_arguments()
    programs = find_programs(options.only, options.without)
    if not programs:
        sys.exit("simulated_seeds.py: no test to run; build them with scripts/build.sh simcuda, or name others with -R")
    LOGS.mkdir(parents=True, exist_ok=True)
    seeds = range(options.first, options.first + options.seeds)
    late_seeds = seeds[: options.late]
    orders = [(seed, late) for seed in seeds for late in (False, True) if not late or seed in late_seeds]
    start = time.monotonic()

    def run(program, seed, late):
        if time.monotonic() > start + 60 * options.minutes:
            return "not run"
        return program.run(seed, late, options.patience)

    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for seed, late in orders:
            chosen = [program for program in programs if not late or not program.chooses_lateness]
            of_order = list(pool.map(lambda program, order=(seed, late): run(program, *order), chosen))
            print(f"seed {seed}{', late' if late else ''}: {count(of_order)}", flush=True)
            results += of_order
    print(f"{len(programs)} programs in {len(orders)} orders: {count(results)}; {time.monotonic() - start:.0f} s")
    return 1 if "FAILED" in results or "NO END" in results else 0


BASE = preset_environment(
    {preset["name"]: preset for preset in json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]}, PRESET)

if __name__ == "__main__":
    sys.exit(main())
