"""numpy arrays as libyoke reads them: what does not fit is refused, and says why."""
import ctypes

import numpy

from ._library import LIBRARY, MIRRORS


def floats(name, given, dimensions, expected):
    array = numpy.asarray(given)
    if array.dtype != numpy.float32:
        scale = " / 255" if array.dtype == numpy.uint8 else ""
        raise TypeError(f"{name} has dtype {array.dtype}, expected float32: {name}.astype(numpy.float32){scale}")
    if array.ndim not in dimensions or not array.size:
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
    if not numpy.isfinite(array).all():
        place = tuple(numpy.argwhere(~numpy.isfinite(array))[0].tolist())
        raise ValueError(f"{name}{list(place)} is {array[place]}: every value must be finite")
    return numpy.ascontiguousarray(array)


def inputs_of(given):
    array = floats("inputs", given, (2, 4), "[rows, features] or [rows, channels, height, width]")
    channels, height, width = (*array.shape[1:], 1, 1)[:3]
    return array, MIRRORS["yoke_shape"](channels=channels, height=height, width=width, flat=array.ndim == 2)


def labels_of(given, rows):
    """Labels as int32, or targets as float32 [rows, targets]."""
    array = numpy.asarray(given)
    if array.shape[:1] != (rows,):
        raise ValueError(f"inputs has {rows} rows, labels has shape {array.shape}")
    if array.dtype.kind not in "iu":
        return floats("labels", array, (1, 2), "[rows] or [rows, targets]").reshape(rows, -1)
    if array.ndim != 1 or array.min() < 0 or array.max() > 2**31 - 1:
        raise ValueError(f"labels has shape {array.shape} and values from {array.min()} to {array.max()}, expected "
                         "[rows] with the class of each row, counted from 0")
    return numpy.ascontiguousarray(array, numpy.int32)


def open_splits(splits, classes, handles):
    """Opens a dataset for each (inputs, labels); returns the arrays, which must live as long. classes: None counts."""
    kept = []
    for inputs, labels in splits:
        inputs, shape = inputs_of(inputs)
        kept.append((inputs, shape, labels_of(labels, len(inputs))))
    for handle, (inputs, shape, labels) in zip(handles, kept):
        arrays = MIRRORS["yoke_arrays"](rows=len(inputs), shape=shape, inputs=inputs.ctypes.data)
        if labels.dtype == numpy.int32:
            arrays.classes = classes or 1 + max(int(part.max()) for _, _, part in kept)
            arrays.labels = labels.ctypes.data
        else:
            arrays.target_count, arrays.targets = labels.shape[1], labels.ctypes.data
        LIBRARY.yoke_dataset_from_arrays(ctypes.byref(handle), ctypes.byref(arrays))
    return kept
