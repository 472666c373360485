# SPDX-License-Identifier: Apache-2.0
"""Runs yoke launch for the tests: each run in its own folder, with a time limit, and nothing left behind."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

YOKE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
LIMIT_S = 900
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
PLAIN = {"PATH": os.environ["PATH"]}


def environment(extra=None):
    """As of `env -i`, with what sanitizers and simulated GPUs read, and the folder of the tests' algorithm cache."""
    kept = {name: value for name, value in os.environ.items()
            if name.endswith("SAN_OPTIONS") or name.startswith("SIMCUDA_") or name == "XDG_CACHE_HOME"}
    return {**PLAIN, **kept, **(extra or {})}


def launch(*arguments, env=None, **options):
    options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([YOKE, "launch", *map(str, arguments)], timeout=LIMIT_S, check=False,
                          env=environment(env), **options)


def wait_until(condition, what):
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.01)


def state_of(pid):
    """As ps names it: R, S, D, T ...; Z: it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def is_running(pid):
    return state_of(pid) != "Z"


def end(process):
    process.kill()
    process.wait()
    for stream in [process.stdout, process.stderr]:
        if stream is not None:
            stream.close()


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def sh(self, script, *options, **more):
        """Every rank runs a script of the shell, in the test's folder."""
        return launch(*options, "--", "sh", "-c", script, cwd=self.folder, **more)

    def start(self, script, *options, **more):
        process = subprocess.Popen(
            [YOKE, "launch", *options, "--", "sh", "-c", script], cwd=self.folder, env=environment(),
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more})
        self.addCleanup(end, process)
        return process

    def wait_for(self, *names):
        for name in names:
            wait_until((self.folder / name).exists, name)

    def pid(self, name):
        """What a worker wrote by: echo $$ > NAME.part; mv NAME.part NAME"""
        self.wait_for(name)
        return int((self.folder / name).read_text())

    def variables(self, *options, env=None, ranks=1, first=0):
        """What `env` prints in every rank."""
        result = launch("--log-dir", self.folder / "log", *options, "--", "env", env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        texts = [(self.folder / "log" / f"rank_{first + rank}.out").read_text() for rank in range(ranks)]
        return [dict(line.split("=", 1) for line in text.splitlines()) for text in texts]
