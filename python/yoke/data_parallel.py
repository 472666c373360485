# SPDX-License-Identifier: Apache-2.0
"""A familiar face: yoke.DataParallel takes a PyTorch module or a model of the builder and trains it step by step."""
from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable

import numpy

from ._arguments import algorithm_cache, set_option
from ._library import LIBRARY, make
from .builder import Model
from .engine.batches import Batch, as_array
from .engine.exchange import Exchange
from .engine.groups import Rate, frozen_names, listed, set_groups
from .engine.weights import facts, read_gradients, read_weights, torch_state, write_weights

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._declared import EngineOptions
    from .distributed.process_group import ProcessGroup

STEP = LIBRARY.yoke_data_parallel_step  # without a look-up in every step


class DataParallel:
    """A network on all devices: loss = model.step(x, y), model(x) without learning, model.state_dict().

    module: a torch.nn.Module or a yoke.Model. devices: "4xcpu", "2xcuda", ...; None: every GPU, or one CPU device.
    optimizer: a word of yoke_optimizer_kind; its fields, and those of yoke_data_parallel_options, are keywords
    (learning_rate, momentum, clip_norm, accumulate, schedule, shards, ...).
    loss: of a module: a word of yoke_loss_kind, a loss of torch.nn, or a function of its outputs and the targets, of
    PyTorch's operators, which gives the mean over the batch; loss_options: other fields of yoke_loss_options.
    groups: parameter groups as torch.optim takes them: [{"params": ["head.*"], "lr": 0.1, "weight_decay": 0}].
    lr_schedule, steps, warmup_steps, lr_gamma, epoch_steps: as yoke_lr_schedule, or lr_schedule is a function of the step.
    batch: rows of the largest batch; None: those of the first. on_step: gets a dict after every step.
    process_group: of yoke.ProcessGroup; see yoke.DistributedDataParallel.
    exchange: a function of a bucket that makes the sums of gradients on CPU devices: docs/lesson.md.

    Of a module the first call makes the model, with its inputs as the example. Inputs are arrays or CPU tensors with the
    batch in dimension 0, read where they lie; a call holds them until it returns, and nobody may write to them meanwhile.
    The last reference to the object frees devices and memory.
    """

    def __init__(self, module: Any, devices: str | None = None, *, optimizer: str = "sgd",
                 loss: str | Callable[..., Any] = "cross-entropy", loss_options: dict[str, Any] | None = None,
                 batch: int | None = None, threads: int = 0, groups: list[dict[str, Any]] | None = None,
                 lr_schedule: str | Callable[[int], float] = "constant", steps: int = 0, warmup_steps: int = 0,
                 lr_gamma: float = 0.0, epoch_steps: int = 0, on_step: Callable[[dict[str, Any]], object] | None = None,
                 process_group: ProcessGroup | None = None, exchange: Callable[[Any], object] | None = None,
                 **options: Unpack[EngineOptions]):
        self.model: Model | None = module if isinstance(module, Model) else None
        self._module, self._device_list, self._threads, self._rows = module, devices, threads, batch
        self._loss, self._groups, self._process_group = (loss, loss_options or {}), listed(groups), process_group
        self._engine, self._batch, self._resume, self.on_step = None, None, None, on_step
        self.steps, self._limit = 0, 0  # updates done; rows of a call that the engine takes at once
        self._lock = threading.Lock()
        self._result = make("yoke_step_result")  # of every call
        self._result_at = ctypes.byref(self._result)
        self._rule = make("yoke_optimizer_options", f"YOKE_{optimizer}_OPTIONS_INIT".upper().replace("-", "_"))
        self._options = make("yoke_data_parallel_options", "YOKE_DATA_PARALLEL_OPTIONS_INIT")
        given: dict[str, Any] = dict(options)
        if "algorithm_cache" not in given and given.get("algorithm") != "direct":
            given = {"algorithm_cache": algorithm_cache(), "replace_broken_cache": True, **given}
        for name, value in {"kind": optimizer, **given}.items():
            set_option((self._rule, self._options), name, value)
        rate = Rate(self._rule, lr_schedule, steps, warmup_steps, lr_gamma, epoch_steps)
        self._rate = rate if rate.function or rate.schedule else None
        if process_group is not None:
            self._options.process_group = process_group.handle
        if exchange is not None:
            self._exchange = Exchange(exchange)
            self._options.custom_exchange = self._exchange.address

    def step(self, inputs: Any, labels: Any = None, learning_rate: float | None = None) -> float:
        """One update; returns the loss. inputs: an array, or a tuple of them. labels: classes as integers, or float
        targets; a tuple of what the loss takes where it is a function; None where the model computes its loss.
        learning_rate: of this step; None: the schedule's, or the optimizer's. In DDP the rows are this rank's."""
        with _Inside(self._lock):
            if self._engine is None:
                self._prepare(inputs, labels)
            _kept = self._batch.fill(inputs, labels)
            if learning_rate is None:  # a negative one is the optimizer's own
                learning_rate = self._rate.of(self.steps) if self._rate is not None else -1.0
            STEP(self._engine, self._batch.at, learning_rate, self._result_at)
            self.steps += 1
            loss = self._result.loss
        if self.on_step is not None:
            self.on_step({**self.last, "learning_rate": self._rule.learning_rate if learning_rate < 0 else learning_rate})
        return loss

    @property
    def last(self) -> dict[str, Any]:
        """The last step or evaluation: step, loss, accuracy, rows, gradient_norm (with clip_norm)."""
        result = self._result
        return {"step": self.steps, "loss": result.loss, "rows": result.rows,
                "accuracy": result.correct / max(result.labels, 1) if result.correct >= 0 else None,
                "gradient_norm": result.gradient_norm if result.gradient_norm >= 0 else None}

    def evaluate(self, inputs: Any, labels: Any = None) -> dict[str, Any]:
        """Loss and accuracy of a batch, without learning; accuracy is None for targets."""
        with _Inside(self._lock):
            _kept = self._fill(inputs, labels)
            LIBRARY.yoke_data_parallel_evaluate(self._engine, self._batch.at, self._result_at)
            last = self.last
            return {"loss": last["loss"], "accuracy": last["accuracy"]}

    def __call__(self, *inputs: Any) -> Any:
        """The outputs in eval mode, as arrays: one, or a tuple of several. torch.from_numpy takes them without a copy."""
        with _Inside(self._lock):
            _kept = self._fill(inputs, None)
            rows = self._batch.struct.rows
            if rows <= self._limit:
                outputs = self._forward(rows)
            else:  # more than the engine was made for
                parts, arrays = [], [as_array(one, "inputs") for one in inputs]
                for first in range(0, rows, self._limit):
                    _kept = self._batch.fill([array[first:first + self._limit] for array in arrays], None)
                    parts.append(self._forward(self._batch.struct.rows))
                outputs = [numpy.concatenate(one) for one in zip(*parts)]
        first = 1 if self.model.traced_loss else 0  # output 0 is the loss
        arranged = tuple(self.model.arrange(index, array) for index, array in enumerate(outputs) if index >= first)
        return arranged if len(arranged) > 1 else arranged[0]

    def _forward(self, rows: int) -> list[numpy.ndarray]:
        struct = self._batch.struct
        outputs = [numpy.empty((rows, *shape), numpy.float32) for shape in self.model.outputs.values()]
        pointers = (ctypes.c_void_p * len(outputs))(*(array.ctypes.data for array in outputs))
        struct.whole_rows = rows  # of this rank alone: no other one takes part
        try:
            LIBRARY.yoke_data_parallel_forward_outputs(self._engine, self._batch.at, False, pointers)
        finally:
            struct.whole_rows = 0
        return outputs

    def gradients(self, inputs: Any, labels: Any = None) -> dict[str, numpy.ndarray]:
        """The gradient of the loss for every parameter that is not frozen: forward and backward without an update. Needs
        schedule="classic"."""
        with _Inside(self._lock):
            _kept = self._fill(inputs, labels)
            LIBRARY.yoke_data_parallel_forward(self._engine, self._batch.at, True, None)
            LIBRARY.yoke_data_parallel_backward(self._engine, None)
            return read_gradients(self._engine, self.model, frozen_names(self.model, self._module, self._groups))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint: weights, running statistics, the optimizer's state and the number of steps. In DDP all
        ranks call it, and rank 0 writes."""
        if self._engine is None:
            raise RuntimeError("the first step or call makes the engine: there is no state to save yet")
        with _Inside(self._lock):
            LIBRARY.yoke_state_save(self._engine, os.fsencode(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Goes on from a checkpoint of save: the next step is the one that would have followed. Before the first step or
        call the file is verified, and its state comes in with them. In DDP all ranks call it, and rank 0 reads."""
        group, steps = self._process_group, numpy.zeros(1, numpy.int64)
        if self._engine is not None:
            with _Inside(self._lock):
                LIBRARY.yoke_state_load(self._engine, os.fsencode(path), None)
        if group is None or group.rank == 0:
            steps[0] = int(facts(path).get("step", 0))  # of a whole and undamaged file, or an error
        if group is not None:
            group.broadcast(steps)
        if self._engine is None:
            self._resume = os.fsencode(path)
        self.steps = int(steps[0])

    def write_onnx(self, path: str | os.PathLike[str]) -> None:
        """Writes network and weights as a file of ONNX, for inference."""
        if self._engine is None:
            raise RuntimeError("the first step or call makes the engine: there are no weights to write yet")
        if self.model.traced_loss:
            raise ValueError("a loss that is a function is a part of the model, and would be in the file: a word as the loss "
                             "leaves the network alone")
        from .onnx import write_onnx
        write_onnx(self._engine, self.model, path)

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a timeline of the last steps for https://ui.perfetto.dev: stages of every device, and calls of operations
        in Python by name."""
        if self._engine is None:
            raise RuntimeError("the first step or call makes the engine: there is no timeline yet")
        from .engine.operation import write_trace
        write_trace(self._engine, self.model, os.fspath(path))

    def weights(self) -> dict[str, numpy.ndarray]:
        """Copies of all parameters and running statistics, by the module's names and in its shapes."""
        self._refuse_waiting()
        if self.model is None:
            raise RuntimeError("the first step or call makes the model: there are no weights yet but the module's own")
        if self._engine is None:
            return {name: values.copy() for name, values in self.model.weights.items()}
        return read_weights(self._engine, self.model)

    def _refuse_waiting(self) -> None:
        """A checkpoint that load has named comes in with the first step or call; until then its weights are in no model."""
        if self._engine is None and self._resume is not None:
            raise RuntimeError(f"{os.fsdecode(self._resume)} comes in with the first step or call: step, evaluate or call the "
                               "model before you read or write its weights")

    def state_dict(self) -> dict[str, Any]:
        """What module.load_state_dict takes: tensors of a PyTorch module; arrays of a model of the builder."""
        self._refuse_waiting()
        if isinstance(self._module, Model) and not self._module.weights:
            return self.weights()
        if self.model is None:
            return self._module.state_dict()
        return torch_state(self.model, self.weights(), self.steps)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Writes weights and running statistics by name; what the model does not compute with is kept as it is."""
        self._refuse_waiting()
        if self.model is None:
            self._module.load_state_dict(state)  # of which the first call makes the model
            return
        model, known = self.model, self.model.tensors()
        unknown = [name for name in state if name not in {*known, *model.buffers, *model.aliases}]
        if unknown:
            raise ValueError(f"the model has no tensor {', '.join(unknown)}")
        ready = {name: as_array(values, name).astype(numpy.float32, copy=False)
                 for name, values in state.items() if name in known}
        for name, values in ready.items():
            if tuple(values.shape) != known[name][1]:
                raise ValueError(f"{name} has shape {values.shape}, expected {known[name][1]}")
        if self._engine is None:
            model.weights = {**model.weights, **ready}
        else:
            write_weights(self._engine, model, ready)

    def _fill(self, inputs, labels) -> list:
        """Makes the batch's struct that of these arrays, and returns those that it points to; the first one makes model and
        engine."""
        if self._engine is None:
            self._prepare(inputs, labels)
        return self._batch.fill(inputs, labels)

    def _prepare(self, inputs, labels) -> None:
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        if self.model is None:
            from .pytorch import from_torch
            loss, options = self._loss
            if callable(loss) and labels is not None:
                options = {**options, "targets": labels if isinstance(labels, (tuple, list)) else (labels,)}
            self.model = from_torch(self._module, _as_tensors(given), loss, **options)
        self._batch = Batch(self.model.inputs, self.model.targets, self.model.ids_count)
        self._batch.fill(inputs, labels)  # so that what does not fit is known before the engine is made
        ranks = self._process_group.world if self._process_group is not None else 1
        self._create(self._rows or self._batch.struct.rows * ranks)

    def _create(self, batch: int) -> None:
        engine, model = ctypes.c_void_p(), self.model
        self._options.batch = batch
        kept = set_groups(self._options, self._rule, model, self._module, self._groups)
        devices = self._process_group.devices if self._process_group is not None else self._open_devices()
        LIBRARY.yoke_data_parallel_create(ctypes.byref(engine), model.handle, devices, ctypes.byref(self._rule),
                                          ctypes.byref(self._options))
        weakref.finalize(self, LIBRARY.yoke_data_parallel_destroy, engine)  # the last finalizer comes first
        del kept
        write_weights(engine, model, model.weights)
        shards, ranks = self._options.shards, self._process_group.world if self._process_group is not None else 1
        self._limit = max(1, batch // ranks // max(1, self._options.accumulate))
        if shards:
            self._limit = max(1, batch // shards) * LIBRARY.yoke_data_parallel_device_count(engine)
        if self._process_group is not None:
            LIBRARY.yoke_data_parallel_broadcast(engine)
        if self._resume is not None:
            LIBRARY.yoke_state_load(engine, self._resume, None)
        self._engine = engine


    def _open_devices(self) -> ctypes.c_void_p:
        devices = ctypes.c_void_p()
        listed = make("yoke_devices_options", "YOKE_DEVICES_OPTIONS_INIT", threads=self._threads)
        listed.list = self._device_list and self._device_list.encode()
        LIBRARY.yoke_devices_open(ctypes.byref(devices), ctypes.byref(listed))
        weakref.finalize(self, LIBRARY.yoke_devices_close, devices)
        return devices


class _Inside:
    """One call at a time: the batch's struct is the object's. A second one would wait for ever inside a callback."""
    __slots__ = ("lock",)

    def __init__(self, lock):
        self.lock = lock

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            raise RuntimeError("another thread, or the caller of this callback, is inside this model: one call at a time")

    def __exit__(self, *_):
        self.lock.release()


def _as_tensors(given) -> tuple:
    import torch
    return tuple(one if isinstance(one, torch.Tensor) else torch.from_numpy(numpy.ascontiguousarray(as_array(one)))
                 for one in given)
