#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two runs of one command compute the same bits: the tool keeps what it measured in a file.

usage: test_algorithm_cache.py YOKE [unittest arguments]
"""
import fcntl
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT_S = 900
RUN = ["train", "--model", "resnet20", "--dataset", "synthetic:3x32x32,rows=64", "--batch", "16",
       "--steps", "3", "--augment", "crop-flip", "--evaluate-every", "-1", "--devices", "2xcpu",
       "--threads", "1", "--json", "--quiet"]
ROWS = "synthetic:3x32x32,rows=64"
SMALL = ["--model", "mlp:width=64", "--dataset", ROWS]  # has few and quick algorithms
ONE_CPU = ["--devices", "cpu", "--threads", "1"]


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


class AlgorithmCache(Case):
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

    def test_algorithms_imposed_by_the_file_decide_the_bits(self):
        file = self.folder / "algorithms"
        first, _ = self.train("--algorithm-cache", str(file))
        lines = [line.split("\t") for line in file.read_text().splitlines()]
        others = 0
        for fields in lines[1:]:  # candidate 0 is the direct algorithm, 4 the next one
            if "kernel 3/1" in fields[4] and "forward" in fields[4]:
                others += 1
                fields[1], fields[3] = ("0", "direct") if fields[1] != "0" else ("4", "winograd")
        self.assertGreater(others, 0)
        file.write_text("\n".join("\t".join(fields) for fields in lines) + "\n")
        self.assertNotEqual(self.train("--algorithm-cache", str(file))[0], first)

    def test_ranks_use_the_file_of_rank_0(self):
        file = self.folder / "algorithms"
        ddp = [word for word in RUN if word != "2xcpu" and word != "--devices"] + \
            ["--mode", "ddp", "--algorithm-cache", str(file)]
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
        _, said = self.train("--no-cache")
        self.assertEqual(said, "")

    def test_a_home_too_long_for_a_path_is_a_warning(self):
        _, said = self.train(HOME="/" + "long/" * 1000)
        self.assertIn("HOME names a folder of 5001 bytes", said)

    def test_the_cache_is_for_its_user_alone(self):
        self.train(HOME=str(self.folder))
        for name, mode in ((".cache", 0o700), (".cache/yoke", 0o700), (".cache/yoke/choices-1.txt.lock", 0o600)):
            self.assertEqual((self.folder / name).stat().st_mode & 0o777, mode, name)
        lock = self.folder / ".cache/yoke/choices-1.txt.lock"
        lock.chmod(0o644)  # as older versions made it
        (self.folder / ".cache/yoke/choices-1.txt").unlink()
        self.train(HOME=str(self.folder))
        self.assertEqual(lock.stat().st_mode & 0o777, 0o600)

    def test_a_pipe_in_place_of_the_cache_is_not_waited_for(self):
        (self.folder / "yoke").mkdir()
        os.mkfifo(self.folder / "yoke/choices-1.txt")
        _, said = self.train(XDG_CACHE_HOME=str(self.folder))
        self.assertIn("is a pipe; expected a regular file", said)

    def test_a_run_says_that_another_one_holds_the_cache(self):
        cache = self.folder / "cache.txt"
        with open(f"{cache}.lock", "w", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process = self.start(*RUN, "--algorithm-cache", str(cache))
            line = process.stderr.readline()
        self.assertIn(f"another run holds {cache}.lock", line)
        self.finish(process)

    def test_a_folder_that_cannot_be_written_is_a_warning(self):
        _, said = self.train("--algorithm-cache", "/proc/yoke/algorithms")
        self.assertIn("warning: /proc/yoke/algorithms.lock", said)
        self.assertIn("other bits", said)

    def test_an_algorithm_that_does_not_exist_is_measured_anew_and_named(self):
        file = self.folder / "algorithms"
        self.train("--algorithm-cache", str(file))
        whole = file.read_text().splitlines()
        fields = whole[1].split("\t")
        fields[3] = "another algorithm"
        file.write_text("\n".join([whole[0], "\t".join(fields), *whole[2:]]) + "\n")
        first, said = self.train("--algorithm-cache", str(file))
        for word in (str(file), fields[4], "another algorithm", "measured anew"):
            self.assertIn(word, said)
        self.assertEqual(len(file.read_text().splitlines()), len(whole) + 1)
        self.assertEqual(self.train("--algorithm-cache", str(file)), (first, ""))

    def test_the_fastest_says_that_two_runs_may_differ(self):
        loud = [word for word in RUN if word != "--quiet"]
        _, said = self.finish(self.start(*loud, "--no-cache", "--algorithm", "fastest"))
        self.assertIn("two runs may differ", said)

    def test_a_file_that_the_user_names_must_be_whole(self):
        file = self.folder / "algorithms"
        file.write_text("yoke choices 1\nhalf a li")
        process = self.start(*RUN, "--algorithm-cache", str(file))
        _, said = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 65, said)
        self.assertIn(f"{file}: line 2 is cut off", said)

    def test_a_file_and_no_cache_contradict_each_other(self):
        for verb in ("train", "compare"):
            process = self.start(verb, "--algorithm-cache", "a", "--no-cache")
            _, said = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, 2, said)
            self.assertIn("leave one out", said)


class Cache(Case):
    """The tool's own file costs no run: whatever it is, the run goes on, and mends it where it can."""

    def setUp(self):
        super().setUp()
        self.cache = self.folder / "yoke" / "choices-1.txt"
        self.cache.parent.mkdir()

    def small(self, *arguments):
        return self.finish(self.start("train", *SMALL, *ONE_CPU, "--steps", "3", "--json", "--quiet", *arguments,
                                      XDG_CACHE_HOME=str(self.folder)))

    def test_a_broken_cache_is_one_warning_and_the_next_run_has_a_whole_one(self):
        self.small()
        whole = self.cache.read_bytes()
        for damage in (whole[:-9], b"yoke choices 2\n", b"\x89PNG\r\n\x1a\n\0\0", whole.replace(b"\t", b" ")):
            with self.subTest(damage=damage[:20]):
                self.cache.write_bytes(damage)
                first, said = self.small()
                self.assertEqual(said.count("\n"), 1, said)
                self.assertIn(f"yoke: warning: {self.cache}: ", said)
                self.assertIn("writes the file anew", said)
                self.assertEqual(self.small(), (first, ""))
                self.assertEqual(len(self.cache.read_bytes().splitlines()), len(whole.splitlines()))

    def lines(self):
        """[[machine, candidate, milliseconds, name, key]]"""
        return [line.split("\t") for line in self.cache.read_text().splitlines()[1:]]

    def write_lines(self, lines):
        self.cache.write_text("".join("\t".join(fields) + "\n" for fields in [["yoke choices 1"], *lines]))

    def machine(self):
        return json.loads(subprocess.run([YOKE, "devices", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout)

    def processor(self):
        return next(device for device in self.machine()["devices"] if device["name"] == "cpu:0")

    def has_avx512(self):
        return any("AVX-512" in backend["detail"] for backend in self.machine()["backends"] if backend["name"] == "cpu")

    def test_another_machine_measures_for_itself(self):
        """The version of the library, the processor, oneDNN's version, its threads, the instructions."""
        self.small()
        own = self.lines()
        keys, facts = {fields[4] for fields in own}, own[0][0].split(", ")
        self.assertRegex(facts[0], r"^yoke \d+\.\d+\.\d+$")
        self.assertTrue(all(facts), facts)
        self.assertIn(self.processor()["description"], facts)
        for part, fact in enumerate(facts):
            with self.subTest(fact=fact):
                machine = ", ".join([*facts[:part], fact + "x", *facts[part + 1:]])
                foreign = [[machine, *fields[1:]] for fields in own]
                self.write_lines(foreign)
                self.assertEqual(self.small()[1], "")
                lines = self.lines()
                self.assertEqual([fields for fields in lines if fields[0] == machine], foreign)
                self.assertEqual({fields[4] for fields in lines if fields[0] == own[0][0]}, keys)

    def test_another_layer_is_measured_and_the_same_one_is_not(self):
        """Of another shape, in another precision, on another number of threads."""
        self.small()
        own = self.lines()
        for arguments in (["--model", "mlp:width=32"], ["--precision", "bfloat16"], ["--threads", "2"]):
            with self.subTest(arguments=arguments):
                if "bfloat16" in arguments and not self.processor()["bfloat16"]:
                    self.skipTest("this processor has no bfloat16")
                self.write_lines(own)
                self.small(*arguments)
                lines = self.lines()
                self.assertEqual([fields for fields in lines if fields in own], own)
                self.assertEqual(len({fields[4] for fields in lines}), 2 * len(own), lines)
                self.small(*arguments)
                self.assertEqual(self.lines(), lines)

    def test_names_that_no_algorithm_has_are_measured_again(self):
        self.small()
        lines = [line.split("\t") for line in self.cache.read_text().splitlines()]
        lines[1][3] = "another algorithm"
        self.cache.write_text("\n".join("\t".join(fields) for fields in lines) + "\n")
        first, said = self.small()
        self.assertIn("'another algorithm', which does not exist here", said)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertEqual(self.small(), (first, ""))

    def test_the_name_counts_where_the_number_is_of_no_algorithm(self):
        self.small()
        lines = [line.split("\t") for line in self.cache.read_text().splitlines()]
        lines[1][1] = "400000"
        self.cache.write_text("\n".join("\t".join(fields) for fields in lines) + "\n")
        self.assertEqual(self.small()[1], "")

    def test_a_comparison_says_that_it_writes_the_file_anew(self):
        self.cache.write_text("yoke choices 2\n")
        comparison = self.start("compare", *SMALL, "--batch", "16", "--rounds", "3", "--seconds", "1", "--devices",
                                "2xcpu", "--threads", "1", "--quiet", XDG_CACHE_HOME=str(self.folder))
        _, said = comparison.communicate(timeout=LIMIT_S)
        self.assertEqual(said.count(f"yoke: warning: {self.cache}: "), 1, said)

    def test_what_cannot_be_a_cache_is_one_warning(self):
        self.cache.mkdir()
        _, said = self.small()
        self.assertIn("are not kept", said)
        self.assertEqual(said.count("\n"), 1, said)
        self.cache.rmdir()
        shutil.rmtree(self.cache.parent)
        self.cache.parent.write_text("no folder\n")
        _, said = self.small()
        self.assertIn("are not kept", said)
        self.assertEqual(said.count("\n"), 1, said)

    def test_runs_that_meet_a_broken_cache_together_compute_the_same_bits(self):
        self.cache.write_text("not ours\n")
        together = [self.start("train", *SMALL, *ONE_CPU, "--json", "--quiet", XDG_CACHE_HOME=str(self.folder))
                    for _ in range(3)]
        self.assertEqual(len({self.finish(process)[0] for process in together}), 1)

    def test_ranks_go_on_with_a_broken_cache(self):
        self.cache.write_text("not ours\n")
        _, said = self.finish(self.start("launch", "--nproc-per-node", "2", "--", "train", *SMALL, "--mode", "ddp",
                                         "--threads", "1", "--steps", "3", "--json", "--quiet",
                                         XDG_CACHE_HOME=str(self.folder)))
        self.assertEqual(said.count("writes the file anew"), 1, said)
        self.assertEqual(self.cache.read_text().splitlines()[0], "yoke choices 1")

    def test_every_verb_that_measures_uses_the_cache_and_leaves_it_alone_with_no_cache(self):
        weights, text = self.folder / "w.safetensors", self.folder / "text.txt"
        language = self.folder / "gpt2.safetensors"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 40)
        self.small("--no-cache", "--save", str(weights))
        self.finish(self.start("train", "--model", "gpt2:width=16,layers=1,heads=2", "--dataset",
                               f"text:{text},context=16", "--steps", "1", "--no-cache", "--json", "--quiet",
                               "--save", str(language), *ONE_CPU))
        for arguments in (["train", *SMALL, "--steps", "1", "--quiet", *ONE_CPU],
                          ["compare", *SMALL, "--batch", "16", "--rounds", "3", "--seconds", "1", "--devices",
                           "2xcpu", "--threads", "1"],
                          ["predict", "--weights", str(weights), *ONE_CPU, ROWS],
                          ["evaluate", "--weights", str(weights), "--dataset", ROWS, *ONE_CPU],
                          ["generate", "--weights", str(language), "--prompt", "the", "--length", "2", *ONE_CPU]):
            # Its weights keep their plain order, of which only kernels for AVX-512 choose among several.
            measures = arguments[0] != "generate" or self.has_avx512()
            with self.subTest(verb=arguments[0]):
                for flags in (["--no-cache"], []):
                    process = self.start(*arguments, *flags, XDG_CACHE_HOME=str(self.folder))
                    _, said = process.communicate(timeout=LIMIT_S)
                    self.assertEqual(process.returncode, 0, said)
                    self.assertEqual(self.cache.exists(), measures and not flags)
                self.cache.unlink(missing_ok=True)

    def test_prediction_names_a_broken_cache_and_goes_on(self):
        weights = self.folder / "w.safetensors"
        self.small("--no-cache", "--save", str(weights))
        self.cache.write_text("not ours\n")
        for expected in (1, 0):
            process = self.start("predict", "--weights", str(weights), *ONE_CPU, ROWS,
                                 XDG_CACHE_HOME=str(self.folder))
            _, said = process.communicate(timeout=LIMIT_S)
            self.assertEqual((process.returncode, said.count("writes the file anew")), (0, expected), said)

    def test_a_terminal_shows_that_a_prediction_measures(self):
        weights = self.folder / "w.safetensors"
        self.small("--no-cache", "--save", str(weights))
        try:
            ours, theirs = pty.openpty()
        except OSError:
            self.skipTest("this system offers no pseudo-terminals")
        with os.fdopen(ours, "rb", buffering=0) as screen:
            subprocess.run([YOKE, "predict", "--weights", str(weights), *ONE_CPU, "--no-cache", ROWS],
                           stdout=subprocess.DEVNULL, stderr=theirs, timeout=LIMIT_S, check=True,
                           env=self.environment | {"TERM": "xterm"})
            os.close(theirs)
            self.assertEqual(screen.read(4096), b"measuring the fastest algorithms ...\r\x1b[K")


if __name__ == "__main__":
    unittest.main(verbosity=2)
