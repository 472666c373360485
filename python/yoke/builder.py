# SPDX-License-Identifier: Apache-2.0
"""Networks built in Python, call by call as in C: every function of include/yoke that adds to a model is a method of
Builder without its prefix yoke_ or yoke_model_, and the fields of its options are keywords. docs/models.md lists them."""
from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any, Callable

import numpy

from ._library import LAYOUT, LIBRARY, TYPES, YokeError, make, plain

if TYPE_CHECKING:
    from ._declared import BuilderMethods
else:
    BuilderMethods = object  # the methods are made below

FUNCTIONS = {word[3:]: number for word, number in LAYOUT["enums"]["yoke_function"].items() if word.startswith("fn-")}
MACROS = {macro[:-5].lower(): macro for macro in LAYOUT["defaults"]}  # of each struct with one macro


def shape_struct(sizes) -> ctypes.Structure:
    """The yoke_shape of PyTorch's sizes of a row: (features,), (positions, features) or (channels, height, width)."""
    sizes = (sizes,) if isinstance(sizes, int) else tuple(int(size) for size in sizes)
    if len(sizes) == 1:
        return make("yoke_shape", channels=sizes[0], height=1, width=1, flat=True)
    if len(sizes) == 2:
        return make("yoke_shape", channels=sizes[1], height=sizes[0], width=1, sequence=True)
    if len(sizes) == 3:
        return make("yoke_shape", channels=sizes[0], height=sizes[1], width=sizes[2])
    raise ValueError(f"a row of shape {sizes}: expected (features,), (positions, features) or (channels, height, width)")


def shape_sizes(shape) -> tuple[int, ...]:
    """PyTorch's sizes of a row: the way back."""
    if shape.flat:
        return (shape.channels,)
    return (shape.height, shape.channels) if shape.sequence else (shape.channels, shape.height, shape.width)


