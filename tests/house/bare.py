#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests are green where a part of the system is missing, and name what they skip: each row of VIEWS runs the tests that
use the part in a view of this machine without it. The view is an overlay: what the tests write goes away with it.

usage: bare.py BUILD [PART...]. Exit code 77: this machine allows no overlay.
"""
import os
import pathlib
import re
import subprocess
import sys

from absences import OBSTACLE, run_in_view

LOOPBACK = ("python3 -c \"import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914,"
            " struct.pack('16sh', b'lo', 0x41))\"")  # up and running
FEW_DEVICES = """
few=$(mktemp -d)
mount -t tmpfs tmpfs $few
for name in null zero full random urandom; do touch $few/$name; mount --bind /dev/$name $few/$name; done
ln -s /proc/self/fd $few/fd
mount --rbind $few /dev
"""
# part: (files to delete, how to make the view inside it, in a network of its own?, the tests that use the part, why some
# of their cases are skipped)
VIEWS = {
    "/dev/pts": ([], "mount -t tmpfs tmpfs /dev/pts", False, "^(live|launch_life)$",
                 "this system offers no pseudo-terminals"),
    "/etc/hosts": (["/etc/hosts"], "", False,
                   "^(house_fresh_check|house_install_deps|launch|habits|test_(store_tcp|rendezvous|process_group))$", None),
    "/dev/shm": ([], FEW_DEVICES, False, "^(launch|test_(shared_memory.*|ddp|process_group|array_files))$", None),
    "IPv6": ([], LOOPBACK + "; echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6", True,
             "^(launch|test_(store_tcp|rendezvous|process_group|entry|meeting))$", None),
    "a network": ([], LOOPBACK, True, "^(launch|habits|test_(store.*|rendezvous|process_group|entry|meeting))$", None),
}


def check(build, files, setup, own_network, tests, why):
    """What is wrong; nothing when all is well. Prints what the tests skip."""
    inside = f"set -e\nmount -t proc proc /proc\n{setup}\nexec ctest --test-dir '{build}' -R '{tests}' -j 3 --no-tests=error -V"
    command = ["bash", "-c", inside]
    if own_network:
        command = ["unshare", "--net", *command]
    code, text = run_in_view(None, files, command)
    reasons = re.findall(r"(?:SKIPPED \] (\w+)\n|\.\.\. skipped ['\"](.*)['\"]$|^\d+: (skipped: .*)$)", text, re.M)
    for reason in sorted({next(filter(None, found)) for found in reasons if any(found)}):
        print(f"    {reason}")
    if code == 0 and why in (None, *(reason for found in reasons for reason in found)):
        return ""
    return f"exit {code}: {text[-6000:]}"


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    code, text = run_in_view(None, [], ["true"]) if os.geteuid() == 0 else (1, "only root can make a view of the machine")
    if code != 0:
        print(f"skipped: {text.strip()}")
        return OBSTACLE
    failed = False
    for part in sys.argv[2:] or VIEWS:
        wrong = check(build, *VIEWS[part])
        failed = failed or bool(wrong)
        print(f"without {part}: {wrong or 'green'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
