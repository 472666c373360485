#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""yoke train --live on a pseudo-terminal: a small terminal emulator shows what a person would see, and what each way to
end a run leaves behind.

usage: test_live.py YOKE [unittest arguments]
"""
import codecs
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from clock import CLOCK  # with judges_clock

YOKE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
LIMIT_S = 900
SMALL = ["--model", "mlp:width=512", "--dataset", "synthetic:1x8x8,classes=3,rows=60", "--batch", "20", "--threads", "1",
         "--devices", "2xcpu", "--no-cache", "--algorithm", "direct"]
LONG = SMALL + ["--epochs", "1000000", "--evaluate-every", "-1"]
TITLE = "mlp:width=512 | dp overlap | 2 x cpu | batch 20 | "


class Screen:
    """What a VT100 shows of the bytes it gets; raises on a sequence that it does not know."""
    SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")
    TORN = re.compile(r"\x1b\[?\??[0-9;]*(?=\x1b)")

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.gone, self.lines = [], [""]  # above the screen; on it, as far as written
        self.row = self.column = 0
        self.attributes, self.cursor, self.alternate = set(), True, False
        self.pending = ""
        self.may_tear = False  # a frame may end within a character, or a sequence

    def resize(self, columns, rows):
        """As xterm: lines are cut, not wrapped; the cursor's line stays."""
        self.columns, self.rows = columns, rows
        self.lines = [line[:columns] for line in self.lines]
        while self.row >= rows:
            self.gone.append(self.lines.pop(0))
            self.row -= 1
        del self.lines[rows:]

    def feed(self, data):
        text = self.pending + data
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = self.SEQUENCE.match(text, at)
                again = self.may_tear and self.TORN.match(text, at)
                if found is None and again:  # a new sequence ends one that was cut off
                    at = again.end()
                    continue
                if found is None:
                    if len(text) - at > 12:
                        raise ValueError(f"unknown sequence {text[at:at + 12]!r}")
                    break
                self.obey(*found.groups())
                at = found.end()
            else:
                self.put(text[at])
                at += 1
        self.pending = text[at:]

    def obey(self, private, numbers, letter):
        count = int(numbers or 0)
        if letter == "A" and not private:
            self.row = max(0, self.row - max(1, count))
        elif letter == "K" and count == 0 and not private:
            self.lines[self.row] = self.lines[self.row][:self.column]
        elif letter == "J" and count == 0 and not private:
            self.lines[self.row] = self.lines[self.row][:self.column]
            del self.lines[self.row + 1:]
        elif letter == "m" and not private:
            self.attributes = self.attributes | {count} if count else set()
        elif letter in "hl" and private and count == 25:
            self.cursor = letter == "h"
        elif letter in "hl" and private and count in (47, 1047, 1049):
            self.alternate = letter == "h"
        else:
            raise ValueError(f"unknown sequence {private}{numbers}{letter}")

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.new_line()
        elif character >= " ":
            if self.column == self.columns:
                self.column = 0
                self.new_line()
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[:self.column] + character + line[self.column + 1:]
            self.column += 1
        else:
            raise ValueError(f"control character {character!r}")

    def new_line(self):
        self.row += 1
        if self.row == self.rows:
            self.gone.append(self.lines.pop(0))
            self.row -= 1
        if self.row == len(self.lines):
            self.lines.append("")

    def all(self):
        return [line.rstrip() for line in self.gone + self.lines]


