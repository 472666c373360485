# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules as models: torch.export gives the graph of ATen's operators, each becomes calls of the builder, and the
outputs are compared with the module's. Only this folder imports torch."""
from __future__ import annotations

import contextlib
import operator as python_operator

import numpy
import torch

from . import torch_layers  # noqa: F401  registers its operators
from . import torch_losses
from .._library import FromTorchError, YokeError
from .torch_operators import OPERATORS
from .torch_values import Unsupported, Value, natural, product, row_axis, row_of
from ..builder import Builder, Model

VIEWS = ("slice", "select", "transpose", "permute", "expand", "narrow", "split", "chunk", "unbind", "getitem", "view",
         "diagonal")
TOLERANCE = 1e-4  # of outputs, relative to their scale
FLOATS, WHOLE = (torch.float32, torch.float64), (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)


def from_torch(module: torch.nn.Module, example, loss="cross-entropy", *, targets=None, check: bool = True,
               **options) -> Model:
    """The module as a model with its names and weights, which yoke.Trainer and yoke.DataParallel train.

    example: an input with the batch in dimension 0, or a tuple of inputs; its values are used to compare outputs in
    eval mode, and a difference above 1e-4 of their scale raises. loss: the word of yoke_loss_kind, options its other
    fields; or a loss of torch.nn, or a function of the module's outputs and of targets, of which targets has examples,
    that gives the mean over the batch. Of a function that Yoke has no word for, the model's inputs are those of the module
    and the targets, and its output 0 is the loss. The graph is that of training mode, with dropout and batch statistics where the library trains. A module
    whose flow depends on values, an operator that Yoke lacks or another dtype than float32 raises FromTorchError, with
    the operator and the line of the module.
    """
    examples = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    if callable(loss):
        given = () if targets is None else tuple(targets) if isinstance(targets, (tuple, list)) else (targets,)
        given = tuple(one if isinstance(one, torch.Tensor) else torch.as_tensor(one) for one in given)
        known = torch_losses.known_loss(loss, given)
        if known is None or (known[0] == "cross-entropy" and _is_sequence(module, examples)):
            return _with_loss(module, examples, given, loss, options, check)
        loss, options = known[0], {**known[1], **options}
    _check_types(module, examples)
    rows = _prime(module, examples)
    program = _exported(module, tuple(_with_rows(tensor, rows) for tensor in examples))
    model = _Converter(module, program, rows).convert(loss, options)
    if check:
        _compare(module, model, examples)
    return model


def _is_sequence(module, examples) -> bool:
    """Whether the output is [rows, x, y], in which PyTorch's cross-entropy finds classes in x and Yoke's in y."""
    with _mode(module, False), torch.no_grad():
        outputs = module(*examples)
    return isinstance(outputs, torch.Tensor) and outputs.dim() == 3


def _with_loss(module, examples, targets, loss, options, check: bool) -> Model:
    """The model of a module and a loss that is a function."""
    if options:
        raise TypeError(f"{', '.join(options)}: options of a loss of Yoke, and this one is a function")
    _check_types(module, examples + targets)
    both, everything = torch_losses.with_loss(module, loss, len(examples)), examples + targets
    rows = _prime(module, everything)
    program = _exported(both, tuple(_with_rows(tensor, rows) for tensor in everything))
    if len(targets) == 1 and (word := torch_losses.plain_loss(program)):
        return from_torch(module, examples, word, check=check, **({"set_ignore_index": True} if word[0] == "c" else {}))
    converter = _Converter(both, program, rows)
    converter.traces_loss = True
    model = converter.convert("output", {})
    if len(model.inputs) != len(everything):
        raise FromTorchError(f"the module and its loss read {len(model.inputs)} of {len(everything)} inputs and targets: give "
                             "those that they read")
    model.traced_loss, model.targets, model.ids_count = True, len(targets), converter.counts_ids
    if check:
        _compare(module, model, examples)
        _compare_loss(module, model, examples, targets, loss)
    return model


