#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes layout.json: the structs, enumerations, INIT macros and functions of include/yoke, from which the module of
python/yoke knows them, and of the functions that build a model also the names of their parameters and their comments.
The C preprocessor reads the headers, and ctypes computes the offsets: no declaration is copied. The words of other tools,
for the module's hints, are the tables of the tool.

usage: make_layout.py COMPILER INCLUDE_FOLDER OTHER_WORDS.C layout.json
"""
import json
import os
import pathlib
import re
import subprocess
import sys

# C types that are no struct or enumeration, by their names in ctypes.
TYPES = {"void": "void", "char": "c_char", "_Bool": "c_bool", "int": "c_int", "size_t": "c_size_t",
         "int32_t": "c_int32", "int64_t": "c_int64", "uint64_t": "c_uint64", "float": "c_float", "double": "c_double"}
WORDS = {"data-parallel": "dp", "distributed-data-parallel": "ddp"}  # where the tool has a word of its own


def preprocess(compiler, folder):
    """yoke.h with all that it includes; then each INIT macro: its name in quotes, and what it stands for."""
    headers = "".join(path.read_text(encoding="utf-8") for path in sorted((folder / "yoke").glob("*.h")))
    source = "#include <yoke/yoke.h>\n"
    source += "".join(f'"{name}" = {name};\n' for name in re.findall(r"#define (YOKE_\w+_INIT)\b", headers))
    command = [compiler, "-std=c11", "-E", "-P", "-x", "c", f"-I{folder}", "-"]
    return subprocess.run(command, input=source, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def declaration(text):
    """[name, type, count] of a field or parameter; the count is 0 where it is no array."""
    text = " ".join(text.split())
    if "(*" in text:
        return [re.search(r"\(\*(\w+)\)", text)[1], "c_void_p", 0]
    kind, name, count = re.fullmatch(r"(.*?)(\w+)(?:\[(\d+)\])?", text).groups()
    if "*" in kind:
        return [name, "c_char_p" if kind == "const char *" else "c_void_p", 0]
    kind = kind.replace("const ", "").strip()
    return [name, TYPES.get(kind, kind), int(count or 0)]


def parameter(text, callbacks):
    """The type of a parameter: an array or a function is a pointer."""
    _, kind, count = declaration(text)
    return "c_void_p" if count or kind in callbacks else kind


def pointee(text):
    """What a field or parameter points to, "yoke_value" of "const yoke_value *inputs"; None where it is no such pointer."""
    found = re.fullmatch(r"(?:const )?(\w+) \*(\w+)", " ".join(text.split()))
    return TYPES.get(found[1], found[1]) if found and found[1] not in ("char", "void") else None


def builders(functions, folder):
    """The functions that add to a model, with names and types of their parameters and what the headers say of them."""
    headers = "".join(path.read_text(encoding="utf-8") for path in sorted((folder / "yoke").glob("*.h")))
    comment = r"/\*\*((?:(?!\*/).)*)\*/\s*YOKE_API [\w *]*?\b(yoke_\w+)\("
    said = {name: text for text, name in re.findall(comment, headers, re.S)}
    found = {}
    for result, name, parameters in functions:
        first, *others = [" ".join(part.split()) for part in parameters.split(",")]
        if first == "yoke_model *model" and name != "yoke_model_destroy":
            text = "\n".join(re.sub(r"^ \*? ?", "", line) for line in said[name].splitlines())
            found[name] = {"parameters": [[*declaration(part)[:2], pointee(part)] for part in others],
                           "result": declaration(result + name)[1], "text": text.strip()}
    return found


def enumerators(body):
    """{name: value} of an enumeration."""
    values, value = {}, -1
    for name, given in re.findall(r"(\w+)(?: = (-?\d+))?", body):
        value = int(given) if given else value + 1
        values[name] = value
    return values


def words(values):
    """The enumerators as the tool calls them: "crop-flip" is YOKE_AUGMENT_CROP_FLIP."""
    start = os.path.commonprefix(list(values)).rindex("_") + 1
    named = {name[start:].lower().replace("_", "-"): value for name, value in values.items()}
    return {WORDS.get(name, name): value for name, value in named.items()}


def defaults(fields, values, constants):
    """{field: value} of an INIT macro, without those that are 0."""
    nested = re.compile(r"\{(?:[ 0,{}]|\(\(void ?\*\)0\))*\}")  # all zero
    values = [value.strip() for value in nested.sub("0", values).split(",")]
    given = dict(zip([name for name, _, _ in fields], values))
    del given["struct_size"]
    numbers = {name: constants[value] if value in constants else json.loads(value)
               for name, value in given.items() if value.replace(" ", "") != "((void*)0)"}
    return {name: value for name, value in numbers.items() if value}


def table(text, name):
    """The rows of a C table of texts: a list each, NULL as None."""
    body = re.search(r"\} " + name + r"\[\] = \{\n(.*?)\n\};", text, re.S)[1]
    rows = re.findall(r'\{((?:"[^"]*"|[^"{}])*)\}', body)
    return [["".join(re.findall(r'"([^"]*)"', cell)) or None for cell in re.findall(r'(?:"[^"]*"|[^",])+', row)]
            for row in rows]


def hints(text):
    """What to say of an option of another tool, by name, and of a value, by "option value"; with _ for - and as is."""
    said = {}
    for words, tool, own, note in table(text, "other_options"):
        use = own and f"use {own}" or tool and f"the tool has --{tool}, the module nothing like it"
        for word in words.split("|"):
            said[word] = ": " + (f"{use} ({note})" if use and note else use or note)
    for option, words, own, note in table(text, "other_values"):
        for word in words.split("|"):
            said[f"{option} {word}"] = f": use {own}" + (f" ({note})" if note else "")
    return {**said, **{name.replace("-", "_"): text for name, text in said.items()}}


def main():
    text = preprocess(sys.argv[1], pathlib.Path(sys.argv[2]))
    bodies = {name: [field for field in body.split(";") if field.strip()]
              for name, body in re.findall(r"typedef struct (yoke_\w+) \{(.*?)\} \1;", text, re.S)}
    structs = {name: [declaration(field) for field in fields] for name, fields in bodies.items()}
    pointees = {name: {declaration(field)[0]: pointee(field) for field in fields if pointee(field)}
                for name, fields in bodies.items()}
    enums = {name: enumerators(body) for name, body in re.findall(r"typedef enum (yoke_\w+) \{(.*?)\} \1;", text, re.S)}
    constants = {name: value for values in enums.values() for name, value in values.items()}
    macros = re.findall(r'"(YOKE_\w+_INIT)" = \{ (sizeof\((\w+)\).*)\};', text)
    text = re.sub(r"static inline[^;{]*\{.*?\n\}", "", text, flags=re.S)  # what no library exports
    functions = re.findall(r"([\w *]+\b|[\w *]+\*)(yoke_\w+)\(([^;{}()]*)\);", text)
    callbacks = re.findall(r"typedef [^;]*\(\*(yoke_\w+)\)", text)
    others = pathlib.Path(sys.argv[3]).read_text(encoding="utf-8")
    layout = {
        "hints": hints(others),
        "structs": structs,
        "pointees": pointees,
        "enums": {name: words(values) for name, values in enums.items()},
        "defaults": {name: defaults(structs[struct], values, constants) for name, values, struct in macros},
        "functions": {name: [declaration(result + name)[1],
                             [parameter(part, callbacks) for part in parameters.split(",") if part != "void"]]
                      for result, name, parameters in functions},
        "builders": builders(functions, pathlib.Path(sys.argv[2])),
    }
    pathlib.Path(sys.argv[4]).write_text(json.dumps(layout, indent=0), encoding="utf-8")


if __name__ == "__main__":
    main()
