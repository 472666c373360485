#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke lesson: predictions, refusals, files of results; and every lesson's commands run and say what the lesson says.

usage: test_lesson.py YOKE [unittest arguments]
"""
import fcntl
import json
import os
import pathlib
import pty
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
EXCHANGES = ROOT / "tests/cli/exchanges"
LIMIT_S = 300
# Lesson: right prediction, its answer as computed here, wrong prediction, right answer of the exercise, wrong one.
# None: a clock decides, and the test only runs it.
ANSWERS = {
    1: ("2", None, "x", "yes", "no"),
    2: ("ddp, overlap, classic, python", None, "x", 7 * 4 * 272474 / 0.3e9 * 1e3, 12),
    3: ("4 copies", 4, "1", 327, 109),
    4: ("four one many", None, "x", "5 ms", "15"),
    5: ("2x", 2, "3", 1.98, 100),
    6: ("classic < tree < ring", None, "ring,tree,classic", "0.5535 MB", "5"),
    7: ("3", 3, "1.5", 1.5, 3),
    8: ("yes", True, "no", 50, 100),
    9: ("2 updates", 2, "1", 15, 5),
    10: ("1.75 times", 1.75, "2", 1, 2),
    11: ("27 %", 300 / 11, "37", 27, 40),
    12: ("41%", 41, "80", 25, 100),
    13: ("80", None, "x", 33.3, 66),
}


def yoke(*arguments, folder=None, **options):
    return subprocess.run([YOKE, *map(str, arguments)], cwd=folder, text=True, capture_output=True, timeout=LIMIT_S,
                          check=False, stdin=subprocess.DEVNULL, **options)


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="yoke-lesson-test-")
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def run_ok(self, *arguments, **options):
        done = yoke(*arguments, folder=self.folder, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def said(self, *arguments):
        return json.loads(self.run_ok(*arguments, "--json").stdout)

    def refused(self, code, text, *arguments, **options):
        done = yoke(*arguments, folder=self.folder, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(done.stdout, "")
        return done

    def write(self, name, content):
        (self.folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return name


class Lessons(Case):
    def check(self, number):
        right, truth, wrong, answer, mistake = ANSWERS[number]
        told = self.said("lesson", number, "--predict", right, "--answer", answer)
        prediction, exercise = told["prediction"], told["exercise"]
        self.assertTrue(exercise["right"], exercise)
        self.assertEqual(truth is None, prediction["clock"] or prediction["kind"] == "order")
        if not prediction["clock"]:
            self.assertTrue(prediction["right"], prediction)
            if truth is not None:
                self.assertAlmostEqual(prediction["measured"] / truth, 1, delta=0.1)
            self.assertFalse(self.said("lesson", number, "--predict", wrong)["prediction"]["right"])
        self.assertEqual(told["lesson"], number)
        return told, mistake

    def test_wrong_answers_of_exercises_are_wrong(self):
        for number in (7, 10, 11):
            told, mistake = self.check(number)
            again = self.said("lesson", told["name"], "--predict", ANSWERS[number][0], "--answer", mistake)
            self.assertFalse(again["exercise"]["right"])
            self.assertAlmostEqual(again["exercise"]["off"], mistake / again["exercise"]["measured"], delta=1e-6)

    def test_the_list_has_them_all(self):
        listed = self.said("lesson")["lessons"]
        self.assertEqual([lesson["lesson"] for lesson in listed], list(ANSWERS))
        lines = self.run_ok("lesson").stdout.splitlines()
        self.assertEqual([line.split()[:2] for line in lines], [[str(x["lesson"]), x["name"]] for x in listed])

    def test_a_measured_figure_is_that_of_the_commands(self):
        """The expressions of lessons 6 and 10, computed here from the commands' own JSON."""
        commands = {x["lesson"]: x["commands"] for x in self.said("lesson")["lessons"]}
        run = {number: [{mode["mode"]: mode for mode in self.said(*shlex.split(command))["runs"]}
                        for command in commands[number]] for number in (6, 10)}
        hidden = {"classic": "dp-classic", "ring": "ddp-ring", "tree": "ddp-tree"}
        for name, value in self.said("lesson", 6, "--predict", "ring,tree,classic")["prediction"]["measured"].items():
            mode = run[6][0][hidden[name]]
            self.assertAlmostEqual(value, mode["communicate_ms"] + mode["wait_ms"], places=3)
        fast = self.said("lesson", 10, "--predict", "1")["prediction"]
        self.assertAlmostEqual(fast["measured"], run[10][0]["ddp-ring"]["step_ms"] / run[10][1]["ddp-ring"]["step_ms"], 6)
        self.assertAlmostEqual(fast["off"], 1 / fast["measured"], 6)
        unequal = self.said("lesson", 7, "--predict", "3")["prediction"]
        self.assertAlmostEqual(unequal["measured"], 3, delta=0.01)  # but for the one slow device all are alike

    def test_an_order_counts_the_pairs_that_are_the_other_way_round(self):
        for order, pairs in (("classic,tree,ring", 0), ("tree,classic,ring", 1), ("ring,tree,classic", 3)):
            told = self.said("lesson", "links", "--predict", order)["prediction"]
            self.assertEqual((told["off"], told["right"]), (pairs, pairs == 0))

    def test_answers_of_a_file(self):
        answers = self.write("answers.json", {"7": {"predict": 3, "exercise": "1.5 times"},
                                              "links": {"predict": ["classic", "tree", "ring"]}})
        told = self.said("lesson", 7, "--answers", answers)
        self.assertTrue(told["prediction"]["right"] and told["exercise"]["right"])
        told = self.said("lesson", 6, "--answers", answers)
        self.assertTrue(told["prediction"]["right"])
        self.assertIsNone(told["exercise"])
        self.refused(2, "wants a prediction first", "lesson", 11, "--answers", answers)

    def test_words_show_prediction_outcome_and_reason(self):
        words = self.run_ok("lesson", 7, "--predict", "2", "--answer", "1500e-3 x").stdout
        self.assertRegex(words, r"predicted +2\n +came out +(?:2\.9|3\.0)\d+ times\n +wrong: 0\.6\d+ times what it is\n")
        self.assertIn("Everybody waits for the slowest device", words)
        self.assertIn("right, within 2 %", words)
        self.assertLessEqual(max(map(len, words.splitlines())), 79)


