# SPDX-License-Identifier: Apache-2.0
"""Common code of the Python examples besides training: options, text, progress, reports."""
