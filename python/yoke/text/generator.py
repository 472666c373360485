# SPDX-License-Identifier: Apache-2.0
"""yoke.Generator continues texts of tokens, yoke.Tokenizer makes them: thin over include/yoke/generator.h and tokenizer.h."""
from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Iterable, Sequence

import numpy

from .._arguments import algorithm_cache, set_option
from .._library import LIBRARY, make, plain
from ..builder import Model, shape_struct
from ..engine.batches import whole_labels
from ..engine.weights import write_weights


class Generator:
    """Texts that a model continues side by side: generator.generate([[5, 1], [7]], 20).

    model: a preset's name, with context and classes; or a yoke.Model that reads one row of tokens. weights: a safetensors
    file, also of transformers' GPT-2, or {name: array}; None: those that come with the model. options: fields of
    yoke_generator_options (rows, drop, chunk, whole, precision, algorithm, ...). info: rows, context, classes, keeps, ...
    """

    def __init__(self, model: str | Model, weights: Any = None, *, context: int | None = None, classes: int | None = None,
                 devices: str | None = None, threads: int = 0, **options: Any):
        self._generator, opened = ctypes.c_void_p(), ctypes.c_void_p()
        if isinstance(model, str):
            if not context or not classes:
                raise ValueError(f"{model}: a preset needs context=TOKENS of a text and classes=TOKENS of the vocabulary")
            LIBRARY.yoke_model_preset(ctypes.byref(made := ctypes.c_void_p()), model.encode(), shape_struct(context), classes, None)
            weakref.finalize(self, LIBRARY.yoke_model_destroy, made)
            model = Model(made)
        self.model, own = model, make("yoke_generator_options", "YOKE_GENERATOR_OPTIONS_INIT")
        kept = options.get("algorithm") != "direct" and {"algorithm_cache": algorithm_cache(), "replace_broken_cache": True}
        for name, value in {**(kept or {}), **options}.items():
            set_option((own,), name, value)
        listed = make("yoke_devices_options", "YOKE_DEVICES_OPTIONS_INIT", threads=threads, list=devices and devices.encode())
        LIBRARY.yoke_devices_open(ctypes.byref(opened), ctypes.byref(listed))
        weakref.finalize(self, LIBRARY.yoke_devices_close, opened)
        LIBRARY.yoke_generator_create(ctypes.byref(self._generator), model.handle, opened, ctypes.byref(own))
        weakref.finalize(self, LIBRARY.yoke_generator_destroy, self._generator)  # the last finalizer comes first
        engine, info = LIBRARY.yoke_generator_engine(self._generator), make("yoke_generator_info")
        if isinstance(weights, (str, os.PathLike)):
            LIBRARY.yoke_weights_load(engine, model.handle, os.fsencode(weights))
        else:
            write_weights(engine, model, model.weights if weights is None else weights)
        LIBRARY.yoke_generator_describe(self._generator, ctypes.byref(info))
        self.info = plain(info)

    def begin(self, row: int, tokens: Sequence[int] | numpy.ndarray) -> None:
        """Begins a text anew with these tokens."""
        own = numpy.asarray(tokens)
        if own.ndim != 1 or own.size and own.dtype.kind not in "iu":
            raise TypeError(f"tokens are {own.dtype} of shape {own.shape}: expected whole numbers, one behind the other")
        own = whole_labels(own, "tokens")
        LIBRARY.yoke_generator_begin(self._generator, row, own.ctypes.data, own.size)

    def append(self, row: int, token: int) -> None:
        """Appends a token to a text."""
        LIBRARY.yoke_generator_append(self._generator, row, token)

    def outputs(self) -> numpy.ndarray:
        """[rows, classes]: the model's output behind the last token of each text."""
        found = numpy.empty((self.info["rows"], self.info["classes"]), numpy.float32)
        LIBRARY.yoke_generator_read(self._generator, found.ctypes.data)
        return found

    def generate(self, prompts: Iterable[Sequence[int] | numpy.ndarray], count: int, *, temperature: float = 0.0,
                 top_k: int = 0, top_p: float = 1.0, seed: int = 0, stop: int | None = None) -> list[numpy.ndarray]:
        """The tokens that follow each prompt, `count` or, with a stop token, up to and with the first of it."""
        prompts, rows, made = list(prompts), self.info["rows"], 0
        if not 0 < len(prompts) <= rows:
            raise ValueError(f"{len(prompts)} prompts, the generator has 1 to {rows}: rows=N of them")
        for row in range(len(prompts)):
            self.begin(row, prompts[row])
        sampling = make("yoke_token_sampling", "YOKE_TOKEN_SAMPLING_INIT", temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        found, done = numpy.empty((count, rows), numpy.int32), numpy.zeros(rows, bool)
        while made < count and not done[:len(prompts)].all():
            LIBRARY.yoke_generator_next(self._generator, ctypes.byref(sampling), found[made].ctypes.data)
            done, made = done | (found[made] == stop), made + 1
        texts = found[:made, :len(prompts)].T
        return [text[:numpy.flatnonzero(text == stop)[0] + 1] if (text == stop).any() else text for text in texts]


class Tokenizer:
    """path: a tokenizer.json, a vocab.json with merges.txt beside it, or a folder with either."""

    def __init__(self, path: str | os.PathLike[str]):
        self._tokenizer = ctypes.c_void_p()
        LIBRARY.yoke_tokenizer_open(ctypes.byref(self._tokenizer), os.fsencode(path))
        weakref.finalize(self, LIBRARY.yoke_tokenizer_close, self._tokenizer)

    def __len__(self) -> int:
        """Tokens of the vocabulary."""
        return LIBRARY.yoke_tokenizer_count(self._tokenizer)

    def encode(self, text: str | bytes) -> numpy.ndarray:
        """The tokens of a str or of bytes, as int32."""
        text, count = text.encode() if isinstance(text, str) else text, ctypes.c_size_t()
        tokens = numpy.empty(len(text) + 1, numpy.int32)
        LIBRARY.yoke_tokenizer_encode(self._tokenizer, text, len(text), tokens.ctypes.data, ctypes.byref(count))
        return tokens[:count.value].copy()

    def decode_bytes(self, tokens: Sequence[int] | numpy.ndarray) -> bytes:
        """The bytes of the tokens, one behind the other."""
        tokens, size = numpy.ascontiguousarray(tokens, numpy.int32), ctypes.c_size_t()
        given = self._tokenizer, tokens.ctypes.data, tokens.size
        LIBRARY.yoke_tokenizer_decode(*given, None, 0, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        LIBRARY.yoke_tokenizer_decode(*given, text, size.value, ctypes.byref(size))
        return text.raw

    def decode(self, tokens: Sequence[int] | numpy.ndarray) -> str:
        """Their text; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(tokens).decode(errors="replace")

    def special(self, text: str) -> int | None:
        """The id of an added token, as "<|endoftext|>"; None: there is none."""
        return None if (found := LIBRARY.yoke_tokenizer_special(self._tokenizer, text.encode())) < 0 else found
