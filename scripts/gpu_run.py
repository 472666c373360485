# SPDX-License-Identifier: Apache-2.0
"""One run of gpu-check.sh: its clock, the commands that it starts, its checks, and the report, which is
written after every check, so that a run that is killed loses nothing.
"""
import datetime
import json
import math
import os
import pathlib
import re
import select
import signal
import subprocess
import tempfile
import threading
import time

from gpu_summary import summary

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPS = ROOT / "build" / "deps"  # made by pack-deps.sh
PASSED, FAILED, SKIPPED, LATE = "passed", "failed", "skipped", "out of time"
LOOK_S = 0.2  # how often a command is looked at that prints nothing


class Skip(Exception):
    """Nothing to check here; the text says why."""


class Failure(Exception):
    """The part cannot go on; the text says why."""


class Late(Exception):
    """Its time is over; the text says in what."""


class Run:
    def __init__(self, preset, folder, stage=None):
        self.preset, self.folder, self.stage = preset, folder, stage
        self.simulated = preset == "simcuda"
        self.build = ROOT / "build" / preset
        self.yoke = self.build / "yoke"
        self.begin, self.date = time.monotonic(), datetime.datetime.now().astimezone()
        self.until = math.inf
        self.facts, self.checks, self.results = {}, [], {}
        self.parts = {}  # what each does
        self.now = {"stage": None, "part": None}
        self.lock = threading.Lock()
        self.environment = dict(os.environ)
        self.environment["PATH"] += os.pathsep + "/usr/local/cuda/bin"
        if DEPS.is_dir():
            use_packed(self.environment)

    def left(self):
        return -1.0 if "stopped" in self.facts else self.until - time.monotonic()

    def stop(self, number, _frame):
        """For signal.signal: what runs is ended, and the parts that follow find no time."""
        self.facts["stopped"] = signal.Signals(number).name

    def check(self, name, verdict, reason="", **figures):
        with self.lock:
            self.checks.append({"name": name, "verdict": verdict, "reason": reason, **self.now, **figures})
            print(f"  {verdict:11} {name}{': ' + reason if reason else ''}", flush=True)
            self.write()

    def command(self, command, seconds=math.inf, heard=None, given="", folder=ROOT, **environment):
        """(exit code, output) of a command that reads `given`; heard gets each line as it comes. Late: it
        ran out of time, and all that it started has ended."""
        end = time.monotonic() + seconds
        words = [str(word) for word in command]
        if self.left() <= 0:
            raise Late(f"before {pathlib.Path(words[0]).name} began")
        with tempfile.TemporaryFile("w+") as stdin:
            stdin.write(given)
            stdin.seek(0)
            process = subprocess.Popen(words, cwd=folder, stdin=stdin, stdout=subprocess.PIPE, bufsize=0,
                                       stderr=subprocess.STDOUT, start_new_session=True,
                                       env={**self.environment, **environment})
        lines = []
        try:
            for line in lines_of(process, lambda: min(end - time.monotonic(), self.left())):
                lines.append(line)
                if heard:
                    heard(line)
        finally:
            ended = process.poll() is not None
            end_group(process)
            text = "\n".join(lines)
            self.note(f"$ {' '.join(words)}\n{text}\n[{f'exit {process.returncode}' if ended else LATE}]\n")
        if not ended:
            raise Late(lines[-1].strip()[:200] if lines else "")
        return process.returncode, text

    # The report.

    def note(self, text):
        """Adds to the log."""
        self.build.mkdir(parents=True, exist_ok=True)
        with self.lock, open(self.build / "gpu-check.log", "a") as file:
            file.write(text + "\n")

    def count(self):
        return {verdict: sum(check["verdict"] == verdict for check in self.checks)
                for verdict in (PASSED, FAILED, SKIPPED, LATE)}

    def report(self):
        return {"date": self.date.isoformat(timespec="seconds"), "preset": self.preset, "simulated": self.simulated,
                "seconds": round(time.monotonic() - self.begin, 1), **self.facts,
                "count": self.count(), "parts": self.parts, "checks": self.checks, **self.results}

    def path(self):
        """Without a suffix: date, GPUs and stage."""
        names = ["simulated"] if self.simulated else [gpu["name"] for gpu in self.facts.get("gpus", [])]
        gpu = re.sub(r"[^a-z0-9]+", "-", (names[0] if names else "no gpu").lower()).strip("-")
        several = f"{len(names)}x-" if len(names) > 1 else ""
        stage = f"-{self.stage}" if self.stage else ""
        return self.folder / f"{self.date:%Y-%m-%d}-{several}{gpu}{stage}"

    def write(self):
        """Both files whole: a reader and a kill find the old ones or the new ones."""
        report, path = self.report(), self.path()
        self.folder.mkdir(parents=True, exist_ok=True)
        for suffix, text in ((".json", json.dumps(report, indent=1) + "\n"), (".txt", summary(report))):
            new = path.with_suffix(suffix + ".new")
            new.write_text(text)
            new.replace(path.with_suffix(suffix))


def lines_of(process, left):
    """The lines of its output until it ends, or until left() seconds are none."""
    rest, stream, is_open = b"", process.stdout.fileno(), True
    while left() > 0:
        ended = process.poll() is not None  # asked first: what it printed is then in the pipe
        wait = 0 if ended else min(LOOK_S, max(left(), 0))
        if not is_open:
            time.sleep(wait)
        elif select.select([stream], [], [], wait)[0]:
            piece = os.read(stream, 1 << 16)
            is_open = bool(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
            continue
        if ended:
            break
    if rest:
        yield rest.decode(errors="replace")


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    process.stdout.close()


def use_packed(environment):
    """Packages carried in build/deps; only what nothing else finds goes into LD_LIBRARY_PATH."""
    def append(name, *paths):
        environment[name] = os.pathsep.join(filter(None, [environment.get(name), *map(str, paths)]))
    append("PATH", DEPS / "bin")
    append("CMAKE_PREFIX_PATH", DEPS)
    append("PKG_CONFIG_PATH", DEPS / "lib/pkgconfig")
    append("LD_LIBRARY_PATH", DEPS / "lib/needed")
