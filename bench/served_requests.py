# SPDX-License-Identifier: Apache-2.0
"""What contenders in a process of their own share: they read a request a line from stdin and answer each with a
line of JSON on stdout, as `yoke bench --drive` does.
"""
import json
import os
import sys


def open_answers():
    """stdout, for answers alone: what compilers and libraries print to it goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def serve(answers, answer):
    """answer: a function of a request's words that returns what the line of JSON holds."""
    for line in sys.stdin:
        try:
            found = answer(*line.split())
        except Exception as error:  # the race goes on without this contender
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        print(json.dumps(found), file=answers, flush=True)
