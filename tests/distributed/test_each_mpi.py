#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One build works with any MPI: with a module built for Open MPI, then for MPICH, the same programs pass the MPI tests
and train to the weights of one process. The test skips an MPI that is not installed and says so.

usage: test_each_mpi.py ROOT CMAKE YOKE TEST_MPI_GROUP TEST_MPI_FAILURES
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

MPIS = [("Open MPI", "openmpi", "libopenmpi-dev openmpi-bin"), ("MPICH", "mpich", "libmpich-dev mpich")]
TRAIN = ["train", "--model", "mlp", "--dataset", "synthetic:1x8x8,classes=4,rows=96", "--batch", "24", "--steps", "6",
         "--algorithm", "direct", "--threads", "1", "--json", "--quiet"]
# As root, and with more ranks than cores; what an MPI keeps until its process ends is no leak.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "ASAN_OPTIONS": "detect_leaks=0"}


class Failure(Exception):
    pass


def run(*command):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=900,
                            stdin=subprocess.DEVNULL, env=ENVIRONMENT)
    if result.returncode:
        raise Failure(f"exit {result.returncode}: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def build_module(cmake, root, build, suffix):
    """The launcher that CMake takes for this compiler."""
    run(cmake, "-S", root, "-B", build, "-G", "Ninja", f"-DMPI_C_COMPILER=mpicc.{suffix}", "-DYOKE_WITH_CUDA=OFF",
        "-DYOKE_WITH_MPI=ON", "-DBUILD_TESTING=OFF")
    run(cmake, "--build", build, "--target", "yoke_mpi")
    cache = (build / "CMakeCache.txt").read_text()
    return next(line.split("=")[1] for line in cache.splitlines() if line.startswith("MPIEXEC_EXECUTABLE:"))


def check_training(mpiexec, tool):
    for ranks in (1, 2, 3):
        found = json.loads(run(mpiexec, "-n", ranks, tool, *TRAIN, "--mode", "ddp", "--transport", "mpi"))
        wanted = json.loads(run(tool, *TRAIN, "--devices", f"{ranks}xcpu"))
        if found["devices"] != ranks or found["weights_hash"] != wanted["weights_hash"]:
            raise Failure(f"{ranks} ranks learnt {found}, one process {wanted}")


def check(work, suffix, root, cmake, programs):
    mpiexec = build_module(cmake, root, work / "build", suffix)
    here = work / "programs"  # their module is the one beside them
    here.mkdir()
    tool, group, failures = [shutil.copy(program, here) for program in programs]
    shutil.copy(work / "build/libyoke_mpi.so", here)
    for ranks in (1, 2, 3, 4):
        run(mpiexec, "-n", ranks, group)
    run(sys.executable, pathlib.Path(__file__).with_name("test_mpi_failures.py"), mpiexec, failures)
    check_training(mpiexec, tool)
    return mpiexec


def main():
    root, cmake, *programs = sys.argv[1:]
    code = 77
    for name, suffix, packages in MPIS:
        if shutil.which(f"mpicc.{suffix}") is None or shutil.which(f"mpiexec.{suffix}") is None:
            print(f"{name}: skipped, there is no mpicc.{suffix} with its mpiexec (Debian: {packages})")
            continue
        with tempfile.TemporaryDirectory(prefix="yoke-mpi-") as folder:
            try:
                mpiexec = check(pathlib.Path(folder).resolve(), suffix, root, cmake, programs)
            except (Failure, subprocess.TimeoutExpired) as failure:
                print(f"{name}: {failure}")
                return 1
        print(f"{name}: one to four ranks under {mpiexec} agree, fail in time and learn as one process does")
        code = 0
    return code


if __name__ == "__main__":
    sys.exit(main())
