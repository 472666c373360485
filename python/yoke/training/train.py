# SPDX-License-Identifier: Apache-2.0
"""yoke.train: a model and rows of any kind to a trained model, with one call."""
from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, Any, Callable

import numpy

from .._library import LIBRARY, make
from ..builder import Model, shape_sizes
from ..engine.batches import as_array
from ..engine.weights import torch_state
from .progress import progress_for
from .stream import Stream, is_batches
from .trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._declared import TrainOptions

MEASURED = ("loss", "accuracy", "test_loss", "test_accuracy", "learning_rate", "images_per_second")
EXAMPLE_ROWS = 4  # of a PyTorch module, to trace it and to compare its outputs


@dataclasses.dataclass
class Result:
    """What a run was and learned. history: a list for each of loss, accuracy, test_loss, test_accuracy, learning_rate and
    images_per_second, with a number for each epoch, None where it has none. summary: as of yoke.Trainer.summary."""
    trainer: Trainer
    summary: dict[str, Any]
    history: dict[str, list[Any]]

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every event of the run: steps, evaluations, epochs, files, warnings."""
        return self.trainer.history

    def predict(self, inputs: Any) -> numpy.ndarray:
        """The model's outputs for rows: logits for classes."""
        return self.trainer.predict(inputs)

    def weights(self) -> dict[str, numpy.ndarray]:
        """Copies of all parameters and running statistics, by PyTorch's names."""
        return self.trainer.weights()

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict of the PyTorch module takes, as tensors."""
        return torch_state(self.trainer.model, self.weights(), int(self.summary["steps"]))

    def __repr__(self) -> str:
        shown = {key: self.summary.get(key) for key in ("steps", "train_loss", "test_loss", "accuracy")}
        return f"<yoke.Result {shown}>"


def train(model: Any, data: Any, labels: Any = None, *, test: Any = None, loss: str | Callable[..., Any] = "cross-entropy",
          loss_options: dict[str, Any] | None = None, progress: Any = True,
          on_step: Callable[[dict[str, Any]], object] | None = None,
          on_epoch: Callable[[dict[str, Any]], object] | None = None,
          on_event: Callable[[dict[str, Any]], object] | None = None, **options: Unpack[TrainOptions]) -> Result:
    """Trains a model, and returns what it learned.

    model: a preset's name, a yoke.Model, or a torch.nn.Module, which has the learned weights afterwards.
    data: arrays, with labels as the next argument or in a pair (inputs, labels); an iterable of batches (inputs, labels),
    a DataLoader for example; a dataset's SPEC as the tool takes it ("cifar10:DIR", "images:DIR"); or a path, the folder
    of images of each class. test: rows to evaluate on, of any of these kinds but SPEC, which has its own.
    loss, loss_options: of a module, as in yoke.DataParallel. progress: False shows nothing, a file takes lines.
    on_step, on_epoch, on_event: get an event as a dict, in the calling thread; an exception ends the run after its step.
    options: as of yoke.Trainer (epochs, batch, devices, optimizer, learning_rate, lr_schedule, ...); the rows of a batch
    are those of the iterable's first one where batch is not given.
    """
    given: dict[str, Any] = dict(options)
    data, labels = _told_apart(data, labels)
    test = _test_rows(test)
    module = None if isinstance(model, (str, Model)) else model
    if module is not None:
        model, data, labels, test = _from_module(module, data, labels, test, loss, loss_options or {})
        model.module = module  # whose parameters groups may name
    elif loss != "cross-entropy" or loss_options:
        raise TypeError("loss and loss_options are for a module of PyTorch: a yoke.Model has its loss, a preset that of labels")
    if isinstance(data, str):
        if test is not None:
            raise TypeError("test with a dataset's SPEC: that has rows to evaluate on itself")
        trainer = Trainer(model, dataset=data, **given)
    else:
        trainer = Trainer(model, data, labels, test=test, **given)
    epochs = 0 if given.get("steps") else given.get("epochs", 3)
    shown = progress_for(progress if trainer.summary()["rank"] == 0 else False, epochs)
    calls = [call for call in (shown, on_event) if call]

    def each(event: dict[str, Any]) -> None:
        for call in calls:
            call(event)
        if on_step and event["kind"] == "step":
            on_step(event)
        if on_epoch and event["kind"] == "epoch":
            on_epoch(event)

    try:
        summary = trainer.run(each if calls or on_step or on_epoch else None)
    except BaseException:
        if module is not None and trainer._running is None:  # what it has learned until then
            module.load_state_dict(Result(trainer, trainer.summary(), {}).state_dict())
        raise
    finally:
        if shown:
            shown.close()
    ends = [event for event in trainer.history if event["kind"] == "epoch"]
    result = Result(trainer, summary, {key: [event.get(key) for event in ends] for key in MEASURED})
    if module is not None:
        module.load_state_dict(result.state_dict())
    return result


def _told_apart(data, labels):
    """Rows and labels, an iterable of batches and None, or a SPEC and None."""
    if isinstance(data, str):
        return (f"images:{data[len('folder:'):]}" if data.startswith("folder:") else data), labels
    if isinstance(data, os.PathLike):
        if not pathlib.Path(data).is_dir():
            raise FileNotFoundError(f"{os.fspath(data)} is no folder: expected one with a folder of images for each class")
        return f"images:{os.fspath(data)}", labels
    if hasattr(data, "tensors") and hasattr(data, "__getitem__"):  # a TensorDataset
        *inputs, last = data.tensors
        if not inputs or labels is not None:
            raise ValueError(f"a TensorDataset of {len(data.tensors)} tensors: expected inputs, then labels, and no others")
        return (tuple(inputs) if len(inputs) > 1 else inputs[0]), last
    if isinstance(data, list) and not data:
        raise ValueError("the list of batches is empty")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "shape") and \
            not isinstance(data, (tuple, list)) and not hasattr(data, "batch_size"):
        raise TypeError(f"a {type(data).__name__} has single rows: DataLoader(dataset, batch_size=64, shuffle=True) has batches")
    if labels is None and isinstance(data, tuple) and len(data) == 2:
        return data
    if isinstance(data, list) and data and isinstance(data[0], (tuple, list)) and len(data[0]) == 2:
        return Batches(data), labels
    return data, labels


def _test_rows(test):
    if test is None or is_batches(test):
        return test
    rows, labels = _told_apart(test, None)
    if isinstance(rows, str):
        raise TypeError("test is a dataset's SPEC: expected arrays (inputs, labels) or an iterable of batches")
    return rows if is_batches(rows) else (rows, labels)


class Batches:
    """A list of batches as an iterable of them."""

    def __init__(self, batches: list):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def _from_module(module, data, labels, test, loss, loss_options):
    """The model of a module, and the rows that it reads: with a loss of its own targets are inputs."""
    from ..pytorch import from_torch
    if isinstance(data, str):
        example, some = _example_of(data), None
    elif is_batches(data):
        stream = _Peeked(data)
        data, (example, some) = stream, stream.first
    else:
        example, some = data, labels
    inputs = tuple(_some_rows(one) for one in (example if isinstance(example, (tuple, list)) else (example,)))
    if callable(loss) and some is not None:
        targets = some if isinstance(some, (tuple, list)) else (some,)
        loss_options = {**loss_options, "targets": tuple(_some_rows(one) for one in targets)}
    model = from_torch(module, inputs, loss, **loss_options)
    if not model.traced_loss:
        return model, data, labels, test
    if isinstance(data, str) or is_batches(data) or is_batches(test):
        raise TypeError("a loss that is a function takes arrays: its targets are inputs of the model, and batches of an "
                        "iterable have one input. yoke.DataParallel's step takes them batch by batch")
    if test is not None:
        test = (_with_targets(*test), None)
    return model, _with_targets(data, labels), None, test


def _with_targets(inputs, labels) -> tuple:
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    return (*given, *(labels if isinstance(labels, (tuple, list)) else (labels,)))


class _Peeked:
    """An iterable of batches of which the first was looked at; an iterator gives it again."""

    def __init__(self, batches):
        iterator = iter(batches)
        self.batches, self.dataset = batches, getattr(batches, "dataset", None)
        self.first = next(iterator, None)
        if self.first is None:
            raise ValueError("the iterable of batches is empty")
        if not isinstance(self.first, (tuple, list)) or len(self.first) != 2:
            raise TypeError(f"batch 0 of the iterable is a {type(self.first).__name__}, expected a pair (inputs, labels)")
        self.rest = iterator if iterator is batches else None

    def __iter__(self):
        if self.rest is None:
            return iter(self.batches)
        return self

    def __next__(self):  # of an iterator: one pass
        if self.first is not None:
            found, self.first = self.first, None
            return found
        return next(self.rest)


def _some_rows(array):
    import torch
    part = array[:EXAMPLE_ROWS]
    return part if isinstance(part, torch.Tensor) else torch.from_numpy(numpy.array(as_array(part)))


def _example_of(spec: str):
    """Random rows of a dataset's shape."""
    import ctypes
    import torch
    dataset, info = ctypes.c_void_p(), make("yoke_dataset_info")
    words = {"train": 0}
    LIBRARY.yoke_dataset_open(ctypes.byref(dataset), os.fsencode(spec), words["train"])
    try:
        LIBRARY.yoke_dataset_describe(dataset, ctypes.byref(info))
        return torch.randn(EXAMPLE_ROWS, *shape_sizes(info.shape))
    finally:
        LIBRARY.yoke_dataset_close(dataset)
