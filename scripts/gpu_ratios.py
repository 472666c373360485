# SPDX-License-Identifier: Apache-2.0
"""The parts of gpu-check.sh that bench/pytorch_gpu.py measures: it races the rows and judges them, this passes its
verdicts on as checks.
"""
import json
import sys

from gpu_parts import last_line, need
from gpu_run import FAILED, LATE, PASSED, ROOT, SKIPPED, Failure, Late

RACED = {"pass": PASSED, "in noise": PASSED, "measured": PASSED, "reported": PASSED, "MISS": FAILED,
         "losses differ": FAILED, "skipped": SKIPPED, "out of time": LATE}
JUDGED = ("pass", "in noise", "MISS")
UNCONFIRMED = ("mapped", "decode")  # variants that stay off until a GPU has confirmed them
END_S = 10  # between the race's last row and the end of the part
BENCH = ROOT / "bench"


def list_rows(run, words):
    """The names of the rows that any of the words names: a row, a setup, a rival, a group; without words all but those
    of groups that must be named."""
    sys.path.insert(0, str(BENCH))
    try:
        import gpu_rows
        import pytorch_gpu
        every = gpu_rows.FAKE_ROWS if run.simulated else gpu_rows.ROWS
        return [pytorch_gpu.name_of(row) for row in pytorch_gpu.select(every, words)]
    except SystemExit as unknown:
        raise Failure(str(unknown)) from None
    except Exception as error:
        raise Failure(f"bench/pytorch_gpu.py: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(BENCH))


def race_names(run):
    return list_rows(run, [])


def variants_names(run):
    return list_rows(run, ["variants"])


def rows_to_measure(run, name, wanted):
    """The options for them; what an earlier report has measured goes into the new one."""
    found = run.results.get(name)
    if not found:
        return ["--rows", *wanted]
    kept = [row for row in found["rows"] if row["name"] not in wanted and row["verdict"] not in ("skipped", "out of time")]
    file = run.build / f"gpu-{name}-earlier.json"
    file.write_text(json.dumps({**found, "asked": [row["name"] for row in kept] + wanted, "rows": kept}))
    return ["--missing", file]


def judge_row(run, row):
    """(verdict, reason)"""
    word = row["verdict"]
    if word in JUDGED and "busy" in run.facts:
        return SKIPPED, f"not judged, since the GPU was busy; {row['text']}"
    return RACED.get(word, FAILED), row["text"] if word in ("skipped", "out of time") else f"{word}: {row['text']}"


def measure(run, name, wanted):
    need(run.yoke)
    result, waiting = run.build / f"gpu-{name}.json", set(wanted)
    words = [sys.executable, BENCH / "pytorch_gpu.py", "--yoke", run.yoke, "--json", result,
             "--seconds", max(int(run.left() - END_S), 1), *(["--fake", "cuda:0"] if run.simulated else []),
             *rows_to_measure(run, name, wanted)]
    result.unlink(missing_ok=True)

    def report(_line=""):
        """pytorch_gpu.py replaces the file after every row."""
        if not result.exists():
            return
        found = run.results[name] = json.loads(result.read_text())
        versions = {package: found[package] for package in ("torch", "jax") if package in found}
        run.facts["versions"] = {**run.facts.get("versions", {}), **versions}
        for row in found.get("rows", []):
            if row["name"] in waiting:
                waiting.remove(row["name"])
                run.check(row["name"], *judge_row(run, row))

    try:
        code, text = run.command(words, heard=report)
    finally:
        report()
    if waiting:
        raise Failure(last_line(text, code))


def race(run, wanted):
    """a training step beside PyTorch's and JAX's: their time / Yoke's, the median of the rounds and its interval"""
    measure(run, "race", wanted)


def variants(run, wanted):
    """a training step in each variant that no GPU has confirmed: the time without it / with it, equal losses"""
    try:
        measure(run, "variants", wanted)
    finally:
        run.results["advice"] = [line for variant in UNCONFIRMED for line in advice(run, variant)]
        for line in run.results["advice"]:
            print(f"  {line}", flush=True)


def advice(run, variant):
    """How to turn on a variant whose rows are all measured, with equal losses, and not slower than without it."""
    rows = [row for row in run.results.get("variants", {}).get("rows", []) if f"+{variant}" in row["name"].split()[0]]
    if not rows or any(RACED.get(row["verdict"]) != PASSED for row in rows) or "busy" in run.facts:
        return []
    slow = [row["name"] for row in rows if row["high"] < 1]
    if slow:
        return [f"{variant}: the same losses, but slower in {', '.join(slow)}: leave it off"]
    return [f"{variant} passed on this GPU. To give it to every GPU, set its `confirmed` to `true` in the table of "
            "src/device/variants.c"]
