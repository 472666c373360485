# SPDX-License-Identifier: Apache-2.0
"""What the races against PyTorch share: the driven programs, and figures made of their times."""
import ctypes
import json
import math
import os
import pathlib
import random
import select
import signal
import statistics
import subprocess


PR_SET_PDEATHSIG = 1  # of prctl


class DrivenError(Exception):
    pass


class Late(DrivenError):
    """A program did not answer in time, and was killed."""


def end_with_parent():
    """A race that is killed leaves nobody on the GPU."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Driven:
    """A program that reads a request a line and answers each with a line of JSON."""

    def __init__(self, name, command, environment=None):
        self.name = name
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=environment, start_new_session=True, preexec_fn=end_with_parent)

    def tell(self, *words):
        try:
            self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise DrivenError(f"{words[0]}: {self.name} has ended") from error

    def hear(self, verb, limit_s=None):
        if limit_s is not None and not select.select([self.process.stdout], [], [], max(limit_s, 0))[0]:
            self.kill()
            raise Late(f"{verb}: {self.name} did not answer within {limit_s:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise DrivenError(f"{verb}: {self.name} ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise DrivenError(f"{verb}: {answer['error']}")
        return answer

    def ask(self, *words, limit_s=None):
        self.tell(*words)
        return self.hear(words[0], limit_s)

    def kill(self):
        """With what it has started: compilers of torch.compile, say."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended
        self.process.wait()

    def close(self):
        """Its input ends, and it; one that does not is killed."""
        try:
            self.process.stdin.close()
        except OSError:
            pass  # a request that it did not live to read
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


class Yoke(Driven):
    """`yoke bench --drive`."""

    def __init__(self, program):
        super().__init__("yoke", [program, "bench", "--drive"])

    def open(self, name, setup, *devices):
        return self.ask("open", name, *words_of(setup), *devices)


def words_of(setup):
    """Of a request to open an engine."""
    words = {"model": setup.model, "rows": setup.rows, "precision": setup.precision, "side": setup.side,
             "classes": setup.classes, "learning_rate": setup.rate}
    return [f"{key}={value}" for key, value in words.items() if value]


def interval(values):
    """(median, low, high): the bootstrap 95 % interval of the median; the range of fewer than six."""
    if len(values) < 6:
        return statistics.median(values), min(values), max(values)
    draw = random.Random(20260101)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return statistics.median(values), medians[50], medians[-51]


def largest_difference(got, wanted):
    return max(abs(a - b) / max(abs(b), 1e-6) if math.isfinite(a) and math.isfinite(b) else math.inf
               for a, b in zip(got, wanted))


def judge(low, high, line, most, noise):
    """most: the interval must lie below the line instead of above."""
    beyond = high - line if most else line - low
    if beyond <= 0:
        return "pass"
    return "in noise" if beyond <= noise * line else "MISS"


def others_seconds():
    """Processor time so far of all but this process and those it started; the hypervisor's counts."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, interrupts, soft, steal = map(int, file.readline().split()[1:9])
    parents, ticks = {}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        process = int(path.parent.name)
        parents[process], ticks[process] = int(fields[1]), int(fields[11]) + int(fields[12])
    own = 0
    for process in ticks:
        ancestor = process
        while ancestor not in (0, os.getpid()):
            ancestor = parents.get(ancestor, 0)
        own += ticks[process] if ancestor else 0
    busy = user + nice + system + interrupts + soft + steal
    return (busy - own) / os.sysconf("SC_CLK_TCK")
