# SPDX-License-Identifier: Apache-2.0
"""Runs from rows to weights: yoke.Trainer and yoke.train."""
