# SPDX-License-Identifier: Apache-2.0
"""Arrays of numpy, PyTorch, JAX and whatever speaks DLPack or the buffer protocol, as the pointers of a batch, without a
copy where they are contiguous and of the library's type."""
from __future__ import annotations

import ctypes
import math

import numpy

from .._library import make

FLOAT32, INT32 = numpy.dtype(numpy.float32), numpy.dtype(numpy.int32)
MAXIMUM, MINIMUM = numpy.maximum.reduce, numpy.minimum.reduce
WHOLE, KNOWN = "iub", "iubf"  # kinds of numpy.dtype: labels of classes, and all that a batch may have


def as_array(given, name: str = "the array") -> numpy.ndarray:
    """A numpy array of an array or a CPU tensor, without a copy."""
    if type(given) is numpy.ndarray:
        return given
    if hasattr(given, "detach"):
        return _tensor_as_array(given, name)
    if numpy.ma.is_masked(given):
        raise ValueError(f"{name} has masked values, which would count like all others: fill or remove them")
    if hasattr(given, "__dlpack__") and not hasattr(given, "__array__"):
        try:
            given = numpy.from_dlpack(given)
        except (TypeError, RuntimeError, BufferError) as error:
            raise TypeError(f"{name} cannot be read where it lies ({error}): copy it to the CPU") from None
    return numpy.asarray(given)


def _tensor_as_array(tensor, name: str) -> numpy.ndarray:
    if not tensor.is_cpu:
        raise TypeError(f"{name} lies on {tensor.device}: {name}.cpu() is an array that Yoke can read")
    try:
        return (tensor.detach() if tensor.requires_grad else tensor).numpy()
    except (TypeError, RuntimeError) as error:
        raise TypeError(f"{name} has dtype {tensor.dtype}: {name}.float() has one that Yoke reads ({error})") from None


def float_array(given, name: str) -> numpy.ndarray:
    """Contiguous float32: the array itself, or a copy."""
    array = as_array(given, name)
    if array.dtype is FLOAT32 and array.flags.c_contiguous:
        return array
    if array.dtype.kind not in KNOWN:
        raise TypeError(f"{name} has dtype {array.dtype}: expected float32, or numbers that become float32")
    return numpy.ascontiguousarray(array, FLOAT32)


