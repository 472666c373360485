#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What completes the command line, and the manual page: both hold every verb and option of the help.

usage: test_completion.py YOKE [unittest arguments]
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve()
SHELLS = ("bash", "zsh", "fish")
LIMIT_S = 900


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL, check=False, **options)


def said(*words):
    result = run(YOKE, *words)
    assert (result.returncode, result.stderr) == (0, ""), (words, result.stderr)
    return result.stdout


def offered(*words):
    """What bash offers for the last word."""
    script = f"""source <("$0" completion bash)
COMP_WORDS=(yoke "$@") COMP_CWORD=$#
_yoke
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    result = run("bash", "--norc", "-c", script, YOKE, *words)
    assert result.stderr == "", result.stderr
    return result.stdout.split()


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        verbs = re.findall(r"^  ([a-z]+)  +\S", said("help"), re.M)
        cls.options = {verb: re.findall(r"^  --([a-z0-9-]+)", said("help", verb), re.M) for verb in verbs}
        cls.texts = {shell: said("completion", shell) for shell in SHELLS}
        assert len(verbs) > 15 and "devices" in cls.options["train"], cls.options

    def test_every_verb_and_option_of_the_help_is_offered_by_each_shell(self):
        self.assertEqual(offered(""), list(self.options))
        places = {"zsh": r"    {verb}\)\n(.*?)\n        ;;", "fish": r"((?:^complete -c yoke -n '[^']* {verb}'.*\n)+)"}
        for verb, options in self.options.items():
            expected = sorted(f"--{option}" for option in options) + ["--help"]
            self.assertEqual(sorted(offered(verb, "--")), sorted(expected), verb)
            for shell, place in places.items():
                part = re.search(place.format(verb=verb), self.texts[shell], re.S | re.M if shell == "zsh" else re.M)
                self.assertIsNotNone(part, (shell, verb))
                dashes = r"^ +'--([a-z0-9-]+)" if shell == "zsh" else r"^[^']*'[^']*' -l ([a-z0-9-]+)"
                self.assertEqual(sorted(re.findall(dashes, part[1], re.M)), sorted(options + ["help"]), (shell, verb))

    def test_bash_completes_verbs_options_and_their_words(self):
        for words, expected in ((("tr",), ["train"]), (("train", "--devi"), ["--devices"]),
                                (("train", "--mode", "d"), ["dp", "ddp"]), (("train", "--mode", "=", "s"), ["single"]),
                                (("train", "--checkpoint-every", ""), []), (("train", "--init", ""), []),
                                (("train", "--model", "resnet18-"), ["resnet18-cifar"]),
                                (("checkpoint", ""), ["list", "show", "verify", "diff"]), (("predict", ""), []),
                                (("help", "tr"), ["train"]), (("completion", ""), list(SHELLS)),
                                (("launch", "--nproc-per-node", "2", "--", "train", "--devi"), ["--devices"])):
            self.assertEqual(offered(*words), expected, words)

    def test_each_shell_that_is_here_reads_its_own(self):
        absent = []
        with tempfile.TemporaryDirectory() as folder:
            for shell, text in self.texts.items():
                path = pathlib.Path(folder) / shell
                path.write_text(text)
                if shutil.which(shell) is None:
                    absent.append(shell)
                    continue
                result = run(shell, "-n", path)
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""), shell)
        if absent:
            self.skipTest(f"not here: {', '.join(absent)}")

    @unittest.skipUnless(shutil.which("fish"), "no fish is here")
    def test_fish_completes_verbs_options_and_their_words(self):
        for line, expected in (("yoke tr", ["train"]), ("yoke train --devi", ["--devices"]),
                               ("yoke train --mode d", ["ddp", "dp"]), ("yoke checkpoint sh", ["show"])):
            script = "$argv[1] completion fish | source; complete -C $argv[2]"
            result = run("fish", "--no-config", "-c", script, YOKE, line)
            self.assertEqual([row.split("\t")[0] for row in result.stdout.splitlines()], expected, result.stderr)

    def test_the_manual_page_explains_every_verb_and_option(self):
        page = said("help", "--man")
        for verb, options in self.options.items():
            part = re.search(rf"^\.SS yoke {verb}( .*)?\n((?:(?!\.S[SH]).*\n)*)", page, re.M)
            self.assertIsNotNone(part, verb)
            explained = re.findall(r"^\\fB\\-\\-(\S+)\\fR", part[2], re.M)
            self.assertEqual([name.replace("\\-", "-") for name in explained], options, verb)
        self.assertIn("EXIT STATUS", page)
        self.assertIn("YOKE_ERROR_ARGUMENT", page)
        self.assertEqual([line for line in page.splitlines() if len(line) > 1 and line[0] == "'"], [])

    @unittest.skipUnless(shutil.which("mandoc") or shutil.which("man"), "neither man nor mandoc is here")
    def test_the_manual_page_gives_man_no_reason_to_warn(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "yoke.1"
            page.write_text(said("help", "--man"))
            if shutil.which("mandoc"):  # a page of the tool has the tool's version, and no date
                said_wrong = run("mandoc", "-Tlint", "-Wwarning", page).stdout.splitlines()
                self.assertEqual([line for line in said_wrong if "missing date" not in line], [])
            if shutil.which("man"):
                plain = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANROFFSEQ": ""}
                result = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page, env=plain)
                self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_what_is_no_shell_or_no_page_is_a_usage_error(self):
        for words, text in ((("completion",), "one shell: bash, zsh or fish"),
                            (("completion", "csh"), "'csh' is not a shell"),
                            (("help", "--man", "train"), "--man prints all verbs")):
            result = run(YOKE, *words)
            self.assertEqual((result.returncode, result.stdout), (2, ""), words)
            self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
