#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house tests can fail: they pass a small correct source tree and catch each planted fault."""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# What the stages of a step may see is the real house's, so that no line of it goes unseen.
STAGES = "".join(line + "\n" for line in (HERE.parents[1] / "src/LAYERS").read_text().splitlines()
                 if line.startswith("parallel"))
HOUSE = {
    "src/LAYERS": "# a small house\nbase:\ndevice: base\ndevice/cpu: device base\nmodel: device base\n"
                  "cli: base\nbench/floor: model base\nbench/tool: bench/floor cli base\n"
                  "trace: base\noptimizer: device base\ndistributed: device base\nlinks: base\n" + STAGES +
                  "base shows status.h\ndevice shows device.h\nmodel shows model.h\ncli shows yoke.h\n",
    "src/base/base.h": "#include <stdint.h>\n#include \"base/error.h\"\n",
    "src/base/error.h": "#include \"yoke/status.h\"\n",
    "src/device/device.h": "#include \"base/base.h\"\n",
    "src/device/backend.h": "#include \"device/device.h\"\n",
    "src/device/cpu/conv.c": "#include <dnnl.h>\n#include \"device/backend.h\"\n",
    "src/model/model.c": "#include \"device/device.h\"\n#include \"yoke/status.h\"\n",
    "src/cli/cli.h": "#include <yoke/status.h>\n",
    "src/cli/train.c": "#include \"base/base.h\"\n#include \"cli/cli.h\"\n",
    "include/yoke/status.h": '#include <stddef.h>\n    X(YOKE_OK, "no error", 0)\n',
    "include/yoke/device.h": "#include \"yoke/status.h\"\n",
    "include/yoke/model.h": "#include \"yoke/device.h\"\n",
    "docs/errors.md": "| status | meaning | exit code |\n|---|---|---|\n| `YOKE_OK` | no error | 0 |\n",
    "samples/01_one/main.c": "#include <yoke/status.h>\n",
    "docs/parity.md": "| | items | s | b | d | n |\n|---|---|---|---|---|---|\n| DDP | 2 | 1 | 0 | 0 | 1 |\n\n"
                      "## DistributedDataParallel\n\n| item | PyTorch | Yoke | test |\n|---|---|---|---|\n"
                      "| 1 | it | **same** | `base/test_a.c`: a_b |\n| 2 | it | **not here**: do | no test: none |\n",
    "tests/base/test_a.c": "static void a_b(void **state) {}\nint main(void) { cmocka_unit_test(a_b); }\n",
    "README.md": "```sh\nprintf 'loss 1.5\\nat 5 KiB, or so\\n'\n```\n\n```text\nloss 2.25\nat 1.5 MiB, or ...\n```\n"
                 "\n```sh\ntrue\n```\n\n```console\n$ another\n```\n\n```text\nits output, not that of true\n```\n",
}
# Each of four files of model calls the next; the fifth, which closes the circle, is the fault.
HOUSE |= {f"src/model/part{i}.c": f"void yoke_part{i}(void) {{\n    yoke_part{i + 1}();\n}}\n" for i in range(4)}
PARITY = "| DDP | 1 | 1 | 0 | 0 | 0 |\n\n## DistributedDataParallel\n\n%s\n"
LONG_FUNCTION = "int long_one(void) {\n" + "    long_one();\n" * 100 + "}\n"

