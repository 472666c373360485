#!/usr/bin/env python3
"""What a program can check in the pages holds: the files they name exist, links have targets, the table of
errors equals status.h's.

usage: docs.py ROOT
"""
import pathlib
import re
import sys

PATH = re.compile(r"`((?:src|include|tests|scripts|samples|docs|bench|cmake)/[\w./-]*)`")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
STATUS = re.compile(r'X\((YOKE_\w+), "([^"]+)", (\d+)\)')
ROW = re.compile(r"\| `(YOKE_\w+)` \| (.+?) \| (\d+) \|")


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
    table = STATUS.findall((root / "include/yoke/status.h").read_text())
    told = ROW.findall((root / "docs/errors.md").read_text())
    if table != told:
        found.append(f"docs/errors.md differs from status.h: {sorted(set(table) ^ set(told))}")
    print("\n".join(found) or f"{len(pages)} pages, {len(table)} errors")
    return 1 if found or not table else 0


if __name__ == "__main__":
    sys.exit(main())
