#!/usr/bin/env python3
"""Runs the lessons' commands, and puts what they print now into the lessons, and their figures beside them.

usage: docs/course/renew.py PYTHON [LESSON...], in the root of the source tree, with a release build. PYTHON has PyTorch;
without LESSON: all. It stops at a command that prints other lines than the lesson shows, numbers aside.
"""
import pathlib
import re
import shlex
import subprocess
import sys

COURSE = pathlib.Path(__file__).resolve().parent
ROOT = COURSE.parents[1]
sys.path.insert(0, str(ROOT / "tests/house"))
import pages

FIGURES = {"1-step": "timeline", "2-classic": "stages", "3-replicas": "timeline", "4-buckets": "timeline",
           "5-ddp": "timeline", "6-links": "step-time", "7-unequal": "timeline"}  # the section of the last page that the lesson writes
SCRIPT = re.compile(r"```console\n\$ python3 (\S+)\n```\n\n```text\n(.*?)```", re.S)


def renewed(expected, printed):
    """The lines that a lesson shows, each with the numbers of now."""
    if wrong := pages.difference(expected, printed, False):
        sys.exit(f"{wrong}\n{printed}")
    lines, fresh = iter(printed.strip("\n").splitlines()), []
    for line in expected.strip("\n").splitlines():
        fresh.append("..." if line.strip() == "..." else
                     next(now for now in lines if pages.fits(pages.mask(line), pages.mask(now))))
    return "\n".join(fresh)


def run(words):
    print("$", shlex.join(words), flush=True)
    return subprocess.run(words, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout


def renew_page(lesson, python):
    """Writes the lesson anew; the last page of figures that one of its commands wrote."""
    path, written = COURSE / f"{lesson}.md", None
    text = path.read_text()
    for command, expected, _ in pages.commands(text):
        words = shlex.split(command)
        printed = run(words)
        if expected:
            text = text.replace(expected, renewed(expected, printed), 1)
        if "--html" in words:
            written = ROOT / words[words.index("--html") + 1]
    for script, expected in SCRIPT.findall(text):
        text = text.replace(expected, renewed(expected, run([python, script])) + "\n", 1)
    path.write_text(text)
    return written


def style_of(page, svg):
    """The rules that the figure needs: colours in light and dark, and the classes that it uses."""
    sheet = re.search(r"<style>(.*?)</style>", page, re.S)[1].splitlines()
    used = {name for names in re.findall(r'class="([^"]+)"', svg) for name in names.split()} | {"page"}
    colours = [line for line in sheet if line.startswith((":root", "@media (prefers-color-scheme:dark)"))]
    shapes = [line for line in sheet if line.startswith(("svg text", "svg .", "rect", "path.line", ".grid", ".dashed"))]
    fills = [line for line in sheet if (name := re.match(r"\.([\w-]+)\{fill", line)) and name[1] in used]
    return "\n".join(colours + fills + shapes)


def cut(page, section):
    """A figure of a page as a file of its own, with the page's colours behind and in it."""
    begin = page.index("<svg", page.index(f'<section id="{section}"'))
    svg = page[begin:page.index("</svg>", begin) + len("</svg>")]
    width, height = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups()
    head, body = svg.split("</desc>", 1)
    head = head.replace("<svg ", f'<svg width="{width}" height="{height}" ', 1)
    behind = f'<rect class="page" width="{width}" height="{height}"/>'
    return f"{head}</desc>\n<style>{style_of(page, svg)}</style>\n{behind}\n{body}\n"


def main():
    python, *lessons = sys.argv[1:]
    for lesson in lessons or FIGURES:
        page = renew_page(lesson, python)
        (COURSE / f"{lesson.split('-', 1)[1]}.svg").write_text(cut(page.read_text(), FIGURES[lesson]))


if __name__ == "__main__":
    main()
