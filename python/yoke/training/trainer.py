# SPDX-License-Identifier: Apache-2.0
"""One run from rows to weights: the trainer of the library with arrays, events as dicts and Ctrl-C."""
from __future__ import annotations

import ctypes
import os
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Callable

import numpy

from .._arguments import algorithm_cache, floats, set_option
from .._library import LAYOUT, LIBRARY, TYPES, make, plain
from ..builder import Model
from ..engine.groups import set_groups
from ..engine.weights import read_weights, write_weights
from .arrays import inputs_and_shape, open_arrays, open_for, rows_of
from .stream import Stream, is_batches

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._declared import TrainerOptions

EVENTS = {number: word for word, number in LAYOUT["enums"]["yoke_event_kind"].items()}


class Trainer:
    """One run, with the defaults of yoke train. The last reference to it frees devices and memory.

    model: a preset's name, or a yoke.Model, which takes inputs of any shape whose rows fit, a tuple of them where it has
    several, and a label for each position where its output is a sequence.
    inputs: float32 [rows, features] or [rows, channels, height, width]; or an iterable of batches (inputs, labels), and no
    labels. labels: integers [rows], or float32 targets [rows, targets]. test: (inputs, labels), or an iterable of batches,
    to evaluate on. Contiguous arrays are read in place while the trainer lives: do not write to them.
    classes: where labels may lack the last ones. channels_first: take a shape that looks like [rows, height, width,
    channels] as it is. groups: parameter groups, as of yoke.DataParallel. options: fields of yoke_trainer_options
    (dataset, devices, batch, epochs, ...), yoke_data_parallel_options and yoke_optimizer_options. mode="ddp": this process
    is a rank of those that a launcher has started.
    """
    _engine = property(lambda self: LIBRARY.yoke_trainer_engine(self._trainer))  # another one after a lost device

    def __init__(self, model: str | Model = "resnet20", inputs: Any = None, labels: Any = None, *, test: Any = None,
                 classes: int | None = None, channels_first: bool = False, optimizer: str = "sgd",
                 groups: list[dict[str, Any]] | None = None, **options: Unpack[TrainerOptions]):
        self._trainer, self._running, self._seen, self._reporting = ctypes.c_void_p(), None, 0, False  # in on_event
        self.history: list[dict[str, Any]] = []  # each yoke_event as a dict
        history, given = self.history, dict(options)
        usual = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 5e-4} if optimizer == "sgd" else {}
        rule = make("yoke_optimizer_options", f"YOKE_{optimizer}_OPTIONS_INIT".upper().replace("-", "_"), **usual)
        engine = make("yoke_data_parallel_options", "YOKE_DATA_PARALLEL_OPTIONS_INIT")
        run = make("yoke_trainer_options", "YOKE_TRAINER_OPTIONS_INIT", epochs=3, engine=ctypes.addressof(engine))
        own = "algorithm_cache" in given or given.get("algorithm") == "direct"
        cache = {} if own else {"algorithm_cache": algorithm_cache(), "replace_broken_cache": True}
        built = model if isinstance(model, Model) else None
        for name, value in {**({} if built else {"model": model}), "kind": optimizer, **cache, **given}.items():
            set_option((rule, engine, run), name, value)
        kept = [set_groups(engine, rule, built, getattr(built, "module", None), groups)] if built or groups else []
        if built:
            run.custom_model = built.handle.value
        if is_batches(inputs) or inputs is not None:
            self._open_rows(run, built, (inputs, labels), test, classes, channels_first, given)
        if run.mode == LAYOUT["enums"]["yoke_mode"]["ddp"]:
            kept.append(_meet(run))
        listener = ctypes.CFUNCTYPE(None, ctypes.POINTER(TYPES["yoke_event"]), ctypes.c_void_p)
        self._trainer.on_event = listener(lambda event, _payload: history.append(  # of self it would make a circle
            {**plain(event.contents), "kind": EVENTS[event.contents.kind]}))
        run.on_event, run.optimizer = ctypes.cast(self._trainer.on_event, ctypes.c_void_p), ctypes.addressof(rule)
        LIBRARY.yoke_trainer_create(ctypes.byref(self._trainer), ctypes.byref(run))
        weakref.finalize(self, LIBRARY.yoke_trainer_destroy, self._trainer)  # the last finalizer comes first
        del kept  # the engine has copied it
        if built and not run.init and not run.resume:
            write_weights(self._engine, built, built.weights)
            if run.mode == LAYOUT["enums"]["yoke_mode"]["ddp"]:
                LIBRARY.yoke_data_parallel_broadcast(self._engine)  # all ranks begin with rank 0's
        self._model = built or Model(LIBRARY.yoke_trainer_model(self._trainer))
        self._built = built is not None
        ranks = max(1, self.summary()["world"])
        self._rows = max(1, (run.batch or 64) // ranks // max(1, engine.accumulate) // max(1, engine.shards))

    @property
    def model(self) -> Model:
        """What it trains: the names and shapes of inputs, outputs and tensors."""
        return self._model

    def _open_rows(self, run, built, rows, test, classes, channels_first: bool, given: dict) -> None:
        """Sets the rows to train on and to evaluate on: arrays, or iterables of batches."""
        inputs, labels = rows
        if is_batches(inputs):
            if labels is not None:
                raise TypeError("an iterable of batches has its labels: give no others")
            stream = Stream(inputs, built, classes)
            classes, run.no_shuffle = stream.classes, True
            run.batch = run.batch if "batch" in given else stream.batch
            if stream.once and given.get("epochs", 1) != 1:
                raise ValueError(f"epochs is {run.epochs}, and an iterator is one pass: give what can be iterated again, a "
                                 "list or a DataLoader")
            run.epochs = 1 if stream.once else run.epochs
            run.training_rows = stream.open(self)
        elif built:
            run.training_rows = open_for(self, built, inputs, labels)
        else:
            run.training_rows, classes = open_arrays(self, inputs, labels, classes, channels_first)
        if is_batches(test):
            run.test_rows = Stream(test, built, classes).open(self)
        elif test is not None and built:
            run.test_rows = open_for(self, built, *test)
        elif test is not None:
            run.test_rows, _ = open_arrays(self, *test, classes, channels_first)
        run.evaluate_every = run.evaluate_every or -(test is None)

    def stop(self) -> None:
        """Lets run return after its step; any thread may call it. Without a run it does nothing."""
        if (running := self._running) and not running.done():  # run may end meanwhile
            LIBRARY.yoke_trainer_stop(self._trainer)

    def run(self, on_event: Callable[[dict[str, Any]], object] | None = None) -> dict[str, Any]:
        """Trains, and returns the summary. on_event gets each event as a dict, in the calling thread. Ctrl-C, or an
        exception of on_event, finishes the step and keeps its weights; run then raises it."""
        if self._reporting:
            raise RuntimeError("run was called inside on_event, while this trainer runs: call stop, and run afterwards")
        if self._running:  # a second Ctrl-C left it behind
            wait([self._running])
            self._seen = len(self.history)
        self._running = ThreadPoolExecutor(1).submit(lambda: LIBRARY.yoke_trainer_run(self._trainer))
        try:
            while not self._running.done() or self._seen < len(self.history):
                if self._seen == len(self.history):
                    wait([self._running], 0.02)  # Ctrl-C interrupts it, but no call of the library: hence the thread
                    continue
                event, self._seen = self.history[self._seen], self._seen + 1
                if event["kind"] in ("warning", "lost"):
                    warnings.warn(event["text"], stacklevel=2)
                if on_event:
                    self._reporting = True
                    on_event(event)
                    self._reporting = False
        except BaseException:
            self._reporting = False
            self.stop()
            wait([self._running])
            self._seen, self._running = len(self.history), None  # the frames of its exception hold self
            raise
        failure, self._running = [self._running.exception()], None
        if failure[0] and getattr(failure[0], "status", "") != "YOKE_ERROR_CANCELLED":
            raise failure.pop()  # of a variable it would make a circle
        return self.summary()

    def evaluate(self) -> dict[str, Any]:
        """Loss and accuracy on the test rows."""
        result = make("yoke_step_result")
        LIBRARY.yoke_trainer_evaluate(self._trainer, ctypes.byref(result))
        return {"loss": result.loss, "accuracy": result.correct / result.rows if result.correct >= 0 else None}

    def summary(self) -> dict[str, Any]:
        """What the run was and did: yoke_trainer_summary; weights_hash as yoke train prints it."""
        result = make("yoke_trainer_summary")
        LIBRARY.yoke_trainer_summarize(self._trainer, ctypes.byref(result))
        return {**plain(result), "weights_hash": f"{result.weights_hash:016x}"}

    def predict(self, inputs: Any) -> numpy.ndarray:
        """The model's outputs for inputs: float32, for a preset [rows, outputs]; logits for classes."""
        if self._built:
            arrays = rows_of(self._model, inputs, predicts=True)
        else:
            array, shape = inputs_and_shape(inputs)
            wanted = LIBRARY.yoke_model_input_shape(self._model.handle)
            if plain(shape) != plain(wanted):  # bytes would compare the padding, too
                raise ValueError(f"rows of inputs are {plain(shape)}, the model reads {plain(wanted)}")
            arrays = [array]
        count, traced = len(arrays[0]), self._model.traced_loss  # a loss that is output 0
        outputs = [numpy.empty((count if index or not traced else 0, *shape), numpy.float32)
                   for index, shape in enumerate(self._model.outputs.values())]
        zeros = [numpy.zeros((self._rows, *shape), numpy.float32)
                 for shape in list(self._model.inputs.values())[len(arrays):]]
        for first in range(0, count, self._rows):
            parts = [*(array[first:first + self._rows] for array in arrays), *zeros]
            more = (ctypes.c_void_p * len(parts))(*(part.ctypes.data for part in parts[1:]))
            batch = make("yoke_batch", rows=len(parts[0]), whole_rows=len(parts[0]), inputs=parts[0].ctypes.data, more_input_count=len(parts) - 1,
                         more_inputs=ctypes.cast(more, ctypes.c_void_p) if parts[1:] else None)
            wanted = (ctypes.c_void_p * len(outputs))(*(one[first:].ctypes.data if len(one) else None for one in outputs))
            LIBRARY.yoke_data_parallel_forward_outputs(self._engine, ctypes.byref(batch), False, wanted)
        index = 1 if traced else 0
        return self._model.arrange(index, outputs[index])

    def weights(self) -> dict[str, numpy.ndarray]:
        """Copies of all parameters and running statistics: {PyTorch's name: float32 of PyTorch's shape}."""
        return read_weights(self._engine, self._model)

    def write_onnx(self, path: str | os.PathLike[str]) -> None:
        """Writes network and weights as a file of ONNX, for inference."""
        from ..onnx import write_onnx
        write_onnx(self._engine, self._model, path)

    def write(self, weights: dict[str, Any]) -> None:
        """Writes arrays by name, some or all; checks them all before it writes one."""
        known = self.weights()
        if not weights.keys() <= known.keys():
            raise ValueError(f"the model has no tensor {', '.join(weights.keys() - known.keys())}: see weights()")
        ready = {name: floats(name, values, known[name].shape) for name, values in weights.items()}
        write_weights(self._engine, self._model, ready)


def _meet(run) -> list:
    """Sets how a rank of DDP meets the others: by the launcher's variables, where there are some."""
    from ..distributed.process_group import rank_of_environment
    rank = rank_of_environment()
    if not rank.source:
        return []
    group = make("yoke_process_group_options", "YOKE_PROCESS_GROUP_OPTIONS_INIT", rank=ctypes.addressof(rank))
    run.process_group = ctypes.addressof(group)
    return [rank, group]
