# SPDX-License-Identifier: Apache-2.0
"""Several processes, a device each: yoke.launch starts them, yoke.ProcessGroup is how they meet."""
