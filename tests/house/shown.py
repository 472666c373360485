#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A command's output (standard input) equals what a page shows below the command, numbers aside.

usage: shown.py PAGE COMMAND
"""
import pathlib
import sys

import pages


def main():
    page, command = pathlib.Path(sys.argv[1]), sys.argv[2]
    shown = [(expected, exact) for name, expected, exact in pages.commands(page.read_text())
             if name == command and expected is not None]
    if not shown:
        sys.exit(f"{page} shows nothing for {command}")
    wrong = pages.difference(shown[0][0], sys.stdin.read(), shown[0][1])
    print(wrong or f"{command} printed what {page} shows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
