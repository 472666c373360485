#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model of text continues what it has learnt: yoke generate.

usage: test_generate.py YOKE [unittest arguments]. Exit code 77: this build has no gpt2.
"""
import contextlib
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
LIMIT_S = 900
TOKENIZER = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "tokenizer"
PERIOD = b"one\\two\n\xc3\xa4, "  # a backslash, a line break, two bytes that are one character


def yoke(*arguments):
    return subprocess.run([YOKE, *map(str, arguments)], capture_output=True, timeout=LIMIT_S, check=False)


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.text, cls.weights = cls.folder / "text", cls.folder / "w.safetensors"
        cls.text.write_bytes(PERIOD * 120)
        said = yoke("train", "--dataset", f"text:{cls.text},context=16", "--model",
                    "gpt2:layers=1,width=32,heads=2", "--optimizer", "adamw", "--lr", "0.01", "--batch", "16",
                    "--steps", "200", "--devices", "cpu", "--threads", "1", "--algorithm", "direct", "--quiet",
                    "--save", cls.weights)
        assert said.returncode == 0, said.stderr

    def generate(self, *arguments):
        result = yoke("generate", "--weights", self.weights, "--threads", "1", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_it_goes_on_with_what_it_has_learnt_past_the_context(self):
        said = self.generate("--prompt", "one\\t", "--length", "40", "--temperature", "0")
        self.assertEqual(said, (PERIOD * 5)[:45] + b"\n")

    def test_the_likeliest_byte_alone_is_the_greedy_text(self):
        greedy = self.generate("--prompt", "two\n", "--length", "30", "--temperature", "0")
        self.assertEqual(self.generate("--prompt", "two\n", "--length", "30", "--top-k", "1", "--seed", "9"), greedy)

    def test_a_seed_decides_the_text(self):
        def drawn(seed):
            return self.generate("--prompt", "o", "--length", "60", "--temperature", "20", "--seed", seed)

        self.assertEqual(drawn(1), drawn(1))
        self.assertNotEqual(drawn(1), drawn(2))
        self.assertEqual(len(drawn(1)), 62)
        self.assertLessEqual(set(drawn(1)), set(PERIOD))

    def test_a_terminal_sees_control_characters_as_text(self):
        text, weights = self.folder / "escapes", self.folder / "e.safetensors"
        text.write_bytes(b"\x1b[2Jab" * 200)
        said = yoke("train", "--dataset", f"text:{text},context=8", "--model", "gpt2:layers=1,width=8,heads=1",
                    "--batch", "8", "--steps", "2", "--devices", "cpu", "--threads", "1", "--quiet", "--no-cache",
                    "--save", weights)
        self.assertEqual(said.returncode, 0, said.stderr)
        command = ["generate", "--weights", weights, "--threads", "1", "--no-cache", "--prompt", "a", "--length", "60",
                   "--temperature", "9"]
        self.assertIn(b"\x1b", yoke(*command).stdout)  # a file gets the bytes
        ours, theirs = pty.openpty()
        with subprocess.Popen([YOKE, *map(str, command)], stdout=theirs, stderr=subprocess.DEVNULL) as process:
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):
                while part := os.read(ours, 4096):
                    shown += part
            os.close(ours)
            self.assertEqual(process.wait(), 0)
        self.assertNotIn(b"\x1b", shown)
        self.assertIn(b"\\x1b", shown)

    def test_evaluate_takes_the_context_from_the_weights(self):
        result = yoke("evaluate", "--weights", self.weights, "--dataset", f"text:{self.text}", "--threads", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        # Of 16 positions only the first one's next byte cannot be known: 15 / 16 are 93.75 %.
        accuracy = float(re.search(rb"accuracy ([0-9.]+) %", result.stdout)[1])
        self.assertGreaterEqual(accuracy, 93)
        self.assertIn(b"over 9 rows", result.stdout)

    def test_predict_and_photographs_are_refused(self):
        for words, operand in ((b"yoke generate", f"text:{self.text}"), (b"16 features", self.text)):
            result = yoke("predict", "--weights", self.weights, operand, "--threads", "1")
            self.assertEqual((result.returncode, result.stdout), (2, b""), result.stderr)
            self.assertIn(words, result.stderr)

    def test_what_it_cannot_continue_is_refused(self):
        for words, arguments in ((b"0x58", ["--prompt", "oX"]), (b"--prompt", ["--prompt", ""])):
            result = yoke("generate", "--weights", self.weights, *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, b""))
            self.assertIn(words, result.stderr)
        image = self.folder / "image.safetensors"
        self.assertEqual(yoke("train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=3,rows=60", "--steps",
                              "1", "--batch", "20", "--quiet", "--save", image).returncode, 0)
        result = yoke("generate", "--weights", image)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"text:FILE", result.stderr)


    def test_several_prompts_have_the_texts_of_each_alone(self):
        prompts = ["one", "t", "two\n\u00e4"]
        alone = b"".join(self.generate("--prompt", prompt, "--length", "30", "--temperature", "0") for prompt in prompts)
        several = [word for prompt in prompts for word in ("--prompt", prompt)]
        self.assertEqual(self.generate(*several, "--length", "30", "--temperature", "0"), alone)
        self.assertEqual(self.generate(*several, "--length", "30", "--temperature", "0", "--batch", "2"), alone)
        said = json.loads(self.generate(*several, "--length", "30", "--temperature", "0", "--json"))
        self.assertTrue(said["keeps_keys_and_values"])
        self.assertEqual([text["prompt"] for text in said["texts"]], prompts)
        self.assertEqual("".join(text["prompt"] + text["text"] + "\n" for text in said["texts"]), alone.decode(errors="replace"))
        self.assertEqual({text["ended"] for text in said["texts"]}, {"length"})
        self.assertEqual([len(text["tokens"]) for text in said["texts"]], [30] * 3)

    def test_a_file_of_prompts_draws_the_same_in_groups_of_any_size(self):
        prompts = self.folder / "prompts"
        prompts.write_text("one\nt\now\no")
        drawn = [self.generate("--prompts", prompts, "--length", "25", "--temperature", "3", "--batch", size)
                 for size in (1, 3, 16)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertEqual(drawn[0], drawn[2])
        self.assertEqual(drawn[0].count(b"\n") >= 4, True)
        narrow = self.generate("--prompts", prompts, "--length", "25", "--temperature", "3", "--top-p", "0.01")
        self.assertEqual(narrow, self.generate("--prompts", prompts, "--length", "25", "--temperature", "0"))

    def test_words_that_do_not_belong_together_are_refused(self):
        empty = self.folder / "empty"
        empty.write_bytes(b"")
        for code, words, arguments in (
                (2, b"leave --tokenizer out", ["--tokenizer", TOKENIZER]),
                (2, b"leave one out", ["--prompt", "o", "--prompts", empty]),
                (65, b"the file is empty", ["--prompts", empty]),
                (66, b"nowhere", ["--prompts", self.folder / "nowhere"]),
                (2, b"no special token", ["--prompt", "o", "--stop", "<|x|>"])):
            result = yoke("generate", "--weights", self.weights, *arguments)
            self.assertEqual((result.returncode, result.stdout), (code, b""), result.stderr)
            self.assertIn(words, result.stderr)


class GenerateTokens(unittest.TestCase):
    """Weights of the tokens of a BPE vocabulary."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.text, cls.weights = cls.folder / "text", cls.folder / "w.safetensors"
        cls.text.write_bytes(b"The model reads the text, doesn't it?<|endoftext|>" * 150)
        said = yoke("train", "--dataset", f"text:{cls.text},context=24,tokenizer={TOKENIZER}", "--model",
                    "gpt2:layers=1,width=32,heads=2", "--optimizer", "adamw", "--lr", "0.01", "--batch", "16",
                    "--steps", "150", "--devices", "cpu", "--threads", "1", "--algorithm", "direct", "--quiet",
                    "--save", cls.weights)
        if b"PCRE2" in said.stderr:
            raise unittest.SkipTest("this build has no PCRE2")
        assert said.returncode == 0, said.stderr

    def generate(self, *arguments):
        return yoke("generate", "--weights", self.weights, "--tokenizer", TOKENIZER, "--threads", "1", "--temperature", "0",
                    *arguments)

    def test_it_goes_on_to_the_end_of_the_text(self):
        result = self.generate("--prompt", "The model", "--length", "60")
        self.assertEqual((result.returncode, result.stdout), (0, b"The model reads the text, doesn't it?\n"), result.stderr)
        said = json.loads(self.generate("--prompt", "The model", "--json").stdout)["texts"][0]
        self.assertEqual((said["text"], said["ended"]), (" reads the text, doesn't it?", "stop"))
        self.assertEqual(said["prompt_tokens"], 3)

    def test_without_a_stop_it_goes_past_the_end_and_the_context(self):
        result = self.generate("--prompt", "The model", "--length", "80", "--stop", "none")
        self.assertTrue(result.stdout.startswith(b"The model reads the text, doesn't it?<|endoftext|>The model reads"), result.stdout)

    def test_without_a_prompt_it_begins_a_text(self):
        self.assertEqual(self.generate("--length", "60").stdout, b"The model reads the text, doesn't it?\n")

    def test_tokenizers_that_do_not_fit_are_refused(self):
        broken, other = self.folder / "broken.json", self.folder / "other.json"
        broken.write_text("{")
        larger = json.loads((TOKENIZER / "tokenizer.json").read_text())
        larger["added_tokens"].append({**larger["added_tokens"][-1], "id": 5000, "content": "<|x|>"})
        other.write_text(json.dumps(larger))
        for code, words, arguments in (
                (2, b"name their tokenizer", []),
                (65, b"not JSON", ["--tokenizer", broken]),
                (66, b"neither a tokenizer.json", ["--tokenizer", self.folder]),
                (2, b"token 5000 of", ["--tokenizer", other, "--prompt", "a<|x|>"])):
            result = yoke("generate", "--weights", self.weights, *arguments)
            self.assertEqual((result.returncode, result.stdout), (code, b""), result.stderr)
            self.assertIn(words, result.stderr)

    def test_published_names_are_read(self):
        """A file as transformers saves it: a prefix, masks, and no description."""
        foreign = self.folder / "foreign.safetensors"
        data = self.weights.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header, values = json.loads(data[8:8 + size]), data[8 + size:]
        header = {f"transformer.{name}": entry for name, entry in header.items() if name != "__metadata__"}
        header["transformer.h.0.attn.bias"] = {"dtype": "U8", "shape": [1, 1, 24, 24], "data_offsets": [len(values), len(values) + 576]}
        text = json.dumps({**header, "__metadata__": {"format": "pt"}}).encode()
        text += b" " * (-len(text) % 8)
        foreign.write_bytes(len(text).to_bytes(8, "little") + text + values + b"\1" * 576)
        model = ["--model", "gpt2:layers=1,width=32,heads=2"]
        result = yoke("generate", "--weights", foreign, "--tokenizer", TOKENIZER, "--threads", "1", "--temperature", "0",
                      "--prompt", "The model", *model)
        self.assertEqual((result.returncode, result.stdout), (0, b"The model reads the text, doesn't it?\n"), result.stderr)
        for words, arguments in ((b"--model NAME", []), (b"missing", ["--model", "gpt2:layers=2,width=32,heads=2"])):
            result = yoke("generate", "--weights", foreign, "--tokenizer", TOKENIZER, "--prompt", "The", *arguments)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(words, result.stderr)


