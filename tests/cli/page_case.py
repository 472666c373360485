# SPDX-License-Identifier: Apache-2.0
"""What the tests of HTML pages share: the tool, the page as XML, its colours.

A test that imports this runs as: test_NAME.py YOKE [unittest arguments]
"""
import math
import operator
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

YOKE = sys.argv.pop(1)
LIMIT_S = 900
SVG = "{http://www.w3.org/2000/svg}"


def yoke(*arguments, cwd=None):
    return subprocess.run([YOKE, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=cwd)


def parse(text):
    """The page as XML: every element is closed, every text escaped."""
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))


def themes(text):
    """The colours by name, in light, dark and print."""
    return [dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6})", theme))
            for theme in re.findall(r":root\{([^}]*--page[^}]*)\}", text)]


def mixed(colour, page, share):
    """A colour over the page, with this opacity."""
    pairs = [(int(colour[i:i + 2], 16), int(page[i:i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * over + (1 - share) * under):02x}" for over, under in pairs)


def luminance(colour):
    return sum(map(operator.mul, (0.2126, 0.7152, 0.0722), linear(colour)))


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def markers(svg):
    """(contender, devices, x) of each marker of a chart over the number of devices."""
    for path in svg.iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is not None:
            name, at = re.fullmatch(r"(.*): \S+ at ([\d.]+)", title.text).groups()
            yield name, float(at), float(re.match(r"M([\d.]+)", path.get("d"))[1])


def ticks(svg):
    """The places of the ticks below a chart, by their texts; the name of the axis is no number."""
    middle = [text for text in svg.iter(f"{SVG}text") if text.get("text-anchor") == "middle"]
    return {float(text.text): float(text.get("x")) for text in middle if re.fullmatch(r"[\d.]+", text.text)}


def highest_tick(svg):
    return max(float(text.text) for text in svg.iter(f"{SVG}text")
               if text.get("text-anchor") == "end" and re.fullmatch(r"[\d.]+", text.text))


def linear(colour):
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in
            (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))]


def times(matrix, vector):
    return [sum(map(operator.mul, row, vector)) for row in matrix]


def oklab(light):
    """Björn Ottosson's OKLab of linear red, green and blue: equal distances look about equal."""
    cones = times([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                   [0.0883024619, 0.2817188376, 0.6299787005]], light)
    return times([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                  [0.0259040371, 0.7827717662, -0.8086757660]], [max(cone, 0) ** (1 / 3) for cone in cones])


def seen_without_green(light):
    """How a person with deuteranopia sees it: Machado, Oliveira and Fernandes 2009, severity 1."""
    seen = times([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]], light)
    return [min(max(channel, 0), 1) for channel in seen]


def distances(one, other):
    """In OKLab, times 100: for most people, and for those with deuteranopia."""
    pair = linear(one), linear(other)
    return (100 * math.dist(*map(oklab, pair)), 100 * math.dist(*(oklab(seen_without_green(light)) for light in pair)))
