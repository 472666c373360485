# SPDX-License-Identifier: Apache-2.0
"""Tensors of an exported PyTorch graph as values of a model: which axis of a tensor is the batch, what a row of it is, and
how views and broadcasting become the three axes that a value of Yoke has."""
from __future__ import annotations

import math
from typing import Callable

import torch

from ..builder import Builder, Node


class Unsupported(RuntimeError):
    """What a network asks for and Yoke lacks; the text says it, and from_torch adds where."""


class Value:
    """A tensor of the exported graph.

    shape: PyTorch's, with the batch. batch: (dimension, before, after) where that dimension has before * rows * after
    elements; None where the tensor has no batch, as a parameter. make: builds the node of a row, row-major; a node that
    nobody asks for is never built. constant: the tensor itself where no input and no parameter changes it.
    """

    def __init__(self, shape, batch, make: Callable[[], Node] | None = None, *, constant=None, parameter=None, source=None,
                 view=None, lazy=False):
        self.shape, self.batch, self.make = tuple(shape), batch, make
        self.constant, self.parameter, self.source, self.lazy = constant, parameter, source, lazy
        self.base, self.view = view if view else (self, None)  # view: strides of this row in the row of base
        self.noise = None  # (probability to survive, whether it is divided by that): a row's Bernoulli number
        self.sums: int | None = None  # torch_losses.py: the mean over the batch of a row's number, or the sum
        self.fx = None  # of a parameter: its node in the exported graph
        self._node = None

    @property
    def node(self) -> Node:
        if self._node is None:
            self._node = self.base.node if self._is_base() else self.make()
        return self._node

    def _is_base(self) -> bool:
        """Whether views, one after the other, lead back to the base's own order, as heads that go apart and come together."""
        strides = self.view
        return strides is not None and strides.is_contiguous() and strides.storage_offset() == 0 and \
            strides.numel() == product(self.base.row)

    @property
    def row(self) -> list[int]:
        """The sizes of a row."""
        return row_of(self.shape, self.batch)

    def as_shape(self, builder: Builder, sizes) -> Node:
        """The row in another shape of as many elements."""
        sizes = tuple(sizes)
        return self.node if self.node.shape == sizes else builder.reshape(self.node, sizes)

    def strides(self):
        """The row as a view of the row of base: a meta tensor."""
        return torch.empty(self.row, device="meta") if self.view is None else self.view


def product(sizes) -> int:
    return math.prod(sizes)


def row_of(shape, batch) -> list[int]:
    if batch is None:
        return list(shape)
    at, before, after = batch
    inside = [size for size in (before, after) if size > 1]
    return [*shape[:at], *inside, *shape[at + 1:]]


def natural(row) -> tuple[int, ...]:
    """The shape of Yoke for a row of any number of dimensions."""
    if len(row) <= 3:
        return tuple(row) if row else (1,)
    return (product(row[:-2]), row[-2], row[-1])


def row_axis(value: Value, dim: int) -> int:
    """Where a dimension of PyTorch lies in the row."""
    dim %= len(value.shape)
    if value.batch is None:
        return dim
    at, before, after = value.batch
    if dim == at:
        if before == 1 and after == 1:
            raise Unsupported(f"it works along dimension {dim}, which is the batch: rows cannot see each other")
        raise Unsupported(f"it works along dimension {dim}, into which the batch is folded")
    return dim if dim < at else dim - 1 + (before > 1) + (after > 1)


def reshaped_batch(shape, batch, new, rows: int):
    """The batch of a tensor in another shape: the elements before and behind it stay."""
    if batch is None:
        return None
    at, before, after = batch
    before, after = product(shape[:at]) * before, product(shape[at + 1:]) * after
    for dim, size in enumerate(new):
        ahead = product(new[:dim])
        if before % ahead:
            break
        left = before // ahead
        if size % (left * rows) == 0 and size // (left * rows) * product(new[dim + 1:]) == after:
            return dim, left, size // (left * rows)
    raise Unsupported(f"it reshapes {tuple(shape)} to {tuple(new)} so that rows of the batch mix")


def permuted(builder: Builder, node: Node, sizes, order) -> Node:
    """A row of these sizes with its axes in another order, by exchanges of two of Yoke's three axes."""
    keep = [axis for axis in order if sizes[axis] != 1]
    groups: list[list[int]] = []  # axes that stay neighbours move as one
    for axis in keep:
        between = groups and [x for x in range(groups[-1][-1] + 1, axis) if sizes[x] != 1]
        if groups and axis > groups[-1][-1] and not between:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    lengths = {group[0]: product(sizes[axis] for axis in group) for group in groups}
    wanted, current = [group[0] for group in groups], sorted(lengths)
    size_of = lambda part: product(lengths[axis] for axis in part)  # noqa: E731
    for place in range(len(wanted)):
        at = current.index(wanted[place])
        if at == place:
            continue
        end = at + 1
        while end < len(current) and current[end] == wanted[place + end - at]:
            end += 1
        first, left, right, last = current[:place], current[place:at], current[at:end], current[end:]
        if not last:
            node = _exchange(builder, node, size_of(first), size_of(left), size_of(right))
        elif not first:
            node = builder.reshape(node, (size_of(left), size_of(right), size_of(last)))
            node = builder.transpose(node, "channels", "height")
        else:
            node = _exchange(builder, node, size_of(first), size_of(left), size_of(right) * size_of(last))
            node = _exchange(builder, node, size_of(first) * size_of(right), size_of(last), size_of(left))
        current = first + right + left + last
    return node


