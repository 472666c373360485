# SPDX-License-Identifier: Apache-2.0
"""Files of ONNX: from_onnx reads one, write_onnx writes a model with an engine's weights. The C library does both
(yoke/onnx.h); neither needs Python's onnx."""
from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

from ._library import LIBRARY, make
from .builder import Model, _options, shape_struct


def from_onnx(path: str | os.PathLike[str], loss: str = "cross-entropy", *, input: Any = None, **options: Any) -> Model:
    """The network of a file, with its weights, for yoke.Trainer and yoke.DataParallel.

    input: the sizes of a row, where the file leaves some open. loss: the word of yoke_loss_kind, options its other fields.
    An operator that Yoke lacks raises YokeError, which names it and its node.
    """
    kept: list = []
    handle, chosen = ctypes.c_void_p(), _options("yoke_loss_options", {"kind": loss, **options}, kept)
    given = make("yoke_onnx_options", "YOKE_ONNX_OPTIONS_INIT", loss=ctypes.addressof(chosen))
    if input is not None:
        given.input = shape_struct(input)
    LIBRARY.yoke_model_load_onnx(ctypes.byref(handle), os.fsencode(path), ctypes.byref(given))
    weakref.finalize(handle, LIBRARY.yoke_model_destroy, ctypes.c_void_p(handle.value))
    return Model(handle)


def write_onnx(engine: Any, model: Model, path: str | os.PathLike[str]) -> None:
    """Writes the model with the engine's weights; names are the library's."""
    LIBRARY.yoke_weights_save_onnx(engine, model.handle, os.fsencode(path))