class Terminal:
    """A pseudo-terminal with a program on it."""

    def __init__(self, command, columns=100, rows=40, stdout=None, **environment):
        self.ours, self.theirs = pty.openpty()
        self.screen = Screen(columns, rows)
        self.bytes = b""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.is_open = True
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(self.theirs)
        environment = dict({k: v for k, v in os.environ.items() if k != "NO_COLOR"},
                           **{"TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout or self.theirs,
                                        stderr=self.theirs, env=environment,
                                        preexec_fn=os.setpgrp)  # an orphaned group ignores SIGTSTP

    def resize(self, columns, rows):
        self.screen.resize(columns, rows)
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds=0.05):
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        part = os.read(self.ours, 65536)
        self.bytes += part
        text = self.decoder.decode(part)  # a character may be cut
        if "\ufffd" in text and not self.screen.may_tear:
            raise ValueError(f"no UTF-8: {part!r}")
        self.screen.feed(text)
        return True

    def read_until(self, condition, what):
        end = time.monotonic() + LIMIT_S
        while not condition(self.screen):
            if time.monotonic() > end or (self.process.poll() is not None and not self.read()):
                raise AssertionError(f"no {what} within {LIMIT_S} s: {self.screen.all()}")
            self.read()

    def frames(self, count):
        """Reads until so many frames more have come."""
        have = self.bytes.count(TITLE.encode())
        self.read_until(lambda _: self.bytes.count(TITLE.encode()) >= have + count, "frame")

    def finish(self):
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"the run did not end: {self.screen.all()}")
            self.read()
        while self.read(0.1):
            pass
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in [self.ours, self.theirs] if self.is_open else []:
            os.close(descriptor)
        self.is_open = False


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *arguments, verb="train", **options):
        try:
            terminal = Terminal([YOKE, verb, *arguments], **options)
        except OSError:
            self.skipTest("this system offers no pseudo-terminals")
        self.addCleanup(terminal.close)
        return terminal

    def check_restored(self, terminal):
        """As the shell expects it: its prompt comes on a line of its own below all else."""
        screen = terminal.screen
        self.assertEqual(screen.pending, "", "a sequence was cut")
        self.assertEqual(terminal.decoder.getstate()[0], b"")
        self.assertTrue(screen.cursor)
        self.assertFalse(screen.alternate)
        self.assertEqual(screen.attributes, set())
        self.assertEqual(screen.column, 0)
        self.assertEqual([line for line in screen.lines[screen.row:] if line.strip()], [])
        self.assertEqual(termios.tcgetattr(terminal.theirs), terminal.modes)

    def count(self, terminal, words):
        return sum(words in line for line in terminal.screen.all())


