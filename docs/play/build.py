#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/play/index.html: the simulator as WebAssembly, and the page around it, in one file.

usage: build.py [FILE]. Needs clang with wasm-ld, and a C library: Debian's wasi-libc and libclang-rt-14-dev-wasm32.
The file names both, and the same two make the same bytes.
"""
import base64
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = ["docs/play/door.c",
           *(f"src/cli/{name}.c" for name in ("arguments", "messages", "option_values", "other_words")),
           *(f"src/cli/simulate/{name}.c" for name in ("published", "simulate_print", "simulate_setup",
                                                       "simulate_verb")),
           *(f"src/base/{name}.c" for name in ("error", "json", "memory", "options", "text")),
           "src/trace/account.c", "src/trace/trace.c"]
ROOMS = ["src/simulate", "src/links"]
LEFT_OUT = {"profile.c"}  # reads and writes files
FLAGS = ["--target=wasm32-wasi", "-std=gnu17", "-Oz", "-D_GNU_SOURCE", "-DNDEBUG",
         "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-deprecated-declarations",
         "-isystem", "docs/play/libc", "-Iinclude", "-Isrc"]
LIBRARIES = pathlib.Path("/usr/lib/wasm32-wasi")
LINK = ["--strip-all", "--stack-first", "-z", "stack-size=262144", "--entry", "_initialize",
        LIBRARIES / "crt1-reactor.o"]


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def compiler():
    """What makes the same bytes, as one line; None: it is not here."""
    try:
        version = output("clang", "--version").splitlines()[0]
        library = hashlib.sha256((LIBRARIES / "libc.a").read_bytes()).hexdigest()[:16]
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{version}; libc.a {library}"


def compiler_of(page):
    """What made a page."""
    return re.search(r"docs/play/build.py with (.*?) -->", page)[1]


def literal(value):
    return json.dumps(value)  # texts, and the shortest digits of numbers, as C reads them


def profile_source():
    """The profiles of the page, as C."""
    lines, table = ["/* Made by docs/play/build.py. */"], []
    for number, path in enumerate(sorted((HERE / "profiles").glob("*.json"))):
        profile = json.loads(path.read_text())
        assert profile.pop("yoke_profile") == 1, path
        segments = profile.pop("segments")
        rows = ", ".join(f"{{{literal(each['backward_ms'])}, {each['bytes']}}}" for each in segments)
        lines.append(f"static yoke_profile_segment segments_{number}[] = {{{rows}}};")
        fields = ", ".join(f".{key} = {literal(value)}" for key, value in profile.items())
        table.append(f"    {{{literal(path.relative_to(ROOT).as_posix())}, {{{fields}, .segments = segments_{number}, "
                     f".segment_count = {len(segments)}}}}},")
    lines += ["static const struct {", "    const char *path;", "    yoke_profile profile;", "} profiles[] = {",
              *table, "};"]
    network = json.loads((HERE / "resnet50.json").read_text())
    rows = ", ".join(f"{{{each['bytes']}, {each['multiplications']}}}" for each in network["segments"])
    lines += [f"enum {{ resnet50_layers = {network['layers']} }};",
              f"static const yoke_model_segment resnet50[] = {{{rows}}};", ""]
    return "\n".join(lines)


def builtins():
    """Of clang: what the processor has no instructions for."""
    return output("clang", FLAGS[0], "-rtlib=compiler-rt", "-print-libgcc-file-name")


def compile_simulator():
    rooms = [str(path.relative_to(ROOT)) for room in ROOMS for path in sorted((ROOT / room).glob("*.c"))
             if path.name not in LEFT_OUT]
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder)
        (made / "profiles.h").write_text(profile_source())
        objects = [made / f"{number}.o" for number in range(len(SOURCES) + len(rooms))]
        for source, target in zip(SOURCES + rooms, objects, strict=True):
            subprocess.run(["clang", *FLAGS, f"-I{folder}", "-c", source, "-o", target], cwd=ROOT, check=True)
        # Not by clang: it would let wasm-opt change the result where that is installed.
        output("wasm-ld", *LINK, *objects, LIBRARIES / "libc.a", builtins(), "-o", made / "play.wasm")
        return (made / "play.wasm").read_bytes()


def settings():
    """The file, with the names that the sources hold."""
    found = json.loads((HERE / "settings.json").read_text())
    modes = re.findall(r'X\(YOKE_SIMULATED_\w+, "(\S+)"', (ROOT / "src/simulate/simulate.h").read_text())
    names = re.findall(r'^    \{"(\S+:\S+)", "', (ROOT / "src/cli/simulate/published.c").read_text(), re.MULTILINE)
    own = [path.relative_to(ROOT).as_posix() for path in sorted((HERE / "profiles").glob("*.json"))]
    known = {"first": modes, "second": modes, "profile": names + own}
    for control in found["controls"]:
        control["values"] = control.get("values") or known[control["key"]]
    return found


def controls(found):
    """A slider for numbers, a list for names; play.js gives them their values."""
    lines = []
    for control in found["controls"]:
        name, values, texts = f'id="set-{control["key"]}"', control["values"], control.get("texts", {})
        options = "".join(f'<option value="{value}">{texts.get(value, value)}</option>' for value in values)
        field = (f"<select {name}>{options}</select>" if isinstance(values[0], str) else
                 f'<b></b><input {name} type="range" min="0" max="{len(values) - 1}" step="1">')
        lines.append(f'<label><span>{control["label"]}</span>{field}</label>')
    return "\n".join(lines)


def page():
    drawing = ROOT / "src/report/page"
    found = settings()
    parts = {"COMPILER": compiler(), "CONTROLS": controls(found), "SETTINGS": json.dumps(found, ensure_ascii=False),
             "STYLE": (drawing / "page.css").read_text() + (HERE / "play.css").read_text(),
             "FIGURES": (drawing / "page.js").read_text(),
             "PLAY": (HERE / "play.js").read_text(), "SIMULATOR": base64.b64encode(compile_simulator()).decode()}
    return re.sub(r"@([A-Z]+)@", lambda found: parts[found[1]], (HERE / "template.html").read_text())


def main():
    if len(sys.argv) > 2 or sys.argv[-1].startswith("-"):
        sys.exit(__doc__)
    if compiler() is None:
        sys.exit(f"build.py: needs clang, and {LIBRARIES}/libc.a of the package wasi-libc")
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "index.html"
    target.write_text(page())
    print(f"{target}: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
