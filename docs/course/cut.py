#!/usr/bin/env python3
"""Cuts a figure out of a page that `yoke` wrote, as an SVG file of its own: headless Chromium draws the page first.

usage: docs/course/cut.py PAGE.html FIGURE FILE.svg [WIDTH]. FIGURE: "first", or the section's name, "timeline". WIDTH: of
the figure, in pixels; 800. The file has the page's colours, light and dark.
"""
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/browser"))
import browsers

WIDTH = 800
# The rules that the figure needs: the colours that they name, in light and dark, and those that match one of its nodes.
SCRIPT = """(() => {
    const drawn = document.querySelector(%(selector)s + " svg[role=img]");
    if (!drawn) return null;
    const svg = drawn.cloneNode(true), all = [svg, ...svg.querySelectorAll("*")];
    svg.querySelectorAll(".mark").forEach((mark) => mark.remove());
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    const matches = (rule) => all.some((one) => one.matches(rule.selectorText));
    const sheet = [...document.styleSheets[0].cssRules];
    const rules = sheet.filter((rule) => rule.selectorText && !/^(\\*|:|svg\\[)/.test(rule.selectorText) && matches(rule));
    const text = rules.map((rule) => rule.cssText).join("\\n");
    const used = new Set(["--page", ...text.match(/--[\\w-]+/g) ?? []]);
    const colours = (rule) => `:root{${[...rule.style].filter((name) => used.has(name))
        .map((name) => `${name}:${rule.style.getPropertyValue(name).trim()}`).join(";")}}`;
    const light = sheet.find((rule) => rule.selectorText === ":root");
    const dark = sheet.find((rule) => rule.conditionText?.includes("dark")).cssRules[0];
    const style = document.createElementNS(svg.namespaceURI, "style");
    style.textContent = `${colours(light)}\\n@media (prefers-color-scheme:dark){${colours(dark)}}\\n${text}\\n`;
    const behind = document.createElementNS(svg.namespaceURI, "path");
    behind.setAttribute("d", `M0 0h${width}v${height}h-${width}z`);
    behind.setAttribute("style", "fill:var(--page)");
    svg.querySelector("desc").after(style, behind);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    for (const name of ["tabindex", "style"]) svg.removeAttribute(name);
    svg.innerHTML = svg.innerHTML.replace(/yoke-figure-\\d+/g, "figure");
    for (const name of ["labelledby", "describedby"])
        svg.setAttribute(`aria-${name}`, svg.getAttribute(`aria-${name}`).replace(/yoke-figure-\\d+/, "figure"));
    return new XMLSerializer().serializeToString(svg).replace(/></g, ">\\n<");
})()"""


def cut(page, figure, width=WIDTH):
    """The SVG of a figure of a page's text."""
    if not browsers.Chromium.program():
        sys.exit("there is no Chromium, which draws the page: scripts/install-deps.sh --browsers installs it")
    selector = f'"[data-figure={figure}]"'
    if figure != "first":  # a file does not scroll: its axis is that of the longest step
        page = re.sub(r'"first":\s*true', '"first":false', page)
    with tempfile.TemporaryDirectory() as folder, browsers.Chromium() as browser:
        path = pathlib.Path(folder, "page.html")
        path.write_text(page)
        opened = browser.open(path.as_uri(), width, 900)
        opened.run(f"(document.querySelector({selector})?.style.setProperty('width', '{width}px'), 0)")
        opened.settle()
        text = opened.run(SCRIPT % {"selector": selector})
    if text is None:
        sys.exit(f"the page has no figure {figure}")
    return text + "\n"


def main():
    if not 4 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    page, figure, path, *width = sys.argv[1:]
    pathlib.Path(path).write_text(cut(pathlib.Path(page).read_text(), figure, *map(int, width)))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:  # a missing file, a folder, a full disk
        sys.exit(f"{error.filename or sys.argv[0]}: {error.strerror}")
