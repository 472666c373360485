# SPDX-License-Identifier: Apache-2.0
"""`yoke bench --kernels --count` in a build that counts: every launch of a step is in the count, the libraries'
operations are those of the layers' formulas, and bytes grow with the rows. usage: test_count.py YOKE"""
import json
import subprocess
import sys
import tempfile
import os

YOKE = sys.argv[1]
CACHE = tempfile.mkdtemp()


def count(model, rows, precision="bfloat16"):
    command = [YOKE, "bench", "--kernels", "--count", "--json", "--model", model, "--rows", str(rows), "--precision",
               precision, "--device", "cuda:0"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": CACHE})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def operation(counted, name, direction):
    found = [row for row in counted["operations"] if row["operation"] == name and row["direction"] == direction]
    assert len(found) == 1, (name, direction, found)
    return found[0]


def near(value, wanted, relative):
    assert abs(value - wanted) <= relative * abs(wanted), (value, wanted)


def check_launches(counted):
    total = counted["total"][0]["launches"] + counted["transfers"]
    assert total == counted["simulated_works"], (total, counted["simulated_works"])
    assert sum(row["launches"] for row in counted["launches"]) == counted["total"][0]["launches"]


def check_formulas(counted):
    """resnet20 on 3 x 32 x 32: multiplications of its convolutions, from He et al. 2015, section 4.2."""
    convolutions = 32 * 32 * 16 * 9 * (3 + 6 * 16)
    convolutions += 16 * 16 * 32 * 9 * (16 + 5 * 32) + 8 * 8 * 64 * 9 * (32 + 5 * 64)
    convolutions += 16 * 16 * 32 * 16 + 8 * 8 * 64 * 32  # option B's shortcuts
    forward, backward = (operation(counted, "conv2d", way) for way in ("forward", "backward"))
    near(forward["operations"], 2 * counted["rows"] * convolutions, 1e-9)
    first = 2 * counted["rows"] * 32 * 32 * 16 * 9 * 3  # the images need no gradient
    near(backward["operations"], 2 * forward["operations"] - first, 1e-9)
    near(backward["operations"], backward["least_operations"], 1e-9)


def check_bytes(one, other):
    """Sums of gradients read two values and write one; twice the rows, twice the bytes. Batch norm reads its input
    more than once. The update does not depend on the rows."""
    rows = [operation(counted, "accumulate", "backward") for counted in (one, other)]
    near(rows[1]["requested_bytes"], 2 * rows[0]["requested_bytes"], 0.02)
    near(rows[1]["requested_bytes"], rows[1]["least_bytes"], 0.02)
    for counted in (one, other):
        row = operation(counted, "batch_norm", "forward")
        assert row["requested_bytes"] > 1.2 * row["least_bytes"], row
    rows = [operation(counted, "update", "") for counted in (one, other)]
    near(rows[1]["requested_bytes"], rows[0]["requested_bytes"], 1e-9)
    assert rows[0]["requested_bytes"] >= rows[0]["least_bytes"], rows[0]


small, large = count("resnet20", 64), count("resnet20", 128)
for counted in (small, large):
    check_launches(counted)
    check_formulas(counted)
check_bytes(small, large)
check_launches(count("mlp", 32, "float32"))
print("ok")
