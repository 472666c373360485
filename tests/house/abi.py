#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that were built against other headers meet today's library: abi_host.c, built against structs that have
grown by a field and against structs that lack their last one, prints what it prints with today's headers; abi_future.c,
which sets a field that the library does not know, is refused in words. No sized struct holds another one by value, and
abi.txt records what programs were built against: no line of it changes or goes unless YOKE_ABI grows.

usage: abi.py ROOT CC LIBYOKE.SO YOKE_ABI [--write]; --write records today's interface
"""
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

STRUCT = re.compile(r"typedef struct (\w+) \{\s*(.*?)\n\} \1;", re.S)
INIT = re.compile(r"^(#define YOKE_\w+_INIT +\{ *sizeof\((\w+)\), *)(.*)\}", re.M)
# Not cut: no program was ever built without these last fields, and 0 in them is refused or means something else.
WHOLE = {"yoke_layer_norm_options", "yoke_batch_norm_options", "yoke_lr_find_options", "yoke_outputs",
         "yoke_lr_plateau", "yoke_image_options", "yoke_attention_options"}
UNREAD = {"yoke_decoding", "yoke_net_info"}  # of GPUs only; what a callback gets
ALIGNMENT = 8  # of struct_size, and so of every struct that has one
GIVES = "of the library"  # structs that the library makes and a callback reads


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def sized(text):
    return {name: body for name, body in STRUCT.findall(text) if body.startswith("size_t struct_size;")}


def grow(text):
    def add(match):
        field = "\n    unsigned long long yoke_grown;" if match[2].startswith("size_t struct_size;") else ""
        return f"typedef struct {match[1]} {{\n    {match[2]}{field}\n}} {match[1]};"
    return STRUCT.sub(add, text)


def cut(text, places):
    """Takes the last field, and those before it as long as the field lies where a shorter struct has padding."""
    def fields_left(name, count):
        offsets = sorted(places[name])
        return count if name in WHOLE else max(i for i in range(count) if offsets[i] % ALIGNMENT == 0)

    def take(match):
        if not match[2].startswith("size_t struct_size;"):
            return match[0]
        fields = match[2].split(";")[:-1]
        return f"typedef struct {match[1]} {{{';'.join(fields[:fields_left(match[1], len(fields))])};}} {match[1]};"

    def shorten(match):
        values = re.sub(r"\{[^{}]*\}", lambda nested: nested[0].replace(",", "\0"), match[3]).split(",")
        left = values[:fields_left(match[2], len(values) + 1) - 1]
        return f"{match[1]}{','.join(left)} }}".replace("\0", ",")
    return INIT.sub(shorten, STRUCT.sub(take, text.replace("\\\n", " ")))


def build(cc, include, source, library, output, *flags):
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    subprocess.run([cc, "-std=c11", *warnings, *flags, "-I", include, source, "-o", output, library,
                    f"-Wl,-rpath,{library.parent}"], check=True)


def run(program, folder, *words):
    """What it prints. OpenMP's threads are none of its business."""
    folder.mkdir()
    result = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=900,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    return result.stdout.splitlines() + ([f"exit code {result.returncode}", result.stderr] if result.returncode else [])


def make_images(root, folder):
    """Three pictures, and a damaged one."""
    for name in "ab":
        (folder / "train" / name).mkdir(parents=True)
        shutil.copy(root / "tests/fixtures/images/color.png", folder / "train" / name / "1.png")
    shutil.copy(root / "tests/fixtures/images/gray.png", folder / "train/b/2.png")
    (folder / "train/a/2.png").write_bytes((folder / "train/a/1.png").read_bytes()[:100])
    shutil.copytree(folder / "train", folder / "test")


def check_programs(root, cc, library, today, work):
    found, printed, places = [], {}, {}
    for struct, place in re.findall(r"^(\w+)\.\w+ at (\d+):", "\n".join(today), re.M):
        places.setdefault(struct, []).append(int(place))
    make_images(root, work / "images")
    words = [f"images:{work / 'images'}", str(root / "tests/fixtures/images/color.png")]
    for way, change in {"today": str, "grown": grow, "cut": lambda text: cut(text, places)}.items():
        include = work / way / "yoke"
        include.mkdir(parents=True)
        for header in (root / "include/yoke").glob("*.h"):
            (include / header.name).write_text(change(without_comments(header.read_text())))
        build(cc, work / way, root / "tests/house/abi_host.c", library, work / f"{way}-host", f"-D{way.upper()}")
        printed[way] = run(work / f"{way}-host", work / f"{way}-run", *words)
        found += [f"{way}: {line}" for line in difflib.ndiff(printed["today"], printed[way]) if line[0] in "+-"]
    if len(printed["today"]) < 30 or "exit code" in " ".join(printed["today"]):
        found += ["abi_host.c does not come to its end:", *printed["today"]]
    build(cc, work / "grown", root / "tests/house/abi_future.c", library, work / "future")
    refusals = run(work / "future", work / "future-run")
    refusal = re.compile(r"(\w+): YOKE_ERROR_ARGUMENT: .*\b\1: the caller sets a field that this .* does not know")
    return found + [f"not refused: {line}" for line in refusals if not refusal.match(line)]


