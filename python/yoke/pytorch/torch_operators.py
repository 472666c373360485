# SPDX-License-Identifier: Apache-2.0
"""ATen's operators on values of a model: arithmetic, functions of elements and views. Reductions and products are in
torch_reductions.py, layers with parameters in torch_layers.py. Each function takes the arguments of the operator by the
names of its schema."""
from __future__ import annotations

import torch

from .torch_values import (Unsupported, Value, broadcast, expanded_value, permuted, product, reshaped_batch, row_axis,
                            row_of)

OPERATORS: dict = {}


def operator(*names):
    """Registers a function for operators of ATen, without overload and the trailing _ of those that work in place."""
    def register(function):
        OPERATORS.update(dict.fromkeys(names, function))
        return function
    return register


def one(function: str, p: float = 0, q: float = 0):
    """An operator that is one of the library's functions of elements."""
    return lambda c, self, **_: c.map(self, lambda node: c.builder.elementary(function, node, p=p, q=q))


def named(method: str):
    """An operator that is a call of the builder."""
    return lambda c, self, **_: c.map(self, getattr(c.builder, method))


OPERATORS.update({name: one(name) for name in ("sqrt", "rsqrt", "exp", "log", "sin", "cos", "erf", "abs", "square")})
OPERATORS.update({"neg": one("negate"), "reciprocal": one("power", -1), "hardsigmoid": one("hard-sigmoid")})
OPERATORS.update({name: named(name) for name in ("relu", "relu6", "sigmoid", "tanh", "silu", "mish")})
OPERATORS["hardswish"] = named("hard_swish")


@operator("gelu")
def gelu(c, self, approximate="none", **_):
    return c.map(self, c.builder.gelu_tanh if approximate == "tanh" else c.builder.gelu)


@operator("hardtanh", "clamp", "clip", "clamp_min", "clamp_max")
def clamp(c, self, min_val=None, max_val=None, min=None, max=None, **_):
    low, high = (value if value is not None else other for value, other in ((min_val, min), (max_val, max)))
    for function, bound in (("maximum", low), ("minimum", high)):
        if isinstance(bound, Value) and number(bound) is None:
            self = binary(c, function, self, bound)
    low, high = (number(bound) if isinstance(bound, Value) else bound for bound in (low, high))
    if low is None and high is None:
        return self
    if (low, high) == (0, 6):
        return c.map(self, c.builder.relu6)
    if (low, high) == (0, None):
        return c.map(self, c.builder.relu)
    low, high = -3e38 if low is None else low, 3e38 if high is None else high
    return c.map(self, lambda node: c.builder.clamp(node, low, high))


@operator("leaky_relu")
def leaky_relu(c, self, negative_slope=0.01, **_):
    return c.map(self, lambda node: c.builder.leaky_relu(node, negative_slope))


@operator("elu", "selu", "celu")
def elu(c, self, alpha=1.0, scale=1.0, input_scale=1.0, **_):
    if c.name == "selu":
        alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    if input_scale != 1 or (c.name == "celu" and alpha != 1):
        raise Unsupported("its input is scaled")
    return c.map(self, lambda node: c.builder.scale(c.builder.elu(node, alpha), scale) if scale != 1
                 else c.builder.elu(node, alpha))


@operator("softplus")
def softplus(c, self, beta=1, threshold=20, **_):
    if beta != 1:
        return c.map(self, lambda node: c.builder.scale(c.builder.softplus(c.builder.scale(node, beta)), 1 / beta))
    return c.map(self, c.builder.softplus)


@operator("glu")
def glu(c, self, dim=-1, **_):
    left, right = chunk(c, self, 2, dim)
    return binary(c, "multiply", left, c.map(right, c.builder.sigmoid))


def binary(c, function: str, *sides) -> Value:
    """A function of several tensors or numbers, with PyTorch's broadcasting."""
    values = [side if isinstance(side, Value) else c.constant(torch.as_tensor(float(side))) for side in sides]
    shape, batch, nodes = broadcast(c.builder, values, c.constant, c.rows)
    builder = c.builder
    if function == "add":
        made = builder.add(*nodes)
    elif function == "multiply":
        made = builder.multiply(*nodes)
    else:
        made = builder.elementary(function, *nodes)
    return Value(shape, batch, lambda: made)


