#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""layout.json, from which the module knows structs, defaults, enumerations and functions, is what the compiler makes of
include/yoke, and its words are those of the tool.

usage: test_layout.py CC ROOT TOOL, with YOKE_LIBRARY
"""
import ctypes
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

FOLDER = tempfile.TemporaryDirectory(prefix="yoke-layout-")
CC, ROOT, TOOL = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
SPEC = importlib.util.spec_from_file_location("own", ROOT / "python/yoke/_library.py")  # without the package: no numpy
own = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(own)
HEADERS = "\n".join(path.read_text() for path in sorted((ROOT / "include/yoke").glob("*.h")))
C_TYPES = {"c_void_p": "void *", "c_char_p": "const char *", "c_bool": "_Bool", "c_size_t": "size_t",
           "c_int32": "int32_t", "c_int64": "int64_t", "c_uint64": "uint64_t", "c_int": "int", "c_float": "float",
           "c_double": "double"}
# The tool's option of each enumeration, where a field of the trainer's or the engine's options has it.
OPTIONS = {"mode": "yoke_mode", "schedule": "yoke_schedule", "precision": "yoke_precision",
           "algorithm": "yoke_algorithm", "collectives": "yoke_collectives", "lr-schedule": "yoke_lr_schedule_kind",
           "augment": "yoke_augment", "sampling": "yoke_sampling", "optimizer": "yoke_optimizer_kind"}


def compile_c(code, *flags):
    source = pathlib.Path(FOLDER.name, "layout.c")
    source.write_text("#include <stdio.h>\n#include <yoke/yoke.h>\n" + code)
    subprocess.run([CC, f"-I{ROOT / 'include'}", *flags, "-o", source.with_suffix(""), source], check=True)
    return source.with_suffix("")


def compile_and_run(code):
    return subprocess.run([compile_c(code)], check=True, capture_output=True, text=True).stdout.splitlines()


class Layout(unittest.TestCase):
    def test_every_field_of_every_struct_lies_where_the_compiler_puts_it(self):
        declared = re.findall(r"^typedef struct (yoke_\w+) \{", HEADERS, re.M)
        self.assertEqual(sorted(own.LAYOUT["structs"]), sorted(declared))
        lines = []
        for struct, fields in own.LAYOUT["structs"].items():
            lines += [f'puts("{struct}"); printf("%zu\\n", sizeof({struct}));']
            lines += [f'printf("%zu %zu\\n", offsetof({struct}, {field}), sizeof((({struct} *)0)->{field}));'
                      for field, _, _ in fields]
        printed = iter(compile_and_run("int main(void) {" + "\n".join(lines) + "}"))
        for struct, fields in own.LAYOUT["structs"].items():
            self.assertEqual(next(printed), struct)
            self.assertEqual(str(ctypes.sizeof(own.TYPES[struct])), next(printed), struct)
            for name, _, _ in fields:
                field = getattr(own.TYPES[struct], name)
                self.assertEqual(next(printed), f"{field.offset} {field.size}", f"{struct}.{name}")

    def test_defaults_are_the_bytes_of_the_init_macros(self):
        macros = re.findall(r"#define (YOKE_\w+_INIT)\b[\s\\]*\{[\s\\]*sizeof\((\w+)\)", HEADERS)
        self.assertEqual(sorted(own.LAYOUT["defaults"]), sorted(name for name, _ in macros))
        code = "static void show(const void *from, size_t bytes) { const unsigned char *at = from;\n"
        code += "for (size_t i = 0; i < bytes; i++) printf(\"%02x\", at[i]); putchar('\\n'); }\nint main(void) {\n"
        code += "".join(f"{{ static const {struct} made = {name}; show(&made, sizeof made); }}\n"
                        for name, struct in macros)
        for (name, struct), line in zip(macros, compile_and_run(code + "}")):
            self.assertEqual(line, bytes(own.make(struct, name)).hex(), name)

    def test_words_of_options_are_those_of_the_tool(self):
        structs = ("yoke_trainer_options", "yoke_data_parallel_options")
        options = {kind for struct in structs for _, kind, _ in own.LAYOUT["structs"][struct]
                   if kind in own.LAYOUT["enums"]}
        self.assertEqual(options - set(OPTIONS.values()), {"yoke_checkpoint_unit"})
        for option, kind in OPTIONS.items():
            done = subprocess.run([TOOL, "train", f"--{option}", "?"], capture_output=True, text=True, check=False)
            self.assertIn(f"is not one of {'|'.join(own.LAYOUT['enums'][kind])}\n", done.stderr, option)
            self.assertEqual(list(own.LAYOUT["enums"][kind].values()), list(range(len(own.LAYOUT["enums"][kind]))))

    def test_functions_take_and_return_what_the_headers_declare(self):
        declared = re.findall(r"^YOKE_API [^;(]*?\b(yoke_\w+)\(", HEADERS, re.M)
        left_out = re.findall(r"^YOKE_API [^;(]*?\b(yoke_\w+)\([^;()]*(?:\(\*|\.\.\.)", HEADERS, re.M)
        self.assertEqual(left_out, ["yoke_dataset_skip_bad", "yoke_error_raise"])  # a callback, and any parameters
        self.assertEqual(sorted(own.LAYOUT["functions"]), sorted(set(declared) - set(left_out)))
        code = ""
        for name, (result, parameters) in own.LAYOUT["functions"].items():
            kinds = [C_TYPES.get(kind, kind) for kind in parameters]
            takes = ", ".join(f"{kind} a{k}" for k, kind in enumerate(kinds)) or "void"
            call = f"{name}({', '.join(f'a{k}' for k in range(len(kinds)))})"
            returned = {"c_void_p": "const void *"}.get(result, C_TYPES.get(result, result))
            code += f"{returned} call_{name}({takes}) {{ {'' if result == 'void' else 'return '}{call}; }}\n"
        compile_c(code, "-c", "-Wconversion", "-Wsign-conversion", "-Werror")  # refuses other numbers and kinds


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
