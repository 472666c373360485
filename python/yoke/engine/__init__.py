# SPDX-License-Identifier: Apache-2.0
"""What yoke.DataParallel is made of: arrays as batches, parameter groups and learning rates, weights by name."""
