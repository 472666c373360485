# SPDX-License-Identifier: Apache-2.0
"""A familiar face: yoke.DataParallel takes a PyTorch module or a model of the builder and trains it step by step."""
from __future__ import annotations

import ctypes
import math
import weakref

import numpy

from ._arguments import algorithm_cache, set_option
from ._library import LIBRARY, TYPES, make
from .builder import Model

STEP = LIBRARY.yoke_data_parallel_step  # without a look-up in every step


class DataParallel:
    """A network on all devices: loss = model.step(x, y), model(x) without learning, model.state_dict().

    module: a torch.nn.Module or a yoke.Model. devices: "4xcpu", "2xcuda", ...; None: every GPU, or one CPU device.
    optimizer: a word of yoke_optimizer_kind; its fields, and those of yoke_data_parallel_options, are keywords
    (momentum, weight_decay, schedule, shards, ...). loss: a word of yoke_loss_kind for a module; loss_options: its other
    fields. batch: rows of the largest batch; None: those of the first. Of a module the first call makes the model, with
    its inputs as the example. Inputs are arrays or CPU tensors with the batch in dimension 0; the last reference to the
    object frees devices and memory.
    """

    def __init__(self, module, devices: str | None = None, *, optimizer: str = "sgd", loss: str = "cross-entropy",
                 loss_options: dict | None = None, batch: int | None = None, threads: int = 0, **options):
        self.model: Model | None = module if isinstance(module, Model) else None
        self._module, self._devices_list, self._threads, self._batch = module, devices, threads, batch
        self._loss, self._engine, self.steps = (loss, loss_options or {}), None, 0
        self._struct, self._result = make("yoke_batch"), make("yoke_step_result")  # of every call
        self._batch_at, self._result_at = ctypes.byref(self._struct), ctypes.byref(self._result)
        self._rule = make("yoke_optimizer_options", f"YOKE_{optimizer}_OPTIONS_INIT".upper())
        self._options = make("yoke_data_parallel_options", "YOKE_DATA_PARALLEL_OPTIONS_INIT")
        if "algorithm_cache" not in options and options.get("algorithm") != "direct":
            options = {"algorithm_cache": algorithm_cache(), "replace_broken_cache": True, **options}
        for name, value in options.items():
            set_option((self._rule, self._options), name, value)

    def step(self, inputs, labels=None, learning_rate: float | None = None) -> float:
        """One update; returns the loss. labels: classes as integers, or float targets; None where the model computes
        its loss. learning_rate: of this step; None: the optimizer's."""
        _kept = self._fill(inputs, labels)
        rate = -1.0 if learning_rate is None else learning_rate  # a negative one is the optimizer's own
        STEP(self._engine, self._batch_at, rate, self._result_at)
        self.steps += 1
        return self._result.loss

    def evaluate(self, inputs, labels) -> dict:
        """Loss and accuracy of a batch, without learning; accuracy is None for targets."""
        _kept = self._fill(inputs, labels)
        result = self._result
        LIBRARY.yoke_data_parallel_evaluate(self._engine, self._batch_at, self._result_at)
        return {"loss": result.loss, "accuracy": result.correct / max(result.labels, 1) if result.correct >= 0 else None}

    def __call__(self, *inputs):
        """The outputs in eval mode, as arrays: one, or a tuple of several."""
        return self._forward(inputs, False)

    def _forward(self, inputs, training: bool):
        _kept = self._fill(inputs, None)
        outputs = [numpy.empty((self._struct.rows, *shape), numpy.float32) for shape in self.model.outputs.values()]
        pointers = (ctypes.c_void_p * len(outputs))(*(array.ctypes.data for array in outputs))
        LIBRARY.yoke_data_parallel_forward_outputs(self._engine, self._batch_at, training, pointers)
        arranged = tuple(self.model.arrange(index, array) for index, array in enumerate(outputs))
        return arranged if len(arranged) > 1 else arranged[0]

    def gradients(self, inputs, labels) -> dict[str, numpy.ndarray]:
        """The gradient of the loss for every parameter that is not frozen: forward and backward without an update."""
        _kept = self._fill(inputs, labels)
        LIBRARY.yoke_data_parallel_forward(self._engine, self._batch_at, True, None)
        LIBRARY.yoke_data_parallel_backward(self._engine, None)
        found = {}
        for name, own, shape, trainable in self._tensors():
            if trainable and own.decode() not in self.model.frozen:
                found[name] = numpy.empty(shape, numpy.float32)
                LIBRARY.yoke_data_parallel_read_gradient(self._engine, own, found[name].ctypes.data, found[name].size)
        return found

    def _tensors(self):
        trainable, info = {}, make("yoke_tensor_info")
        for index in range(LIBRARY.yoke_model_tensor_count(self.model.handle)):
            LIBRARY.yoke_model_tensor(self.model.handle, index, ctypes.byref(info))
            trainable[info.name] = info.trainable
        for name, (own, shape) in self.model.tensors().items():
            yield name, own, shape, trainable[own]

    def weights(self) -> dict[str, numpy.ndarray]:
        """Copies of all parameters and running statistics, by the module's names and in its shapes."""
        if self._engine is None:
            return {name: values.copy() for name, values in self._known_model().weights.items()}
        found = {}
        for name, (own, shape) in self.model.tensors().items():
            found[name] = numpy.empty(shape, numpy.float32)
            LIBRARY.yoke_data_parallel_read(self._engine, own, found[name].ctypes.data, found[name].size)
        return found

    def _known_model(self) -> Model:
        if self.model is None:
            raise RuntimeError("the first step or call makes the model: there are no weights yet but the module's own")
        return self.model

    def write_onnx(self, path) -> None:
        """Writes network and weights as a file of ONNX, for inference; after the first step or call."""
        from .onnx import write_onnx
        self._known_model()
        if self._engine is None:
            self._create(self._batch or 1)
        write_onnx(self._engine, self.model, path)

    def state_dict(self) -> dict:
        """What module.load_state_dict takes: tensors of a PyTorch module; arrays of a model of the builder."""
        if isinstance(self._module, Model) and not self._module.weights:
            return self.weights()
        import torch
        if self.model is None:
            return self._module.state_dict()
        found = {name: torch.from_numpy(numpy.array(values)) for name, values in self.model.buffers.items()}
        found.update({name: torch.from_numpy(values) for name, values in self.weights().items()})
        found.update({name: found[first] for name, first in self.model.aliases.items()})
        for name in found:
            if name.endswith("num_batches_tracked"):
                found[name] = found[name] + self.steps
        return found

    def load_state_dict(self, state: dict) -> None:
        """Writes weights and running statistics by name; what the model does not compute with is kept as it is."""
        model = self._known_model()
        known = model.tensors()
        unknown = [name for name in state if name not in {*known, *model.buffers, *model.aliases}]
        if unknown:
            raise ValueError(f"the model has no tensor {', '.join(unknown)}")
        ready = {name: as_array(values).astype(numpy.float32, copy=False)
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
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        if self.model is None:
            from .pytorch import from_torch
            self.model = from_torch(self._module, as_tensors(given), self._loss[0], **self._loss[1])
        arrays = [numpy.ascontiguousarray(as_array(one), numpy.float32) for one in given]
        self._check(arrays)
        if self._engine is None:
            self._create(self._batch or len(arrays[0]))
        batch = self._struct
        batch.rows, batch.inputs, batch.inputs_count = len(arrays[0]), arrays[0].ctypes.data, arrays[0].size
        if len(arrays) > 1:
            more = (ctypes.c_void_p * (len(arrays) - 1))(*(array.ctypes.data for array in arrays[1:]))
            batch.more_inputs, batch.more_input_count = ctypes.cast(more, ctypes.c_void_p), len(arrays) - 1
            arrays.append(more)
        batch.labels, batch.labels_count, batch.targets, batch.targets_count = None, 0, None, 0
        if labels is not None:
            labels = as_array(labels)
            whole = labels.dtype.kind in "iub"
            arrays.append(numpy.ascontiguousarray(labels.reshape(-1), numpy.int32 if whole else numpy.float32))
            if whole:
                batch.labels, batch.labels_count = arrays[-1].ctypes.data, arrays[-1].size
            else:
                batch.targets, batch.targets_count = arrays[-1].ctypes.data, arrays[-1].size
        return arrays

    def _check(self, arrays) -> None:
        wanted, rows = self.model.inputs, len(arrays[0])
        if len(arrays) != len(wanted):
            raise ValueError(f"{len(arrays)} inputs, the model reads {len(wanted)}: {', '.join(wanted)}")
        for array, (name, shape) in zip(arrays, wanted.items()):
            if len(array) != rows or array.size != rows * math.prod(shape):
                raise ValueError(f"{name} has shape {array.shape}, rows of it are {shape}")

    def _create(self, batch: int) -> None:
        devices, engine, model = ctypes.c_void_p(), ctypes.c_void_p(), self.model
        listed = make("yoke_devices_options", "YOKE_DEVICES_OPTIONS_INIT", threads=self._threads)
        listed.list = self._devices_list and self._devices_list.encode()
        self._options.batch = batch
        kept = freeze(self._options, model)
        LIBRARY.yoke_devices_open(ctypes.byref(devices), ctypes.byref(listed))
        weakref.finalize(self, LIBRARY.yoke_devices_close, devices)
        LIBRARY.yoke_data_parallel_create(ctypes.byref(engine), model.handle, devices, ctypes.byref(self._rule),
                                          ctypes.byref(self._options))
        weakref.finalize(self, LIBRARY.yoke_data_parallel_destroy, engine)  # the last finalizer comes first
        del kept
        write_weights(engine, model, model.weights)
        self._engine = engine


def as_array(given) -> numpy.ndarray:
    """A numpy array of an array or a CPU tensor, without a copy."""
    if type(given) is numpy.ndarray:
        return given
    if numpy.ma.is_masked(given):
        raise ValueError("masked values would count like all others: fill or remove them")
    return numpy.asarray(given.detach() if hasattr(given, "detach") else given)


def as_tensors(given) -> tuple:
    import torch
    return tuple(one if isinstance(one, torch.Tensor) else torch.from_numpy(numpy.ascontiguousarray(one)) for one in given)


def write_weights(engine, model: Model, weights: dict) -> None:
    """Writes weights by the names outside."""
    known = model.tensors()
    for name, values in weights.items():
        own, _shape = known[name]
        values = numpy.ascontiguousarray(values, numpy.float32)
        LIBRARY.yoke_data_parallel_write(engine, own, values.ctypes.data, values.size)


def freeze(options, model: Model) -> list:
    """Freezes what the model says in an engine's options; the result holds what they point to."""
    kept = []
    if model.frozen and not options.inference:
        patterns = ",".join(model.frozen).encode()
        groups = (TYPES["yoke_parameter_group"] * 1)(
            make("yoke_parameter_group", "YOKE_PARAMETER_GROUP_INIT", pattern=patterns, frozen=True))
        options.groups, options.group_count = ctypes.cast(groups, ctypes.c_void_p), 1
        kept.append(groups)
    if model.frozen_statistics and not options.freeze_statistics:
        options.freeze_statistics = ",".join(model.frozen_statistics).encode()
    return kept
