# SPDX-License-Identifier: Apache-2.0
"""What machine gpu-check.sh runs on, and what it lacks: its GPUs first, since nothing can be checked without one."""
import ctypes
import json
import os
import pathlib
import re
import sys

from gpu_run import DEPS, PASSED, Late, Skip

TOOLS = {"nvcc": ["nvcc", "--version"], "cc": ["cc", "--version"], "cmake": ["cmake", "--version"],
         "ninja": ["ninja", "--version"], "compute-sanitizer": ["compute-sanitizer", "--version"],
         "python": [sys.executable, "--version"]}
# cuDeviceGetAttribute's numbers for the two halves of a compute capability
CAPABILITY = (75, 76)


LEAST_GIB = {"resnet50, 256 rows, bfloat16": 20}  # that the kernels of a step need, by estimate; a race knows its own
BUSY_PERCENT = 5  # of the time: a GPU that does nothing says 0


def find_gpus(run):
    run.facts["gpus"] = gpus(run) or driver_gpus(run)


def machine(run, _wanted=()):
    """GPUs, driver, tools and their versions"""
    found = run.facts["gpus"]
    run.facts.update(commit=commit(run), processor=processor(), cores=os.cpu_count(), clocks={"before": clocks(run)})
    if not found and not run.simulated:
        raise Skip("neither nvidia-smi nor libcuda shows a GPU")
    if not run.simulated:
        warn_of_others(run)
    run.facts["versions"] = {name: first_version(run, command) for name, command in TOOLS.items()}
    run.check("machine", PASSED, ", ".join(gpu["name"] for gpu in found) or "simulated GPUs")


def warn_of_others(run):
    """Times beside another process's work say nothing about either."""
    programs = query(run, ["pid", "process_name"], "compute-apps")
    loads = [row["utilization.gpu"] for row in query(run, ["utilization.gpu"])]
    busy = [load for load in loads if load.isdigit() and int(load) > BUSY_PERCENT]
    if programs or busy:
        who = ", ".join(f"process {row['pid']} ({row['process_name']})" for row in programs)
        run.facts["busy"] = "; ".join(filter(None, [who, f"at work {busy[0]} % of the time" if busy else ""]))
        run.warn(f"the GPU is busy: {run.facts['busy']}; ratios of times are not judged. End what computes there and "
                 "run the rows again with --rows")


def look_at_build(run):
    """What the build found when it opened the libraries: the text of `yoke devices`."""
    if "backend" in run.facts or not run.yoke.exists():
        return
    try:
        code, text = run.command([run.yoke, "devices", "--json"], run.scale * 20)
        found = json.loads(text) if code == 0 else {}
    except (Late, ValueError):
        found = {}
    details = [backend["detail"] for backend in found.get("backends", []) if backend["name"] == "cuda"]
    notes = [device.get("note", "") for device in found.get("devices", [])]
    run.facts["backend"] = "; ".join(dict.fromkeys(filter(None, details + notes)))
    for library in ("cuDNN", "NCCL"):
        if lacks(run, library):
            run.warn(f"no {library} that Yoke can use: {run.facts['backend']}")


def lacks(run, library):
    """Where nothing is known, nothing is missing."""
    text = run.facts.get("backend")
    usable = re.search(rf"\b{library} [\d.]+ \(", text or "") and not re.search(rf"\bno {library}\b", text)
    return bool(text) and not usable


def left_out(run, part, name):
    """Why this machine cannot make the check, or None."""
    memory = [int(gpu["memory.total"]) / 1024 for gpu in run.facts["gpus"] if str(gpu["memory.total"]).isdigit()]
    if part == "kernels" and memory and memory[0] < LEAST_GIB.get(name, 0):
        return f"needs {LEAST_GIB[name]} GiB of GPU memory; this GPU has {memory[0]:.0f}"
    if part in ("kernels", "race", "variants") and name.startswith("resnet") and lacks(run, "cuDNN"):
        return "without cuDNN im2col computes every convolution"
    if part == "replicas" and ", nccl" in name and lacks(run, "NCCL"):
        return "no NCCL 2.22 or newer"
    return None


def first_version(run, command):
    """The text of the command's line that holds a version; None when there is no such command."""
    if not run.has(command[0]):
        return None
    try:
        lines = run.command(command, 10)[1].splitlines()
    except Late:
        return "unknown"
    return next((line.strip() for line in lines if re.search(r"\d+\.\d+", line)), "unknown")


def commit(run):
    """From git; where there is none, what pack-deps.sh noted."""
    noted = DEPS / "commit"
    if run.has("git"):
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


def query(run, fields, what="gpu"):
    if not run.has("nvidia-smi"):
        return []
    try:
        code, text = run.command(["nvidia-smi", "--format=csv,noheader,nounits", f"--query-{what}={','.join(fields)}"], 10)
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
