#!/usr/bin/env bash
# The main job, as the first command after a clone: trains a ResNet with DataParallel on two devices
# posed by the CPU, on images drawn by Yoke itself. Nothing is downloaded but missing packages.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-deps.sh
echo "building"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { cmake --preset release && cmake --build --preset release --target yoke-tool; } >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi

set -x
build/release/yoke train --devices 2xcpu --trace build/trace.json
{ set +x; } 2>/dev/null

cat <<'END'

The timeline of every stage on both devices is in build/trace.json: open it at https://ui.perfetto.dev.
Try next:
  build/release/yoke train --devices 2xcpu --schedule classic   # nn.DataParallel phase by phase
  build/release/yoke train --model resnet18-cifar --steps 20    # one larger model
  build/release/yoke help train                                 # every option
END
