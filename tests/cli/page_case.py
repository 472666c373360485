# SPDX-License-Identifier: Apache-2.0
"""What the tests of HTML pages share: the tool, the page as XML, its colours.

A test that imports this runs as: test_NAME.py YOKE [unittest arguments]
"""
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

YOKE = sys.argv.pop(1)
LIMIT_S = 120
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
    channels = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)
