#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves Yoke on this machine's GPUs, in pieces that each end by themselves within ten minutes, build included:
# docs/gpu-hour.md has their order. Writes down after every check what passed, failed, was skipped, ran out of time or
# was not begun, and why; --missing completes such a report. Needs a driver, the CUDA toolkit, CMake and Python; what
# else the build needs may lie in build/deps.tar.xz (scripts/pack-deps.sh). Reaches nothing outside the machine.
# usage: scripts/gpu-check.sh [--piece PIECE] [--missing FROM.json] [--rows NAME...] [--only PART]... [--out DIR]
#                             [--preset NAME] [--scale X]
set -euo pipefail
exec python3 "$(dirname "$0")/gpu_check.py" "$@"
