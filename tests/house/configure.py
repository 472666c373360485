#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CMake finds NCCL and cuDNN in toolkit, conda and wheel layouts, in the documented order. A required part
that is missing, or of a wrong version, is an error that says what to do.

usage: configure.py ROOT CMAKE
"""
import os
import pathlib
import subprocess
import sys
import tempfile

PROJECT = """cmake_minimum_required(VERSION 3.22)
project(finder LANGUAGES NONE)
set(CMAKE_MODULE_PATH {root}/cmake)
find_package(NCCL 2.22 QUIET)
find_package(CUDNN 9 QUIET)
message(STATUS "NCCL=${{NCCL_FOUND}} ${{NCCL_VERSION}} ${{NCCL_LIBRARY}} ${{NCCL_PLACE}}=")
message(STATUS "CUDNN=${{CUDNN_FOUND}} ${{CUDNN_VERSION}} ${{CUDNN_LIBRARY}} ${{CUDNN_PLACE}}=")
"""
NCCL = "#define NCCL_MAJOR 2\n#define NCCL_MINOR {}\n#define NCCL_PATCH 3\n#define NCCL_SUFFIX \"\"\n"
CUDNN = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 7\n#define CUDNN_PATCHLEVEL 1\n"


def plant_nccl(prefix, minor, library="lib/libnccl.so.2", include="include"):
    for path, text in ((prefix / include / "nccl.h", NCCL.format(minor)), (prefix / library, "")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def configure(cmake, source, build, *options, **environment):
    """What CMake says, with nothing of this machine's CUDA named by the environment."""
    own = {name: value for name, value in os.environ.items()
           if name not in ("CUDA_HOME", "CUDA_PATH", "NVHPC_ROOT", "CONDA_PREFIX", "PYTHONPATH")
           and not name.endswith("_ROOT")}
    result = subprocess.run([cmake, "-S", source, "-B", build, *options], capture_output=True,
                            text=True, check=False, env={**own, **environment})
    return result.returncode, result.stdout + result.stderr


def found(cmake, folder, library, *options, **environment):
    build = tempfile.mkdtemp(dir=folder)
    code, text = configure(cmake, folder / "project", build, *options, **environment)
    lines = [line for line in text.splitlines() if f"-- {library}=" in line]
    return lines[0] if code == 0 and lines else text


def check_places(cmake, folder, root):
    """(what must be said, what was) for each place, each before those planted earlier."""
    project = folder / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT.format(root=root))
    wheels = folder / "site-packages"
    conda, home, named = folder / "conda", folder / "home", folder / "named"
    said = []

    environment = {"PYTHONPATH": str(wheels)}
    plant_nccl(wheels / "nvidia/nccl", 23)
    said.append(("TRUE 2.23.3", "(Python wheel)", found(cmake, folder, "NCCL", **environment)))
    cudnn = wheels / "nvidia/cudnn"
    (cudnn / "include").mkdir(parents=True)
    (cudnn / "lib").mkdir()
    (cudnn / "include/cudnn.h").write_text("#include \"cudnn_version.h\"\n")
    (cudnn / "include/cudnn_version.h").write_text(CUDNN)
    (cudnn / "lib/libcudnn.so.9").write_text("")
    said.append(("TRUE 9.7.1", str(cudnn / "lib/libcudnn.so.9"),
                 found(cmake, folder, "CUDNN", **environment)))

    environment["CONDA_PREFIX"] = str(conda)
    target = f"targets/{os.uname().machine}-linux"
    plant_nccl(conda, 22, f"{target}/lib/libnccl.so.2", f"{target}/include")
    said.append(("TRUE 2.22.3", "(conda environment)", found(cmake, folder, "NCCL", **environment)))

    environment["CUDA_HOME"] = str(home)
    plant_nccl(home, 23, "lib64/libnccl.so.3")  # of another major version than its header
    said.append(("TRUE 2.22.3", "(conda environment)", found(cmake, folder, "NCCL", **environment)))
    plant_nccl(home, 23, "lib64/libnccl.so.2")
    said.append(("TRUE 2.23.3", "CUDA_HOME of", found(cmake, folder, "NCCL", **environment)))

    plant_nccl(named, 24)
    said.append(("TRUE 2.24.3", "(-DNCCL_ROOT)",
                 found(cmake, folder, "NCCL", f"-DNCCL_ROOT={named}", **environment)))
    plant_nccl(named, 17)
    said.append(("FALSE", "", found(cmake, folder, "NCCL", f"-DNCCL_ROOT={named}", **environment)))
    return said


