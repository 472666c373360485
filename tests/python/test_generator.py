#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke.Generator and yoke.Tokenizer: against transformers' GPT-2 with its cache and against `tokenizers`, where they are.

usage: test_generator.py SOURCE [unittest arguments]. Exit code 77: there is no numpy.
"""
import json
import pathlib
import sys
import tempfile
import unittest

try:
    import numpy
except ImportError:
    print("skipped: no numpy")
    sys.exit(77)
import yoke
from yoke.text import generator as own

try:
    import torch
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError:
    transformers = None
try:
    import tokenizers
except ImportError:
    tokenizers = None

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
FIXTURE = SOURCE / "tests" / "fixtures" / "tokenizer"
LAYERS, WIDTH, HEADS, CONTEXT, CLASSES = 3, 48, 4, 128, 97
NAME = f"gpt2:layers={LAYERS},width={WIDTH},heads={HEADS}"
SIZES = {"context": CONTEXT, "classes": CLASSES, "devices": "cpu", "threads": 1, "algorithm": "direct"}


def lively(module):
    """Weights large enough that the likeliest token changes from place to place."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, value in module.named_parameters():
            value.copy_(torch.randn_like(value) * (0.4 if value.ndim > 1 else 0.2) + (".ln_" in name and name.endswith("weight")))
    return module.eval()


@unittest.skipIf(transformers is None, "no transformers")
class Transformers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        config = GPT2Config(n_layer=LAYERS, n_embd=WIDTH, n_head=HEADS, n_positions=CONTEXT, vocab_size=CLASSES,
                            bos_token_id=0, eos_token_id=0)
        cls.module = lively(GPT2LMHeadModel(config))
        cls.module.save_pretrained(cls.folder)
        cls.weights = cls.folder / "model.safetensors"
        random = numpy.random.default_rng(0)
        cls.prompts = [random.integers(0, CLASSES, length).tolist() for length in (5, 1, 27, 33)]

    def theirs(self, prompt, count):
        with torch.no_grad():
            given = torch.tensor([prompt])  # a mask: token 0 is no padding
            found = self.module.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=count,
                                         do_sample=False, use_cache=True, eos_token_id=None, pad_token_id=0)
        return found[0, len(prompt):].tolist()

    def test_a_hundred_greedy_tokens_are_those_of_transformers(self):
        for options in ({}, {"whole": True}, {"devices": "2xcpu"}, {"chunk": 7}):
            generator = yoke.Generator(NAME, self.weights, **{**SIZES, "rows": 4, **options})
            found = generator.generate(self.prompts, 95)
            for prompt, tokens in zip(self.prompts, found):
                self.assertEqual(tokens.tolist(), self.theirs(prompt, 95), options)
            self.assertGreater(len({token for tokens in found for token in tokens.tolist()}), 10)
            self.assertEqual(generator.info["keeps"], "whole" not in options)
        one = yoke.Generator(NAME, self.weights, **SIZES)
        self.assertEqual(one.generate([self.prompts[2]], 100)[0].tolist(), self.theirs(self.prompts[2], 100))

    def test_outputs_are_those_of_transformers(self):
        generator = yoke.Generator(NAME, self.weights, rows=4, **SIZES)
        texts = [list(prompt) for prompt in self.prompts]
        for row, text in enumerate(texts):
            generator.begin(row, text)
        for token in (7, 0, 96):
            outputs = generator.outputs()
            for row, text in enumerate(texts):
                with torch.no_grad():
                    wanted = self.module(torch.tensor([text])).logits[0, -1].numpy()
                numpy.testing.assert_allclose(outputs[row], wanted, atol=1e-5 * abs(wanted).max())
                generator.append(row, token)
                text.append(token)

    def test_top_p_leaves_what_transformers_leaves(self):
        from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
        generator = torch.Generator().manual_seed(1)
        for temperature, top_k, top_p in ((1.0, 0, 0.9), (0.7, 0, 0.5), (1.3, 12, 0.8), (1.0, 3, 1.0), (2.0, 0, 0.05)):
            scores = torch.randn(1, CLASSES, generator=generator) * 2
            kept = TemperatureLogitsWarper(temperature)(None, scores)
            kept = TopKLogitsWarper(top_k)(None, kept) if top_k else kept
            kept = TopPLogitsWarper(top_p)(None, kept) if top_p < 1 else kept
            allowed = set(torch.isfinite(kept[0]).nonzero()[:, 0].tolist())
            sampling = own.make("yoke_token_sampling", "YOKE_TOKEN_SAMPLING_INIT", temperature=temperature, top_k=top_k,
                                top_p=top_p)
            outputs, token, seen = scores[0].numpy().copy(), own.ctypes.c_int(), set()
            for index in range(6000):
                own.LIBRARY.yoke_sample_token(outputs.ctypes.data, CLASSES, own.ctypes.byref(sampling), 0, index,
                                              own.ctypes.byref(token))
                seen.add(token.value)
            self.assertLessEqual(seen, allowed)
            likely = torch.softmax(kept[0], 0) > 0.003
            self.assertLessEqual(set(likely.nonzero()[:, 0].tolist()), seen)

    def test_other_layouts_of_the_file_are_read(self):
        from safetensors.torch import load_file, save_file
        state = load_file(self.weights)
        plain = {name.removeprefix("transformer."): value for name, value in state.items()}
        wanted = self.theirs(self.prompts[0], 20)

        def generate(state, name):
            save_file(state, self.folder / name)
            return yoke.Generator(NAME, self.folder / name, **SIZES).generate([self.prompts[0]], 20)[0].tolist()

        mask = torch.ones(CONTEXT, CONTEXT).tril()[None, None]
        masks = {f"h.{layer}.attn.{name}": value for layer in range(LAYERS)
                 for name, value in (("bias", mask.clone()), ("masked_bias", torch.tensor(-1e4)))}
        self.assertEqual(generate(plain, "plain"), wanted)
        self.assertEqual(generate({**plain, **masks}, "masks"), wanted)
        self.assertEqual(generate({**state, **{f"transformer.{name}": mask for name, mask in masks.items()}}, "both"), wanted)
        tied = {**state, "lm_head.weight": state["transformer.wte.weight"].clone()}
        self.assertEqual(generate(tied, "tied"), wanted)
        tied["lm_head.weight"][5, 3] += 1
        with self.assertRaisesRegex(yoke.YokeError, "lm_head.weight is not transformer.wte.weight"):
            generate(tied, "untied")
        with self.assertRaisesRegex(yoke.YokeError, "unknown"):
            generate({**state, "score.weight": torch.zeros(2, WIDTH)}, "more")
        with self.assertRaisesRegex(yoke.YokeError, "1 missing"):
            generate({name: value for name, value in state.items() if not name.endswith("wpe.weight")}, "less")


