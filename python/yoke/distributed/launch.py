# SPDX-License-Identifier: Apache-2.0
"""Starts a function or a script as the ranks of a run on this machine."""
from __future__ import annotations

import multiprocessing
import os
import secrets
import subprocess
import sys
import time
import traceback
from multiprocessing.connection import wait
from typing import Any, Callable

from .._library import YokeError, find_tool

GRACE_SECONDS = 10.0  # in which the other ranks may report what they saw of a failure


def launch(target: Callable[..., Any] | str | os.PathLike[str], processes: int, *arguments: Any, **keywords: Any) -> list[Any]:
    """Runs a function, or a Python script, in so many processes of this machine, each a rank of one run: yoke.ProcessGroup
    and yoke.DistributedDataParallel find the others in them.

    target: a function that a module defines (multiprocessing's "spawn" imports it: guard the script's own call with
    `if __name__ == "__main__":`), called with the arguments; or a script's path, whose arguments are words and whose
    output passes through, as `yoke launch` starts it. Returns the function's results in the order of ranks; [] of a
    script. When a rank fails the others end, and RuntimeError has the first failure with its traceback.
    """
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise ValueError(f"processes is {processes!r}: expected how many ranks to start, at least 1")
    if not callable(target):
        _launch_script(target, processes, arguments, keywords)
        return []
    return _Ranks(target, processes, arguments, keywords).results()


def _launch_script(path, processes: int, arguments, keywords) -> None:
    if keywords:
        raise TypeError("a script takes words, no keywords")
    command = [find_tool(), "launch", "--nproc-per-node", str(processes), "--", sys.executable, os.fspath(path),
               *map(str, arguments)]
    code = subprocess.run(command, check=False).returncode
    if code:
        raise YokeError(f"exit code {code}", f"{os.fspath(path)} on {processes} ranks")


def _rank_main(pipe, variables: dict, target, arguments, keywords) -> None:
    os.environ.update(variables)
    try:
        found = (True, target(*arguments, **keywords))
    except BaseException as error:
        found = (False, (getattr(error, "status", ""), traceback.format_exc()))
    try:
        pipe.send(found)
    except Exception:  # the result does not travel
        pipe.send((False, ("", traceback.format_exc())))


class _Ranks:
    """The processes of one launch."""

    def __init__(self, target, processes: int, arguments, keywords):
        context, run = multiprocessing.get_context("spawn"), f"python-{secrets.token_hex(8)}"
        self.ranks, self.failures, self.finished = [], [], False
        missing = "OMP_NUM_THREADS" not in os.environ and processes > 1
        if missing:
            os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun does; a child reads it when its libraries load
        try:
            for rank in range(processes):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_rank_main, name=f"yoke-rank-{rank}", daemon=True,
                                          args=(theirs, _variables(rank, processes, run), target, arguments, keywords))
                process.start()
                theirs.close()
                self.ranks.append((process, ours))
        except BaseException:
            self._end()
            raise
        finally:
            if missing:
                del os.environ["OMP_NUM_THREADS"]

    def results(self) -> list[Any]:
        found: dict[int, Any] = {}
        open_ranks = {pipe: rank for rank, (_process, pipe) in enumerate(self.ranks)}
        try:
            limit = None
            while open_ranks and (limit is None or time.monotonic() < limit):
                for pipe in wait(list(open_ranks), None if limit is None else max(0.0, limit - time.monotonic())):
                    rank = open_ranks.pop(pipe)
                    self._receive(rank, pipe, found)
                if self.failures and limit is None:
                    limit = time.monotonic() + GRACE_SECONDS
            self.finished = not open_ranks
        finally:
            self._end()
        if self.failures:
            peers = ("YOKE_ERROR_PEER", "YOKE_ERROR_TIMEOUT")  # of ranks that only saw another one leave
            first = next((one for one in self.failures if one[1] not in peers), self.failures[0])
            raise RuntimeError(f"rank {first[0]} of {len(self.ranks)} failed:\n{first[2]}")
        return [found[rank] for rank in range(len(self.ranks))]

    def _receive(self, rank: int, pipe, found: dict) -> None:
        try:
            well, result = pipe.recv()
        except EOFError:
            self.ranks[rank][0].join(5)
            code = self.ranks[rank][0].exitcode
            self.failures.append((rank, "", f"its process ended with exit code {code} before the function returned"))
            return
        if well:
            found[rank] = result
        else:
            self.failures.append((rank, *result))

    def _end(self) -> None:
        ends = self.failures or not self.finished
        for process, _pipe in self.ranks:
            if ends:
                process.terminate()
        for process, pipe in self.ranks:
            process.join(5 if ends else None)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()


def _variables(rank: int, world: int, run: str) -> dict[str, str]:
    """Those of yoke launch."""
    return {"YOKE_RANK": str(rank), "YOKE_WORLD_SIZE": str(world), "YOKE_LOCAL_RANK": str(rank),
            "YOKE_LOCAL_WORLD_SIZE": str(world), "YOKE_NODE_RANK": "0", "YOKE_NODES": "1",
            "YOKE_MASTER_ADDR": "127.0.0.1", "YOKE_MASTER_PORT": "", "YOKE_RUN_ID": run}
