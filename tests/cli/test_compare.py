#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke compare as users and scripts run it: what it prints, and what it leaves behind.

usage: test_compare.py YOKE [unittest arguments]
"""
import fcntl
import functools
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from clock import judges_clock
from launch_case import LIMIT_S, YOKE, environment, is_running, wait_until

SMALL = ["--model", "mlp:width=528", "--dataset", "synthetic:1x8x8,classes=3,rows=40", "--batch", "9", "--threads", "1",
         "--devices", "2xcpu"]
SHORT = ["--rounds", "3", "--steps", "2", "--seconds", "0.1", "--learn-steps", "3", "--algorithm", "direct"]
LONG = ["--rounds", "99", "--steps", "100000", "--seconds", "80000", "--learn-steps", "0", "--algorithm", "direct"]
ON_TWO = ["dp classic", "dp overlap", "dp sharded", "ddp"]
ON_ONE = ["single", "all cores"] if len(os.sched_getaffinity(0)) > 1 else ["single"]
VERDICT = re.compile(r"it\s+is\s+(faster|slower)|no\s+difference\s+shows")


def compare(*arguments, env=None):
    return subprocess.run([YOKE, "compare", *SMALL, *arguments], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False, env=environment(env))


def ranks_of(pid):
    """Processes that a comparison started as ranks, by their number."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found = [int(child) for child in children
                 if b"--rank-worker" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found  # in the order of their birth: pids begin anew after the highest


def folders():
    return set(pathlib.Path("/tmp").glob("yoke-compare-*"))


def end(process):
    process.kill()
    process.communicate()


