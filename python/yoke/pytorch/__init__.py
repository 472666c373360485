# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules as models of Yoke. This folder alone imports torch, when somebody asks for it."""
from .convert import from_torch  # noqa: F401
