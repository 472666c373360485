#!/usr/bin/env bash
# Proves Yoke on this machine's GPUs in under nine minutes: builds it, compares every operation with
# the CPU's and training with PyTorch's, looks for races, measures beside PyTorch, and writes down
# what passed, failed and was skipped, and why. Reaches nothing outside the machine.
# usage: scripts/gpu-check.sh [--only PART]... [--out DIR] [--preset NAME]   --help lists the parts
set -euo pipefail
exec python3 "$(dirname "$0")/gpu_check.py" "$@"
