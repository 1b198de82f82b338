# SPDX-License-Identifier: Apache-2.0
"""The parts of `tools/test`, which `tools/run_tests.py` puts together."""
