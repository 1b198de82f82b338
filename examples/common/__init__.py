# SPDX-License-Identifier: Apache-2.0
"""What surrounds training in the Python examples, and has nothing to do with how it is done."""
