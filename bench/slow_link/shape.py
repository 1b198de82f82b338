# SPDX-License-Identifier: Apache-2.0
"""The GPT of example 03 that is trained: wide enough that its bytes outweigh the work per layer."""

WIDTH, LAYERS, HEADS, CONTEXT = 640, 4, 5, 128
