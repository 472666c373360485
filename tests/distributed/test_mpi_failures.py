#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks under mpirun disagree, fail to come or die: all end in time and say why.

usage: test_mpi_failures.py MPIEXEC PROGRAM
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

LIMIT_S = 900


class Failure(Exception):
    pass


def play(scene, ranks):
    """{rank: what it said} and mpirun's own code."""
    mpiexec, program = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="yoke-mpi-") as folder:  # a killed rank 0 leaves its store
        result = subprocess.run([mpiexec, "-n", str(ranks), program, scene, f"file://{folder}/store"],
                                capture_output=True, text=True, timeout=LIMIT_S, check=False,
                                stdin=subprocess.DEVNULL)
    said = dict(re.findall(r"^rank (\d+): (.*)$", result.stdout, re.MULTILINE))
    return {int(rank): text for rank, text in said.items()}, result.returncode


def expect(scene, said, ranks, status, *parts):
    for rank in ranks:
        text = said.get(rank, "nothing")
        if not text.startswith(f"{status}: ") or not all(part in text for part in parts):
            raise Failure(f"{scene}: rank {rank} said: {text}")


def check_differences():
    rows = (("other_count", "rank 0 called all_reduce of 100 float32, sum", "rank 1 called all_reduce of 99 "),
            ("other_call", "rank 0 called all_reduce of 100 float32, sum", "rank 1 called barrier"),
            ("other_start", "rank 0 called all_reduce_async of 200 float32", "rank 1 called all_reduce_async of 150 float32"))
    for scene, *parts in rows:
        said, code = play(scene, 3)
        expect(scene, said, range(3), "YOKE_ERROR_ARGUMENT", *parts)
        if code != 0 and scene != "other_start":
            raise Failure(f"{scene}: the ranks did not part in order: {code}")


def check_deadlines():
    for scene in ("late", "late_start"):
        said, _ = play(scene, 3)
        expect(scene, said, (0, 2), "YOKE_ERROR_TIMEOUT", "500 ms for rank 1 (", "is running)")
        if "rank 2 (" in said[0]:
            raise Failure(f"{scene}: {said[0]}")
    said, _ = play("patient", 3)
    expect("patient", said, range(3), "YOKE_OK")


def play_stop(scene):
    """Ranks 0 and 2 end: then nobody is left but rank 1, which is stopped, and mpirun. {rank: what it said}: to a file,
    since mpirun drops what ranks write at their end."""
    mpiexec, program = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="yoke-mpi-") as folder, tempfile.NamedTemporaryFile("r") as output:
        rank = ["sh", "-c", 'exec "$0" "$1" "$2" >> "$3"', program, scene, f"file://{folder}/store", output.name]
        job = subprocess.Popen([mpiexec, "-n", "3", *rank], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        begin = time.monotonic()
        states = ranks = []
        while states != ["T"] and job.poll() is None and time.monotonic() - begin < LIMIT_S:
            time.sleep(0.1)
            ranks = ranks_of(folder)
            states = [state for _, state in ranks]
        job.kill()
        job.wait()
        for pid, _ in ranks_of(folder):
            os.kill(pid, signal.SIGKILL)
        said = dict(re.findall(r"^rank (\d+): (.*)$", output.read(), re.MULTILINE))
    if states not in (["T"], []):
        raise Failure(f"{scene}: after {LIMIT_S} s ranks are left: {ranks}")
    return {int(rank): text for rank, text in said.items()}


def check_stops():
    play_stop("stopped_at_the_end")
    said = play_stop("stopped_in_start")  # the first to end has mpirun end the others, who may say nothing then
    expect("stopped_in_start", said, said or (0, 2), "YOKE_ERROR_TIMEOUT", "joining: rank ", " ms for rank 1 (", "is stopped)")


def ranks_of(folder):
    """(pid, state) of each program that names the folder, but mpirun."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", encoding="utf-8") as line:
                words = line.read()
            with open(f"/proc/{entry}/stat", encoding="utf-8") as line:
                state = line.read().rsplit(")", 1)[1].split()[0]
        except (OSError, UnicodeDecodeError):
            continue
        if words.startswith(sys.argv[2]) and folder in words and state != "Z":
            found.append((int(entry), state))
    return found


def check_other_ranks():
    said, _ = play("wrong_rank", 2)
    expect("wrong_rank", said, range(2), "YOKE_ERROR_ARGUMENT", "as MPI sees it")
    said, _ = play("alone", 2)
    expect("alone", said, (0,), "YOKE_ERROR_ARGUMENT", "rank 0 of 1 is rank ")


def is_left(program):
    """Whether a process of the program is there that is not about to end."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as line:
                if entry.isdigit() and line.read().startswith(program.encode() + b"\0"):
                    return True
        except OSError:
            continue
    return False


def check_death():
    """mpirun itself ends the ranks of one that was killed."""
    said, code = play("killed", 3)
    if code == 0 or any("TIMEOUT" in text for text in said.values()):
        raise Failure(f"killed: mpirun answered {code}; ranks said {said}")
    for _ in range(600):
        if not is_left(sys.argv[2]):
            return
        time.sleep(0.1)
    raise Failure("killed: a rank is left")


def main():
    if subprocess.run([sys.argv[2]], check=False).returncode == 77:
        print("skipped: this build has no MPI")
        return 77
    try:
        for check in (check_differences, check_deadlines, check_stops, check_other_ranks, check_death):
            check()
    except Failure as failure:
        print(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
