#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every kernel keeps within the registers and the stack that kernel_limits.txt allows, and as many of its blocks fit a
multiprocessor as it wants: the compiler's figures of the code in the library, by cuobjdump. Needs no GPU.

usage: kernel_resources.py LIBYOKE.A NVCC LIMITS
"""
import collections
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77
SHARED = {"sm_80": 167936, "sm_90": 233472}  # bytes of one of their multiprocessors: A100, H100
RELEASE = "13.0"  # of the compiler that they describe; another one gives out registers in another way
REGISTERS, THREADS, BLOCKS = 65536, 2048, 32  # of one of their multiprocessors
SHARED_OF_CUDA = 1024  # in every block

Kernel = collections.namedtuple("Kernel", "name registers stack shared local architecture")
Limit = collections.namedtuple("Limit", "pattern threads registers stack blocks line")


def read_limits(path):
    limits = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if words:
            limits.append(Limit(words[0], *map(int, words[1:5]), f"{path.name}:{number}"))
    return limits


def read_kernels(text):
    """What `cuobjdump -res-usage` prints of the architectures that have limits."""
    kernels, architecture = [], None
    for line in text.splitlines():
        found = re.match(r"arch = (\w+)", line)
        architecture = found[1] if found else architecture
        found = re.match(r"\s*Function (\S+):", line)
        name = found[1] if found else name if "REG:" in line else None
        figures = dict(re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", line))
        if name and "REG" in figures and architecture in SHARED:
            kernels.append(Kernel(name, *(int(figures[key]) for key in ("REG", "STACK", "SHARED", "LOCAL")),
                                  architecture))
    return kernels


def demangled(kernels):
    if not kernels:
        return []
    names = subprocess.run(["c++filt", *(kernel.name for kernel in kernels)], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    shorten = re.compile(r"^void |\(.*$| ")
    return [kernel._replace(name=shorten.sub("", name)) for kernel, name in zip(kernels, names)]


def resident_blocks(kernel, threads):
    """How many blocks one multiprocessor holds: registers are given to warps in units of 256."""
    warps = (threads + 31) // 32
    by_registers = REGISTERS // ((kernel.registers * 32 + 255) // 256 * 256 * warps)
    by_shared = SHARED[kernel.architecture] // (kernel.shared + SHARED_OF_CUDA)
    return min(by_registers, by_shared, THREADS // (warps * 32), BLOCKS)


def check(kernels, limits):
    found, used = [], set()
    for kernel in kernels:
        limit = next((row for row in limits if re.fullmatch(row.pattern, kernel.name)), None)
        if limit is None:
            found.append(f"{kernel.name}: no row of the limits matches it; add one")
            continue
        used.add(limit)
        blocks, name = resident_blocks(kernel, limit.threads), f"{kernel.name} for {kernel.architecture}"
        if kernel.stack + kernel.local > limit.stack:
            found.append(f"{name}: {kernel.stack + kernel.local} bytes of stack a thread; {limit.line} allows "
                         f"{limit.stack}")
        if kernel.registers > limit.registers:
            found.append(f"{name}: {kernel.registers} registers; {limit.line} allows {limit.registers}")
        if blocks < limit.blocks:
            found.append(f"{name}: {blocks} blocks of {limit.threads} threads fit a multiprocessor; {limit.line} "
                         f"wants {limit.blocks}")
    return found + [f"{row.line}: '{row.pattern}' matches no kernel" for row in limits if row not in used]


def main():
    library, nvcc, limits = sys.argv[1:4]
    release = re.search(r"release ([\d.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout)
    if release is None or release[1] != RELEASE:
        print(f"skipped: {nvcc} is of release {release and release[1]}; the limits are of {RELEASE}")
        return SKIPPED
    beside = pathlib.Path(nvcc).with_name("cuobjdump")
    tool = str(beside) if beside.exists() else shutil.which("cuobjdump")
    if tool is None:
        print(f"skipped: there is no cuobjdump beside {nvcc} nor on the PATH")
        return SKIPPED
    output = subprocess.run([tool, "-res-usage", library], capture_output=True, text=True)
    if output.returncode != 0:
        print(f"{tool} -res-usage {library}: {output.stderr or output.stdout}")
        return 1
    kernels = demangled(read_kernels(output.stdout))
    if not kernels:
        print(f"skipped: {library} has no code for {' or '.join(SHARED)}, whose limits these are")
        return SKIPPED
    found = check(kernels, read_limits(pathlib.Path(limits)))
    seen = collections.Counter(kernel.architecture for kernel in kernels)
    counts = ", ".join(f"{count} kernels of {name}" for name, count in sorted(seen.items()))
    print("\n".join(found) if found else f"{counts} within their limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
