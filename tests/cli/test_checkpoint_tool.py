#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as the tool writes, reads and compares them: killed runs go on bit for bit.

usage: test_checkpoint_tool.py YOKE [unittest arguments]
"""
import json
import os
import signal
import subprocess
import unittest

from launch_case import Case, LIMIT_S, YOKE, environment, launch, wait_until

# Steps of some milliseconds: a run that lasts until it is killed.
LONG = """train --model resnet20 --dataset synthetic:3x8x8,rows=320 --batch 32 --algorithm direct --augment crop-flip
  --steps 200 --quiet --json --evaluate-every -1 --threads 1""".split()
SHORT = """train --model mlp --dataset synthetic:1x8x8,rows=100 --devices cpu --batch 20 --algorithm direct --quiet
  --json --epochs 3""".split()


class Tool(Case):
    def yoke(self, *arguments, code=0):
        result = subprocess.run([YOKE, *map(str, arguments)], cwd=self.folder, timeout=LIMIT_S, check=False, text=True,
                                capture_output=True, env=environment())
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def hash(self, *arguments):
        return json.loads(self.yoke(*arguments).stdout)["weights_hash"]

    def saves(self):
        return sorted(path.name for path in (self.folder / "saves").glob("*"))

    def rewrite(self, path, to, notes=(), shapes=(), tensors=()):
        """A copy as another program writes it, without digests; tensors: name, dtype, shape, bytes."""
        data = (self.folder / path).read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        header, body = json.loads(data[8:begin]), data[begin:]
        facts = {key: value for key, value in header["__metadata__"].items() if not key.startswith("xxh3.")}
        header["__metadata__"] = {**facts, "yoke.format": "unsealed", **dict(notes)}
        for name, shape in shapes:
            header[name]["shape"] = shape
        for name, dtype, shape, content in tensors:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
            body += content
        text = json.dumps(header).encode()
        (self.folder / to).write_bytes(len(text).to_bytes(8, "little") + text + body)
        return to

    def start_and_wait_for_a_checkpoint(self):
        process = subprocess.Popen([YOKE, *LONG, "--devices", "2xcpu", "--checkpoint-dir", "saves", "--checkpoint-every",
                                    "5", "--resume", "auto"], cwd=self.folder, env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        known = set(self.saves())
        wait_until(lambda: any(name.endswith(".safetensors") and name not in known for name in self.saves()),
                   "a checkpoint")
        return process


class Runs(Tool):
    def test_a_killed_run_goes_on_bit_for_bit(self):
        whole = self.hash(*LONG, "--devices", "2xcpu")
        for number, code in [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]:
            process = self.start_and_wait_for_a_checkpoint()
            process.send_signal(number)
            self.assertEqual(process.wait(LIMIT_S), code)
        self.assertEqual(self.hash(*LONG, "--devices", "2xcpu", "--checkpoint-dir", "saves", "--resume", "auto"), whole)
        self.assertEqual(len(self.saves()), 3, "the newest, and no temporary file")

    def test_a_resumed_run_has_its_frozen_weights_on_every_device(self):
        run = [*SHORT, "--epochs", "2", "--devices", "2xcpu"]
        self.yoke(*run, "--seed", "5", "--save", "weights.safetensors")
        frozen = [*run, "--freeze", "fc1.*", "--checkpoint-dir", "saves", "--checkpoint-every", "5steps", "--keep", "9"]
        whole = self.hash(*frozen, "--init", "weights.safetensors")
        self.assertEqual(self.hash(*run, "--freeze", "fc1.*", "--resume", "saves/step-00000005.safetensors"), whole)

    def test_a_restarted_rank_prefers_its_checkpoints_to_the_file_of_its_first_try(self):
        self.yoke(*SHORT, "--checkpoint-dir", "first")
        first = "first/step-00000015.safetensors"
        again = [str(YOKE), *SHORT, "--epochs", "5", "--checkpoint-dir", "saves", "--resume", first]
        again.remove("--quiet")

        def resumed(restarts):
            result = subprocess.run(again, cwd=self.folder, timeout=LIMIT_S, check=False, text=True, capture_output=True,
                                    env=environment({"TORCHELASTIC_RESTART_COUNT": restarts}))
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stderr

        self.assertIn(f"resumed from {first}", resumed("1"))  # the folder is empty
        self.assertIn("resumed from saves/step-00000025.safetensors", resumed("1"))
        os.rename(self.folder / "saves/step-00000025.safetensors", self.folder / "saves/best.safetensors")
        for name in self.saves():
            if name.startswith("step-"):
                os.remove(self.folder / "saves" / name)
        self.assertIn("resumed from saves/best.safetensors", resumed("1"))

    def test_restarted_ranks_go_on_from_the_newest_checkpoint(self):
        for schedule in ["overlap", "sharded"]:
            run = [*LONG, "--mode", "ddp", "--devices", "cpu", "--schedule", schedule]
            whole = launch("--nproc-per-node", 2, "--", *run, cwd=self.folder)
            self.assertEqual(whole.returncode, 0, whole.stderr)
            saves = f"saves-{schedule}"
            words = " ".join([str(YOKE), *run, "--checkpoint-dir", saves, "--checkpoint-every", "5"])
            words = words.replace(" --quiet", "")
            # The first time, rank 1 dies of SIGKILL after a checkpoint.
            script = (f"[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exec {words}; {words} & "
                      f"until ls {saves}/step-*.safetensors; do sleep 0.01; done; kill -9 $!; wait $!")
            killed = self.sh(script, "--nproc-per-node", 2, "--max-restarts", 1)
            self.assertEqual(killed.returncode, 0, killed.stderr)
            self.assertIn("restarting all ranks (1 of 1)", killed.stderr)
            self.assertRegex(killed.stderr, f"resumed from {saves}/step-[0-9]*.safetensors, after step [0-9]+ of 200")
            hashes = [json.loads(done.stdout.splitlines()[-1])["weights_hash"] for done in (whole, killed)]
            self.assertEqual(hashes[0], hashes[1])


class Verbs(Tool):
    def setUp(self):
        super().setUp()
        self.yoke(*SHORT, "--checkpoint-dir", "saves", "--checkpoint-every", "4", "--keep-best", "--evaluate-every", "1")
        self.last = "saves/step-00000015.safetensors"

    def damage(self):
        path = self.folder / self.last
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)

    def test_list_names_every_checkpoint_and_what_is_damaged(self):
        listed = self.yoke("checkpoint", "list", "saves").stdout.splitlines()
        self.assertEqual(len(listed), 1 + len(self.saves()))
        self.assertRegex(listed[-1], r"^step-00000015.safetensors +15 +3 +mlp for 1x8x8")
        listed = json.loads(self.yoke("checkpoint", "list", "saves", "--json").stdout)["checkpoints"]
        for entry in listed:  # epochs of 5 steps, counted from 1
            self.assertEqual(entry["epoch"], (int(entry["step"]) + 4) // 5, entry["file"])
        self.damage()
        listed = json.loads(self.yoke("checkpoint", "list", "saves", "--json").stdout)["checkpoints"]
        self.assertEqual([entry["valid"] for entry in listed], [True] * (len(listed) - 1) + [False])
        self.assertIn("does not match its digest", listed[-1]["error"])
        self.yoke("checkpoint", "list", "nowhere", code=66)

    def test_show_prints_facts_and_tensors(self):
        words = self.yoke("checkpoint", "show", self.last).stdout
        for pattern in [r"step +15\n", r"config.batch +20\n", r"fc1.weight +F32 +\[1024, 64\] +[0-9a-f]{16}\n",
                        r"optimizer.fc3.bias.momentum_buffer +F32 +\[10\]"]:
            self.assertRegex(words, pattern)
        shown = json.loads(self.yoke("checkpoint", "show", self.last, "--json").stdout)
        self.assertEqual((shown["facts"]["step"], shown["facts"]["config.seed"]), ("15", "0"))
        self.assertEqual(len(shown["tensors"]), 12)

    def test_verify_exits_with_the_code_of_the_first_bad_file(self):
        self.assertIn("step-00000015.safetensors: valid\n",
                      self.yoke("checkpoint", "verify", *[f"saves/{name}" for name in self.saves()]).stdout)
        self.damage()
        self.assertRegex(self.yoke("checkpoint", "verify", self.last, code=65).stderr,
                         r"yoke: saves/step-00000015.safetensors: altered: tensor \S+, bytes [0-9]+ to [0-9]+, ")
        self.yoke("checkpoint", "verify", "nowhere", code=66)

    def test_diff_names_the_tensors_that_differ(self):
        self.assertIn("0 of 12 tensors differ", self.yoke("checkpoint", "diff", self.last, self.last).stdout)
        again = [*SHORT, "--lr", "0.051", "--resume", self.last, "--resume-anyway", "learning_rate", "--epochs", "4",
                 "--checkpoint-dir", "more"]
        self.yoke(*again)
        words = self.yoke("checkpoint", "diff", self.last, "more/step-00000020.safetensors", code=1).stdout
        self.assertRegex(words, r"config.learning_rate +0.05, and 0.051\n")
        self.assertRegex(words, r"fc1.weight +[0-9]+ +[0-9.e-]+ +[0-9]+\n")
        found = json.loads(self.yoke("checkpoint", "diff", self.last, "more/step-00000020.safetensors", "--json",
                                     code=1).stdout)
        self.assertEqual(found["tensors"], 12)
        self.assertGreater(found["different"][0]["max_ulps"], 0)

    def test_diff_compares_every_type_byte_by_byte_and_names_facts_of_one_file(self):
        same = [("same.ints", "I32", [3], bytes(12)), ("same.half", "BF16", [2], b"\1\2\3\4"), ("same.f8", "F8_E4M3", [2], b"ab")]
        first = [("ints", "I32", [3], bytes(12)), ("half", "BF16", [2], b"\0\0\x80\x3f"), ("wide", "F64", [1], bytes(8)),
                 ("nibbles", "F4", [4], b"ab")]
        second = [("ints", "I32", [3], bytes(11) + b"\1"), ("half", "BF16", [2], b"\0\0\x81\x3f"),
                  ("wide", "F64", [1], b"\1" + bytes(7)), ("nibbles", "F4", [4], b"ac")]
        left = self.rewrite(self.last, "left", tensors=same + first, notes=[("of.left", "1")])
        right = self.rewrite(self.last, "right", tensors=same + second, notes=[("of.right", "2")])
        words = self.yoke("checkpoint", "diff", left, right, code=1).stdout
        for pattern in [r"of.left +1, only in the first\n", r"of.right +2, only in the second\n", r"\nhalf +1 +0.0078125 ",
                        r"\nints +1 of 3 values of I32 differ\n", r"\nwide +1 of 1 values of F64 differ\n",
                        r"\nnibbles +F4 values differ\n", r"\n4 of 19 tensors differ\n"]:
            self.assertRegex(words, pattern)
        self.assertNotIn("same", words)
        facts = json.loads(self.yoke("checkpoint", "diff", left, right, "--json", code=1).stdout)["facts"]
        self.assertEqual(facts, [{"name": "of.left", "first": "1", "second": None},
                                 {"name": "of.right", "first": None, "second": "2"}])

    def test_texts_of_a_file_do_not_steer_the_terminal(self):
        evil = "\x1b]0;title\x07\x9b31m"
        left = self.rewrite(self.last, "saves/left.safetensors", notes=[(evil, "x"), ("config.model", evil), ("step", evil)],
                            tensors=[(evil, "I32", [1], bytes(4))])
        right = self.rewrite(self.last, "right", notes=[(evil, "y\x1b")], tensors=[(evil, "I32", [1], b"abcd")])
        for arguments, code in [(["show", left], 0), (["diff", left, right], 1), (["list", "saves"], 0)]:
            words = self.yoke("checkpoint", *arguments, code=code).stdout
            self.assertIn(r"\x1b]0;title\x07\x9b31m", words)
            self.assertNotRegex(words, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")

    def test_a_state_with_nonsense_in_it_is_not_resumed(self):
        name = "optimizer.fc3.bias.momentum_buffer"
        for change, words in [({"notes": [("epoch", "-1")]}, "epoch is '-1', not an integer from 0 to"),
                              ({"notes": [("epoch_batches", "0x3")]}, "epoch_batches is '0x3'"),
                              ({"notes": [("best", "nan")]}, "best is 'nan', not a number"),
                              ({"notes": [("run.threads", "")]}, "run.threads is ''"),
                              ({"shapes": [(name, [2, 5])]}, f"{name} is F32 [2,5], not F32 [10]")]:
            wrong = self.rewrite(self.last, "wrong", **change)
            self.assertIn(words, self.yoke(*SHORT, "--resume", wrong, code=65).stderr)

    def test_a_complete_run_says_so(self):
        words = self.yoke(*[word for word in SHORT if word != "--quiet"], "--resume", self.last).stderr
        self.assertIn("after step 15 of 15: the run is complete\n", words)
        self.assertIn("\nepoch 3 ", words)

    def test_usage_is_checked(self):
        for arguments in [[], ["list"], ["diff", self.last], ["remove", self.last]]:
            self.assertIn("checkpoint takes list DIR", self.yoke("checkpoint", *arguments, code=2).stderr)
        for flags, words in [(["--keep", "2"], "need --checkpoint-dir"),
                             (["--resume", "auto"], "needs --checkpoint-dir"),
                             (["--resume", self.last, "--init", "w"], f"--resume {self.last} and --init w both"),
                             (["--resume-anyway", "batch"], "--resume-anyway batch needs --resume"),
                             (["--keep-best", "--checkpoint-dir", "d", "--evaluate-every", "-1"], "--evaluate-every 1"),
                             *[(["--checkpoint-every", every, "--checkpoint-dir", "d"], "as in 10m")
                               for every in ["5x", "0", "-1", "steps", "1e3steps", "0x10", " 5", "5 s", "1..5s", "."]],
                             *[(["--checkpoint-every", every, "--checkpoint-dir", "d"], f"'{every}' is not a whole")
                               for every in ["1.5steps", "1.5", "0.5epochs"]]]:
            with self.subTest(flags=flags):
                self.assertIn(words, self.yoke("train", *flags, code=2).stderr)
        self.yoke(*SHORT, "--checkpoint-dir", "minutes", "--checkpoint-every", "0.5m")

    def test_an_unknown_field_is_refused_with_the_names_of_all(self):
        fields = {"freeze_statistics"}  # of models with batch norm
        for name, options in [("a", []), ("b", ["--optimizer", "adamw", "--lr-schedule", "cosine"]),
                              ("c", ["--lr-schedule", "plateau"]), ("d", ["--optimizer", "rmsprop"]),
                              ("e", ["--loss-scale", "dynamic", "--loss-scale-interval", "7", "--test-views", "2"])]:
            self.yoke(*SHORT, *options, "--checkpoint-dir", name)
            shown = json.loads(self.yoke("checkpoint", "show", f"{name}/step-00000015.safetensors", "--json").stdout)
            fields |= {key[len("config."):] for key in shown["facts"] if key.startswith("config.")}
        for wrong in ["btach", "batch,,seed", "batch,", "run.steps"]:
            for resume in [["--resume", self.last], ["--resume", "auto", "--checkpoint-dir", "empty"]]:
                said = self.yoke(*SHORT, *resume, "--resume-anyway", wrong, code=2).stderr
                self.assertIn("is no option that a resume compares; these are ", said)
                self.assertEqual(set(said.strip().split("these are ")[1].split(", ")), fields)
        self.yoke(*SHORT, "--resume", self.last, "--resume-anyway", ",".join(sorted(fields)))

    def test_a_refusal_lists_every_field_to_go_on_with(self):
        run = [*SHORT, "--resume", self.last]
        groups = ["--group", "fc1.*:lr=0.5,decay=0.25;fc2.weight:lr=0.125;fc2.bias:decay=0.75"]
        said = self.yoke(*run, "--seed", "5", *groups, code=2).stderr
        self.assertIn("seed is 5 here and 0 there; groups is ", said)
        self.assertTrue(said.endswith(": --resume-anyway seed,groups\n"), said)
        other = """--seed 5 --batch 10 --accumulate 2 --lr 0.123456789 --weight-decay 0.123456789 --clip-norm 1.23456789
            --momentum 0.123456789 --nesterov --shuffle no --augment crop-flip --label-smoothing 0.123456789
            --lr-schedule cosine --warmup-steps 123456789 --dataset synthetic:1x8x8,rows=200""".split() + groups
        said = self.yoke(*run, *other, code=2).stderr
        named = said.strip().split("--resume-anyway ")[1].split(",")
        self.assertEqual(named, """seed batch accumulate learning_rate weight_decay clip_norm momentum nesterov groups
            dataset labels shuffle augment label_smoothing lr_schedule warmup_steps""".split())
        shown = said.count(" here and ")
        self.assertGreater(shown, 2)
        self.assertIn(f"; and {len(named) - shown} more; to go on with it all the same: ", said)

    def test_init_counts_where_there_is_no_checkpoint_to_resume(self):
        self.yoke(*SHORT, "--seed", "7", "--save", "w.safetensors", "--epochs", "1")
        once = [*SHORT, "--init", "w.safetensors"]
        loud = [word for word in once if word != "--quiet"]
        said = self.yoke(*loud, "--resume", "auto", "--checkpoint-dir", "new").stderr
        self.assertIn("no checkpoint in new: training begins from w.safetensors", said)
        self.assertEqual(self.hash(*once, "--resume", "auto", "--checkpoint-dir", "empty"), self.hash(*once))
        self.assertEqual(self.hash(*once, "--resume", "auto", "--checkpoint-dir", "saves"),
                         self.hash(*SHORT, "--resume", self.last))

    def test_keeping_the_best_of_one_evaluation_is_noted(self):
        loud = [word for word in SHORT if word != "--quiet"]
        for every, noted in [(["--evaluate-every", "0"], True), ([], False)]:
            said = self.yoke(*loud, "--checkpoint-dir", f"best{noted}", "--keep-best", *every).stderr
            self.assertEqual("--keep-best has one evaluation to compare" in said, noted, said)

    def test_a_checkpoint_can_be_evaluated(self):
        self.yoke("evaluate", "--init", self.last, "--model", "mlp", "--dataset", "synthetic:1x8x8,rows=100",
                  "--devices", "cpu")


if __name__ == "__main__":
    unittest.main()
