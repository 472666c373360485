#!/usr/bin/env python3
"""Two runs of one command compute the same bits: the tool keeps what it measured in a file.

usage: test_choices.py YOKE [unittest arguments]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT_S = 200
RUN = ["train", "--model", "resnet20", "--dataset", "synthetic:3x32x32,rows=64", "--batch", "16",
       "--steps", "3", "--augment", "crop-flip", "--evaluate-every", "-1", "--devices", "2xcpu",
       "--threads", "1", "--json", "--quiet"]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items()
                            if name not in ("HOME", "XDG_CACHE_HOME")}

    def start(self, *arguments, **variables):
        return subprocess.Popen([YOKE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=self.environment | variables)

    def finish(self, process):
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, err)
        return json.loads(out)["weights_hash"], err

    def train(self, *arguments, **variables):
        return self.finish(self.start(*RUN, *arguments, **variables))


class Choices(Case):
    def test_runs_that_start_together_from_nothing_compute_the_same_bits(self):
        together = [self.start(*RUN, XDG_CACHE_HOME=str(self.folder)) for _ in range(3)]
        hashes = {self.finish(process)[0] for process in together}
        self.assertEqual(len(hashes), 1, hashes)

    def test_a_second_run_measures_nothing(self):
        first, _ = self.train(XDG_CACHE_HOME=str(self.folder))
        file = self.folder / "yoke" / "choices-1.txt"
        before = (file.stat().st_ino, file.read_text())
        second, _ = self.train(XDG_CACHE_HOME=str(self.folder))
        self.assertEqual(second, first)
        self.assertEqual((file.stat().st_ino, file.read_text()), before)
        self.assertGreater(len(before[1].splitlines()), 20)

    def test_choices_imposed_by_the_file_decide_the_bits(self):
        file = self.folder / "choices"
        first, _ = self.train("--choices", str(file))
        lines = [line.split("\t") for line in file.read_text().splitlines()]
        others = 0
        for fields in lines[1:]:  # candidate 0 is the direct algorithm, 4 the next one
            if "kernel 3/1" in fields[4] and "forward" in fields[4]:
                others += 1
                fields[1], fields[3] = ("0", "direct") if fields[1] != "0" else ("4", "winograd")
        self.assertGreater(others, 0)
        file.write_text("\n".join("\t".join(fields) for fields in lines) + "\n")
        self.assertNotEqual(self.train("--choices", str(file))[0], first)

    def test_ranks_use_the_file_of_rank_0(self):
        file = self.folder / "choices"
        ddp = [word for word in RUN if word != "2xcpu" and word != "--devices"] + \
            ["--mode", "ddp", "--choices", str(file)]
        hashes = {self.finish(self.start("launch", "--nproc-per-node", "2", "--", *ddp))[0]
                  for _ in range(2)}
        self.assertEqual(len(hashes), 1, hashes)
        self.assertEqual(file.read_text().splitlines()[0], "yoke choices 1")

    def test_home_holds_the_file_where_there_is_no_cache_folder(self):
        self.train(HOME=str(self.folder))
        self.assertTrue((self.folder / ".cache/yoke/choices-1.txt").is_file())

    def test_without_a_home_the_tool_says_that_runs_may_differ(self):
        _, said = self.train()
        self.assertIn("another run may choose other algorithms", said)
        _, said = self.train("--algorithm", "direct")
        self.assertEqual(said, "")
        _, said = self.train("--choices", "none")
        self.assertEqual(said, "")

    def test_a_folder_that_cannot_be_written_is_a_warning(self):
        _, said = self.train("--choices", "/proc/yoke/choices")
        self.assertIn("warning: /proc/yoke/choices.lock", said)
        self.assertIn("other bits", said)

    def test_a_number_of_no_algorithm_is_named_with_file_and_key(self):
        file = self.folder / "choices"
        self.train("--choices", str(file))
        whole = file.read_text().splitlines()
        for place, wrong in [(1, "400000"), (3, "another algorithm")]:
            with self.subTest(wrong=wrong):
                lines = [line.split("\t") for line in whole]
                lines[1][place] = wrong
                file.write_text("\n".join("\t".join(fields) for fields in lines) + "\n")
                process = self.start(*RUN, "--choices", str(file))
                _, said = process.communicate(timeout=LIMIT_S)
                self.assertEqual(process.returncode, 65, said)
                for word in (str(file), lines[1][4], wrong):
                    self.assertIn(word, said)

    def test_a_damaged_file_is_named_with_its_line(self):
        file = self.folder / "choices"
        file.write_text("yoke choices 1\nhalf a li")
        process = self.start(*RUN, "--choices", str(file))
        _, said = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 65, said)
        self.assertIn(f"{file}: line 2 is cut off", said)


if __name__ == "__main__":
    unittest.main()