# check, file, its planted content, what the complaint must say
FAULTS = [
    ("layers.py", "src/model/bad.c", '#include "device/backend.h"\n', "the door of device is"),
    ("layers.py", "src/model/bad.c", '#include "device/cpu/cpu.h"\n', "model may not see device/cpu"),
    ("layers.py", "src/base/bad.c", '#include "model/model.h"\n', "base may not see model"),
    ("layers.py", "src/device/bad.c", '#include "base/error.h"\n', "the door of base is"),
    ("layers.py", "src/device/bad.c", '#include "device.h"\n', "names its room"),
    ("layers.py", "src/device/bad.c", '#  include "nowhere/nowhere.h"\n', "names no room"),
    ("layers.py", "src/model/bad.c", "#include <oneapi/dnnl/dnnl.h>\n", "only device/cpu may see"),
    ("layers.py", "src/model/bad.c", "#include <mpi.h>\n", "only distributed/mpi/module may see"),
    ("layers.py", "src/cli/bad.c", '#include "model/model.h"\n', "cli may not see model"),
    ("layers.py", "src/cli/launch/bad.c", '#include "cli.h"\n', "names its room"),
    ("layers.py", "src/parallel/stages/bad.c", '#include "parallel/engine/engine.h"\n',
     "parallel/stages may not see parallel/engine"),
    ("layers.py", "src/parallel/stages/bad.c", '#include "parallel/observers/observers.h"\n',
     "parallel/stages may not see parallel/observers"),
    ("layers.py", "src/parallel/stages/bad.c", '#include "trace/trace.h"\n', "parallel/stages may not see trace"),
    ("layers.py", "src/parallel/exchange/bad.c", '#include "parallel/stages/stages.h"\n',
     "parallel/exchange may not see parallel/stages"),
    ("layers.py", "bench/floor/bad.c", '#include "cli/cli.h"\n', "bench/floor may not see cli"),
    ("layers.py", "src/cli/bad.c", '#include "bench/floor/floor.h"\n', "cli may not see bench/floor"),
    ("layers.py", "src/attic/bad.c", '#include "base/base.h"\n', "lies in no room"),
    ("layers.py", "samples/01_one/bad.c", '#include "model/model.h"\n', "not yoke/"),
    ("layers.py", "include/yoke/bad.h", '#include "base/base.h"\n', "not yoke/"),
    ("layers.py", "src/LAYERS", "base:\nmodel: attic\n", "no such room: attic"),
    ("layers.py", "src/device/cpu/bad.c", '#include "yoke/model.h"\n', "device/cpu lies below model"),
    ("layers.py", "src/base/bad.c", "#include <yoke/device.h>\n", "base lies below device"),
    ("layers.py", "include/yoke/device.h", '#include "yoke/model.h"\n', "device.h lies below model"),
    ("layers.py", "include/yoke/new.h", '#include "yoke/status.h"\n', "no line that shows new.h"),
    ("layers.py", "src/model/bad.c", '#include "yoke/new.h"\n', "no line that shows yoke/new.h"),
    ("circles.py", "src/model/part4.c", "void yoke_part4(void) {\n    yoke_part0();\n}\n", "model: a circle of 5 units"),
    ("sizes.py", "src/model/conv.c", "\n", "two sources are called conv.c"),
    ("sizes.py", "src/model/bad.c", LONG_FUNCTION, "long_one(): 102 lines"),
    ("sizes.py", "src/model/bad.c", "\n" * 600, "600 lines"),
    ("sizes.py", "python/yoke/bad.py", "\n" * 1001, "python/yoke: 1001 lines"),
    ("sizes.py", "src/model/bad.c", "/* TODO: later */\n", "do it now"),
    ("docs.py", "docs/errors.md", "| `YOKE_OK` | no error | 1 |\n", "differs from status.h"),
    ("docs.py", "docs/step.md", "see `src/nowhere.c`\n", "there is no src/nowhere.c"),
    ("docs.py", "docs/step.md", "see [it](nowhere.md)\n", "leads nowhere"),
    ("docs.py", "docs/step.md", "text\n\n| a | b |\n", "have no table"),
    ("docs.py", "docs/step.md", "| a | b |\n|---|---|\n| 1 | 2 |\ntext\n| 3 | 4 |\n", "blank line"),
    ("docs.py", "docs/step.md", "| a | b |\n|---|---|\n| 1 | 2 | 3 |\n", "3 in '| 1 | 2 | 3 |'"),
    ("docs.py", "docs/step.md", "| a | b |\n|---|---|\n| 1 | 2\n", "1 in '| 1 | 2'"),
    ("docs.py", "docs/step.md", "| a |\n|---|\n| 1 |\n| b |\n|---|\n| 2 |\n", "second separator"),
    ("docs.py", "README.md", "line\n" * 230, "230 lines"),
    ("docs.py", "README.md", "long " * 25, "125 columns"),
    ("parity.py", "tests/base/test_a.c", "static void a_b(void **state) {}\n", "no test a_b"),
    ("parity.py", "docs/parity.md", PARITY % "| 1 | it | **fine** | no test: none |", "no verdict"),
    ("parity.py", "docs/parity.md", PARITY % "| 1 | it | **differs** | no test: none |", "nor why"),
    ("parity.py", "docs/parity.md", PARITY % "| 2 | it | **same** | no test: none |", "has number 2"),
    ("parity.py", "docs/parity.md", PARITY % "| 1 | it | **better**: how | no test: none |", "are [1, 0, 1, 0, 0]"),
    ("parity.py", "docs/parity.md", PARITY % "| 1 | it | **same** | by hand |", "is expected"),
    ("parity.py", "docs/parity.md", PARITY % "| 1 | it | **same** | `base/test_b.c`: a_b |", "there is no tests/"),
    ("parity.py", "docs/parity.md", PARITY % "| 1 | it | **same** | `cuda/test_b.c`: a_b |", "needs the mark"),
    ("readme.py", "README.md", "```sh\nfalse\n```\n", "false"),
    ("readme.py", "README.md", "```sh\necho one\n```\n```text\ntwo\n```\n", "two"),
    ("readme.py", "README.md", "```sh\necho one two\n```\n```text\ntwo ...\n```\n", "two"),
    ("readme.py", "README.md", "```sh\nscripts/none.sh\n```\n", "scripts/none.sh"),
]