def _exchange(builder: Builder, node: Node, count: int, left: int, right: int) -> Node:
    """[count, left, right] as [count, right, left]."""
    if count == 1 and len(node.shape) == 3 and node.shape[0] == left:
        return builder.sequence(node)  # an image's pixels become positions
    shape = (count, left, right)
    node = node if node.shape == shape else builder.reshape(node, shape)
    return builder.transpose(node, "height", "width")


def broadcast(builder: Builder, values: list[Value], constant: Callable, rows: int):
    """Shape, batch, and the nodes of values with shapes that Yoke broadcasts alike."""
    shape = torch.broadcast_shapes(*(value.shape for value in values))
    batch = None
    for value in values:
        if value.batch is not None:
            at = value.batch[0] + len(shape) - len(value.shape)
            if shape[at] != value.shape[value.batch[0]] or batch not in (None, (at, *value.batch[1:])):
                raise Unsupported("two tensors have their batches in different dimensions")
            batch = (at, *value.batch[1:])
    row = row_of(shape, batch)
    sides = [_aligned(value, shape, batch, constant, rows) for value in values]
    if len(row) > 3:
        row, sides = _merged(builder, row, sides)
    kinds = natural(row)
    return shape, batch, [side.as_shape(builder, sizes if len(sizes) == len(kinds) else natural(sizes))
                          for side, sizes in sides]


def _aligned(value: Value, shape, batch, constant: Callable, rows: int):
    """The value, and its sizes along each axis of the row of the result: 1 where it repeats."""
    sizes = [1] * (len(shape) - len(value.shape)) + list(value.shape)
    if batch is None or value.batch is not None:
        own = None if value.batch is None else batch
        return value, row_of(sizes, own)
    at, before, after = batch
    if sizes[at] == 1:
        return value, [*sizes[:at], *[1] * ((before > 1) + (after > 1)), *sizes[at + 1:]]
    if value.constant is None:
        raise Unsupported(f"a parameter has {sizes[at]} elements along the batch's dimension")
    split = value.constant.reshape([*sizes[:at], before, rows, after, *sizes[at + 1:]])
    first = split.select(at + 1, 0)
    if not bool((split == first.unsqueeze(at + 1)).all()):
        raise Unsupported("a constant differs from row to row of the batch")
    kept = [*sizes[:at], *[size for size in (before, after) if size > 1], *sizes[at + 1:]]
    return constant(first.reshape(kept)), kept


def _merged(builder: Builder, row, sides):
    """Neighbouring axes along which all values repeat alike as one; what then still has four is written out."""
    groups: list[list[int]] = []
    pattern = [tuple(sizes[axis] == size for _, sizes in sides) for axis, size in enumerate(row)]
    for axis in (axis for axis, size in enumerate(row) if size > 1):
        if groups and pattern[axis] == pattern[groups[-1][-1]]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if len(groups) > 3:
        count = product(row)
        return [count], [(_expanded(builder, side, sizes, row), [count]) for side, sizes in sides]
    merged = [[product(sizes[axis] for axis in group) for group in groups or [[0]]]
              for sizes in (row, *(sizes for _, sizes in sides))]
    return merged[0], [(side, sizes) for (side, _), sizes in zip(sides, merged[1:])]


def _expanded(builder: Builder, value: Value, sizes, row) -> Value:
    """The value with every repeated element written out."""
    sizes, node = list(sizes), value.node
    for axis, size in enumerate(row):
        if sizes[axis] != size:
            zeros = builder.constant((1, size, 1), torch.zeros(size).numpy())
            node = builder.add(builder.reshape(node, (product(sizes[:axis]), 1, product(sizes[axis + 1:]))), zeros)
            sizes[axis] = size
    return Value(row, None, lambda: node)


def expanded_value(builder: Builder, value: Value, shape, batch) -> Value:
    """A value with the sizes of PyTorch's expand, written out."""
    sizes = [1] * (len(shape) - len(value.shape)) + list(value.shape)
    if batch is not None and value.batch is None:
        sizes[batch[0]] = 1
        plain = [*sizes[:batch[0]], *sizes[batch[0] + 1:]]
    else:
        plain = row_of(sizes, batch)
    made = _expanded(builder, value, plain, row_of(shape, batch))
    return Value(shape, batch, lambda: made.node)
