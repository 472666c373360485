#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run of ctest proved and what it skipped, by name: programs from ctest's report, cases of cmocka and unittest
from its log.

usage: count_cases.py REPORT.xml LastTest.log
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree

CMOCKA = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\w+)$", re.M)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.M)
UNITTEST_SKIPPED = re.compile(r"^(\w+) \(.*(?:\n.*)?\.\.\. skipped (['\"].*['\"])$", re.M)


def outputs(log):
    """program: what it printed."""
    tests = re.split(r"^\d+/\d+ Testing: (\S+)$", log, flags=re.M)[1:]
    printed = [re.search(r"^Output:\n-+\n(.*?)^<end of output>$", text, re.M | re.S) for text in tests[1::2]]
    return {name: found[1] if found else "" for name, found in zip(tests[::2], printed)}


def count(text):
    """({verdict: how many}, [skipped case]) of one program."""
    cases, skipped = collections.Counter(), []
    for verdict, case in dict.fromkeys(CMOCKA.findall(text)):  # cmocka lists twice what did not pass
        cases[verdict] += 1
        skipped += [case] * (verdict == "SKIPPED")
    for ran, words in UNITTEST.findall(text):
        said = collections.Counter({word: int(number) for word, number in re.findall(r"(\w+)=(\d+)", words)})
        named = [f"{case} {why}" for case, why in UNITTEST_SKIPPED.findall(text)]
        failed = said["failures"] + said["errors"]
        cases.update(OK=int(ran) - failed - said["skipped"], FAILED=failed, SKIPPED=said["skipped"])
        skipped += named + [f"{said['skipped'] - len(named)} cases"] * (said["skipped"] > len(named))
    return cases, skipped


def main():
    programs = {case.get("name"): case.get("status") for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase")}
    printed = outputs(pathlib.Path(sys.argv[2]).read_text(errors="replace"))
    total, missing, lines = collections.Counter(), collections.defaultdict(list), []
    for name, status in programs.items():
        cases, skipped = count(printed.get(name, ""))
        total += cases
        if status not in ("run", "fail"):
            last = (printed.get(name, "").strip().splitlines() or ["no reason"])[-1]
            missing[last.removeprefix("skipped: ")].append(name)
        elif skipped:
            lines.append(f"  skipped in {name}: {', '.join(skipped)}")
    failed = [name for name, status in programs.items() if status == "fail"]
    print(f"programs={len(programs)} failed={len(failed)} skipped={sum(map(len, missing.values()))}; "
          f"cases: passed={total['OK']} failed={total['FAILED']} skipped={total['SKIPPED']}")
    lines += [f"  skipped, {reason}: {' '.join(names)}" for reason, names in missing.items()]
    lines += [f"  FAILED: {' '.join(failed)}"] * bool(failed)
    print("".join(f"{line}\n" for line in lines), end="")


if __name__ == "__main__":
    main()