def check_options(cmake, folder, root):
    said = []
    for options, words in [
            (["-DYOKE_WITH_CUDA=OFF", "-DYOKE_WITH_NCCL=ON"], "YOKE_WITH_NCCL=ON can't be met"),
            (["-DYOKE_WITH_CUDA=OFF", "-DYOKE_WITH_MPI=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"],
             "YOKE_WITH_MPI=ON can't be met"),
            (["-DYOKE_WITH_CUDA=OFF"], "CUDA    no           YOKE_WITH_CUDA=OFF"),
            (["-DYOKE_WITH_CUDA=OFF", "-DYOKE_WITH_MPI=OFF"], "MPI     no           YOKE_WITH_MPI=OFF")]:
        code, text = configure(cmake, root, tempfile.mkdtemp(dir=folder), *options)
        refused = "can't be met" in words
        said.append((words, "", text if (code != 0) == refused else f"exit {code}: {text}"))
    return said


def check_versions(cmake, folder, root):
    """A library that is missing, too old or too new is named with what was found, what serves and its package."""
    said = []
    for version, words in [("2.5", "jansson 2.5 is too old: Yoke takes 2.11 or newer but older than 3. Install libjansson-dev"),
                           ("3.0", "jansson 3.0 is too new: Yoke takes 2.11 or newer but older than 3. Install libjansson-dev"),
                           (None, "jansson was not found: Yoke takes 2.11 or newer but older than 3. Install libjansson-dev")]:
        packages = pathlib.Path(tempfile.mkdtemp(dir=folder))
        if version:
            (packages / "jansson.pc").write_text(f"Name: jansson\nDescription: JSON\nVersion: {version}\n")
        code, text = configure(cmake, root, tempfile.mkdtemp(dir=folder), PKG_CONFIG_LIBDIR=str(packages))
        said.append((words, "", " ".join(text.split()) if code != 0 else f"exit {code}: {text}"))
    return said + [check_onednn(cmake, folder, root, *one) for one in (
        ("1.7.0", "OMP", "oneDNN 1.7.0 is too old: Yoke takes 2.5 or newer but older than 4. Install libdnnl-dev"),
        ("4.0.1", "OMP", "oneDNN 4.0.1 is too new: Yoke takes 2.5 or newer but older than 4. Install libdnnl-dev"),
        ("3.9.2", "TBB", "runs on TBB threads, Yoke needs one built for OpenMP: install libdnnl-dev"))]


def check_onednn(cmake, folder, root, version, threads, words):
    """What is said of a oneDNN that is planted where ONEDNN_ROOT points."""
    prefix = pathlib.Path(tempfile.mkdtemp(dir=folder))
    headers = prefix / "include/oneapi/dnnl"
    headers.mkdir(parents=True)
    (prefix / "lib").mkdir()
    (prefix / "lib/libdnnl.so").touch()
    (prefix / "include/dnnl.h").touch()
    major, minor, patch = version.split(".")
    (headers / "dnnl_version.h").write_text(f"#define DNNL_VERSION_MAJOR {major}\n"
                                            f"#define DNNL_VERSION_MINOR {minor}\n#define DNNL_VERSION_PATCH {patch}\n")
    (headers / "dnnl_config.h").write_text(f"#define DNNL_CPU_RUNTIME DNNL_RUNTIME_{threads}\n")
    code, text = configure(cmake, root, tempfile.mkdtemp(dir=folder), f"-DONEDNN_ROOT={prefix}")
    return words, "", " ".join(text.split()) if code != 0 else f"exit {code}: {text}"


def main():
    root, cmake = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    with tempfile.TemporaryDirectory(prefix="yoke-configure-") as name:
        folder = pathlib.Path(name)
        said = check_places(cmake, folder, root) + check_options(cmake, folder, root)
        said += check_versions(cmake, folder, root)
    wrong = [f"expected {words} {place}, got {text}" for words, place, text in said
             if words not in text or place not in text]
    print("\n".join(wrong) or f"{len(said)} configurations say what they found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
