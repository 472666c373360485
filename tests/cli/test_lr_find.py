#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke train --lr-find: what it prints, the page that it writes, what it refuses, and that it keeps nothing.

usage: test_lr_find.py YOKE [unittest arguments]
"""
import json
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import time
import unittest

from page_case import LIMIT_S, YOKE, check_self_contained, model, parse, yoke

RUN = ["--model", "mlp", "--dataset", "synthetic:1x8x8,classes=3,rows=60", "--batch", "60", "--threads", "1", "--algorithm",
       "direct"]
ELSEWHERE = pathlib.Path(YOKE).resolve()


class Case(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.page = self.folder / "page.html"

    def find(self, *arguments, code=0, tool=(), run=RUN):
        result = subprocess.run([ELSEWHERE, *map(str, [*tool, "train", *run, *arguments])], capture_output=True, text=True,
                                timeout=LIMIT_S, check=False, cwd=self.folder)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def json(self, *arguments, **more):
        return json.loads(self.find("--json", "--quiet", *arguments, **more).stdout)


class Words(Case):
    def test_a_table_a_curve_and_the_suggestion(self):
        result = self.find("--lr-find", "--devices", "2xcpu")
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0].split(), ["rate", "loss", "smoothed"])
        rows = [line for line in lines[1:] if re.match(r"\d", line)]
        self.assertTrue(8 <= len(rows) <= 20, rows)
        marked, = [line for line in rows if line.endswith("<- suggestion")]
        suggestion, = re.findall(r"^suggestion (\S+), where the smoothed loss falls fastest$", result.stdout, re.M)
        self.assertEqual(marked.split()[0], suggestion)
        self.assertTrue(0.001 < float(suggestion) < 1)
        self.assertIn("smoothed loss against the logarithm of the rate; o: the suggestion", result.stdout)
        curve = lines[lines.index("smoothed loss against the logarithm of the rate; o: the suggestion") + 1:][:8]
        self.assertEqual(sum(line.count("o") for line in curve), 1)

    def test_the_next_commands_work_as_printed(self):
        result = self.find("--report", self.page, "--lr-find", "60", "--seed", "3")
        commands = [shlex.split(line) for line in result.stderr[result.stderr.index("Next:"):].splitlines()
                    if line.startswith("    ")]
        self.assertTrue(1 <= len(commands) <= 2)
        for words in commands:
            self.assertEqual(words[1:-2], ["train", *RUN, "--seed", "3"])
            self.assertEqual(words[-2], "--lr")
        done = subprocess.run([*commands[-1], "--epochs", "1", "--quiet"], capture_output=True, text=True, timeout=LIMIT_S,
                              check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_json_has_all_points_and_the_suggestion(self):
        result = self.json("--lr-find", "40", "--devices", "cpu")
        points = result["points"]
        self.assertEqual(len(points), result["steps"])
        self.assertAlmostEqual(points[0]["lr"], 1e-7, delta=1e-15)
        factor = (10 / 1e-7) ** (1 / 39)
        value = 0
        for i, point in enumerate(points):
            self.assertAlmostEqual(point["lr"], 1e-7 * factor ** i, delta=1e-9 * point["lr"])
            value = 0.98 * value + 0.02 * point["loss"]
            self.assertAlmostEqual(point["smoothed"], value / (1 - 0.98 ** (i + 1)), delta=1e-9 * point["smoothed"])
        self.assertIn(result["suggestion"], [point["lr"] for point in points])
        self.assertLessEqual(result["cautious"], result["suggestion"])
        self.assertEqual((result["mode"], result["devices"], result["batch"]), ("dp", 1, 60))

    def test_quiet_prints_the_suggestion_alone(self):
        result = self.find("--lr-find", "--quiet")
        self.assertEqual(result.stderr, "")
        self.assertRegex(result.stdout, r"\Asuggestion \S+, where .*\n(cautious   .*\n)?\Z")

    def test_ranks_suggest_what_devices_do_and_speak_once(self):
        one = self.json("--lr-find", "--devices", "2xcpu")
        two = self.json("--lr-find", "--mode", "ddp", tool=["launch", "--nproc-per-node", "2", "--"])
        self.assertEqual(one["points"], two["points"])
        self.assertEqual(one["suggestion"], two["suggestion"])
        self.assertEqual((two["mode"], two["devices"]), ("ddp", 2))

    def test_it_keeps_nothing_also_of_what_a_recipe_or_a_file_says(self):
        options = {"save": "weights.safetensors", "checkpoint-dir": "saves", "resume": "auto", "epochs": 7, "lr": 0.3,
                   "lr-schedule": "plateau", "metrics": "metrics", "trace": "trace.json", "patience": 2, "min-delta": 0.1,
                   "ema": 0.9, "keep-best": True, "evaluate-every": 1}
        (self.folder / "run.json").write_text(json.dumps(options))
        result = self.json("--config", "run.json", "--lr-find", "40")
        plain = self.json("--lr-find", "40")
        self.assertEqual(result["points"], plain["points"])
        self.assertEqual([path.name for path in self.folder.iterdir()], ["run.json"])

    def test_frozen_layers_and_first_weights_count(self):
        weights = self.folder / "weights"
        self.find("--steps", "30", "--lr", "0.02", "--save", weights, "--quiet")
        begun = self.json("--lr-find", "20", "--init", weights, "--freeze", "fc1.*")
        new = self.json("--lr-find", "20")
        self.assertLess(begun["points"][0]["loss"], new["points"][0]["loss"] - 0.05)


class Refusals(Case):
    def test_what_contradicts_the_test_is_refused_with_its_reason(self):
        for option, reason in [(["--lr", "0.1"], "sets the rate"), (["--lr-schedule", "cosine"], "sets the rate"),
                               (["--warmup_steps", "3"], "sets the rate"), (["--epochs", "3"], "--lr-find N says"),
                               (["--steps=5"], "--lr-find N says"), (["--save", "w"], "keeps nothing"),
                               (["--checkpoint-dir", "d"], "keeps nothing"), (["--resume", "auto"], "begins with --init"),
                               (["--trace", "t"], "keeps nothing"), (["--metrics", "m"], "keeps nothing"),
                               (["--patience", "2"], "evaluates nothing"), (["--evaluate-every", "0"], "evaluates nothing"),
                               (["--ema", "0.9"], "keeps nothing"), (["--print-config"], "no option of a run")]:
            with self.subTest(option=option):
                result = self.find("--lr-find", "50", *option, code=2)
                name = option[0].partition("=")[0].replace("_", "-")
                self.assertIn(f"--lr-find does not go with {name}: ", result.stderr)
                self.assertIn(reason, result.stderr)
                self.assertEqual(result.stdout, "")

    def test_bad_numbers_of_steps_are_refused(self):
        for steps in ["19", "0", "-5", "1.5", "many", "10000000"]:
            with self.subTest(steps=steps):
                self.assertIn(f"'{steps}' is not a whole number from 20 to 1000000",
                              self.find(f"--lr-find={steps}", code=2).stderr)
        self.assertIn("--lr-find needs a value", self.find("--lr-find=", code=2).stderr)

    def test_a_file_of_options_is_no_place_for_it(self):
        (self.folder / "run.json").write_text('{"lr-find": 50}')
        for option in [], ["--lr-find", "20"]:  # the next command would name the file, too
            self.assertIn("run.json: 'lr-find' is for the command line alone",
                          self.find("--config", "run.json", *option, code=2).stderr)

    def test_rates_without_effect_are_no_failure_and_say_why(self):
        result = self.json("--lr-find", "20", "--group", "*:lr=1e-12")
        self.assertIsNone(result["suggestion"])
        self.assertIsNone(result["cautious"])
        self.assertIn("never falls", result["text"])
        said = self.find("--lr-find", "20", "--group", "*:lr=1e-12")
        self.assertIn("no suggestion: between rates of ", said.stdout)
        self.assertNotIn("Next:", said.stderr)

    def test_a_loss_that_is_no_number_at_once_fails(self):
        rows = "\n".join(f"{'nan' if i % 2 else '1'},{i % 2}" for i in range(60))
        (self.folder / "rows.csv").write_text(f"a,label\n{rows}\n".replace("nan", "3e38"))
        weights = self.folder / "weights"
        data = ["--model", "mlp", "--dataset", "csv:rows.csv,label=label", "--batch", "48", "--algorithm", "direct"]
        self.find("--steps", "1", "--lr", "1e30", "--evaluate-every", "-1", "--save", weights, "--quiet", run=data)
        result = self.find("--lr-find", "--init", weights, code=1, run=data)
        self.assertIn("not finite", result.stderr)
        self.assertEqual(result.stdout, "")


class Signals(Case):
    def test_ctrl_c_ends_the_test_and_prints_its_points(self):
        process = subprocess.Popen([ELSEWHERE, "train", *RUN, "--lr-find", "1000000", "--log-every", "1", "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if "step 3/" in line:
                break
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, stderr)
        result = json.loads(stdout)
        self.assertGreaterEqual(result["steps"], 3)
        self.assertIsNone(result["suggestion"])
        self.assertIn("stopped", result["text"])


class Page(Case):
    def setUp(self):
        super().setUp()
        self.result = self.json("--lr-find", "--report", self.page)
        self.text = self.page.read_text()
        self.figure, = [element for element in parse(self.text).iter("section") if element.get("id") == "rates"]

    def test_the_page_is_self_contained(self):
        ids = [element.get("id") for element in parse(self.text).iter() if element.get("id")]
        self.assertEqual(sorted(ids), sorted(set(ids)))
        check_self_contained(self, self.text)

    def test_table_and_model_have_every_point_and_the_suggestion(self):
        rows = [[cell.text for cell in row] for row in self.figure.find(".//table").find("tbody")]
        rates = model(self.text)["rates"]
        self.assertEqual(len(rows), self.result["steps"])
        self.assertEqual({len(rates[key]) for key in ("rates", "losses", "smoothed")}, {len(rows)})
        drawn = zip(rates["rates"], rates["losses"], rates["smoothed"])
        for row, point, values in zip(rows, self.result["points"], drawn):
            for cell, value, wanted in zip(row, values, [point["lr"], point["loss"], point["smoothed"]]):
                self.assertAlmostEqual(float(cell), wanted, delta=0.006 * wanted)
                self.assertAlmostEqual(value / wanted, 1, places=5)
        marked, = [row for row in rows if row[3]]
        self.assertAlmostEqual(float(marked[0]), self.result["suggestion"], delta=0.006 * self.result["suggestion"])
        self.assertAlmostEqual(rates["rates"][rates["suggested"]] / self.result["suggestion"], 1, places=5)
        self.assertRegex(model(self.text)["title"], r"^The smoothed loss falls fastest at a learning rate of [\d.e-]+$")

    def test_the_facts_are_those_of_a_test(self):
        terms = parse(self.text).find(".//dl")
        facts = dict(zip([term.text for term in terms.findall("dt")], [value.text for value in terms.findall("dd")]))
        self.assertEqual(facts["steps"], f"{self.result['steps']} of 100")
        self.assertEqual(facts["optimizer"], "sgd, momentum 0.9, weight decay 0.0005")
        self.assertNotIn("weights hash", facts)
        self.assertIn("a range test", self.text)


if __name__ == "__main__":
    unittest.main()
