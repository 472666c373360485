#!/usr/bin/env python3
"""Yoke without what it can do without: each optional part absent on its own, then all of them, as if it had never been
installed. The tool builds, trains ten steps, and says what to install where the part is asked for.

usage: absences.py ROOT CMAKE
"""
import json
import os
import subprocess
import sys
import tempfile

# name in the table of a build, options that keep CMake from finding it, a run that asks for it and what that says
PARTS = [
    ("MPI", ["-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"], ["--mode", "ddp", "--transport", "mpi"],
     ["this build of Yoke has no MPI", "libopenmpi-dev"]),
    ("NCCL", ["-DCMAKE_DISABLE_FIND_PACKAGE_NCCL=ON"], None, []),
    ("cuDNN", ["-DCMAKE_DISABLE_FIND_PACKAGE_CUDNN=ON"], None, []),
    ("CUDA", ["-DYOKE_WITH_CUDA=OFF"], ["--devices", "cuda"], ["cuda"]),
]
TRAIN = ["train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=4,rows=64", "--batch", "8", "--steps", "10",
         "--threads", "1", "--quiet", "--json"]


class Failure(Exception):
    pass


def run(command, code=0):
    result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                            env={**os.environ, "CUDAARCHS": "90-real"})  # one kind of GPU shows that it builds
    if result.returncode != code:
        raise Failure(f"exit {result.returncode}: {' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def configure(cmake, root, build, options):
    """{part: whether it is in the build}"""
    text = run([cmake, "-S", root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DBUILD_TESTING=OFF",
                *options])
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: row[1] == "yes" for row in rows if len(row) > 1 and row[1] in ("yes", "no")}


def check_without(cmake, root, build, parts):
    here = configure(cmake, root, build, [word for _, options, _, _ in parts for word in options])
    found = [name for name, _, _, _ in parts if here[name]]
    if found:
        raise Failure(f"found all the same: {', '.join(found)}")
    run([cmake, "--build", build, "--target", "yoke-tool"])
    tool = f"{build}/yoke"
    result = json.loads(run([tool, *TRAIN, "--devices", "2xcpu"]))
    if result["steps"] != 10:
        raise Failure(f"trained {result}")
    for name, _, asking, words in parts:
        said = run([tool, *TRAIN, *asking], 69) if asking else ""
        if any(word not in said for word in words):
            raise Failure(f"without {name}, {' '.join(asking)} said: {said}")


def main():
    root, cmake = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="yoke-absences-") as folder:
        try:
            here = configure(cmake, root, f"{folder}/full", [])
            print("here:", ", ".join(name for name, is_here in here.items() if is_here))
            check_without(cmake, root, f"{folder}/bare", PARTS)
            for part in PARTS:
                if here[part[0]] and sum(here[other] for other, _, _, _ in PARTS) > 1:
                    check_without(cmake, root, f"{folder}/{part[0]}", [part])
                    print("builds and trains without", part[0])
        except Failure as failure:
            print(failure)
            return 1
    print("builds and trains without", ", ".join(name for name, _, _, _ in PARTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
