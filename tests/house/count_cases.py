#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/count_cases.py counts what ran and names what did not.

usage: count_cases.py ROOT
"""
import pathlib
import subprocess
import sys
import tempfile

REPORT = """<testsuite><testcase name="test_a" status="run"/><testcase name="test_b" status="notrun"/>
<testcase name="tool" status="run"/><testcase name="test_c" status="fail"/></testsuite>"""
LOG = """1/4 Testing: test_a
Output:
----------------------------------------------------------
[       OK ] adds
[  SKIPPED ] replays
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] replays
<end of output>
Test Passed.
2/4 Testing: test_b
Output:
----------------------------------------------------------
skipped: no usable GPU
<end of output>
3/4 Testing: tool
Output:
----------------------------------------------------------
test_one (__main__.Tool.test_one) ... ok
test_two (__main__.Tool.test_two)
The second. ... skipped 'no fish is here'

----------------------------------------------------------------------
Ran 2 tests in 0.1s

OK (skipped=1)
<end of output>
4/4 Testing: test_c
Output:
----------------------------------------------------------
[  FAILED  ] divides
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] divides
<end of output>
"""
EXPECTED = """programs=4 failed=1 skipped=1; cases: passed=2 failed=1 skipped=2
  skipped in test_a: replays
  skipped in tool: test_two 'no fish is here'
  skipped, no usable GPU: test_b
  FAILED: test_c
"""


def main():
    with tempfile.TemporaryDirectory() as name:
        report, log = pathlib.Path(name) / "report.xml", pathlib.Path(name) / "log"
        report.write_text(REPORT)
        log.write_text(LOG)
        said = subprocess.run([sys.executable, pathlib.Path(sys.argv[1]) / "scripts/count_cases.py", report, log],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
    print("as expected" if said == EXPECTED else f"expected\n{EXPECTED}printed\n{said}")
    return said != EXPECTED


if __name__ == "__main__":
    sys.exit(main())
