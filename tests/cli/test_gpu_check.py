#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check.sh on a build over simulated GPUs: it names targets that the build has, reads what the tool
really prints, and every piece that is killed is completed (scripts/gpu_rehearsal.py, in its short form).

usage: test_gpu_check.py ROOT BUILD
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def make_tree(root, build, tree):
    """The scripts look for all else beside themselves."""
    tree.mkdir()
    shutil.copytree(root / "scripts", tree / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("bench", "tests", "src", "include", "docs"):
        (tree / name).symlink_to(root / name)
    (tree / "build").mkdir()
    (tree / "build" / "simcuda").symlink_to(build)


def check_targets(gpu_parts, build):
    """Ninja builds nothing where one target is unknown."""
    known = set(re.findall(r"^build ([\w-]+): phony ", (build / "build.ninja").read_text(), re.MULTILINE))
    for piece, targets in gpu_parts.TARGETS.items():
        missing = set(targets()) - known
        assert not missing, f"{piece} builds {sorted(missing)}, which this build does not have"


def read(folder):
    """(report, text, {name: (verdict, reason)})"""
    (file,) = folder.glob("*.json")
    report = json.loads(file.read_text())
    checks = {check["name"]: (check["verdict"], check["reason"]) for check in report["checks"]}
    return report, file.with_suffix(".txt").read_text(), checks


def check_kernels(folder):
    report, text, found = read(folder)
    verdict, reason = found["resnet20, 4 rows, bfloat16"]
    calls = len(report["kernels"]["resnet20"]["calls"])  # fewer, where a contest joins some
    assert verdict == "passed" and re.fullmatch(rf"[\d.e-]+ ms in {calls} calls, \d+ by im2col.*", reason), found
    assert calls > 100 and report["probe"], report
    assert report["simulated"] and "SIMULATED GPUs, sizes reduced" in text.splitlines()[2], text
    table = r"^the longest kernels of a step of resnet20.*\n +ms calls .*\n +\d+\.\d{4} +\d+ "
    assert re.search(table, text, re.MULTILINE), text


def check_race(folder):
    """Contenders that are absent are skipped with a reason; Yoke's own figures are there without them."""
    report, _, found = read(folder)
    for name, verdict in (("kernel time", "measured"), ("processor", "reported")):
        assert found[f"mlp-b8-float32 {name}"][1].startswith(f"{verdict}: "), found
    assert re.search("no PyTorch|only on GPUs", found["mlp-b8-float32 graph"][1]), found
    assert {"torch", "jax"} <= set(report["versions"]), report["versions"]


def check_variants(folder):
    report, text, found = read(folder)
    verdict, reason = found["mlp-b8-float32+mapped without"]
    assert verdict == "passed" and re.match("measured: .*losses within 0.0e", reason), found
    assert re.search("^mapped(: the same losses| passed on this GPU. To give it .*src/device/variants.c)", text, re.MULTILINE), text


def main():
    root, build = map(pathlib.Path, sys.argv[1:])
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder:
        tree, kept = pathlib.Path(folder) / "yoke", pathlib.Path(folder) / "kept"
        make_tree(root.resolve(), build.resolve(), tree)
        sys.path.insert(0, str(tree / "scripts"))
        import gpu_parts
        check_targets(gpu_parts, build)
        subprocess.run([sys.executable, "-B", tree / "scripts" / "gpu_rehearsal.py", "--built", "--kills", "1",
                        "--keep", kept], check=True)
        check_kernels(kept / "kernels")
        check_race(kept / "race")
        check_variants(kept / "variants")


if __name__ == "__main__":
    main()
