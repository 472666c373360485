# SPDX-License-Identifier: Apache-2.0
"""libyoke through ctypes, the tool, and their errors. Beside the library lies what its headers declare: layout.json."""
from __future__ import annotations

import ctypes
import itertools
import json
import os
import pathlib
from typing import Any

INTERFACE = "0.1."  # the versions of the library that this package calls
MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64"}  # e_machine of an ELF file


class YokeError(RuntimeError):
    """A failed call of the library. status: its name, "YOKE_ERROR_DATA" for example."""
    def __init__(self, status: str, text: str):
        super().__init__(f"{status}: {text}")
        self.status = status


class FromTorchError(RuntimeError):
    """A PyTorch module that cannot come in. operator: the operator of ATen that stops it; None: something else does."""
    def __init__(self, text: str, operator: str | None = None):
        super().__init__(text)
        self.operator = operator


class _Types(dict):
    """Types by their names in layout.json; a struct is made when somebody asks for it."""

    def __missing__(self, name):
        fields = LAYOUT["structs"][name]
        members = [(field, self[kind] * count if count else self[kind]) for field, kind, count in fields]
        self[name] = type(name, (ctypes.Structure,), {"_fields_": members})
        return self[name]


class _Library(ctypes.CDLL):
    """The library, whose functions know their parameters and results, and raise what they return."""

    def __getattr__(self, name):
        function = super().__getattr__(name)  # which keeps it: the next look-up does not come here
        if not name.startswith("yoke_") or name not in LAYOUT["functions"]:
            return function
        result, parameters = LAYOUT["functions"][name]
        function.restype, function.argtypes = TYPES[result], [TYPES[kind] for kind in parameters]
        if result == "yoke_status":
            function.errcheck = _check
        return function


def _load():
    path = pathlib.Path(os.environ.get("YOKE_LIBRARY") or pathlib.Path(__file__).with_name("libyoke.so")).resolve()
    try:
        library = _Library(str(path))
        layout = json.loads(path.with_name("layout.json").read_text(encoding="utf-8"))
    except OSError as error:
        import platform
        kind = MACHINES.get(int.from_bytes(path.read_bytes()[18:20] if path.is_file() else b"", "little"), "no")
        here = f"{platform.machine()} with {platform.libc_ver()[0] or 'musl'}"
        raise ImportError(f"cannot load {path} ({kind} library for glibc) on {here}: {error}; install what it names, "
                          "or build the wheel here (pip install .)") from None
    version = ctypes.CFUNCTYPE(ctypes.c_char_p)(("yoke_version", library))().decode()
    if not version.startswith(INTERFACE):
        raise ImportError(f"{path} is Yoke {version}, this module needs {INTERFACE}*: build both from one source")
    return path, library, layout


def _check(status, _function, _arguments):
    if status:
        raise _error(status)  # of a variable it would make a circle


PATH, LIBRARY, LAYOUT = _load()
TYPES = _Types({**vars(ctypes), **dict.fromkeys(LAYOUT["enums"], ctypes.c_int), "void": None, "unsigned": ctypes.c_uint})
LIBRARY.yoke_error_raise.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]  # of any parameters, in C


_marks = itertools.count(1)
_raised: dict = {}  # exceptions of callbacks by the mark that the library's text has


def _error(status):
    """The exception of a failed call: what a callback of Python raised behind the library, or the library's own."""
    error = YokeError(LIBRARY.yoke_status_name(status).decode(), os.fsdecode(LIBRARY.yoke_last_error()))
    mark = next((mark for mark in list(_raised) if mark in str(error)), None)
    if mark is None:
        return error
    own = _raised.pop(mark)
    own.__cause__ = own.__cause__ or error
    return own


def callback(function, *kinds):
    """A function of Python as a callback of the library, which gets numbers and addresses of these kinds of ctypes. An
    exception ends the call of the library that led here, and comes out of it again."""
    def guarded(*arguments):
        try:
            function(*arguments)
            return 0
        except BaseException as error:  # also of Ctrl-C: it must not be lost on the way through C
            text = f"{type(error).__name__}: {error}"[:200]
            mark = f"{text} (exception {next(_marks)} of Python)"
            _raised[mark] = error
            while len(_raised) > 16:  # of calls whose error nobody saw
                _raised.pop(next(iter(_raised)))
            return LIBRARY.yoke_error_raise(LAYOUT["enums"]["yoke_status"]["error-data"], b"%s", mark.encode(errors="replace"))

    return ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(guarded)


def make(struct, macro=None, **fields):
    """A struct with the values of an INIT macro and these fields."""
    made = TYPES[struct](**{**LAYOUT["defaults"].get(macro, {}), **fields})
    made.struct_size = ctypes.sizeof(made)  # of a struct without one it sets nothing that the library reads
    return made


def plain(struct):
    """A struct as a dict: without pointers, texts as str, a loss or accuracy that there is not as None."""
    fields = {name: getattr(struct, name) for name, kind in struct._fields_ if kind is not ctypes.c_void_p}
    fields.pop("struct_size", None)
    for name, value in fields.items():
        if isinstance(value, bytes):
            fields[name] = value.decode(errors="replace")
        elif value != value or (name.endswith("accuracy") and value < 0):
            fields[name] = None
    return fields


def find_tool():
    """The tool's file: near the library, or where PATH finds it."""
    places = (folder / name for folder in PATH.parents for name in ("yoke", "bin/yoke"))
    return next((str(place) for place in places if place.is_file()), "yoke")


def tool(*words: object, text: bool = False) -> Any:
    """What the tool prints with --json, as a dict; with text=True without --json, as a str."""
    import signal
    import subprocess  # here, as few programs need them
    command = [find_tool(), *map(str, words), *([] if text else ["--json"])]
    # A session of its own: Ctrl-C reaches the tool once, from here; twice would end it before it saves.
    with subprocess.Popen(command, text=True, start_new_session=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        try:
            printed, complaint = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
    if process.returncode:
        raise YokeError(f"exit code {process.returncode}", complaint.strip() or printed.strip())
    return printed if text else json.loads(printed)
