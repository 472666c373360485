# SPDX-License-Identifier: Apache-2.0
"""The pictures of the lessons that no page of Yoke has: lanes over time, and lines. Each is an SVG file for light and
dark, with a title that states its result and a text for those who cannot see it.

usage: draw.py FIGURE.svg TITLE TEXT {HEADING TRACE.json FIRST:LAST}...

draws steps FIRST to LAST of traces of yoke train, without FIRST:LAST the step of median length.
"""
import html
import json
import pathlib
import sys

WIDTH, LEFT, RIGHT = 960, 185, 40
LIGHT = {"page": "#ffffff", "text": "#1b1f24", "faint": "#d8dee4", "pale": "#eef1f4", "quiet": "#6c7f93",
         "soft": "#a9bac9", "strong": "#c44f21"}
DARK = {"page": "#10151c", "text": "#e8ecf1", "faint": "#333c47", "pale": "#1b232d", "quiet": "#8497ab",
        "soft": "#4c6075", "strong": "#fea881"}


def style():
    def colours(of):
        return "".join(f"--{name}:{value};" for name, value in of.items())
    fills = "\n".join(f".{name}{{fill:var(--{name})}}.line.{name}{{fill:none;stroke:var(--{name});stroke-width:3}}"
                      for name in LIGHT)
    return (f":root{{color-scheme:light dark;{colours(LIGHT)}}}\n"
            f"@media (prefers-color-scheme:dark){{:root{{{colours(DARK)}}}}}\n{fills}\n"
            "text{font:15px system-ui,sans-serif;fill:var(--text)}.title{font-size:19px;font-weight:600}\n"
            ".in{font-size:13px}.wait{fill:var(--page);stroke:var(--quiet);stroke-dasharray:3 3}\n"
            ".strong+.in,.text+.in{fill:var(--page);font-weight:600}.grid{stroke:var(--faint)}")


def text(x, y, words, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{html.escape(str(words))}</text>'


def rectangle(x, y, width, height, kind):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"/>'


def grid(x, top, bottom):
    return f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'


def write(path, height, title, words, parts):
    path.write_text("\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
         f'role="img" aria-labelledby="title text"><title id="title">{html.escape(title)}</title>'
         f'<desc id="text">{html.escape(words)}</desc>', f"<style>{style()}</style>",
         rectangle(0, 0, WIDTH, height, "page"), text(16, 30, title, kind="title"), *parts, "</svg>", ""]))


def ticks(end):
    """About six round numbers from 0 to end."""
    step = next(size * 10 ** power for power in range(-3, 9) for size in (1, 2, 5) if end / (size * 10 ** power) <= 7)
    return [step * number for number in range(int(end / step + 1e-9) + 1)]


def lanes(path, title, words, rows, end, unit, behind="pale", legend=""):
    """rows: (name, spans), a name without spans is a heading; a span: (begin, end, kind, label)."""
    parts, y, scale = [], 52, (WIDTH - LEFT - RIGHT) / end
    bottom = y + 34 * len(rows)
    for at in ticks(end):
        parts += [grid(LEFT + at * scale, y, bottom), text(LEFT + at * scale, bottom + 18, f"{at:g}", "middle")]
    for name, spans in rows:
        parts.append(text(16, y + 20, name, kind="" if spans else "title"))
        if spans:  # where nothing is drawn over it, the lane is idle
            parts.append(rectangle(LEFT, y + 2, end * scale, 26, behind))
        for begin, stop, kind, label in spans:
            parts.append(rectangle(LEFT + begin * scale, y + 2, max(0.5, (stop - begin) * scale - 1), 26, kind))
            if label != "":
                parts.append(text(LEFT + (begin + stop) / 2 * scale, y + 20, label, "middle", "in"))
        y += 34
    parts += [text(16, bottom + 38, legend), text(WIDTH - RIGHT, bottom + 38, unit, "end")]
    write(path, bottom + 44, title, words, parts)


def lines(path, title, words, curves, axes):
    """curves: (name, kind, [(x, y), ...]); axes: what x and y are. Both begin at 0."""
    right, top, bottom = WIDTH - 210, 56, 330
    most_x, most_y = (max(point[axis] for _, _, points in curves for point in points) for axis in (0, 1))
    across, up = (right - 90) / most_x, (bottom - top) / most_y
    parts = [text(16, top - 4, axes[1]), text(right, bottom + 38, axes[0], "end")]
    for at in ticks(most_x):
        parts += [grid(90 + at * across, top, bottom), text(90 + at * across, bottom + 18, f"{at:g}", "middle")]
    for at in ticks(most_y)[1:]:
        parts.append(text(80, bottom - at * up + 5, f"{at:g}", "end"))
    above = top
    for number, (name, kind, points) in enumerate(sorted(curves, key=lambda curve: -curve[2][-1][1]), 1):
        where = " ".join(f"{90 + x * across:.1f},{bottom - y * up:.1f}" for x, y in points)
        above = min(max(bottom - points[-1][1] * up + 5, above + 19), bottom + 5 - 19 * (len(curves) - number))
        parts += [f'<polyline class="line {kind}" points="{where}"/>', text(right + 10, above, name)]
    write(path, bottom + 48, title, words, parts)


KINDS = {"wait": "wait", "load": "wait", "python": "text", "forward": "soft", "backward": "quiet", "loss": "quiet",
         "update": "quiet"}
ORDER = ("wait", "strong", "text", "soft", "quiet")  # what is drawn later covers what is drawn before


def steps_of(path, steps):
    """(lanes of some steps of a trace, milliseconds of these steps)"""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    if not steps:
        lengths = {}
        for span in spans[1:]:
            if span["name"] == "step":
                lengths[span["args"]["step"]] = max(span["dur"], lengths.get(span["args"]["step"], 0))
        steps = [sorted(lengths, key=lengths.get)[len(lengths) // 2]]
    spans = [span for span in spans if steps[0] <= span["args"]["step"] <= steps[-1]]
    begin = min(span["ts"] for span in spans)
    lanes_of = {}
    for span in spans:
        if span["name"] != "step":
            at = (span["ts"] - begin) / 1e3
            lanes_of.setdefault(names[span["pid"], span["tid"]], []).append(
                (at, at + span["dur"] / 1e3, KINDS.get(span["name"], "strong"), ""))
    end = max(span[1] for lane in lanes_of.values() for span in lane)
    return [(name, sorted(lane, key=lambda span: ORDER.index(span[2]))) for name, lane in sorted(lanes_of.items())], end


def main():
    path, title, words, *traces = sys.argv[1:]
    rows, ends = [], []
    for heading, trace, steps in zip(traces[::3], traces[1::3], traces[2::3]):
        found, end = steps_of(trace, [int(step) for step in steps.split(":") if step])
        rows += [(heading, []), *found]
        ends.append(end)
    lanes(pathlib.Path(path), title, words, rows, max(ends), "milliseconds",
          legend="light: forward · dark: backward · orange: moves data · dashed: waits")


if __name__ == "__main__":
    main()
