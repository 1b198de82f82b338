# SPDX-License-Identifier: Apache-2.0
"""Gradients on their way from autograd to the engine."""
