#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What yoke train tells before, during and after a run, and the options that a file or a name stands for.

usage: test_habits.py YOKE [unittest arguments]
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
SMALL = ["--model", "mlp", "--dataset", "synthetic:1x8x8,classes=3,rows=60", "--batch", "20", "--threads", "1",
         "--devices", "2xcpu", "--algorithm", "direct"]
LIMIT_S = 900


def yoke(*arguments):
    return subprocess.run([YOKE, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False)


class Case(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_ok(self, *arguments):
        result = yoke(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def fails(self, code, words, *arguments):
        result = yoke(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def train(self, *arguments):
        return json.loads(self.run_ok("train", *SMALL, "--json", *arguments).stdout.splitlines()[-1])


class Habits(Case):
    def test_a_table_has_a_row_for_each_epoch(self):
        run = ["train", *SMALL, "--epochs", "3", "--lr-schedule", "cosine"]
        metrics = self.folder / "m.jsonl"
        said = self.run_ok(*run, "--evaluate-every", "2", "--metrics", metrics).stderr
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        self.assertIn("           train loss  accuracy  test loss  accuracy        lr   img/s\n", said)
        rows = [line.split() for line in said.splitlines() if re.match(r"epoch \d ", line)]
        self.assertEqual([row[1] for row in rows], ["1", "2", "3"])
        for epoch, row in enumerate(rows, 1):
            steps = [line for line in lines if line["epoch"] == epoch and "train_loss" in line]
            tests = [line for line in lines if line["epoch"] == epoch and "test_loss" in line]
            mean = sum(line["train_loss"] * line["rows"] for line in steps) / sum(line["rows"] for line in steps)
            self.assertAlmostEqual(float(row[2]), mean, delta=1e-4)
            self.assertEqual(row[5:7] == ["-", "-"], epoch == 1)
            if tests:
                self.assertAlmostEqual(float(row[5]), tests[0]["test_loss"], delta=1e-4)
            self.assertEqual(float(row[-2]), float(f"{steps[-1]['lr']:.3g}"))
        self.assertNotIn("test loss", self.run_ok(*run, "--evaluate-every", "-1").stderr)

    def test_every_epoch_is_evaluated_and_a_number_of_steps_once(self):
        for length, evaluations in [(["--epochs", "3"], 3), (["--steps", "9"], 1),
                                    (["--epochs", "3", "--evaluate-every", "0"], 1)]:
            metrics = self.folder / f"{evaluations}{length[0]}.jsonl"
            self.run_ok("train", *SMALL, *length, "--metrics", metrics)
            self.assertEqual(metrics.read_text().count("test_loss"), evaluations, length)

    def test_the_plan_names_rows_classes_and_normalisation(self):
        said = self.run_ok("train", *SMALL, "--steps", "1").stderr
        self.assertRegex(said, r"\ndata     synthetic\S*: 60 rows to train on, 12 to test, \d+ classes\n"
                               r" +\d+x\d+x\d+, normalised by mean [\d. ]+, std [\d. ]+\n")

    def test_the_plan_says_that_columns_are_normalised(self):
        table = self.folder / "t.csv"
        table.write_text("x,y,kind\n" + "".join(f"{1000 + i},{i},{'ab'[i % 2]}\n" for i in range(40)))
        said = self.run_ok("train", "--model", "mlp:width=8", "--dataset", f"csv:{table},label=kind", "--batch", "20",
                           "--devices", "cpu", "--threads", "1", "--algorithm", "direct", "--steps", "1").stderr
        self.assertIn("         2x1x1, each column normalised by its mean and std\n", said)

    def test_weights_are_not_overwritten_without_force(self):
        save = self.folder / "w.safetensors"
        self.train("--steps", "1", "--save", save)
        before = save.read_bytes()
        self.fails(2, [str(save), "exists", "--force"], "train", *SMALL, "--steps", "2", "--save", save)
        self.assertEqual(save.read_bytes(), before)
        self.fails(2, ["--force"], "train", *SMALL, "--save", save, "--checkpoint-dir", self.folder / "saves",
                   "--resume", "auto")  # nothing to go on from: this would be a new run
        self.train("--steps", "2", "--save", save, "--force", "--checkpoint-dir", self.folder / "saves")
        self.assertNotEqual(save.read_bytes(), before)
        resumed = self.train("--steps", "3", "--save", save, "--checkpoint-dir", self.folder / "saves", "--resume",
                             "auto")
        self.assertEqual(resumed["steps"], 3)

    def test_weights_do_not_go_to_a_device_or_a_pipe(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for place, kind in [("/dev/null", "device"), (pipe, "pipe")]:
            self.fails(2, [str(place), f"is a {kind}"], "train", *SMALL, "--steps", "5", "--save", place)


class Options(Case):
    def options(self, *arguments):
        return json.loads(self.run_ok("train", *arguments, "--print-config").stdout)

    def test_every_rank_sees_that_a_file_would_be_overwritten(self):
        save = self.folder / "kept.safetensors"
        save.write_text("older weights")
        for rank, words in (("0", "--force"), ("1", "")):  # neither waits for the other
            variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
                         "MASTER_PORT": "1"}
            result = subprocess.run([YOKE, "train", "--mode", "ddp", "--devices", "2xcpu", "--save", save],
                                    env={**os.environ, **variables}, capture_output=True, text=True, timeout=LIMIT_S,
                                    check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(words in result.stderr, True)
            self.assertEqual(result.stderr == "", rank == "1")

    def test_a_printed_config_starts_the_same_run(self):
        run = [*SMALL, "--steps", "4", "--lr", "0.07", "--nesterov", "--lr-schedule", "cosine", "--seed", "3"]
        config = self.folder / "run.json"
        config.write_text(self.run_ok("train", *run, "--print-config").stdout)
        self.assertEqual(self.options(*run), {
            "model": "mlp", "dataset": SMALL[3], "devices": "2xcpu", "threads": 1, "batch": 20, "steps": 4, "lr": 0.07,
            "nesterov": True, "lr-schedule": "cosine", "seed": 3, "algorithm": "direct"})
        self.assertEqual(self.options("--config", config), self.options(*run))
        hashes = [json.loads(self.run_ok("train", *words, "--json").stdout)["weights_hash"]
                  for words in [run, ["--config", config]]]
        self.assertEqual(hashes[0], hashes[1])

    def test_a_printed_config_keeps_the_largest_seed(self):
        config = self.folder / "run.json"
        config.write_text(self.run_ok("train", "--seed", 2**64 - 1, "--print-config").stdout)
        self.assertEqual(self.options("--config", config), {"seed": str(2**64 - 1)})

    def test_the_command_wins_over_the_file_and_the_file_over_the_recipe(self):
        config = self.folder / "run.json"
        config.write_text('{"recipe": "cifar10", "lr": 0.2, "warmup_steps": 5, "lr-schedule": "cosine", "epochs": 7}')
        said = self.options("--config", config, "--epochs", "9")
        self.assertEqual((said["model"], said["lr"], said["epochs"], said["warmup-steps"]),
                         ("resnet18-cifar", 0.2, 9, 5))
        config.write_text('{"nesterov": false, "recipe": "cifar10"}')
        self.assertNotIn("nesterov", self.options("--config", config))

    def test_a_recipe_prints_what_it_stands_for(self):
        result = self.run_ok("train", "--recipe", "cifar10", *SMALL, "--epochs", "1", "--augment", "none", "--steps",
                             "1")
        line = next(line for line in result.stderr.splitlines() if line.startswith("recipe "))
        self.assertIn("cifar10: --dataset cifar10:data/cifar-10-batches-bin --model resnet18-cifar --epochs 30", line)
        words = line.split(": ", 1)[1].split()
        self.assertEqual(self.options(*words), self.options("--recipe", "cifar10"))
        self.fails(2, ["'cifar1'", "did you mean 'cifar10'"], "train", "--recipe", "cifar1")
        tuning = ["train", "--recipe", "imagefolder-finetune"]
        self.fails(2, ["imagefolder-finetune needs --dataset"], *tuning, "--init", "x")
        self.fails(2, ["imagefolder-finetune needs --init"], *tuning, "--dataset", "images:x")

    def test_the_record_of_cifar10_is_a_recipe_and_each_option_of_it_gives_way(self):
        short = ["train", "--recipe", "cifar10-94", "--dataset", "synthetic:3x32x32,rows=40", "--batch", "20",
                 "--devices", "2xcpu", "--threads", "1", "--algorithm", "direct"]
        result = self.run_ok(*short, "--model", "airbench94:width=2", "--epochs", "2")
        self.assertIn("learning rate x 441.667, weight decay 3.77358e-05, momentum 0.85, for 75 steps", result.stderr)
        self.assertIn("whiten.weight,*norm?.weight: 7 tensors", result.stderr)
        self.run_ok(*short, "--model", "layers:conv=4,relu,linear=10", "--whiten", "none", "--freeze", "0.weight",
                    "--group", "*.bias:lr=2,steps=1", "--steps", "2", "--optimizer", "sgd", "--crop-edge", "black",
                    "--flip", "random", "--test-views", "1")
        self.fails(2, ["'list'", "cifar10, cifar10-94, imagefolder-finetune, gpt-char"], "train", "--recipe", "list")
        self.fails(2, ["has no convolution 'whiten'"], *short, "--model", "mlp", "--freeze", "fc1.*", "--group",
                   "*:lr=1")
        for group, words in [("*:momentum=1", "above 0 and below 1"), ("*:steps=0", "at least 1"),
                             ("*:steps=1.5", "at least 1"), ("*:rate=1", "neither lr=X nor decay=X, momentum=X")]:
            self.fails(2, [words], "train", "--group", group)
        self.fails(2, ["the optimizer has none"], "train", "--optimizer", "adam", "--group", "*:momentum=0.5")
        self.fails(2, ["set augment to one that crops"], "train", "--crop-edge", "reflect")

    def test_gpt_char_learns_from_a_text(self):
        text = self.folder / "text"
        text.write_text("to be, or not to be: " * 50)
        result = self.run_ok("train", "--recipe", "gpt-char", "--dataset", f"text:{text},context=8", "--batch", "8",
                             "--model", "gpt2:layers=1,width=8,heads=1", "--steps", "2", "--devices", "2xcpu")
        self.assertIn("8x1x1, not normalised", result.stderr)
        self.fails(2, ["gpt-char needs --dataset"], "train", "--recipe", "gpt-char")

    def test_a_mistake_in_a_config_is_named(self):
        config = self.folder / "run.json"
        for text, words in [('{"leaning_rate": 1, "lr": 1}', ["run.json: train has no option 'leaning_rate'"]),
                            ('{"epoch": 1}', ["'epoch'", "did you mean --epochs"]),
                            ('{"lr": "fast"}', ["--lr", "'fast'"]),
                            ('{"lr": [1]}', ["'lr' takes X"]),
                            ('{"nesterov": "yes"}', ["'nesterov' takes true or false"]),
                            ('{"model": 5}', ["'model' takes a text"]),
                            ('{"straggler": 1}', ["'straggler' takes a text"]),
                            ('{"straggler": "1"}', ["--straggler 1: K:X"]),
                            ('{"lr": 1, "lr": 2}', ["run.json: line 1", "duplicate"]),
                            ('{"config": "other.json"}', ["'config' is for the command line alone"]),
                            ('{"print-config": true}', ["'print-config' is for the command line alone"]),
                            ('[1]', ["run.json: not an object"]),
                            ('{"lr": 0.1,', ["run.json: line 1"])]:
            with self.subTest(text=text):
                config.write_text(text)
                self.fails(2, words, "train", "--config", config)
        self.fails(66, ["no.json", "cannot read"], "train", "--config", self.folder / "no.json")
        self.fails(2, ["--straggler 1: K:X"], "train", "--straggler", "1", "--print-config")

    def test_a_config_of_a_stranger_steers_no_terminal_and_is_not_waited_for(self):
        config, pipe = self.folder / "run.json", self.folder / "pipe"
        config.write_text(json.dumps({"\x1b[31mred": 1}))
        self.fails(2, ["has no option '\\x1b[31mred'"], "train", "--config", config)
        os.mkfifo(pipe)
        self.fails(74, ["no program has written for 10 s"], "train", "--config", pipe)
        self.fails(74, ["is a device"], "train", "--config", "/dev/zero")

    def test_a_stack_that_is_too_small_is_named(self):
        result = subprocess.run(["sh", "-c", 'ulimit -s 64; "$0" version', YOKE], capture_output=True, text=True,
                                check=False)
        self.assertEqual((result.returncode, result.stdout), (71, ""))
        self.assertIn("the stack is limited to 64 KiB", result.stderr)


if __name__ == "__main__":
    unittest.main()
