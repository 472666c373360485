# SPDX-License-Identifier: Apache-2.0
"""Weights of an engine by the names and in the shapes that a caller knows."""
from __future__ import annotations

import ctypes
import os

import numpy

from .._library import LIBRARY, make
from ..builder import Model


def read_weights(engine, model: Model) -> dict[str, numpy.ndarray]:
    """Copies of all parameters and running statistics."""
    found = {}
    for name, (own, shape) in model.tensors().items():
        found[name] = numpy.empty(shape, numpy.float32)
        LIBRARY.yoke_data_parallel_read(engine, own, found[name].ctypes.data, found[name].size)
    return found


def write_weights(engine, model: Model, weights: dict) -> None:
    known = model.tensors()
    for name, values in weights.items():
        own, _shape = known[name]
        values = numpy.ascontiguousarray(values, numpy.float32)
        LIBRARY.yoke_data_parallel_write(engine, own, values.ctypes.data, values.size)


def read_gradients(engine, model: Model, frozen: set[str]) -> dict[str, numpy.ndarray]:
    """Of every parameter but the frozen ones, by the library's names."""
    found, trainable, info = {}, {}, make("yoke_tensor_info")
    for index in range(LIBRARY.yoke_model_tensor_count(model.handle)):
        LIBRARY.yoke_model_tensor(model.handle, index, ctypes.byref(info))
        trainable[info.name] = info.trainable
    for name, (own, shape) in model.tensors().items():
        if trainable[own] and own.decode() not in frozen:
            found[name] = numpy.empty(shape, numpy.float32)
            LIBRARY.yoke_data_parallel_read_gradient(engine, own, found[name].ctypes.data, found[name].size)
    return found


def facts(path) -> dict[str, str]:
    """What a checkpoint states beside its tensors; it is read and verified."""
    checkpoint, found, index = ctypes.c_void_p(), {}, 0
    key, value = ctypes.c_char_p(), ctypes.c_char_p()
    LIBRARY.yoke_checkpoint_open(ctypes.byref(checkpoint), os.fsencode(path))
    try:
        while LIBRARY.yoke_checkpoint_fact(checkpoint, index, ctypes.byref(key), ctypes.byref(value)):
            found[key.value.decode()] = value.value.decode()
            index += 1
    finally:
        LIBRARY.yoke_checkpoint_close(checkpoint)
    return found


def torch_state(model: Model, weights: dict, steps: int) -> dict:
    """What load_state_dict of the PyTorch module takes that a model came from; steps: how many the model has trained."""
    import torch
    found = {name: torch.from_numpy(numpy.array(values)) for name, values in model.buffers.items()}
    found.update({name: torch.from_numpy(values) for name, values in weights.items()})
    found.update({name: found[first] for name, first in model.aliases.items()})
    for name in found:
        if name.endswith("num_batches_tracked"):
            found[name] = found[name] + steps
    return found
