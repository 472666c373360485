#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""However a run ends, it saves: every signal at random moments after step 1, and the death of a rank at random moments,
start-up included. Weights are compared bit for bit with those of a run of as many steps.

usage: test_ends.py YOKE_BINARY [--full] [--seed N] [--only WORD]
"""
import argparse
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

LIMIT_S = 900
MLP = ["--model", "mlp:width=64", "--dataset", "synthetic:1x8x8,rows=256", "--batch", "64"]
NORMS = ["--model", "resnet20", "--dataset", "synthetic:3x8x8,rows=32", "--batch", "8"]  # running statistics
ALIKE = ["--algorithm", "direct", "--threads", "1", "--seed", "7"]
SIGNALS = ["HUP", "USR1", "PIPE", "XFSZ", "QUIT", "TERM", "INT"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Failure(Exception):
    pass


def tensors(path):
    """{name: bytes} of a whole safetensors file with finite values."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    table = json.loads(content[8:8 + size])
    table.pop("__metadata__", None)
    data, found = content[8 + size:], {}
    if max(row["data_offsets"][1] for row in table.values()) != len(data):
        raise Failure(f"{path} is not whole")
    for name, row in table.items():
        found[name] = data[slice(*row["data_offsets"])]
        floats = found[name] if row["dtype"] == "F32" else b""
        if not all(map(math.isfinite, struct.unpack(f"<{len(floats) // 4}f", floats))):
            raise Failure(f"{path}: {name} is not finite")
    return found


class Mode:
    """A way to start a run: a process, or ranks under a launcher."""

    def __init__(self, yoke, name, ranks, *more, mpiexec=None):
        self.yoke, self.name, self.ranks, self.more, self.mpiexec = yoke, name, ranks, more, mpiexec

    def command(self, *arguments):
        verb = ["train", *ALIKE, *self.more, *map(str, arguments)]
        if self.ranks == 0:
            return [self.yoke, *verb]
        if self.mpiexec:
            return [self.mpiexec, "-n", str(self.ranks), self.yoke, *verb, "--mode", "ddp", "--transport", "mpi"]
        return [self.yoke, "launch", "--nproc-per-node", str(self.ranks), "--", *verb, "--mode", "ddp",
                "--transport", "shared-memory"]


