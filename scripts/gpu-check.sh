#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves Yoke on this machine's GPUs, in four stages that --stage runs one by one: probe (a minute: what this GPU
# does best), prove (six: builds Yoke, compares every operation with the CPU's and training with PyTorch's, looks for
# races), race (nine: measures beside PyTorch and JAX), ways (seven: measures Yoke's second ways to compute beside its
# first). Writes down after every check what passed, failed, was skipped or ran out of time, and why. Needs a driver,
# the CUDA toolkit, CMake, Ninja and Python; what else the build needs may lie in build/deps (scripts/pack-deps.sh).
# Reaches nothing outside the machine.
# usage: scripts/gpu-check.sh [--stage STAGE] [--compile] [--only PART]... [--out DIR] [--preset NAME] [--scale X]
set -euo pipefail
exec python3 "$(dirname "$0")/gpu_check.py" "$@"
