# SPDX-License-Identifier: Apache-2.0
"""What machine gpu-check.sh runs on: its GPUs first, since nothing can be checked without one."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys

from gpu_run import DEPS, PASSED, Failure, Late

TOOLS = {"nvcc": ["nvcc", "--version"], "cc": ["cc", "--version"], "cmake": ["cmake", "--version"],
         "ninja": ["ninja", "--version"], "compute-sanitizer": ["compute-sanitizer", "--version"],
         "python": [sys.executable, "--version"]}
# cuDeviceGetAttribute's numbers for the two halves of a compute capability
CAPABILITY = (75, 76)


def machine(run):
    """GPUs, driver, tools and their versions"""
    found = gpus(run) or driver_gpus(run)
    run.facts.update(gpus=found, commit=commit(run), processor=processor(), cores=os.cpu_count(),
                     clocks={"before": clocks(run)})
    if not found and not run.simulated:
        raise Failure("neither nvidia-smi nor libcuda shows a GPU")
    run.facts["versions"] = {name: first_version(run, command) for name, command in TOOLS.items()}
    run.check("machine", PASSED, ", ".join(gpu["name"] for gpu in found) or "simulated GPUs")


def has(run, program):
    return shutil.which(program, path=run.environment["PATH"]) is not None


def first_version(run, command):
    """The text of the command's line that holds a version; None when there is no such command."""
    if not has(run, command[0]):
        return None
    try:
        lines = run.command(command, 10)[1].splitlines()
    except Late:
        return "unknown"
    return next((line.strip() for line in lines if re.search(r"\d+\.\d+", line)), "unknown")


def commit(run):
    """From git; where there is none, what pack-deps.sh noted."""
    noted = DEPS / "commit"
    if has(run, "git"):
        code, text = run.command(["git", "describe", "--always", "--dirty"], 10)
        if code == 0:
            return text.strip()
    return noted.read_text().strip() if noted.exists() else None


def processor():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return model[1] if model else None


def query(run, fields):
    if not has(run, "nvidia-smi"):
        return []
    try:
        code, text = run.command(["nvidia-smi", "--format=csv,noheader,nounits", "--query-gpu=" + ",".join(fields)], 20)
    except Late:
        return []
    rows = [line.split(", ") for line in text.splitlines()] if code == 0 else []
    return [dict(zip(fields, row)) for row in rows if len(row) == len(fields)]


def gpus(run):
    return query(run, ["name", "uuid", "driver_version", "memory.total", "compute_cap",
                       "clocks.max.sm", "power.limit"])


def clocks(run):
    return query(run, ["clocks.sm", "clocks.mem", "temperature.gpu", "power.draw"])


def driver_gpus(run):
    """The same from libcuda, which containers have that hide nvidia-smi; in a process of its own, since a
    driver can hang."""
    try:
        code, text = run.command([sys.executable, __file__], 20)
    except Late:
        return []
    fields = ("name", "memory.total", "compute_cap", "driver_version")
    rows = [line.split("\t") for line in text.splitlines()] if code == 0 else []
    return [dict(zip(fields, row)) for row in rows if len(row) == len(fields)]


def print_driver_gpus():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    count, version, text = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(100)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return
    driver.cuDriverGetVersion(ctypes.byref(version))
    for device in range(count.value):
        size, parts = ctypes.c_size_t(), []
        driver.cuDeviceGetName(text, len(text), device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
        for attribute in CAPABILITY:
            part = ctypes.c_int()
            driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device)
            parts.append(str(part.value))
        print(text.value.decode(), size.value >> 20, ".".join(parts), f"for CUDA {version.value // 1000}", sep="\t")


if __name__ == "__main__":
    print_driver_gpus()
