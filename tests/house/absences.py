#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Yoke configures, builds and trains without each optional part, and without all of them. Every build runs in a
temporary overlay of this machine's file system, from which the test deletes the part's files wherever they are: no
search can find them, and the test trusts no build option. With ccache the builds are those of preset cuda, as deep in
the tree, and compile what the absence changes; without it Debug builds, which compile in a third of the time.

usage: absences.py ROOT. Exit code 77: this machine allows no overlay. Parts it lacks need none.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

# part (as the table of the configuration calls it): its files, what a program that needs it asks the linker for, a run
# that asks for it and what that says
PARTS = {
    "CUDA": (["nvcc", "cuda_runtime.h", "cuda_runtime_api.h", "cublasLt.h", "libcudart*", "libcublas*", "libcuda.so*"],
             r"libcu(da|dart|blas)|\bcu(da|blas)\w+",
             "--devices cuda", "cuda"),
    "cuDNN": (["cudnn*.h", "libcudnn*"], r"libcudnn|\bcudnn\w+", None, None),
    "NCCL": (["nccl*.h", "libnccl*"], r"libnccl|\bnccl\w+", None, None),
    "MPI": (["mpicc*", "mpirun*", "mpiexec*", "mpi.h", "libmpi*", "mpi*.pc", "ompi*.pc"], r"libmpi|\bMPI_\w+",
            "--mode ddp --transport mpi", "this build of Yoke has no MPI"),
    "ONNX": (["protoc-c", "protobuf-c.h", "libprotobuf-c.*"], r"libprotobuf|\bprotobuf_c\w+", "--model net.onnx",
             "this build of Yoke has no ONNX"),
}
NEEDS = {"cuDNN": "CUDA", "NCCL": "CUDA"}  # in no build without the other
LIMIT_S = 900
OBSTACLE = 77
CACHED = shutil.which("ccache") is not None
BUILD = "-DCMAKE_BUILD_TYPE=Release -DYOKE_WERROR=ON" if CACHED else "-DCMAKE_BUILD_TYPE=Debug"
TRAIN = ["train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=3,rows=60", "--batch", "20", "--devices",
         "2xcpu", "--steps", "10", "--json", "--quiet"]

# $1: an empty folder; $2: the files to delete, one a line; $3: the sources, or /none; the rest: what to run. Mounts end with it.
VIEW = """set -e
view=$1 files=$2 root=$3; shift 3
mount -t tmpfs tmpfs "$view"
mkdir "$view/changes" "$view/work" "$view/root" "$view/build"
mount -t overlay overlay -o "lowerdir=/,upperdir=$view/changes,workdir=$view/work" "$view/root"
while IFS= read -r file; do rm -f "$view/root$file"; done <"$files"
for folder in /proc /sys /dev; do mount --rbind "$folder" "$view/root$folder"; done
if [[ -d $root ]]; then
    mkdir -p "$view/root$root" "$root/build/absences"
    mount --bind "$root" "$view/root$root"
    mount --bind "$view/build" "$view/root$root/build/absences"
fi
exec chroot "$view/root" "$@"
"""


def find_files():
    """part: every file of this machine's disks by which it could be found."""
    patterns = [pattern for names, *_ in PARTS.values() for pattern in names]
    search = [word for pattern in patterns for word in ("-o", "-name", pattern)][1:]
    skip = [word for folder in ("/proc", "/sys", "/dev", "/mnt") for word in ("-o", "-path", folder)][1:]
    lines = subprocess.run(["find", "/", "(", *skip, ")", "-prune", "-o", "(", *search, ")", "!", "-type", "d", "-print"],
                           text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.splitlines()
    return {part: [line for line in lines if any(pathlib.PurePath(line).match(name) for name in names)]
            for part, (names, *_) in PARTS.items()}


def run_in_view(root, files, command):
    """What a command prints in a view without the files, and its exit code."""
    with tempfile.TemporaryDirectory(prefix="yoke-view-") as folder, tempfile.NamedTemporaryFile("w") as listed:
        listed.write("".join(f"{file}\n" for file in files))
        listed.flush()
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", VIEW, "view", folder,
                               listed.name, root or "/none", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False,
                              env={"CUDAARCHS": "90-real", **os.environ})
        return done.returncode, done.stdout


