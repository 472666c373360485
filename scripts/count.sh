#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts a training step of three models on simulated GPUs: launches, bytes, operations, and what a model of an
# H100 makes of them. Nothing is timed. bench/README.md explains the table.
# usage: scripts/count.sh [--json]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh simcount yoke-tool >&2
for setup in "resnet50 256" "resnet18-cifar 256" "gpt2:layers=12,width=768,heads=12 16"; do
    read -r model rows <<<"$setup"
    build/simcount/yoke bench --kernels --count --model "$model" --rows "$rows" --precision bfloat16 --device cuda:0 "$@"
    echo
done
