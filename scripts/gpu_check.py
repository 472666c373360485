# SPDX-License-Identifier: Apache-2.0
"""The pieces of gpu-check.sh: which parts each runs, in how many seconds. A part's failure does not stop the others.
A part gets its seconds and what the parts before it left over, so that a piece ends in time by itself.
"""
import argparse
import fnmatch
import json
import pathlib
import signal
import sys
import time

import gpu_machine
from gpu_parts import (CONFIGURE_S, backend, backend_names, build, engine, engine_names, kernels,
                       kernels_names, operations, operations_names, probe, probe_names, sanitizer, sanitizer_names)
from gpu_ratios import list_rows, race, race_names, variants, variants_names
from gpu_replicas import replicas, replicas_names
from gpu_run import (FAILED, FINAL, LATE, PASSED, ROOT, SKIPPED, UNPACK_S, WAITING, Failure, Late, LUGGAGE,
                     NotBuilt, Run, Skip, packages)

# The seconds of each piece: PIECE_S at most, so that a command that is killed after ten minutes has ended.
PIECE_S = 570
MACHINE_S, LIST_S, CLOSE_S = 35, 10, 10  # looks at the machine, lists the checks; writes the report
START_S = UNPACK_S + MACHINE_S + LIST_S
PIECES = {"kernels": {build: CONFIGURE_S + 130, probe: 65, kernels: 80, operations: 90, backend: 80},
          "race": {build: CONFIGURE_S + 100, race: 345},
          "variants": {build: CONFIGURE_S + 100, variants: 345},
          "prove": {build: CONFIGURE_S + 150, replicas: 60, sanitizer: 110, engine: 125},
          "build": {build: CONFIGURE_S + 440}}
ABOUT = {"kernels": "what this GPU does best, and whether each operation is right",
         "race": "training steps beside PyTorch's, the rows that decide first",
         "variants": "whether what only a GPU can confirm may be turned on",
         "prove": "equal losses from many replicas, no race between threads, the engine's tests",
         "build": "compiles all there is; only where a piece had no time to compile"}
NAMES = {probe: probe_names, kernels: kernels_names, operations: operations_names, backend: backend_names,
         race: race_names, variants: variants_names, replicas: replicas_names, sanitizer: sanitizer_names,
         engine: engine_names}
NO_GPU, NO_INPUT, BAD_DATA = 77, 66, 65
EPILOG = """exit code: 0 all passed; 1 a check failed; 2 usage; 3 something is out of time or was not begun: run it again with
--missing; 4 all that ran passed, and what was skipped says why; 65 or 66 the report to complete is none or is not
there; 77 no GPU"""


def seconds_of(piece):
    return START_S + sum(PIECES[piece].values()) + CLOSE_S


def run_part(run, part, until, wanted=None):
    """wanted: the names of its checks; None: it has no list of them."""
    name = part.__name__
    run.now["part"], run.until = name, until
    run.parts[name] = part.__doc__
    print(f"{name}: {part.__doc__}", flush=True)

    def rest(verdict, reason):
        for left in [name] if wanted is None else run.waiting(name, wanted):
            run.check(left, verdict, reason)

    try:
        if run.left() < 1:
            raise Late("before it began")
        part(run, wanted)
    except Skip as skip:
        rest(SKIPPED, str(skip))
    except Late as late:
        rest(LATE, str(late))
    except NotBuilt as missing:
        rest(WAITING, str(missing))
    except Failure as failure:  # the checks that are left wait for another run
        run.check(name, FAILED, str(failure))
    except Exception as error:  # the script's own mistake must not hide the other parts
        run.check(name, FAILED, f"{type(error).__name__}: {error}")


def run_checks(run, part, until):
    """A part's checks, less those that this machine cannot make."""
    name = part.__name__
    gpu_machine.look_at_build(run)
    run.now["part"] = name
    reasons = {check: gpu_machine.left_out(run, name, check) for check in run.missing(name)}
    for check, reason in reasons.items():
        if reason:
            run.check(check, SKIPPED, reason)
    wanted = [check for check, reason in reasons.items() if not reason]
    if wanted:
        run_part(run, part, until, wanted)


