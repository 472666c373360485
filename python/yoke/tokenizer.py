# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE, GPT-2's tokenizer: yoke.Tokenizer, thin over include/yoke/tokenizer.h."""
from __future__ import annotations

import ctypes
import os
import weakref

import numpy

from ._library import LIBRARY


class Tokenizer:
    """path: a tokenizer.json, a vocab.json with merges.txt beside it, or a folder with either."""

    def __init__(self, path):
        self._tokenizer = ctypes.c_void_p()
        LIBRARY.yoke_tokenizer_open(ctypes.byref(self._tokenizer), os.fsencode(path))
        weakref.finalize(self, LIBRARY.yoke_tokenizer_close, self._tokenizer)

    def __len__(self) -> int:
        return LIBRARY.yoke_tokenizer_count(self._tokenizer)

    def encode(self, text: str | bytes) -> numpy.ndarray:
        """Its tokens, as int32."""
        text = text.encode() if isinstance(text, str) else text
        tokens, count = numpy.empty(len(text) + 1, numpy.int32), ctypes.c_size_t()
        LIBRARY.yoke_tokenizer_encode(self._tokenizer, text, len(text), tokens.ctypes.data, ctypes.byref(count))
        return tokens[:count.value].copy()

    def decode_bytes(self, tokens) -> bytes:
        """The bytes of the tokens, one behind the other."""
        tokens, size = numpy.ascontiguousarray(tokens, numpy.int32), ctypes.c_size_t()
        own = self._tokenizer, tokens.ctypes.data, tokens.size
        LIBRARY.yoke_tokenizer_decode(*own, None, 0, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        LIBRARY.yoke_tokenizer_decode(*own, text, size.value, ctypes.byref(size))
        return text.raw[:size.value]

    def decode(self, tokens) -> str:
        """Their text; bytes that are not UTF-8 become U+FFFD, as in `tokenizers`."""
        return self.decode_bytes(tokens).decode(errors="replace")

    def special(self, text: str) -> int | None:
        """The id of an added token, as "<|endoftext|>"; None: there is none."""
        found = LIBRARY.yoke_tokenizer_special(self._tokenizer, text.encode())
        return found if found >= 0 else None