def add_lesson(number):
    setattr(Lessons, f"test_lesson_{number}", lambda self: self.check(number) and None)


for one in ANSWERS:
    if one not in (7, 10, 11):
        add_lesson(one)


class Refusals(Case):
    def test_without_a_terminal_it_wants_a_prediction(self):
        self.refused(2, "--predict", "lesson", 7)

    def test_answers_that_are_none(self):
        for number, value, text in ((7, "three", "a number of times"), (7, "3 km", "a number of times"),
                                    (7, "nan", "a number of times"), (7, "0x3", "a number of times"),
                                    (7, "-3", "a number of times from 0 on"), (7, "1e999", "a number of times"),
                                    (11, "-0", "a number of percent from 0 on"), (8, "perhaps", "yes or no"),
                                    (6, "ring,tree", "each of classic, ring, tree once"),
                                    (6, "ring,ring,tree", "once"), (6, "ring,tree,star", "once"),
                                    (7, "1" * 300, "at most 255 bytes")):
            self.refused(2, text, "lesson", number, "--predict", value)
        self.refused(2, "a number of times", "lesson", 7, "--predict", 3, "--answer", "x")

    def test_what_is_no_lesson(self):
        for word in ("0", "14", "-1", "steps", ""):
            self.refused(2, "", "lesson", "--predict", 1, "--", word)
        self.refused(2, "one lesson at a time", "lesson", 7, 8)
        self.refused(2, "say which lesson", "lesson", "--predict", 1)
        self.refused(2, "--name is for", "lesson", 7, "--predict", 1, "--name", "Ada")

    def test_files_of_answers(self):
        self.refused(66, "missing.json", "lesson", 7, "--answers", "missing.json")
        self.refused(65, "line 1", "lesson", 7, "--answers", self.write("bad.json", "{"))
        self.refused(65, "no text, number", "lesson", 7, "--answers", self.write("list.json", {"7": {"predict": {}}}))

    def test_a_command_that_fails_leaves_the_results_alone(self):
        self.said("lesson", 7, "--predict", 3, "--results", "r.json", "--name", "Ada")
        before = (self.folder / "r.json").read_bytes()
        env = dict(os.environ, TMPDIR="/nowhere")
        self.refused(74, "cannot create the folder", "lesson", 7, "--predict", 3, "--results", "r.json", env=env)
        self.assertEqual((self.folder / "r.json").read_bytes(), before)

    def test_a_command_that_fails_is_named_with_what_it_said(self):
        limited = f"ulimit -v 200000; {shlex.quote(str(YOKE))}"
        options = {"capture_output": True, "text": True, "timeout": LIMIT_S, "stdin": subprocess.DEVNULL, "check": False}
        if subprocess.run(["bash", "-c", f"{limited} version"], **options).returncode:
            self.skipTest("the tool does not start in 200 MB of addresses here")
        done = subprocess.run(["bash", "-c", f"{limited} lesson 8 --predict yes"], **options)
        self.assertEqual((done.returncode, done.stdout), (71, ""), done.stderr)
        self.assertIn("out of memory", done.stderr)
        self.assertIn("the lesson's command ended with exit code 71: yoke train", done.stderr)