@functools.cache
def told(*arguments):
    """What --json says, and the lines that go elsewhere then: one run serves several tests."""
    result = compare(*SHORT, "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout), result.stderr.splitlines()


class Result(unittest.TestCase):
    def check_contender(self, contender, rounds):
        for figure in ["step_ms", "images_per_second", "speedup", "efficiency"]:
            interval = contender[figure]
            self.assertLessEqual(interval["low"], interval["median"])
            self.assertLessEqual(interval["median"], interval["high"])
        self.assertEqual(len(contender["round_ms"]), rounds)
        self.assertEqual(contender["losses"][-1], contender["loss"])
        self.assertAlmostEqual(contender["speedup"]["median"] / contender["devices"],
                               contender["efficiency"]["median"])
        self.assertGreater(contender["stages"]["backward"]["ms"], 0)

    def test_json_has_every_contender_with_figures_rounds_stages_and_what_it_learned(self):
        result, _ = told()
        self.assertEqual([(contender["name"], contender["devices"]) for contender in result["contenders"]],
                         [(name, 1) for name in ON_ONE] + [(name, 2) for name in ON_TWO])
        self.assertEqual([result[key] for key in ["model", "batch", "learn_steps", "steps"]], ["mlp:width=528", 9, 3, 2])
        for contender in result["contenders"]:
            with self.subTest(name=contender["name"]):
                self.check_contender(contender, result["rounds"])
                self.assertEqual(contender["name"] == "ddp", contender.get("transport") == "shared memory")
        stages = {contender["name"]: contender["stages"] for contender in result["contenders"]}
        self.assertIn("replicate", stages["dp classic"])
        self.assertIn("exchange", stages["dp overlap"])
        self.assertIn("all_reduce", stages["ddp"])

    def test_as_many_devices_learn_the_same_bits_and_more_of_them_what_one_does(self):
        result, _ = told()
        single, *others = result["contenders"]
        others = [contender for contender in others if contender["devices"] > 1]
        self.assertTrue(result["equal"])
        self.assertEqual(len({contender["weights_hash"] for contender in others}), 1)
        for contender in others:
            if contender["name"] != "dp overlap":
                self.assertEqual((contender["equality"], contender["compared_with"]), ("same bits", "dp overlap"))
            self.assertAlmostEqual(contender["loss"], single["loss"], delta=1e-6)

    def test_the_lesson_races_python_beside_the_rest_and_all_learn_the_same_bits(self):
        result, lines = told("--lesson", "--interpreter-us", "500")
        contenders = {contender["name"]: contender for contender in result["contenders"]}
        self.assertEqual(list(contenders), ["single", "dp python", "dp classic", "dp nccl", "dp overlap", "ddp"])
        self.assertEqual(len({contenders[name]["weights_hash"] for name in list(contenders)[1:]}), 1)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertEqual((result["link"], result["bucket_mb"], result["learning_rate"]), ("0.6,20", 0.25, 0.01))
        layers = 6  # flatten, three linear layers, two ReLUs: two replicas are copied, then each calls them
        self.assertGreaterEqual(contenders["dp python"]["step_ms"]["low"], 0.5 * layers * (2 + 1))
        self.assertIn("python", contenders["dp python"]["stages"])
        self.assertNotIn("python", contenders["dp classic"]["stages"])
        self.assertIn("only a modelled link slows", " ".join(lines))
        self.assertEqual(result["interpreter_us"], 500)
        self.assertIn("python   500 us for each call or copy of a layer", lines)

    def test_over_nccl_the_roots_link_carries_the_weights_once(self):
        """Three devices: two copies in dp classic, one pass of a chain in dp nccl."""
        result, _ = told("--lesson", "--devices", "3xcpu")
        weights, parts = 4 * result["parameters"], {contender["name"]: contender["parts"] for contender in result["contenders"]}
        for name, copies in (("dp classic", [2, 1, 1]), ("dp nccl", [1, 2, 1])):
            for part, count in zip(parts[name], copies):
                moved = part["sent_bytes"] + part["received_bytes"]
                with self.subTest(name=name, part=part["name"]):
                    self.assertAlmostEqual(moved / (2 * weights), count, delta=0.05)

    def test_only_the_lesson_has_an_interpreter(self):
        result = compare(*SHORT, "--interpreter-us", "5")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--interpreter-us needs --lesson", result.stderr)

    def test_the_lesson_takes_no_counts(self):
        result = compare(*SHORT, "--lesson", "--counts", "doubling")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--counts: --lesson races on all devices alone", result.stderr)

    def test_shares_give_all_modes_the_same_rows_and_bits(self):
        for arguments, rows in ((["--shares", "3:1"], [7, 2]),
                                (["--lesson", "--devices", "3xcpu", "--shares", "2:1:1", "--straggler", "2:2"], [5, 2, 2])):
            result, lines = told("--model", "resnet20", "--dataset", "synthetic:3x8x8,classes=3,rows=40", *arguments)
            others = [contender for contender in result["contenders"] if contender["devices"] > 1]
            self.assertEqual(result["rows_of_devices"], rows)
            self.assertEqual(len({contender["weights_hash"] for contender in others}), 1, arguments)
            self.assertIn("shares   rows of", " ".join(lines))

    def test_batch_norm_makes_another_number_of_devices_another_computation(self):
        result, lines = told("--model", "resnet20", "--dataset", "synthetic:3x8x8,classes=3,rows=40")
        single, *others = result["contenders"]
        others = [contender for contender in others if contender["devices"] > 1]
        self.assertTrue(result["batch_norm"] and result["equal"])
        self.assertEqual(len({contender["weights_hash"] for contender in others}), 1)
        self.assertNotAlmostEqual(single["loss"], others[0]["loss"], delta=1e-6)
        self.assertTrue(any(line.startswith("Batch norm normalizes the rows of each device") for line in lines))

    def test_tables_fit_a_terminal_and_name_every_contender(self):
        _, lines = told()
        self.assertLessEqual(max(map(len, lines)), 80)
        for name in ON_ONE + ON_TWO:
            self.assertEqual(sum(re.match(name + r" +\d", line) is not None for line in lines), 2, name)
        self.assertEqual([line for line in lines if line != line.rstrip()], [])

    def test_what_differs_by_more_than_the_tolerance_is_exit_code_1(self):
        result = compare(*SHORT, "--quiet", "--tolerance", "0")
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn("LOSSES DIFFER", result.stdout)
        self.assertIn("NOT ALL LEARNED THE SAME", result.stdout)

    def test_doubling_leaves_numbers_out_and_without_steps_nothing_is_learned(self):
        result, lines = told("--counts", "doubling", "--devices", "4xcpu", "--learn-steps", "0")
        self.assertEqual([contender["devices"] for contender in result["contenders"]],
                         [1] * len(ON_ONE) + [2] * 4 + [4] * 4)
        self.assertNotIn("loss", result["contenders"][0])
        self.assertFalse(any(line.startswith("learned") for line in lines))


class Apart(unittest.TestCase):
    """async and local, whose devices have weights of their own."""

    MODES = ["async", "local"]

    def modes(self, *arguments):
        result, lines = told("--also", "both", *arguments)
        return result, lines, {contender["name"]: contender for contender in result["contenders"]}

    def trained(self, *arguments):
        """The weights of a run of yoke train with the options of this comparison."""
        command = [YOKE, "train", *SMALL, "--lr", "0.05", "--augment", "none", "--drop-last", "--evaluate-every=-1",
                   "--algorithm", "direct", "--json", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment())
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_they_race_behind_the_others_and_have_the_same_figures(self):
        result, _, modes = self.modes()
        self.assertEqual(list(modes), ON_ONE + ON_TWO + self.MODES)
        self.assertEqual(result["sync_every"], 4)
        for name in self.MODES:
            for figure in ["step_ms", "images_per_second", "speedup", "efficiency"]:
                interval = modes[name][figure]
                self.assertTrue(0 < interval["low"] <= interval["median"] <= interval["high"], (name, figure))
            self.assertEqual(len(modes[name]["round_ms"]), result["rounds"])
            self.assertEqual((modes[name]["devices"], modes[name]["threads"]), (2, 1))

    def test_nothing_is_compared_with_what_they_learned(self):
        result, lines, modes = self.modes("--tolerance", "1e-6")
        self.assertTrue(result["equal"])
        text = " ".join(lines)
        for name in self.MODES:
            self.assertEqual(modes[name]["equality"], "another method")
            self.assertFalse({"compared_with", "largest_difference"} & set(modes[name]))
            self.assertNotEqual(modes[name]["weights_hash"], modes["dp overlap"]["weights_hash"])
            self.assertRegex(text, name + r" +2 x 1 +[\d.]+ +[0-9a-f]{16}  another method")
        self.assertIn("All dp and ddp modes on as many devices", text)
        self.assertEqual(modes["ddp"]["equality"], "same bits")

    def test_local_learns_what_yoke_train_learns(self):
        for every in [1, 2]:
            _, _, modes = self.modes("--sync-every", str(every), "--learn-steps", "5")
            run = self.trained("--mode", "local", "--sync-every", str(every), "--steps", "5")
            self.assertEqual(modes["local"]["weights_hash"], run["weights_hash"], every)

    def test_async_learns_what_yoke_train_learns_where_chance_decides_nothing(self):
        _, _, modes = self.modes("--learn-steps", "1")  # one push: of the first device
        self.assertEqual(modes["async"]["weights_hash"], self.trained("--mode", "async", "--steps", "1")["weights_hash"])

    def test_images_of_all_pushes_count(self):
        result, _, modes = self.modes()
        for name in self.MODES:
            mode = modes[name]
            self.assertAlmostEqual(mode["images_per_second"]["median"], 1e3 * result["batch"] / mode["step_ms"]["median"])
        runs = result["rounds"] + result["repeated"] + 1  # and the one that warms up
        self.assertEqual(modes["async"]["staleness"]["pushes"], runs * (2 + 2))  # two before the clock starts
        self.assertNotIn("staleness", modes["local"])

    def test_async_does_not_wait_for_a_slow_device(self):
        """Without a clock: the other device pushes several times while the slow one computes once."""
        result, lines, modes = self.modes("--straggler", "0:8", "--steps", "60")
        staleness = modes["async"]["staleness"]
        self.assertGreater(staleness["most"], 1)
        runs = result["rounds"] + result["repeated"] + 1
        self.assertEqual(staleness["pushes"], runs * (2 + 63))  # 7 turns of 8 pushes and 1 of the slow device
        text = " ".join(lines)
        self.assertIn("In async no device waits for another one, nor for the slow one.", text)
        self.assertIn("In local all devices begin each step together, and wait for the slow one.", text)

    def test_what_they_do_not_record_is_no_zero(self):
        _, lines, modes = self.modes()
        for name in self.MODES:
            for key in ["stages", "parts", "recorded_step"]:
                self.assertIsNone(modes[name][key], (name, key))
        self.assertLessEqual(max(map(len, lines)), 80)
        for head in (line for line in lines if line.startswith("2 devices ")):
            self.assertFalse(set(self.MODES) & set(head.split()), head)
        self.assertTrue(any(line.startswith("  async and local: -, here and below") for line in lines))

    def test_each_races_alone_and_on_every_number_of_devices(self):
        for word in self.MODES:
            result, lines = told("--also", word, "--counts", "doubling", "--devices", "4xcpu", "--learn-steps", "0")
            names = [(contender["name"], contender["devices"]) for contender in result["contenders"]]
            self.assertEqual(names[len(ON_ONE):], [(name, devices) for devices in (2, 4) for name in [*ON_TWO, word]])
            self.assertEqual([line for line in lines if "another method" in line], [])

    def test_the_page_has_them_without_stages(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.html"
            result = compare(*SHORT, "--also", "both", "--quiet", "--html", str(page))
            self.assertEqual(result.returncode, 0, result.stderr)
            text = page.read_text()
        self.assertIn("What async and local learned is compared with nothing", text)
        self.assertIn("a mean of the weights every 4 steps", text)
        self.assertIn("a step is a push, of 9 rows by one device", text)
        for name in self.MODES:
            self.assertRegex(text, rf">{name}( on 2)?<")
            self.assertNotIn(f"{name}: one step", text)
            self.assertNotIn(f"{name}: of the", text)


class Figures(unittest.TestCase):
    def test_speedups_are_the_quotients_of_the_step_times_beside_them(self):
        result, _ = told("--rounds", "7", "--seconds", "600")
        step_ms = {contender["name"]: contender["step_ms"]["median"] for contender in result["contenders"]}
        for contender in result["contenders"]:
            with self.subTest(name=contender["name"]):
                own = step_ms[contender["name"]]
                self.assertAlmostEqual(contender["speedup"]["median"], step_ms["single"] / own)
                self.assertAlmostEqual(contender["images_per_second"]["median"], 1e3 * result["batch"] / own)
                if "all cores" in ON_ONE:
                    self.assertAlmostEqual(contender["speedup_all_cores"]["median"], step_ms["all cores"] / own)

    def test_a_modelled_link_and_a_straggler_are_named(self):
        result, lines = told("--link", "1,5", "--straggler", "1:2")
        self.assertEqual((result["link"], result["straggler"], result["straggler_factor"]), ("1,5", 1, 2))
        text = " ".join(lines)
        self.assertIn("link     1,5, modelled", text)
        self.assertIn("rank 1 computes 2 times as long", text)
        self.assertNotIn("no link slows", text)

    def test_all_cores_is_one_device_with_the_threads_of_all_devices(self):
        result, lines = told()
        threads = {contender["name"]: contender["threads"] for contender in result["contenders"]}
        self.assertEqual([threads[name] for name in ["single"] + ON_TWO], [1] * 5)
        self.assertTrue(any("single has 1 thread" in line for line in lines))
        if "all cores" in ON_ONE:
            self.assertEqual(threads["all cores"], 2)

    def test_three_rounds_give_a_range_and_no_verdict(self):
        result, lines = told()
        self.assertEqual((result["rounds"], result["low_high"]), (3, "range"))
        for contender in result["contenders"]:
            times = contender["step_ms"]
            self.assertEqual([times["low"], times["high"]], [min(contender["round_ms"]), max(contender["round_ms"])])
        self.assertTrue(any("low .. high: range" in line for line in lines))
        self.assertIsNone(VERDICT.search("\n".join(lines)))

    def test_six_rounds_give_an_interval(self):
        result, lines = told("--rounds", "7", "--seconds", "600")
        self.assertIn(result["rounds"], (6, 7))  # six that nobody disturbed are enough
        self.assertEqual(result["low_high"], "95 % interval")
        self.assertTrue(any("low .. high: 95 % interval" in line for line in lines))
        verdicts = len(VERDICT.findall("\n".join(lines)))
        self.assertEqual(verdicts, 0 if result["disturbed"] > 0 else 2)

    def test_a_disturbed_race_orders_the_modes_whose_intervals_are_disjoint(self):
        burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        self.addCleanup(end, burner)
        result = compare("--json", "--rounds", "6", "--steps", "20", "--seconds", "6", "--learn-steps", "0",
                         "--algorithm", "direct")
        self.assertEqual(result.returncode, 0, result.stderr)
        found, said = json.loads(result.stdout), " ".join(result.stderr.split())
        self.assertGreater(found["disturbed"], 0)
        self.assertIsNone(VERDICT.search(result.stderr))
        if found["low_high"] == "range":
            self.assertIn("rounds are too few for a verdict", said)
            return
        times = {contender["name"]: contender["step_ms"] for contender in found["contenders"] if contender["devices"] == 2}
        pairs = {(slow, fast) for slow in times for fast in times if times[slow]["low"] > times[fast]["high"]}
        told = {(slow, fast) for slow, faster in re.findall(r"(d[\w ]+) is slower than ([\w ,]+):", said)
                for fast in re.split(", | and ", faster)}
        self.assertEqual(told, pairs)
        every = len(times) * (len(times) - 1) // 2
        self.assertEqual("cannot be told apart on this busy machine" in said, len(pairs) < every)

    def test_the_stages_of_every_device_and_its_idle_time_add_up_to_the_step(self):
        result, _ = told()
        for contender in result["contenders"]:
            for part in [contender, *contender["parts"]]:
                with self.subTest(name=contender["name"], part=part["name"]):
                    times = {name: stage["ms"] for name, stage in part["stages"].items()}
                    step = times.pop("step")
                    self.assertAlmostEqual(step, contender["step_ms"]["median"])
                    self.assertAlmostEqual(sum(times.values()), step, delta=0.02 * step)
                    self.assertGreaterEqual(min(times.values()), 0)

    def test_the_recorded_step_has_the_spans_of_every_device_and_rank(self):
        result, _ = told()
        for contender in result["contenders"]:
            with self.subTest(name=contender["name"]):
                step = contender["recorded_step"]
                self.assertGreater(step["ms"], 0)
                for device in range(contender["devices"]):
                    own = [span for span in step["spans"] if span["device"] == device]
                    self.assertLessEqual({"forward", "backward"}, {span["stage"] for span in own})
                    self.assertEqual([span["begin_ms"] for span in own], sorted(span["begin_ms"] for span in own))
                    for span in own:
                        if span["stage"] == "backward":
                            self.assertIn("bucket", span)
                        self.assertLess(span["begin_ms"], span["end_ms"])
                        self.assertGreaterEqual(span["begin_ms"], 0)  # of the rank that begins first
                        self.assertLessEqual(span["end_ms"], step["ms"] + 1e-6)

    def test_memory_shows_the_roots_burden_and_sharded_divides_it(self):
        result, _ = told()
        memory = {contender["name"]: [part["memory_bytes"] for part in contender["parts"]]
                  for contender in result["contenders"]}
        weights = 4 * result["parameters"]
        for parts in memory.values():
            for part in parts:
                self.assertGreaterEqual(part["weights"], weights)
                self.assertGreaterEqual(part["total"], part["weights"] + part["gradients"] + part["optimizer"])
        for name in ["dp classic", "dp overlap"]:
            self.assertGreaterEqual(memory[name][0]["optimizer"], weights)
            self.assertEqual(memory[name][1]["optimizer"], 0)
        self.assertLess(memory["dp sharded"][0]["optimizer"], weights)
        self.assertEqual(memory["ddp"][0]["optimizer"], memory["ddp"][1]["optimizer"])

    def test_moved_bytes_are_those_that_counting_gives(self):
        """With N devices, P bytes of weights and momentum: see docs/ddp.md and tests/parallel/test_stage_bytes.c."""
        result, _ = told()
        weights = 4 * result["parameters"]
        stages = {contender["name"]: [part["stages"] for part in contender["parts"]]
                  for contender in result["contenders"]}
        for part in stages["ddp"]:
            self.assertAlmostEqual(part["all_reduce"]["bytes"] / weights, 2, delta=0.1)
            self.assertAlmostEqual(part["update"]["bytes"] / weights, 5, delta=0.25)
        both = sum(part["exchange"]["bytes"] for part in stages["dp overlap"]) / weights
        factors = 2 + 3  # in place of this model's large gradients, where the processor has such kernels
        self.assertTrue(any(abs(both - floats) <= 0.5 for floats in (factors, 2 * 2 + 5)), both)

    def test_links_carry_the_bytes_that_counting_gives(self):
        """docs/ddp.md, "How many bytes move": P bytes of parameters; a chain of N = 3 in overlap."""
        result, lines = told("--devices", "3xcpu", "--link", "1,5", "--counts", "doubling")
        weights, devices = 4 * result["parameters"], 3
        parts = {contender["name"]: contender["parts"] for contender in result["contenders"]
                 if contender["devices"] == devices}
        ring = 2 * weights * (devices - 1) / devices
        rows = 9 * 3 * 4 / devices  # outputs of a shard, or their gradients; inputs are 64 floats a row
        inputs = 9 * 64 * 4 / devices
        to_root, from_root = weights + rows, weights + rows + inputs
        expected = {
            "dp classic": [((devices - 1) * from_root, (devices - 1) * to_root)] + [(to_root, from_root)] * 2,
            "dp overlap": [(weights, weights), (2 * weights, 2 * weights), (weights, weights)],
            "dp sharded": [(ring, ring)] * devices,
            "ddp": [(ring, ring)] * devices}
        for name, links in expected.items():
            for part, (sent, received) in zip(parts[name], links):
                with self.subTest(name=name, part=part["name"]):
                    self.assertAlmostEqual(part["sent_bytes"] / sent, 1, delta=0.02)
                    self.assertAlmostEqual(part["received_bytes"] / received, 1, delta=0.02)
                    self.assertEqual(part["stages"]["step"]["bytes"], part["sent_bytes"] + part["received_bytes"])
        self.assertNotIn("sent_bytes", result["contenders"][0]["parts"][0])
        self.assertTrue(any(line.startswith("sent ") for line in lines))
        self.assertFalse(any(line.startswith("moved ") for line in lines))

    def limited(self):
        begin = time.monotonic()
        result = compare("--json", "--quiet", "--seconds", "6", "--learn-steps", "3", "--algorithm", "direct")
        return result, time.monotonic() - begin

    def test_no_part_of_a_comparison_takes_longer_than_the_whole(self):
        result, took = self.limited()
        seconds = json.loads(result.stdout)["seconds"]
        self.assertEqual(seconds["limit"], 6)
        self.assertLess(sum(seconds.values()) - 6, took + 0.01)

    @judges_clock
    def test_the_time_limit_covers_the_whole_command(self):
        result, took = self.limited()
        if json.loads(result.stdout)["rounds"] > 3:  # else the machine was too slow for more
            self.assertLess(took, 12)  # ranks get up to 5 s to end

    def test_a_narrow_terminal_learns_how_wide_the_tables_are(self):
        try:
            ours, theirs = pty.openpty()
        except OSError:
            self.skipTest("this system offers no pseudo-terminals")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 40, 0, 0))
        process = subprocess.Popen([YOKE, "compare", *SMALL, *SHORT, "--quiet"], stdout=theirs,
                                   stderr=subprocess.DEVNULL, env=environment())
        os.close(theirs)
        self.addCleanup(os.close, ours)
        self.addCleanup(end, process)
        self.assertTrue(select.select([ours], [], [], LIMIT_S)[0], f"no line in {LIMIT_S} s")
        self.assertIn(b"need 80 columns; this terminal has 40", os.read(ours, 65536))