def _check_types(module, examples):
    for name, tensor in [*module.named_parameters(), *module.named_buffers(),
                         *((f"example {index}", tensor) for index, tensor in enumerate(examples))]:
        if not isinstance(tensor, torch.Tensor):
            raise FromTorchError(f"{name} is a {type(tensor).__name__}, expected a tensor")
        if tensor.dtype not in FLOATS + WHOLE:
            raise FromTorchError(f"{name} has dtype {tensor.dtype}, which Yoke lacks: module.float() makes it float32")


def _prime(module, examples) -> int:
    """A number of rows that no other size of the network shares, so that the batch can be found again in every shape."""
    sizes = {size for tensor in [*module.parameters(), *module.buffers()] for size in tensor.shape}
    sizes |= {size for tensor in examples for size in tensor.shape[1:]}
    return next(prime for prime in (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167)
                if all(size % prime for size in sizes if size))


def _with_rows(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    if tensor.dim() == 0:
        raise FromTorchError("an example is a scalar: every input has the batch in dimension 0")
    return tensor[:1].expand(rows, *tensor.shape[1:]).clone()


@contextlib.contextmanager
def _mode(module, training: bool):
    """The module in this mode; afterwards every part is as it was."""
    before = {part: part.training for part in module.modules()}
    if training and not module.training or not training:
        module.train(training)
    try:
        yield
    finally:
        for part, mode in before.items():
            part.training = mode


def _exported(module, examples):
    with _mode(module, True):
        try:
            program = torch.export.export(module, examples, strict=False)
        except Exception as error:  # torch has a dozen classes for it
            first = str(error).strip().split("\n")[0]
            where = [line.strip() for line in str(error).split("\n") if line.strip().startswith("File ")]
            own = [line for line in where if "/torch/" not in line] or where
            first += f"\n  {own[-1]}" if own else ""
            if any(word in str(error) for word in ("data-dependent", "Data-dependent", "GuardOnDataDependent")):
                raise FromTorchError("the module's flow depends on values of tensors, which no fixed graph has: "
                                     f"{first}") from error
            raise FromTorchError(f"torch.export does not take the module: {first}") from error
    return _decomposed(program)


def _decomposed(program):
    """The program with operators that Yoke lacks as smaller ones, and without changes of parts of tensors in place."""
    calls = [node for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    missing = {node.target for node in calls if _name(node) not in OPERATORS and node.all_input_nodes}
    table = torch.export.default_decompositions()
    wanted = {target: table[target] for target in missing if target in table}
    if wanted or any(_changes_a_part(node) for node in calls):
        with contextlib.suppress(Exception):  # without it the operator is named
            return program.run_decompositions(wanted)
    return program


def _changes_a_part(node) -> bool:
    """Whether an operator in place changes a view of a tensor that others read."""
    target = node.args[0] if node.target._schema.is_mutable and node.args else None
    return isinstance(target, torch.fx.Node) and _name(target) in VIEWS and any(user is not target and user is not node for source in target.all_input_nodes for user in source.users)


def _name(node) -> str:
    """ "add" of aten.add_.Tensor."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return getattr(node.target, "__name__", str(node.target))
    name = node.target._schema.name.split("::")[1]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


class _Converter:
    """One module on its way into a builder. Operators' functions call its public methods."""

    def __init__(self, module, program, rows: int):
        self.module, self.program, self.rows = module, program, rows
        self.builder: Builder = None
        self.names, self.layers, self.frozen_statistics, self.frozen = {}, {}, [], []
        self.name, self.shapes, self.arguments, self.fx = "", [], {}, None
        self._inputs: list[Value] = []
        self.traces_loss, self.counts_ids = False, False  # output 0 is a loss; it reads classes as an input
        self.state = dict(module.named_parameters(remove_duplicate=False))
        self.state.update(module.named_buffers(remove_duplicate=False))
        first: dict = {}  # PyTorch's parameters() gives a shared tensor its first name
        self.first_name = {name: first.setdefault(id(tensor), name) for name, tensor in self.state.items()}

    # For operators.

    def mean_over_rows(self, value: Value, kind: str) -> Value:
        return torch_losses.mean_over_rows(self, value, kind)

    def map(self, value: Value, function) -> Value:
        """A value of the same shape, made by a call on the node."""
        made = function(value.node)
        return Value(value.shape, value.batch, lambda: made)

    def constant(self, tensor: torch.Tensor) -> Value:
        """A tensor that is the same for every row of every batch."""
        def make():
            if tensor.numel() > 2**28:
                raise Unsupported(f"a constant of shape {tuple(tensor.shape)}")
            values = tensor.detach().to(torch.float32).clamp(-1e30, 1e30).numpy()
            return self.builder.constant(natural(tensor.shape), values)
        return Value(tensor.shape, None, make, constant=tensor.detach(), lazy=True)

    def random(self, shape, survives: float, scaled: bool) -> Value:
        """A number for each row that is 0 or 1: only a product reads it, as stochastic depth."""
        value = Value(shape, (0, 1, 1), None, lazy=True)
        value.noise = (survives, scaled)
        return value

    def linear(self, value: Value, weight: Value, bias: Value | None, transposed: bool = False) -> Value:
        """A linear layer; a product and a sum where weight or bias are computed."""
        row, features = value.row, weight.shape[1 if transposed else 0]
        shape = (*value.shape[:-1], features)
        if value.batch is not None:
            row_axis(value, -1)  # the batch must not be multiplied
        if weight.parameter is None:
            self.name, self.arguments = "transpose", {}
            matrix = weight if transposed else OPERATORS["transpose"](self, weight, dim0=0, dim1=1)
            self.name = "matmul"
            product_ = OPERATORS["matmul"](self, value, matrix)
        else:
            plain = bias is None or bias.parameter is not None
            options = self.layer(weight, {"weight": weight, **({"bias": bias} if plain and bias is not None else {})})
            node = value.as_shape(self.builder, (product(row[:-1]), row[-1]) if len(row) > 1 else row)
            made = self.builder.linear(node, out_features=features, transposed=transposed,
                                       no_bias=bias is None or not plain, **options)
            product_ = Value(shape, value.batch, lambda: made)
            bias = None if plain else bias
        if bias is None:
            return product_
        self.name = "add"
        return OPERATORS["add"](self, product_, bias)

    def layer(self, weight: Value, tensors: dict, share: bool = True, **options) -> dict:
        """Name and options of a layer with these parameters; an earlier layer with the same weight shares it."""
        if weight.parameter is None:
            raise Unsupported("a layer whose weight is computed, or no parameter")
        for word, value in tensors.items():
            if value is not None and value.parameter is None:
                raise Unsupported(f"a layer whose {word} is computed, or no parameter")
        prefix = weight.parameter.removesuffix(".weight")
        for value in tensors.values():
            if value is not None and value.parameter in self._computed:
                raise Unsupported(f"a layer with the parameter {value.parameter}, which the module also computes with")
        if weight.parameter in self.layers:
            if not share:
                raise Unsupported(f"a second layer of this kind with the parameter {weight.parameter}")
            return {"name": self.free_name(prefix), "shared_with": self.layers[weight.parameter], **options}
        name = self.layers[weight.parameter] = self.free_name(prefix)
        self.rename(name, tensors)
        return {"name": name, **options}

    def norm_layer(self, weight, bias, mean, variance) -> dict:
        """Name of a batch norm; where it has no parameters its own stay 1 and 0."""
        prefix = mean.parameter.removesuffix(".running_mean")
        name = self.free_name(prefix)
        self.rename(name, {"weight": weight, "bias": bias, "running_mean": mean, "running_var": variance})
        if weight is None:
            self.names.update({f"{name}.{word}": (None, ()) for word in ("weight", "bias")})
            self.frozen += [f"{name}.weight", f"{name}.bias"]
        return {"name": name}

    def looked_up(self, weight: Value) -> int:
        """How many embeddings read a parameter."""
        return sum(_name(user) == "embedding" for user in weight.fx.users)

    def free_name(self, prefix: str) -> str:
        """The prefix, or with a number where a layer has it."""
        name, count = prefix, 2
        while name in self._taken:
            name, count = f"{prefix}#{count}", count + 1
        self._taken.add(name)
        return name

    def rename(self, layer: str, tensors: dict) -> None:
        """Notes which of the module's tensors a layer's are."""
        for word, value in tensors.items():
            if value is not None:
                self.names[f"{layer}.{word}"] = (value.parameter, tuple(self.state[value.parameter].shape))
                if not self.state[value.parameter].requires_grad and not word.startswith("running"):
                    self.frozen.append(f"{layer}.{word}")

    def is_input(self, value: Value) -> bool:
        """Whether the value is an input of the model as it came, a vector."""
        return value.base in self._inputs and value.base.lazy and len(value.base.node.shape) == 1 and \
            product(value.row) == product(value.base.row) and value.strides().is_contiguous()

    def dtype_of(self, argument: str) -> torch.dtype:
        return self.fx.kwargs.get(argument, self.fx.args[3] if len(self.fx.args) > 3 else None).meta["val"].dtype

    def rows_of_table(self, table: Value, ids: torch.Tensor, shape) -> Value:
        """Rows of a parameter by constant ids: a range of them where ids count up."""
        if len(ids.shape) > 1 and ids.shape[0] == self.rows:
            if not bool((ids == ids[:1]).all()):
                raise Unsupported("constant ids that differ from row to row of the batch")
            ids, shape = ids[:1], (1, *shape[1:])
        flat, count = ids.flatten(), ids.numel()
        first = int(flat[0])
        if bool((flat == torch.arange(first, first + count)).all()):
            def make():
                if count == table.shape[0]:
                    return table.node
                return self.builder.slice(table.node, "height", first, first + count, 0.0)
        else:
            def make():
                ones = torch.nn.functional.one_hot(flat, table.shape[0]).float()
                return self.builder.matmul(self.builder.constant(ones.shape, ones.numpy()), table.node, False, False)
        return Value(shape, None, make, lazy=True)

    # The graph.

    def convert(self, loss: str, options: dict) -> Model:
        self._taken: set[str] = set()
        self._computed: set[str] = set()  # parameters that are values, not a layer's
        nodes, outputs = self._live()
        values: dict = {}
        for node in nodes:
            try:
                values[node] = self._value(node, values)
            except (Unsupported, YokeError, ValueError, TypeError, IndexError) as error:
                raise self._located(node, error) from error
        return self._finish([values[node] for node in outputs], loss, options)

    def _live(self):
        """Nodes that the outputs read, in order, after operators that work in place write new values."""
        current, uses, order, outputs = {}, {}, [], []
        named = [spec.arg.name for spec in self.program.graph_signature.output_specs
                 if spec.kind.name == "USER_OUTPUT" and hasattr(spec.arg, "name")]
        newest = lambda node: current.get(node, node)  # noqa: E731
        for node in self.program.graph.nodes:
            if node.op == "output":
                outputs = [newest(one) for name in named for one in order if one.name == name]
                break
            order.append(node)
            replaced = {one: newest(one) for one in node.all_input_nodes}
            uses[node] = (replaced, list(replaced.values()))
            if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable and node.args:
                target = node.args[0]
                if isinstance(target, torch.fx.Node):
                    if _changes_a_part(node):
                        raise self._located(node, Unsupported("it changes a part of a tensor in place"))
                    current = {key: node if value is newest(target) else value for key, value in current.items()}
                    current[target] = node
        self._uses, live, todo = uses, set(), list(outputs)
        while todo:
            node = todo.pop()
            if node not in live:
                live.add(node)
                todo += uses[node][1]
        return [node for node in order if node in live], outputs

    def _value(self, node, values: dict):
        if node.op == "placeholder":
            return self._placeholder(node)
        if node.op == "get_attr":
            return self.constant(getattr(self.program.graph_module, node.target))
        replaced, _ = self._uses[node]
        take = lambda one: values[replaced[one]]  # noqa: E731
        args = torch.fx.node.map_arg(node.args, take)
        kwargs = torch.fx.node.map_arg(node.kwargs, take)
        if node.target is python_operator.getitem:
            return args[0][args[1]]
        if not isinstance(node.target, torch._ops.OpOverload):
            raise Unsupported("it is no operator of ATen")
        self.fx, self.name = node, _name(node)
        found = node.meta.get("val")
        self.shapes = [tuple(one.shape) for one in (found if isinstance(found, (tuple, list)) else [found])
                       if isinstance(one, torch.Tensor)]
        return self._call(node, args, kwargs)

    def _call(self, node, args, kwargs):
        tensors = [value for value in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(value, Value)]
        random = torch.Tag.nondeterministic_seeded in node.target.tags
        if not random and "empty" not in self.name and all(value.constant is not None for value in tensors):
            take = lambda value: value.constant if isinstance(value, Value) else value  # noqa: E731
            real = torch.utils._pytree.tree_map(take, (args, kwargs))
            made = node.target(*real[0], **{name: value for name, value in real[1].items() if name != "pin_memory"})
            return [self.constant(one) for one in made] if isinstance(made, (tuple, list)) else self.constant(made)
        if self.name in ("empty", "empty_like", "new_empty"):
            return Value(self.shapes[0], (0, 1, 1), None, lazy=True)
        if self.name not in OPERATORS:
            raise Unsupported("Yoke has no such operator")
        schema = node.target._schema.arguments
        given = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
        given.update({argument.name: value for argument, value in zip(schema, args)})
        self.arguments = {**given, **kwargs}
        for word, other in (("self", "input"), ("input", "self")):  # operators in place call it otherwise
            if word in self.arguments:
                self.arguments.setdefault(other, self.arguments[word])
        if any(value.sums is not None for value in tensors):
            return torch_losses.of_means(self, self.name, self.arguments)
        made = OPERATORS[self.name](self, **self.arguments)
        for one in made if isinstance(made, list) else [made]:
            if isinstance(one, Value) and not one.lazy:
                one.node  # built here, so that an error names this operator  # noqa: B018
        return made

    def _placeholder(self, node) -> Value:
        spec = next(spec for spec in self.program.graph_signature.input_specs if spec.arg.name == node.name)
        shape = tuple(node.meta["val"].shape)
        if spec.kind.name == "PARAMETER":
            name = self.first_name[spec.target]
            value = Value(shape, None, lambda: self._parameter(name, shape), parameter=name, lazy=True)
            value.fx = node
            return value
        if spec.kind.name in ("BUFFER", "CONSTANT_TENSOR"):
            tensors = {**self.program.state_dict, **self.program.constants}
            value = self.constant(tensors[spec.target])
            value.parameter, value.fx = spec.target if spec.kind.name == "BUFFER" else None, node
            return value
        if spec.kind.name != "USER_INPUT":
            raise Unsupported(f"an input of kind {spec.kind.name}")
        whole = not node.meta["val"].dtype.is_floating_point
        row = (product(shape[1:]),) if whole else natural(shape[1:])
        if self.builder is None:
            self.builder = Builder(row, type(self.module).__name__)
            made = self.builder.input()
        else:
            made = self.builder.add_input(node.name, row)
        value = Value(shape, (0, 1, 1), lambda: made, lazy=True)
        self._inputs.append(value)
        return value

    def _parameter(self, name: str, shape):
        sizes = natural(shape)
        if any(name == inside for inside, _ in self.names.values()):
            raise Unsupported(f"a computation with the parameter {name}, which is also a layer's")
        self._computed.add(name)
        self.free_name(name)
        self.names[name] = (name, shape)
        if not self.state[name].requires_grad:
            self.frozen.append(name)
        return self.builder.parameter_value(name=name, shape=sizes)

    def _finish(self, outputs: list[Value], loss: str, options: dict) -> Model:
        if any(value.batch is None for value in outputs[self.traces_loss:]):
            raise FromTorchError("an output does not depend on the inputs")
        arranged = []
        if self.traces_loss:
            try:
                first = torch_losses.loss_node(outputs[0])
            except Unsupported as error:
                raise FromTorchError(str(error)) from None
            arranged.append(((self.rows,), (0, 1, 1), False))
        for index, value in enumerate(outputs[len(arranged):], len(arranged)):
            classes = loss == "cross-entropy" and index == 0 and len(value.row) > 2 and value.batch == (0, 1, 1)
            if classes:  # PyTorch's classes are dimension 1
                made = OPERATORS["permute"](self, value, dims=[0, *range(2, len(value.shape)), 1])
                node = made.as_shape(self.builder, (product(made.row[:-1]), made.row[-1]))
            else:
                row = value.row
                node = value.as_shape(self.builder, row if 0 < len(row) <= 2 else (product(row),))
            if index:
                self.builder.add_output(f"output{index}", node)
            else:
                first = node
            arranged.append((value.shape, value.batch, classes))
        model = self.builder.finish(first, loss, self.names, **options)
        model.weights = {name: self._numpy(name) for name in model.tensors()}
        model.aliases = {name: first for name, first in self.first_name.items()
                         if name != first and first in model.weights}
        model.buffers = {name: tensor.detach().cpu().numpy() for name, tensor in self.module.state_dict().items()
                         if self.first_name.get(name, name) not in model.weights}
        model.frozen, model.frozen_statistics = self.frozen, self.frozen_statistics
        model.arrange = lambda index, array: _arranged(array, self.rows, *arranged[index])
        return model

    def _numpy(self, name: str) -> numpy.ndarray:
        return self.state[name].detach().to(torch.float32).cpu().contiguous().numpy()

    def _located(self, node, error) -> FromTorchError:
        """An error with the operator, the line of the module that calls it and the part of the module."""
        called = node.target if isinstance(node.target, torch._ops.OpOverload) else _name(node)
        parts = list((node.meta.get("nn_module_stack") or {}).values())
        kind = str(getattr(parts[-1][1], "__name__", parts[-1][1])).split(".")[-1] if parts else ""
        where = f" in {parts[-1][0] or 'the module'} ({kind})" if parts else ""
        trace = (node.meta.get("stack_trace") or "").strip().split("\n")
        lines = [(head.strip(), code.strip()) for head, code in zip(trace, trace[1:]) if head.strip().startswith("File ")]
        own = [line for line in lines if "/torch/" not in line[0]] or lines
        at = f"\n  {own[-1][0]}\n    {own[-1][1]}" if own else ""
        return FromTorchError(f"{called}{where}: {error}{at}", str(called))


def _arranged(array: numpy.ndarray, rows: int, shape, batch, classes: bool) -> numpy.ndarray:
    """Rows of an output in the shape that the module gives them."""
    if classes:
        array = numpy.moveaxis(array.reshape(len(array), *shape[2:], shape[1]), -1, 1)
        return array
    at, before, after = batch
    array = array.reshape(len(array), *row_of(shape, batch))
    array = numpy.moveaxis(array, 0, at + (before > 1))
    return array.reshape([*shape[:at], before * array.shape[at + (before > 1)] * after, *shape[at + 1:]])


def _compare(module, model: Model, examples) -> None:
    """Raises where the model's outputs are not the module's, both in eval mode."""
    with _mode(module, False), torch.no_grad():
        wanted = module(*examples)
    wanted = [one for one in torch.utils._pytree.tree_leaves(wanted) if isinstance(one, torch.Tensor)]
    found = _alone(model, examples)(*examples)
    found = found if isinstance(found, tuple) else (found,)
    model.error = 0.0
    for index, (own, theirs) in enumerate(zip(found, wanted)):
        theirs = theirs.to(torch.float32).numpy()
        if own.shape != theirs.shape:
            raise FromTorchError(f"output {index} has shape {own.shape}, the module's {theirs.shape}")
        scale = float(numpy.abs(theirs).max()) or 1.0
        error = float(numpy.abs(own - theirs).max()) / scale
        model.error = max(model.error, error)
        if not error <= TOLERANCE:
            raise FromTorchError(f"output {index} differs from the module's by {error:.2g} of its scale {scale:.3g}; "
                                f"{TOLERANCE:g} is allowed")


def _alone(model: Model, examples):
    from ..data_parallel import DataParallel
    return DataParallel(model, devices="cpu", batch=len(examples[0]), inference=True, algorithm="direct")


def _compare_loss(module, model: Model, examples, targets, loss) -> None:
    with _mode(module, False), torch.no_grad():
        wanted = float(loss(module(*examples), *targets))
    found = _alone(model, examples).evaluate(examples, targets)["loss"]
    if not abs(found - wanted) <= TOLERANCE * max(abs(wanted), 1e-3):
        raise FromTorchError(f"the loss is {found:.6g}, PyTorch's {wanted:.6g}: {TOLERANCE:g} of it is allowed")
