#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tool as users and scripts run it: exit codes, messages, files, signals, a terminal.
YOKE_TEST_BACKEND names the devices' backend; the default is "cpu".

usage: test_cli.py YOKE [unittest arguments]. Exit code 77: this machine has no such devices.
"""
import fcntl
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

YOKE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
BACKEND = os.environ.get("YOKE_TEST_BACKEND", "cpu")
os.environ.setdefault("SIMCUDA_DEVICES", "3")  # `yoke devices` measures every pair
SMALL = ["--model", "mlp:width=512", "--dataset", "synthetic:1x8x8,classes=3,rows=60", "--batch", "20",
         "--threads", "1", "--devices", BACKEND]
LONG = SMALL + ["--epochs", "1000000", "--evaluate-every", "-1"]
LIMIT_S = 900
NO_DEVICES = 77


def yoke(*arguments, **options):
    return subprocess.run([YOKE, *arguments], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False, **options)


def present():
    """How many devices of the backend this machine has."""
    said = json.loads(yoke("devices", "--json").stdout)
    return sum(device["name"].startswith(BACKEND + ":") for device in said["devices"])


def devices(count):
    """--devices of so many; several share one where there are too few."""
    shared = BACKEND != "cpu" and count > present()
    return ["--devices", f"{count}x{BACKEND}{':0' if shared else ''}"]


def tensors_of(path):
    """The bytes of every tensor of a safetensors file."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    return {name: data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_ok(self, *arguments):
        result = yoke(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def fails(self, code, words, *arguments):
        """One line for what is wrong; a second one, what to type, for mistakes in the command."""
        result = yoke(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        said = re.findall(r"^yoke: (?!another run holds).*", result.stderr, re.M)
        self.assertEqual(len(said), 1, result.stderr)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, said[0])
        return result


class Help(Case):
    def test_help_and_version_go_to_stdout(self):
        overview = self.run_ok("help").stdout
        self.assertEqual(self.run_ok("--help").stdout, overview)
        for verb in ["train", "evaluate", "predict", "devices", "bench", "compare", "launch", "version", "help"]:
            self.assertIn(f"\n  {verb} ", overview)
            page = self.run_ok("help", verb).stdout
            self.assertIn(f"usage: yoke {verb}", page)
            self.assertEqual(self.run_ok(verb, "--help").stdout, page)
        self.assertRegex(self.run_ok("version").stdout, r"^yoke \d+\.\d+\.\d+\n$")
        self.assertEqual(self.run_ok("--version").stdout, self.run_ok("version").stdout)

    def test_every_promised_option_is_known_and_explained(self):
        promised = """model dataset devices threads mode schedule batch epochs steps optimizer lr momentum
            nesterov weight-decay lr-schedule warmup-steps label-smoothing precision seed shuffle augment
            accumulate clip-norm init save evaluate-every metrics trace log-every json""".split()
        listed = re.findall(r"^  --([a-z-]+)", self.run_ok("help", "train").stdout, re.MULTILINE)
        self.assertEqual([name for name in promised if name not in listed], [])

    def test_help_and_messages_name_every_model(self):
        page = self.run_ok("help", "train").stdout
        listed = re.findall(r"[\w-]+", page[page.index("models:") + 7:page.index("Options follow")])
        self.assertIn("resnet18-cifar", listed)
        message = yoke("train", "--model", "nothing-like-it").stderr
        for name in listed:
            self.assertIn(name, message)
        self.fails(2, "mlp has no option 'widht'; did you mean 'width'?", "train", "--model", "mlp:widht=8")

    def test_exit_codes_are_documented(self):
        page = self.run_ok("help", "exit-codes").stdout
        for code in [0, 1, 2, 65, 66, 69, 70, 71, 74, 75, 76, 130, "128.N"]:
            self.assertRegex(page, rf"(?m)^ *{code}  ")

    def test_no_verb_and_unknown_verbs_are_usage_errors(self):
        self.assertEqual(yoke().returncode, 2)
        result = self.fails(2, ["trian", "did you mean 'train'"], "trian")
        self.assertIn("evaluate", result.stderr.splitlines()[1])
        self.fails(2, "evalute", "help", "evalute")


class Mistakes(Case):
    def test_a_mistake_in_the_command_names_it_and_the_nearest_word(self):
        for words, arguments in [
                (["--scedule", "--schedule"], ["--scedule", "classic"]),
                (["--modle", "--model"], ["--modle=mlp"]),
                (["'overlp'", "'overlap'"], ["--schedule", "overlp"]),
                (["'abc'", "whole number"], ["--batch", "abc"]),
                (["'1.5'", "whole number"], ["--epochs=1.5"]),
                (["'0'", "from 1"], ["--batch", "0"]),
                (["'0'", "from 1"], ["--steps", "0"]),
                (["'-3'", "whole number"], ["--seed", "-3"]),
                (["'nan'", "number"], ["--lr", "nan"]),
                (["--lr needs a value"], ["--lr"]),
                (["--model needs a value"], ["--model", "--json"]),
                (["--save needs a value"], ["--save="]),
                (["--json takes no value"], ["--json=1"]),
                (["'stray'"], ["stray"]),
                (["--nesterov"], ["--nesterov", "--momentum", "0"]),
                (["onecycle"], ["--lr-schedule", "onecycle", "--warmup-steps", "5"])]:
            with self.subTest(arguments=arguments):
                result = self.fails(2, words, "train", *arguments)
                self.assertIn("yoke help train", result.stderr.splitlines()[1])

    def test_what_the_library_refuses_has_its_exit_code(self):
        bad = self.folder / "bad"
        bad.write_bytes(b"\xff" * 100)
        for code, words, arguments in [
                (2, ["resnet21", "resnet20"], ["--model", "resnet21"]),
                (2, ["4xcpo"], ["--devices", "4xcpo"]),
                (2, ["0xcpu"], ["--devices", "0xcpu"]),
                (2, ["cifer10", "cifar10"], ["--dataset", "cifer10:x"]),
                (2, ["pci3", "pcie3"], ["--link", "pci3"]),
                (2, ["bandwidth of 0 GB/s"], ["--link", "0,5"]),
                (2, ["brigde", "bridge"], ["--link", "nvlink3,brigde"]),
                (2, ["61", "60 rows"], ["--batch", "61"]),
                (66, ["data_batch_1.bin"], ["--dataset", f"cifar10:{self.folder}"]),
                (66, ["no-such-file"], ["--init", "no-such-file"]),
                (65, [str(bad)], ["--init", str(bad)]),
                (74, ["/no-such-folder/x"], ["--save", "/no-such-folder/x"]),
                (74, ["/no-such-folder/x"], ["--trace", "/no-such-folder/x"]),
                (74, ["/no-such-folder/x"], ["--metrics", "/no-such-folder/x"])]:
            with self.subTest(arguments=arguments):
                self.fails(code, words, "train", *SMALL, *arguments)

    def test_cuda_on_a_machine_without_it_is_a_missing_device(self):
        backends = json.loads(self.run_ok("devices", "--json").stdout)["backends"]
        if any(b["name"] == "cuda" and b["available"] for b in backends):
            self.skipTest("this machine has one")
        self.fails(69, "cuda", "train", *SMALL, "--devices", "cuda")

    def test_images_cut_off_or_of_an_unknown_class_are_bad_data(self):
        for content in [bytes(3000), b"\x0a" + bytes(3072)]:
            (self.folder / "data_batch_1.bin").write_bytes(content)
            (self.folder / "test_batch.bin").write_bytes(bytes(3073))
            self.fails(65, "data_batch_1.bin", "train", "--batch", "1", "--dataset",
                       f"cifar10:{self.folder}")

    def test_a_loss_that_is_not_finite_names_a_layer(self):
        save = self.folder / "last.safetensors"
        result = yoke("train", *SMALL, "--lr", "1e30", "--epochs", "50", "--save", save)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, r"yoke: .*not finite.*fc")
        self.assertTrue(save.exists())


