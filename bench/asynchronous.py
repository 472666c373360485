#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asynchronous and local SGD beside data parallelism: what staleness costs, and what not waiting gains.

usage: asynchronous.py YOKE [SEEDS [MODEL [DATASET]]]   (5, resnet20, synthetic)

Losses and accuracies on test rows after one epoch, means and deviations over the seeds, four CPU devices: one device
alone, all together, asynchronous as it comes, with DC-ASGD's correction, with the rate divided by the staleness, and
with both; local SGD; each with the same rate and rows of an update. Then, on two, three and four devices of which one
takes three times as long: images per second of asynchronous SGD, divided by those of data parallelism on the same rows.
Then recorded orders are replayed: the weights must be the same.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

BATCH = 32
MODES = [["single"], ["dp"], ["async"], ["async", "--compensation", "2"], ["async", "--stale-rate", "divided"],
         ["async", "--stale-rate", "divided", "--compensation", "2"], ["local", "--sync-every", "4"],
         ["local", "--sync-every", "16"]]


def train(yoke, mode, model, dataset, *options):
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder, "metrics")
        command = [yoke, "train", "--mode", *mode, "--model", model, "--dataset", dataset, "--threads", "1", "--json",
                   "--quiet", "--metrics", str(metrics), *options]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        if outcome.returncode == 1:  # the loss is not finite
            return None, []
        if outcome.returncode != 0:
            raise SystemExit(outcome.stderr)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        return json.loads(outcome.stdout.splitlines()[-1]), [line for line in lines if "train_loss" in line]


def rate(yoke, mode, model, dataset, devices, batch, steps, *options):
    """Images a second, over all steps but the first eighth."""
    _, lines = train(yoke, mode, model, dataset, "--devices", f"{devices}xcpu", "--batch", str(batch), "--steps",
                     str(steps), "--evaluate-every", "-1", *options)
    lines = lines[len(lines) // 8:]
    return 1e3 * sum(line["rows"] for line in lines) / sum(line["step_ms"] for line in lines)


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    yoke, seeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    model = sys.argv[3] if len(sys.argv) > 3 else "resnet20"
    dataset = sys.argv[4] if len(sys.argv) > 4 else "synthetic"
    for learning in (["--momentum", "0", "--lr", "0.2"], ["--momentum", "0.9", "--lr", "0.05"]):
        print(" ".join(learning))
        for mode in MODES:
            found = [train(yoke, mode, model, dataset, "--devices", "4xcpu", "--batch", str(BATCH), "--epochs", "1",
                           "--seed", str(seed), *learning)[0] for seed in range(1, seeds + 1)]
            whole = [result for result in found if result is not None]
            losses, right = ([result[name] for result in whole] for name in ("test_loss", "test_accuracy"))
            text = "diverged" if len(whole) < 2 else (
                f"loss {statistics.mean(losses):.3f} ± {statistics.stdev(losses):.3f}, "
                f"accuracy {100 * statistics.mean(right):.1f} ± {100 * statistics.stdev(right):.1f} %")
            print(f"  {' '.join(mode):44} {text}, {len(whole)} of {seeds}", flush=True)
    for devices in (2, 3, 4):
        slow = ["--straggler", "0:3"]
        ratios = []
        for _ in range(3):
            together = rate(yoke, ["dp"], model, dataset, devices, BATCH * devices, 24, *slow)
            apart = rate(yoke, ["async"], model, dataset, devices, BATCH, 24 * devices, *slow)
            ratios.append(apart / together)
        print(f"{devices} devices, one of them three times as slow: async does {statistics.median(ratios):.2f} times the "
              f"images of dp ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        order, equal = str(pathlib.Path(folder, "order")), 0
        for seed in range(1, 21):
            options = ["--devices", "4xcpu", "--batch", "16", "--steps", "40", "--seed", str(seed), "--evaluate-every", "0"]
            first, _ = train(yoke, ["async"], model, dataset, *options, "--record-order", order)
            again, _ = train(yoke, ["async"], model, dataset, *options, "--replay-order", order)
            equal += first["weights_hash"] == again["weights_hash"] and first["test_loss"] == again["test_loss"]
        print(f"{equal} of 20 replays ended with the same weights, bit for bit")


if __name__ == "__main__":
    main()
