# SPDX-License-Identifier: Apache-2.0
"""ATen's reductions, softmax and products of matrices on values of a model."""
from __future__ import annotations

import torch

from .torch_operators import binary, operator, reshape_value
from .torch_values import Unsupported, Value, expanded_value, product, row_axis, row_of


@operator("maximum", "minimum", "max", "min")
def extreme(c, self, other=None, dim=None, keepdim=False, **_):
    if other is None and c.name == "max":
        return [reduce(c, self, "max", [dim] if dim is not None else None, keepdim), None]
    if other is None:
        raise Unsupported("the smallest along a dimension")
    return binary(c, {"max": "maximum", "min": "minimum"}.get(c.name, c.name), self, other)


def reduce(c, value: Value, kind: str, dims, keepdim: bool) -> Value:
    """Sum, mean or maximum along dimensions; None: all but the batch is refused, since that mixes rows."""
    rank = len(value.shape)
    dims = list(range(rank)) if dims is None or dims == [] else [dim % rank for dim in dims]
    if c.traces_loss and value.batch is not None and value.batch[0] in dims and \
            all(size == 1 for dim, size in enumerate(value.shape) if dim not in dims):
        return c.mean_over_rows(value, kind)
    axes = sorted(row_axis(value, dim) for dim in dims)
    row = value.row
    kept = [1 if dim in dims else size for dim, size in enumerate(value.shape)]
    node = value.node
    if kind == "mean" and node.shape == tuple(row) and len(row) == 3 and axes == [1, 2]:
        node = c.builder.global_average_pool(node)
    else:
        while axes:
            first = last = axes.pop(0)
            while axes and axes[0] == last + 1:
                last = axes.pop(0)
            sizes = (product(row[:first]), product(row[first:last + 1]), product(row[last + 1:]))
            node = node if node.shape == sizes else c.builder.reshape(node, sizes)
            node = c.builder.reduce_axes(node, kind, "height")
            row = [1 if first <= axis <= last else size for axis, size in enumerate(row)]
    made = Value(kept, value.batch, lambda: node)
    if keepdim:
        return made
    return reshape_value(c, made, [size for dim, size in enumerate(kept) if dim not in dims])


@operator("mean", "sum", "amax")
def reduction(c, self, dim=None, keepdim=False, **_):
    dims = [dim] if isinstance(dim, int) else dim
    return reduce(c, self, "max" if c.name == "amax" else c.name, dims, keepdim)


@operator("var", "std")
def variance(c, self, dim=None, unbiased=True, correction=None, keepdim=False, **_):
    dims = [dim] if isinstance(dim, int) else dim
    count = product(self.shape[d] for d in dims)
    correction = (1 if unbiased else 0) if correction is None else correction
    centered = binary(c, "subtract", self, reduce(c, self, "mean", dims, True))
    found = reduce(c, c.map(centered, c.builder.square), "sum", dims, keepdim)
    scaled = c.map(found, lambda node: c.builder.scale(node, 1 / (count - correction)))
    return c.map(scaled, c.builder.sqrt) if c.name == "std" else scaled


@operator("linalg_vector_norm", "norm")
def vector_norm(c, self, ord=2, p=2, dim=None, keepdim=False, **_):
    if ord != 2 or p != 2:
        raise Unsupported("a norm other than the Euclidean one")
    return c.map(reduce(c, c.map(self, c.builder.square), "sum", [dim] if isinstance(dim, int) else dim, keepdim),
                 c.builder.sqrt)


@operator("softmax", "_softmax", "log_softmax", "_log_softmax")
def softmax(c, self, dim, **_):
    axis, row = row_axis(self, dim), self.row
    logarithm = "log" in c.name
    if axis == len(row) - 1 and not logarithm:
        node = self.as_shape(c.builder, (product(row[:-1]), row[-1]) if len(row) > 1 else row)
        made = c.builder.softmax(node)
    else:
        node = self.as_shape(c.builder, (product(row[:axis]), row[axis], product(row[axis + 1:])))
        made = (c.builder.log_softmax_along if logarithm else c.builder.softmax_along)(node, "height")
    return Value(self.shape, self.batch, lambda: made)


@operator("matmul", "bmm", "mm", "linalg_matmul")
def matmul(c, self, other=None, mat2=None, **_):
    other = mat2 if other is None else other
    if self.batch is not None and other.batch is None and len(other.shape) == 2:
        return times_matrix(c, self, other)
    left, right = list(self.shape), list(other.shape)
    if len(left) < 2 or len(right) < 2:
        raise Unsupported("a product with a vector")
    shape = (*torch.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    batch = self.batch or other.batch
    if batch and self.batch is None:
        batch = (batch[0] + len(shape) - len(right), *batch[1:])
    elif batch:
        batch = (batch[0] + len(shape) - len(left), *batch[1:])
    if batch and batch[0] >= len(shape) - 2:
        raise Unsupported("a product of matrices along the batch")
    count = product(row_of(shape, batch)[:-2])
    nodes = []
    for value in (self, other):
        full = (*shape[:-2], *value.shape[-2:])
        row = row_of(full, batch)
        if product(row[:-2]) != product(value.row[:-2]) and product(value.row[:-2]) != 1:
            value = expanded_value(c.builder, value, full, batch)
        own = product(value.row[:-2])
        if own != count:
            value, own = expanded_value(c.builder, value, full, batch), count
        nodes.append(value.as_shape(c.builder, (own, *value.shape[-2:])))
    made = c.builder.matmul(*nodes, False, False)
    return Value(shape, batch, lambda: made)


def times_matrix(c, value: Value, matrix: Value) -> Value:
    """A product with a matrix that every row shares: a linear layer where the matrix is a parameter."""
    shape = (*value.shape[:-1], matrix.shape[-1])
    if matrix.parameter or (isinstance(matrix.source, tuple) and matrix.source[0] == "transposed"):
        parameter = matrix if matrix.parameter else matrix.source[1]
        return c.linear(value, parameter, None, transposed=bool(matrix.parameter))
    row_axis(value, -1)  # the batch must not be multiplied
    row = value.row
    node = value.as_shape(c.builder, (1, product(row[:-1]), row[-1]))
    made = c.builder.matmul(node, matrix.as_shape(c.builder, (1, *matrix.shape)), False, False)
    return Value(shape, value.batch, lambda: made)


@operator("addmm", "baddbmm")
def addmm(c, self, mat1=None, mat2=None, batch1=None, batch2=None, beta=1, alpha=1, **_):
    if beta != 1 or alpha != 1:
        raise Unsupported("a product that is scaled")
    if mat1 is not None and mat2.parameter and self.parameter and mat1.batch:
        return c.linear(mat1, mat2, self, transposed=True)
    return binary(c, "add", matmul(c, batch1 if mat1 is None else mat1, batch2 if mat2 is None else mat2), self)