class Node:
    """A value of a model: what one call of the builder adds and others read."""
    __slots__ = ("builder", "value")

    def __init__(self, builder: Builder, value: Any):
        self.builder, self.value = builder, value

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row: (features,), (positions, features) or (channels, height, width)."""
        return shape_sizes(LIBRARY.yoke_model_value_shape(self.builder.handle, self.value))

    def __repr__(self) -> str:
        return f"<yoke.Node {self.value.index}: {' x '.join(map(str, self.shape))}>"

    def __add__(self, other):
        return self.builder.add(self, other) if isinstance(other, Node) else self.builder.offset(self, other)

    def __sub__(self, other):
        return self.builder.subtract(self, other) if isinstance(other, Node) else self.builder.offset(self, -other)

    def __mul__(self, other):
        return self.builder.multiply(self, other) if isinstance(other, Node) else self.builder.scale(self, other)

    def __truediv__(self, other):
        return self.builder.divide(self, other) if isinstance(other, Node) else self.builder.scale(self, 1 / other)

    def __neg__(self):
        return self.builder.negate(self)

    __radd__, __rmul__ = __add__, __mul__


class Model:
    """A finished model, for yoke.Trainer(model=...).

    names: for tensors that the library calls otherwise, {the library's name: (the name outside, its shape there)}; None
    as the name outside hides a tensor. from_torch also sets weights to begin with, buffers that Yoke does not compute
    with, what is frozen, and how outputs are arranged.
    """
    weights: dict[str, numpy.ndarray] = {}
    buffers: dict[str, numpy.ndarray] = {}
    aliases: dict[str, str] = {}  # further names of tensors that PyTorch's state_dict has
    frozen: list[str] = []  # the library's names of parameters
    frozen_statistics: list[str] = []  # patterns of batch norms that stay in eval mode
    module: Any = None  # yoke.train's, whose parameters groups may name
    error: float | None = None  # of outputs, as from_torch compared them
    traced_loss: bool = False  # output 0 is a loss that from_torch has traced
    targets: int = 0  # the last inputs, which are targets of that loss
    ids_count: bool = False  # and they may be classes, each at least 0

    def __init__(self, handle: Any, names: dict[str, Any] | None = None):
        self.handle, self.names = handle, names or {}
        self.name = LIBRARY.yoke_model_name(handle).decode()
        self.inputs = self._described("input")
        self.outputs = self._described("output")

    def _described(self, side: str) -> dict[str, tuple[int, ...]]:
        info, found = make("yoke_value_info"), {}
        for index in range(getattr(LIBRARY, f"yoke_model_{side}_count")(self.handle)):
            getattr(LIBRARY, f"yoke_model_describe_{side}")(self.handle, index, ctypes.byref(info))
            found[info.name.decode()] = shape_sizes(info.shape)
        return found

    @property
    def parameter_count(self) -> int:
        """Trainable scalars."""
        return LIBRARY.yoke_model_parameter_count(self.handle)

    def tensors(self) -> dict[str, tuple[bytes, tuple[int, ...]]]:
        """Parameters and running statistics: {name: (the library's name, shape)}."""
        info, found = make("yoke_tensor_info"), {}
        for index in range(LIBRARY.yoke_model_tensor_count(self.handle)):
            LIBRARY.yoke_model_tensor(self.handle, index, ctypes.byref(info))
            if not info.integer:  # the engine keeps the counts of batches to itself
                own = info.name.decode()
                name, shape = self.names.get(own, (own, tuple(info.shape[:info.ndim])))
                if name is not None:
                    found[name] = info.name, tuple(shape)
        return found

    def arrange(self, index: int, array: numpy.ndarray) -> numpy.ndarray:
        """Rows of an output in the shape that a caller expects."""
        return array.reshape(len(array), *list(self.outputs.values())[index])

    def check_gradients(self, rows: int = 0, seed: int = 0, tolerance: float = 0.0) -> dict[str, Any]:
        """Compares gradients with differences of the loss, at random weights and rows: yoke_model_check_gradients. Returns
        the tensor that differs most; YokeError, with the status YOKE_ERROR_NUMERIC, where it differs by more than the
        tolerance, 0.01."""
        given = make("yoke_gradient_check_options", "YOKE_GRADIENT_CHECK_OPTIONS_INIT", rows=rows, seed=seed,
                     tolerance=tolerance)
        found = make("yoke_gradient_check")
        LIBRARY.yoke_model_check_gradients(self.handle, ctypes.byref(given), ctypes.byref(found))
        return plain(found)

    def __repr__(self) -> str:
        return f"<yoke.Model {self.name}: {self.inputs} -> {self.outputs}, {self.parameter_count} parameters>"


class Builder(BuilderMethods):
    """Builds a model: Builder(input shape), a call for each layer, finish.

        builder = yoke.Builder((3, 32, 32))
        value = builder.relu(builder.conv2d(builder.input(), name="conv", out_channels=8, kernel=3))
        model = builder.finish(builder.linear(builder.flatten(value), name="fc", out_features=10))

    A row's shape is PyTorch's without the batch: (features,), (positions, features) or (channels, height, width). A
    call that the library refuses raises YokeError, and the builder then refuses every other one with the same text.
    """

    def __init__(self, input: int | tuple[int, ...], name: str = "model"):
        self.handle = ctypes.c_void_p()
        LIBRARY.yoke_model_create(ctypes.byref(self.handle), name.encode(), shape_struct(input))
        weakref.finalize(self.handle, LIBRARY.yoke_model_destroy, ctypes.c_void_p(self.handle.value))

    def finish(self, output: Node, loss: str = "cross-entropy", names: dict | None = None, **options) -> Model:
        """Names the first output and the loss, and freezes the model: yoke_model_finish. options: other fields of
        yoke_loss_options. names: see Model."""
        kept: list = []
        given = _options("yoke_loss_options", {"kind": loss, **options}, kept)
        LIBRARY.yoke_model_finish(self.handle, output.value, ctypes.byref(given))
        return Model(self.handle, names)

    def elementary(self, function: str, *arguments: Node, p: float = 0, q: float = 0) -> Node:
        """A function of each element, yoke_elementary: the words are those of yoke/function.h, which are methods, too."""
        if function not in FUNCTIONS:
            raise ValueError(f"there is no function {function}: expected one of {', '.join(FUNCTIONS)}")
        wanted = LIBRARY.yoke_function_arguments(FUNCTIONS[function])
        if len(arguments) != wanted:
            raise TypeError(f"{function} takes {wanted} values, {len(arguments)} given")
        values = (TYPES["yoke_value"] * wanted)(*(node.value for node in arguments))
        return self._node(LIBRARY.yoke_elementary(self.handle, FUNCTIONS[function], values, p, q))

    def python_operation(self, forward: Callable[..., Any], backward: Callable[..., Any], *inputs: Node, name: str,
                         shape: Any = None, parameters: dict[str, Any] | None = None) -> Node:
        """An operation that is two functions of Python on float32 arrays, slow and right: sample 10 in Python.

        forward(*inputs, *parameters) returns the output, [rows, *shape]; backward(output_gradient, *inputs, *parameters)
        the gradients of inputs and parameters, one or a tuple, None for zeros. Inputs are [rows, *shape of a row], each row
        for itself; a parameter's gradient is the sum over the rows. Arrays are read-only and live until the function
        returns. Devices call from threads of their own, in turns. shape: of an output row; None: the first input's.
        parameters: {word: its shape, or {"shape": ..., "value": ..., "std": ...}}, with the names NAME.word.
        An exception ends the step, which raises it.
        """
        from .engine.operation import add_operation
        return add_operation(self, forward, backward, inputs, name, shape, parameters)

    def _node(self, value) -> Node:
        if value.index < 0:  # the model keeps its first error, and finish raises it
            LIBRARY.yoke_model_finish(self.handle, value, None)
            raise YokeError("YOKE_ERROR_ARGUMENT", "the call gave no value")
        return Node(self, value)


def _options(struct: str, fields: dict, kept: list):
    """An options struct with its INIT macro's defaults and these fields; kept holds what they point to."""
    kinds = {name: (kind, count) for name, kind, count in LAYOUT["structs"][struct] if name != "struct_size"}
    made = make(struct, MACROS.get(struct))
    for name, value in fields.items():
        if name not in kinds:
            raise TypeError(f"{struct} has no field {name}: expected one of {', '.join(kinds)}")
        kind, count = kinds[name]
        if count:
            value = (TYPES[kind] * count)(*value)
        else:
            value = _convert(kind, LAYOUT["pointees"][struct].get(name), value, kept)
            value = ctypes.cast(value, ctypes.c_void_p) if kind == "c_void_p" else value
        setattr(made, name, value)
    return made


def _enumerator(kind: str, value):
    """The number of a word, or the sum of those of several: ("height", "width")."""
    words = {word[3:] if word.startswith("fn-") else word: number for word, number in LAYOUT["enums"][kind].items()}
    if isinstance(value, int):
        return value
    if isinstance(value, (tuple, list)):
        return sum(_enumerator(kind, one) for one in value)
    if value not in words:
        raise ValueError(f"{value!r} is not one of {', '.join(words)}")
    return words[value]


def _convert(kind: str, pointee: str | None, value, kept: list):
    """A Python argument as the C function's parameter; kept holds what it points to until the call is over."""
    if pointee == "yoke_value":
        nodes = value if isinstance(value, (tuple, list)) else [value]
        kept.append((TYPES["yoke_value"] * len(nodes))(*(node.value for node in nodes)))
    elif pointee == "c_float":
        kept.append(numpy.ascontiguousarray(value, numpy.float32))
        return ctypes.c_void_p(kept[-1].ctypes.data)
    elif kind == "yoke_value":
        return value.value if value is not None else TYPES["yoke_value"](-1)
    elif kind == "yoke_shape":
        return shape_struct(value)
    elif kind in LAYOUT["enums"]:
        return _enumerator(kind, value)
    elif kind == "c_char_p":
        return value.encode() if isinstance(value, str) else value
    else:
        return value
    return kept[-1]


def _method(name: str, declared: dict):
    """A method that calls a C function: its values and numbers in order or by name, options as keywords."""
    takes = declared["parameters"]
    struct = next((pointee for _, _, pointee in takes if pointee in LAYOUT["structs"] and pointee != "yoke_value"), None)
    plain = [part for part in takes if part[2] != struct or struct is None]

    def call(self, *arguments, **options):
        if len(arguments) > len(plain):
            raise TypeError(f"{call.__name__} takes {len(plain)} arguments, {len(arguments)} given; options are keywords")
        named = dict(zip((part[0] for part in plain), arguments))
        named.update({part[0]: options.pop(part[0]) for part in plain if part[0] in options})
        if options and not struct:
            raise TypeError(f"{call.__name__} has no option {', '.join(options)}")
        kept, given = [], []
        for argument, kind, pointee in takes:
            if struct and pointee == struct:
                kept.append(_options(struct, options, kept))
                given.append(ctypes.byref(kept[-1]))
            elif argument in named:
                kind = "yoke_axis" if argument == "axes" else kind
                given.append(_convert(kind, pointee, named[argument], kept))
            elif argument == "mask":
                given.append(TYPES["yoke_value"](-1))
            else:
                raise TypeError(f"{call.__name__} needs {argument}")
        result = getattr(LIBRARY, name)(self.handle, *given)
        if declared["result"] == "yoke_value":
            return self._node(result)
        return result

    call.__name__ = name.removeprefix("yoke_").removeprefix("model_")
    call.__qualname__ = f"Builder.{call.__name__}"
    signature = ", ".join([part[0] for part in plain] + (["*, fields of " + struct] if struct else []))
    call.__doc__ = f"{call.__name__}({signature}): {declared['text']}"
    return call


def _function_method(word: str):
    """A method for one function of elements: builder.clamp(value, -1, 1)."""
    name = word.replace("-", "_")

    def call(self, *arguments, p=0.0, q=0.0):
        wanted = LIBRARY.yoke_function_arguments(FUNCTIONS[word])
        values, numbers = arguments[:wanted], arguments[wanted:]
        p, q = (*numbers, *(p, q)[len(numbers):])
        return self.elementary(word, *values, p=p, q=q)

    call.__name__, call.__qualname__ = name, f"Builder.{name}"
    call.__doc__ = f"YOKE_FN_{name.upper()} of values; p and q are its constants (yoke/function.h)."
    return call


for _name, _declared in LAYOUT["builders"].items():
    if _name not in ("yoke_elementary", "yoke_model_finish"):
        _made = _method(_name, _declared)
        setattr(Builder, _made.__name__, _made)
for _word in FUNCTIONS:
    if not hasattr(Builder, _word.replace("-", "_")):
        setattr(Builder, _word.replace("-", "_"), _function_method(_word))