GUEST = "int yoke_version(void) { return 1; }\nint yoke_again(void) { return yoke_version(); }\n"
VERSIONED, DIRECT = "-Wl,--version-script,map", "-Wl,-Bsymbolic-functions"
# what a library of this source does that a guest may not, and the complaint
RUDE = [
    ('#include <stdio.h>\nvoid yoke_a(void) { printf("%d", 1); }\n', "uses printf"),
    ("#include <stdlib.h>\nvoid yoke_a(void) { exit(1); }\n", "uses exit"),
    ('#include <stdlib.h>\nchar *yoke_a(void) { return getenv("A"); }\n', "uses getenv"),
    ("int yoke_count(void) { static int count; return ++count; }\n", "is a mutable global"),
    ("int stranger(void) { return 1; }\n", "exports stranger"),
    ("int yoke_secret(void) { return 1; }\n", "exports yoke_secret, which no public header has"),
]
HIDDEN = "-fvisibility=hidden"
LINKED = [([DIRECT], "yoke_version has no version, which is @@YOKE_0"), ([VERSIONED], "looks its own yoke_version up")]
# how libyoke.a alone is compiled, and the complaint
STATIC = [("-fvisibility=default", "yoke_version is not hidden"), ("-Dyoke_again=again", "has no yoke_again"),
          ("-Dyoke_again=again", "again is global, and no public header has it")]
COUNT = "typedef struct yoke_count {\n    size_t struct_size;\n    int rows;\n} yoke_count;\n"
COUNT = f"#ifndef A\n#define A\n#include <stddef.h>\n{COUNT}%s#endif\n"
HEADERS = [("size_t yoke_a(void);\n", "bad.h"), ("int yoke_b(int class);\n", "c++11"),
           (COUNT % "", "yoke_count has no init macro"),
           (COUNT % "#define YOKE_COUNT_INIT { sizeof(yoke_count) }\n", "missing"),
           (COUNT % "#define YOKE_COUNT_INIT { sizeof(yoke_count), 1 }\n", "yoke_count.rows is not zero"),
           (COUNT % "#define YOKE_COUNT_INIT { sizeof(yoke_count), 0 }\n/*\n * - yoke_count: rows\n */\n", "which is zero in")]
# The same of headers for C++, which a header in C has options for.
CPP_OPTIONS = ("#ifndef B\n#define B\ntypedef struct yoke_a_options {\n    int rows; /**< A. */\n    int columns;\n"
               "} yoke_a_options;\n#endif\n")
A_OPTIONS = "struct a_options {\n    int rows = 0;\n    int columns = 0;\n};\n"
CPP_HEADERS = [("#ifndef A\n#define A\n" + A_OPTIONS + "#endif\n", None),
               (A_OPTIONS, "redefinition of"),
               ("#ifndef A\n#define A\n" + A_OPTIONS.replace("int columns = 0;\n", "") + "#endif\n", "no columns"),
               ("#ifndef A\n#define A\n" + A_OPTIONS + "inline float a(int b) { return b; }\n#endif\n", "conversion"),
               ("#ifndef A\n#define A\n" + A_OPTIONS + "inline void a() { throw 1; }\n#endif\n", "exception")]