class Picture(Case):
    def test_the_view_is_drawn_in_place_and_its_last_picture_stays(self):
        terminal = self.start(*SMALL, "--live", "--epochs", "100", stdout=subprocess.DEVNULL)
        self.assertEqual(terminal.finish(), 0)
        self.assertGreater(terminal.bytes.count(TITLE.encode()), 1)
        self.assertEqual(self.count(terminal, TITLE), 1)
        lines = terminal.screen.all()
        for pattern in [r"epoch +█+ 100 % 100 of 100, 3/3$", r"run +█+ 100 % 300/300, \d\d:\d\d gone, 00:00 left",
                        r"speed +\d+ img/s now, \d+ mean", r" cpu:0 .* work +[\d.]+ %  wait +[\d.]+ %  idle",
                        r" cpu:1 .* work", r"step +[\d.]+ ms 100.0 %  mean of \d+ steps? and 2 devices",
                        r" forward +[\d.]+ ms +[\d.]+ %", r"loss     train [\d.]+, test [\d.]+ \(o\), accuracy "]:
            self.assertEqual(sum(re.match(pattern, line) is not None for line in lines), 1, (pattern, lines))
        self.assertTrue(any(re.search("[\u2801-\u28ff]", line) for line in lines))
        self.check_restored(terminal)

    def test_stages_add_up_to_the_step_and_a_straggler_is_seen(self):
        terminal = self.start("--live", "--model", "mlp", "--dataset", "synthetic:1x28x28", "--threads", "1",
                              "--devices", "2xcpu", "--steps", "60", "--straggler", "1:4.0", "--no-cache",
                              "--algorithm", "direct", stdout=subprocess.DEVNULL)
        self.assertEqual(terminal.finish(), 0)
        lines = terminal.screen.all()
        head = next(i for i, line in enumerate(lines) if line.startswith("step "))
        end = next(i for i, line in enumerate(lines) if line.startswith("loss "))
        stages = [re.match(r" \w+ +([\d.]+) ms +([\d.]+) %", line) for line in lines[head + 1:end]]
        whole = float(re.match(r"step +([\d.]+) ms", lines[head])[1])
        self.assertAlmostEqual(sum(float(stage[1]) for stage in stages), whole, delta=0.01 * len(stages))
        self.assertAlmostEqual(sum(float(stage[2]) for stage in stages), 100, delta=0.1 * len(stages))
        work = [float(re.search(r"work +([\d.]+) %", line)[1]) for line in lines if re.match(r" cpu:\d .*work", line)]
        self.assertEqual(len(work), 2)
        if CLOCK:
            self.assertGreater(work[1], 1.2 * work[0])  # cpu:0 waits for cpu:1

    def test_a_device_that_was_lost_leaves_the_view(self):
        terminal = self.start(*SMALL, "--devices", "3xcpu", "--shards", "4", "--live", "--epochs", "100", "--survive", "--fault",
                              "error:0@150", stdout=subprocess.DEVNULL, columns=160)
        self.assertEqual(terminal.finish(), 0)
        self.assertIn(" cpu:0 ".encode(), terminal.bytes)
        lines = terminal.screen.all()
        self.assertEqual([line.split()[0] for line in lines if re.match(r" cpu:\d .* work ", line)], ["cpu:1", "cpu:2"])
        self.assertEqual(sum("| 2 x cpu |" in line for line in lines), 1)
        self.assertEqual(sum(re.search(r"mean of \d+ steps? and 2 devices$", line) is not None for line in lines), 1)
        self.assertEqual(self.count(terminal, "warning: lost cpu:0 after step 150"), 1)
        self.check_restored(terminal)

    def test_messages_are_whole_and_in_order(self):
        terminal = self.start(*SMALL, "--live", "--epochs", "30", "--evaluate-every", "1", "--log-every", "7",
                              "--checkpoint-dir", str(self.folder / "saves"), "--save", str(self.folder / "w.safetensors"),
                              stdout=subprocess.DEVNULL, columns=120)
        self.assertEqual(terminal.finish(), 0)
        lines = terminal.screen.all()
        self.assertEqual(len([line for line in lines if re.match(r"epoch \d+/30 step \d/3 \[.*\]$", line)]), 90 // 7)
        self.assertIn(f"wrote {self.folder / 'w.safetensors'}", lines)
        for words in ["model    mlp:width=512, ", "devices  2 x "]:
            self.assertEqual(sum(line.startswith(words) for line in lines), 1)
        self.assertEqual(self.count(terminal, TITLE), 1)

    def test_epochs_are_drawn_and_not_printed(self):
        terminal = self.start(*SMALL, "--live", "--epochs", "200", "--evaluate-every", "1", stdout=subprocess.DEVNULL)
        self.assertEqual(terminal.finish(), 0)
        lines = terminal.screen.all()
        self.assertEqual([line for line in lines if re.match(r"epoch \d+ |.*train loss ", line)], [])
        self.assertEqual(sum(re.match(r"epoch +█+ 100 % 200 of 200, 3/3$", line) is not None for line in lines), 1)
        seconds = int(re.search(r" 00:(\d\d) gone,", "\n".join(lines))[1])
        self.assertLessEqual(terminal.bytes.count(TITLE.encode()), 4 * (seconds + 1) + 2)  # first and last

    def test_the_result_is_that_of_a_run_without_the_view(self):
        results = []
        for live in [["--live"], []]:
            terminal = self.start(*SMALL, *live, "--epochs", "60", stdout=subprocess.PIPE)
            self.assertEqual(terminal.finish(), 0)
            result = terminal.process.stdout.read().decode()
            self.assertNotIn("\033", result)
            self.assertRegex(result, r"weights_hash [0-9a-f]{16}")
            steady = re.search(r"^train loss .*\ntest loss .*\nweights_hash .*", result, re.MULTILINE)[0]
            results.append((steady, [line.split()[:1] for line in result.splitlines()]))
            terminal.process.stdout.close()
        self.assertEqual(results[0], results[1])

    def test_ascii_and_no_color(self):
        terminal = self.start(*SMALL, "--live", "--epochs", "30", stdout=subprocess.DEVNULL, LC_ALL="C")
        self.assertEqual(terminal.finish(), 0)
        self.assertTrue(terminal.bytes.isascii())
        self.assertRegex(terminal.bytes, rb"\033\[[0-9;]+m")
        self.assertIn(b"####", terminal.bytes)
        terminal = self.start(*SMALL, "--live", "--epochs", "30", stdout=subprocess.DEVNULL, NO_COLOR="1")
        self.assertEqual(terminal.finish(), 0)
        self.assertEqual(self.count(terminal, TITLE), 1)
        self.assertNotRegex(terminal.bytes, rb"\033\[[0-9;]*m")

    def test_ranks_of_ddp_draw_rank_0(self):
        terminal = self.start("--nproc-per-node", "2", "--", "train", "--mode", "ddp", *SMALL, "--devices", "cpu",
                              "--live", "--epochs", "60", verb="launch")
        self.assertEqual(terminal.finish(), 0)
        self.assertEqual(self.count(terminal, "| ddp overlap over shared memory | 2 x cpu |"), 1)
        self.assertEqual(self.count(terminal, "(rank 0 of 2 alone)"), 1)
        self.assertEqual(sum(line.startswith(" cpu:0 ") for line in terminal.screen.all()), 1)
        self.check_restored(terminal)


class PlainLines(Case):
    def test_no_escape_bytes_where_nothing_can_be_drawn(self):
        short = [*SMALL, "--live", "--epochs", "2"]
        for arguments, environment, cause in [(short, {"TERM": "dumb"}, "stderr is no terminal that can draw"),
                                              (short + ["--json"], {}, "--json prints plain lines")]:
            terminal = self.start(*arguments, **environment)
            self.assertEqual(terminal.finish(), 0)
            self.assertNotIn(b"\033", terminal.bytes)
            self.assertEqual(self.count(terminal, f"yoke: no live view: {cause}"), 1)
            self.assertEqual(self.count(terminal, TITLE), 0)
        piped = subprocess.run([YOKE, "train", *short, "--log-every", "1"], capture_output=True, check=True,
                               timeout=LIMIT_S)
        self.assertNotIn(b"\033", piped.stdout + piped.stderr)
        self.assertEqual(len(re.findall(rb"\nepoch \d/2 step \d/3 \[", piped.stderr)), 6)

    def test_json_is_one_object(self):
        terminal = self.start(*SMALL, "--live", "--json", "--epochs", "2", stdout=subprocess.PIPE)
        self.assertEqual(terminal.finish(), 0)
        self.assertEqual(json.loads(terminal.process.stdout.read())["steps"], 6)
        terminal.process.stdout.close()

    def test_quiet_contradicts_live(self):
        result = subprocess.run([YOKE, "train", *SMALL, "--live", "--quiet"], capture_output=True, text=True,
                                check=False, timeout=LIMIT_S)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--live draws and --quiet draws nothing", result.stderr)

    def test_a_terminal_that_shrinks_gets_lines_and_one_that_grows_the_view(self):
        terminal = self.start(*LONG, "--live", stdout=subprocess.DEVNULL)
        terminal.frames(2)
        terminal.resize(60, 20)
        terminal.frames(3)
        self.assertEqual(sum(TITLE in line for line in terminal.screen.lines), 1)
        self.assertLess(max(len(line) for line in terminal.screen.lines), 60)
        terminal.resize(30, 20)
        note = "yoke: --live needs 40 columns and 10 rows; with 30 and 20: plain lines"
        joined = lambda screen: "".join(line.ljust(30) for line in screen.all())
        terminal.read_until(lambda screen: note in joined(screen), "note")
        self.assertEqual(sum(TITLE[:29] in line for line in terminal.screen.lines), 0)
        terminal.resize(100, 9)  # still too small: says nothing more
        terminal.read_until(lambda screen: self.count(terminal, "loss ") > 0 and "step " in joined(screen), "line")
        self.assertEqual(terminal.bytes.count(b"--live needs"), 1)
        terminal.resize(100, 40)
        terminal.read_until(lambda _: self.count(terminal, TITLE) == 1, "frame")
        terminal.process.send_signal(signal.SIGINT)
        self.assertEqual(terminal.finish(), 130)
        self.check_restored(terminal)

    def test_a_terminal_that_is_small_from_the_start_gets_one_note(self):
        terminal = self.start(*SMALL, "--live", "--epochs", "60", stdout=subprocess.DEVNULL, columns=38, rows=40)
        self.assertEqual(terminal.finish(), 0)
        self.assertEqual(terminal.bytes.count(b"--live needs 40 columns and 10 rows"), 1)
        self.assertNotIn(b"\033[J", terminal.bytes)
        rows = re.findall(rb"\nepoch (\d+) +[\d.]+ +[\d.]+ % ", terminal.bytes)
        self.assertEqual([int(row) for row in rows], list(range(1, 61)))


class Ends(Case):
    def test_any_signal_leaves_the_terminal_as_it_was(self):
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1,
                       signal.SIGKILL]:
            for delay in [0, 0.27]:
                with self.subTest(signal=number.name, delay=delay):
                    terminal = self.start(*LONG, "--live")
                    terminal.frames(1)
                    time.sleep(delay)
                    while number == signal.SIGKILL and terminal.read():  # no program ends its frame then
                        pass
                    terminal.process.send_signal(number)
                    by_hand = [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT]
                    polite = {one: 128 + one for one in [*by_hand, signal.SIGHUP, signal.SIGUSR1]}
                    self.assertEqual(terminal.finish(), polite.get(number, -number), terminal.screen.all())
                    self.check_restored(terminal)
                    self.assertGreaterEqual(self.count(terminal, TITLE), 1)
                    if number in polite:
                        self.assertEqual(self.count(terminal, "finishing the step"), 1)
                        self.assertEqual(self.count(terminal, "a second signal"), number in by_hand)
                        self.assertEqual(self.count(terminal, "yoke: stopped after step "), 1)
                        self.assertEqual(sum(line.startswith("weights_hash ") for line in terminal.screen.all()), 1)
                    terminal.close()

    def test_signals_at_any_moment_do_not_cut_a_frame(self):
        for attempt in range(8):
            terminal = self.start(*LONG, "--live", columns=200, rows=60, stdout=subprocess.DEVNULL)
            terminal.frames(1)
            end = time.monotonic() + 0.2 + 0.02 * attempt  # while the next frame is on its way
            while time.monotonic() < end:
                terminal.read(0.001)
            terminal.process.send_signal(signal.SIGALRM)
            self.assertEqual(terminal.finish(), -signal.SIGALRM)
            self.check_restored(terminal)
            terminal.close()

    def test_a_handler_does_not_run_on_the_stack_of_a_kernel(self):
        for _ in range(8):  # two of three broke within a hundred signals
            terminal = self.start(*LONG, "--live", stdout=subprocess.DEVNULL)
            terminal.frames(1)
            for _ in range(300):
                if terminal.process.poll() is None:
                    terminal.process.send_signal(signal.SIGCONT)
                terminal.read(0.0005)
            terminal.process.send_signal(signal.SIGTERM)
            self.assertEqual(terminal.finish(), 143, terminal.screen.all())
            terminal.close()

    def test_a_run_that_diverges_says_so_below_the_view(self):
        terminal = self.start(*LONG, "--live", "--lr", "0.05", "--optimizer", "adamw", "--warmup-steps", "4000",
                              "--lr", "1e30", "--clip-norm", "0", stdout=subprocess.DEVNULL)
        self.assertNotIn(terminal.finish(), [0, 130])
        self.assertEqual(self.count(terminal, TITLE), 1)
        lines = terminal.screen.all()
        title = next(i for i, line in enumerate(lines) if TITLE in line)
        self.assertTrue(any(line.startswith("yoke: ") and "finite" in line for line in lines[title:]), lines)
        self.check_restored(terminal)

    def test_a_stopped_run_goes_on_below_what_the_shell_printed(self):
        terminal = self.start(*LONG, "--live", stdout=subprocess.DEVNULL)
        terminal.frames(2)
        terminal.process.send_signal(signal.SIGTSTP)
        os.waitpid(terminal.process.pid, os.WUNTRACED)
        while terminal.read(0.1):
            pass
        self.check_restored(terminal)
        os.write(terminal.theirs, b"$ a command\r\nits output\r\n$ fg\r\n")
        while terminal.read(0.1):
            pass
        terminal.process.send_signal(signal.SIGCONT)
        terminal.frames(3)
        lines = terminal.screen.all()
        at = lines.index("$ a command")
        self.assertEqual(lines[at:at + 3], ["$ a command", "its output", "$ fg"])
        self.assertIn(TITLE, lines[at + 3])
        self.assertEqual(self.count(terminal, TITLE), 2)  # one above, one below
        terminal.process.send_signal(signal.SIGTERM)
        self.assertEqual(terminal.finish(), 143)
        self.check_restored(terminal)

    def test_a_stopped_terminal_does_not_stop_the_run(self):
        metrics = self.folder / "metrics"
        terminal = self.start(*LONG, "--evaluate-every", "1", "--live", "--metrics", str(metrics),
                              stdout=subprocess.DEVNULL)
        terminal.frames(2)
        terminal.screen.may_tear = True  # what a full terminal does not take in time is left out
        termios.tcflow(terminal.theirs, termios.TCOOFF)  # Ctrl-S
        before, end = metrics.stat().st_size, time.monotonic() + LIMIT_S
        while metrics.stat().st_size < before + 65536 and time.monotonic() < end:  # more than a terminal holds
            time.sleep(0.01)
        self.assertGreaterEqual(metrics.stat().st_size, before + 65536)
        termios.tcflow(terminal.theirs, termios.TCOON)
        terminal.frames(2)
        self.assertIn(self.count(terminal, TITLE), [1, 2])  # a torn frame stays above the next one
        terminal.process.send_signal(signal.SIGINT)
        self.assertEqual(terminal.finish(), 130)
        self.check_restored(terminal)


if __name__ == "__main__":
    unittest.main(verbosity=2)
