# SPDX-License-Identifier: Apache-2.0
"""A loss that is a function of outputs and targets: traced together with the module, it becomes output 0 of the model. What
is special about it is the mean over the batch: a Value with sums set is a number of each row, and the tensor is the mean
(sums 0) or the sum (sums 1) of the rows' numbers."""
from __future__ import annotations

import torch
from torch.nn import functional

from .torch_operators import OPERATORS, binary, number, operator
from .torch_reductions import reduce
from .torch_values import Unsupported, Value, product

MEANS = {0: "none", 1: "mean", 2: "sum"}  # ATen's numbers of reductions


def known_loss(loss, targets):
    """(word, options) of yoke_loss_options where a loss of torch.nn or torch.nn.functional has one; None: it is traced."""
    whole = len(targets) == 1 and not torch.as_tensor(targets[0]).dtype.is_floating_point
    kind = type(loss)
    if loss is functional.cross_entropy and whole:
        return "cross-entropy", {"set_ignore_index": True}
    if loss is functional.mse_loss and not whole:
        return "mse", {}
    if loss is functional.binary_cross_entropy_with_logits and not whole:
        return "bce", {}
    if getattr(loss, "reduction", "") != "mean" or len(targets) != 1:
        return None
    if kind is torch.nn.CrossEntropyLoss and whole and loss.weight is None:
        return "cross-entropy", {"set_ignore_index": True, "ignore_index": loss.ignore_index,
                                 "label_smoothing": loss.label_smoothing}
    if kind is torch.nn.MSELoss and not whole:
        return "mse", {}
    if kind is torch.nn.BCEWithLogitsLoss and not whole and loss.weight is None and loss.pos_weight is None:
        return "bce", {}
    if kind is torch.nn.HuberLoss and not whole and loss.delta == 1:
        return "huber", {}
    return None


WORDS = {"aten.cross_entropy_loss.default": "cross-entropy", "aten.mse_loss.default": "mse",
         "aten.binary_cross_entropy_with_logits.default": "bce"}


