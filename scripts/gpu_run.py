# SPDX-License-Identifier: Apache-2.0
"""One run of gpu-check.sh: its clock, the commands that it starts, its checks, and the report, which is
written after every check, so that a run that is killed loses nothing. The checks are known and written before
the first one begins, so that any report says which of them are missing.
"""
import datetime
import hashlib
import json
import math
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from gpu_summary import summary

ROOT = pathlib.Path(__file__).resolve().parent.parent
LUGGAGE = ROOT / "build" / "deps.tar.xz"  # made by pack-deps.sh
DEPS = ROOT / "build" / "deps"  # unpacked
PASSED, FAILED, SKIPPED, LATE, WAITING = "passed", "failed", "skipped", "out of time", "not begun"
VERDICTS = (PASSED, FAILED, SKIPPED, LATE, WAITING)
FINAL = (PASSED, FAILED, SKIPPED)
UNPACK_S = 15
RESULTS = ("probe", "probe_text", "kernels", "kernels_text", "race", "variants", "advice")  # tables of a report
LOOK_S = 0.2  # how often a command is looked at that prints nothing


class Skip(Exception):
    """The part has nothing to check here; the text says why."""


class Failure(Exception):
    """The part cannot go on, and its checks that are left wait for another run; the text says why."""


class NotBuilt(Exception):
    """The part has nothing to run; its checks wait for another run."""


class Late(Exception):
    """Its time is over; the text says in what."""