def is_number(value) -> bool:
    return isinstance(value, (int, float, bool))


def number(value):
    """The number of a Python number or of a constant of one element; None of anything else."""
    if is_number(value):
        return float(value)
    if isinstance(value, Value) and value.constant is not None and value.constant.numel() == 1 and not value.shape:
        return float(value.constant)
    return None


@operator("add", "sub", "rsub")
def add(c, self, other, alpha=1, **_):
    left, right = (other, self) if c.name == "rsub" else (self, other)
    sign = alpha if c.name == "add" else -alpha
    if (value := number(right)) is not None:
        return c.map(left, lambda node: c.builder.offset(node, value * sign)) if value * sign else left
    if (value := number(left)) is not None:
        return c.map(right, lambda node: c.builder.offset(c.builder.scale(node, sign), value))
    if sign == 1:
        return binary(c, "add", left, right)
    if sign != -1:
        right = c.map(right, lambda node: c.builder.scale(node, -sign))
    return binary(c, "subtract", left, right)


@operator("mul", "multiply")
def mul(c, self, other, **_):
    for value, factor in ((self, other), (other, self)):
        if (scale := number(factor)) is not None:
            return c.map(value, lambda node: c.builder.scale(node, scale)) if scale != 1 else value
        if isinstance(factor, Value) and factor.noise:
            survives, scaled = factor.noise
            if survives < 1 and not scaled:
                raise Unsupported("random numbers that are not divided by their probability")
            return c.map(value, lambda node: c.builder.stochastic_depth(node, 1 - survives)) if survives < 1 else value
    return c.map(self, c.builder.square) if self is other else binary(c, "multiply", self, other)


@operator("div", "divide", "true_divide")
def div(c, self, other, rounding_mode=None, **_):
    if rounding_mode:
        raise Unsupported("a division that rounds")
    value = number(other)
    if isinstance(self, Value) and self.noise:
        if value != self.noise[0]:
            raise Unsupported("random numbers that are divided by something else than their probability")
        return c.random(self.shape, value, True)
    if value is not None:
        return c.map(self, lambda node: c.builder.scale(node, 1 / value))
    return binary(c, "divide", self, other)


@operator("bernoulli")
def bernoulli(c, self, p=None, **_):
    if p is None or product(self.shape[1:]) != 1:
        raise Unsupported("random numbers other than one for each row with a given probability")
    return c.random(self.shape, p, False)


@operator("pow")
def power(c, self, exponent, **_):
    value = number(exponent)
    if value is None or not isinstance(self, Value):
        raise Unsupported("a power with an exponent that is computed")
    if value == 2:
        return c.map(self, c.builder.square)
    return c.map(self, lambda node: c.builder.power(node, value))


def inverse(c, value: Value) -> Value:
    return c.map(value, lambda node: c.builder.offset(c.builder.negate(node), 1))


@operator("gt", "lt", "ge", "le", "eq", "ne", "greater", "less")
def compare(c, self, other, **_):
    sides = (other, self) if c.name in ("lt", "less", "ge") else (self, other)
    found = binary(c, "equal" if c.name in ("eq", "ne") else "greater", *sides)
    return inverse(c, found) if c.name in ("ge", "le", "ne") else found


@operator("logical_not", "bitwise_not")
def logical_not(c, self, **_):
    return inverse(c, self)


@operator("logical_and", "bitwise_and", "__and__")
def logical_and(c, self, other, **_):
    return binary(c, "multiply", self, other)


@operator("logical_or", "bitwise_or", "__or__")
def logical_or(c, self, other, **_):
    return binary(c, "maximum", self, other)


@operator("where")
def where(c, condition, self=0, other=0, **_):
    return binary(c, "where", condition, self, other)


