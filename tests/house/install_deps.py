#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/install-deps.sh never prompts, and where it cannot go on it says what to do: without a package system, root or
network, with too small a disk or too old a cmake.

usage: install_deps.py ROOT. Small scripts on a PATH of their own replace the system's commands.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# What the script itself needs; compilers and the like are what is missing.
TOOLS = ["awk", "bash", "cat", "df", "dirname", "du", "env", "grep", "head", "ls", "mktemp", "rm", "sed", "sort", "tail", "tr"]
ASKS = """#!/bin/sh
case "$*" in
*--assume-no*) printf '0 upgraded, 40 newly installed, 0 to remove and 0 not upgraded.\\n%s\\n%s\\n' \\
    'Need to get 90.5 MB/118 MB of archives.' 'After this operation, 1,480 MB of additional disk space will be used.'; exit 1 ;;
*) echo "$*" >>"$APT_CALLS" ;;
esac
"""
NO_NETWORK = """#!/bin/sh
echo "$*" >>"$APT_CALLS"
case "$*" in
*update*) echo "W: Failed to fetch http://mirror/InRelease  Could not resolve 'mirror'" ;;
*) i=0; while [ $((i += 1)) -le 3000 ]; do echo "E: Failed to fetch http://mirror/$i.deb" >&2; done; exit 100 ;;
esac
"""
NEWEST = "#!/bin/sh\necho 0 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.\n"
SMALL_DISK = """#!/bin/sh
printf 'Filesystem 1048576-blocks Used Available Capacity Mounted on\\n/dev/sda1 9000 8000 1000 89%% /\\n'
"""
PASSWORD = "#!/bin/sh\n[ \"$1\" = -n ] && exit 1\nsleep 1000\n"
OLD_CMAKE = "#!/bin/sh\necho cmake version 3.16.3\n"


class System:
    """A folder with the commands of a system, and a copy of the script."""

    def __init__(self, folder, root, uid, commands):
        self.folder, self.calls = folder, folder / "calls"
        self.calls.write_text("")
        (folder / "bin").mkdir()
        (folder / "scripts").mkdir()
        # bash cannot be told another EUID.
        text = (root / "scripts/install-deps.sh").read_text()
        assert "EUID" in text
        (folder / "scripts/install-deps.sh").write_text(text.replace("EUID", str(uid)))
        for tool in TOOLS:
            (folder / "bin" / tool).symlink_to(shutil.which(tool))
        for name, content in commands.items():
            path = folder / "bin" / name
            path.unlink(missing_ok=True)
            path.write_text(content)
            path.chmod(0o755)

    def run(self, *arguments):
        bash = shutil.which("bash")
        done = subprocess.run([bash, self.folder / "scripts/install-deps.sh", *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False,
                              env={"PATH": str(self.folder / "bin"), "APT_CALLS": str(self.calls)},
                              start_new_session=True)
        return done.returncode, done.stdout


ROOT_ID, USER_ID = 0, 1000
COMMAND = "apt-get update && apt-get install -y --no-install-recommends build-essential cmake ninja-build"
# name, user, commands, arguments, what is said, what apt-get must not have been asked
CASES = [
    ("no package system", ROOT_ID, {}, [], ["This is not Debian or Ubuntu", "    libdnnl-dev"], None),
    ("no sudo", USER_ID, {"apt-get": ASKS}, [], ["there is no sudo", COMMAND], "install"),
    ("a password", USER_ID, {"apt-get": ASKS, "sudo": PASSWORD}, [], ["there is no terminal", COMMAND], "install"),
    ("no network", ROOT_ID, {"apt-get": NO_NETWORK}, [],
     ["could not install: build-essential cmake", "Could not resolve 'mirror'", "--download-only", "dpkg -i"], None),
    ("a small disk", ROOT_ID, {"apt-get": ASKS, "df": SMALL_DISK}, ["--room", "30"],
     ["/ has 1000 MB free, and 1601 MB are needed",
      "91 MB for packages, 1480 MB for what is in them, 30 MB for the build"], "install -y"),
    ("an old cmake", ROOT_ID, {"apt-get": ASKS, "cmake": OLD_CMAKE}, [],
     ["cmake 3.16.3 is too old: Yoke takes 3.22 or newer", "pip install 'cmake>=3.22'"], None),
    ("an old cmake and no newer", ROOT_ID, {"apt-get": NEWEST, "cmake": OLD_CMAKE}, [],
     ["cmake 3.16.3 is too old: Yoke takes 3.22 or newer", "pip install 'cmake>=3.22'"], None),
]


def check(root, name, uid, commands, arguments, said, unasked):
    with tempfile.TemporaryDirectory(prefix="yoke-deps-") as folder:
        system = System(pathlib.Path(folder), root, uid, commands)
        code, text = system.run(*arguments)
        calls = system.calls.read_text()
    missing = [words for words in said if words not in text]
    if code != 1 or missing or (unasked and unasked in calls):
        return f"{name}: exit {code}, {missing} not said; apt-get was asked {calls!r}:\n{text}"
    return None


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    wrong = [problem for case in CASES if (problem := check(root, *case))]
    print("\n".join(wrong) or f"{len(CASES)} systems are told how to go on")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