def run_piece(run, piece, parts, begin):
    run.now["piece"] = piece
    end = begin + run.scale * (PIECE_S - CLOSE_S)
    later = run.scale * sum(parts.values())
    for part, seconds in parts.items():
        later -= run.scale * seconds
        if part is build:
            run_part(run, build, end - later)
        else:
            run_checks(run, part, end - later)
    run.now["part"], run.until = None, end + run.scale * CLOSE_S
    run.facts.setdefault("clocks", {})[f"after {piece}"] = gpu_machine.clocks(run)
    run.write()


# What is to do.


def plan(run, pieces):
    """Writes down every check of the pieces before the first one begins."""
    for piece, parts in pieces.items():
        for part in parts:
            if part not in NAMES:
                continue
            run.now["piece"], run.now["part"] = piece, part.__name__
            try:
                names = NAMES[part](run)
            except (Failure, Late) as error:
                names = []
                run.check(part.__name__, FAILED, f"its checks are unknown: {error}")
            run.names[part.__name__] = names
            run.plan(piece, part.__name__, names)


def chosen_rows(run, rows):
    """{(part, name)} that --rows names: names, patterns with *, and what else bench/pytorch_gpu.py knows them by."""
    found = {(part, name) for part, names in run.names.items() for name in names
             if any(fnmatch.fnmatchcase(name, row) for row in rows)}
    raced = {name: part for part in ("race", "variants") for name in run.names.get(part, ())}
    for row in rows if raced else ():
        try:
            found |= {(raced[name], name) for name in list_rows(run, [row]) if name in raced}
        except Failure:
            pass  # it knows none of that name
    return found


def read_earlier(path, preset):
    """The report to complete; ends the program where there is none."""
    def stop(code, text):
        print(f"gpu-check.sh: {path}: {text}", file=sys.stderr)
        sys.exit(code)

    try:
        report = json.loads(path.read_text())
    except OSError as error:
        stop(NO_INPUT, f"{error.strerror}; --missing takes the .json of an earlier run")
    except ValueError as error:
        stop(BAD_DATA, f"no JSON: {error}")
    if not isinstance(report, dict) or not isinstance(report.get("checks"), list) or "gpus" not in report:
        stop(BAD_DATA, "no report of gpu-check.sh: it has no checks or no GPUs")
    if report["preset"] != preset:
        stop(2, f"its preset is {report['preset']}, this one's {preset}: they have no checks in common")
    return report


def take_earlier(run, earlier, path, rows):
    if rows is None:
        run.take(earlier, path.name, lambda check: check["verdict"] not in FINAL)
    else:
        run.take(earlier, path.name, lambda check: (check["part"], check["name"]) in rows)
        if ("probe", "gpu_probe") in rows:  # all of its questions, also those that have an answer
            run.results.pop("probe", None)
    run.facts["from"] = {"file": path.name, "date": earlier["date"], "commit": earlier.get("commit"),
                         "gpus": [gpu["name"] for gpu in earlier["gpus"]]}
    if earlier.get("commit") != run.facts["commit"]:
        run.warn(f"{path.name} is of commit {earlier.get('commit')}, this tree of {run.facts['commit']}")
    if run.facts["from"]["gpus"] != [gpu["name"] for gpu in run.facts["gpus"]]:
        run.warn(f"{path.name} is of {', '.join(run.facts['from']['gpus']) or 'no GPU'}: their times do not compare")


def limit(run, rows):
    """Leaves of the plan what --rows names."""
    chosen = chosen_rows(run, rows)
    run.checks = [check for check in run.checks
                  if check["part"] not in run.names or (check["part"], check["name"]) in chosen]


def rows_of(arguments, earlier):
    """The names that the whole report is limited to, or None."""
    if earlier is None:
        return arguments.rows
    return earlier["rows"] + (arguments.rows or []) if "rows" in earlier else None