class Train(Case):
    KEYS = {"mode", "schedule", "devices", "model", "dataset", "precision", "parameters", "batch",
            "steps", "images_per_second", "step_ms", "stage_ms", "train_loss", "train_accuracy", "test_loss",
            "test_accuracy", "peak_bytes",
            "weights_hash"}

    def train(self, *arguments):
        return json.loads(self.run_ok("train", *SMALL, "--json", *arguments).stdout.splitlines()[-1])

    def test_why_there_is_no_gpu_takes_one_line(self):
        choice = [word for word in SMALL if word not in ["--devices", BACKEND]]
        result = yoke("train", *choice, "--steps", "1", "--evaluate-every", "-1",
                      env={**os.environ, "SIMCUDA_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip().startswith("cuda:")]
        self.assertEqual(len(lines), 1)
        self.assertLessEqual(len(lines[0]), 80)

    def test_json_is_one_object_with_the_promised_keys(self):
        result = self.run_ok("train", *SMALL, "--json", *devices(2), "--epochs", "2")
        self.assertEqual(len(result.stdout.splitlines()), 1)
        said = json.loads(result.stdout)
        self.assertEqual(self.KEYS - set(said), set())
        self.assertEqual((said["devices"], said["steps"], said["batch"]), (2, 6, 20))
        self.assertEqual(len(said["peak_bytes"]), 2)
        self.assertGreater(said["step_ms"]["median"], 0)
        self.assertIn("forward" if BACKEND == "cpu" else "gather", said["stage_ms"])
        self.assertRegex(said["weights_hash"], "^[0-9a-f]{16}$")
        self.assertTrue(0 <= said["test_accuracy"] <= 1 and 0 <= said["train_accuracy"] <= 1)

    def test_results_go_to_stdout_and_the_rest_to_stderr(self):
        result = self.run_ok("train", *SMALL, *devices(2), "--steps", "3")
        for word in ["stage ", "forward" if BACKEND == "cpu" else "or --live", "img/s", "accuracy", "weights_hash "]:
            self.assertIn(word, result.stdout)
        for word in ["parameters", f"{BACKEND}:0", "10 + 10", "Next:"]:
            self.assertIn(word, result.stderr)
        self.assertRegex(result.stderr, f"{BACKEND}:(1|0#1)")
        self.assertNotIn("\033", result.stdout + result.stderr)
        both = subprocess.run([YOKE, "train", *SMALL, "--steps", "3"], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S, check=True).stdout
        self.assertLess(both.index("weights_hash "), both.index("Next:"))
        quiet = self.run_ok("train", *SMALL, "--steps", "3", "--quiet")
        self.assertEqual(quiet.stderr, "")
        self.assertIn("accuracy", quiet.stdout)

    def follow_advice(self, tool, *arguments):
        """What `Next:` offers after a run, each done in a shell as it is printed."""
        said = subprocess.run([tool, "train", *SMALL, "--steps", "3", *arguments], cwd=self.folder, check=True,
                              capture_output=True, text=True, timeout=LIMIT_S).stderr
        offered = [line.strip() for line in said.split("\nNext:\n")[1].splitlines()
                   if line.startswith("    ")]
        for command in offered:
            result = subprocess.run(["sh", "-c", command], cwd=self.folder, capture_output=True, text=True,
                                    timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL)
            self.assertEqual(result.returncode, 0, command + result.stderr)
        return offered

    def test_what_comes_next_runs_as_it_is_printed(self):
        tool = self.folder / "it's here"
        tool.symlink_to(YOKE)
        offered = self.follow_advice("./it's here")
        self.assertEqual(len(offered), 3)
        self.assertTrue((self.folder / "mlp.safetensors").exists() and (self.folder / "trace.json").exists())
        offered = self.follow_advice(YOKE, "--trace", "my trace.json", "--save", "$w;.safetensors")
        self.assertEqual(len(offered), 3)
        self.assertIn("evaluate --weights '$w;.safetensors' --dataset", offered[0])
        again = self.follow_advice(YOKE, "--trace", "my trace.json")[0]
        self.assertEqual(again.count("--trace"), 1)
        self.assertIn("--save mlp-2.safetensors", again)  # mlp.safetensors is the first run's
        offered = self.follow_advice(YOKE, "--checkpoint-dir", "saves", "--save", "w.safetensors")
        self.assertEqual(len(offered), 3)
        self.assertIn("--resume auto --save", self.follow_advice(YOKE, "--checkpoint-dir", "more")[0])

    def test_every_option_of_the_interface_is_taken(self):
        metrics, trace = self.folder / "m.jsonl", self.folder / "t.json"
        said = self.train(
            *devices(2), "--mode", "dp", "--schedule", "classic", "--epochs", "2",
            "--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.01", "--lr-schedule", "cosine",
            "--warmup_steps", "2", "--label-smoothing=0.1", "--precision", "float32", "--seed", "3",
            "--shuffle", "no", "--augment", "crop-flip-cutout", "--accumulate", "2", "--clip-norm", "1",
            "--evaluate-every", "1", "--metrics", metrics, "--trace", trace, "--log-every", "2",
            "--algorithm", "direct")
        self.assertEqual((said["schedule"], said["steps"]), ("classic", 6))
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        steps = [line for line in lines if "step_ms" in line]
        evaluations = [line for line in lines if "test_loss" in line]
        self.assertEqual([line["step"] for line in steps], [1, 2, 3, 4, 5, 6])
        self.assertEqual([line["epoch"] for line in evaluations], [1, 2])
        self.assertEqual(set(steps[0]), {"step", "epoch", "train_loss", "lr", "rows", "step_ms"})
        self.assertEqual(set(evaluations[0]), {"step", "epoch", "test_accuracy", "test_loss", "rows"})
        self.assertEqual(evaluations[-1]["test_accuracy"], said["test_accuracy"])
        self.assertTrue(json.loads(trace.read_text())["traceEvents"])

    def test_devices_and_schedules_agree(self):
        losses = [self.train("--epochs", "3", "--algorithm", "direct", *arguments)["test_loss"]
                  for arguments in [devices(1), devices(3), [*devices(2), "--schedule", "sharded"],
                                    [*devices(2), "--mode", "single"]]]
        for loss in losses[1:]:
            self.assertAlmostEqual(loss, losses[0], delta=1e-4 * losses[0])

    def test_links_take_time_and_change_no_bit(self):
        run = [*devices(2), "--steps", "2", "--algorithm", "direct"]
        link = ["--link", "0.01,100"]  # 0.01 GB/s: 0.1 ms a kilobyte
        if BACKEND != "cpu":
            self.fails(2, ["GPUs have links of their own"], "train", *SMALL, *run, *link)
            return
        without, classic, overlap = (self.train(*run, *more) for more in [
            [], [*link, "--schedule", "classic"], [*link, "--schedule", "overlap"]])
        self.assertEqual({said["weights_hash"] for said in [classic, overlap]}, {without["weights_hash"]})
        weights_ms = 0.1 + 4 * without["parameters"] / 1e4
        self.assertGreater(classic["stage_ms"]["reduce"], weights_ms)
        self.assertGreater(overlap["step_ms"]["median"], 2 * weights_ms)
        self.assertEqual((classic["link"], "link" in without), ("0.01,100", False))

    def test_python_takes_time_and_changes_no_bit(self):
        run = [*devices(2), "--steps", "2", "--algorithm", "direct"]
        python = ["--schedule", "python", "--interpreter-us", "1000"]
        self.fails(2, ["--interpreter-us needs --schedule python"], "train", *SMALL, *run, "--interpreter-us", "5")
        if BACKEND != "cpu":
            self.fails(2, ["the classic schedule runs nn.DataParallel's stages there"], "train", *SMALL, *run, *python)
            return
        classic, slow = self.train(*run, "--schedule", "classic"), self.train(*run, *python)
        self.assertEqual(slow["weights_hash"], classic["weights_hash"])
        self.assertEqual(slow["schedule"], "python")
        self.assertGreater(slow["stage_ms"]["python"], 3 * 5)  # the root copies 5 layers or more twice, and calls them

    def test_changes_of_images_train_to_other_weights_on_every_number_of_devices(self):
        run = ["--dataset", "synthetic:3x8x8,rows=60", "--steps", "3", "--algorithm", "direct", "--shards", "2"]
        changes = [[], ["--color-jitter", "0.4,0.4,0.4,0.1"], ["--random-erasing", "0.9"], ["--augment", "crop-flip"],
                   ["--mixup", "0.4"]]
        hashes = [self.train(*run, *devices(1), *more)["weights_hash"] for more in changes]
        self.assertEqual(len(set(hashes)), len(hashes))
        self.assertEqual([self.train(*run, *devices(2), *more)["weights_hash"] for more in changes], hashes)
        for words in ["0.4,x", "1,1,1,0.7", "1,,1", "1,1,1,0.1,1"]:
            self.fails(2, [f"--color-jitter: '{words}' is not BRIGHTNESS"], "train", *SMALL, "--color-jitter", words)
        self.fails(2, ["color jitter is for images of bytes in three channels"], "train", *SMALL, "--color-jitter", "1")

    @unittest.skipIf(BACKEND != "cpu", "several GPUs refuse")
    def test_batch_norm_over_all_devices_trains_as_on_one(self):
        run = ["--model", "resnet20", "--dataset", "synthetic:3x8x8,rows=60", "--batch", "10", "--steps", "1",
               "--algorithm", "direct"]
        one = self.train(*run)["test_loss"]
        together = self.train(*run, "--sync-batch-norm", *devices(3))["test_loss"]
        self.assertAlmostEqual(together, one, delta=1e-4 * one)
        self.assertNotAlmostEqual(self.train(*run, *devices(3))["test_loss"], one, delta=1e-4 * one)

    def test_saved_weights_evaluate_to_the_same_numbers(self):
        save = self.folder / "w.safetensors"
        said = self.train("--epochs", "4", "--save", save, *devices(2))
        model = SMALL[:4]
        again = json.loads(self.run_ok("evaluate", "--init", save, *model, "--json").stdout)
        self.assertEqual(again["rows"], 12)
        self.assertEqual(again["accuracy"], said["test_accuracy"])
        self.assertAlmostEqual(again["loss"], said["test_loss"], delta=1e-5)
        self.assertIn("accuracy", self.run_ok("evaluate", "--init", save, *model).stdout)
        kept = self.train("--init", save, "--steps", "1", "--lr", "1e-30", "--weight-decay", "0")
        self.assertAlmostEqual(kept["test_loss"], said["test_loss"], delta=1e-5)

    def test_json_is_valid_whatever_bytes_a_path_has(self):
        save = self.folder / "w.safetensors"
        self.train("--steps", "1", "--save", save)
        save = save.rename(os.fsdecode(bytes(self.folder) + b"/w\xff\x01\"\xc3\xa9.safetensors"))
        model = SMALL[:4]
        result = subprocess.run([YOKE, "evaluate", "--init", save, *model, "--json"], stdout=subprocess.PIPE,
                                timeout=LIMIT_S, check=True)
        weights = json.loads(result.stdout.decode("utf-8", "strict"))["weights"]
        self.assertEqual(weights, f'{self.folder}/w\ufffd\x01"é.safetensors')

    def test_weights_of_another_model_are_refused_by_name(self):
        save = self.folder / "w.safetensors"
        self.train("--steps", "1", "--save", save)
        for verb in ["train", "evaluate"]:
            self.fails(65, ["missing (conv1.weight", "unknown ("], verb, "--init", save, "--model",
                       "resnet20", "--dataset", "synthetic:3x16x16,rows=64", "--batch", "8")

    def test_a_replaced_layer_starts_anew_and_is_listed(self):
        save = self.folder / "w.safetensors"
        self.train("--steps", "2", "--save", save)
        other = [*SMALL[:2], "--dataset", "synthetic:1x8x8,classes=4,rows=60", "--batch", "20", "--steps", "2"]
        self.fails(2, "--allow-missing", "train", *other, "--allow-missing", "fc3.*")
        result = self.run_ok("train", *other, "--init", save, "--allow-missing", "fc3.*", "--json")
        self.assertIn("fc3.bias is [3] in the file and [4] in the model", result.stderr)
        said = json.loads(result.stdout)
        self.assertEqual((said["init_missing"], said["init_unknown"]), (["fc3.weight", "fc3.bias"], []))

    def test_groups_are_listed_and_frozen_parameters_stay(self):
        first, save = self.folder / "first.safetensors", self.folder / "w.safetensors"
        self.train("--steps", "1", "--lr", "0", "--save", first)
        result = self.run_ok("train", *SMALL, "--steps", "3", *devices(2), "--init", first, "--save", save,
                             "--freeze", "fc1.*,fc2.bias", "--group", "fc2.*:lr=0.1;fc3.weight:lr=2,decay=0.1",
                             "--no-decay", "*.bias")
        self.assertIn("groups   fc1.*,fc2.bias: 3 tensors, 33792 parameters, frozen\n", result.stderr)
        self.assertIn(" fc3.weight: 1 tensor, 1536 parameters, learning rate x 2, weight decay 0.1\n",
                      result.stderr)
        self.assertIn(" *.bias: 1 tensor, 3 parameters, weight decay 0\n", result.stderr)
        before, after = (tensors_of(path) for path in (first, save))
        self.assertEqual({name for name in before if before[name] == after[name]},
                         {"fc1.weight", "fc1.bias", "fc2.bias"})
        self.fails(2, "did you mean", "train", *SMALL, "--freeze", "fc11.*")
        for wrong in ["fc1.*", "fc1.*:", ":lr=1", "fc1.*:lr=x", "fc1.*:speed=1", ";", ":", ",", "fc1.*:lr=1;",
                      ";fc1.*:lr=1", "fc1.*:lr=1;;fc2.*:lr=2", "fc1.*:,", "fc1.*:lr=1,", "fc1.*:,lr=1", "fc1.*:lr=",
                      "fc1.*:lr=-1", "fc1.*:lr=inf", "fc1.*:lr=1:decay=2", "fc1.*:lr=1,lr=2", "fc1.*:decay=1,decay=1"]:
            with self.subTest(wrong=wrong):
                self.fails(2, "--group", "train", *SMALL, "--group", wrong)
        for option, wrong in [("--group", ",:lr=1"), ("--group", "fc1.*,:lr=1"), ("--freeze", ","),
                              ("--no-decay", "fc1.*,,fc2.*")]:
            self.fails(2, "matches no name", "train", *SMALL, option, wrong)

    def test_evaluate_needs_weights(self):
        self.fails(2, "--init", "evaluate")


class Disks(Case):
    def setUp(self):
        super().setUp()
        self.full = self.folder / "full"
        self.full.symlink_to("/dev/full")

    def test_a_full_disk_for_metrics_is_a_warning(self):
        result = self.run_ok("train", *SMALL, "--steps", "5", "--metrics", self.full)
        self.assertEqual(result.stderr.count("warning"), 1)
        self.assertIn(str(self.full), result.stderr)

    def test_a_full_disk_for_the_trace_is_an_error_after_the_result(self):
        result = yoke("train", *SMALL, "--steps", "5", "--json", "--trace", self.full)
        self.assertEqual(result.returncode, 74, result.stderr)
        self.assertRegex(result.stderr, f"yoke: {self.full}: ")
        self.assertEqual(json.loads(result.stdout)["steps"], 5)

    def test_a_result_that_cannot_be_printed_is_an_error(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run([YOKE, "version"], stdout=full, stderr=subprocess.PIPE, text=True,
                                    timeout=LIMIT_S, check=False)
        self.assertEqual(result.returncode, 74)
        self.assertIn("standard output", result.stderr)


class Signals(Case):
    def start(self, *arguments):
        """A run that has taken its first step."""
        metrics = self.folder / "m.jsonl"
        metrics.unlink(missing_ok=True)
        process = subprocess.Popen([YOKE, "train", *arguments, "--metrics", metrics],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        end = time.monotonic() + LIMIT_S
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < end:
            time.sleep(0.02)
        return process, metrics

    def test_the_first_signal_finishes_the_step_and_saves(self):
        for number, code in [(signal.SIGINT, 130), (signal.SIGTERM, 143)]:
            save = self.folder / f"w{code}"
            process, metrics = self.start(*LONG, "--save", save, "--json")
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, code, stderr)
            self.assertIn("stopped after step", stderr)
            lines = metrics.read_text().splitlines()
            self.assertEqual(json.loads(stdout)["steps"], json.loads(lines[-1])["step"])
            self.run_ok("evaluate", "--init", save, *SMALL[:4])

    @unittest.skipIf(BACKEND != "cpu", "needs a step of a second or so")
    def test_the_second_signal_ends_at_once(self):
        save = self.folder / "w"
        process, _ = self.start("--model", "resnet18", "--dataset", "synthetic:3x64x64,rows=128",
                                "--batch", "128", "--algorithm", "direct", "--epochs", "1000",
                                "--evaluate-every", "-1", "--quiet", "--save", save)
        process.send_signal(signal.SIGINT)  # in the middle of a step of a second or so
        for line in process.stderr:
            if "finishing the step" in line:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        self.assertFalse(save.exists())


@unittest.skipIf(BACKEND != "cpu", "the rows are those of the CPU")
class Bench(Case):
    def test_a_row_is_chosen_by_its_name_or_its_group(self):
        rows = [line.split()[0] for line in self.run_ok("bench", "--list").stdout.splitlines() if "  " in line]
        self.assertEqual(len(set(rows)), len(rows))
        self.assertIn("scaling-resnet18-bf16", rows)
        said = json.loads(self.run_ok("bench", "dispatch", "--seconds", "0.1", "--json").stdout)
        self.assertEqual([row["name"] for row in said["rows"]], [f"dispatch-{2 << k}" for k in range(6)])
        for row in said["rows"]:
            self.assertLessEqual(row["low"], row["value"])
            self.assertEqual((row["unit"], row["against"]), ("us", None))
        self.fails(2, ["'C5'", "--list"], "bench", "C5")
        self.fails(2, ["'scaling-resnet19'", "scaling-resnet18"], "bench", "scaling-resnet19")

    def test_another_program_drives_engines_by_lines(self):
        requests = ["open a model=mlp devices=2xcpu rows=2 threads=1", "steps a 2", "kernel_time a alone 1",
                    "kernel_time a in-order 1", f"weights a {self.folder}/w", f"batch a {self.folder}/b",
                    "floor a alone 1", "algorithms a", "close a", "steps a 1", "open b model=mlp rows=2 ranks=2 classes=65537"]
        result = yoke("bench", "--drive", input="\n".join(requests) + "\n")
        answers = [json.loads(line) for line in result.stdout.splitlines()]
        opened, steps, alone, in_order, weights, batch, unknown, algorithms, closed, gone, classes = answers
        self.assertTrue(min(opened.pop("made_ms"), alone["ms"], in_order["ms"]) > 0)
        self.assertEqual((opened, closed), ({"devices": 2, "rows": 4}, {}))
        self.assertEqual(set(steps), {"ms", "processor_ms", "loss"})
        self.assertEqual((self.folder / "w").stat().st_size, 4 * sum(count for _, count, _ in weights["tensors"]))
        self.assertEqual((self.folder / "b").stat().st_size, 4 * batch["values"] + 4 * 4)
        self.assertTrue("kernel_time" in unknown["error"] and "no engine" in gone["error"], (unknown, gone))
        self.assertEqual((weights["tensors"][0][2], algorithms["algorithms"][0][:2]), ([1024, 784], ["fc1", "linear"]))
        self.assertIn("classes=", classes["error"])


class Devices(Case):
    def test_devices_are_listed(self):
        self.assertIn(f"{BACKEND}:0", self.run_ok("devices").stdout)
        said = json.loads(self.run_ok("devices", "--devices", "3xcpu", "--threads", "1",
                                      "--json").stdout)
        self.assertEqual([d["name"] for d in said["devices"]], ["cpu:0", "cpu:1", "cpu:2"])
        self.assertEqual([d["threads"] for d in said["devices"]], [1, 1, 1])
        self.assertIn("cpu", [b["name"] for b in said["backends"] if b["available"]])

    def test_gpus_are_described_with_the_paths_between_them(self):
        said = json.loads(self.run_ok("devices", "--json").stdout)
        names = [d["name"] for d in said["devices"]]
        if not names[0].startswith("cuda"):
            self.assertNotIn("peers", said)
            self.skipTest("no usable GPU")
        for device in said["devices"]:
            self.assertRegex(device["uuid"], r"^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
            self.assertRegex(device["pci_id"], r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0$")
            self.assertGreaterEqual(float(device["capability"]), 7.5)
            self.assertGreater(device["memory_bytes"], device["memory_free"])
            self.assertTrue(device["code"])
        detail = next(b["detail"] for b in said["backends"] if b["name"] == "cuda")
        for library in ["CUDA", "driver", "cuBLASLt", "cuDNN", "NCCL"]:
            self.assertIn(library, detail)
        if len(names) == 1:
            return
        self.assertEqual([(p["from"], p["to"]) for p in said["peers"]],
                         [(a, b) for a in names for b in names if a != b])
        for peer in said["peers"]:
            self.assertIn(peer["path"], ["direct", "host"])
            self.assertGreater(peer["bytes_per_second"], 0)

    def test_replicas_on_a_gpu_share_its_memory(self):
        backends = json.loads(self.run_ok("devices", "--json").stdout)["backends"]
        if not any(b["name"] == "cuda" and b["available"] for b in backends):
            self.skipTest("no usable GPU")
        said = json.loads(self.run_ok("devices", "--devices", "2xcuda:0", "--json").stdout)
        self.assertEqual([d["name"] for d in said["devices"]], ["cuda:0#0", "cuda:0#1"])
        self.assertEqual([p["path"] for p in said["peers"]], ["same", "same"])
        table = self.run_ok("devices", "--devices", "2xcuda:0").stdout
        self.assertRegex(table, r"cuda:0#0 +- +same +[0-9.]+\n")


class Terminal(Case):
    """stderr on a terminal of 100 columns."""

    def watch(self, *arguments, columns=100, **environment):
        try:
            ours, theirs = pty.openpty()
        except OSError:
            self.skipTest("this system offers no pseudo-terminals")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = dict(os.environ, **{"TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
        process = subprocess.Popen([YOKE, "train", *SMALL, *arguments], stdout=subprocess.DEVNULL,
                                   stderr=theirs, env=environment)
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], LIMIT_S)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
        os.close(ours)
        self.assertEqual(process.wait(timeout=LIMIT_S), 0)
        return seen.decode()

    def test_a_narrow_terminal_shows_time_left_and_loss_within_its_width(self):
        for columns, line in [(40, r"epoch \d/2 +\d+% \d\d:\d\d left loss \d"), (26, r" *\d+% \d\d:\d\d left loss \d"),
                              (17, r" *\d+% loss \d"), (8, r" *\d+%$")]:
            with self.subTest(columns=columns):
                seen = self.watch("--epochs", "2", columns=columns)
                drawn = [part.removesuffix("\x1b[K") for part in re.split(r"[\r\n]+", seen)]
                bars = [part for part in drawn if re.match(r"(epoch \d/2 )? *\d+%", part)]
                self.assertTrue(bars)
                self.assertLess(max(map(len, bars)), columns)
                self.assertRegex(bars[0], line)

    BAR = r"\repoch 1/2 +\d+%\|.*\| \d/3 \[\d\d:\d\d<\d\d:\d\d, \d+ img/s, loss \d"

    def test_a_bar_with_loss_rate_and_time_left_is_drawn_and_taken_away(self):
        seen = self.watch("--epochs", "2")
        self.assertRegex(seen, self.BAR)
        self.assertIn("\r\033[K", seen)
        drawn = [line for line in seen.replace("\033[K", "").split("\r") if "img/s" in line]
        self.assertLess(max(len(line) for line in drawn), 100)

    def test_the_bar_is_plain_ascii_where_the_locale_is(self):
        seen = self.watch("--epochs", "2", LC_ALL="C")
        self.assertRegex(seen, self.BAR)
        self.assertTrue(seen.isascii())

    def test_a_dumb_terminal_and_quiet_get_no_bar(self):
        self.assertNotIn("\033", self.watch("--epochs", "2", TERM="dumb"))
        self.assertEqual(self.watch("--epochs", "2", "--quiet"), "")


if __name__ == "__main__":
    if YOKE is not None and BACKEND != "cpu" and not present():
        print(f"skipped: there is no usable {BACKEND} device")
        sys.exit(NO_DEVICES)
    unittest.main(verbosity=2)
