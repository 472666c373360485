# SPDX-License-Identifier: Apache-2.0
"""Arrays of the host program as datasets of the library, which reads them in place."""
import ctypes
import weakref

import numpy

from .._arguments import floats, set_option
from .._library import LIBRARY, TYPES, make
from ..builder import shape_struct
from ..engine.batches import as_array, whole_labels


def rows_of(model, given, predicts=False):
    """One array for each input of a model of the builder, as float32 rows of its shape; to predict, without targets."""
    arrays = [as_array(one, "inputs") for one in (given if isinstance(given, (tuple, list)) else (given,))]
    if len(arrays) != len(model.inputs) - (model.targets if predicts else 0):
        raise ValueError(f"{len(arrays)} inputs, the model reads {len(model.inputs)}: {', '.join(model.inputs)}")
    ready = []
    for array, (name, shape) in zip(arrays, model.inputs.items()):
        array = array.astype(numpy.float32) if array.dtype.kind in "iub" else array
        if array.ndim == 0 or len(array) != len(arrays[0]) or array[:1].size != numpy.prod(shape):
            raise ValueError(f"{name} has shape {array.shape}, rows of it are {shape}")
        ready.append(floats(name, array.reshape(len(array), *shape), "[rows, ...]", (2, 3, 4)))
    return ready


def open_for(owner, model, inputs, labels):
    """Opens a dataset of arrays for a model of the builder."""
    first, *others = arrays = rows_of(model, inputs)
    given = make("yoke_arrays", rows=len(first), shape=shape_struct(first.shape[1:]), inputs=first.ctypes.data)
    more = (TYPES["yoke_row_input"] * len(others))(*(
        make("yoke_row_input", name=name.encode(), shape=shape_struct(array.shape[1:]), values=array.ctypes.data)
        for name, array in zip(list(model.inputs)[1:], others)))
    given.more_inputs, given.more_input_count = ctypes.cast(more, ctypes.c_void_p) if others else None, len(others)
    if labels is not None:
        labels = as_array(labels, "labels")
        if labels.shape[:1] != (len(first),):
            raise ValueError(f"inputs have {len(first)} rows, labels has shape {labels.shape}")
        if labels.dtype.kind in "iu":
            labels = whole_labels(labels.reshape(len(first), -1))
            given.classes, given.label_count = next(iter(model.outputs.values()))[-1], labels.shape[1]
            given.labels = labels.ctypes.data
        else:
            labels = floats("labels", labels, "[rows, ...]", range(1, 9)).reshape(len(first), -1)
            given.target_count, given.targets = labels.shape[1], labels.ctypes.data
    dataset = ctypes.c_void_p()
    LIBRARY.yoke_dataset_from_arrays(ctypes.byref(dataset), ctypes.byref(given))
    dataset.kept = arrays, labels
    weakref.finalize(owner, LIBRARY.yoke_dataset_close, dataset)
    return dataset


def inputs_and_shape(given):
    """The inputs, and the shape of a row."""
    array = floats("inputs", given, "[rows, features] or [rows, channels, height, width]", (2, 4))
    channels, height, width = (*array.shape[1:], 1, 1)[:3]
    return array, make("yoke_shape", channels=channels, height=height, width=width, flat=array.ndim == 2)


def _labels(given, rows):
    """Classes as int32 [rows], or targets as float32 [rows, targets]."""
    array = numpy.asarray(given)
    if numpy.ma.is_masked(given):
        raise ValueError("labels has masked values, which would count like all others: fill or remove them")
    if array.shape[:1] != (rows,):
        raise ValueError(f"inputs has {rows} rows, labels has shape {array.shape}")
    if array.dtype.kind not in "iu":
        return floats("labels", array, "[rows] or [rows, targets]", (1, 2)).reshape(rows, -1)
    if array.ndim != 1 or array.min() < 0 or array.max() > 2**31 - 1:
        raise ValueError(f"labels has shape {array.shape} and values {array.min()} to {array.max()}: expected classes")
    return numpy.ascontiguousarray(array, numpy.int32)


def open_arrays(owner, inputs, labels, classes, channels_first):
    """Opens a dataset of arrays that lives as long as its owner; returns it and its number of classes."""
    (inputs, shape), dataset = inputs_and_shape(inputs), ctypes.c_void_p()
    if not channels_first and inputs.ndim == 4 and min(inputs.shape[1:3]) > 4 and inputs.shape[3] in (1, 3, 4):
        raise ValueError(f"inputs: shape {inputs.shape} seems to be [rows, height, width, channels], expected [rows, "
                         'channels, height, width]; inputs.transpose(0, 3, 1, 2) converts it, channels_first=True does not')
    labels = _labels(labels, len(inputs))
    arrays = make("yoke_arrays", rows=len(inputs), shape=shape, inputs=inputs.ctypes.data)
    if labels.dtype == numpy.int32:
        set_option((arrays,), "classes", classes or int(labels.max()) + 1)
        arrays.labels = labels.ctypes.data
    else:
        arrays.target_count, arrays.targets = labels.shape[1], labels.ctypes.data
    LIBRARY.yoke_dataset_from_arrays(ctypes.byref(dataset), ctypes.byref(arrays))
    dataset.kept = inputs, labels  # the library reads them in place
    weakref.finalize(owner, LIBRARY.yoke_dataset_close, dataset)
    return dataset, arrays.classes
