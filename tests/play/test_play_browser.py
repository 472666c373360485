#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/play/index.html in Chromium and Firefox, opened from its file: what it shows is what the tool says.

usage: test_play_browser.py YOKE ROOT [unittest arguments]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

YOKE, ROOT = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from browsers import Chromium, Firefox  # noqa: E402

PAGE = (ROOT / "docs/play/index.html").as_uri()
CELLS = "[...document.querySelectorAll('#numbers tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
SETTLED = "new Promise((done) => { const look = () => yokePlay.busy() ? setTimeout(look, 5) : done(1); look(); })"
TITLE = "document.querySelector('h1').textContent.replaceAll('\u2011', '-')"
STATE = f"[{TITLE}, document.getElementById('sentences').textContent, location.hash]"
SIZES = [400, 768, 1280, 2560]


def settle(page):
    page.run(SETTLED)
    page.settle()


class InBrowser:
    @classmethod
    def setUpClass(cls):
        if cls.kind.program() is None:
            raise unittest.SkipTest(f"{cls.kind.__name__} is missing: the page was not opened in it")
        cls.browser = cls.kind()
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def open(self, hash_="", **size):
        page = self.browser.open(PAGE + hash_, **size)
        settle(page)
        self.addCleanup(page.close)
        return page

    def check_numbers(self, page):
        """The table and the sentences are what the shown commands print."""
        commands = page.run("document.getElementById('words').textContent").splitlines()
        sentences = page.run("document.getElementById('sentences').textContent").replace("\u00a0", " ")
        rows = {row[0]: row[1:] for row in page.run(CELLS)}
        for index, command in enumerate(commands):
            result = subprocess.run([YOKE, *command.split()[1:], "--json"], capture_output=True, text=True, check=True, cwd=ROOT)
            run = json.loads(result.stdout)["runs"][-1]
            for name, key in (("ms a step", "step_ms"), ("rows a second", "rows_per_second")):
                self.assertEqual(rows[name][index], page.run(f"yokePage.number({run[key]!r})"), command)
            self.assertIn(f"{run['sentence']}.", sentences)

    def test_how_long_pictures_take_is_printed_and_not_judged(self):
        page = self.browser.open(PAGE)
        self.addCleanup(page.close)
        first = page.run(f"{SETTLED}.then(() => performance.now())")  # since the page was asked for, with the driver's waits
        self.assertTrue(page.run("document.querySelectorAll('svg[role=img]').length") > 0)
        move = ("(() => { const slider = document.querySelector('#controls [type=range]'), begin = performance.now(); slider.value -= 1;"
                "slider.dispatchEvent(new Event('input', {bubbles: true}));"
                f"return {SETTLED}.then(() => performance.now() - begin); }})()")
        moves = sorted(page.run(move) for _ in range(5))
        print(f"{self.kind.__name__}: the first picture after {first:.0f} ms at most, after a move of a slider "
              f"{moves[0]:.0f} to {moves[-1]:.0f} ms", file=sys.stderr)

    def test_each_slider_changes_the_page_by_a_key(self):
        page = self.open("#first=dp-python&second=dp-async")
        for key in page.run("[...document.querySelectorAll('#controls [id]')].map((input) => input.id)"):
            with self.subTest(control=key):
                before = page.run(STATE)
                page.run(f"document.getElementById('{key}').focus()")
                at_end = page.run(f"(({{value, max}}) => value === max)(document.getElementById('{key}'))")
                page.key("ArrowLeft" if at_end else "ArrowRight" if "range" == page.run(
                    f"document.getElementById('{key}').type") else "ArrowDown")
                if "range" != page.run(f"document.getElementById('{key}').type") and page.run(STATE) == before:
                    # A list that opens first: choose the next word, as a click does.
                    page.run(f"(() => {{ const list = document.getElementById('{key}'); list.selectedIndex += 1;"
                             "list.dispatchEvent(new Event('input', {bubbles: true})); return 1; })()")
                settle(page)
                self.assertNotEqual(page.run(STATE), before)
                self.check_numbers(page)
                page.run("document.getElementById('again').click()")
                settle(page)
                page.run("(location.hash = '#first=dp-python&second=dp-async', 1)")
                settle(page)
        self.assertEqual(page.errors, [])

    def test_the_first_screen_answers(self):
        page = self.open(width=1280, height=800)
        title = page.run(TITLE)
        self.assertRegex(title, r"On 8 devices dp-classic takes [\d.]+ ms, ddp-ring [\d.]+ ms: [\d.]+ times as fast")
        self.assertLess(page.run("document.querySelector('#step svg').getBoundingClientRect().top"), 400)
        self.assertEqual(page.run("document.querySelectorAll('[data-play] > svg').length"), 3)
        self.check_numbers(page)
        self.assertEqual(page.errors, [])

    def test_every_size_holds_the_page(self):
        for width in SIZES:
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    page = self.open(width=width, height=900, dark=dark)
                    self.assertLessEqual(page.run("document.documentElement.scrollWidth"), width)
                    self.assertEqual(page.errors, [])

    def test_a_link_to_a_setting_shows_it_and_what_is_impossible_is_named(self):
        page = self.open("#devices=4&first=dp-python&profile=h100:resnet50&link=own&rate=1&delay=100&meet=bridge&slow=2")
        self.assertIn("On 4 devices dp-python takes", page.run(STATE)[0])
        self.check_numbers(page)
        page.run("(location.hash = '#profile=h100:resnet50&rows=2048&link=1.25,30', 1)")
        settle(page)
        self.check_numbers(page)
        page.run("(location.hash = '#first=<b>&devices=two&rows=', 1)")
        settle(page)
        self.assertIn("On 8 devices dp-classic takes", page.run(STATE)[0])
        self.assertEqual(page.errors, [])

    def test_what_the_simulator_refuses_is_said_and_the_controls_stay(self):
        page = self.open()
        page.run("(yokePlay.change({profile: 'no:such'}), 1)")
        settle(page)
        self.assertEqual(page.run(TITLE), "This cannot be simulated")
        self.assertIn("'no:such' is no file", page.run("document.getElementById('subject').textContent"))
        self.assertTrue(page.run("document.getElementById('again').offsetHeight > 0"))
        page.run("(document.getElementById('again').click(), 1)")
        settle(page)
        self.assertIn("On 8 devices", page.run(TITLE))
        self.check_numbers(page)
        self.assertEqual(page.errors, [])

    def test_controls_have_names_and_sliders_say_their_value(self):
        page = self.open()
        unnamed = page.run("[...document.querySelectorAll('input, select')].filter((input) => !input.labels[0]?.textContent.trim()"
                           " || (input.type === 'range' && !input.getAttribute('aria-valuetext'))).length")
        self.assertEqual(unnamed, 0)
        self.assertEqual(page.run("document.getElementById('sentences').getAttribute('aria-live')"), "polite")

    def test_it_prints(self):
        page = self.open()
        with tempfile.TemporaryDirectory() as folder:
            page.print(pathlib.Path(folder, "page.pdf"))
            self.assertGreater(pathlib.Path(folder, "page.pdf").stat().st_size, 20_000)
        self.assertEqual(page.errors, [])


class InChromium(InBrowser, unittest.TestCase):
    kind = Chromium


class InFirefox(InBrowser, unittest.TestCase):
    kind = Firefox


if __name__ == "__main__":
    unittest.main(verbosity=2)
