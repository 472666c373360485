#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages and slides in headless Chromium and Firefox: what the script draws, how it answers, and what it survives.

usage: test_pages.py YOKE [unittest arguments]. Exit code 77: there is no browser. YOKE_TEST_PICTURES names a folder that
keeps a picture of every page in four sizes and two themes, and its print, for people to look at.
"""
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

YOKE = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/cli"), str(ROOT / "docs/course")]
import page_case
import browsers
import cut
import page_samples

WIDTHS = (400, 768, 1280, 2560)
PICTURES = os.environ.get("YOKE_TEST_PICTURES")
SCRIPT_LINES, COLUMNS = 1200, 120  # of all scripts of pages together
FOUND = [kind for kind in (browsers.Chromium, browsers.Firefox) if kind.program()]
DRAWN = {
    "lesson": ["first", "throughput", "step-time", "timeline", "stages", "devices", "memory", "links", "moved", "loss"],
    "scaling": ["first", "throughput", "step-time", "timeline", "stages", "devices", "memory", "links", "moved", "loss"],
    "training": ["first", *page_samples.FIGURES], "nothing": [],
    "hostile": ["first", "throughput", "step-time", "timeline", "stages", "devices", "memory", "links", "moved", "loss",
                "classes", "confusion", "misclassified"],
    "many": ["first", "throughput", "step-time", "timeline", "stages", "devices", "memory", "links", "moved", "loss"]}
# Of each drawing: texts that leave it, that are too small, or that lie on each other.
TROUBLE = """[...document.querySelectorAll("svg[role=img]")].filter((svg) => svg.getClientRects().length > 0).flatMap((svg) => {
    const around = svg.getBoundingClientRect(), ratio = around.width / svg.viewBox.baseVal.width, found = [];
    const name = svg.parentElement.dataset.figure ?? "figure", texts = [...svg.querySelectorAll("text")];
    const boxes = texts.map((text) => text.getBoundingClientRect());
    boxes.forEach((box, k) => {
        const size = Number(texts[k].getAttribute("font-size")) * ratio, said = `${name}: ${texts[k].textContent.slice(0, 40)}`;
        if (size < 13.99) found.push(`${said} has ${size} px`);
        if (box.left < around.left - 1.5 || box.right > around.right + 1.5 || box.top < around.top - 2 || box.bottom > around.bottom + 2)
            found.push(`${said} leaves the drawing`);
        for (let other = 0; other < k && boxes.length < 700; other++) {
            const across = Math.min(box.right, boxes[other].right) - Math.max(box.left, boxes[other].left);
            const down = Math.min(box.bottom, boxes[other].bottom) - Math.max(box.top, boxes[other].top);
            if (across > 1.5 && down > 0.35 * size) found.push(`${said} lies on ${texts[other].textContent.slice(0, 40)}`);
        }
    });
    return found;
})"""
DECK = """# One *model* on `four` devices