def plain_loss(program) -> str | None:
    """The word of a loss that turns out to be one of Yoke's, of the only output and the only target, without options: the
    library's own is faster, and counts what is right."""
    inputs = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    outputs = [spec.arg.name for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    loss = next(node for node in program.graph.nodes if node.name == outputs[0])
    word = WORDS.get(str(loss.target))
    if word is None or len(outputs) != 2 or len(loss.args) != 2 or loss.kwargs:
        return None
    output, target = loss.args
    whole = not target.meta["val"].dtype.is_floating_point
    if (output.name, target.name) != (outputs[1], inputs[-1]) or whole != (word == "cross-entropy"):
        return None
    if whole and output.meta["val"].dim() == 3:  # PyTorch's classes are dimension 1, those of Yoke's word the last
        return None
    return word if target.meta["val"].shape == output.meta["val"].shape or whole else None


def with_loss(module: torch.nn.Module, loss, inputs: int) -> torch.nn.Module:
    """The module with the same parts and names, that reads the loss's targets behind its inputs and whose outputs are the
    loss and those of the module."""
    own = module.__dict__.get("forward")  # where somebody has set it on the object
    base = type(module)

    def forward(self, *arguments):
        outputs = own(*arguments[:inputs]) if own else base.forward(self, *arguments[:inputs])
        found = loss(outputs, *arguments[inputs:])
        if not isinstance(found, torch.Tensor) or found.numel() != 1:
            shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise ValueError(f"the loss is {shape}, expected one number: the mean over the batch")
        return found.reshape(()) if found.dim() else found, *torch.utils._pytree.tree_leaves(outputs)

    made = base.__new__(type(base.__name__, (base,), {"forward": forward}))
    made.__dict__ = {name: value for name, value in module.__dict__.items() if name != "forward"}
    return made


def mean_over_rows(c, value: Value, kind: str) -> Value:
    """Mean or sum over everything, the batch included."""
    if kind not in ("mean", "sum"):
        raise Unsupported(f"{kind} over the batch")
    node, count = value.node, product(value.row)
    if count > 1:
        node = c.builder.reduce_axes(c.builder.reshape(node, (1, count, 1)), kind, "height")
    node = node if node.shape == (1,) else c.builder.reshape(node, (1,))
    return number_of_rows(node, 0 if kind == "mean" else 1)


def number_of_rows(node, sums: int) -> Value:
    made = Value((), None, lambda: node)
    made.sums = sums
    return made


def of_means(c, name: str, arguments: dict) -> Value:
    """An operator on numbers that are means over the batch: only what is linear in them is one itself."""
    self, other = arguments.get("self"), arguments.get("other")
    if name in ("add", "sub", "rsub"):
        return _added(c, *((other, self) if name == "rsub" else (self, other)),
                      arguments.get("alpha", 1) * (1 if name == "add" else -1))
    if name in ("mul", "multiply", "div", "divide", "true_divide"):
        return _scaled(c, name, self, other)
    if name == "neg":
        return number_of_rows(c.builder.scale(self.node, -1.0), self.sums)
    if name in ("mean", "sum", "clone", "to", "_to_copy", "alias", "detach_copy", "contiguous", "view", "reshape", "squeeze",
                "unsqueeze", "_unsafe_view", "flatten"):
        return self
    raise Unsupported("a function of a mean over the batch: Yoke's loss is the mean of a number of each row")


def _added(c, left, right, sign) -> Value:
    sums = [side.sums for side in (left, right) if isinstance(side, Value) and side.sums is not None]
    if len(set(sums)) > 1 or (len(sums) == 1 and sums[0] != 0):
        raise Unsupported("the sum of a mean and a sum over the batch: divide the sum by its rows")
    nodes = []
    for side, factor in ((left, 1), (right, sign)):
        if (constant := number(side)) is not None:
            nodes.append(constant * factor)
            continue
        node = side.as_shape(c.builder, (1,))
        nodes.append(node if factor == 1 else c.builder.scale(node, factor))
    if isinstance(nodes[0], float):
        nodes.reverse()
    made = c.builder.offset(*nodes) if isinstance(nodes[1], (int, float)) else c.builder.add(*nodes)
    return number_of_rows(made, sums[0])


def _scaled(c, name: str, self, other) -> Value:
    if not isinstance(self, Value) or self.sums is None:
        if name not in ("mul", "multiply"):
            raise Unsupported("a division by a mean over the batch")
        self, other = other, self
    factor = number(other)
    if factor is None:
        if isinstance(other, Value) and other.sums is not None:
            raise Unsupported("a product or a quotient of two means over the batch")
        made = binary(c, "multiply" if name.startswith("mul") else "divide", number_value(self), other)
        return number_of_rows(made.as_shape(c.builder, (1,)), self.sums)
    sums = self.sums
    if not name.startswith("mul"):
        if sums and factor % c.rows == 0:  # a sum divided by the rows: no other number has this factor
            sums, factor = 0, factor / c.rows
        factor = 1 / factor
    return number_of_rows(c.builder.scale(self.node, factor) if factor != 1 else self.node, sums)


def number_value(value: Value) -> Value:
    """The number of a row as an ordinary value of one element, to compute with."""
    return Value((1,), None, lambda: value.node)


def loss_node(value: Value):
    """The node of output 0, a number of each row whose mean over the batch is the loss."""
    if value.sums is None:
        raise Unsupported("the loss does not depend on the outputs by a mean over the batch")
    if value.sums:
        raise Unsupported("the loss is a sum over the batch: Yoke's is a mean of rows; divide it by the rows")
    return value.node


def reduced(c, value: Value, reduction: int) -> Value:
    kind = MEANS[reduction]
    return value if kind == "none" else reduce(c, value, kind, None, False)


@operator("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
def of_difference(c, self, target, reduction=1, beta=1.0, delta=1.0, **_):
    builder, name = c.builder, c.name
    difference = binary(c, "subtract", self, target)
    if name == "mse_loss":
        return reduced(c, c.map(difference, builder.square), reduction)
    size = c.map(difference, lambda node: builder.elementary("abs", node))
    if name == "l1_loss" or (name == "smooth_l1_loss" and beta == 0):
        return reduced(c, size, reduction)
    edge = beta if name == "smooth_l1_loss" else delta
    # With a the smaller of |x| and the edge: a (|x| - a / 2); smooth_l1 divides it by the edge.
    inner = c.map(size, lambda node: builder.clamp(node, 0, edge))
    outer = binary(c, "subtract", size, c.map(inner, lambda node: builder.scale(node, 0.5)))
    found = binary(c, "multiply", inner, outer)
    if name == "smooth_l1_loss" and edge != 1:
        found = c.map(found, lambda node: builder.scale(node, 1 / edge))
    return reduced(c, found, reduction)


@operator("binary_cross_entropy_with_logits")
def logits_loss(c, self, target, weight=None, pos_weight=None, reduction=1, **_):
    if pos_weight is not None:
        raise Unsupported("pos_weight")
    # softplus(x) - x t = -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))
    found = binary(c, "subtract", c.map(self, c.builder.softplus), binary(c, "multiply", self, target))
    return reduced(c, binary(c, "multiply", found, weight) if weight is not None else found, reduction)


@operator("binary_cross_entropy")
def probability_loss(c, self, target, weight=None, reduction=1, **_):
    builder = c.builder
    logs = [c.map(self, lambda node: builder.elementary("log", builder.clamp(node, 1e-38, 2.0)))]
    rest = c.map(self, lambda node: builder.offset(builder.scale(node, -1.0), 1.0))
    logs.append(c.map(rest, lambda node: builder.elementary("log", builder.clamp(node, 1e-38, 2.0))))
    logs = [c.map(one, lambda node: builder.clamp(node, -100.0, 100.0)) for one in logs]  # as PyTorch's
    other = c.map(target, lambda node: builder.offset(builder.scale(node, -1.0), 1.0))
    found = binary(c, "add", binary(c, "multiply", target, logs[0]), binary(c, "multiply", other, logs[1]))
    found = c.map(found, lambda node: builder.scale(node, -1.0))
    return reduced(c, binary(c, "multiply", found, weight) if weight is not None else found, reduction)


@operator("kl_div")
def divergence(c, self, target, reduction=1, log_target=False, **_):
    builder = c.builder
    if log_target:
        log, weight = target, c.map(target, lambda node: builder.elementary("exp", node))
    else:
        log = c.map(target, lambda node: builder.elementary("log", builder.clamp(node, 1e-38, 3e38)))
        weight = target
    return reduced(c, binary(c, "multiply", weight, binary(c, "subtract", log, self)), reduction)


@operator("cross_entropy_loss")
def cross_entropy(c, self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0, **_):
    if weight is not None:
        raise Unsupported("weights of classes in a traced loss: loss='cross-entropy' takes them as class_weights")
    dim = 1 if len(self.shape) > 1 else 0
    c.name = "log_softmax"
    logs = OPERATORS["log_softmax"](c, self, dim=dim)
    if target.shape == self.shape:  # probabilities
        found = c.map(reduce(c, binary(c, "multiply", logs, target), "sum", [dim], False),
                      lambda node: c.builder.scale(node, -1.0))
        return reduced(c, found, reduction)
    found = of_ids(c, logs, target, dim, reduction, ignore_index)
    if not label_smoothing:
        return found
    if MEANS[reduction] != "mean":
        raise Unsupported("label smoothing without the mean")
    even = c.builder.scale(reduce(c, logs, "mean", None, False).node, -label_smoothing)
    return number_of_rows(c.builder.add(c.builder.scale(found.node, 1 - label_smoothing), even), 0)


@operator("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(c, self, target, weight=None, reduction=1, ignore_index=-100, **_):
    if weight is not None:
        raise Unsupported("weights of classes")
    return of_ids(c, self, target, 1 if len(self.shape) > 1 else 0, reduction, ignore_index)


def of_ids(c, logs: Value, target: Value, dim: int, reduction: int, ignore_index: int) -> Value:
    """Minus the logarithms of the classes' probabilities: their mean over the positions of a row, and over the batch."""
    if ignore_index >= 0:
        raise Unsupported(f"ignore_index {ignore_index}, which is a class")
    if MEANS[reduction] != "mean" and product(target.row) != 1:
        raise Unsupported("the loss of several positions without the mean")
    if len(logs.shape) > 2:
        c.name = "permute"
        logs = OPERATORS["permute"](c, logs, dims=[axis for axis in range(len(logs.shape)) if axis != dim] + [dim])
    positions = product(logs.row[:-1])
    node = logs.as_shape(c.builder, (positions, logs.row[-1]) if positions > 1 else (logs.row[-1],))
    found = c.builder.nll_loss(node, target.as_shape(c.builder, (positions,)))
    c.counts_ids = True
    if MEANS[reduction] == "none":
        return Value(target.shape, target.batch, lambda: found)
    return number_of_rows(found, 0 if MEANS[reduction] == "mean" else 1)