class GeneratePairs(unittest.TestCase):
    """A transformer learns to turn words around."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.pairs, cls.weights = cls.folder / "pairs.tsv", cls.folder / "w.safetensors"
        words = [first + second + third for first in "abcde" for second in ["", *"abcde"] for third in "abcde"]
        cls.pairs.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
        said = yoke("train", "--dataset", f"pairs:{cls.pairs}", "--model",
                    "transformer:layers=1,width=32,heads=2,feedforward=64", "--optimizer", "adam", "--lr", "0.003", "--batch",
                    "16", "--epochs", "60", "--devices", "cpu", "--threads", "1", "--algorithm", "direct", "--save",
                    cls.weights)
        assert said.returncode == 0, said.stderr
        cls.said = said.stderr

    def generate(self, *arguments):
        return yoke("generate", "--weights", self.weights, "--threads", "1", *arguments)

    def test_it_writes_the_target_of_a_source(self):
        right = 0
        for source in ("ab", "edc", "cab", "bb", "aed"):
            result = self.generate("--prompt", source)
            self.assertEqual(result.returncode, 0, result.stderr)
            right += result.stdout.decode() == source[::-1] + "\n"
        self.assertGreaterEqual(right, 4)

    def test_training_says_how_to_generate(self):
        self.assertIn(b"generate --weights", self.said)
        self.assertNotIn(b"predict", self.said)

    def test_evaluate_counts_no_padding(self):
        result = yoke("evaluate", "--weights", self.weights, "--dataset", f"pairs:{self.pairs}", "--threads", "1", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreaterEqual(json.loads(result.stdout)["accuracy"], 0.8)

    def test_sources_that_cannot_be_are_refused(self):
        for words, arguments in ((b"0x58", ["--prompt", "aX"]), (b"more than 4 bytes", ["--prompt", "abcde"]),
                                 (b"give it, --prompt TEXT", [])):
            result = self.generate(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, b""))
            self.assertIn(words, result.stderr)

    def test_shorter_batches_learn_the_same(self):
        def test_loss(*options):
            said = yoke("train", "--dataset", f"pairs:{self.pairs},context=12", "--model", "transformer:layers=1,width=16,heads=2",
                        "--batch", "16", "--epochs", "2", "--threads", "1", "--algorithm", "direct", "--json", *options)
            self.assertEqual(said.returncode, 0, said.stderr)
            return json.loads(said.stdout)["test_loss"]

        padded = test_loss("--devices", "cpu")
        for devices in ("cpu", "3xcpu"):
            self.assertAlmostEqual(test_loss("--devices", devices, "--length-buckets", "3"), padded, delta=1e-4)
        by_length = ["--sampling", "by-length", "--devices", "2xcpu"]
        self.assertAlmostEqual(test_loss(*by_length), test_loss(*by_length, "--length-buckets", "4"), delta=1e-4)

    def test_buckets_of_rows_without_lengths_are_refused(self):
        for words, flags in ((b"a label for each", ["--length-buckets", "2"]), (b"no input 'length'", ["--sampling", "by-length"])):
            result = yoke("train", "--dataset", "synthetic:1x8x8,classes=3,rows=60", "--model", "mlp", "--steps", "1",
                          "--batch", "20", *flags)
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)

    def test_other_rows_are_refused(self):
        text = self.folder / "text"
        text.write_bytes(PERIOD * 120)
        result = yoke("train", "--model", "transformer", "--dataset", f"text:{text},context=16", "--batch", "16",
                      "--steps", "1")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"'source_length'", result.stderr)


if __name__ == "__main__":
    if b"gpt2" not in yoke("model", "list").stdout:
        print("skipped: this build has no gpt2")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
