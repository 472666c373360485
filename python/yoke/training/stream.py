# SPDX-License-Identifier: Apache-2.0
"""Any iterable of (inputs, labels) batches, PyTorch's DataLoader for example, as a row stream of the library: its loader
thread asks for rows, and gets them from the iterable's batches whatever their sizes."""
from __future__ import annotations

import ctypes
import queue
import threading
import weakref

import numpy

from .._library import LIBRARY, callback, make
from ..builder import shape_struct
from ..engine.batches import WHOLE, as_array, whole_labels
from .arrays import inputs_and_shape, rows_of


class Stream:
    """Rows of an iterable; open() makes the dataset. What can be iterated again is a pass for every epoch; an iterator,
    as a generator makes it, is one pass, and the run ends with it."""

    def __init__(self, iterable, model=None, classes: int | None = None):
        if model is not None and len(model.inputs) != 1:
            raise TypeError(f"the model reads {len(model.inputs)} inputs, and batches of an iterable have one: give arrays, or "
                            "take steps of yoke.DataParallel")
        self.iterable, self.model, self.number = iterable, model, 0
        self.iterator = iter(iterable)
        self.once = self.iterator is iterable
        self.classes = classes or getattr(getattr(iterable, "dataset", None), "classes", None)
        if hasattr(self.classes, "__len__"):
            self.classes = len(self.classes)
        self.fresh = True  # the first pass has begun, to see a batch
        self.thread = _Thread()
        weakref.finalize(self, self.thread.end)
        self.shape, self.width, self.whole = None, 0, True
        self.inputs, self.labels = self._next_batch()
        self.at, self.batch = 0, len(self.inputs)

    def open(self, owner) -> ctypes.c_void_p:
        """A dataset that lives as long as its owner."""
        given = make("yoke_row_stream", shape=self.shape)
        if self.whole:
            given.classes, given.label_count = self._class_count(), self.width
        else:
            given.target_count = self.width
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        kept = [callback(self._give, pointer, number, pointer, pointer, pointer, pointer),
                callback(self._rewind, pointer, ctypes.c_uint64), callback(self._skip, pointer, size)]
        given.next = ctypes.cast(kept[0], pointer)
        given.rewind = None if self.once else ctypes.cast(kept[1], pointer)
        given.skip = ctypes.cast(kept[2], pointer)
        dataset = ctypes.c_void_p()
        LIBRARY.yoke_dataset_from_stream(ctypes.byref(dataset), ctypes.byref(given))
        dataset.kept = kept
        weakref.finalize(owner, LIBRARY.yoke_dataset_close, dataset)
        return dataset

    def _class_count(self) -> int:
        if self.model is not None:
            return next(iter(self.model.outputs.values()))[-1]
        if self.classes is None:
            raise ValueError("an iterable does not say how many classes there are: classes=10, for example")
        return self.classes

    def _next_batch(self):
        """The arrays of the next batch, None behind the last; an exception where they do not fit."""
        try:
            given = next(self.iterator)
        except StopIteration:
            if self.number == 0:
                raise ValueError("the iterable of batches is empty") from None
            return None
        where = f"batch {self.number} of the iterable"
        self.number += 1
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise TypeError(f"{where} is a {type(given).__name__}, expected a pair (inputs, labels)")
        inputs, labels = given
        try:
            if self.model is not None:
                array = rows_of(self.model, inputs)[0]
                shape = shape_struct(array.shape[1:])
            else:
                array, shape = inputs_and_shape(as_array(inputs, "inputs"))
            labels, whole = _labels(labels, len(array))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where}: {error}") from None
        if self.shape is None:
            self.shape, self.row, self.width, self.whole = shape, array.shape[1:], labels.shape[1], whole
        elif (array.shape[1:], labels.shape[1], whole) != (self.row, self.width, self.whole):
            raise ValueError(f"{where} has rows of {array.shape[1:]} and labels {labels.shape[1:]} of {labels.dtype}; those "
                             f"before have {self.row} and {(self.width,)}")
        return array, labels

    def _give(self, _payload, room, inputs, labels, targets, count) -> None:
        left = len(self.inputs) - self.at if self.inputs is not None else 0
        while not left:
            try:
                self._advance()
            except StopIteration:
                break
            left = len(self.inputs)
        rows = min(left, room)
        if rows:
            part, more = self.inputs[self.at:self.at + rows], self.labels[self.at:self.at + rows]
            ctypes.memmove(inputs, part.ctypes.data, part.nbytes)
            ctypes.memmove(labels if self.whole else targets, more.ctypes.data, more.nbytes)
            self.at += rows
        ctypes.c_int.from_address(count).value = rows

    def _rewind(self, _payload, _epoch) -> None:
        if not self.fresh:
            self.number, self.iterator = 0, self.thread.call(iter, self.iterable)
            self._advance()
        self.fresh = False

    def _advance(self) -> None:
        """The next batch, or StopIteration."""
        self.inputs, self.at = None, 0
        found = self.thread.call(self._next_batch)
        if found is None:
            raise StopIteration
        self.inputs, self.labels = found

    def _skip(self, _payload, rows) -> None:
        while rows and self.inputs is not None:
            step = min(rows, len(self.inputs) - self.at)
            self.at, rows = self.at + step, rows - step
            if self.at == len(self.inputs):
                try:
                    self._advance()
                except StopIteration:
                    pass


class _Thread:
    """A plain thread of Python that makes the calls of the loader's thread: workers that a DataLoader forks in a thread of
    C, or of an executor, do not end well. It is a daemon, so that an iterable that waits does not keep the program alive."""

    def __init__(self):
        self.calls, self.results, self.thread = queue.SimpleQueue(), queue.SimpleQueue(), None

    def call(self, function, *arguments):
        if self.thread is None:
            self.thread = threading.Thread(target=_serve, args=(self.calls, self.results), daemon=True, name="yoke-rows")
            self.thread.start()
        self.calls.put((function, arguments))
        found, error = self.results.get()
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame: a circle
        return found

    def end(self) -> None:
        self.calls.put(None)


def _serve(calls, results) -> None:
    while (call := calls.get()) is not None:
        try:
            results.put((call[0](*call[1]), None))
        except BaseException as error:
            results.put((None, error))
        del call


def _labels(given, rows: int):
    """Classes as int32 [rows, labels of a row] or float32 targets, and which of the two."""
    array = as_array(given, "labels")
    if array.shape[:1] != (rows,):
        raise ValueError(f"inputs have {rows} rows, labels has shape {array.shape}")
    if array.dtype.kind in WHOLE:
        return whole_labels(array.reshape(rows, -1)), True
    if array.dtype.kind != "f":
        raise TypeError(f"labels has dtype {array.dtype}: expected whole numbers for classes, or float32 targets")
    return numpy.ascontiguousarray(array.reshape(rows, -1), numpy.float32), False


def is_batches(given) -> bool:
    """Whether it is an iterable of batches, and no array."""
    return hasattr(given, "__iter__") and not isinstance(given, (tuple, list, str, bytes, dict)) and \
        not hasattr(given, "shape") and not hasattr(given, "__array__") and not hasattr(given, "__dlpack__")
