#!/usr/bin/env python3
"""Makes one HTML file, which needs nothing else, of a deck of slides in Markdown.

usage: docs/course/slides.py DECK.md [FILE.html]. FILE: DECK.html beside the deck.

A line "---" begins the next slide. "Note:" begins what the lecturer reads; N shows it. A block draws a figure of a page
that `yoke` wrote, or of the model in JSON that such a page holds; the file lies beside the deck:

    ```figure first lesson.html
    The text below the figure.
    ```

The figures are those of src/report/page/page.js: first, throughput, step-time, timeline, stages, devices, memory, links,
moved, loss, accuracy ... Without a script the page shows the Markdown.

Slides know a part of Markdown: headings, paragraphs, lists, tables whose rows begin with |, quotes, blocks of ```, code,
**strong**, *emphasis*, links and pictures. Whatever else a deck has is refused, with its line: a slide would show it wrong.
"""
import base64
import html
import json
import mimetypes
import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src/report/page"
MODEL = re.compile(r'<script type="application/json" id="yoke-page">(.*?)</script>', re.S)
FIGURE = re.compile(r"^```+figure[ \t]+(\S+)[ \t]+(\S+)", re.M)
PICTURE = re.compile(r"(!\[[^\]]*\]\()([^)\s:]+)(\))")

ITEM = re.compile(r"\s*(?:[-*+]|(\d+)[.)])\s+")
# What the script does not know, in a line without its code, and what to write instead.
UNKNOWN = [(re.compile(pattern), what) for pattern, what in (
    (r"^ {1,3}(#{1,6}\s|>|\|)|^\s+```", "an indented heading, quote, table or block: begin it at the margin"),
    (r"^#{5,}\s", "a heading below ####"),
    (r"^=+\s*$", "a heading underlined with =: write # before it"),
    (r"^~~~", "a block of ~~~: write ```"),
    (r"^\s*([*_])(\s*\1){2,}\s*$|^\s*-(\s+-){2,}\s*$", "a rule: --- begins the next slide"),
    (r"^\s*:?-{2,}:?\s*\|", "a table whose rows do not begin with |"),
    (r"^\|[-\s:|]*:[-\s:|]*$", "the alignment of columns: write --- without a colon"),
    (r"^\s*[-*+]\s+\[[ xX]\]", "a list of tasks"),
    (r"\[\^", "a footnote"),
    (r"\]\[|^\s*\[[^\]]+\]:", "a link by reference: write [text](address)"),
    (r"\]\([^)]*[\s(]|\]\(\)", "a link with a title, or with a space or a bracket in its address"),
    (r"<!--|</?[A-Za-z][^<>]*>", "HTML, or an address in <>"),
    (r"&(#\w+|[A-Za-z]+);", "an entity of HTML: write the character"),
    (r"(?<!\w)__?(?=[^\W_])[^_]*[^\W_]__?(?!\w)", "emphasis by _: write *"),
    (r"\*\*\*", "emphasis by ***: write ** or *"),
    (r"~~", "a deletion by ~~"),
    (r"\$\$|\\[(\[]", "a formula"),
    (r"\\[!-/:-@\[-`{-~]", "a character behind \\: write it in `code`"),
    (r"\S(  +|\\)$", "a break within a paragraph: begin a new one"),
    (r"`", "code between several `, or without its end"),
)]


def unknown(deck):
    """[(line, what a slide would show wrong)]"""
    found, before, listed, fence, opened = [], "", None, "", 0  # listed: how far the list at hand is indented
    for number, line in enumerate(deck.replace("\r", "").split("\n"), 1):
        if fence:
            fence = "" if line.startswith(fence) else fence
            continue
        fence, opened = (re.match("`{3,}|", line)[0], number)
        item, indent = ITEM.match(line), len(line) - len(line.lstrip())
        if not line.strip() or re.match("---+\\s*$|Notes?:", line):
            listed = None
        elif listed is None and item:
            if re.match(r"[^\s#|>`]", before) and not re.match(r"---+\s*$|Notes?:\s*$", before):
                found.append((number, "a list below text: leave a line empty between them"))
            if item[1] not in (None, "1"):
                found.append((number, f"a list that begins with {item[1]}: its numbers begin with 1"))
            listed = indent
        elif listed is not None and not item and indent <= listed:
            found.append((number, "a line below a list: indent it, or leave a line empty between them"))
        elif indent > 0 and not before.strip() and not item:
            found.append((number, "an indented line below an empty one"))
        if not fence:
            bare = re.sub(r"^(> ?)+", "", re.sub("(?<!`)`[^`]+`(?!`)", "code", line))
            found += [(number, what) for pattern, what in UNKNOWN if pattern.search(bare)][:1]
        elif len(fence) > 3:
            found.append((number, "a block of more than three `"))
        before = line
    return found + ([(opened, "a block of ``` without its end")] if fence else [])


def model_of(path):
    """The model of a page, from its HTML or as it is."""
    text = path.read_text()
    found = MODEL.search(text)
    try:
        model = json.loads(found[1] if found else text)
    except ValueError as error:
        sys.exit(f"{path} is no page of Yoke and no model of one: {error}")
    if not isinstance(model, dict) or model.get("yoke_page") != 1:
        sys.exit(f"{path} is no page of Yoke and no model of one")
    return model


def escaped(model):
    """JSON as a script element may hold it."""
    text = json.dumps(model, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def embedded(deck, folder):
    """The deck with its pictures in it."""
    def data(match):
        path = folder / match[2]
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return f"{match[1]}data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}{match[3]}"
    return PICTURE.sub(data, deck)


def page_of(deck, folder, title):
    files = dict.fromkeys(file for _, file in FIGURE.findall(deck))
    models = "".join(f'<script type="application/json" data-page="{html.escape(file)}">{escaped(model_of(folder / file))}</script>\n'
                     for file in files)
    text = re.sub(r"</(?=script)", r"<\\/", embedded(deck, folder), flags=re.I).replace("<!--", "<\\!--")
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>\n'
            f"<style>{(PAGE / 'page.css').read_text()}</style></head>\n<body>\n"
            f'<script type="text/markdown" id="yoke-slides">\n{text}\n</script>\n{models}'
            f"<script>{(PAGE / 'page.js').read_text()}</script></body></html>\n")


def main():
    if not 2 <= len(sys.argv) <= 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    deck = pathlib.Path(sys.argv[1])
    text = deck.read_text()
    wrong = "".join(f"{deck}:{number}: slides do not know {what}\n" for number, what in unknown(text))
    if wrong:
        sys.exit(wrong.rstrip())
    heading = re.search(r"^#+\s+(.+)$", text, re.M)
    path = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else deck.with_suffix(".html")
    path.write_text(page_of(text, deck.parent, re.sub(r"[*`]", "", heading[1]) if heading else deck.stem))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:  # a missing file, a folder, a full disk
        sys.exit(f"{error.filename or sys.argv[0]}: {error.strerror}")