class Mistakes(unittest.TestCase):
    def fails(self, code, words, *arguments, env=None):
        result = compare(*SHORT, *arguments, env=env)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        said = [line for line in result.stderr.splitlines() if line.startswith("yoke: ")]
        self.assertEqual(len(said), 1, result.stderr)
        for word in words:
            self.assertIn(word, said[0])

    def test_each_is_named_with_its_exit_code(self):
        for code, words, arguments in [
                (2, ["--tolerence", "--tolerance"], ["--tolerence", "1"]),
                (2, ["'2'", "from 3"], ["--rounds", "2"]),
                (2, ["'halving'", "doubling"], ["--counts", "halving"]),
                (2, ["cpu:0", "2xcpu"], ["--devices", "cpu"]),
                (2, ["4xcpo"], ["--devices", "4xcpo"]),
                (2, ["41", "40 rows"], ["--batch", "41"]),
                (2, ["resnet21", "resnet20"], ["--model", "resnet21"]),
                (2, ["not the name of a model"], ["--model", "m" * 100]),
                (2, ["1023 bytes"], ["--dataset", "d" * 2000]),
                (2, ["17 devices", "--counts doubling"], ["--devices", "17xcpu"]),
                (2, ["yoke compare starts itself"], ["--rank-worker"]),
                (2, ["'ddp'", "local", "both"], ["--also", "ddp"]),
                (2, ["--sync-every needs --also local"], ["--sync-every", "2", "--also", "async"]),
                (2, ["--shares auto", "give numbers"], ["--shares", "auto"]),
                (2, ["one share for each of 2 devices"], ["--shares", "1:2:3"]),
                (2, ["--shares", "--also"], ["--shares", "1:2", "--also", "async"]),
                (2, ["without rows"], ["--shares", "1:100"]),
                (2, ["no modelled link", "--link"], ["--also", "async", "--link", "1,5"]),
                (2, ["no modelled link", "--lesson"], ["--also", "both", "--lesson"]),
                (66, ["data_batch_1.bin"], ["--dataset", "cifar10:/nonexistent"]),
                (1, ["loss"], ["--lr", "1e30"])]:
            with self.subTest(arguments=arguments):
                self.fails(code, words, *arguments)

    def test_compare_refuses_to_run_as_a_rank(self):
        variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
        self.fails(2, ["torchrun", "2 processes"], env=variables)


