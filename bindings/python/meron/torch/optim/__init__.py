# SPDX-License-Identifier: Apache-2.0
"""Optimizers of sharded params: the engine's rules, and PyTorch's own classes."""