class Run:
    """A run in a folder of its own, which must hold nothing but its files at the end."""

    def __init__(self, mode, *arguments, ignored=(), saves=True):
        self.mode = mode
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="yoke-ends-"))
        self.save, self.metrics, self.log = (self.folder / name for name in ["weights", "metrics", "log"])
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        environment = {**os.environ, "TMPDIR": str(self.temporary), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        self.reader, writer = os.pipe()
        files = ["--save", self.save, "--metrics", self.metrics] if saves else []
        ignore = [signal.signal(number, signal.SIG_IGN) for number in ignored]  # as nohup does
        self.process = subprocess.Popen(mode.command(*arguments, *files), stdin=subprocess.DEVNULL, stdout=writer,
                                        stderr=writer, env=environment, cwd=self.folder, restore_signals=True)
        for number, before in zip(ignored, ignore):
            signal.signal(number, before)
        os.close(writer)
        os.set_blocking(self.reader, False)
        self.text = b""

    def read(self):
        """What the run has printed so far; an empty pipe is no end."""
        while self.reader >= 0:
            try:
                part = os.read(self.reader, 65536)
            except BlockingIOError:
                return
            if not part:
                return
            self.text += part

    def close_reader(self):
        self.read()
        os.close(self.reader)
        self.reader = -1

    def steps(self):
        """Whole lines of the metrics that are steps."""
        if not self.metrics.exists():
            return 0
        return sum('"kind":"step"' in line.replace(" ", "") or '"step_ms"' in line
                   for line in self.metrics.read_text().split("\n")[:-1])

    def wait_until(self, condition, what):
        end = time.monotonic() + LIMIT_S
        while not condition():
            self.read()
            if (self.process.poll() is not None or time.monotonic() > end) and not condition():
                raise Failure(f"{what} did not come: {self.said()}")
            time.sleep(0.002)

    def pause(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            self.read()
            time.sleep(min(0.02, max(end - time.monotonic(), 0)))

    def rank(self, number):
        """The pid of a rank, or None before it exists."""
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"yoke-ends-{self.folder.name[10:]}" in os.readlink(entry / "cwd"):
                    variables = (entry / "environ").read_bytes().split(b"\0")
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    wanted = {f"RANK={number}".encode(), f"OMPI_COMM_WORLD_RANK={number}".encode()}
                    if wanted & set(variables) and words[1:2] == [b"train"]:
                        return int(entry.name)
            except OSError:
                pass
        return None

    def finish(self):
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            self.read()
            if time.monotonic() > end:
                raise Failure(f"does not end: {self.said()}")
            time.sleep(0.002)
        self.read()
        return self.process.returncode

    def said(self):
        return self.text.decode(errors="replace")[-2000:]

    def leftovers(self):
        """OpenMPI's own folders are its own."""
        kept = {"weights", "metrics", "tmp", "checkpoints"}
        found = [entry.name for entry in self.folder.iterdir() if entry.name not in kept]
        return found + [entry.name for entry in self.temporary.iterdir() if "yoke" in entry.name]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.reader >= 0:
            os.close(self.reader)
        shutil.rmtree(self.folder, ignore_errors=True)


# Signals.

def send(run, name):
    """To the launcher, which passes on what users and schedulers send; to rank 0 what the kernel would send it."""
    number = getattr(signal, "SIG" + name)
    if name == "PIPE" and not run.mode.mpiexec:  # Open MPI's mpirun crashes without a reader, and ends the ranks
        run.close_reader()
    elif run.mode.ranks > 0 and (name == "XFSZ" or run.mode.mpiexec):
        os.kill(run.rank(0), number)
    else:
        run.process.send_signal(number)


def check_signal(mode, name, dice):
    """A rank that stops because another one was signalled exits with 130, and a launcher with its first rank's code."""
    number = getattr(signal, "SIG" + name)
    evaluates = ["--epochs", "1000000", "--evaluate-every", "2", "--log-every", "1"]
    run = Run(mode, *MLP, *evaluates)
    try:
        run.wait_until(lambda: run.steps() > 0, "the first step")
        run.pause(dice.uniform(0, 0.5))
        send(run, name)
        code = run.finish()
        one_rank = mode.ranks > 0 and (name in ["PIPE", "XFSZ"] or mode.mpiexec)
        if code not in ([128 + number, 130] if one_rank else [128 + number]):
            raise Failure(f"code {code}: {run.said()}")
        if not run.save.exists():
            raise Failure(f"saved nothing: {run.said()}")
        tensors(run.save)
        if run.leftovers():
            raise Failure(f"left {run.leftovers()}")
    finally:
        run.close()


def check_second(mode, first, *others):
    """Signals that follow the first one do not end a save."""
    run = Run(mode, *MLP, "--epochs", "1000000", "--evaluate-every", "-1")
    try:
        run.wait_until(lambda: run.steps() > 0, "the first step")
        target = run.rank(0) if mode.ranks else run.process.pid
        os.kill(target, getattr(signal, "SIG" + first))
        # Of two signals at once the one with the lower number is delivered first.
        run.wait_until(lambda: b"finishing" in run.text, "the first signal")
        for name in others:
            if pathlib.Path(f"/proc/{target}").exists():
                os.kill(target, getattr(signal, "SIG" + name))
        code = run.finish()
        if code not in [128 + getattr(signal, "SIG" + first), 130] or not run.save.exists():
            raise Failure(f"code {code}: {run.said()}")
        tensors(run.save)
    finally:
        run.close()


def check_until_exit(mode):
    """A terminal that closes after the save changes no exit code, to the last moment of the process."""
    run = Run(mode, *MLP, "--epochs", "1000000", "--evaluate-every", "-1")
    try:
        run.wait_until(lambda: run.steps() > 0, "the first step")
        run.process.send_signal(signal.SIGUSR1)
        run.wait_until(run.save.exists, "the save")
        while run.process.poll() is None:
            run.process.send_signal(signal.SIGHUP)
            run.read()
        if run.finish() != 128 + signal.SIGUSR1:
            raise Failure(f"code {run.process.returncode}: {run.said()}")
    finally:
        run.close()


def check_ignored(mode):
    """What nohup ignores stays ignored."""
    run = Run(mode, *MLP, "--epochs", "1000000", "--evaluate-every", "-1", ignored=[signal.SIGHUP])
    try:
        run.wait_until(lambda: run.steps() > 0, "the first step")
        run.process.send_signal(signal.SIGHUP)
        before = run.steps()
        run.wait_until(lambda: run.steps() > before + 20, "a step after SIGHUP")
        run.process.send_signal(signal.SIGTERM)
        if run.finish() != 143 or not run.save.exists():
            raise Failure(run.said())
    finally:
        run.close()


def check_range_test(mode, name):
    """A range test saves nothing, and ends as a run does."""
    run = Run(mode, *MLP, "--lr-find", "100000", "--log-every", "1", saves=False)
    try:
        run.wait_until(lambda: b"step" in run.text, "the first step")
        run.process.send_signal(getattr(signal, "SIG" + name))
        code = run.finish()
        if code != 128 + getattr(signal, "SIG" + name) or b"Traceback" in run.text:
            raise Failure(f"code {code}: {run.said()}")
    finally:
        run.close()


# Deaths.

class Reference:
    """The weights after as many steps, by runs that end well."""

    def __init__(self, mode, arguments):
        self.mode, self.arguments, self.known = mode, arguments, {}

    def after(self, steps):
        if steps not in self.known:
            run = Run(self.mode, *self.arguments, "--steps", steps, "--evaluate-every", "-1")
            try:
                if run.finish() != 0:
                    raise Failure(f"the reference of {steps} steps: {run.said()}")
                self.known[steps] = tensors(run.save)
            finally:
                run.close()
        return self.known[steps]


def check_death(reference, dice, longest_s, *until):
    """Kills a rank that is not rank 0. Returns the step that was saved; 0: none had ended."""
    mode = reference.mode
    run = Run(mode, *reference.arguments, *(until or ["--epochs", "1000000", "--evaluate-every", "-1"]))
    try:
        victim = dice.randrange(1, mode.ranks)
        run.wait_until(lambda: run.rank(victim) is not None, f"rank {victim}")
        run.pause(dice.uniform(0, longest_s))
        pid = run.rank(victim)
        if pid is not None:  # it may have ended
            os.kill(pid, signal.SIGKILL)
        run.finish()
        ended = run.steps()
        # The launcher may notice the death before the ranks do: then it stops them.
        named = re.search(r"(?:has the weights|stopped) after step (\d+)", run.text.decode(errors="replace"))
        if not run.save.exists() and ended == 0:
            return 0
        if not run.save.exists() or (named is None and not until):
            raise Failure(f"{ended} steps had ended: {run.said()}")
        step = int(named[1]) if named else ended
        if step < ended or tensors(run.save) != reference.after(step):
            raise Failure(f"not the weights after step {step}; {ended} had ended: {run.said()}")
        if run.leftovers():
            raise Failure(f"left {run.leftovers()}")
        return step
    finally:
        run.close()


# The whole.

class Account:
    def __init__(self):
        self.rows, self.failures = [], []

    def count(self, what, attempts, attempt):
        good = 0
        for number in range(attempts):
            try:
                attempt()
                good += 1
            except Failure as failure:
                self.failures.append(f"{what}, attempt {number + 1}: {failure}")
                print(self.failures[-1], file=sys.stderr, flush=True)
        self.rows.append((what, good, attempts))
        print(f"{what:44} {good} of {attempts}", flush=True)

    def end(self):
        good, attempts = (sum(row[i] for row in self.rows) for i in [1, 2])
        print(f"{good} of {attempts} ends saved what they had to")
        return 0 if good == attempts else 1


def mpi_mode(yoke, name, *more):
    """None where MPI cannot run."""
    mpiexec = os.environ.get("YOKE_TEST_MPIEXEC") or shutil.which("mpirun")
    if not mpiexec:
        print("mpi: skipped: no mpirun")
        return None
    mode = Mode(yoke, name, 2, *more, mpiexec=mpiexec)
    run = Run(mode, *MLP, "--steps", 1)
    try:
        if run.finish() == 0:
            return mode
        print(f"mpi: skipped: {run.said().splitlines()[:1]}")
        return None
    finally:
        run.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("yoke", type=pathlib.Path)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", default="", help="rows whose name has this word")
    given = parser.parse_args()
    yoke = str(given.yoke.resolve())
    dice, account = random.Random(given.seed), Account()
    print(f"seed {given.seed}")
    single = Mode(yoke, "one process", 0, "--devices", "2xcpu")
    shared = Mode(yoke, "launch", 2, "--devices", "cpu")
    sharded = Mode(yoke, "launch, sharded", 3, "--devices", "cpu", "--schedule", "sharded")
    three = Mode(yoke, "launch, 3 ranks", 3, "--devices", "cpu")
    mpi = mpi_mode(yoke, "mpirun", "--devices", "cpu") if given.full or given.only else None
    signals = [(mode, 50 if given.full else 1) for mode in [single, shared, mpi] if mode]
    for mode, attempts in signals:
        for name in SIGNALS:
            what = f"SIG{name}, {mode.name}"
            if given.only in what:
                account.count(what, attempts, lambda mode=mode, name=name: check_signal(mode, name, dice))
    few = 10 if given.full else 1
    for what, attempt in [
            ("a second SIGUSR1, SIGHUP and SIGPIPE", lambda: check_second(single, "USR1", "USR1", "HUP", "PIPE")),
            ("a second SIGTERM of a rank", lambda: check_second(shared, "TERM", "TERM", "INT")),
            ("SIGHUP until the process is gone", lambda: check_until_exit(single)),
            ("SIGHUP that nohup ignores", lambda: check_ignored(single)),
            ("SIGHUP, range test", lambda: check_range_test(single, "HUP"))]:
        if given.only in what:
            account.count(what, few, attempt)
    deaths = [(three, MLP, 40, 2), (sharded, MLP, 40, 2), (shared, NORMS, 10, 0), (sharded, NORMS, 10, 0),
              (mpi, MLP, 20, 0)]
    for mode, arguments, many, few in deaths:
        what = f"SIGKILL of a rank, {mode.name if mode else 'mpirun'}, {arguments[1].split(':')[0]}"
        attempts = many if given.full else few
        if mode is None or given.only not in what or attempts == 0:
            continue
        reference = Reference(mode, arguments)
        account.count(what, attempts, lambda reference=reference: check_death(reference, dice, 1.5))
    short = ["--steps", 40, "--checkpoint-dir", "checkpoints", "--checkpoint-every", "5steps"]
    what = "SIGKILL of a rank, also after the last step"
    if given.only in what:
        reference = Reference(three, MLP)
        account.count(what, 40 if given.full else 2, lambda: check_death(reference, dice, 0.6, *short))
    return account.end()


if __name__ == "__main__":
    sys.exit(main())
