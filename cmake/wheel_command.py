#!python
# SPDX-License-Identifier: Apache-2.0
"""The command `yoke` of a wheel: becomes the tool, which lies in the package beside libyoke.so. It imports nothing of it."""
import importlib.util
import os
import sys

package = importlib.util.find_spec("yoke")
if package is None or not package.submodule_search_locations:
    sys.exit(f"yoke: {sys.executable} does not find the package yoke, which has the tool: is its folder in PYTHONPATH?")
os.execv(os.path.join(package.submodule_search_locations[0], "yoke"), sys.argv)
