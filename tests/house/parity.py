#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/parity.md: every item has a verdict and a test that exists, or a reason why none; tests that only GPUs run are
marked as simulated; and the counts at its top are those of its rows.

usage: parity.py ROOT
"""
import pathlib
import re
import sys

VERDICTS = ("same", "better", "differs", "not here")
SECTIONS = {"DataParallel": "DataParallel", "DistributedDataParallel": "DDP"}
ROW = re.compile(r"^\| (\d+) \| (.+?) \| \*\*(.+?)\*\*(?:: (.+?))? \| (.+?) \|$")
COUNTS = re.compile(r"^\| (DataParallel|DDP) ((?:\| \d+ )+)\|$", re.M)
TESTS = re.compile(r"`([\w/]+\.(?:c|py))`(?: \((simulated|skips without \w+)\))?: ([\w, ]+)")
NONE = re.compile(r"no test[: ].+")
GPUS_ALONE = re.compile(r"cuda/|device/test_collectives\.c")


def sections(text):
    """(name, [row]) of each `## ` section with a table of items."""
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        name = part.splitlines()[0].strip()
        rows = [line for line in part.splitlines() if re.match(r"^\| \d", line)]
        if name in SECTIONS:
            yield SECTIONS[name], rows


def has_test(path, name):
    text = path.read_text()
    if path.suffix == ".py":
        return re.search(rf"^    def {name}\(self", text, re.M) is not None
    return re.search(rf"\((?:{name})\b[,)]", text) is not None and f"void {name}(void **state)" in text


def check_tests(root, item, cell):
    for part in cell.split("; "):
        group = TESTS.fullmatch(part)
        if group is None:
            if not NONE.fullmatch(part):
                yield f"{item}: `FILE`: NAME, NAME; `FILE` (simulated): ...; or no test: REASON is expected, not {part!r}"
            continue
        if GPUS_ALONE.match(group[1]) and group[2] != "simulated":
            yield f"{item}: only GPUs run tests/{group[1]}, so it needs the mark (simulated)"
        path = root / "tests" / group[1]
        if not path.exists():
            yield f"{item}: there is no tests/{group[1]}"
            continue
        yield from (f"{item}: tests/{group[1]} has no test {name}" for name in group[3].split(", ")
                    if not has_test(path, name))


def check_rows(root, section, rows, count):
    for number, line in enumerate(rows, 1):
        item = f"{section} {number}"
        row = ROW.match(line)
        if row is None or row[3] not in VERDICTS:
            yield f"{item}: no verdict of {', '.join(VERDICTS)} in {line!r}"
            continue
        count[row[3]] += 1
        if int(row[1]) != number:
            yield f"{item}: the row has number {row[1]}"
        if row[3] != "same" and not row[4]:
            yield f"{item}: {row[3]}, but neither how, nor why, nor what to do instead"
        yield from check_tests(root, item, row[5])


def main():
    root = pathlib.Path(sys.argv[1])
    text = (root / "docs/parity.md").read_text()
    stated = {name: [int(number) for number in re.findall(r"\d+", numbers)] for name, numbers in COUNTS.findall(text)}
    found, total = [], 0
    for section, rows in sections(text):
        count = dict.fromkeys(VERDICTS, 0)
        found += check_rows(root, section, rows, count)
        counted = [len(rows), *count.values()]
        total += len(rows)
        if stated.pop(section, None) != counted:
            found.append(f"{section}: items, {', '.join(VERDICTS)} are {counted} in the rows, another number at the top")
    found += [f"{name}: counted at the top, but there is no such section" for name in stated]
    print("\n".join(found) or f"{total} items")
    return 1 if found or not total else 0


if __name__ == "__main__":
    sys.exit(main())
