#!/usr/bin/env python3
"""Writes course.ipynb from the lessons: their text, their commands as calls of the module `yoke`, and a cell of Python at
the end of each lesson that checks the prediction or tries more values. Where a lesson has a picture, the notebook has
a cell that shows the same figure of the page that its reader's run wrote.

usage: docs/course/notebook.py [FILE]. The notebook holds no outputs: run it to see yours.
"""
import json
import pathlib
import re
import shlex
import sys

from renew import FIGURES

COURSE = pathlib.Path(__file__).resolve().parent
FENCE = re.compile(r"^```(sh|text|console)\n(.*?)^```\n", re.S | re.M)
PICTURE = re.compile(r"^!\[[^]]*\]\(\w+\.svg\)\n", re.M)
FIRST = """import html, json, os, tempfile
import yoke  # pip install .

os.chdir(tempfile.mkdtemp())  # traces and pages go there
os.mkdir("build")


class show:
    \"\"\"A page that a run of yours wrote, or one figure of it.\"\"\"

    def __init__(self, page, figure=None, height=600):
        with open(page) as file:
            self.text, self.height = file.read(), height
        if figure:  # between the head of the page, which has its colours, and the script that draws
            head, body = self.text.split("<main>", 1)
            section = body[body.index(f'<section id="{figure}"'):]
            section = section[:section.index("</section>") + len("</section>")]
            self.text = head + "<main>" + section + body[body.index("</main>"):]

    def _repr_html_(self):
        return f'<iframe srcdoc="{html.escape(self.text)}" width="100%" height="{self.height}"></iframe>'"""
PAGES = {**FIGURES, "13-idle": "timeline"}  # the figure of the last page that a lesson writes
# Code that follows the commands of a lesson.
TRIALS = {
    "1-step": """run = ["train", "--devices", "2xcpu", "--batch", 32, "--steps", 20, "--evaluate-every", -1]
classic, overlap = (yoke.tool(*run, "--schedule", schedule) for schedule in ("classic", "overlap"))
stages = classic["stage_ms"]
print("backward takes", round(stages["backward"] / stages["forward"], 1), "times as long as forward")
print("the same bits:", classic["weights_hash"] == overlap["weights_hash"])""",
    "2-classic": """for link in ("0.3,20", "3,20"):
    result = yoke.tool("compare", "--lesson", "--link", link, "--seconds", 10)
    print(link, {way["name"]: round(way["step_ms"]["median"], 1) for way in result["contenders"]})""",
    "3-replicas": """for name in ("python", "classic"):
    with open(f"build/{name}.json") as file:
        spans = [event for event in json.load(file)["traceEvents"] if event["name"] == "replicate"]
    sent = sum(span["args"]["bytes"] for span in spans if span["args"]["step"] > 0)
    print(name, round(sent / 19 / (4 * 272474), 2), "copies of the weights in each step but the first")""",
    "4-buckets": """run = ["train", "--devices", "2xcpu", "--batch", 64, "--steps", 8, "--link", "0.05,2000", "--evaluate-every", -1]
for size in (100, 0.5, 0.25, 0.1, 0.001):
    result = yoke.tool(*run, "--bucket-mb", size)
    print(size, "MiB: wait", round(result["stage_ms"]["wait"], 1), "ms, step", round(result["step_ms"]["median"], 1), "ms")""",
    "5-ddp": """run = ["train", "--batch", 8, "--steps", 20, "--link", "0.3,20", "--evaluate-every", -1]
threads = yoke.tool(*run, "--devices", "4xcpu")
ranks = yoke.tool("launch", "--nproc-per-node", 4, "--", *run, "--mode", "ddp")
print("the same bits:", threads["weights_hash"] == ranks["weights_hash"])""",
    "6-links": """for link in ("0.03,20", "0.3,20", "3,20", "30,20", "30,2000"):
    runs = yoke.tool("simulate", "build/p.json", "--devices", 8, "--link", link)["runs"]
    print(link, {run["mode"]: f"{run['efficiency']:.0%}" for run in runs})""",
    "7-unequal": """run = ["train", "--devices", "2xcpu", "--threads", 1, "--shards", 8, "--steps", 20, "--straggler", "1:3"]
for shares in ("1:1", "3:1", "7:1"):
    result = yoke.tool(*run, "--shares", shares, "--evaluate-every", -1)
    print(shares, round(result["step_ms"]["median"], 1), "ms a step, weights", result["weights_hash"])""",
    "8-failure": """run = ["train", "--devices", "3xcpu", "--threads", 1, "--shards", 8, "--steps", 40, "--evaluate-every", -1]
for fault in ("error:0@20", "memory:2@39", "error:0@10,error:1@30"):
    result = yoke.tool(*run, "--survive", "--fault", fault)
    print(fault, "lost", result["lost"], "weights", result["weights_hash"])""",
    "9-stale": """run = ["train", "--mode", "async", "--devices", "3xcpu", "--threads", 1, "--batch", 16, "--evaluate-every", -1]
for bound in (2, 4, 8):
    counts = yoke.tool(*run, "--steps", 60, "--straggler", "0:3", "--max-staleness", bound)["staleness"]
    mean = sum(stale * count for stale, count in enumerate(counts)) / sum(counts)
    print("bound", bound, "pushes by staleness", counts, "mean", round(mean, 2))""",
    "10-compression": """for part in (1, 0.5, 0.25, 0.02):  # of the bytes: as much as a link of 1 / part times the bandwidth
    run = yoke.tool("simulate", "build/p.json", "--devices", 8, "--mode", "ddp-ring", "--link", f"{0.03 / part},20")["runs"][0]
    print(f"{part:.0%} of the bytes: {run['step_ms']:.1f} ms a step, efficiency {run['efficiency']:.0%}")""",
    "11-pipelines": """for parts in (1, 2, 4, 8):
    run = ["train", "--devices", "cpu", "--batch", 64, "--steps", 2, "--evaluate-every", -1, "--accumulate", parts]
    print(parts, "micro-batches:", round(yoke.tool(*run)["peak_bytes"][0] / 1e6, 1), "MB; bubble of 4 stages",
          f"{3 / (parts + 3):.0%}")""",
    "12-memory": """for model in ("resnet20", "resnet56", "mlp"):
    run = ["train", "--model", model, "--devices", "cpu", "--batch", 32, "--steps", 1, "--evaluate-every", -1]
    kept, again = (yoke.tool(*run, *more) for more in ([], ["--activation-checkpointing"]))
    print(model, round(kept["peak_bytes"][0] / 1e6, 1), "or", round(again["peak_bytes"][0] / 1e6, 1), "MB, equal weights:",
          kept["weights_hash"] == again["weights_hash"])""",
    "13-idle": """for width in (16, 64, 256, 1024):
    result = yoke.tool("train", "--devices", "cpu", "--steps", 30, "--batch", 256, "--model", f"mlp:width={width}",
                       "--dataset", "synthetic:3x32x32", "--augment", "crop-flip-cutout", "--evaluate-every", -1)
    print(width, f"{result['load_wait_share']:.0%} of the time waits for rows")""",
}


