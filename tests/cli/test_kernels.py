#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke bench --kernels: the kernels of a step, their algorithms and their part of the roofline.

usage: test_kernels.py YOKE [unittest arguments]
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT_S = 900
ON_GPUS = os.environ.get("YOKE_TEST_BACKEND") == "cuda"
SMALL = ["--kernels", "--model", "resnet20", "--dataset", "synthetic:3x8x8,classes=10,rows=4", "--rows", 4,
         "--steps", 1, *(["--device", "cuda:0"] if ON_GPUS else ["--threads", 1])]
MLP = ["--kernels", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=10,rows=4", "--rows", 4, "--steps", 1,
       *(["--device", "cuda:0"] if ON_GPUS else ["--threads", 1])]


def bench(*arguments):
    return subprocess.run([YOKE, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)


class Kernels(unittest.TestCase):
    """resnet20 on tiny images, where a step has calls of most kinds."""

    @classmethod
    def setUpClass(cls):
        result = bench(*SMALL, "--json")
        if result.returncode == 69:
            sys.exit(77)
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        cls.result = json.loads(result.stdout)
        cls.calls = cls.result["calls"]

    def test_every_convolution_names_its_algorithm_in_each_direction(self):
        convolutions = [call for call in self.calls if call["operation"] == "conv2d"]
        self.assertEqual(len(convolutions), self.result["convolution_passes"])
        self.assertTrue(all(call["algorithm"] for call in convolutions))
        by_direction = {}
        for call in convolutions:
            by_direction.setdefault(call["direction"], []).append(call["layer"])
        self.assertEqual(set(by_direction), {"forward", "backward weights", "backward data"})
        self.assertEqual(sorted(by_direction["forward"]), sorted(by_direction["backward weights"]))
        self.assertEqual(len(by_direction["forward"]), len(by_direction["backward data"]) + 1) # the images have no gradient

    def test_im2col_is_counted(self):
        algorithms = [call.get("algorithm") for call in self.calls if call["operation"] == "conv2d"]
        self.assertEqual(self.result["im2col_passes"], sum(name.startswith("im2col") for name in algorithms))
        self.assertEqual(self.result["unserved_passes"], sum(name.startswith("im2col, no other") for name in algorithms))
        if not ON_GPUS:
            self.assertEqual(self.result["im2col_passes"], 0)

    def test_the_roofline_follows_from_bytes_operations_and_rates(self):
        for call in self.calls:
            if (call["operation"], call["direction"], call.get("algorithm")) == ("loss", "backward", "one kernel"):
                self.assertEqual((call["bytes"], call["operations"]), (0, 0)) # forward has written the gradient
                continue
            least = 1e3 * max(call["bytes"] / self.result["bytes_per_s"],
                              call["operations"] / self.result["operations_per_s"])
            self.assertAlmostEqual(call["roofline_ms"] / least, 1, places=4)
            self.assertGreater(call["bytes"], 0)

    def test_operations_sum_their_calls_the_farthest_from_the_roofline_first(self):
        operations = self.result["operations"]
        whole = sum(call["ms"] for call in self.calls)
        self.assertEqual({one["operation"] for one in operations}, {call["operation"] for call in self.calls})
        for one in operations:
            own = [call for call in self.calls if call["operation"] == one["operation"]]
            self.assertEqual(one["calls"], len(own))
            self.assertAlmostEqual(one["ms"], sum(call["ms"] for call in own), delta=1e-3)
            self.assertAlmostEqual(one["share"], one["ms"] / whole, delta=1e-3)
            self.assertAlmostEqual(one["above_ms"], max(0, one["ms"] - one["roofline_ms"]), delta=1e-3)
        above = [one["above_ms"] for one in operations]
        self.assertEqual(above, sorted(above, reverse=True))

    def test_operations_are_those_of_the_shape(self):
        stem = self.calls[0]
        self.assertEqual(stem["shape"], "3x8x8 to 16x8x8, kernel 3/1")
        self.assertEqual(stem["operations"], 2 * 4 * 16 * 8 * 8 * 3 * 9)

    def test_the_table_joins_calls_that_are_alike(self):
        result = bench(*MLP)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertIn("roof", lines[0])
        self.assertTrue(any("linear" in line and "forward" in line for line in lines))
        self.assertRegex(result.stdout, r"farthest above the roofline: \w+ \d+\.\d{3} of \d+\.\d{3} ms \(\d+ % of all\),")
        self.assertIn("im2col computes 0 of 0 convolution passes", result.stdout)

    def test_the_gate_opens_where_the_library_serves_every_convolution(self):
        self.assertEqual(bench(*MLP, "--gate").returncode, 0)

    def test_what_measures_rows_is_refused(self):
        for arguments, word in ((["scaling"], "leave NAME"), (["--rounds", 3], "--rounds"), (["--list"], "--list")):
            result = bench(*MLP, *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(word, result.stderr)
        result = bench(*MLP[:3], "--device", "2xcpu")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--kernels measures one", result.stderr)


if __name__ == "__main__":
    unittest.main()
