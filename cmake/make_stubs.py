#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes _declared.pyi from layout.json: what an editor and a type checker know of the module's options, which are fields
of the library's structs, and of the builder's methods, which are its functions.

usage: make_stubs.py layout.json _declared.pyi
"""
import json
import keyword
import pathlib
import sys
import textwrap

NUMBERS = {"c_int": "int", "c_size_t": "int", "c_int32": "int", "c_int64": "int", "c_uint64": "int", "unsigned": "int",
           "c_float": "float", "c_double": "float", "c_bool": "bool", "c_char_p": "str | os.PathLike[str] | None",
           "yoke_shape": "int | tuple[int, ...]", "yoke_color_jitter": "tuple[float, float, float, float]"}
# Of the engine's options: what DataParallel has as parameters, and what an engine of the module does not read.
NOT_ENGINE = {"batch", "pixels", "input_gradients", "other_model_count", "group_count", "share_count"}
NOT_TRAINER = {"model", "metric_count"}
HEAD = '''# Written by cmake/make_stubs.py from the headers of include/yoke.
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from .builder import Node

'''
DATA_PARALLEL = '''class DataParallelOptions(EngineOptions, total=False):
    optimizer: {optimizers}
    loss: str | Callable[..., Any]
    loss_options: dict[str, Any] | None
    batch: int | None
    groups: list[dict[str, Any]] | None
    lr_schedule: str | Callable[[int], float]
    steps: int
    warmup_steps: int
    lr_gamma: float
    epoch_steps: int
    on_step: Callable[[dict[str, Any]], object] | None

'''
TRAIN = '''class TrainOptions(TrainerOptions, total=False):
    optimizer: {optimizers}
    classes: int | None
    channels_first: bool
    groups: list[dict[str, Any]] | None

'''


def literal(words):
    return f"Literal[{', '.join(json.dumps(word) for word in words)}]"


def field_type(layout, kind, count):
    if kind in layout["enums"]:
        return literal(layout["enums"][kind])
    return "Sequence[float]" if count else NUMBERS.get(kind, "Any")


def options(layout, name, base, structs, left_out):
    lines, seen = [f"class {name}({base}, total=False):"], set()
    for struct in structs:
        for field, kind, count in layout["structs"][struct]:
            if kind != "c_void_p" and field not in {"struct_size", "kind"} | left_out | seen:
                seen.add(field)
                lines.append(f"    {field}: {field_type(layout, kind, count)}")
    return "\n".join(lines) + "\n\n", seen


def parameter_type(layout, name, kind, pointee):
    if pointee == "yoke_value":
        return "Node | Sequence[Node]"
    if pointee == "c_float":
        return "Any"  # what numpy makes an array of
    if kind == "yoke_value":
        return "Node"
    words = layout["enums"].get("yoke_axis" if name == "axes" else kind)
    if words:
        words = literal([word[3:] if word.startswith("fn-") else word for word in words])
        return f"{words} | int | tuple[{words}, ...]" if name == "axes" else f"{words} | int"
    return "str" if kind == "c_char_p" else NUMBERS.get(kind, "Any")


def docstring(text):
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    return textwrap.indent(f'"""{text}"""', " " * 8) + "\n        ...\n"


def method(layout, name, declared):
    takes = declared["parameters"]
    struct = next((pointee for _, _, pointee in takes if pointee in layout["structs"] and pointee != "yoke_value"), None)
    parts, late = ["self"], []
    for argument, kind, pointee in takes:
        if struct and pointee == struct:
            continue
        kind = parameter_type(layout, argument, kind, pointee)
        if argument == "mask":
            late.append(f"mask: {kind} | None = ...")
        elif late:
            late.append(f"{argument}: {kind} = ...")
        else:
            parts.append(f"{argument}: {kind}")
    parts += late
    if struct:
        parts.append("*")
        for field, kind, count in layout["structs"][struct]:
            if field != "struct_size" and not keyword.iskeyword(field):
                pointee = layout["pointees"][struct].get(field)
                kind = "Sequence[float]" if count else "Any" if kind == "c_void_p" and pointee != "yoke_value" else \
                    parameter_type(layout, field, kind, pointee)
                parts.append(f"{field}: {kind} = ...")
    result = "Node" if declared["result"] == "yoke_value" else "None" if declared["result"] == "yoke_status" else "Any"
    short = name[len("yoke_"):]
    short = short[len("model_"):] if short.startswith("model_") else short
    return f"    def {short}({', '.join(parts)}) -> {result}:\n" + docstring(declared["text"])


def builder(layout):
    made = ["class BuilderMethods:\n"]
    names = set()
    for name, declared in layout["builders"].items():
        if name not in ("yoke_elementary", "yoke_model_finish"):
            made.append(method(layout, name, declared))
            short = name[len("yoke_"):]
            names.add(short[len("model_"):] if short.startswith("model_") else short)
    for word in layout["enums"]["yoke_function"]:
        name = word[3:].replace("-", "_")
        if word.startswith("fn-") and name not in names:
            made.append(f"    def {name}(self, *arguments: Node | float, p: float = ..., q: float = ...) -> Node: ...\n")
    return "".join(made)


def main():
    layout = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    optimizers = literal(layout["enums"]["yoke_optimizer_kind"])
    engine, seen = options(layout, "EngineOptions", "TypedDict",
                           ["yoke_optimizer_options", "yoke_data_parallel_options"], NOT_ENGINE | {"threads"})
    trainer, _ = options(layout, "TrainerOptions", "EngineOptions", ["yoke_trainer_options"], NOT_TRAINER | seen)
    text = HEAD + engine + trainer + DATA_PARALLEL.format(optimizers=optimizers) + TRAIN.format(optimizers=optimizers)
    pathlib.Path(sys.argv[2]).write_text(text + builder(layout), encoding="utf-8")


if __name__ == "__main__":
    main()
