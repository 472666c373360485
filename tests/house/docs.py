#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program can check of the pages: the files they name exist, links lead somewhere, tables are whole, the table
of errors is the one of status.h, and README.md stays short.

usage: docs.py ROOT
"""
import pathlib
import re
import sys

PATH = re.compile(r"`((?:src|include|tests|scripts|samples|docs|bench|cmake|python)/[\w./-]*)`")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
STATUS = re.compile(r'X\((YOKE_\w+), "([^"]+)", (\d+)\)')
ROW = re.compile(r"\| `(YOKE_\w+)` \| (.+?) \| (\d+) \|")
FENCE = re.compile(r"^\s*```")
SEPARATOR = re.compile(r"^\|(?:\s*:?-+:?\s*\|)+$")
BAR = re.compile(r"(?<!\\)\|")  # Markdown splits a row here, inside `code` as well
README_LINES, README_COLUMNS = 230, 120


def tables(text):
    """(number of the line before it, that line, its own lines) of each run of lines that start with a bar."""
    run, before, fenced = [], "", False
    for number, line in enumerate(text.splitlines() + [""], 1):
        fenced ^= bool(FENCE.match(line))
        if line.lstrip().startswith("|") and not fenced:
            run.append(line.strip())
            continue
        if run:
            yield number - len(run) - 1, before, run
        run, before = [], line.strip()


def check_table(before, lines):
    """None, or what is wrong: a header, a separator, at least one row, and as many columns in each line."""
    if before:
        return "a table needs a blank line before it"
    if len(lines) < 3 or not SEPARATOR.match(lines[1]):
        return "these rows have no table: a header, a separator and a row are needed"
    if any(SEPARATOR.match(line) for line in lines[2:]):
        return "a second separator: two tables are one"
    columns = len(BAR.findall(lines[0]))
    wrong = next((line for line in lines if len(BAR.findall(line)) != columns or not line.endswith("|")), None)
    return wrong and f"{columns - 1} columns in the header, {len(BAR.findall(wrong)) - 1} in {wrong!r}"


def check_readme(text):
    lines = text.splitlines()
    if len(lines) >= README_LINES:
        yield f"README.md: {len(lines)} lines, the limit is {README_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > README_COLUMNS:
            yield f"README.md:{number}: {len(line)} columns, the limit is {README_COLUMNS}"


def main():
    root = pathlib.Path(sys.argv[1])
    found = []
    pages = [page for page in root.rglob("*.md") if "build" not in page.relative_to(root).parts[0]]
    for page in sorted(pages):
        text = page.read_text()
        name = page.relative_to(root)
        found += [f"{name}: there is no {path}" for path in PATH.findall(text)
                  if not (root / path).exists()]
        found += [f"{name}: the link {link} leads nowhere" for link in LINK.findall(text)
                  if not (page.parent / link).exists()]
        found += [f"{name}:{number + 1}: {wrong}" for number, before, lines in tables(text)
                  if (wrong := check_table(before, lines))]
    found += check_readme((root / "README.md").read_text())
    table = STATUS.findall((root / "include/yoke/status.h").read_text())
    shown = ROW.findall((root / "docs/errors.md").read_text())
    if table != shown:
        found.append(f"docs/errors.md differs from status.h: {sorted(set(table) ^ set(shown))}")
    print("\n".join(found) or f"{len(pages)} pages, {len(table)} errors")
    return 1 if found or not table else 0


if __name__ == "__main__":
    sys.exit(main())