def read_arguments():
    parts = {part.__name__: part for pieces in PIECES.values() for part in pieces}
    texts = [f"  {piece}, {seconds_of(piece)} s: {ABOUT[piece]}\n" +
             "\n".join(f"    {part.__name__:11} {seconds:4} s  {part.__doc__}" for part, seconds in parts.items())
             for piece, parts in PIECES.items()]
    parser = argparse.ArgumentParser(prog="gpu-check.sh", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="pieces, the most that they take, and their parts:\n" + "\n".join(texts) +
                                     "\n\n" + EPILOG)
    parser.add_argument("--piece", choices=PIECES, help="this piece alone; without it all but build, one after another")
    parser.add_argument("--only", action="append", choices=parts, metavar="PART",
                        help="this part alone, on what is built; may be repeated")
    parser.add_argument("--missing", type=pathlib.Path, metavar="FROM.json",
                        help="complete this report: run what has no verdict there, take over the rest")
    parser.add_argument("--rows", action="extend", nargs="+", metavar="NAME",
                        help="these checks alone, by name or pattern; with --missing in the place of those there")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results", metavar="DIR",
                        help="where report and log go (bench/results)")
    parser.add_argument("--scale", type=float, default=1, metavar="X",
                        help="every time limit X times as long, for simulated GPUs or a slow machine")
    parser.add_argument("--preset", default="cuda", choices=("cuda", "simcuda"), help="of the build (cuda)")
    return parser, parser.parse_args()


def pieces_of(arguments):
    """{piece: {part: seconds}} that the command line asks for"""
    only = arguments.only
    found = {piece: {part: seconds for part, seconds in parts.items() if not only or part.__name__ in only}
             for piece, parts in PIECES.items()
             if arguments.piece == piece or (arguments.piece is None and piece != "build")}
    return {piece: parts for piece, parts in found.items() if parts}


def exit_code(count):
    return 1 if count[FAILED] else 3 if count[LATE] + count[WAITING] else 4 if count[SKIPPED] else 0


def prepare(run, arguments, parser):
    """Looks at the machine and writes the plan. Returns an exit code, or None to go on."""
    earlier = read_earlier(arguments.missing, arguments.preset) if arguments.missing else None
    pieces = pieces_of(arguments)
    if not pieces:
        parser.error(f"--piece {arguments.piece} has no part {' or '.join(arguments.only)}")
    run.until = run.begin + run.scale * MACHINE_S
    gpu_machine.find_gpus(run)
    if rows_of(arguments, earlier):
        run.facts["rows"] = rows_of(arguments, earlier)
    run.name_files(arguments.missing)
    run.held = earlier is not None
    run.write()
    if LUGGAGE.exists():
        run_part(run, packages, run.until)
        run.until += run.scale * UNPACK_S
    run_part(run, gpu_machine.machine, run.until)
    if run.checks[-1]["verdict"] != PASSED:
        return NO_GPU if not run.facts["gpus"] and not run.simulated else exit_code(run.count())
    run.until += run.scale * LIST_S
    plan(run, pieces)
    if "rows" in run.facts:
        limit(run, run.facts["rows"])
    rows = chosen_rows(run, arguments.rows) if arguments.rows else None
    if rows is not None and not rows:
        parser.error(f"--rows: nothing here is called {' or '.join(arguments.rows)}")
    if earlier:
        take_earlier(run, earlier, arguments.missing, rows)
    run.facts["again"] = again(run, arguments)
    run.held = False
    run.write()
    return None


def again(run, arguments):
    """The command that completes the report."""
    options = (("--piece", arguments.piece, None), ("--preset", arguments.preset, "cuda"), ("--scale", arguments.scale, 1))
    words = [word for option, value, default in options for word in (option, str(value)) if value != default]
    words += [word for part in arguments.only or () for word in ("--only", part)]
    return " ".join(["scripts/gpu-check.sh", *words, "--out", str(run.folder), "--missing", f"{run.files}.json"])


def main():
    parser, arguments = read_arguments()
    run = Run(arguments.preset, arguments.out.resolve(), arguments.piece)
    run.scale = arguments.scale
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, run.stop)
    code = prepare(run, arguments, parser)
    begin = run.begin
    for piece, parts in pieces_of(arguments).items() if code is None else ():
        if piece == "build" or any(run.missing(part.__name__) for part in parts):
            run_piece(run, piece, parts, begin)
        begin = time.monotonic()
    code = exit_code(run.count()) if code is None else code
    if not run.count()[LATE] + run.count()[WAITING]:
        run.facts.pop("again", None)
    run.write()
    print(f"\n{', '.join(f'{number} {verdict}' for verdict, number in run.count().items() if number)}\n"
          f"wrote {run.files}.json, .txt and .log")
    if "again" in run.facts:
        print(f"for what is missing: {run.facts['again']}")
    return code


if __name__ == "__main__":
    sys.exit(main())
