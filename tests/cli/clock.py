# SPDX-License-Identifier: Apache-2.0
"""Claims about measured times hold on a machine that does nothing else: scripts/nightly.sh alone checks them."""
import json
import os
import unittest

CLOCK = os.environ.get("YOKE_TEST_CLOCK")
judges_clock = unittest.skipUnless(CLOCK, "judges a clock: scripts/nightly.sh clock")


def set_times(profile, forward_ms):
    """Gives a measured profile, as on a machine of a known speed, the times that its simulations are to begin with."""
    known = json.loads(profile.read_text())
    for segment in known["segments"]:
        segment["backward_ms"] = 2 * forward_ms / len(known["segments"])
    profile.write_text(json.dumps(known | {"host_ms": 0.02, "forward_ms": forward_ms, "loss_ms": 0.005,
                                           "update_ns_per_byte": 0.05}))
