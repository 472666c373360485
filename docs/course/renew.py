#!/usr/bin/env python3
"""Runs the lessons' commands, and puts what they print now into the lessons, and their figures beside them.

usage: docs/course/renew.py PYTHON [LESSON...], in the root of the source tree, with a release build. PYTHON has PyTorch;
without LESSON: all. It stops at a command that prints other lines than the lesson shows, numbers aside.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys

COURSE = pathlib.Path(__file__).resolve().parent
ROOT = COURSE.parents[1]
sys.path.insert(0, str(ROOT / "tests/house"))
import draw
import pages
from cut import cut

FIGURES = {"1-step": "timeline", "2-classic": "stages", "3-replicas": "timeline", "4-buckets": "timeline",
           "5-ddp": "timeline", "6-links": "step-time"}  # the section of the last page that the lesson writes
# What draws the figure of a lesson that writes no page: draw.py with a title, a text and traces, or the lesson's script.
DRAWN = {
    "7-unequal": ("steps", "Equal shares wait for the slow device; 3 : 1 takes half as long",
                  "Two steps of two devices: with equal shares cpu:0 waits for two thirds of the step, dealt 3 to 1 both "
                  "devices end together.", "equal shares", "build/equal.json", "", "3 : 1", "build/dealt.json", ""),
    "8-failure": ("steps", "cpu:0 fails in a step; the others do it again and go on",
                  "Three lanes: that of cpu:0 ends in step 20, cpu:1 and cpu:2 go on after a short gap.",
                  "steps 18 to 22", "build/died.json", "18:22"),
    "9-stale": "stale.py",
    "10-compression": "compression.py",
    "11-pipelines": "pipelines.py",
    "12-memory": ("memory", "compare --devices 4xcpu --counts doubling --threads 1 --batch 16 --link 0.3,20 --seconds 5"),
    "13-idle": ("steps", "One waits for a slow device; both wait for a slow link",
                "Two steps of two devices: in the first cpu:0 waits for cpu:1, in the second both wait after backward.",
                "cpu:1 computes a third as fast", "build/slow.json", "", "a link of 0.05 GB/s", "build/link.json", ""),
}
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
    print("$", shlex.join(map(str, words)), flush=True)
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


def draw_memory(figure, command):
    """Bars of the bytes of the root and of another device, for each way to train on all devices and for one device."""
    result = json.loads(run(["build/release/yoke", *command.split(), "--json"]))
    kinds = {"weights": "quiet", "gradients": "soft", "optimizer": "strong", "activations": "faint", "other": "pale"}
    most = max(way["devices"] for way in result["contenders"])
    rows = []
    for way in result["contenders"]:
        if way["devices"] == most or way["name"] == "single":
            for place, part in zip(("root", "other"), way["parts"]):
                bars, at = [], 0
                for kind, colour in kinds.items():
                    size = part["memory_bytes"][kind] / 2**20
                    bars.append((at, at + size, colour, f"{size:.1f}" if size > 1.2 else ""))
                    at += size
                rows.append((f"{way['name']}, {place}" if most > 1 and way["name"] != "single" else "one device", bars))
    width = max(bar[1] for _, bars in rows for bar in bars)
    places = [number * width / 5 for number in range(5)]
    draw.lanes(figure, "Four devices divide the activations; only sharded divides the optimizer",
               "Bars of memory: activations are by far the longest part, on one device four times as long as on each "
               "of four; the optimizer lies on the root, on every rank of DDP, or in quarters on all.",
               [("", [(at, at + width / 5, colour, kind) for at, (kind, colour) in zip(places, kinds.items())]), *rows],
               width, "MiB", "page")


def draw_figure(lesson, figure, python):
    what = DRAWN[lesson]
    if isinstance(what, str):
        run([python, f"docs/course/{what}", figure])
    elif what[0] == "memory":
        draw_memory(figure, what[1])
    else:
        run([python, "docs/course/draw.py", figure, *what[1:]])


def main():
    python, *lessons = sys.argv[1:]
    for lesson in lessons or [*FIGURES, *DRAWN]:
        page, figure = renew_page(lesson, python), COURSE / f"{lesson.split('-', 1)[1]}.svg"
        if lesson in DRAWN:
            draw_figure(lesson, figure, python)
        else:
            figure.write_text(cut(page.read_text(), FIGURES[lesson]))


if __name__ == "__main__":
    main()
