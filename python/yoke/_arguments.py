# SPDX-License-Identifier: Apache-2.0
"""What a caller gives, checked and converted: options as fields of structs, arrays as contiguous float32."""
import contextlib
import os
import pathlib

import numpy

from ._library import LAYOUT


def algorithm_cache():
    """The tool's file of measured algorithms, so that both compute the same bits; None where none can be kept."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    with contextlib.suppress(OSError, RuntimeError):
        folder = pathlib.Path(cache if os.path.isabs(cache) else "~/.cache", "yoke").expanduser()
        folder.mkdir(0o700, parents=True, exist_ok=True)
        return folder / "choices-1.txt"


def set_option(structs, name, value):
    """Sets the option in the struct that has it; the tool's word of an enumerator becomes its number."""
    known = {field: (struct, kind) for struct in structs for field, kind, _ in LAYOUT["structs"][type(struct).__name__]
             if kind != "c_void_p" and field != "struct_size"}
    if name not in known:
        import difflib
        near = difflib.get_close_matches(name, known, 1)
        guess = f", did you mean {near[0]}?" if near else ""
        raise TypeError(f"there is no option {name}" + LAYOUT["hints"].get(name, guess))
    struct, kind = known[name]
    words, given = LAYOUT["enums"].get(kind), value
    try:
        if words:
            value = words[value]
        elif kind == "c_char_p":
            value = value and os.fsencode(value)
        setattr(struct, name, value)
        if value not in (0, 1) if kind == "c_bool" else (
                hasattr(value, "__index__") or isinstance(value, bytes)) and getattr(struct, name) != value:
            raise TypeError("it does not fit")
    except (KeyError, TypeError) as error:
        name = "optimizer" if name == "kind" else name
        hint = LAYOUT["hints"].get(f"{name} {given}".lower(), "")
        raise ValueError(f"{name} is {given!r}: {'expected ' + ', '.join(words) if words else error}{hint}") from None


def floats(name, given, expected, dimensions=()):
    """given as contiguous float32, every value finite: of the expected shape, or of so many dimensions."""
    if numpy.ma.is_masked(given):
        raise ValueError(f"{name} has masked values, which would count like all others: fill or remove them")
    array = numpy.asarray(given)
    if array.dtype != numpy.float32:
        scale = " / 255" if array.dtype == numpy.uint8 else ""
        raise TypeError(f"{name} has dtype {array.dtype}, expected float32: {name}.astype(numpy.float32){scale}")
    if not (array.size and array.ndim in dimensions or array.shape == expected):
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
    if not numpy.isfinite(array).all():
        place = numpy.argwhere(~numpy.isfinite(array))[0].tolist()
        raise ValueError(f"{name}{place} is {array[tuple(place)]}: every value must be finite")
    return numpy.ascontiguousarray(array)
