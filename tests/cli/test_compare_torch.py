#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke compare --with-torch: small programs pose as PyTorch and as what can be wrong with it; PyTorch itself, where the
interpreter that runs this test has it.

usage: test_compare_torch.py YOKE [unittest arguments]
"""
import functools
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

from launch_case import LIMIT_S, YOKE, environment, is_running, wait_until

SMALL = ["--model", "mlp:width=32", "--dataset", "synthetic:1x8x8,classes=3,rows=40", "--batch", "9", "--threads", "1",
         "--devices", "2xcpu"]
SHORT = ["--rounds", "3", "--steps", "2", "--seconds", "0.1", "--algorithm", "direct"]
ON_ONE = ["single", "all cores"] if len(os.sched_getaffinity(0)) > 1 else ["single"]
HAS_TORCH = importlib.util.find_spec("torch") is not None

# It answers as torch_worker.py does. TRICK: python, with say, request and count of the requests so far.
POSING = """\
#!{python}
import os, socket, sys, time
channel = socket.socket(fileno=3).makefile("rw")
def say(text):
    channel.write(text + "\\n")
    channel.flush()
def trick(request, count):
{trick}
def answer(request, count):
    if trick(request, count) is None:
        say({{"start": "ok 99 torch 0.0, Python 0", "learn": "ok 1.25", "run": "ok 4.5"}}[request])
answer("start", 0)
for count, line in enumerate(channel, 1):
    answer(line.split()[0], count)
