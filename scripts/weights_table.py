#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a table of short runs learns: one weights_hash a run, to prove that a change changes no bit.

usage: weights_table.py record TOOL FILE [--backend cpu|cuda] [--every N]
       weights_table.py compare FILE FILE

record trains each model in every schedule, on one to four devices, as DP and as DDP, with and without
micro-batches, clipping and AdamW. Every batch is ragged: 13 rows on 2, 3 or 4 devices, and the last one of
an epoch has 6. Algorithms are chosen by a fixed rule (--algorithm direct), so the same build gives the same
table twice. compare prints every run whose hash or loss differs and exits 1 when there is one.
"""
import argparse
import itertools
import json
import subprocess
import sys

MODELS = {"mlp": "synthetic:1x28x28,classes=10,rows=45", "resnet20": "synthetic:3x32x32,classes=10,rows=45",
          "resnet18-cifar": "synthetic:3x32x32,classes=10,rows=45"}
COMMON = ["--algorithm", "direct", "--batch", "13", "--seed", "3", "--quiet", "--json", "--lr", "0.01"]
ACCUMULATE, CLIP, ADAMW = ["--accumulate", "3"], ["--clip-norm", "0.5"], ["--optimizer", "adamw"]


def extras():
    for chosen in itertools.product((False, True), repeat=3):
        yield [word for flag, words in zip(chosen, (ACCUMULATE, CLIP, ADAMW)) if flag for word in words]


def runs(backend):
    """(name, arguments before the tool's verb, arguments of train)"""
    for model, extra in itertools.product(MODELS, extras()):
        steps = ["--steps", "3"] if model == "resnet18-cifar" else ["--steps", "5"]
        # Simulated GPUs are slow: they get small images.
        dataset = MODELS[model] if backend == "cpu" else MODELS[model].replace("32x32", "8x8")
        base = ["--model", model, "--dataset", dataset, *COMMON, *steps, *extra]
        for count, schedule in itertools.product(range(1, 5), ("classic", "overlap", "sharded")):
            devices = f"{count}xcpu" if backend == "cpu" else f"{count}xcuda"
            yield f"dp {schedule} {devices} {model} {' '.join(extra)}", [], [
                *base, "--devices", devices, "--schedule", schedule, "--threads", "1"]
        if backend != "cpu":
            continue
        for count, schedule in itertools.product((2, 3, 4), ("overlap", "sharded")):
            launch = ["launch", "--nproc-per-node", str(count), "--"]
            yield f"ddp {schedule} {count} ranks {model} {' '.join(extra)}", launch, [
                *base, "--mode", "ddp", "--devices", f"{count}xcpu", "--schedule", schedule, "--threads", "1"]


def record(arguments):
    table = {}
    wanted = list(runs(arguments.backend))[::arguments.every]
    for number, (name, launch, words) in enumerate(wanted):
        done = subprocess.run([arguments.tool, *launch, "train", *words], capture_output=True, text=True)
        try:
            result = json.loads(done.stdout)
            table[name] = [result["weights_hash"], result["test_loss"]]
        except (ValueError, KeyError):
            table[name] = [f"exit {done.returncode}", done.stderr.strip().splitlines()[-1:]]
        print(f"\r{number + 1} of {len(wanted)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    with open(arguments.file, "w") as file:
        json.dump(table, file, indent=1)


def compare(arguments):
    with open(arguments.before) as before, open(arguments.after) as after:
        old, new = json.load(before), json.load(after)
    differ = [f"{name}: {old.get(name)} then {new.get(name)}" for name in sorted(old.keys() | new.keys())
              if old.get(name) != new.get(name)]
    failed = sum(isinstance(value[1], list) for value in new.values())
    print("\n".join(differ) or f"{len(new)} runs learn the same, to the bit ({failed} of them refuse alike)")
    return 1 if differ else 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("record")
    verb.add_argument("tool")
    verb.add_argument("file")
    verb.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    verb.add_argument("--every", type=int, default=1, help="take every Nth run")
    verb = verbs.add_parser("compare")
    verb.add_argument("before")
    verb.add_argument("after")
    arguments = parser.parse_args()
    return record(arguments) if arguments.verb == "record" else compare(arguments)


if __name__ == "__main__":
    sys.exit(main())
