#!/usr/bin/env python3
"""The mirrors of python/yoke/_library.py are the structs, defaults, enumerations and functions of include/yoke: compared
with the C compiler's layout and with the headers' text.

usage: test_layout.py CC ROOT, with YOKE_LIBRARY
"""
import ctypes
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CC, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
SPEC = importlib.util.spec_from_file_location("own", ROOT / "python/yoke/_library.py")  # without the package: no numpy
own = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(own)
HEADERS = "\n".join(path.read_text() for path in sorted((ROOT / "include/yoke").glob("*.h")))
INITS = {"yoke_trainer_options": "YOKE_TRAINER_OPTIONS_INIT", "yoke_optimizer_options": "YOKE_SGD_OPTIONS_INIT",
         "yoke_devices_options": "YOKE_DEVICES_OPTIONS_INIT"}
# The enumeration of each option, and the words that are not its enumerators' own.
ENUMERATIONS = {"kind": "yoke_optimizer_kind", "mode": "yoke_mode", "schedule": "yoke_schedule",
                "precision": "yoke_precision", "algorithm": "yoke_algorithm", "collectives": "yoke_collectives",
                "lr_schedule": "yoke_lr_schedule_kind", "augment": "yoke_augment",
                "checkpoint_unit": "yoke_checkpoint_unit"}
WORDS = {"data-parallel": "dp", "distributed-data-parallel": "ddp"}
PREFIXES = r"^(YOKE_(MODE|SCHEDULE|ALGORITHM|COLLECTIVES|LR|AUGMENT|CHECKPOINT|EVENT)_|YOKE_)"
LETTERS = {"yoke_status": "e", "void": "v", "int": "i", "bool": "b", "size_t": "z", "uint64_t": "u", "double": "d",
           "yoke_split": "i", "yoke_shape": "yoke_shape"}


def compile_and_run(code):
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "layout.c"), pathlib.Path(folder, "layout")
        source.write_text(code)
        subprocess.run([CC, f"-I{ROOT / 'include'}", "-o", program, source], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def enumerators(name):
    body = re.search(rf"typedef enum {name} {{(.*?)}} {name};", HEADERS, re.S)[1]
    return re.findall(r"YOKE_\w+", re.sub(r"/\*.*?\*/", "", body, flags=re.S))


def word(enumerator):
    text = re.sub(PREFIXES, "", enumerator).lower().replace("_", "-")
    return WORDS.get(text, text)


def letter(declared):
    """s, p or the letter of a parameter or result, as FUNCTIONS writes it."""
    kind = re.sub(r"\bconst\b|\b\w+$" if "*" not in declared else r"\bconst\b", "", declared).strip()
    if "*" in declared:
        return "s" if kind.startswith("char *") and "**" not in kind else "p"
    return LETTERS[kind]


class Layout(unittest.TestCase):
    def test_every_field_lies_where_the_compiler_puts_it(self):
        lines = [f'puts("{struct}"); printf("%zu\\n", sizeof({struct}));' + "".join(
            f'printf("{field} %zu %zu\\n", offsetof({struct}, {field}), sizeof((({struct} *)0)->{field}));'
            for field, _ in mirror._fields_) for struct, mirror in own.MIRRORS.items()]
        head = "#include <stdio.h>\n#include <yoke/yoke.h>\nint main(void) {"
        printed = compile_and_run(head + "\n".join(lines) + "}")
        for struct, mirror in own.MIRRORS.items():
            self.assertEqual(printed.pop(0), struct)
            self.assertLessEqual(ctypes.sizeof(mirror), int(printed.pop(0)), struct)
            for name, _ in mirror._fields_:
                field = getattr(mirror, name)
                self.assertEqual(printed.pop(0), f"{name} {field.offset} {field.size}", struct)

    def test_defaults_are_those_of_the_init_macros_and_no_other_field_has_one(self):
        wanted = {(struct, macro): own.MIRRORS[struct]() for struct, macro in INITS.items()}
        adamw = own.MIRRORS["yoke_optimizer_options"](**own.ADAMW)
        wanted["yoke_optimizer_options", "YOKE_ADAMW_OPTIONS_INIT"] = adamw
        code = "#include <stdio.h>\n#include <yoke/yoke.h>\n"
        code += "static void show(const void *from, size_t bytes) { const unsigned char *at = from;\n"
        code += "for (size_t i = 0; i < bytes; i++) printf(\"%02x\", at[i]); putchar('\\n'); }\nint main(void) {\n"
        for struct, macro in wanted:
            code += f"{{ static const {struct} made = {macro}; show(&made, sizeof made); }}\n"
        for ((struct, macro), mirror), line in zip(wanted.items(), compile_and_run(code + "}")):
            made, bytes_ = bytes.fromhex(line), ctypes.sizeof(ctypes.c_size_t)
            mine = bytes(mirror).ljust(len(made), b"\0")
            self.assertEqual(made[bytes_:].hex(), mine[bytes_:].hex(), f"{macro} of {struct}")

    def test_words_of_options_are_the_enumerators_in_their_order(self):
        self.assertEqual(set(ENUMERATIONS), set(own.ENUMS))
        for option, words in own.ENUMS.items():
            found = [word(name) for name in enumerators(ENUMERATIONS[option])]
            self.assertEqual([name for name in found if name != "ddp"], list(words), option)
            self.assertEqual(found[:len(words)], list(words), option)
        self.assertEqual([word(name) for name in enumerators("yoke_event_kind")], list(own.EVENTS))

    def test_functions_have_the_parameters_of_their_declarations(self):
        for declaration in own.FUNCTIONS.replace("\n", " ").split(", "):
            result, name, *parameters = declaration.split()
            found = re.search(rf"^YOKE_API ([^;(]*?)\b{name}\(([^;]*?)\);", HEADERS, re.M | re.S)
            self.assertTrue(found, name)
            declared = [" ".join(part.split()) for part in found[2].split(",")]
            letters = ["i" if letter(part) == "e" else letter(part) for part in declared if part != "void"]
            returned = letter(found[1] if "*" in found[1] else found[1] + "x")
            self.assertEqual([result, *parameters], [returned, *letters], name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
