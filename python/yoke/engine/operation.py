# SPDX-License-Identifier: Apache-2.0
"""Operations whose forward and backward are functions of Python on numpy arrays: yoke/host_operation.h. They are right and
slow: one thread at a time runs Python, whatever the number of devices."""
from __future__ import annotations

import collections
import ctypes
import json
import threading
import time

import numpy

from .._library import LIBRARY, TYPES, callback, make
from ..builder import Builder, Node, shape_struct

SPANS = 100_000  # calls that a timeline keeps
CALL, VALUE = TYPES["yoke_host_call"], TYPES["yoke_host_value"]


def add_operation(builder: Builder, forward, backward, inputs, name: str, shape, parameters: dict | None) -> Node:
    """builder.python_operation."""
    if not inputs or not all(isinstance(node, Node) for node in inputs):
        raise TypeError("python_operation takes at least one value of the builder behind forward and backward")
    made = _Operation(name, forward, backward, inputs, shape if shape is not None else inputs[0].shape, parameters or {})
    value = LIBRARY.yoke_model_add_operation(builder.handle, ctypes.byref(made.options))
    builder.handle.operations = [*getattr(builder.handle, "operations", []), made]  # they live as long as the model
    return builder._node(value)


class _Operation:
    """The callbacks of one operation, and what they need."""

    def __init__(self, name: str, forward, backward, inputs, shape, parameters: dict):
        self.name, self.functions = name, {"forward": forward, "backward": backward}
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.rows_of = [node.shape for node in inputs]
        self.parameters = {word: _parameter(word, given) for word, given in parameters.items()}
        self.spans: collections.deque = collections.deque(maxlen=SPANS)
        structs = [part[0] for part in self.parameters.values()]
        pointers = (ctypes.c_void_p * max(1, len(structs)))(*(ctypes.addressof(one) for one in structs))
        values = (TYPES["yoke_value"] * len(inputs))(*(node.value for node in inputs))
        self.options = options = make("yoke_operation_options", "YOKE_OPERATION_OPTIONS_INIT", name=name.encode(),
                                      shape=shape_struct(self.shape), input_count=len(inputs),
                                      parameter_count=len(structs))
        options.inputs = ctypes.cast(values, ctypes.c_void_p)
        options.parameters = ctypes.cast(pointers, ctypes.c_void_p) if structs else None
        self.callbacks = [callback(function, ctypes.c_void_p, ctypes.c_void_p)
                          for function in (self._forward, self._backward)]
        options.forward, options.backward = (ctypes.cast(one, ctypes.c_void_p) for one in self.callbacks)
        self._kept = structs, pointers, values

    def _forward(self, _payload, address: int) -> None:
        call = CALL.from_address(address)
        given = [values for values, _gradient in self._values(call)]
        found = self._call("forward", given)
        _array(call.output, (call.rows, *self.shape))[...] = self._checked("forward returned", found,
                                                                           (call.rows, *self.shape))

    def _backward(self, _payload, address: int) -> None:
        call = CALL.from_address(address)
        values = self._values(call)
        upstream = _array(call.output_gradient, (call.rows, *self.shape), write=False)
        found = self._call("backward", [upstream, *(array for array, _gradient in values)])
        found = found if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(values):
            raise ValueError(f"backward of {self.name} returned {len(found)} gradients, expected {len(values)}: one for each "
                             "input and parameter, None for zeros")
        for index, (one, (array, gradient)) in enumerate(zip(found, values)):
            if gradient:
                _array(gradient, array.shape)[...] = 0.0 if one is None else self._checked(
                    f"gradient {index} of backward is", one, array.shape)

    def _values(self, call) -> list:
        """(array, address of its gradient) of each input and parameter."""
        found = []
        for side, count, shapes in (("inputs", call.input_count, [(call.rows, *shape) for shape in self.rows_of]),
                                    ("parameters", call.parameter_count, [part[1] for part in self.parameters.values()])):
            if count:
                for value, shape in zip((VALUE * count).from_address(getattr(call, side)), shapes):
                    found.append((_array(value.values, shape, write=False), value.gradient))
        return found

    def _call(self, way: str, arguments):
        begin = time.monotonic_ns()
        try:
            return self.functions[way](*arguments)
        finally:
            self.spans.append((way, threading.get_ident(), begin, time.monotonic_ns()))

    def _checked(self, what: str, given, shape) -> numpy.ndarray:
        array = numpy.asarray(given)
        if array.shape != shape or array.dtype.kind not in "fiub":
            raise ValueError(f"{what} {array.shape} of {array.dtype}, expected {shape}: operation {self.name}")
        return array


def _parameter(word: str, given):
    """A parameter's struct and shape: (shape, value) or a dict with shape, value and std."""
    fields = dict(given) if isinstance(given, dict) else {"shape": given}
    shape = fields.pop("shape")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    unknown = fields.keys() - {"value", "std"}
    if unknown:
        raise TypeError(f"a parameter has no {', '.join(unknown)}: expected shape, value, std")
    return make("yoke_parameter_options", "YOKE_PARAMETER_OPTIONS_INIT", name=word.encode(), shape=shape_struct(shape),
                **fields), shape


def _array(address: int, shape, write: bool = True) -> numpy.ndarray:
    """The memory there, for as long as the callback runs."""
    count = 1
    for size in shape:
        count *= size
    array = numpy.frombuffer((ctypes.c_float * count).from_address(address), numpy.float32).reshape(shape)
    array.flags.writeable = write
    return array


def write_trace(engine, model, path: str) -> None:
    """The engine's timeline, with the calls of Python's operations by name on lanes of their own."""
    import os
    LIBRARY.yoke_trace_save(LIBRARY.yoke_data_parallel_trace(engine), os.fsencode(path))
    operations = getattr(model.handle, "operations", [])
    if not operations:
        return
    with open(path, encoding="utf-8") as file:
        page = json.load(file)
    origin, lanes = page["otherData"]["origin_ns"], {}
    events = page["traceEvents"]
    for operation in operations:
        for way, thread, begin, end in list(operation.spans):
            if begin >= origin:
                lane = lanes.setdefault(thread, 1000 + len(lanes))
                events.append({"ph": "X", "name": f"{operation.name} {way}", "cat": "python", "pid": 1, "tid": lane,
                               "ts": (begin - origin) / 1e3, "dur": (end - begin) / 1e3})
    events += [{"ph": "M", "name": "thread_name", "pid": 1, "tid": lane, "args": {"name": f"python {lane - 999}"}}
               for lane in lanes.values()]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(page, file)
