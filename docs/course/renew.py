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

# The section of the last page that a lesson writes, which the notebook shows.
FIGURES = {"1-step": "timeline", "2-classic": "stages", "3-replicas": "timeline", "4-buckets": "timeline",
           "5-ddp": "timeline", "6-links": "step-time"}
# What draws the picture of a lesson: "steps", a title, a text, and headings with traces (draw.py); "memory", "stages" or
# "scaling" with a command; or the lesson's script.
DRAWN = {
    "1-step": ("steps", "Forward and backward fill the step; copies are thin lines",
               "A lane for each of two devices: long bars of forward and backward fill both.",
               "classic", "build/step.json", ""),
    "2-classic": ("stages", "compare --lesson --link 0.3,20 --seconds 15"),
    "3-replicas": ("steps", "python copies all weights for every micro-batch, classic once",
                   "One step with four micro-batches, twice: with python each of the four has a span of replicate, with "
                   "classic the first one alone.",
                   "python", "build/python.json", "", "classic", "build/classic.json", ""),
    "4-buckets": ("steps", "Four buckets hide a part of the transfers; 22 pay the latency 22 times",
                  "Three steps of two devices: with one bucket a long wait follows backward, with four it is shorter, "
                  "with 22 it is the longest.", "one bucket", "build/one.json", "", "four buckets", "build/four.json", "",
                  "22 buckets", "build/many.json", ""),
    "5-ddp": ("steps", "DataParallel and DDP: the same bits, two algorithms",
              "Two steps with four lanes each: those of DataParallel end with an exchange, those of DDP with an update on "
              "every rank.", "overlap", "build/dp.json", "", "DDP", "build/ddp.json", ""),
    "6-links": ("scaling", "simulate build/p.json --devices 1,2,3,4,5,6,7,8 --link 0.03,20"),
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
# Models of pages for the slides: file to (page, its modes, whether their timelines are drawn).
MODELS = {"lesson.json": ("build/lesson.html", ("dp classic", "dp overlap", "ddp"), True),
          "links.json": ("build/links.html", ("dp-classic", "dp-nccl", "dp-overlap", "ddp-ring"), False)}
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
    """Writes the lesson anew."""
    path = COURSE / f"{lesson}.md"
    text = path.read_text()
    for command, expected, _ in pages.commands(text):
        words = shlex.split(command)
        printed = run(words)
        if expected:
            text = text.replace(expected, renewed(expected, printed), 1)
    for script, expected in SCRIPT.findall(text):
        text = text.replace(expected, renewed(expected, run([python, script])) + "\n", 1)
    path.write_text(text)


def told(command):
    return json.loads(run(["build/release/yoke", *command.split(), "--json"]))


def draw_bars(figure, title, words, kinds, rows, unit):
    """Bars whose parts stand behind each other; kinds: part to colour, the first row explains them."""
    bars = [[] for _ in rows]
    for bar, (_, parts) in zip(bars, rows):
        at = 0
        for kind, colour in kinds.items():
            bar.append((at, at + parts[kind], colour, ""))
            at += parts[kind]
    width = max(bar[-1][1] for bar in bars)
    step = width / len(kinds)
    legend = [(number * step, (number + 1) * step, colour, kind) for number, (kind, colour) in enumerate(kinds.items())]
    labelled = [[(begin, end, colour, f"{end - begin:.1f}" if end - begin > 0.04 * width else "")
                 for begin, end, colour, _ in bar] for bar in bars]
    draw.lanes(figure, title, words, [("", legend), *((name, bar) for (name, _), bar in zip(rows, labelled))], width,
               unit, "page")


def draw_stages(figure, command):
    """Where the mean device spends a step, for each way to train on all devices."""
    kinds = {"computes": "soft", "python": "text", "communicates": "strong", "waits, idle": "faint"}
    of = {"forward": "computes", "loss": "computes", "backward": "computes", "update": "computes", "python": "python",
          "wait": "waits, idle", "load": "waits, idle", "idle": "waits, idle", "step": None}
    rows = []
    for way in told(command)["contenders"]:
        if way["devices"] > 1:
            parts = dict.fromkeys(kinds, 0)
            for stage, time in way["stages"].items():
                if kind := of.get(stage, "communicates"):
                    parts[kind] += time["ms"]
            rows.append((way["name"], parts))
    draw_bars(figure, "classic moves and waits for most of a step; overlap and DDP do not",
              "Bars of a step for five ways to train: python and classic communicate and wait for most of theirs; nccl, "
              "overlap and ddp are much shorter.", kinds, rows, "milliseconds, mean of four devices")


def draw_scaling(figure, command):
    shown = {"dp-classic": "strong", "dp-nccl": "soft", "dp-overlap": "quiet", "ddp-ring": "text"}
    curves = {name: [] for name in shown}
    for found in told(command)["runs"]:
        if found["mode"] in shown:
            curves[found["mode"]].append((found["devices"], found["step_ms"]))
    draw.lines(figure, "Over the root a step grows with every device; a ring stays level",
               "Step time against the number of devices: dp-classic rises in a line, the others stay nearly level.",
               [(name, colour, curves[name]) for name, colour in shown.items()], ("devices", "milliseconds of a step"))


def draw_memory(figure, command):
    """The bytes of the root and of another device, for each way to train on all devices and for one device."""
    kinds = {"weights": "quiet", "gradients": "soft", "optimizer": "strong", "activations": "faint", "other": "pale"}
    ways = told(command)["contenders"]
    most, rows = max(way["devices"] for way in ways), []
    for way in ways:
        if way["devices"] == most or way["name"] == "single":
            for place, part in zip(("root", "other"), way["parts"]):
                rows.append((f"{way['name']}, {place}" if way["name"] != "single" else "one device",
                             {kind: part["memory_bytes"][kind] / 2**20 for kind in kinds}))
    draw_bars(figure, "Four devices divide the activations; only sharded divides the optimizer",
              "Bars of memory: activations are by far the longest part, on one device four times as long as on each of "
              "four; the optimizer lies on the root, on every rank of DDP, or in quarters on all.", kinds, rows, "MiB")


def write_models():
    """What the slides draw of pages that the lessons' commands wrote."""
    for name, (page, modes, timelines) in MODELS.items():
        text = (ROOT / page).read_text()
        model = json.loads(re.search(r'<script type="application/json" id="yoke-page">(.*?)</script>', text, re.S)[1])
        model["modes"] = [mode if timelines else mode | {"lanes": []} for mode in model["modes"] if mode["name"] in modes]
        (COURSE / name).write_text(json.dumps(model, ensure_ascii=False, separators=(",", ":")) + "\n")


def draw_figure(lesson, figure, python):
    what = DRAWN[lesson]
    if isinstance(what, str):
        run([python, f"docs/course/{what}", figure])
    elif what[0] == "steps":
        run([python, "docs/course/draw.py", figure, *what[1:]])
    else:
        {"memory": draw_memory, "stages": draw_stages, "scaling": draw_scaling}[what[0]](figure, what[1])


def main():
    python, *lessons = sys.argv[1:]
    for lesson in lessons or DRAWN:
        renew_page(lesson, python)
        draw_figure(lesson, COURSE / f"{lesson.split('-', 1)[1]}.svg", python)
    if not lessons:
        write_models()
        run([python, "docs/course/routes.py", COURSE / "routes.svg"])


if __name__ == "__main__":
    main()