class Results(Case):
    def test_a_closed_output_is_no_other_file(self):
        for words in (["lesson", "10", "--predict", "1"], ["lesson", "--json"]):
            done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", YOKE, *words], capture_output=True, text=True, check=False,
                                  timeout=LIMIT_S)
            self.assertEqual(done.returncode, 74, done.stderr)
            self.assertIn("cannot write the result to standard output", done.stderr)

    def add(self, number, value, name=None, file="r.json"):
        named = ["--name", name] if name is not None else []
        return self.run_ok("lesson", number, "--predict", value, "--results", file, *named)

    def test_it_grows_by_an_entry_for_each_run(self):
        self.add(7, 2, "Ada")
        self.add(7, 3)
        told = json.loads((self.folder / "r.json").read_text())
        self.assertEqual((told["yoke_lessons"], told["student"], len(told["entries"])), (1, "Ada", 2))
        entry = told["entries"][0]
        self.assertEqual(entry["yoke"], yoke("version").stdout.split()[1])
        self.assertEqual(entry["cores"], os.cpu_count())
        self.assertRegex(entry["date"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(sorted(os.listdir(self.folder)), ["r.json"])

    def test_files_that_cannot_take_it_stay_as_they_are(self):
        self.add(7, 2, "Ada")
        for name, content in (("other.json", {"a": 1}), ("list.json", []), ("cut.json", '{"yoke_lessons":1'),
                              ("entry.json", {"yoke_lessons": 1, "student": "A", "entries": [{"lesson": 99}]}),
                              ("new.json", {"yoke_lessons": 2, "student": "A", "entries": []})):
            self.write(name, content)
            before = (self.folder / name).read_bytes()
            self.refused(65, name, "lesson", 7, "--predict", 3, "--results", name)
            self.assertEqual((self.folder / name).read_bytes(), before)
        self.refused(2, "of Ada, not of Bob", "lesson", 7, "--predict", 3, "--results", "r.json", "--name", "Bob")
        self.refused(2, "--name", "lesson", 7, "--predict", 3, "--results", "fresh.json")
        self.refused(2, "UTF-8", "lesson", 7, "--predict", 3, "--results", "fresh.json", "--name", "x" * 201)
        self.refused(74, "nowhere", "lesson", 7, "--predict", 3, "--results", "nowhere/r.json", "--name", "A")
        os.mkfifo(self.folder / "pipe")
        self.assertNotEqual(yoke("lesson", 7, "--predict", 3, "--results", "pipe", "--name", "A",
                                 folder=self.folder).returncode, 0)
        self.assertFalse((self.folder / "fresh.json").exists())

    def test_a_table_of_several_students_in_which_the_first_answer_counts(self):
        self.add(7, 2, "Ada")
        self.add(7, 3)
        self.add(7, 3, "Bob", "bob.json")
        table = self.run_ok("lesson", "--collect", "r.json", "bob.json").stdout.splitlines()
        marks = {line.split()[0]: line.split()[7] for line in table[1:3]}
        self.assertEqual(marks, {"Ada": "-.", "Bob": "+."})
        self.assertRegex("\n".join(table), r" 7\. Unequal devices +predictions +1 of +2 right, exercises +0 of +0")
        told = self.said("lesson", "--collect", "r.json", "bob.json")["students"]
        self.assertEqual([(x["student"], x["file"], x["lessons"][0]["attempts"], x["lessons"][0]["prediction"]["right"])
                          for x in told], [("Ada", "r.json", 2, False), ("Bob", "bob.json", 1, True)])
        self.refused(66, "missing.json", "lesson", "--collect", "r.json", "missing.json")
        self.refused(2, "--collect takes", "lesson", "--collect")

    def test_a_run_waits_for_another_that_adds_to_the_file(self):
        self.add(7, 2, "Ada")
        folder = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        with subprocess.Popen([YOKE, "lesson", "7", "--predict", "3", "--results", "r.json"], cwd=self.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
            time.sleep(3)
            self.assertEqual(len(json.loads((self.folder / "r.json").read_text())["entries"]), 1)
            fcntl.flock(folder, fcntl.LOCK_UN)
            self.assertEqual(running.wait(LIMIT_S), 0)
        self.assertEqual(len(json.loads((self.folder / "r.json").read_text())["entries"]), 2)

    def test_long_names_and_times_that_cannot_be(self):
        entry = {"lesson": 0, "prediction": None, "exercise": {"kind": "exchange", "right": True, "off": 1}}
        self.write("long.json", {"yoke_lessons": 1, "student": 200 * "x", "entries": [entry]})
        line = self.run_ok("lesson", "--collect", "long.json").stdout.splitlines()[1]
        self.assertRegex(line, r"^x{30,45}\.\.\. .*1\.00 x$")
        self.write("longer.json", {"yoke_lessons": 1, "student": 201 * "x", "entries": []})
        self.refused(65, "no results", "lesson", "--collect", "longer.json")
        for off in (-1, 1e300):
            entry["exercise"]["off"] = off
            self.write("off.json", {"yoke_lessons": 1, "student": "x", "entries": [entry]})
            self.refused(65, "entry 0", "lesson", "--collect", "off.json")

    def test_hostile_names_show_as_text(self):
        name = "</script>\"'\x1b[31m\u202eevil\u2028\t<b>"
        self.write("h.json", {"yoke_lessons": 1, "student": name, "entries": []})
        line = self.run_ok("lesson", "--collect", "h.json").stdout.splitlines()[1]
        self.assertTrue(line.startswith("</script>\"'\\x1b[31m\\u202Eevil\\u2028\\x09<b>"), line)
        self.assertEqual(self.said("lesson", "--collect", "h.json")["students"][0]["student"], name)
        self.add(7, 3, name, "i.json")
        self.assertEqual(json.loads((self.folder / "i.json").read_text())["student"], name)


class Exchange(Case):
    """Exchanges that students wrote: right ones, slow ones and wrong ones."""

    def build(self, name, *options):
        made = self.folder / f"{name}-{'-'.join(options)}.so"
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", *options, "-I", ROOT / "include", "-o", made,
                        EXCHANGES / f"{name}.c"], check=True)
        return made

    def grade(self, file, code, *arguments):
        done = yoke("lesson", "exchange", file, "--json", *arguments, folder=self.folder)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_the_ring_is_right_and_as_fast_as_the_formula(self):
        told = self.grade(EXCHANGES / "ring.c", 0)
        part_ms = 0.02 + 4 * 272474 / 4 / 0.3e6
        self.assertAlmostEqual(told["own_ms"], 6 * part_ms, delta=0.002)
        self.assertAlmostEqual(told["ring_ms"], 6 * part_ms, delta=0.002)
        self.assertAlmostEqual(told["sent"], 1)
        self.assertGreater(told["cases"], 40)

    def test_the_root_takes_as_long_as_copies_one_after_the_other_and_half_of_it_in_bfloat16(self):
        copy_ms = 4 * 272474 / 0.3e6
        told = self.grade(EXCHANGES / "root.c", 0)
        self.assertAlmostEqual(told["own_ms"], 2 * (0.02 + 3 * copy_ms), delta=0.002)
        self.assertAlmostEqual(told["own_ms"], told["root_ms"], delta=0.002)
        self.assertAlmostEqual(told["chain_ms"], 2 * (3 * 0.02 + copy_ms), delta=0.002)
        narrow = self.grade(self.build("root", "-DHALF"), 0)
        self.assertAlmostEqual(narrow["own_ms"], 2 * (0.02 + 3 * copy_ms / 2), delta=0.002)

    def test_the_template_compiles_and_is_wrong(self):
        told = self.grade(ROOT / "docs/course/exchange.c", 1)
        self.assertIn("device 0's sums differ from element 0 on", told["wrong"])

    def test_what_a_wrong_one_does_is_named(self):
        said = {"FORGETS": "device 0's sums differ", "CRASHES": "it uses memory at 0x8",
                "BEHIND": "uses an element 1 behind the end of device 1's gradients",
                "BEFORE": "uses an element 2 before the begin of device 1's inbox",
                "PEEKS": "reads another device's gradients without a send", "NOBODY": "send from device 0 to device 2",
                "FAILS": "returns YOKE_ERROR_PEER", "SAYS": "no route to device 1", "ABORTS": "SIGABRT",
                "EXITS": "it ends the process", "WRITES": "SIGXFSZ", "LOADS": "loaded: it ends the process",
                "TRAINS": "in training: it ends the process"}
        if os.uname().machine == "x86_64":
            said["DIVIDES"] = "SIGFPE"
        for name, text in said.items():
            with self.subTest(name):
                self.assertIn(text, self.grade(self.build("wrong", f"-DWRONG={name}"), 1)["wrong"])

    def test_one_in_python_is_graded_alike(self):
        told = self.grade(EXCHANGES / "ring.py", 0)
        self.assertAlmostEqual(told["own_ms"], told["ring_ms"], delta=0.002)
        self.assertIn("sums differ", self.grade(ROOT / "docs/course/exchange.py", 1)["wrong"])

    def test_what_goes_wrong_in_python_is_named_with_its_line(self):
        body = {"raises.py": ("raise KeyError('x')", "KeyError: 'x', in line 2"),
                "behind.py": ("bucket.gradients[1][bucket.count] = 1", "IndexError"),
                "nobody.py": ("bucket.send(0, bucket.devices, 0, 1)", "send from device 0 to device 2"),
                "much.py": ("bucket.send(0, 1, 0, bucket.count + 1)", "bucket 0 has 1"),
                "negative.py": ("bucket.send(0, 1, -1, 1)", "bucket 0 has 1"),
                "exits.py": ("import os; os._exit(0)", "Python has ended")}
        for name, (line, text) in body.items():
            with self.subTest(name):
                self.write(name, f"def all_reduce(bucket):\n    {line}\n")
                self.assertIn(text, self.grade(name, 1)["wrong"])
        self.refused(65, "no function all_reduce", "lesson", "exchange", self.write("none.py", "a = 1"))
        self.refused(65, "in line 2", "lesson", "exchange", self.write("bad.py", "a = 1\nb = (\n"))
        self.refused(65, "null bytes", "lesson", "exchange", self.write("zero.py", "a = 1\0\n"))
        self.write("late.py", "import os, threading\ndef all_reduce(bucket):\n    raise SystemExit\n")
        self.assertIn("SystemExit", self.grade("late.py", 1)["wrong"])
        self.refused(66, "no python3", "lesson", "exchange", EXCHANGES / "ring.py", env=dict(os.environ, PATH="/nowhere"))

    def test_one_without_an_end_has_a_deadline(self):
        self.assertIn("no end within 20 s", self.grade(self.build("wrong", "-DWRONG=RESISTS"), 1)["wrong"])

    def test_what_it_prints_is_no_part_of_the_grade(self):
        self.assertTrue(self.grade(self.build("wrong", "-DWRONG=PRINTS"), 0)["right"])

    def processes(self, word):
        told = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        return [line for line in told.splitlines() if word in line and "ps -eo" not in line]

    def test_what_it_starts_ends_with_it(self):
        made = self.build("wrong", "-DWRONG=LEAVES")
        self.assertIn("PEER", self.grade(made, 1)["wrong"])
        self.assertEqual(self.processes(str(made)), [])
        self.write("leaves.py", "import subprocess\nsubprocess.Popen(['sleep', '98765'], start_new_session=True)\n"
                                "def all_reduce(bucket):\n    raise ValueError('\\udcff\\x1b' + 600 * 'é')\n")
        self.assertIn("ValueError: \\udcff", self.grade("leaves.py", 1)["wrong"])
        self.assertEqual(self.processes("sleep 98765"), [])

    def test_a_signal_leaves_no_process_and_no_folder(self):
        for made in (self.build("wrong", "-DWRONG=RESISTS"), self.write("loop.py", "while True: pass")):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                place = self.folder / "place"
                place.mkdir()
                with subprocess.Popen([YOKE, "lesson", "exchange", made], cwd=self.folder, stdin=subprocess.DEVNULL,
                                      env=dict(os.environ, TMPDIR=str(place))) as running:
                    time.sleep(0.5)
                    self.assertEqual(len(list(place.iterdir())), 1)
                    running.send_signal(number)
                    self.assertEqual(running.wait(), -number)
                self.wait_until(lambda: list(place.iterdir()) == [] and self.processes(str(made)) == [])  # pylint: disable=cell-var-from-loop
                place.rmdir()

    def wait_until(self, done):
        end = time.monotonic() + 30
        while not done():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_files_that_are_no_exchange(self):
        self.refused(66, "missing.c", "lesson", "exchange", "missing.c")
        self.refused(2, "*.c", "lesson", "exchange", self.write("x.txt", ""))
        self.refused(65, "bad.c does not compile", "lesson", "exchange", self.write("bad.c", "int"))
        self.refused(65, "no function all_reduce", "lesson", "exchange", self.write("none.c", "int a;"))
        self.refused(65, "no.so", "lesson", "exchange", self.write("no.so", "text"))
        self.refused(2, "exchange takes one FILE", "lesson", "exchange")
        self.refused(2, "exchange takes one FILE", "lesson", "exchange", "a.c", "--predict", 1)
        env = dict(os.environ, CC="nowhere-cc")
        self.refused(66, "no C compiler", "lesson", "exchange", EXCHANGES / "ring.c", env=env)

    def test_the_best_one_counts_for_a_teacher(self):
        for file, code in ((ROOT / "docs/course/exchange.c", 1), (EXCHANGES / "root.c", 0), (EXCHANGES / "ring.c", 0),
                           (EXCHANGES / "root.c", 0)):
            self.grade(file, code, "--results", "r.json", "--name", "Ada")
        self.assertRegex(self.run_ok("lesson", "--collect", "r.json").stdout, r"Ada .* 1\.00 x\n")
        told = self.said("lesson", "--collect", "r.json")["students"][0]["lessons"][-1]
        self.assertEqual((told["name"], told["attempts"], told["exercise"]["right"]), ("exchange", 4, True))
        self.assertAlmostEqual(told["exercise"]["off"], 1, delta=0.001)

    def test_verify_compares_it_with_the_built_in_one_and_with_float64(self):
        small = ["--devices", "3xcpu", "--threads", "1", "--model", "mlp:width=32", "--dataset", "synthetic:1x8x8",
                 "--steps", "2", "--json", "--quiet"]
        told = json.loads(self.run_ok("verify", *small, "--exchange", EXCHANGES / "ring.c").stdout)
        own = [pair for pair in told["pairs"] if pair["mode"].startswith("own")]
        self.assertEqual(len(own), 2, told["pairs"])
        wrong = yoke("verify", *small, "--exchange", ROOT / "docs/course/exchange.c", folder=self.folder)
        self.assertEqual(wrong.returncode, 1)
        self.refused(2, "with shards", "verify", *small, "--shards", 4, "--exchange", EXCHANGES / "ring.c")
        self.refused(66, "missing.c", "verify", *small, "--exchange", "missing.c")


class Terminal(Case):
    def talk(self, lines, *arguments):
        """(exit code, all that the terminal showed) of a student who types these lines."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execv(YOKE, [str(YOKE), *map(str, arguments)])
        shown = b""
        for line in lines:
            while not shown.endswith(b"> "):
                shown += os.read(terminal, 4096)
            os.write(terminal, line.encode() + b"\n")
            shown += b"\n"
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()

    def test_it_asks_first_runs_and_asks_for_the_exercise(self):
        code, shown = self.talk(["much", "3", "1.5"], "lesson", 7, "--results", "r.json", "--name", "Ada")
        self.assertEqual(code, 0, shown)
        places = [shown.index(text) for text in (
            "Lesson 7. Unequal devices", "Predict first.", "'much' is no answer", "$ yoke simulate", "came out",
            "Everybody waits", "Exercise.", "Both are done")]
        self.assertEqual(places, sorted(places))
        entry = json.loads((self.folder / "r.json").read_text())["entries"][0]
        self.assertTrue(entry["prediction"]["right"] and entry["exercise"]["right"])

    def test_a_line_that_is_too_long_is_no_answer(self):
        code, shown = self.talk(["1" * 3000, "2 x", "1" * 255 + " times", "1.5"], "lesson", 7)
        self.assertEqual(code, 0, shown)
        self.assertEqual(shown.count("an answer has at most 255 bytes"), 2)
        self.assertIn("2 x", shown)

    def test_a_share_of_more_than_a_step_is_explained(self):
        ended = self.run_ok("train", "--devices", "cpu", "--threads", 1, "--steps", 12, "--batch", 256, "--model", "mlp:width=8",
                            "--augment", "crop-flip-cutout", "--color-jitter", "0.4,0.4,0.4,0.1", "--loader-threads", 1,
                            "--dataset", "synthetic:3x32x32", "--evaluate-every", -1, "--no-cache")
        self.assertRegex(ended.stdout, r"load +[\d.]+ ms +\d{3,}")
        self.assertIn("load: the wait for a batch, before the step and not a part of it", ended.stdout)

    def test_a_student_who_gives_up(self):
        code, shown = self.talk(["much", "more", "many"], "lesson", 7)
        self.assertEqual(code, 2)
        self.assertIn("no answer in 3 attempts", shown)
        code, shown = self.talk(["3", "\x04"], "lesson", 7)
        self.assertEqual(code, 0, shown)


if __name__ == "__main__":
    unittest.main(verbosity=2)
