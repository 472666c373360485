#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two containers that save to one path: each run has process ids of its own, so that both have the same ones. The file
is one of the two models afterwards, never a mix, and no run fails.

usage: test_two_savers.py YOKE [--full]. 200 pairs with --full, else 10; 77: this machine makes no PID namespaces.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

LIMIT_S = 900
SKIPPED = 77
PAIRS, ALL_PAIRS = 10, 200
NAMESPACES = [["unshare", "--pid", "--fork", "--kill-child"],
              ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]]
RUN = ["train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=3,rows=60", "--batch", "20", "--steps", "2",
       "--threads", "1", "--devices", "cpu", "--algorithm", "direct", "--evaluate-every", "-1", "--force", "--seed"]
SEEDS = ["1", "2"]


def working_namespace():
    for command in NAMESPACES:
        try:
            if subprocess.run([*command, "true"], capture_output=True, timeout=LIMIT_S, check=False).returncode == 0:
                return command
        except OSError:
            pass
    return None


def start(yoke, namespace, seed, path):
    return subprocess.Popen([*namespace, yoke, *RUN, seed, "--save", path], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)


def failure_of(run):
    """None, or what a run says that fails."""
    try:
        error = run.communicate(timeout=LIMIT_S)[1]
    except subprocess.TimeoutExpired:
        run.kill()
        return "hangs"
    return f"exit code {run.returncode}: {error}" if run.returncode != 0 else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("yoke", type=lambda name: str(pathlib.Path(name).resolve()))
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    namespace = working_namespace()
    if namespace is None:
        print("skipped: unshare --pid is not allowed here")
        return SKIPPED
    pairs = ALL_PAIRS if options.full else PAIRS
    mixes = failures = left = 0
    wins = dict.fromkeys(SEEDS, 0)
    with tempfile.TemporaryDirectory(prefix="yoke-two-savers-") as name:
        folder = pathlib.Path(name)
        path = folder / "weights.safetensors"
        models = {}
        for seed in SEEDS:
            failed = failure_of(start(options.yoke, namespace, seed, path))
            if failed is not None:
                print(f"a run alone fails: {failed}")
                return 1
            models[path.read_bytes()] = seed
        for pair in range(pairs):
            runs = [start(options.yoke, namespace, seed, path) for seed in SEEDS]
            said = [text for text in map(failure_of, runs) if text is not None]
            for text in said:
                print(f"pair {pair}: {text}")
            failures += bool(said)
            seed = models.get(path.read_bytes())
            mixes += seed is None
            if seed is not None:
                wins[seed] += 1
            left += len(list(folder.iterdir())) - 1
    print(f"{pairs - failures} of {pairs} pairs ended well, {mixes} mixes, {failures} failures, {left} files left; "
          f"the last to save was {wins['1']} and {wins['2']} times")
    return 1 if mixes or failures or left or len(models) != len(SEEDS) else 0


if __name__ == "__main__":
    sys.exit(main())
