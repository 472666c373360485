# SPDX-License-Identifier: Apache-2.0
"""Pages with commands: a ```sh block holds commands, a ```text block right after it their output.

The comparison masks numbers and units such as KiB behind them, and reads runs of blanks as one. A line of three dots
stands for any lines, three dots after a blank for the rest of the line. ```text exact compares every character.
"""
import re

FENCE = re.compile(r"^```(.*)$")
NUMBER = re.compile(r"\b0x[0-9a-f]+\b|\b[0-9a-f]{16}\b|-?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?(?: (?:[KMG]i)?B\b)?")


def blocks(text):
    """(language, content, lines of prose before it) of every fenced block."""
    language, content, prose = None, [], 0
    for line in text.splitlines():
        fence = FENCE.match(line)
        if fence and language is None:
            language, content = fence[1].strip(), []
        elif fence:
            yield language, "\n".join(content), prose
            language, prose = None, 0
        elif language is not None:
            content.append(line)
        elif line.strip():
            prose += 1


def commands(text):
    """(command, expected output or None, exact) of every ```sh block, one command a line."""
    found, before = [], None
    for language, content, prose in blocks(text):
        if language == "sh":
            joined = content.replace("\\\n", " ")
            for line in joined.splitlines():
                line = re.sub(r"\s+#\s.*$", "", line).strip()
                if line:
                    found.append([line, None, False])
        elif language.startswith("text") and before == "sh" and found and prose == 0:
            found[-1][1:] = [content, "exact" in language]
        before = language
    return found


def mask(line):
    return re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip()


def fits(line, printed):
    return printed.startswith(line[:-3]) if line.endswith(" ...") else printed == line


def difference(expected, printed, exact):
    """None, or the first expected line that was not printed where it should be."""
    want = expected.strip("\n").splitlines()
    have = printed.strip("\n").splitlines()
    if not exact:
        want = [mask(line) for line in want]
        have = [mask(line) for line in have]
    at, anywhere = 0, False
    for line in want:
        if line.strip() == "...":
            anywhere = True
            continue
        found = next((i for i in range(at, len(have)) if fits(line, have[i])), None) if anywhere else None
        if found is not None:
            at = found
        elif at >= len(have) or not fits(line, have[at]):
            got = have[at] if at < len(have) else "the end"
            return f"expected {line!r}, printed {got!r}"
        at, anywhere = at + 1, False
    if at < len(have) and not anywhere:
        return f"printed beyond what is expected: {have[at]!r}"
    return None