"""


def compare(*arguments, python=None, place=None):
    wanted = [] if python is None else ["--with-torch", str(python)]
    return subprocess.run([YOKE, "compare", *SMALL, *SHORT, *wanted, *arguments], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False, env=environment({"TMPDIR": str(place)} if place else None))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.place = self.folder / "place"  # of the folder where ranks meet
        self.place.mkdir()

    def program(self, text):
        path = self.folder / "python"
        path.write_text(text)
        path.chmod(0o755)
        return path

    def posing(self, trick="return None"):
        return self.program(POSING.format(python=sys.executable, trick=textwrap.indent(textwrap.dedent(trick), "    ")))


class Posing(Case):
    def told(self, *arguments, trick="return None"):
        result = compare("--json", "--learn-steps", "0", *arguments, python=self.posing(trick))
        self.assertEqual(result.returncode, 0, result.stderr)
        found = json.loads(result.stdout)
        return found, result.stderr, {contender["name"]: contender for contender in found["contenders"]}

    def test_it_races_in_the_same_rounds_and_stands_in_table_json_and_page(self):
        page = self.folder / "page.html"
        found, said, modes = self.told("--html", str(page))
        self.assertEqual(list(modes), [*ON_ONE, "torch eager", "dp classic", "dp overlap", "dp sharded", "ddp", "torch ddp"])
        self.assertEqual(found["torch"], "torch 0.0, Python 0")
        for name, devices in (("torch eager", 1), ("torch ddp", 2)):
            self.assertEqual(modes[name]["devices"], devices)
            self.assertEqual(modes[name]["step_ms"], {"median": 4.5, "low": 4.5, "high": 4.5})
            self.assertEqual(modes[name]["round_ms"], [4.5] * found["rounds"])
            self.assertAlmostEqual(modes[name]["images_per_second"]["median"], 9e3 / 4.5)
            self.assertIsNone(modes[name]["recorded_step"])
            self.assertRegex(said, rf"(?m)^{name} +{devices} x 1 +4\.50 ")
        self.assertEqual(modes["torch ddp"]["transport"], "gloo")
        self.assertLessEqual(max(map(len, said.splitlines())), 80)
        self.assertIn("PyTorch  torch 0.0, Python 0; gloo; 1 thread each", said)
        self.assertIn("torch eager and torch ddp: -, here and below", said)
        text = page.read_text()
        self.assertIn("torch 0.0, Python 0", text)
        self.assertIn("leave torch eager and torch ddp out", text)
        self.assertRegex(text, r">torch ddp( on 2)?<")

    def test_it_races_on_all_devices_alone_and_in_the_lesson(self):
        _, _, modes = self.told("--devices", "3xcpu", "--counts", "doubling")
        self.assertEqual([mode["devices"] for name, mode in modes.items() if "torch" in name], [1, 3])
        page = self.folder / "page.html"
        _, said, modes = self.told("--lesson", "--devices", "2xcpu", "--html", str(page))
        self.assertEqual(list(modes), ["single", "torch eager", "dp python", "dp classic", "dp nccl", "dp overlap", "ddp",
                                       "torch ddp"])
        self.assertIn("torch ddp knows no modelled link", said)
        text = page.read_text()
        self.assertIn("torch ddp knows no modelled link", text)
        fastest = re.search(r"On 2 devices (.+?) trains \S+ images a second, [0-9.]+ times as many as", text)[1]
        self.assertNotIn("torch", fastest)

    def test_its_speed_is_compared_where_it_pays_the_same(self):
        enough = ["--rounds", "6", "--seconds", "60"]
        for arguments, sentence in (([], None), (["--link", "1,5"], "knows no modelled link"),
                                    (["--straggler", "1:2"], "knows no straggler")):
            with self.subTest(arguments=arguments):
                found, said, _ = self.told(*enough, *arguments)
                said = " ".join(said.split())
                self.assertEqual("torch ddp knows no" in said, sentence is not None)
                if sentence:
                    self.assertIn(sentence, said)
                if found["disturbed"]:
                    continue
                self.assertIn("On 1 device torch eager has", said)
                self.assertEqual("On 2 devices torch ddp has" in said, sentence is None)

    def test_another_loss_is_exit_code_1(self):
        result = compare("--quiet", "--learn-steps", "2", python=self.posing())
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertRegex(result.stdout, r"torch eager +1 x 1 +1\.25000000  -  +LOSSES DIFFER by")

    def test_it_gets_the_model_the_weights_the_rows_and_every_batch(self):
        seen = self.folder / "seen"
        seen.mkdir()
        trick = f"""
            import shutil
            if request == "run" and count > 1:
                return None
            shutil.copytree(sys.argv[2], {str(seen)!r} + f"/{{request}}-{{count}}-{{sys.argv[3]}}", dirs_exist_ok=True)
        """
        compare("--learn-steps", "2", "--optimizer", "adamw", python=self.posing(trick))
        learned = [folder for folder in sorted(seen.iterdir()) if folder.name.startswith("learn-")]
        batches = [(folder / "batch").read_bytes() for folder in learned]
        self.assertEqual(len(set(batches)), 2)  # of both contenders the same two
        work = json.loads((seen / "learn-1-1" / "work.json").read_text())
        self.assertEqual((work["way"], work["ranks"], work["rows"], work["model"]), ("ddp", 2, [5, 4], "mlp:width=32"))
        self.assertEqual((work["classes"], work["channels"], work["height"], work["width"]), (3, 1, 8, 8))
        self.assertEqual((work["optimizer"]["kind"], work["optimizer"]["beta2"], work["threads"]), ("adamw", 0.999, 1))
        self.assertIn(b"fc3.weight", (seen / "learn-1-1" / "weights").read_bytes())
        self.assertTrue((seen / "run-1-0" / "batch").exists())


class Trouble(Case):
    def fails(self, code, words, python, *arguments):
        result = compare("--learn-steps", "0", *arguments, python=python, place=self.place)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        said = next(line for line in result.stderr.splitlines() if line.startswith("yoke: "))
        for word in words:
            self.assertIn(word, said)
        wait_until(lambda: not any(self.place.iterdir()), "the end of the folder")

    def test_an_interpreter_without_torch_says_how_to_get_it(self):
        bare = self.program(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
        self.fails(2, ["--with-torch", "has no torch", "-m pip install torch", "--with-torch PATH"], bare)

    def test_without_a_name_it_is_python3_of_the_path(self):
        result = subprocess.run([YOKE, "compare", *SMALL, "--with-torch", "--html", self.folder / "page.html"],
                                capture_output=True, text=True, timeout=LIMIT_S, check=False,
                                env=environment({"PATH": str(self.folder)}))
        self.assertEqual(result.returncode, 2)
        self.assertIn("--with-torch: cannot run 'python3'", result.stderr)

    def test_no_program_and_none_that_can_be_run(self):
        self.fails(2, ["cannot run '/nonexistent/python'", "--with-torch PATH"], "/nonexistent/python")
        (self.folder / "text").write_text("x")
        self.fails(2, ["cannot run"], self.folder / "text")
        self.fails(2, ["is no program"], "x" * 2000)

    def test_a_rank_that_dies_is_named_with_what_it_printed_last(self):
        dies = self.posing("""
            if request == "run" and count == 2:
                print("out of\\ncake", file=sys.stderr, flush=True)
                os._exit(3)
        """)
        self.fails(76, ["torch eager: rank 0 of 1 (process", "exited with code 3", "it printed last: out of|cake"], dies)
        other = self.posing("""
            if request == "run" and sys.argv[3] == "1":
                os.kill(os.getpid(), 9)
        """)
        self.fails(76, ["torch ddp: rank 1 of 2", "died of signal 9", "printed nothing"], other)

    def test_one_that_closes_its_connection_and_lives_on_is_ended(self):
        self.fails(76, ["rank 0 of 1", "has closed its connection"], self.posing("""
            os.dup2(0, 3)
            time.sleep(1000)
        """))

    def test_one_that_hangs_is_ended_at_the_deadline(self):
        for request in ("start", "run"):
            hangs = self.posing(f"if request == '{request}': time.sleep(1000)")
            self.fails(75, ["has not answered for 3 s", "--torch-deadline"], hangs, "--torch-deadline", "3")

    def test_what_means_nothing_is_shown(self):
        for request, text in (("start", "banana"), ("start", "ok torch"), ("run", "ok soon"), ("run", "ok -5"),
                              ("run", "ok nan"), ("run", "\\x1b[2Jok 5")):
            with self.subTest(text=text):
                self.fails(76, ["rank 0 of", "answers '", "which means nothing"], self.posing(
                    f"if request == {request!r}: say('{text}'); return 1"))

    def test_what_it_refuses_and_where_it_fails_comes_with_its_words(self):
        self.fails(2, ["--with-torch: no such model"], self.posing("say('refused no such model'); return 1"))
        self.fails(76, ["torch eager: rank 0 of 1: Error: full"], self.posing("say('failed Error: full'); return 1"))

    def test_precision_and_optimizers_that_differ_are_refused(self):
        self.fails(2, ["float16"], self.posing(), "--precision", "float16")

    def test_nothing_is_left_when_the_user_or_the_system_ends_it(self):
        for number in (signal.SIGINT, signal.SIGKILL):
            with self.subTest(signal=number):
                file = self.folder / "ranks"
                python = self.posing(f"""
                    if request == "start":
                        print(os.getpid(), file=open({str(file)!r}, "a"), flush=True)
                """)
                process = subprocess.Popen([YOKE, "compare", *SMALL, "--learn-steps", "0", "--steps", "100000", "--rounds",
                                            "99", "--seconds", "8000", "--with-torch", str(python)], env=environment({"TMPDIR": str(self.place)}),
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.addCleanup(process.kill)
                wait_until(lambda: file.exists() and len(file.read_text().split()) == 3, "three processes")
                ranks = [int(word) for word in file.read_text().split()]
                process.send_signal(number)
                self.assertEqual(process.wait(LIMIT_S), -number)
                wait_until(lambda: not any(map(is_running, ranks)), "the end of the processes")
                wait_until(lambda: not any(self.place.iterdir()), "the end of the folder")
                file.unlink()


@functools.cache
def real(*arguments):
    result = compare("--json", "--learn-steps", "4", *arguments, python=sys.executable)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    return found, result.stderr, {contender["name"]: contender for contender in found["contenders"]}


@unittest.skipUnless(HAS_TORCH, f"{sys.executable} has no torch")
class Real(Case):
    def same(self, most, *arguments):
        found, _, modes = real(*arguments)
        for name, with_name in (("torch eager", "single"), ("torch ddp", "dp overlap")):
            with self.subTest(name=name, arguments=arguments):
                self.assertEqual((modes[name]["equality"], modes[name]["compared_with"]), ("rounding", with_name))
                self.assertLess(modes[name]["largest_difference"], most)
                self.assertNotIn("weights_hash", modes[name])
                self.assertGreater(modes[name]["step_ms"]["low"], 0)
        return found, modes

    def test_it_learns_what_yoke_learns_also_with_unequal_parts_of_a_batch(self):
        found, _ = self.same(1e-5)
        self.assertRegex(found["torch"], r"^torch \d+\..*, Python 3\.")
        self.same(1e-5, "--shares", "3:1", "--optimizer", "adamw")

    def test_with_batch_norm_the_first_losses_count(self):
        _, modes = self.same(1e-3, "--model", "resnet20", "--dataset", "synthetic:3x8x8,classes=3,rows=40")
        self.assertEqual(modes["torch ddp"]["compared_steps"], 2)

    def test_texts_and_regression(self):
        text = self.folder / "text.txt"
        text.write_text("a line of a text that is as long as it must be\n" * 40)
        rows = self.folder / "rows.csv"
        rows.write_text("a,b,y\n" + "".join(f"{i % 7},{i % 5},{i % 3}.5\n" for i in range(60)))
        self.same(1e-4, "--model", "gpt2:layers=1,width=16,heads=2", "--dataset", f"text:{text},context=8")
        self.same(1e-4, "--dataset", f"csv:{rows},target=y", "--optimizer", "adam")

    def test_what_pytorch_lacks_is_refused_by_name(self):
        for words, arguments in ((["mlp-dropout", "mlp-dropout:dropout=0"], ["--model", "mlp-dropout"]),
                                 (["layers:linear=3", "resnet20"], ["--model", "layers:linear=3"]),
                                 (["lion", "adamw"], ["--optimizer", "lion"]),
                                 (["--batch 5", "without rows"], ["--batch", "5", "--devices", "4xcpu", "--counts", "doubling"])):
            result = compare("--learn-steps", "1", *arguments, python=sys.executable)
            self.assertEqual(result.returncode, 2, result.stderr)
            for word in words:
                self.assertIn(word, result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
