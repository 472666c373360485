#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check.sh on a build over simulated GPUs: it names targets that the build has, reads what the tool
really prints, and races Yoke against whom this Python has.

usage: test_gpu_check.py ROOT BUILD
"""
import json
import pathlib
import re
import sys
import tempfile
import time

LIMIT_S = 250


def check_targets(gpu_check, run):
    """Ninja builds nothing where one target is unknown."""
    known = set(re.findall(r"^build ([\w-]+): phony ", (run.build / "build.ninja").read_text(), re.MULTILINE))
    for stage in gpu_check.STAGES:
        run.now["stage"] = stage
        missing = set(gpu_check.targets_of(run)) - known
        assert not missing, f"{stage} builds {sorted(missing)}, which this build does not have"


def run_part(gpu_check, run, part):
    """{name: (verdict, reason)}"""
    before = len(run.checks)
    gpu_check.run_part(run, part, time.monotonic() + LIMIT_S)
    return {check["name"]: (check["verdict"], check["reason"]) for check in run.checks[before:]}


def check_kernels(gpu_check, run):
    found = run_part(gpu_check, run, gpu_check.kernels)
    (name, (verdict, reason)), = found.items()
    assert name == "resnet20, 4 rows, bfloat16" and verdict == "passed", found
    assert re.fullmatch(r"[\d.e-]+ ms in 125 calls, \d+ by im2col.*", reason), reason
    assert len(run.results["kernels"]["resnet20"]["calls"]) == 125


def check_race(gpu_check, run):
    """Contenders that are absent are skipped with a reason; Yoke's own figures are there without them."""
    found = run_part(gpu_check, run, gpu_check.bench)
    assert len(found) == 10 and run.results["bench"]["whole"], found
    for name in ("mlp-b8-float32 kernel time", "mlp-b8-float32 processor", "mlp-b8-float32-x2 one device"):
        assert found[name][0] == "passed" and "measured: " in found[name][1], found
    assert all(verdict in ("passed", "skipped") and "losses differ" not in reason
               for verdict, reason in found.values()), found
    assert {"torch", "jax"} <= set(run.facts["versions"]), run.facts
    assert re.search("no PyTorch|only on GPUs", found["mlp-b8-float32 graph"][1]), found


def check_ways(gpu_check, run):
    found = run_part(gpu_check, run, gpu_check.ways)
    assert run.results["ways"]["whole"] and list(found) == [
        "mlp-b8-bfloat16+all without", "mlp-b8-bfloat16+relu without", "resnet20-8-b4-bfloat16+stem4 without"], found
    for verdict, reason in found.values():
        assert verdict == "passed" and re.search(r"measured: .*, without .* ms; losses within", reason), found


def check_report(run):
    run.write()
    text, report = run.path().with_suffix(".txt").read_text(), json.loads(run.path().with_suffix(".json").read_text())
    assert report["simulated"] and run.path().name.endswith("-simulated"), run.path()
    assert text.splitlines()[2].startswith("SIMULATED GPUs, sizes reduced"), text
    table = r"^the longest kernels of a step of resnet20.*\n +ms calls .*\n +\d+\.\d{4} +\d+ "
    assert re.search(table, text, re.MULTILINE), text


def main():
    root, build = sys.argv[1:]
    sys.path.insert(0, str(pathlib.Path(root) / "scripts"))
    sys.dont_write_bytecode = True
    import gpu_check
    with tempfile.TemporaryDirectory() as folder:
        run = gpu_check.Run("simcuda", pathlib.Path(folder))
        run.build = pathlib.Path(build)
        run.yoke, run.compile, run.scale = run.build / "yoke", False, 1
        check_targets(gpu_check, run)
        check_kernels(gpu_check, run)
        check_race(gpu_check, run)
        check_ways(gpu_check, run)
        check_report(run)


if __name__ == "__main__":
    main()
