#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads abidiff's report from stdin and prints its lines that mean: programs break. Allowed is one change alone, fields
behind the old end of a struct. What this does not know counts as a break.

usage: abidiff ... | abi_breaks.py. Exit code 1: there are such lines.
"""
import re
import sys

# Lines that only lead to a change.
WAY = re.compile(r"""(?:Functions|Variables)\ changes\ summary:.*
 | \d+\ functions?\ with\ some\ indirect\ sub-type\ changes?:
 | \[C\]\ '(?:function|method).*'\ (?:at\ \S+\ )?has\ some\ indirect\ sub-type\ changes?:
 | (?:parameter\ \d+|return\ type)\ .*has\ sub-type\ changes:
 | return\ type\ changed:
 | parameter\ \d+\ of\ type\ '[^']*\*'\ changed:
 | in\ (?:pointed\ to|referenced|unqualified\ underlying)\ type\ .*:
 | underlying\ type\ 'struct\ .*'\ (?:at\ \S+\ )?changed:
 | 'struct\ .*'\ (?:at\ \S+\ )?changed:
 | pointed\ to\ type\ .*\ changed:
 | \d+\ data\ member\ changes?\ ?(?:\(.*\))?:
 | type\ of\ '[^']*\*\ ?\w*'\ changed:
 | type\ '.*'\ of\ '.*'\ changed,?\ as\ reported\ earlier
 | .*\(as\ being\ reported\)
 | .*as\ reported\ earlier
 | .*details\ (?:were|are)\ (?:being\ )?reported.*
 | type\ size\ hasn't\ changed
 | \d+\ data\ member\ insertions?:""", re.X)
SIZE = re.compile(r"type size changed from (\d+) to (\d+) \(in bits\)")
FIELD = re.compile(r"'.*', at offset (\d+) \(in bits\).*")


def breaks(lines):
    """Yields the lines. A field is new at the end if its offset is at least the size that its struct had."""
    sizes = {}  # by indentation: the old size of the struct that is described there
    for line in lines:
        text, depth = line.strip(), len(line) - len(line.lstrip())
        size, field = SIZE.fullmatch(text), FIELD.fullmatch(text)
        if size:
            sizes[depth] = int(size[1])
            if int(size[2]) < int(size[1]):
                yield line
        elif text == "type size hasn't changed":
            sizes.pop(depth, None)
        elif field:
            outer = [each for each in sizes if each < depth]
            if not outer or int(field[1]) < sizes[max(outer)]:
                yield line
        elif text and not WAY.fullmatch(text):
            yield line


def main():
    found = list(breaks(sys.stdin.read().splitlines()))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
