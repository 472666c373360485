"""The command line tool: its results as dicts, and the command `yoke` of an installed wheel."""
import json
import os
import signal
import subprocess
import sys

from ._library import LIBRARY, PATH, YokeError

STATUSES = 13  # of YOKE_STATUS_TABLE
TOOL = str(PATH.with_name("yoke"))


def tool(*words, text=False):
    """Runs the tool with --json and returns what it prints as a dict; with text=True without --json, as a str.

    tool("compare", "--devices", "2xcpu", "--html", "page.html")
    """
    command = [TOOL, *map(str, words), *([] if text else ["--json"])]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A session of its own: Ctrl-C reaches the tool once, from here; twice would end it before it saves.
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        try:
            printed, complaint = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
    try:
        output = printed if text else json.loads(printed)
    except ValueError:
        output = printed
    if process.returncode:
        codes = {LIBRARY.yoke_status_exit_code(status): status for status in reversed(range(STATUSES))}
        del codes[1]  # also a comparison that found a difference
        status = codes.get(process.returncode)
        name = f"exit code {process.returncode}" if status is None else LIBRARY.yoke_status_name(status).decode()
        raise YokeError(name, complaint.strip() or printed.strip(), output)
    return output


def main():
    """The command yoke."""
    os.execv(TOOL, sys.argv)
