#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nobody waits for ever: one rank of three is stopped (SIGSTOP) at moments from its first instruction to the end of
another rank, and programs that do not end get SIGTERM through the launcher. Every run ends within time-out + grace, and
says who stopped.

usage: test_stops.py YOKE [--full] [--gpus] [--mpirun PROGRAM] [--only TRANSPORT|ends]

--full: 12 moments of each rank over each transport, and 50 stubborn or stopped programs; else a few of each, side by
side. Over nccl with --gpus alone, on a machine with three GPUs: simulated ones join the threads of one process. Over
MPI the end of the other ranks counts: mpirun of Open MPI 4 waits for a stopped process that has not reached MPI_Init,
whatever else ends. A whole undisturbed run says how fast this machine is now: a run may take as long again beyond its
deadlines, in the short form LOADED_S more.
"""
import argparse
import concurrent.futures
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

RANKS, MOMENTS, ENDINGS = 3, 12, 50
TIMEOUT_S, GRACE_S = 3, 1  # at least; see check_stops
SLACK_S, LOADED_S = 1, 900  # side by side the runs judge no clock
HANG_S = 900
TRIES = 10  # of a stop that comes when the run is over
QUIET_S = 2  # without another rank: all have ended
AT_THE_END = -1
TRAIN = ["train", "--mode", "ddp", "--model", "resnet20", "--dataset", "synthetic:3x32x32,classes=10,rows=512",
         "--devices", "cpu", "--threads", "1", "--no-cache", "--batch", "24", "--steps", "6", "--evaluate-every",
         "0", "--timeout", "TIMEOUT"]
# What says which rank is missing, not which one says it.
BLAMES = (r"(?:for|without) (?:.*, )?rank {0}\b", r"\brank {0} \([^)]*\) is stopped", r"ranks? (?:\d+, )*{0}\b.*; were",
          r"\brank {0} did not", r"store of rank {0}\b")


class Transport:
    def __init__(self, name, command, environment=None, own_launcher=True):
        self.name = name
        self.command = command
        self.environment = {**os.environ, **(environment or {})}
        self.own_launcher = own_launcher
        self.timeout_s = HANG_S

    def start(self, errors):
        """errors: the path of a file. Ranks of mpirun write it themselves: it drops what ranks write at their end."""
        command = [str(self.timeout_s) if word == "TIMEOUT" else word for word in self.command]
        with open(errors, "a", encoding="utf-8") as stream:
            return subprocess.Popen(command, env={**self.environment, "ERRORS": errors}, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=stream, start_new_session=True)


def transports(arguments):
    """Those that this machine has; says which are skipped."""
    launch = ["launch", "--nproc-per-node", str(RANKS), "--grace", str(GRACE_S), "--", *TRAIN]
    found = [Transport("shared-memory", [arguments.yoke, *launch, "--transport", "shared-memory"])]
    module = pathlib.Path(arguments.yoke).with_name("libyoke_mpi.so")
    if arguments.mpirun and module.exists():
        rank = ["sh", "-c", 'exec "$0" "$@" 2>> "$ERRORS"', arguments.yoke, *TRAIN, "--transport", "mpi"]
        found.append(Transport("mpi", [arguments.mpirun, "-n", str(RANKS), *rank], {
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "ASAN_OPTIONS": "detect_leaks=0"}, own_launcher=False))
    else:
        print("skipped: mpi: there is no mpirun, or no libyoke_mpi.so beside the tool")
    if arguments.gpus:
        gpus = ["auto" if word == "cpu" else word for word in launch]
        found.append(Transport("nccl", [arguments.yoke, *gpus, "--transport", "nccl"]))
    else:
        print("skipped: nccl: needs --gpus and a GPU for each rank")
    return found


# Processes.

def descendants(pid):
    try:
        listed = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [one for child in listed for one in [int(child), *descendants(child)]]


def rank_of(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for word in words:
        name, _, value = word.partition(b"=")
        if name in (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"):
            return int(value)
    return None


def find_ranks(process, wanted):
    """{rank: pid}, as soon as there are these; None: the run has ended."""
    while process.poll() is None:
        found = {rank_of(pid): pid for pid in descendants(process.pid)}
        if all(rank in found for rank in wanted):
            return found
    return None


def state_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def end_group(process):
    for pid in [*descendants(process.pid), process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def wait_for_end(process, began):
    """Seconds since `began`; None: it hangs, and is ended."""
    try:
        process.wait(timeout=HANG_S)
        return time.monotonic() - began
    except subprocess.TimeoutExpired:
        end_group(process)
        return None


def wait_for_others(process, rank, began):
    """As above, for all ranks but one; ends that one and the launcher."""
    seen = began
    while time.monotonic() - seen < QUIET_S and time.monotonic() - began < HANG_S:
        if any(rank_of(pid) not in (None, rank) and state_of(pid) != "Z" for pid in descendants(process.pid)):
            seen = time.monotonic()
        time.sleep(0.01)
    end_group(process)
    return seen - began if seen - began < HANG_S - QUIET_S else None


# Stops.

def blamed(text, rank):
    """Lines of ranks, without who wrote them."""
    lines = [re.sub(r"^(\s*\| )?(\[rank \d+\] )?", "", line) for line in text.splitlines()]
    return any(re.search(blame.format(rank), line) for blame in BLAMES for line in lines)


def run_whole(transport):
    with tempfile.NamedTemporaryFile("r", prefix="yoke-stops-") as errors:
        process = transport.start(errors.name)
        took = wait_for_end(process, time.monotonic())
        if took is None or process.returncode != 0:
            raise SystemExit(f"{transport.name}: the undisturbed run failed: {errors.read()}")
        return took


def stop_rank(process, rank, after_s):
    """Whether it came in time. after_s: AT_THE_END: when another rank has ended."""
    wanted = range(RANKS) if after_s == AT_THE_END else [rank]
    pids = find_ranks(process, wanted)
    if pids is None:
        return False
    if after_s == AT_THE_END:
        others = [pids[other] for other in wanted if other != rank]
        while all(state_of(other) != "Z" for other in others):
            pass
    else:
        time.sleep(after_s)
    try:
        os.kill(pids[rank], signal.SIGSTOP)
    except ProcessLookupError:
        return False
    return state_of(pids[rank]) != "Z"


def stop_one(transport, rank, after_s):
    """What one stop came to: None where the run was over before; else (seconds until the end, text, complaint)."""
    with tempfile.NamedTemporaryFile("r", prefix="yoke-stops-") as errors:
        process = transport.start(errors.name)
        stopped = stop_rank(process, rank, after_s)
        began = time.monotonic()
        whole = transport.own_launcher or not stopped
        took = wait_for_end(process, began) if whole else wait_for_others(process, rank, began)
        text = errors.read()
    over = not whole and "yoke: " not in text  # the others had no more need of the rank
    if not stopped or over:
        return None
    if took is None:
        return HANG_S, text, "hangs"
    if whole and process.returncode == 0:
        return took, text, "exits with 0"
    return took, text, None if blamed(text, rank) else "does not say who stopped"


def stop_in_time(transport, rank, moment, whole):
    """(seconds after the start, what stop_one returns)."""
    for _ in range(TRIES):
        after_s = AT_THE_END if moment == MOMENTS - 1 else whole * moment / (MOMENTS - 1)
        result = stop_one(transport, rank, after_s)
        if result is not None:
            break
        whole *= 0.8  # the machine has become faster
    return after_s, result


def check_stops(transport, places, side_by_side, slack_s):
    """places: (moment, rank). Prints and returns (ended in time, all, seconds beyond the deadlines). A rank that runs is
    never late: the deadline is as long as the whole run is on a machine that is this busy."""
    whole = run_whole(transport)
    transport.timeout_s = max(TIMEOUT_S, math.ceil(whole))
    good, excess = 0, []
    with concurrent.futures.ThreadPoolExecutor(side_by_side) as pool:
        jobs = [pool.submit(stop_in_time, transport, rank, moment, whole) for moment, rank in places]
    for (moment, rank), job in zip(places, jobs):
        after_s, result = job.result()
        if result is None:
            continue
        took, text, complaint = result
        excess.append(took - transport.timeout_s - (GRACE_S if transport.own_launcher else 0))
        if complaint is None and excess[-1] > slack_s + whole:
            complaint = f"ends {excess[-1]:.1f} s after its deadlines"
        good += complaint is None
        if complaint is not None:
            print(f"{transport.name}: moment {moment}, rank {rank}, after {after_s:.2f} s: {complaint}\n{text}")
    late = sum(one > SLACK_S for one in excess)
    print(f"{transport.name}: {good} of {len(excess)} stops ended the run in time and named the rank; "
          f"{len(places) - len(excess)} came too late; a whole run took {whole:.1f} s; beyond the deadlines: "
          f"p50 {statistics.median(excess):.2f} s, max {max(excess):.2f} s, {late} above {SLACK_S} s")
    return good, len(excess), excess


# Ends.

def end_one(yoke, program):
    """(seconds, what is wrong)."""
    command = [yoke, "launch", "--nproc-per-node", str(RANKS), "--grace", str(GRACE_S), "--", "sh", "-c", program]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
    for _ in range(RANKS):
        process.stderr.readline()
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    took = wait_for_end(process, began)
    text = process.stderr.read()
    process.stderr.close()
    as_promised = process.returncode == 143 and "sending SIGKILL" in text
    return HANG_S if took is None else took, None if as_promised else f"code {process.returncode}: {text}"


def check_ends(yoke, count, side_by_side, slack_s):
    """One SIGTERM to the launcher of programs that do not end."""
    programs = ["trap '' TERM; echo ready >&2; while :; do sleep 0.05; done",
                "trap '' TERM; echo ready >&2; kill -STOP $$"]
    with concurrent.futures.ThreadPoolExecutor(side_by_side) as pool:
        jobs = [pool.submit(end_one, yoke, programs[index % 2]) for index in range(count)]
    excess = [job.result()[0] - GRACE_S for job in jobs]
    good = 0
    for job, beyond in zip(jobs, excess):
        complaint = job.result()[1]
        good += complaint is None and beyond < slack_s
        if complaint is not None or beyond >= slack_s:
            print(f"SIGTERM: {beyond:.2f} s beyond the grace; {complaint}")
    print(f"SIGTERM: {good} of {count} stubborn and stopped programs ended in time; beyond {GRACE_S} s: p50 "
          f"{statistics.median(excess):.2f} s, max {max(excess):.2f} s")
    return good, count, excess


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("yoke", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--gpus", action="store_true")
    parser.add_argument("--mpirun", default=os.environ.get("YOKE_TEST_MPIEXEC") or shutil.which("mpirun"))
    parser.add_argument("--only", help="one transport, or ends")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # a run of minutes shows how far it is
    full = arguments.full
    slack_s, side_by_side = (SLACK_S, 1) if full else (LOADED_S, 4)
    all_places = [(moment, rank) for moment in range(MOMENTS) for rank in range(RANKS)]
    done = []
    for transport in transports(arguments):
        # Of rank 0 mainly while it measures: all wait for it.
        few = [(0, 1), (1, 0), (2, 0), (3, 0), (7, 2)] if transport.own_launcher else [(4, 1)]
        if arguments.only in (None, transport.name):
            done.append(check_stops(transport, all_places if full else few, side_by_side, slack_s))
    if arguments.only in (None, "ends"):
        done.append(check_ends(arguments.yoke, ENDINGS if full else 4, side_by_side, slack_s))
    good, count = (sum(part[i] for part in done) for i in range(2))
    latest = max(max(part[2]) for part in done)
    print(f"{good} of {count} ended in time; the latest {latest:.2f} s beyond its deadlines")
    return 0 if good == count else 1


if __name__ == "__main__":
    sys.exit(main())
