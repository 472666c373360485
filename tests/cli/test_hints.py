#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words of other tools get the word of this one; help has groups; a run says what it replaces.

usage: test_hints.py YOKE [unittest arguments]
"""
import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
SMALL = ["--model", "mlp:width=8", "--dataset", "synthetic:1x8x8,classes=3,rows=60", "--batch", "20", "--threads", "1",
         "--devices", "cpu", "--steps", "2", "--algorithm", "direct"]
LIMIT_S = 900
# What a user of PyTorch's and torchvision's scripts, torchrun, Lightning, Keras or Hugging Face types, and the answer.
OPTIONS = {
    "--batch-size 64": "use --batch (the whole batch, over all devices)", "--batch_size=64": "use --batch",
    "-b 64": "use --batch", "--learning-rate .1": "use --lr", "--learning_rate .1": "use --lr",
    "--num-workers 4": "use --loader-threads", "--workers 4": "use --loader-threads", "-j 4": "use --loader-threads",
    "--gpus 2": "use --devices (2xcuda: two GPUs", "--gpu 0": "use --devices", "--accelerator gpu": "use --devices",
    "--device cuda": "use --devices", "--max_epochs 3": "use --epochs", "--num-epochs 3": "use --epochs",
    "--max_steps 3": "use --steps", "--strategy ddp": "use --mode",
    "--nproc_per_node 2": "yoke launch has --nproc-per-node",
    "--nnodes 2": "yoke launch has --nnodes", "--rdzv_endpoint h:1": "yoke launch has --master-addr",
    "--rdzv_backend c10d": "a rendezvous of its own", "--local-rank 0": "learns its rank",
    "--data-path d": "use --dataset", "--data-dir d": "use --dataset", "--arch resnet18": "use --model",
    "-a resnet18": "use --model", "--wd 1e-4": "use --weight-decay", "--amp": "use --precision (bfloat16",
    "--fp16": "use --precision (bfloat16", "--bf16": "use --precision (bfloat16", "--resume-from f": "use --resume",
    "--resume_from_checkpoint f": "use --resume", "--ckpt_path f": "use --resume", "--checkpoint f": "use --resume",
    "--weights f": "use --init", "--pretrained": "use --init", "--opt sgd": "use --optimizer",
    "--lr-scheduler steplr": "use --lr-schedule", "--lr-step-size 30": "use --lr-schedule (step",
    "--lr-warmup-epochs 5": "use --warmup-steps (steps, not epochs)", "--seed-everything 1": "use --seed",
    "--manual-seed 1": "use --seed", "--output-dir d": "use --checkpoint-dir",
    "--default_root_dir d": "use --checkpoint-dir",
    "--print-freq 10": "use --log-every", "--log_every_n_steps 10": "use --log-every", "--test-only": "yoke evaluate",
    "--gradient-accumulation-steps 2": "use --accumulate", "--gradient_clip_val 1": "use --clip-norm",
    "--auto-augment": "use --augment", "--sync-bn": "use --sync-batch-norm", "--model-ema": "use --ema",
    "--early-stopping": "use --patience", "--save-best-only": "use --keep-best",
    "--dist-backend gloo": "use --transport",
    "--check_val_every_n_epoch 2": "use --evaluate-every", "--deterministic": "use --algorithm",
    "--limit_train_batches 5": "use --limit-rows (rows, not batches)", "--profiler": "use --trace",
}
VALUES = {
    "--optimizer lars": "use adamw (there are sgd, adamw, adam, rmsprop, lion, adagrad, lamb, muon and muon-filters)",
    "--optimizer Adam": "did you mean 'adam'?", "--optimizer Muon": "did you mean 'muon'?", "--precision fp16": "use float16", "--precision bf16-mixed": "use bfloat16",
    "--precision 32": "use float32", "--lr-schedule CosineAnnealingLR": "use cosine",
    "--lr-schedule steplr": "use step",
    "--lr-schedule reduce_on_plateau": "use plateau", "--loss sparse_categorical_crossentropy": "use cross-entropy",
    "--loss smooth_l1": "use huber", "--mode ddp_spawn": "use ddp", "--transport gloo": "use auto",
    "--shuffle true": "use yes", "--optimizer sdg": "did you mean 'sgd'?",
    "--devices gpu": 'did you mean "cuda"?', "--devices 2xgpu": 'did you mean "cuda"?',
    "--devices 0,1": '"cuda:0,1" names GPUs by their numbers', "--devices 2": '"2xcuda" are two GPUs',
    "--devices -1": 'did you mean "auto"?',
}


def yoke(*arguments, **options):
    return subprocess.run([YOKE, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          **options)


class Case(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def refused(self, words, *arguments, code=2):
        result = yoke(*arguments, cwd=self.folder)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        said = [line for line in result.stderr.splitlines() if line.startswith("yoke: ")]
        self.assertEqual(len(said), 1, result.stderr)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, said[0])

    def run_ok(self, *arguments):
        result = yoke(*arguments, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result


class Words(Case):
    def test_an_option_of_another_tool_names_the_option_here(self):
        for typed, words in OPTIONS.items():
            with self.subTest(typed):
                self.refused(["train has no option -", words], "train", *typed.split())

    def test_every_option_that_a_hint_names_exists(self):
        """The tables name options and words as texts."""
        known = {verb: set(re.findall(r"^  --([a-z0-9-]+)", yoke("help", verb).stdout, re.M))
                 for verb in ("train", "launch")}
        for typed in OPTIONS:
            said = yoke("train", *typed.split()).stderr
            for verb, option in re.findall(r"(?:yoke (\w+) has|: use) --([a-z-]+)", said):
                self.assertIn(option, known[verb or "train"], said)

    def test_a_value_of_another_tool_names_the_value_here(self):
        for typed, words in VALUES.items():
            with self.subTest(typed):
                self.refused(words, "train", *typed.split())

    def test_other_verbs_and_files_of_options_answer_alike(self):
        self.refused("predict has no option --batch-size: use --batch", "predict", "--batch-size", "3")
        self.refused("yoke train has --lr", "evaluate", "--learning-rate", "3")
        self.refused("; did you mean --epochs?", "train", "--epohcs", "3")
        (self.folder / "run.json").write_text('{"batch-size": 3}')
        self.refused("train has no option 'batch-size': use --batch", "train", "--config", "run.json")

    def test_a_path_alone_says_how_to_write_the_dataset(self):
        (self.folder / "photos").mkdir()
        (self.folder / "t.csv").write_text("x,y\n1,0\n")
        self.refused("write images:photos", "train", "--dataset", "photos")
        self.refused("write csv:t.csv,label=COLUMN", "train", "--dataset", "t.csv")
        self.refused("unknown dataset 'nowhere'", "train", "--dataset", "nowhere")

    def test_rows_that_are_no_images_name_their_model(self):
        (self.folder / "t.csv").write_text("x,y\n" + "1,0\n2,1\n" * 20)
        (self.folder / "t.txt").write_text("hello " * 400)
        for dataset in ("csv:t.csv,label=y", "text:t.txt,context=8"):
            self.refused(["resnet20 reads images", "mlp for numbers, gpt2 for text"], "train", "--dataset", dataset,
                         "--batch", "2")

    def test_a_device_that_is_not_there_says_what_yoke_devices_says(self):
        cuda = next(each for each in json.loads(yoke("devices", "--json").stdout)["backends"] if each["name"] == "cuda")
        if cuda["available"]:
            self.skipTest("this machine has a usable GPU")
        absent = "not in this build" in cuda["detail"]
        cause = "this build has no cuda backend" if absent else cuda["detail"].split(" (in")[0]
        self.refused(cause, "train", "--devices", "cuda", code=69)

    def test_a_file_of_an_own_network_says_what_reads_it(self):
        self.run_ok("train", *SMALL, "--save", "w.safetensors")
        data = (self.folder / "w.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        header["__metadata__"]["yoke.model"] = "net"
        text = json.dumps(header).encode()
        (self.folder / "net.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length:])
        words = ["'net'", "the tool builds presets only", "yoke_model_create", "yoke_weights_load",
                 "yoke_data_parallel_forward", "yoke_evaluation_run"]
        self.refused(words, "predict", "--weights", "net.safetensors", SMALL[3])
        self.refused(words, "evaluate", "--weights", "net.safetensors", "--dataset", SMALL[3])
        for verb in ("compare", "verify"):
            self.refused(["no model is called 'tower'", "yoke_model_create"], verb, "--model", "tower")


class Help(Case):
    def test_the_options_of_train_stand_in_groups_the_most_used_first(self):
        page = self.run_ok("help", "train").stdout
        groups = re.findall(r"^([a-z][^\n]*):\n((?:  .*\n)+)", page, re.M)
        options = {name: re.findall(r"^  --([a-z-]+)", rows, re.M) for name, rows in groups}
        names = [name for name in options if options[name]]
        self.assertEqual(names[0], "used most")
        self.assertEqual(options["used most"], "dataset model init devices batch epochs optimizer lr augment save".split())
        self.assertGreater(len(names), 7)
        self.assertLess(max(len(options[name]) for name in names), 16)
        self.assertEqual(sum(len(rows) for rows in options.values()), page.count("\n  --"))
        manual = self.run_ok("help", "--man").stdout
        places = [manual.index(f".B {name}\n") for name in (name.replace("-", "\\-") for name in names)]
        self.assertEqual(places, sorted(places))
        self.refused("train has no option --used most", "train", "--used most", "1")
        bash = self.run_ok("completion", "bash").stdout
        self.assertLess(bash.index("--dataset"), bash.index("--limit-rows"))


class Runs(Case):
    def test_weights_are_not_replaced_unasked_and_measurements_not_silently(self):
        (self.folder / "w").write_text("precious")
        self.refused(["--save: w exists; --force lets the run replace it"], "train", *SMALL, "--save", "w")
        self.assertEqual((self.folder / "w").read_text(), "precious")
        for option in ("--metrics", "--trace", "--report"):
            first, again = (self.run_ok("train", *SMALL, option, f"file{option}").stderr for _ in range(2))
            self.assertEqual([f"yoke: {option} replaces file{option}" in said for said in (first, again)], [False, True])
        self.assertEqual(self.run_ok("train", *SMALL, "--report", "file--report", "--quiet").stderr, "")

    def test_tables_and_texts_count_rows(self):
        (self.folder / "t.csv").write_text("x,y\n" + "1,0\n2,1\n" * 40)
        said = self.run_ok("train", *SMALL, "--dataset", "csv:t.csv,label=y", "--epochs", "1")
        self.assertRegex(said.stdout, r"\d rows/s \(step")
        self.assertNotIn("img/s", said.stdout + said.stderr)
        self.assertRegex(self.run_ok("train", *SMALL).stdout, r"\d img/s \(step")

    def test_a_complete_run_that_goes_on_has_nothing_left_to_do(self):
        self.run_ok("train", *SMALL, "--checkpoint-dir", "saves")
        said = self.run_ok("train", *SMALL, "--checkpoint-dir", "saves", "--resume", "auto").stdout
        self.assertIn("2 steps, nothing left to do", said)
        self.assertNotIn("img/s", said)

    def test_a_model_worse_than_guessing_is_said_to_be_of_no_use(self):
        """Nine steps at a high rate: batch norm's running statistics are of other weights."""
        run = ["train", "--model", "resnet20", "--dataset", "synthetic:3x8x8,classes=3,rows=60", "--batch", "20",
               "--epochs", "3", "--threads", "1", "--devices", "cpu", "--algorithm", "direct"]
        said = self.run_ok(*run, "--lr", "1").stderr
        self.assertIn("a guess among 3 classes costs 1.10: what this model says of new rows means nothing", said)
        self.assertIn("yoke train --lr-find suggests one", said)
        self.assertNotIn("means nothing", self.run_ok(*run, "--lr", "0.001").stderr)
        self.assertEqual(self.run_ok(*run, "--lr", "1", "--quiet").stderr, "")

    def test_own_images_are_suggested_after_drawn_ones_only(self):
        (self.folder / "t.csv").write_text("x,y\n" + "1,0\n2,1\n" * 40)
        self.assertIn("your own images", self.run_ok("train", *SMALL).stderr)
        self.assertNotIn("your own images", self.run_ok("train", *SMALL, "--dataset", "csv:t.csv,label=y").stderr)

    def test_advice_on_a_terminal_does_not_come_before_a_result_in_a_pipe(self):
        for piped in (True, False):
            leader, follower = pty.openpty()
            process = subprocess.Popen([YOKE, "train", *SMALL], stdout=subprocess.PIPE if piped else follower,
                                       stderr=follower, cwd=self.folder)
            os.close(follower)
            shown = b""
            try:
                while block := os.read(leader, 65536):
                    shown += block
            except OSError:  # the last writer has closed it
                pass
            process.communicate(timeout=LIMIT_S)
            os.close(leader)
            self.assertEqual(process.returncode, 0)
            self.assertEqual(b"Next:" in shown, not piped, shown)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
