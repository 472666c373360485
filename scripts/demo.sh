#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job, as the first command after a clone: trains a ResNet with DataParallel on two devices
# posed by the CPU, on images drawn by Yoke itself. Nothing is downloaded but missing packages.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-deps.sh --room 40
scripts/build.sh release yoke-tool samples yoke_shared yoke_pages # the last two: cmake --install needs them

set -x
build/release/yoke train --devices 2xcpu --trace build/trace.json
{ set +x; } 2>/dev/null

cat <<'END'

build/trace.json shows every stage on both devices: open it at https://ui.perfetto.dev.
The same, phase by phase as nn.DataParallel runs it:
  build/release/yoke train --devices 2xcpu --schedule classic
END