def table(text):
    """part: is it in the build?, from what configuring says."""
    return {part: answer == "yes" for part, answer in re.findall(r"^ {5}(\w+) +(yes|no) ", text, re.M)}


def build_and_train(root, files, asked):
    """The exit code, and every step's output in one text."""
    tool = "build/absences/yoke"
    script = (f"set -e; cd '{root}'; cmake -S . -B build/absences -G Ninja {BUILD};"
              f" cmake --build build/absences --target yoke-tool >build/absences/log"
              f" || {{ tail -n 40 build/absences/log; exit 1; }}; echo LINKED; readelf -d {tool} | grep NEEDED;"
              f" nm -u {tool}; echo DEVICES; {tool} devices; echo TRAINED; {tool} {' '.join(TRAIN)}; echo ASKED;"
              f" for words in {' '.join(repr(words) for words in asked)}; do"
              f" {tool} {' '.join(TRAIN)} $words && echo 'nothing is wrong' || echo \"exit $?\"; done")
    return run_in_view(root, files, ["bash", "-c", script])


def check(root, absent, present, files):
    gone = {part for part in PARTS if part in absent or NEEDS.get(part) in absent}
    asked = {words: answer for _, _, words, answer in map(PARTS.get, gone) if words}
    code, text = build_and_train(root, [file for part in absent for file in files[part]], asked)
    if code != 0:
        return f"exit {code}: {text[-6000:]}"
    built = {part for part, is_in in table(text).items() if is_in and part in PARTS}
    linked, rest = text.split("\nLINKED\n")[1].split("\nDEVICES\n")
    devices, rest = rest.split("\nTRAINED\n")
    trained, answers = rest.split("\nASKED\n")
    wrong = [f"{part} is in the build" for part in built & gone]
    wrong += [f"{part} is missing as well" for part in present - gone - built]
    wrong += [f"{part} is asked of the linker: {found[0]}" for part in gone
              if (found := re.search(PARTS[part][1], linked))]
    if "CUDA" in gone and not re.search(r"^cuda +no +not in this build", devices, re.M):
        wrong.append(f"yoke devices says otherwise:\n{devices}")
    if json.loads(trained.splitlines()[-1])["steps"] != 10:
        wrong.append(f"not ten steps: {trained}")
    if answers.count("exit 69") != len(asked) or any(answer not in answers for answer in asked.values()):
        wrong.append(f"{', '.join(asked)} said: {answers}")
    return "; ".join(wrong)


def main():
    root = str(pathlib.Path(sys.argv[1]).resolve())
    code, text = run_in_view(root, [], ["true"]) if os.geteuid() == 0 else (1, "only root can make a view of the machine")
    if code != 0:
        print(f"skipped: {text.strip()}")
        return OBSTACLE
    code, text = run_in_view(root, [], ["cmake", "-S", root, "-B", f"{root}/build/absences", "-G", "Ninja"])
    present = {part for part, is_in in table(text).items() if is_in and part in PARTS}
    files = find_files()
    views = [[part] for part in PARTS if part in present] + [list(PARTS)]
    if len(present) == 1:
        views = views[1:]  # without the one there is nothing
    print(f"on this machine: {', '.join(sorted(present)) or 'no optional part'}", flush=True)
    failed = code != 0
    for absent in views:
        begin = time.monotonic()
        wrong = check(root, absent, present, files)
        failed = failed or bool(wrong)
        name = "all of them" if len(absent) == len(PARTS) else absent[0]
        print(f"without {name}: {wrong or 'configures, builds, trains'} ({time.monotonic() - begin:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
