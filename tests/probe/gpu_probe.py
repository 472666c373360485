#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_probe over simulated GPUs: what it writes is whole whenever it is killed, a second call completes a first,
and a question without time or without an answer costs the others nothing.

usage: gpu_probe.py PROGRAM
"""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]


def probe(*options, environment=None):
    return subprocess.run([PROGRAM, "--tiny", *map(str, options)], text=True, stdout=subprocess.PIPE,
                          env={**os.environ, **(environment or {})}, check=False)


def lines_of(path, cut=False):
    """Its lines; `cut`: the last one may lack its end."""
    text = path.read_text()
    assert cut or text.endswith("\n"), text[-200:]
    return [json.loads(line) for line in text.split("\n")[:-1]]


def items(lines):
    return {(line["section"], line["what"], line.get("direction")) for line in lines if line["section"] != "end"}


def asked(lines):
    return [(line["section"], line["what"], line.get("direction")) for line in lines if line.get("verdict") == "asked"]


def results(lines):
    """Lines that hold results, less their numbers."""
    return sorted(str({key: line[key] for key in ("section", "what", "direction", "variant") if key in line})
                  for line in lines if line["section"] != "end" and line.get("verdict") not in ("asked", "fastest"))


def kill_at_random(path, seconds):
    with subprocess.Popen([PROGRAM, "--tiny", "--json", path], stdout=subprocess.DEVNULL,
                          start_new_session=True) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
    time.sleep(0.5)  # the process of the question dies with its parent


def killed_at_random_it_leaves_whole_lines_that_missing_completes(folder, whole):
    path = folder / "killed.json"
    for seconds in (random.uniform(0.2, 3), random.uniform(1, 6)):
        path.unlink(missing_ok=True)
        kill_at_random(path, seconds)
        before = path.read_bytes() if path.exists() else b""
        if path.exists():
            lines_of(path, cut=True)
        else:
            path.write_text("")
        time.sleep(0.3)
        assert not path.exists() or path.read_bytes()[:len(before)] == before and \
            len(path.read_bytes()) == len(before), "a killed probe's question goes on"
        completed = probe("--json", path, "--missing", path, "--seconds", 100)
        assert completed.returncode == 0, (seconds, completed.stdout[-500:])
        lines = lines_of(path)
        assert sorted(map(str, asked(lines))) == sorted(map(str, asked(whole))), seconds
        assert results(lines) == results(whole), f"killed after {seconds} s"


def missing_asks_nothing_that_is_known(folder, whole):
    path, again = folder / "first.json", folder / "again.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in whole) + '{"section":"cut')
    completed = probe("--json", again, "--missing", path)
    assert completed.returncode == 0 and completed.stdout.startswith("end"), completed.stdout
    kept = [line for line in whole if line["section"] != "end"]
    assert lines_of(again)[:-1] == kept
    wrong = [{**line, "verdict": "WRONG"} if "error" in line else line for line in kept]
    path.write_text("".join(json.dumps(line) + "\n" for line in wrong))
    completed = probe("--json", again, "--missing", path)
    assert completed.returncode == 1 and "wrong results" in completed.stdout, completed.stdout
    some = [line for line in kept if line["section"] not in ("events", "question")]
    path.write_text("".join(json.dumps(line) + "\n" for line in some))
    probe("--json", again, "--missing", path, "--seconds", 100)
    assert items(lines_of(again)) == items(whole)


def without_time_every_item_says_so(folder):
    path = folder / "late.json"
    for name in ("plans", "epilogues", "queries", "launches"):
        path.write_text("")
        assert probe("--ask", name, "--seconds", 0.001, "--json", path).returncode == 3, name
        lines = lines_of(path)
        assert lines and all(line["verdict"] == "no time" for line in lines), (name, lines)


def a_question_that_never_ends_costs_the_others_nothing(folder):
    path = folder / "hung.json"
    completed = probe("--only", "events", "--only", "launches", "--hang", "events", "--seconds", 40, "--json", path)
    assert completed.returncode == 0, completed.stdout
    lines = lines_of(path)
    verdicts = {line["what"]: line["verdict"] for line in lines if line["section"] in ("question", "end")}
    assert verdicts["events"] == "killed at its deadline", verdicts
    assert verdicts["all questions"].startswith("no time for all of it"), verdicts
    assert verdicts["launches"] == "asked", verdicts


def a_poisoned_context_is_found_out(whole):
    rows = {line["variant"]: line for line in whole if line["section"] == "poison" and "variant" in line}
    assert rows["work in a context of this GPU made before"]["found"] == "cudaSuccess", rows
    assert rows["cudaMalloc after cudaDeviceReset"]["found"] == "cudaErrorLaunchFailure", rows
    assert all(row.get("verdict") in (None, "as expected") for row in rows.values()), rows


def options_are_checked(folder):
    assert probe("--only", "nothing").returncode == 64
    assert probe("--missing", folder / "none.json").returncode == 66
    assert probe("--json", folder / "no" / "file.json").returncode == 73
    assert len(probe("--list").stdout.splitlines()) == 8
    nothing = {"SIMCUDA_DEVICES": "0"}
    assert probe(environment=nothing).returncode == 77
    assert probe("--only", "poison", environment=nothing).returncode == 77


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        completed = probe("--json", folder / "whole.json", "--seconds", 100)
        assert completed.returncode == 0, completed.stdout[-2000:]
        whole = lines_of(folder / "whole.json")
        a_poisoned_context_is_found_out(whole)
        missing_asks_nothing_that_is_known(folder, whole)
        killed_at_random_it_leaves_whole_lines_that_missing_completes(folder, whole)
        without_time_every_item_says_so(folder)
        a_question_that_never_ends_costs_the_others_nothing(folder)
        options_are_checked(folder)


main()
