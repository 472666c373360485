#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/fresh-check.sh skips with a reason where it cannot make a root, and fails when a command fails.

usage: fresh_check.py ROOT. Small scripts replace the commands that make and enter a root.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TOOLS = ["basename", "bash", "cat", "cp", "cut", "dirname", "du", "env", "git", "grep", "head", "mkdir", "mktemp", "paste",
         "python3", "rm", "sed", "sort", "tail", "timeout"]
APT = "#!/bin/sh\ncase \"$*\" in *SITE*) echo http://mirror/debian ;; *) echo main ;; esac\n"
NO_MIRROR = "#!/bin/sh\nexit 0\n"
ENTERS = "#!/bin/sh\nexit 0\n"
REFUSES = "#!/bin/sh\nexit 1\n"
NO_SUITE = "#!/bin/sh\necho \"E: the mirror has no such suite\" >&2\nexit 25\n"
# Makes what the script looks at of a root.
MAKES = """#!/bin/sh
for word; do root=$last; last=$word; done
mkdir -p "$root/var/lib/dpkg" "$root/etc"
echo "Status: install ok installed" >"$root/var/lib/dpkg/status"
"""
# Namespaces may be made; what runs in the root prints this and ends so.
FAILS = "#!/bin/sh\n[ \"$5\" = bash ] || exit 0\necho 'it does not build'\nexit 70\n"
GOOD = {"apt-get": APT, "apt-config": APT, "mmdebstrap": MAKES, "unshare": ENTERS}

# name, user, changed commands, exit code, what is said
CASES = [
    ("a user", 1000, {}, 0, "bookworm trixie: skipped, a bare root needs root rights"),
    ("no tool", 0, {"mmdebstrap": None}, 0, "skipped, neither mmdebstrap nor debootstrap is here"),
    ("no namespaces", 0, {"unshare": REFUSES}, 0, "skipped, no namespaces may be made here"),
    ("no mirror", 0, {"apt-get": NO_MIRROR}, 0, "skipped, apt has no mirror configured"),
    ("no suite", 0, {"mmdebstrap": NO_SUITE}, 0, "trixie: skipped, no root could be made: E: the mirror has no such suite"),
    ("a failure", 0, {"unshare": FAILS}, 1, "trixie: scripts/demo.sh: exit 70"),
    ("another output", 0, {}, 1, "scripts/demo.sh did not print what README.md shows"),
]


def check(root, name, uid, changed, code, said):
    with tempfile.TemporaryDirectory(prefix="yoke-fresh-") as work:
        folder = pathlib.Path(work)
        for part in ("bin", "scripts", "tests/house"):
            (folder / part).mkdir(parents=True)
        text = (root / "scripts/bare-roots.sh").read_text()
        (folder / "scripts/bare-roots.sh").write_text(text.replace("EUID", str(uid)))
        shutil.copy(root / "scripts/fresh-check.sh", folder / "scripts/fresh-check.sh")
        for page in ("README.md", "tests/house/pages.py", "tests/house/shown.py"):
            shutil.copy(root / page, folder / page)
        for tool in TOOLS:
            (folder / "bin" / tool).symlink_to(shutil.which(tool))
        for command, content in {**GOOD, **changed}.items():
            if content:
                (folder / "bin" / command).write_text(content)
                (folder / "bin" / command).chmod(0o755)
        own = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": work}
        for words in (["init", "-q"], ["add", "README.md"],
                      ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one"]):
            subprocess.run(["git", *words], cwd=folder, env=own, check=True)
        done = subprocess.run([shutil.which("bash"), folder / "scripts/fresh-check.sh"], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900, check=False,
                              env={**own, "PATH": str(folder / "bin"), "TMPDIR": str(folder)})
        left = [path.name for path in folder.glob("tmp.*")]
    if done.returncode != code or said not in done.stdout or left:
        return f"{name}: exit {done.returncode}, left {left}, expected {said!r} in\n{done.stdout}"
    return None


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    wrong = [problem for case in CASES if (problem := check(root, *case))]
    print("\n".join(wrong) or f"{len(CASES)} machines are told what could be tried")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
