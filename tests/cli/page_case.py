# SPDX-License-Identifier: Apache-2.0
"""What the tests of HTML pages share: the tool, the page as XML, its model as JSON, its colours.

A test that imports this runs as: test_NAME.py YOKE [unittest arguments]
"""
import json
import math
import operator
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

YOKE = sys.argv.pop(1)
LIMIT_S = 900
SOURCES = pathlib.Path(__file__).parents[2] / "src" / "report" / "page"
EMBEDDED = re.compile(r"<(style|script)([^>]*)>(.*?)</\1>", re.DOTALL)


def yoke(*arguments, cwd=None):
    return subprocess.run([YOKE, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=cwd)


def parse(text):
    """The page as XML, without its style and scripts: every element is closed, every text escaped."""
    return ElementTree.fromstring(EMBEDDED.sub("", text).removeprefix("<!DOCTYPE html>"))


def model(text):
    """What the script draws."""
    found, = [body for _, attributes, body in EMBEDDED.findall(text) if attributes == ' type="application/json" id="yoke-page"']
    return json.loads(found, parse_constant=lambda name: 1 / 0)


def check_self_contained(case, text):
    """One style, one model, one script, each as its file is; nothing comes from elsewhere; below a megabyte."""
    parts = [(tag, attributes) for tag, attributes, _ in EMBEDDED.findall(text)]
    case.assertEqual(parts, [("style", ""), ("script", ' type="application/json" id="yoke-page"'), ("script", "")])
    bodies = [body for _, _, body in EMBEDDED.findall(text)]
    case.assertEqual((bodies[0], bodies[2]), tuple((SOURCES / name).read_text() for name in ("page.css", "page.js")))
    case.assertEqual(text.count("<script"), 2)
    case.assertEqual(text.count("</script"), 2)
    rest = EMBEDDED.sub("", text)
    case.assertIsNone(re.search(r"https?:|//\w|url\(|@import|<link|<iframe|<img|<svg| src=| href=| on\w+=", rest))
    for body in bodies[0], bodies[2]:
        case.assertIsNone(re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|fetch\(|XMLHttpRequest|import\(", body))
    case.assertLess(len(text.encode()), 1_000_000)


def charts(element):
    """The names of the figures that the script draws within."""
    return [chart.get("data-figure") for chart in element.iter("div") if chart.get("data-figure")]


def themes(text):
    """The colours by name, in light, dark and print."""
    return [dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", theme))
            for theme in re.findall(r":root\s*\{([^}]*--page[^}]*)\}", text)]


def mixed(colour, page, share):
    """A colour over the page, with this opacity."""
    pairs = [(int(colour[i:i + 2], 16), int(page[i:i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * over + (1 - share) * under):02x}" for over, under in pairs)


def luminance(colour):
    return sum(map(operator.mul, (0.2126, 0.7152, 0.0722), linear(colour)))


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


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
