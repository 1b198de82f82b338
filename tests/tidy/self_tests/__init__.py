# SPDX-License-Identifier: Apache-2.0
"""Tests of the rules: each plants offences in a temporary tree."""
