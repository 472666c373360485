# SPDX-License-Identifier: Apache-2.0
"""Texts of tokens: yoke.Generator continues them, yoke.Tokenizer makes them."""