Why **it** waits; [a link](https://example.org/) and [none](javascript:alert)

Note: Ask who knows it.

---

## A list

- scatter
    - the rows
- replicate

1. first

| mode | ms |
|------|----|
| ddp | 13 |

```c
if (a < b) puts("</script><script>throw 1</script>"); <!-- a comment
---
```

> Write down your prediction.

---

## A figure

```figure first lesson.html
Below it: `yoke compare --lesson`.
```

---

## Another

```figure step-time lesson.json
```

```figure nonsense lesson.html
```
"""


def folder(case):
    made = tempfile.TemporaryDirectory()
    case.addCleanup(made.cleanup)
    return pathlib.Path(made.name)


def page_file(case, name):
    path = folder(case) / f"{name}.html"
    model = page_samples.SAMPLES[name]()
    path.write_text(page_samples.page_of(model, model.get("title", name)))
    return path


def deck_file(case):
    place = folder(case)
    (place / "deck.md").write_text(DECK)
    (place / "lesson.html").write_text(page_samples.page_of(page_samples.lesson()))
    (place / "lesson.json").write_text(page_samples.escaped(page_samples.lesson()))
    subprocess.run([sys.executable, ROOT / "docs/course/slides.py", place / "deck.md"], check=True)
    return place / "deck.html"


class InBrowser:
    """Of one browser, which all tests of a class share."""

    @classmethod
    def setUpClass(cls):
        cls.running = cls.kind()
        cls.browser = cls.running.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.running.__exit__()

    def open(self, path, width=1280, height=720, dark=False):
        page = self.browser.open(path.as_uri(), width, height, dark)
        self.addCleanup(page.close)
        return page

    def keep(self, page, name):
        if PICTURES:
            page.screenshot(pathlib.Path(PICTURES) / f"{self.kind.__name__.lower()}-{name}.png")

    def readout(self, page, figure="first"):
        """What a figure says of the mark that is visited; None: of none."""
        return page.run(f"[...document.querySelectorAll('[data-figure={figure}] .readout:not([hidden])')]"
                        ".map((one) => one.textContent)[0] ?? null")

    def test_every_sample_is_drawn_in_every_size_and_theme(self):
        for name, (width, dark) in itertools.product(DRAWN, ((w, d) for w in WIDTHS for d in (False, True) if not d or w == 1280 or PICTURES)):
            if dark and self.kind is browsers.Firefox:
                continue  # its pages have the browser's theme
            with self.subTest(sample=name, width=width, dark=dark):
                page = self.open(page_file(self, name), width, 900, dark)
                drawn = page.run("[...document.querySelectorAll('[data-figure]:not([hidden])')].map((one) => one.dataset.figure)")
                self.assertEqual(drawn, DRAWN[name])
                self.assertEqual(page.run(TROUBLE), [])
                self.assertLessEqual(page.run("document.documentElement.scrollWidth - innerWidth"), 0)
                self.assertEqual(page.errors, [])
                self.keep(page, f"{name}-{width}-{'dark' if dark else 'light'}")

    def test_every_drawing_has_a_title_and_a_text_for_screen_readers(self):
        page = self.open(page_file(self, "training"))
        found = page.run("""[...document.querySelectorAll("svg[role=img]")].map((svg) => ["labelledby", "describedby"].map((name) =>
            document.getElementById(svg.getAttribute(`aria-${name}`)).textContent))""")
        self.assertGreater(len(found), 15)
        for title, text in found:
            self.assertTrue(title)
            self.assertGreater(len(text.split()), 5, title)
        self.assertIn("cpu:0 computes for 13.0 ms, communicates for 2.00 ms, waits for 1.00 ms", found[0][1])

    def test_pointer_and_touch_read_a_mark_out(self):
        page = self.open(page_file(self, "lesson"))
        x, y = page.run("""(() => {
            const box = document.querySelector("[data-figure=first] .strong").getBoundingClientRect();
            return [box.right - 20, box.top + box.height / 2];
        })()""")
        self.assertIsNone(self.readout(page))
        page.hover(x, y)
        self.assertEqual(self.readout(page), "link of cpu:0: reduce, 20.0 ms, from 11.0 to 31.0 ms, 5.7 MiB")
        page.hover(x, 5)
        self.assertIsNone(self.readout(page))
        page.touch(x, y)
        self.assertIn("link of cpu:0", self.readout(page))

    def test_keys_move_between_the_marks_and_focus_is_visible(self):
        page = self.open(page_file(self, "lesson"))
        page.key("Tab")
        self.assertEqual(page.run("document.activeElement.getAttribute('role')"), "img")
        self.assertNotEqual(page.run("getComputedStyle(document.activeElement).outlineStyle"), "none")
        said = {}
        for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "End", "Home"):
            page.key(key)
            self.assertNotEqual(self.readout(page), said.get("last"), key)
            said["last"] = said[key] = self.readout(page)
        self.assertTrue(said["Home"].startswith("cpu:0: scatter"))
        self.assertTrue(said["ArrowDown"].startswith("cpu:1: "))
        self.assertTrue(said["End"].startswith("link of cpu:2: "))
        page.look(768, 720)  # the figure draws itself anew, and stays where it was
        page.settle()
        self.assertEqual(self.readout(page), said["Home"])
        page.key("Escape")
        self.assertIsNone(self.readout(page))

    def test_every_figure_reads_its_marks_out(self):
        page = self.open(page_file(self, "training"))
        for figure in (name for name in DRAWN["training"] if name != "misclassified"):
            with self.subTest(figure=figure):
                page.run(f"(document.querySelector('[data-figure={figure}] svg').focus(), 0)")
                page.key("End")
                self.assertRegex(self.readout(page, figure) or "", r"\w.*\d")

    def test_hostile_names_are_text(self):
        page = self.open(page_file(self, "hostile"))
        self.assertEqual(page.run("document.querySelectorAll('svg b, svg script, main script').length"), 0)
        texts = page.run("[...document.querySelectorAll('svg text, li b')].map((one) => one.textContent)")
        for wanted in "</script><script>", "\"quoted\" 'name' &amp; <b>", "\\u202Ereversed\\u202C", "long long":
            self.assertTrue(any(wanted in text for text in texts), wanted)
        self.assertFalse(any(re.search("[\u202a-\u202e\u2066-\u2069]", text) for text in texts))
        self.assertLess(max(map(len, texts)), 400)
        self.assertEqual(page.run("[...document.images].filter((one) => !one.src.startsWith('data:image/png')).length"), 0)
        self.assertGreater(page.run("[...document.images].filter((one) => one.naturalWidth === 2).length"), 9)
        self.assertEqual(page.errors, [])

    def test_a_moment_has_the_same_length_in_both_timelines(self):
        for name in "lesson", "scaling":
            page = self.open(page_file(self, name))
            first, whole = page.run("""["first", "timeline"].map((figure) => {
                const texts = [...document.querySelectorAll(`[data-figure=${figure}] text[text-anchor=middle].quiet`)];
                const places = texts.map((text) => [Number(text.textContent), Number(text.getAttribute("x"))]);
                const [begin, end] = [places[1], places.at(-1)];
                return [(end[1] - begin[1]) / (end[0] - begin[0]), begin[1] - begin[0] * (end[1] - begin[1]) / (end[0] - begin[0])];
            })""")
            self.assertAlmostEqual(first[0] / whole[0], 1, places=3)
            self.assertAlmostEqual(first[1], whole[1], delta=0.5)

    def test_the_first_picture_fills_the_width_and_a_longer_step_scrolls(self):
        page = self.open(page_file(self, "lesson"))  # python takes 38.5 ms, classic 31.3 ms
        ends = """(figure) => [...document.querySelectorAll(`[data-figure=${figure}] .axis`)].map((one) => Number(one.getAttribute("x1")))"""
        width = page.run("document.querySelector('[data-figure=first]').clientWidth")
        self.assertGreater(max(page.run(f"({ends})('first')")), 0.97 * width)
        self.assertGreater(max(page.run(f"({ends})('timeline')")), width)
        self.assertIn("leaves the page on the right", page.run("document.querySelector('[data-figure=timeline]').textContent"))
        self.assertFalse(page.run("document.querySelector('[data-figure=first]').textContent.includes('leaves the page')"))
        page.run("(document.querySelector('[data-figure=timeline] svg').focus(), 0)")
        at = "document.querySelector('[data-figure=timeline] .pan').scrollLeft"
        names = "[...document.querySelectorAll('[data-figure=timeline] text')].find((one) => one.textContent === 'cpu:1').getBoundingClientRect().left"
        before = page.run(names)
        page.key("Home")  # the lane of single; python's lanes follow
        page.key("ArrowDown")
        while "cpu:0" in (self.readout(page, "timeline") or ""):
            page.key("ArrowRight")
            if page.run(at) > 0:
                break
        page.settle()
        self.assertGreater(page.run(at), 0, "the marks that a key leads to come into sight")
        self.assertAlmostEqual(page.run(names), before, delta=1)
        readout, place = page.run("""["[data-figure=timeline] .readout", "[data-figure=timeline]"].map((one) => {
            const {left, right} = document.querySelector(one).getBoundingClientRect();
            return [left, right];
        })""")
        self.assertGreaterEqual(readout[0], place[0] - 1)
        self.assertLessEqual(readout[1], place[1] + 1)
        page.run("(dispatchEvent(new Event('beforeprint')), 0)")  # paper does not scroll
        self.assertEqual(page.run("document.querySelectorAll('.pan').length"), 0)

    def test_paper_divides_long_figures_between_their_rows(self):
        page = self.open(page_file(self, "lesson"))
        page.run("(dispatchEvent(new Event('beforeprint')), 0)")
        for figure, parts in (("timeline", 5), ("memory", 5), ("first", 3), ("loss", 1)):
            boxes = page.run(f"""[...document.querySelectorAll("[data-figure={figure}] svg[role=img]")].map((one) =>
                [one.viewBox.baseVal.y, one.viewBox.baseVal.height])""")
            self.assertEqual(len(boxes), parts, figure)
            for (y, height), (following, _) in itertools.pairwise(boxes):
                self.assertAlmostEqual(y + height, following, places=2)
        style = page.run("[...document.styleSheets[0].cssRules].filter((one) => one.media?.mediaText === 'print').map((one) => one.cssText).join()")
        self.assertNotRegex(style, r"\.figure \{[^}]*break-inside: avoid")

    def test_of_many_classes_the_figure_has_the_worst_and_the_best(self):
        path, model = page_file(self, "training"), page_samples.training(classes=150)
        counts = model["predictions"]["counts"]
        model["predictions"].update(counts=None, rows=[sum(row) for row in counts], right=[row[k] for k, row in enumerate(counts)])
        path.write_text(page_samples.page_of(model))
        page = self.open(path)
        self.assertEqual(page.run("document.querySelectorAll('[data-figure=classes] .value').length"), 24)
        self.assertIn("12 classes of the lowest accuracy and the 12 of the highest",
                      page.run("document.querySelector('[data-figure=classes]').textContent"))
        self.assertEqual(page.errors, [])

    def test_a_long_name_of_a_lane_keeps_its_end(self):
        path, model = page_file(self, "lesson"), page_samples.lesson()
        for lane in model["modes"][2]["lanes"]:
            lane["name"] = "a host of a very long name " + lane["name"]
        path.write_text(page_samples.page_of(model))
        page = self.open(path, 400, 800)
        shown = page.run("[...document.querySelectorAll('[data-figure=first] text[text-anchor=end]')].map((one) => one.textContent)")
        for device in range(2):
            self.assertTrue(any(re.fullmatch(f"….*cpu:{device}", text) for text in shown), shown)

    def test_one_link_of_the_first_picture_has_the_strong_colour(self):
        for name, strong in (("lesson", 1), ("training", 0)):  # of the training run both links carry alike
            page = self.open(page_file(self, name))
            self.assertEqual(page.run("document.querySelectorAll('svg .strong-text').length"), strong)
            colours = page.run("""[...document.querySelectorAll("[data-figure=first] .span, [data-figure=timeline] .span")].map((one) =>
                [one.classList[1], getComputedStyle(one).fill])""")
            fills = {fill for kind, fill in colours if kind == "strong"}
            self.assertEqual(len(fills), strong)
            self.assertFalse(fills & {fill for kind, fill in colours if kind != "strong"})

    def test_the_first_picture_shows_python_and_marks_no_link_that_is_hardly_busy(self):
        path, model = page_file(self, "lesson"), page_samples.lesson()
        for made in model["modes"]:
            made["first"] = made["name"] in ("python", "ddp")
            for lane in made["lanes"]:
                if lane["kind"] == "link":
                    lane["spans"] = [[1, 2.5 if lane["name"].endswith("0") else 1.5, "reduce", -1, 5, None]]
        path.write_text(page_samples.page_of(model))
        page = self.open(path)
        self.assertEqual(page.run("document.querySelectorAll('[data-figure=first] .strong').length"), 0)
        self.assertEqual(page.run("document.querySelectorAll('[data-figure=first] .span.s-python').length"), 4)
        texts = page.run("[...document.querySelectorAll('[data-figure=first] text')].map((one) => one.textContent)")
        self.assertEqual(texts.count("python"), 4)
        self.assertIn("runs Python", texts)

    def test_the_first_picture_of_a_run_without_a_trace_is_what_it_learned(self):
        path, model = page_file(self, "training"), page_samples.training()
        model["modes"][0].update(first=False)
        for wanted, change in (("learning rate", {}), ("step", {"rates": None})):
            path.write_text(page_samples.page_of({**model, **change}))
            page = self.open(path)
            self.assertIn(wanted, page.run("[...document.querySelectorAll('[data-figure=first] .quiet')].map((one) => one.textContent)"))

    def test_ticks_stand_at_the_numbers_of_devices_that_ran(self):
        page = self.open(page_file(self, "scaling"))
        for figure in "throughput", "step-time":
            ticks = page.run(f"[...document.querySelectorAll('[data-figure={figure}] text[text-anchor=middle].quiet')]"
                             ".map((one) => one.textContent)")
            self.assertEqual(ticks, ["1", "2", "4", "8"])
        self.assertEqual(page.run("document.querySelectorAll('[data-figure=throughput] .whisker').length"), 0)

    def test_bars_stand_in_order_where_each_mode_has_one_number_of_devices(self):
        page = self.open(page_file(self, "lesson"))
        values = page.run("[...document.querySelectorAll('[data-figure=step-time] .value')].map((one) => parseFloat(one.textContent))")
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertEqual(page.run("document.querySelectorAll('[data-figure=step-time] .whisker').length"), 3 * len(values))
        names = page.run("[...document.querySelectorAll('[data-figure=step-time] text[text-anchor=end]')].map((one) => one.textContent)")
        self.assertEqual(names, ["python on 4", "dp classic on 4", "dp overlap on 4", "ddp on 4", "single on 1"])

    def test_paper_has_whole_drawings_and_no_readouts(self):
        page = self.open(page_file(self, "lesson"))
        page.run("(document.querySelector('svg').focus(), 0)")
        page.key("Home")
        page.run("(dispatchEvent(new Event('beforeprint')), 0)")
        widths = page.run("[...document.querySelectorAll('svg[role=img]')].map((svg) => svg.viewBox.baseVal.width)")
        self.assertEqual(set(widths), {720})
        self.assertIsNone(self.readout(page))
        page.run("(dispatchEvent(new Event('afterprint')), 0)")
        self.assertGreater(page.run("document.querySelector('svg').viewBox.baseVal.width"), 1000)
        place = pathlib.Path(PICTURES) if PICTURES else folder(self)
        page.print(place / f"{self.kind.__name__.lower()}-lesson.pdf")
        self.assertTrue((place / f"{self.kind.__name__.lower()}-lesson.pdf").read_bytes().startswith(b"%PDF"))

    def test_slides_follow_the_keys_and_none_is_cut(self):
        page = self.open(deck_file(self))
        at = "document.querySelector('.bar span').textContent"
        self.assertEqual(page.run(at), "1 / 4")
        self.assertEqual(page.run("[...document.querySelectorAll('.now a')].map((one) => one.href)"), ["https://example.org/"])
        for width, height in ((1280, 720), (400, 700), (2560, 1440)):
            page.look(width, height)
            page.key("Home")
            for number in range(1, 5):
                self.assertEqual(page.run(at), f"{number} / 4")
                self.assertEqual(page.run("location.hash"), f"#{number}")
                self.assertLessEqual(page.run("Math.max(...[...document.querySelectorAll('.now')].map((one) =>"
                                              "one.scrollHeight - one.clientHeight))"), 1, (number, width))
                self.assertEqual(page.run(TROUBLE), [])
                self.keep(page, f"slide-{number}-{width}")
                page.key("ArrowRight")
        page.key("ArrowLeft")
        self.assertEqual(page.run(at), "3 / 4")
        self.assertEqual(page.run("document.querySelectorAll('.now svg .span.strong').length"), 1)
        page.key("Home")
        shown = "document.querySelector('.now .notes').getClientRects().length"
        self.assertEqual(page.run(shown), 0)
        page.key("n")
        self.assertEqual(page.run(shown), 1)
        self.assertIn("lesson.html has no figure nonsense.", page.run("document.querySelector('.slide:nth-child(4)').textContent"))
        code = page.run("document.querySelector('pre code').textContent")
        self.assertIn('puts("</script><script>throw 1</script>"); <!-- a comment\n---', code)
        self.assertEqual(page.errors, [])

    def test_the_first_picture_is_there_at_once(self):
        """Measured and said; a busy machine is not judged."""
        page = self.open(page_file(self, "lesson"))
        ms = page.run("""(() => {
            const begin = performance.now(), source = document.getElementById("yoke-page");
            yokePage.draw(document.querySelector("[data-figure=first]"), "first", JSON.parse(source.textContent));
            return performance.now() - begin;
        })()""")
        whole = page.run("performance.getEntriesByType('navigation')[0].loadEventEnd")
        print(f"{self.kind.__name__}: the first picture takes {ms:.1f} ms, the page with all figures {whole:.0f} ms", file=sys.stderr)

    def test_a_page_of_the_tool_is_drawn(self):
        place = folder(self)
        subprocess.run([YOKE, "simulate", "h100:resnet50", "--html", place / "page.html"], check=True, stdout=subprocess.DEVNULL)
        page = self.open(place / "page.html")
        self.assertEqual(page.run("[...document.querySelectorAll('[data-figure][hidden]')].map((one) => one.dataset.figure)"), [])
        self.assertGreater(page.run("document.querySelectorAll('svg[role=img]').length"), 4)
        self.assertEqual((page.run(TROUBLE), page.errors), ([], []))
        self.keep(page, "simulate")


@unittest.skipUnless(browsers.Chromium in FOUND, "there is no Chromium")
class InChromium(InBrowser, unittest.TestCase):
    kind = browsers.Chromium

    def test_without_a_script_tables_and_a_deck_s_text_are_readable(self):
        for path, selector in ((page_file(self, "lesson"), "summary"), (deck_file(self), "#yoke-slides")):
            page = self.open(pathlib.Path(os.devnull))
            page.call("Emulation.setScriptExecutionDisabled", value=True)
            page.loaded = False
            page.call("Page.navigate", url=path.as_uri())
            while not page.loaded:
                self.browser.hear(self.browser.socket.receive())
            document = page.call("DOM.getDocument")["root"]["nodeId"]
            node = page.call("DOM.querySelector", nodeId=document, selector=selector)["nodeId"]
            self.assertGreater(page.call("DOM.getBoxModel", nodeId=node)["model"]["height"], 15)

    def test_a_deck_is_printed_one_slide_a_page(self):
        page = self.open(deck_file(self))
        place = folder(self) / "deck.pdf"
        page.print(place)
        self.assertEqual(len(re.findall(rb"/Type\s*/Page\b", place.read_bytes())), 4)

    def test_a_figure_is_cut_out_as_a_file(self):
        text = cut.cut(page_file(self, "lesson").read_text(), "timeline")
        root = ElementTree.fromstring(text)
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual((root.tag, root.get("role"), root.get("width")), (f"{space}svg", "img", "800"))
        for name in "title", "desc", "style":
            self.assertTrue(root.find(f"{space}{name}").text)
        self.assertIn("prefers-color-scheme:dark", root.find(f"{space}style").text)
        with self.assertRaisesRegex(SystemExit, "the page has no figure nonsense"):
            cut.cut(page_file(self, "lesson").read_text(), "nonsense")
        used = set(re.findall(r"var\((--[\w-]+)\)", text))
        self.assertLessEqual(used, set(re.findall(r"(--[\w-]+):#", text)))


@unittest.skipUnless(browsers.Firefox in FOUND, "there is no Firefox")
class InFirefox(InBrowser, unittest.TestCase):
    kind = browsers.Firefox


class Files(unittest.TestCase):
    def test_the_scripts_are_short(self):
        scripts = [ROOT / "src/report/page/page.js", *(ROOT / "docs/play").glob("play.js")]
        lines = [line for script in scripts for line in script.read_text().splitlines()]
        self.assertLessEqual(len(lines), SCRIPT_LINES)
        self.assertLessEqual(max(map(len, lines)), COLUMNS)

    def test_a_deck_that_names_no_page_of_yoke_is_refused(self):
        place = folder(self)
        (place / "deck.md").write_text("# A\n\n```figure first lesson.json\n```\n")
        for text in "no JSON", "[]", "{}", '{"yoke_page": 2}':
            (place / "lesson.json").write_text(text)
            ended = subprocess.run([sys.executable, ROOT / "docs/course/slides.py", place / "deck.md"],
                                   capture_output=True, text=True, check=False)
            self.assertEqual(ended.returncode, 1)
            self.assertIn("lesson.json is no page of Yoke and no model of one", ended.stderr)
            self.assertFalse((place / "deck.html").exists())

    def test_what_slides_do_not_know_is_named_with_its_line(self):
        place = folder(self)
        for text, line, said in (
                ("text\n- a", 2, "a list below text"), ("3. c", 1, "a list that begins with 3"), ("- a\nlazy", 2, "a line below a list"),
                ("- a\n## b", 2, "a line below a list"), ("a\n\n    code", 3, "an indented line"), (" # a", 1, "an indented heading"),
                ("##### a", 1, "a heading below ####"), ("a\n===", 2, "a heading underlined"), ("~~~\na\n~~~", 1, "a block of ~~~"),
                ("a\n\n***", 3, "a rule"), ("- - -", 1, "a rule"), ("a | b\n---|---", 2, "a table"),
                ("| a |\n|:-:|", 2, "the alignment"), ("- [x] a", 1, "a list of tasks"), ("a[^1]", 1, "a footnote"),
                ("[a][b]", 1, "a link by reference"), ("[b]: c", 1, "a link by reference"), ("[a](b \"c\")", 1, "a link with a title"),
                ("[a](b(c))", 1, "a link with a title"), ("a <b>b</b>", 1, "HTML"), ("<https://a.org>", 1, "HTML"), ("<!-- a -->", 1, "HTML"),
                ("a&nbsp;b", 1, "an entity"), ("a _b_ c", 1, "emphasis by _"), ("__b__", 1, "emphasis by _"), ("***b***", 1, "emphasis by ***"),
                ("~~b~~", 1, "a deletion"), ("$$a$$", 1, "a formula"), ("a \\* b", 1, "a character behind"), ("a  \nb", 1, "a break"),
                ("a\\\nb", 1, "a break"), ("``a`b``", 1, "code between several"), ("a ` b", 1, "code between several"),
                ("> a\n> <b>", 2, "HTML"), ("````\na\n````", 1, "a block of more than three"), ("```\na", 1, "a block of ``` without its end"),
                ("Note:\na<br>", 2, "HTML")):
            with self.subTest(text=text):
                (place / "deck.md").write_text(f"# A\n\n{text}\n")
                ended = subprocess.run([sys.executable, ROOT / "docs/course/slides.py", place / "deck.md"],
                                       capture_output=True, text=True, check=False)
                self.assertEqual(ended.returncode, 1)
                self.assertIn(f"deck.md:{line + 2}: slides do not know {said}", ended.stderr)
                self.assertFalse((place / "deck.html").exists())

    def test_what_slides_know_is_not_refused(self):
        place = folder(self)
        (place / "deck.md").write_text("# A `<b>`\n- a\n    1. b\n- c\n  goes on\n\n2 * 3 * 4 < 5 and snake_case_name [a](b#c)\n\n"
                                       "| a | b |\n| --- | --- |\n> *q* **r**\n> - s\n\n```c\n<b> ~~ _x_\n    ---\n```\n---\n\n- t\n\nNote:\n- u\n")
        subprocess.run([sys.executable, ROOT / "docs/course/slides.py", place / "deck.md"], check=True)
        self.assertTrue((place / "deck.html").exists())

    def test_no_two_stages_look_alike_with_and_without_green(self):
        text = (ROOT / "src/report/page/page.css").read_text()
        found = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", theme)) for theme in re.findall(r":root \{([^}]*)\}", text)]
        self.assertEqual(len(found), 3)
        self.assertEqual(found[0], found[2])  # paper is light
        for colours in found:
            stages = [name for name in colours if name.startswith("s-") or name == "strong"]
            self.assertEqual(len(stages), 13)
            for name in stages:
                self.assertGreaterEqual(page_case.contrast(colours[name], colours["page"]), 4.5, name)
            for one, other in itertools.combinations(stages, 2):
                most, green = page_case.distances(colours[one], colours[other])
                self.assertGreaterEqual(most, 6, (one, other))
                self.assertGreaterEqual(green, 3.5, (one, other))


if __name__ == "__main__":
    if not FOUND:
        print("skipped: there is no Chromium and no Firefox; scripts/install-deps.sh --browsers installs them")
        sys.exit(77)
    unittest.main(verbosity=2)
