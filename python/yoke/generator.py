# SPDX-License-Identifier: Apache-2.0
"""Continues texts of tokens with a model that looks back only: yoke.Generator, thin over include/yoke/generator.h."""
from __future__ import annotations

import ctypes
import os
import weakref

import numpy

from ._arguments import algorithm_cache, set_option
from ._library import LIBRARY, make, plain
from .builder import Model, shape_struct
from .data_parallel import write_weights


def preset(name: str, context: int, classes: int) -> Model:
    """A preset as gpt2, for texts of so many tokens of so many classes."""
    handle, loss = ctypes.c_void_p(), make("yoke_loss_options", "YOKE_LOSS_OPTIONS_INIT")
    LIBRARY.yoke_model_preset(ctypes.byref(handle), name.encode(), shape_struct(context), classes, ctypes.byref(loss))
    return Model(handle)


class Generator:
    """Texts that a model continues side by side: generator.generate([[5, 1], [7]], 20).

    model: a preset's name ("gpt2:layers=12,width=768,heads=12"), with context and classes; or a yoke.Model whose input is
    one row of tokens and whose output has all classes at each position. weights: a safetensors file, also of transformers'
    GPT2LMHeadModel, or {name: array}; None: those that come with the model. options: fields of yoke_generator_options
    (rows, drop, chunk, whole, precision, algorithm, ...).
    """

    def __init__(self, model, weights=None, *, context: int | None = None, classes: int | None = None,
                 devices: str | None = None, threads: int = 0, **options):
        if isinstance(model, str):
            if not context or not classes:
                raise ValueError(f"{model}: a preset needs context=TOKENS of a text and classes=TOKENS of the vocabulary")
            model = preset(model, context, classes)
            weakref.finalize(self, LIBRARY.yoke_model_destroy, model.handle)
        self.model, self._generator, opened = model, ctypes.c_void_p(), ctypes.c_void_p()
        own = make("yoke_generator_options", "YOKE_GENERATOR_OPTIONS_INIT")
        if "algorithm_cache" not in options and options.get("algorithm") != "direct":
            options = {"algorithm_cache": algorithm_cache(), "replace_broken_cache": True, **options}
        for name, value in options.items():
            set_option((own,), name, value)
        listed = make("yoke_devices_options", "YOKE_DEVICES_OPTIONS_INIT", threads=threads)
        listed.list = devices and devices.encode()
        LIBRARY.yoke_devices_open(ctypes.byref(opened), ctypes.byref(listed))
        weakref.finalize(self, LIBRARY.yoke_devices_close, opened)
        LIBRARY.yoke_generator_create(ctypes.byref(self._generator), model.handle, opened, ctypes.byref(own))
        weakref.finalize(self, LIBRARY.yoke_generator_destroy, self._generator)  # the last finalizer comes first
        engine = LIBRARY.yoke_generator_engine(self._generator)
        if isinstance(weights, (str, os.PathLike)):
            LIBRARY.yoke_weights_load(engine, model.handle, os.fsencode(weights))
        else:
            write_weights(engine, model, model.weights if weights is None else weights)
        info = make("yoke_generator_info")
        LIBRARY.yoke_generator_describe(self._generator, ctypes.byref(info))
        self.info = plain(info)  # rows, context, classes, keeps, reason, kept_bytes

    def begin(self, row: int, tokens) -> None:
        """Begins a text anew with these tokens."""
        tokens = numpy.ascontiguousarray(tokens, numpy.int32)
        LIBRARY.yoke_generator_begin(self._generator, row, tokens.ctypes.data, tokens.size)

    def append(self, row: int, token: int) -> None:
        """Appends a token to a text."""
        LIBRARY.yoke_generator_append(self._generator, row, token)

    def outputs(self) -> numpy.ndarray:
        """[rows, classes]: the model's output behind the last token of each text."""
        found = numpy.empty((self.info["rows"], self.info["classes"]), numpy.float32)
        LIBRARY.yoke_generator_read(self._generator, found.ctypes.data)
        return found

    def generate(self, prompts, count: int, *, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0,
                 stop: int | None = None) -> list[numpy.ndarray]:
        """The tokens that follow each prompt, `count` or, with a stop token, up to and with the first of it."""
        prompts, rows = list(prompts), self.info["rows"]
        if not 0 < len(prompts) <= rows:
            raise ValueError(f"{len(prompts)} prompts, the generator has 1 to {rows}: rows=N of them")
        for row, prompt in enumerate(prompts):
            self.begin(row, prompt)
        drawing = make("yoke_drawing", "YOKE_DRAWING_INIT", temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        found, tokens = numpy.empty((count, rows), numpy.int32), numpy.empty(rows, numpy.int32)
        done, made = numpy.zeros(rows, bool), 0
        while made < count and not done[:len(prompts)].all():
            LIBRARY.yoke_generator_next(self._generator, ctypes.byref(drawing), tokens.ctypes.data)
            found[made], done, made = tokens, done | (tokens == stop), made + 1
        texts = [found[:made, row] for row in range(len(prompts))]
        return [text[:text.tolist().index(stop) + 1] if stop in text.tolist() else text for text in texts]