class Ends(unittest.TestCase):
    def start(self, *arguments):
        """One that goes on until it is disturbed; its ranks are there."""
        process = subprocess.Popen([YOKE, "compare", *SMALL, *LONG, *arguments], env=environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(end, process)
        wait_until(lambda: process.poll() is not None or len(ranks_of(process.pid)) == 2, "two ranks")
        return process, ranks_of(process.pid)

    def expect_nothing_left(self, before, ranks):
        wait_until(lambda: not any(map(is_running, ranks)), "the end of the ranks")
        wait_until(lambda: folders() <= before, "the end of the folder")

    def test_a_killed_rank_is_named_and_the_others_go(self):
        for victim, delay_s in [(1, 0), (0, 0.3), (1, 1)]:
            with self.subTest(victim=victim, delay_s=delay_s):
                before = folders()
                process, ranks = self.start()
                time.sleep(delay_s)
                os.kill(ranks[victim], signal.SIGKILL)
                out, err = process.communicate(timeout=LIMIT_S)
                self.assertEqual(process.returncode, 76, err)
                self.assertEqual(out, "")
                self.assertIn(f"yoke: rank {victim} of 2 (process {ranks[victim]}) died of signal 9", err)
                self.expect_nothing_left(before, ranks)

    def test_ranks_end_with_the_process_that_started_them(self):
        for number in [signal.SIGKILL, signal.SIGINT]:
            with self.subTest(signal=number):
                before = folders()
                process, ranks = self.start()
                process.send_signal(number)
                process.communicate(timeout=LIMIT_S)
                self.assertEqual(process.returncode, -number)
                self.expect_nothing_left(before, ranks)


if __name__ == "__main__":
    unittest.main(verbosity=2)