@operator("masked_fill")
def masked_fill(c, self, mask, value, **_):
    value = number(value)
    if value is None:
        raise Unsupported("a computed value to fill with")
    return binary(c, "where", mask, max(value, -1e30), self)  # minus infinity would make gradients NaN


@operator("clone", "contiguous", "detach_copy", "alias", "lift_fresh_copy", "to", "_to_copy", "type_as", "float",
          "identity")
def same(c, self, dtype=None, **_):
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype not in (torch.float32, torch.float64):
        raise Unsupported(f"a conversion to {dtype}: values are float32")
    return self


@operator("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "zero", "fill")
def full_like(c, fill_value=0, value=0, **_):
    value = 1 if "ones" in c.name else value or fill_value
    return c.constant(torch.full(c.shapes[0], value, dtype=c.fx.meta["val"].dtype))


# Views.

def view(value: Value, shape, batch, change, make) -> Value:
    """A view of a value: change does to a meta tensor of the row what make does to the node when somebody asks."""
    strides = change(value.strides()) if change else None
    return Value(shape, batch, make, view=(value.base, strides) if strides is not None else None, lazy=True)


def reshape_value(c, value: Value, shape) -> Value:
    shape = tuple(shape)
    if shape == value.shape:
        return value
    batch = reshaped_batch(value.shape, value.batch, shape, c.rows)
    row = row_of(shape, batch)
    try:
        strides = value.strides().view(row)
    except RuntimeError:  # no view: the row of this value is written out
        strides, base = None, value
    else:
        base = value.base
    source = value if value.parameter and value.view is None else None
    return Value(shape, batch, lambda: value.node, view=(base, strides if strides is not None
                 else torch.empty(row, device="meta")), lazy=True, source=source or value.source)


@operator("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as")
def reshape(c, self, **_):
    return reshape_value(c, self, c.shapes[0])


@operator("permute", "transpose", "t", "numpy_T", "movedim", "swapaxes")
def permute(c, self, dims=None, dim0=None, dim1=None, source=None, destination=None, **_):
    rank = len(self.shape)
    if c.name == "movedim":
        dims = movedim_order(rank, source, destination)
    elif dims is None:
        dims = list(range(rank))
        first, second = (dim0 % rank, dim1 % rank) if dim0 is not None else (0, rank - 1)
        dims[first], dims[second] = dims[second], dims[first]
    dims = [dim % rank for dim in dims]
    shape = tuple(self.shape[dim] for dim in dims)
    if self.batch is None:
        batch, order = None, dims
    else:
        at, before, after = self.batch
        batch = (dims.index(at), before, after)
        inside = list(range(at, at + (before > 1) + (after > 1)))
        order = []
        for dim in dims:
            order += inside if dim == at else [row_axis(self, dim)]
    row = self.row
    made = view(self, shape, batch, lambda strides: strides.permute(order),
                lambda: permuted(c.builder, self.node, row, order))
    if self.parameter and dims == [1, 0]:
        made.source = ("transposed", self)
    return made


def movedim_order(rank, source, destination):
    source, destination = ([x] if isinstance(x, int) else list(x) for x in (source, destination))
    order: list = [None] * rank
    for one_source, one_destination in zip(source, destination):
        order[one_destination % rank] = one_source % rank
    rest = iter([dim for dim in range(rank) if dim not in [s % rank for s in source]])
    return [dim if dim is not None else next(rest) for dim in order]


@operator("expand", "expand_as", "broadcast_to", "repeat")
def expand(c, self, **_):
    shape = c.shapes[0]
    if shape == self.shape:
        return self
    lead = len(shape) - len(self.shape)
    batch = None if self.batch is None else (self.batch[0] + lead, *self.batch[1:])
    sizes = [1] * lead + list(self.shape)
    for dim, (size, wanted) in enumerate(zip(sizes, shape)):
        if size not in (1, wanted):
            raise Unsupported(f"it repeats {size} elements of a dimension, not one")
        if size != wanted and wanted == c.rows and batch is None:
            batch = (dim, 1, 1)  # the same row for every row of the batch
    return Value(shape, batch, lambda: expanded_value(c.builder, self, shape, batch).node, lazy=True)


def sliced(c, value: Value, axis: int, begin: int, end: int, fill: float = 0.0):
    """The node of a row's places begin to end - 1 along an axis."""
    row = value.row
    shape = value.node.shape
    if len(row) <= 3 and shape == tuple(row):
        name = {1: ["channels"], 2: ["height", "channels"], 3: ["channels", "height", "width"]}[len(row)][axis]
        return c.builder.slice(value.node, name, begin, end, fill)
    node = value.as_shape(c.builder, (product(row[:axis]), row[axis], product(row[axis + 1:])))
    return c.builder.slice(node, "height", begin, end, fill)


def part(c, value: Value, dim: int, begin: int, end: int) -> Value:
    """Places begin to end - 1 of a dimension."""
    axis = row_axis(value, dim)
    if (begin, end) == (0, value.row[axis]):
        return value
    shape = list(value.shape)
    shape[dim % len(shape)] = end - begin
    return view(value, shape, value.batch, lambda strides: strides.narrow(axis, begin, end - begin),
                lambda: sliced(c, value, axis, begin, end))


@operator("slice")
def slice_(c, self, dim=0, start=None, end=None, step=1, **_):
    dim, length = dim % len(self.shape), self.shape[dim % len(self.shape)]
    begin, end, _step = slice(start, end, step).indices(length)
    if step == 1 and (begin, end) == (0, length):
        return self
    if step == 1:
        return part(c, self, dim, begin, end)
    axis, count = row_axis(self, dim), len(range(begin, end, step))
    row, shape = self.row, list(self.shape)
    shape[dim] = count
    ahead, behind = product(row[:axis]), product(row[axis + 1:])

    def make():
        node = sliced(c, self, axis, begin, begin + count * step)
        node = c.builder.reshape(node, (ahead * count, step, behind))
        return c.builder.slice(node, "height", 0, 1, 0.0)
    return Value(shape, self.batch, make, lazy=True)


@operator("select")
def select(c, self, dim, index, **_):
    index = index % self.shape[dim]
    kept = part(c, self, dim, index, index + 1)
    return reshape_value(c, kept, [size for at, size in enumerate(self.shape) if at != dim % len(self.shape)])


@operator("unbind")
def unbind(c, self, dim=0, **_):
    return [select(c, self, dim, index) for index in range(self.shape[dim])]


@operator("chunk", "tensor_split")
def chunk(c, self, chunks=2, dim=0, **_):
    return split(c, self, -(-self.shape[dim] // chunks), dim)


@operator("split", "split_with_sizes")
def split(c, self, split_size=None, dim=0, split_sizes=None, **_):
    length = self.shape[dim]
    sizes = split_sizes if split_sizes is not None else split_size
    if isinstance(sizes, int):
        sizes = [min(sizes, length - begin) for begin in range(0, length, sizes)]
    begins = [sum(sizes[:index]) for index in range(len(sizes))]
    return [part(c, self, dim, begin, begin + size) for begin, size in zip(begins, sizes)]


@operator("cat", "concat", "concatenate", "stack")
def cat(c, tensors, dim=0, **_):
    if c.name == "stack":
        dim %= len(tensors[0].shape) + 1
        tensors = [reshape_value(c, value, [*value.shape[:dim], 1, *value.shape[dim:]]) for value in tensors]
    tensors = [value for value in tensors if value.shape != (0,)]
    shape = list(tensors[0].shape)
    dim %= len(shape)
    batch = next((value.batch for value in tensors if value.batch), None)
    tensors = [expanded_value(c.builder, value, value.shape, batch) if value.batch != batch else value for value in tensors]
    axis = row_axis(tensors[0], dim)
    shape[dim] = sum(value.shape[dim] for value in tensors)
    row = tensors[0].row
    if len(row) <= 3:
        name = {1: ["channels"], 2: ["height", "channels"], 3: ["channels", "height", "width"]}[len(row)][axis]
        nodes = [value.as_shape(c.builder, value.row) for value in tensors]
    else:
        name = "height"
        nodes = [value.as_shape(c.builder, (product(row[:axis]), value.row[axis], product(row[axis + 1:])))
                 for value in tensors]
    node = nodes[0]
    for other in nodes[1:]:
        node = c.builder.concat(node, other) if name == "channels" else c.builder.concat_along(node, other, name)
    return Value(shape, batch, lambda: node)


@operator("slice_scatter", "select_scatter")
def scatter(c, self, src, dim=0, start=None, end=None, step=1, index=None, **_):
    dim %= len(self.shape)
    if index is not None:
        start, end = index % self.shape[dim], index % self.shape[dim] + 1
        src = reshape_value(c, src, [*src.shape[:dim], 1, *src.shape[dim:]])
    if step != 1:
        raise Unsupported("every so manyeth element that is replaced")
    start, end, _step = slice(start, end).indices(self.shape[dim])
    parts = [part(c, self, dim, 0, start)] if start else []
    c.name = "cat"
    return cat(c, [*parts, src, *([part(c, self, dim, end, self.shape[dim])] if end < self.shape[dim] else [])], dim)


@operator("constant_pad_nd", "pad")
def pad(c, self, pad, mode="constant", value=0, **_):
    if mode != "constant":
        raise Unsupported(f"padding of mode {mode}")
    current = self
    for index in range(len(pad) // 2):
        before, after = pad[2 * index], pad[2 * index + 1]
        if before or after:
            dim = len(self.shape) - 1 - index
            current = padded(c, current, dim, before, after, value or 0)
    return current


def padded(c, value: Value, dim: int, before: int, after: int, fill: float) -> Value:
    axis, shape = row_axis(value, dim), list(value.shape)
    shape[dim] += before + after
    node = sliced(c, value, axis, -before, value.row[axis] + after, fill)
    return Value(shape, value.batch, lambda: node)


@operator("roll")
def roll(c, self, shifts, dims=(), **_):
    if not isinstance(dims, int) and not dims:
        raise Unsupported("a roll of all elements as one line")
    current = self
    shifts, dims = ([given] if isinstance(given, int) else given for given in (shifts, dims))
    for shift, dim in zip(shifts, dims):
        length = current.shape[dim]
        shift %= length
        if shift:
            c.name = "cat"
            last, first = part(c, current, dim, length - shift, length), part(c, current, dim, 0, length - shift)
            current = cat(c, [last, first], dim)
    return current


@operator("index", "index_select")
def index(c, self, indices=None, index=None, dim=None, **_):
    if index is not None:
        indices = [None] * (dim % len(self.shape)) + [index]
    given = [(place, ids) for place, ids in enumerate(indices) if ids is not None]
    if len(given) != 1 or given[0][1].constant is None:
        raise Unsupported("rows that are chosen by computed indices, or along several dimensions")
    dim, ids = given[0][0], given[0][1].constant
    axis, row = row_axis(self, dim), self.row
    length, ids = row[axis], ids.to(torch.int64) if ids.dtype != torch.bool else ids.nonzero().flatten()
    table = torch.nn.functional.one_hot(ids.flatten() % length, length).float()
    shape = [*self.shape[:dim], *ids.shape, *self.shape[dim + 1:]]
    node = self.as_shape(c.builder, (product(row[:axis]), length, product(row[axis + 1:])))
    chosen = c.builder.constant((1, *table.shape), table.numpy())
    if node.shape[0] > 1:
        order = [1, 0, 2]  # the places come first, so that one product takes them all
        moved = permuted(c.builder, node, node.shape, order)
        moved = c.builder.reshape(moved, (1, length, product(row) // length))
        made = c.builder.matmul(chosen, moved, False, False)
        made = permuted(c.builder, made, (ids.numel(), node.shape[0], node.shape[2]), [1, 0, 2])
    else:
        made = c.builder.matmul(chosen, node, False, False)
    batch = self.batch
    if batch and batch[0] > dim:
        batch = (batch[0] + ids.dim() - 1, *batch[1:])
    return Value(shape, batch, lambda: made)
