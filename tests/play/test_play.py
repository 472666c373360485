#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/play/index.html: it is a fresh build, and its simulator prints what yoke simulate prints.

usage: test_play.py YOKE ROOT [unittest arguments]
"""
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

YOKE, ROOT = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
FOLDER = ROOT / "docs" / "play"
PAGE = FOLDER / "index.html"
BYTES_MAX = 400_000
SCRIPT_LINES_MAX = 350
sys.path.insert(0, str(FOLDER))
import build  # noqa: E402

PROFILES = ["h100:resnet50", "v100:resnet50", "dgx-1-float32:resnet50",
            *(path.relative_to(ROOT).as_posix() for path in sorted((FOLDER / "profiles").glob("*.json")))]
OPTIONS = [[], ["--link", "pcie3"], ["--link", "0.125,50"], ["--link", "1.25,30,bridge"], ["--rows", "1"],
           ["--rows", "100", "--straggler", "1:1.5"], ["--interpreter-us", "0"], ["--interpreter-us", "200"],
           ["--devices", "1..64", "--link", "24.6,5"], ["--devices", "3,5,12", "--straggler", "2:3"],
           ["--mode", "dp-async", "--straggler", "0:3"], ["--mode", "dp-async", "--max-staleness", "8", "--spread", "0.1"],
           ["--devices", "8..4096", "--devices-per-node", "8", "--nic", "50,10"]]
REFUSED = [["no:such"], ["none.json"], ["h100:resnet50", "--link", "pcie9"], ["h100:resnet50", "--devices", "0"],
           ["h100:resnet50", "--rows", "0"], ["h100:resnet50", "--rows", "4000000"],
           ["h100:resnet50", "--link", "auto"], ["h100:resnet50", "--html", "p.html"], ["h100:resnet50", "--mod", "all"], []]


def tool(words):
    return subprocess.run([YOKE, *words], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)


def in_page(lists, page=PAGE):
    """What the page's simulator says to each list of words."""
    node = shutil.which("node")
    if node is None:
        raise unittest.SkipTest("node is missing: the page's simulator did not run")
    result = subprocess.run([node, ROOT / "tests/play/run_page.js", page], input="\n".join(map(json.dumps, lists)),
                            capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


class Numbers(unittest.TestCase):
    def test_the_page_prints_what_the_tool_prints_to_the_last_digit(self):
        lists = [["simulate", profile, *options, "--json"] for profile, options in itertools.product(PROFILES, OPTIONS)]
        for words, found in zip(lists, in_page(lists), strict=True):
            with self.subTest(words=words):
                expected = tool(words)
                self.assertEqual((found["code"], found["error"]), (expected.returncode, expected.stderr))
                self.assertEqual(found["out"], expected.stdout)

    def test_the_table_is_the_tool_s_as_well(self):
        words = ["simulate", PROFILES[0], "--link", "pcie3"]
        self.assertEqual(in_page([words])[0]["out"], tool(words).stdout)

    def test_every_published_profile_and_mode_is_the_tool_s(self):
        published = re.findall(r"^(\S+:\S+) ", in_page([["simulate", "--list"]])[0]["out"], re.MULTILINE)
        self.assertGreaterEqual(len(published), 9)
        offered = {control["key"]: control["values"] for control in build.settings()["controls"]}
        self.assertEqual(offered["profile"][:len(published)], published)
        words = tool(["help", "simulate"]).stdout
        self.assertIn(f"--mode all|{'|'.join(offered['first'])}\n", words)
        lists = [["simulate", name, "--devices", "2", "--json"] for name in published]
        for words, found in zip(lists, in_page(lists), strict=True):
            self.assertEqual(found["out"], tool(words).stdout)

    def test_what_the_page_refuses_it_names(self):
        for words, found in zip(REFUSED, in_page([["simulate", *words] for words in REFUSED]), strict=True):
            with self.subTest(words=words):
                self.assertNotEqual(found["code"], 0)
                self.assertTrue(found["error"].startswith("yoke: "), found)


class Address(unittest.TestCase):
    def test_a_hash_sets_the_page_and_nonsense_in_it_does_not(self):
        usual, given, odd = in_page(["", "#devices=4&link=own&rate=25&slow=2", "#devices=-3&mode=x&link=<b>&rows=1e9&slow=no"])
        self.assertEqual(given, {**usual, "devices": 4, "link": "own", "rate": 24.6, "slow": 2})
        self.assertEqual(odd, {**usual, "rows": 2048})


class Built(unittest.TestCase):
    def test_the_page_is_small_and_of_one_file(self):
        text = PAGE.read_text()
        self.assertLessEqual(len(text.encode()), BYTES_MAX)
        self.assertIsNone(re.search(r"""(src|href)=["']?(https?:|//)|@import|url\([^)]*//""", text))
        self.assertLessEqual(len((FOLDER / "play.js").read_text().splitlines()), SCRIPT_LINES_MAX)

    def test_the_page_is_a_fresh_build(self):
        if build.compiler() is None:
            self.skipTest("clang or wasi-libc is missing: the page was not built again")
        with tempfile.TemporaryDirectory() as folder:
            fresh = pathlib.Path(folder, "index.html")
            fresh.write_text(build.page())
            if build.compiler_of(PAGE.read_text()) == build.compiler():
                self.assertEqual(PAGE.read_bytes(), fresh.read_bytes(), "run docs/play/build.py")
                return
            # Another compiler: all but its bytes is the same, and so is what it computes.
            bare = [re.sub(r'id="simulator">[^<]*<|build.py with .*? -->', "", path.read_text()) for path in (PAGE, fresh)]
            self.assertEqual(*bare, "run docs/play/build.py")
            lists = [["simulate", profile, "--json"] for profile in PROFILES]
            self.assertEqual(in_page(lists), in_page(lists, fresh))


if __name__ == "__main__":
    unittest.main(verbosity=2)