def run(check, *arguments):
    result = subprocess.run([sys.executable, HERE / check, *arguments], capture_output=True,
                            text=True, check=False, stdin=subprocess.DEVNULL)
    return result.returncode, result.stdout + result.stderr


def build(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def link(folder, source, flags, static=HIDDEN):
    """Arguments of symbols.py: libraries of one source, libyoke.a compiled with the flag `static`."""
    folder.mkdir()
    (folder / "guest.h").write_text("YOKE_API int yoke_version(void);\nYOKE_API int yoke_again(void);\n")
    (folder / "guest.c").write_text(GUEST + source)
    (folder / "map").write_text("YOKE_0 { global: *; };\n")
    for command in (["cc", "-fPIC", "-c", "guest.c"], ["ar", "rc", "inside.a", "guest.o"],
                    ["cc", "-fPIC", static, "-c", "guest.c", "-o", "static.o"], ["ar", "rc", "libyoke.a", "static.o"],
                    ["cc", "-shared", "-Wl,-soname,libyoke.so.0", *flags, "guest.o", "-o", "libyoke.so"]):
        subprocess.run(command, cwd=folder, check=True)
    return folder / "inside.a", folder / "libyoke.a", folder / "libyoke.so", "0", folder


def check_built(work):
    """The checks of compiled things, for a good one and for each fault."""
    unseen = []
    libraries = [("", [VERSIONED, DIRECT], HIDDEN, None)]
    libraries += [(source, [VERSIONED, DIRECT], HIDDEN, complaint) for source, complaint in RUDE]
    libraries += [("", flags, HIDDEN, complaint) for flags, complaint in LINKED]
    libraries += [("", [VERSIONED, DIRECT], static, complaint) for static, complaint in STATIC]
    for number, (source, flags, static, complaint) in enumerate(libraries):
        code, text = run("symbols.py", *link(work / f"library{number}", source, flags, static))
        if code != (complaint is not None) or (complaint or "") not in text:
            unseen.append(f"symbols.py on {source!r}, {flags}, {static}: exit {code}: {text}")
    cases = [({"yoke/bad.h": "int yoke_a(int a);\n"}, None)]
    cases += [({"yoke/bad.h": header}, complaint) for header, complaint in HEADERS]
    cases += [({"yoke/a.h": CPP_OPTIONS, "yoke/yoke.hpp": header}, complaint) for header, complaint in CPP_HEADERS]
    for number, (header, complaint) in enumerate(cases):
        folder = work / f"headers{number}"
        build(folder, header)
        code, text = run("headers.py", folder, "cc", "c++")
        if code != (complaint is not None) or (complaint or "") not in text.lower():
            unseen.append(f"headers.py on {header!r}: exit {code}: {text}")
    return unseen


def check_licenses(work):
    """A file without the line; with it, also behind #!."""
    line = "SPDX-License-Identifier: Apache-2.0"
    build(work, {"CMakeLists.txt": f"# {line}\n", "pyproject.toml": f"# {line}\n", "src/a.c": f"/* {line} */\n",
                 "scripts/a.sh": f"#!/bin/sh\n# {line}\n"})
    good = run("licenses.py", work)
    build(work, {"src/bad.c": f"int a;\nint b;\n/* {line} */\n"})
    bad = run("licenses.py", work)
    return [] if good[0] == 0 and bad[0] == 1 and "src/bad.c" in bad[1] else [f"licenses.py: {good}, {bad}"]


def main():
    unseen = []
    with tempfile.TemporaryDirectory(prefix="yoke-planted-") as name:
        good = pathlib.Path(name) / "good"
        build(good, HOUSE)
        for check in sorted({fault[0] for fault in FAULTS}):
            code, text = run(check, good)
            if code != 0:
                unseen.append(f"{check} fails on a good house: {text}")
        for number, (check, path, content, complaint) in enumerate(FAULTS):
            root = pathlib.Path(name) / str(number)
            build(root, {**HOUSE, path: content})
            code, text = run(check, root)
            if code != 1 or complaint not in text:
                unseen.append(f"{check} misses {path} with {content[:50]!r}: exit {code}: {text}")
        unseen += check_built(pathlib.Path(name)) + check_licenses(pathlib.Path(name) / "licenses")
    count = 1 + len(FAULTS) + len(RUDE) + len(LINKED) + len(STATIC) + len(HEADERS)
    print("\n".join(unseen) or f"{count} planted faults found")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