class Batch:
    """The struct of a batch, filled anew for every call: fill() returns what it points to, to be held until the call ends.

    inputs: {name: shape of a row} of the model. targets: how many of them, the last ones, are targets of a loss that the
    model computes.
    """

    def __init__(self, inputs: dict, targets: int = 0, classes: bool = False):
        self.struct = make("yoke_batch")
        self.at = ctypes.byref(self.struct)
        self.inputs = [(name, tuple(shape), math.prod(shape)) for name, shape in inputs.items()]
        self.targets, self.classes = targets, classes  # classes: whole numbers among the targets are at least 0
        self._pointers = (ctypes.c_void_p * max(1, len(self.inputs) - 1))()
        if len(self.inputs) > 1:
            self.struct.more_inputs = ctypes.cast(self._pointers, ctypes.c_void_p)
            self.struct.more_input_count = len(self.inputs) - 1
        self._zeros: list = []

    def fill(self, inputs, labels) -> list:
        """Makes the struct that of these rows. labels: None where the model needs none, or predicts."""
        kind = type(inputs)
        given = list(inputs) if kind is tuple or kind is list else [inputs]
        if self.targets and labels is not None:
            given += labels if isinstance(labels, (tuple, list)) else [labels]
        if len(given) != len(self.inputs):
            if not (self.targets and labels is None and len(given) == len(self.inputs) - self.targets):
                wanted = ", ".join(name for name, _, _ in self.inputs)
                raise ValueError(f"{len(given)} inputs, the model reads {len(self.inputs)}: {wanted}")
        struct, (name, shape, size) = self.struct, self.inputs[0]
        pointer, rows, total, held = _floats_of(given[0], name)
        if total != rows * size:
            raise _misshapen(name, held, shape)
        struct.rows, struct.inputs, struct.inputs_count = rows, pointer, total
        kept = [held]
        for index in range(1, len(given)):
            self._fill_further(index, given[index], rows, kept)
        if len(given) < len(self.inputs):
            self._fill_zeros(rows, len(given))
        struct.labels = struct.targets = None
        struct.labels_count = struct.targets_count = 0
        if labels is not None and not self.targets:
            kept.append(self._fill_labels(labels))
        return kept

    def _fill_further(self, index: int, given, rows: int, kept: list) -> None:
        name, shape, size = self.inputs[index]
        if self.classes and index >= len(self.inputs) - self.targets:
            _check_classes(given, name)
        self._pointers[index - 1], count, total, held = _floats_of(given, name)
        if count != rows or total != rows * size:
            raise _misshapen(name, held, shape, rows if count != rows else None)
        kept.append(held)

    def _fill_zeros(self, rows: int, first: int) -> None:
        """Targets of a prediction, which count nowhere."""
        if not self._zeros or len(self._zeros[0]) < rows:
            self._zeros = [numpy.zeros((rows, size), FLOAT32) for _, _, size in self.inputs[first:]]
        for index, zeros in enumerate(self._zeros, first):
            self._pointers[index - 1] = zeros.ctypes.data

    def _fill_labels(self, labels):
        """Classes as int32, or float targets."""
        array, struct = as_array(labels, "labels"), self.struct
        kind = array.dtype.kind
        if kind in WHOLE:
            array = whole_labels(array)
            struct.labels, struct.labels_count = _address(array), array.size
        elif kind == "f":
            array = numpy.ascontiguousarray(array, FLOAT32)
            struct.targets, struct.targets_count = _address(array), array.size
        else:
            raise TypeError(f"labels has dtype {array.dtype}: expected whole numbers for classes, or float32 targets")
        return array


def whole_labels(array: numpy.ndarray, name: str = "labels") -> numpy.ndarray:
    """Whole numbers as contiguous int32: the array itself, or a copy; ValueError where one does not fit."""
    if array.dtype is INT32:
        return array if array.flags.c_contiguous else numpy.ascontiguousarray(array)
    if array.size and array.dtype.itemsize >= 4:
        least, most = MINIMUM(array, axis=None), MAXIMUM(array, axis=None)
        if least < -2**31 or most >= 2**31:
            raise ValueError(f"{name} has the value {least if least < -2**31 else most}: expected classes")
    return array.astype(INT32, order="C")


def _misshapen(name: str, array, shape, rows: int | None = None) -> ValueError:
    return ValueError(f"{name} has shape {tuple(array.shape)}, rows of it are {shape}" +
                      (f" and the first input has {rows}" if rows is not None else ""))


def _check_classes(given, name: str) -> None:
    """PyTorch leaves rows with ignore_index out of the mean over the batch; a traced loss has a mean over all rows."""
    array = as_array(given, name)
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        raise ValueError(f"{name} has the class {array.min()}: a loss that is a function takes no ignore_index; "
                         'loss="cross-entropy" with loss_options={"set_ignore_index": True} does')


def _floats_of(given, name: str):
    """Pointer, rows, size and holder of an input as contiguous float32."""
    if type(given) is not numpy.ndarray and hasattr(given, "data_ptr") and given.is_cpu and not given.is_sparse:
        if given.is_floating_point() and given.element_size() == 4 and given.is_contiguous() and given.dim():
            return given.data_ptr(), given.size(0), given.numel(), given  # a tensor of PyTorch, without numpy
    array = float_array(given, name)
    if array.ndim == 0:
        raise ValueError(f"{name} is a scalar: dimension 0 is the batch")
    return _address(array), len(array), array.size, array


def _address(array: numpy.ndarray) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # a fourth of the time of array.ctypes.data
    except (TypeError, ValueError):  # it is read-only, or empty
        return array.ctypes.data
