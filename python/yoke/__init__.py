# SPDX-License-Identifier: Apache-2.0
"""Yoke from Python: train on numpy arrays, build networks or take PyTorch's, predict, read and write weights, run the tool.
docs/python.md shows how."""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._arguments import algorithm_cache
from ._library import LAYOUT, LIBRARY, FromTorchError, YokeError, tool
from .builder import Builder, Model, Node
from .data_parallel import DataParallel

if TYPE_CHECKING:
    from .distributed.launch import launch
    from .distributed.process_group import DistributedDataParallel, ProcessGroup
    from .onnx import from_onnx
    from .text.generator import Generator, Tokenizer
    from .training.train import Result, train
    from .training.trainer import Trainer

__all__ = ["Builder", "DataParallel", "DistributedDataParallel", "FromTorchError", "Generator", "Model", "Node",
           "ProcessGroup", "Result", "Tokenizer", "Trainer", "YokeError", "from_onnx", "from_torch", "launch", "tool", "train"]
__version__: str = LIBRARY.yoke_version().decode()
# Where the names are that a program may never ask for: importing yoke then costs little more than importing numpy.
_LATER = {"Trainer": "training.trainer", "train": "training.train", "Result": "training.train",
          "Generator": "text.generator", "Tokenizer": "text.generator", "from_onnx": "onnx", "launch": "distributed.launch",
          "ProcessGroup": "distributed.process_group",
          "DistributedDataParallel": "distributed.process_group"}


if not TYPE_CHECKING:  # for a checker every name would be there
    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def from_torch(module: Any, example: Any, loss: Any = "cross-entropy", **options: Any) -> Model:
    """A torch.nn.Module as a yoke.Model with its names and weights; pytorch/convert.py says what example and options are."""
    from .pytorch import from_torch as convert
    return convert(module, example, loss, **options)