class Generators(unittest.TestCase):
    def make(self, **options):
        generator = yoke.Generator(NAME, {}, **{**SIZES, **options})
        return generator

    def test_drawn_texts_repeat_and_do_not_depend_on_their_neighbours(self):
        both, one = self.make(rows=2), self.make()
        drawn = {"temperature": 1.0, "top_k": 40, "seed": 5}
        first = both.generate([[1, 2], [3]], 30, **drawn)
        self.assertEqual(first[0].tolist(), one.generate([[1, 2]], 30, **drawn)[0].tolist())
        again = both.generate([[1, 2], [3]], 30, **drawn)
        self.assertEqual([text.tolist() for text in first], [text.tolist() for text in again])
        other = both.generate([[1, 2], [3]], 30, **{**drawn, "seed": 6})
        self.assertNotEqual(first[0].tolist(), other[0].tolist())

    def test_a_stop_token_ends_a_text(self):
        generator = self.make(rows=2)
        whole = generator.generate([[1], [2]], 40, temperature=1.0)
        stop = int(whole[0][7])
        stopped = generator.generate([[1], [2]], 40, temperature=1.0, stop=stop)
        for text, ended in zip(whole, stopped):
            tokens = text.tolist()
            self.assertEqual(ended.tolist(), tokens[:tokens.index(stop) + 1] if stop in tokens else tokens)

    def test_wrong_arguments_are_refused(self):
        generator = self.make()
        for error, call in ((ValueError, lambda: generator.generate([[1], [2]], 3)),
                            (yoke.YokeError, lambda: generator.generate([[CLASSES]], 3)),
                            (yoke.YokeError, lambda: generator.generate([[]], 3)),
                            (yoke.YokeError, lambda: generator.generate([[1]], 3, temperature=1.0, top_p=2.0)),
                            (ValueError, lambda: yoke.Generator("gpt2")),
                            (TypeError, lambda: self.make(row=2))):
            with self.assertRaises(error):
                call()


class Tokenizers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.own = yoke.Tokenizer(FIXTURE)
        try:
            cls.own.encode("a")
        except yoke.YokeError as error:
            raise unittest.SkipTest(str(error)) from None

    def test_texts_go_round(self):
        for row in json.loads((FIXTURE / "texts.json").read_text()):
            self.assertEqual(self.own.encode(row["text"]).tolist(), row["ids"])
            self.assertEqual(self.own.decode(row["ids"]), row["text"])
        self.assertEqual(len(self.own), 701)
        self.assertEqual((self.own.special("<|end|>"), self.own.special("the")), (700, None))
        self.assertEqual(self.own.decode_bytes(self.own.encode(b"\xff\x00a")), b"\xff\x00a")

    @unittest.skipIf(tokenizers is None, "no tokenizers")
    def test_drawn_texts_have_their_tokens(self):
        theirs, random = tokenizers.Tokenizer.from_file(str(FIXTURE / "tokenizer.json")), numpy.random.default_rng(0)
        parts = [*"abst'm  \n\t12,.\u00e9\u00df\u6f22\u0301\u00a0\u3000\u2028\u180e\u0663\U0001f600", "<|endoftext|>", "'re", "the", " of"]
        for _ in range(3000):
            text = "".join(random.choice(parts, random.integers(0, 30)))
            self.assertEqual(self.own.encode(text).tolist(), theirs.encode(text).ids, repr(text))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