class Run:
    def __init__(self, preset, folder, piece=None):
        self.preset, self.folder, self.piece = preset, folder, piece
        self.simulated = preset == "simcuda"
        self.build = ROOT / "build" / preset
        self.yoke = self.build / "yoke"
        self.begin, self.date = time.monotonic(), datetime.datetime.now().astimezone()
        self.until, self.scale = math.inf, 1
        self.facts, self.checks, self.results = {"warnings": []}, [], {}
        self.parts, self.names = {}, {}  # what each does; its checks
        self.now = {"piece": None, "part": None}
        self.files, self.notes = None, []  # of the report, without a suffix; the log until it has a name
        self.held = False  # while it would lose what an earlier report says
        self.lock = threading.RLock()
        self.environment = dict(os.environ)
        self.environment["PATH"] += os.pathsep + "/usr/local/cuda/bin"
        if DEPS.is_dir():
            use_packed(self.environment)

    def left(self):
        return -1.0 if "stopped" in self.facts else self.until - time.monotonic()

    def stop(self, number, _frame):
        """For signal.signal: what runs is ended, and the parts that follow find no time."""
        self.facts["stopped"] = signal.Signals(number).name

    def warn(self, text):
        self.facts["warnings"].append(text)
        print(f"  warning: {text}", flush=True)

    # Checks: each has a name that is the only one in its part.

    def find(self, part, name):
        return next((check for check in self.checks if (check["part"], check["name"]) == (part, name)), None)

    def plan(self, piece, part, names):
        """The checks that a part will make."""
        for name in names:
            self.checks.append({"name": name, "verdict": WAITING, "reason": "", "piece": piece, "part": part})

    def check(self, name, verdict, reason="", **figures):
        with self.lock:
            check = self.find(self.now["part"], name) or self.insert(name)
            check.update(verdict=verdict, reason=reason, **self.now, **figures)
            print(f"  {verdict:11} {name}{': ' + reason if reason else ''}", flush=True)
            self.write()

    def insert(self, name):
        """A check that was not planned: behind those of its part, or before those of its piece."""
        piece = [i for i, check in enumerate(self.checks) if check["piece"] == self.now["piece"]]
        part = [i + 1 for i in piece if self.checks[i]["part"] == self.now["part"]]
        check = {"name": name, **self.now}
        self.checks.insert((part[-1:] or piece[:1] or [len(self.checks)])[0], check)
        return check

    def take(self, report, file, wanted):
        """Takes over from an earlier report the checks that are not wanted again, and what was measured."""
        earlier = {(check["part"], check["name"]): check for check in report["checks"]}
        for i, check in enumerate(self.checks):
            found = earlier.get((check["part"], check["name"]))
            if found and check["part"] in self.names and not wanted(found):
                self.checks[i] = {"from": file, **found}
        self.results.update({name: report[name] for name in RESULTS if name in report})

    def missing(self, part):
        """The names of a part's checks that this run has to make."""
        return [check["name"] for check in self.checks
                if check["part"] == part and check["verdict"] not in FINAL and "from" not in check]

    def waiting(self, part, names):
        """Those of the names that have no verdict yet."""
        return [name for name in names if self.find(part, name)["verdict"] == WAITING]

    # Commands.

    def has(self, program):
        return shutil.which(program, path=self.environment["PATH"]) is not None

    def command(self, command, seconds=math.inf, heard=None, given="", folder=ROOT, **environment):
        """(exit code, output) of a command that reads `given`; heard gets each line as it comes. Late: it
        ran out of time, and all that it started has ended."""
        end = time.monotonic() + seconds
        words = [str(word) for word in command]
        guard = ["setpriv", "--pdeathsig", "KILL"] if self.has("setpriv") else []  # nothing runs on without this run
        if self.left() <= 0:
            raise Late(f"before {pathlib.Path(words[0]).name} began")
        with tempfile.TemporaryFile("w+") as stdin:
            stdin.write(given)
            stdin.seek(0)
            process = subprocess.Popen(guard + words, cwd=folder, stdin=stdin, stdout=subprocess.PIPE, bufsize=0,
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
        """Adds to the log, once its name is known."""
        with self.lock:
            self.notes.append(text + "\n")
            if self.files:
                self.folder.mkdir(parents=True, exist_ok=True)
                with open(self.files.with_suffix(".log"), "a") as file:
                    file.write("".join(self.notes))
                self.notes.clear()

    def count(self):
        return {verdict: sum(check["verdict"] == verdict for check in self.checks) for verdict in VERDICTS}

    def report(self):
        return {"date": self.date.isoformat(timespec="seconds"), "preset": self.preset, "simulated": self.simulated,
                "seconds": round(time.monotonic() - self.begin, 1), **self.facts,
                "count": self.count(), "parts": self.parts, "checks": self.checks, **self.results}

    def name_files(self, earlier=None):
        """After date, GPUs and piece, and with a number where another report has that name; a report in the same
        folder that this one completes is replaced."""
        names = ["simulated"] if self.simulated else [gpu["name"] for gpu in self.facts["gpus"]]
        gpu = re.sub(r"[^a-z0-9]+", "-", (names[0] if names else "no gpu").lower()).strip("-")
        several = f"{len(names)}x-" if len(names) > 1 else ""
        piece = f"-{self.piece}" if self.piece else ""
        first, number = self.folder / f"{self.date:%Y-%m-%d}-{several}{gpu}{piece}", 1
        self.files = first
        while self.files.with_suffix(".json").exists():
            number += 1
            self.files = first.with_name(f"{first.name}-{number}")
        if earlier and earlier.resolve().parent == self.folder and earlier.suffix == ".json":
            self.files = earlier.resolve().with_suffix("")

    def write(self):
        """Both files whole: a reader and a kill find the old ones or the new ones."""
        if self.held or not self.files:
            return
        with self.lock:
            report, path = self.report(), self.files
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


def packages(run, _wanted=None):
    """build/deps from the archive beside it, if that is not what lies there; whole or not at all"""
    digest, mark = hashlib.sha256(LUGGAGE.read_bytes()).hexdigest(), DEPS / "archive"
    if mark.exists() and mark.read_text() == digest:
        return
    new = DEPS.with_name("deps.new")
    shutil.rmtree(new, ignore_errors=True)
    code, text = run.command([sys.executable, "-m", "tarfile", "-e", LUGGAGE, new], run.scale * UNPACK_S)
    if code != 0:
        raise Failure(f"{LUGGAGE} cannot be unpacked: {text.splitlines()[-1] if text else f'exit {code}'}")
    (new / "archive").write_text(digest)
    shutil.rmtree(DEPS, ignore_errors=True)
    new.rename(DEPS)
    use_packed(run.environment)


def use_packed(environment):
    """Packages carried in build/deps; only what nothing else finds goes into LD_LIBRARY_PATH."""
    def append(name, path):
        known = list(filter(None, environment.get(name, "").split(os.pathsep)))
        environment[name] = os.pathsep.join(known if str(path) in known else [*known, str(path)])
    append("PATH", DEPS / "bin")
    append("CMAKE_PREFIX_PATH", DEPS)
    append("PKG_CONFIG_PATH", DEPS / "lib/pkgconfig")
    append("LD_LIBRARY_PATH", DEPS / "lib/needed")
