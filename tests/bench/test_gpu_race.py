#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/pytorch_gpu.py among stand-ins for yoke and PyTorch: its verdicts, its estimates, and what an ended race leaves.
Needs no GPU and no PyTorch."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BENCH, STAND_IN = HERE.parents[1] / "bench", HERE / "stand_in.py"
DRIVER = f"""
import importlib.util, os, sys
sys.path.insert(0, {str(BENCH)!r})
import gpu_race, gpu_rows, pytorch_gpu
have = os.environ.get("HAVE", "torch").split()
importlib.util.find_spec = lambda name: name in have or None
gpu_race.WORKERS["torch"] = {str(STAND_IN)!r}
if os.environ.get("QUICK"):
    gpu_race.PACE, gpu_rows.START_S = gpu_race.FAKE_PACE, 0
    gpu_rows.COSTS["mlp"] = gpu_rows.COSTS["mlp"]._replace(open_s=0)
gpu_race.SPARE_S, gpu_race.PATIENCE = float(os.environ.get("SPARE_S", 60)), float(os.environ.get("PATIENCE", 3))
sys.exit(pytorch_gpu.main())
"""
R50, MLP = "resnet50-224-b256-bfloat16", "mlp-b256-bfloat16"


class GpuRace(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)
        self.json, self.log = self.folder / "race.json", self.folder / "log"
        self.plan = {"log": str(self.log), "free_gib": 80, "ms": {"yoke": 1.0, "torch": 3.0},
                     "loss": {"yoke": 2.5, "torch": 2.5}}

    def start(self, *options, **environment):
        (self.folder / "plan").write_text(json.dumps(self.plan))
        command = [sys.executable, "-c", DRIVER, "--yoke", STAND_IN, "--json", self.json, *options]
        return subprocess.Popen([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env={**os.environ, "STAND_IN": str(self.folder / "plan"), **environment})

    def race(self, *options, **environment):
        """(exit code, {name: row}); self.report: all of it"""
        process = self.start(*options, **environment)
        self.text = process.communicate(timeout=900)[0]
        self.report = json.loads(self.json.read_text()) if self.json.exists() else None
        return process.returncode, {row["name"]: row for row in self.report["rows"]} if self.report else {}

    def verdicts(self, rows):
        return {name: row["verdict"] for name, row in rows.items()}

    def test_the_deciding_rows_are_judged(self):
        code, rows = self.race("--rows", "decide")
        self.assertEqual(code, 0, self.text)
        self.assertEqual(len(rows), 32)
        self.assertEqual(self.verdicts(rows), {name: "reported" if name.endswith("processor") else "pass" for name in rows})
        self.assertTrue(self.report["whole"])
        self.assertEqual(self.report["left"], [])
        self.assertEqual(next(iter(rows)), R50 + " eager")
        self.assertIn("gpt2-124m-1024-b16-bfloat16 graph", rows)
        self.assertIn("resnet18-cifar-b256-bfloat16+all compile", rows)
        self.assertEqual(rows[MLP + " processor"]["value"], 50)

    def test_a_contender_that_is_slower_than_its_line_is_a_miss(self):
        self.plan["ms"]["torch"] = 0.5
        code, rows = self.race("--rows", MLP + " eager")
        self.assertEqual((code, rows[MLP + " eager"]["verdict"]), (1, "MISS"))

    def test_contenders_are_open_one_at_a_time_beside_one_engine(self):
        self.race("--rows", R50, MLP)
        open_now, seen = set(), set()
        for line in self.log.read_text().splitlines():
            who, _, verb, name = line.split()[:4]
            (open_now.add if verb == "open" else open_now.discard)((who, name))
            self.assertLessEqual(sum(one[0] == "torch" for one in open_now), 1, line)
            self.assertLessEqual(sum(one[0] == "yoke" for one in open_now), 1, line)
            seen.add(name)
        self.assertEqual(open_now, set())
        self.assertEqual(seen, {"yoke", "eager", "eager-channels_last", "graph", "compile"})

    def test_different_losses_are_a_failure_that_shows_both(self):
        self.plan["loss"]["torch"] = 2.75
        code, rows = self.race("--rows", "mlp-b256-float32")
        row = rows["mlp-b256-float32 eager"]
        self.assertEqual((code, row["verdict"]), (1, "losses differ"))
        self.assertEqual(row["losses"], {"yoke": [2.5] * 8, "eager": [2.75] * 8})
        self.assertIn("losses of eager: 2.75 2.75", row["text"])
        self.assertIn("1 x linear forward: matrix product", row["text"])
        self.assertIn("cudnn.benchmark True", row["text"])
        self.assertEqual(rows["mlp-b256-float32 processor"]["verdict"], "reported")

    def test_losses_that_are_no_numbers_differ(self):
        self.plan["loss"]["yoke"] = None  # as yoke writes NaN
        code, rows = self.race("--rows", MLP + " eager")
        self.assertEqual((code, rows[MLP + " eager"]["verdict"]), (1, "losses differ"))
        self.assertEqual(rows[MLP + " eager"]["losses"]["yoke"], ["nan"] * 8)

    def test_a_way_must_not_change_a_bit(self):
        self.assertEqual(self.race("--rows", MLP + "+mapped")[0], 0, self.text)
        self.plan["variants_change_bits"] = True
        code, rows = self.race("--rows", "variants")
        self.assertEqual((code, set(self.verdicts(rows).values())), (1, {"losses differ"}))
        self.assertEqual(len(rows), 9)

    def test_a_contender_without_memory_leaves_the_others_their_race(self):
        self.plan["errors"] = {"torch losses graph": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"}
        code, rows = self.race("--rows", R50)
        self.assertEqual(code, 0, self.text)
        self.assertEqual(rows[R50 + " graph"]["verdict"], "skipped")
        self.assertRegex(rows[R50 + " graph"]["text"], r"graph: out of memory: needs about \d+\.\d GiB, the GPU had 80\.0 free")
        self.assertEqual(rows[R50 + " compile"]["verdict"], "pass")

    def test_yoke_without_memory_loses_a_setup_and_no_more(self):
        self.plan["errors"] = {"yoke open yoke": "cudaMalloc: out of memory"}
        code, rows = self.race("--rows", R50)
        self.assertEqual((code, set(self.verdicts(rows).values())), (0, {"skipped"}))
        self.plan["errors"] = {"yoke open yoke": "an illegal address"}
        code, rows = self.race("--rows", R50 + " eager", R50 + " processor")
        self.assertEqual((code, set(self.verdicts(rows).values())), (1, {"MISS"}))

    def test_a_small_gpu_leaves_out_what_does_not_fit(self):
        self.plan["free_gib"] = 7
        code, rows = self.race("--rows", "decide")
        self.assertEqual(code, 0)
        self.assertRegex(rows[R50 + " eager"]["text"], r"^needs about 3\d\.\d GiB, the GPU has 7\.0 free$")
        self.assertEqual({rows[R50 + " eager"]["verdict"], rows[MLP + " eager"]["verdict"]}, {"skipped", "pass"})
        self.assertNotIn(R50, self.log.read_text())

    def test_a_row_begins_only_if_its_estimate_fits(self):
        code, rows = self.race("--rows", R50, MLP, "--seconds", "70")
        self.assertEqual(rows[R50 + " eager"]["verdict"], "pass")
        self.assertEqual(rows[R50 + " compile"]["verdict"], "out of time")
        self.assertRegex(rows[R50 + " compile"]["text"], r"^needs about 1\d\d s, \d+ s are left$")
        self.assertEqual(rows[MLP + " eager"]["verdict"], "pass")
        self.assertTrue(self.report["whole"])

    def test_a_contender_that_hangs_is_killed(self):
        self.plan["hangs"] = ["torch losses compile"]
        code, rows = self.race("--rows", MLP, SPARE_S="8", PATIENCE="0")
        self.assertEqual(code, 0)
        self.assertIn("did not answer within 8 s", rows[MLP + " compile"]["text"])
        self.assertEqual(rows[MLP + " compile"]["verdict"], "skipped")
        self.assertEqual(rows[MLP + " graph"]["verdict"], "pass")

    def test_the_race_ends_in_time_whoever_hangs(self):
        for who in ("torch open eager", "yoke steps yoke"):
            self.plan["hangs"] = [who]
            code, rows = self.race("--rows", MLP + " eager", MLP + " processor", "--seconds", "8", QUICK="1")
            self.assertEqual(set(self.verdicts(rows).values()), {"out of time"}, self.text)
            self.assertTrue(self.report["whole"])

    def test_missing_rows_are_raced_and_judged_ones_taken_over(self):
        self.race("--rows", R50, MLP, "--seconds", "70")
        before = {row["name"] for row in self.report["rows"] if row["verdict"] not in ("out of time", "skipped")}
        self.log.unlink()
        code, rows = self.race("--missing", self.json)
        self.assertEqual((code, len(rows)), (0, 11))
        self.assertNotIn("out of time", self.verdicts(rows).values())
        self.assertEqual({name for name, row in rows.items() if "from" in row}, before)
        self.assertNotIn("eager", self.log.read_text())
        self.assertEqual(len(self.report["asked"]), 11)

    def test_a_race_killed_at_any_moment_is_completed(self):
        self.plan["sleep_s"] = 0.002
        asked = [f"{setup} {against}" for setup in (MLP, R50) for against in ("eager", "graph", "compile", "processor")]
        for wait_s in (0.4, 0.8, 1.3, 2.1):
            self.json.unlink(missing_ok=True)
            self.log.unlink(missing_ok=True)
            process = self.start("--rows", *asked)
            while not self.json.exists():
                time.sleep(0.01)
            time.sleep(wait_s)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed = json.loads(self.json.read_text())
            self.assertEqual(len(killed["rows"]) + len(killed["left"]), 8)
            self.assert_nobody_runs()
            code, rows = self.race("--missing", self.json)
            self.assertEqual((code, len(rows), self.report["whole"], self.report["left"]), (0, 8, True, []), self.text)

    def assert_nobody_runs(self):
        until = time.monotonic() + 900
        for number in {line.split()[1] for line in self.log.read_text().splitlines()} if self.log.exists() else ():
            while pathlib.Path(f"/proc/{number}/cmdline").exists() and \
                    b"stand_in" in pathlib.Path(f"/proc/{number}/cmdline").read_bytes():
                self.assertLess(time.monotonic(), until, "a contender outlived its race")
                time.sleep(0.05)

    def test_without_pytorch_its_rows_are_skipped_by_name(self):
        code, rows = self.race("--rows", MLP, "jax", HAVE="")
        self.assertEqual(code, 0)
        self.assertEqual(rows[MLP + " compile"]["text"], "compile: this Python has no PyTorch")
        self.assertEqual(rows[MLP + " jax"]["text"], "jax: this Python has no JAX")
        self.assertEqual(rows[MLP + " processor"]["verdict"], "reported")

    def test_pytorch_that_does_not_start_is_named(self):
        self.plan["errors"] = {"torch hello": "RuntimeError: this PyTorch finds no GPU"}
        rows = self.race("--rows", MLP)[1]
        self.assertIn("this PyTorch finds no GPU", rows[MLP + " eager"]["text"])
        self.assertEqual(rows[MLP + " eager"]["verdict"], "skipped")

    def test_bad_input_is_refused(self):
        self.assertEqual(self.race("--rows", "no-such-row")[0], 1)
        self.assertIn("no row is called no-such-row", self.text)
        for content in ("{", "[]", '{"rows": 3}'):
            (self.folder / "old").write_text(content)
            self.assertEqual(self.race("--missing", self.folder / "old")[0], 1)
            self.assertIn("--missing", self.text)
        self.assertEqual(self.race("--missing", self.folder / "none")[0], 1)

    def test_the_list_has_groups_seconds_and_memory(self):
        self.assertEqual(self.race("--list")[0], 0)
        self.assertRegex(self.text, rf"(?m)^decide +{R50} compile +>= 1\.0 +\d+ s +\d+\.\d GiB$")
        self.assertRegex(self.text, rf"(?m)^variants +{R50}\+mapped without ")


if __name__ == "__main__":
    unittest.main()