def code_of(block):
    """The commands of a block as calls of yoke.tool()."""
    calls = []
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)[1:]
        calls.append(f"print(yoke.tool({', '.join(map(json.dumps, words))}, text=True))")
    return "\n".join(calls)


def figure_cell(lesson, text):
    """The cell that shows the figure whose picture the lesson has."""
    page = re.findall(r"--html (\S+)", text)[-1]
    return f'show("{page}", "{PAGES[lesson]}")  # show("{page}") shows the whole page'


def part_of(lesson, text, part):
    """A part of a lesson between two commands, with the reader's own figure in the place of the lesson's picture."""
    words, *rest = PICTURE.split(part)
    if rest and lesson not in PAGES:  # draw.py or a script draws it
        words, rest = words + rest[0], []
    yield "markdown", words
    if rest:
        yield "code", figure_cell(lesson, text)
        yield "markdown", rest[0]


def cells_of(lesson):
    text, at = (COURSE / f"{lesson}.md").read_text(), 0
    begin_of_scripts = text.index("## The same in PyTorch")
    for fence in FENCE.finditer(text):
        if fence[1] != "sh":
            continue
        yield from part_of(lesson, text, text[at:fence.start()])
        yield "code", code_of(fence[2])
        at = fence.end()
    yield from part_of(lesson, text, text[at:begin_of_scripts])
    yield "markdown", "**More values.** Change them."
    yield "code", TRIALS[lesson]
    yield "markdown", text[begin_of_scripts:]


def printed_left_out(text):
    """A command's output in a lesson follows its block: in the notebook your own stands there."""
    return re.sub(r"\A\s*```text\n.*?^```\n", "", text, flags=re.S | re.M).strip()


def main():
    cells = [("markdown", (COURSE / "README.md").read_text().strip()), ("code", FIRST)]
    for lesson in TRIALS:
        cells += cells_of(lesson)
    cells = [(kind, text if kind == "code" else printed_left_out(text)) for kind, text in cells]
    book = {"nbformat": 4, "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "cells": [{"id": f"cell-{number}", "cell_type": kind, "metadata": {}, "source": text.splitlines(True),
                       **({"execution_count": None, "outputs": []} if kind == "code" else {})}
                      for number, (kind, text) in enumerate((kind, text) for kind, text in cells if text)]}
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else COURSE / "course.ipynb")
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