def check_coverage(root, text, commented):
    """Both programs use every struct that they should, and no sized struct lies in another."""
    host, future = ("".join((root / "tests/house" / name).read_text() for name in names)
                    for names in (("abi_host.c", "abi_exchange.h", "abi_memory.h", "abi_models.h", "abi_net.h"),
                                  ("abi_future.c",)))
    structs = sized(text)
    made = set(re.findall(rf"sizeof\((\w+)\) {GIVES}", commented))
    used = host + "".join(re.findall(r"const yoke_\w+ \*\w+;", "".join(structs.values())))
    read = {name for name in structs if re.search(rf"\bconst {name} \*\w+[,);]", text)} - made - UNREAD
    found = [f"abi_host.c does not use {name}" for name in structs if not re.search(rf"\b{name}\b", used)]
    found += [f"abi_future.c has no REFUSED({name}, ...)" for name in sorted(read) if f"REFUSED({name}," not in future]
    found += [f"{outer} holds {inner} by value: it cannot grow without moving fields; hold a pointer" for outer, body in
              structs.items() for inner in structs if re.search(rf"(^|;)\s*{inner} \w", body)]
    return found


def interface(root, cc, text, abi, work):
    """Lines: functions, types of callbacks, enumerators with values, structs with the places of their fields."""
    declarations = re.findall(r"^(?:YOKE_API|typedef [^;{}]*\(\*)[^;]*?;", text, re.M)
    lines = [" ".join(re.sub(r"\n#.*", "", each).replace("YOKE_API", "").split()) for each in declarations]
    code = "".join(f"#include <{header}>\n" for header in ("stddef.h", "stdio.h", "yoke/yoke.h"))
    preprocessed = subprocess.run([cc, "-E", "-P", "-x", "c", "-I", root / "include", "-"], input=code, check=True,
                                  capture_output=True, text=True).stdout
    code += "int main(void) {\n"
    for name, body in STRUCT.findall(text):
        code += f'printf("{name}: %zu bytes\\n", sizeof({name}));\n'
        for field in filter(None, map(str.strip, body.split(";"))):
            place = re.search(r"\(\*(\w+)\)|(\w+)(?:\[\w+\])*$", field)
            place = place[1] or place[2]
            code += f'printf("{name}.{place} at %zu: %s\\n", offsetof({name}, {place}), "{" ".join(field.split())}");\n'
    for body in re.findall(r"typedef enum yoke_\w+ \{(.*?)\}", preprocessed, re.S):
        for name in re.findall(r"\bYOKE_\w+", re.sub(r"=[^,]*", "", body)):
            code += f'printf("{name} = %d\\n", (int){name});\n'
    (work / "layout.c").write_text(code + "}\n")
    subprocess.run([cc, "-I", root / "include", "-o", work / "layout", work / "layout.c"], check=True)
    layout = subprocess.run([work / "layout"], check=True, capture_output=True, text=True).stdout.splitlines()
    return [f"libyoke.so.{abi}, {os.uname().machine}", *sorted(lines + layout)]


def compare(recorded, today):
    """A sized struct may grow by fields that begin at its old end or later: before it is padding, which an older
    program leaves as it was."""
    sizes = dict(re.findall(r"^(\w+): (\d+) bytes$", "\n".join(recorded), re.M))
    found = []
    for line in sorted(set(recorded) - set(today)):
        growth = re.fullmatch(r"(\w+): \d+ bytes", line)
        if not growth or f"{growth[1]}.struct_size at 0: size_t struct_size" not in today:
            found.append(f"breaks programs: abi.txt has \"{line}\"")
    for line in sorted(set(today) - set(recorded)):
        field = re.match(r"(\w+)\.\w+ at (\d+):", line)
        if field and int(field[2]) < int(sizes.get(field[1], 0)):
            found.append(f"breaks programs: \"{line}\" lies where an older {field[1]} has padding")
        found.append(f"new: {line}")
    return found


def main():
    root, cc, library, abi = sys.argv[1:5]
    root, library = pathlib.Path(root).resolve(), pathlib.Path(library).resolve()
    commented = "\n".join(path.read_text() for path in sorted((root / "include/yoke").glob("*.h")))
    text, record = without_comments(commented), root / "tests/house/abi.txt"
    with tempfile.TemporaryDirectory(prefix="yoke-abi-") as name:
        work = pathlib.Path(name)
        today = interface(root, cc, text, abi, work)
        if "--write" in sys.argv:
            record.write_text("\n".join(today) + "\n")
        recorded = record.read_text().splitlines()
        found = check_coverage(root, text, commented)
        if recorded[0].split()[1] == today[0].split()[1]:
            changed = compare(recorded[1:], today[1:]) if recorded[0] == today[0] else [f"abi.txt is of {recorded[0]}"]
            found += changed and [*changed, "if this breaks what was released, raise YOKE_ABI in CMakeLists.txt; then "
                                  f"record the interface: tests/house/abi.py {' '.join(sys.argv[1:5])} --write"]
        else:
            print(f"abi.txt is of {recorded[0]}: not compared here")
        found = found or check_programs(root, cc, library, today, work)
    print("\n".join(found) or f"{len(sized(text))} structs as today, grown and cut; {len(today)} lines of interface")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
