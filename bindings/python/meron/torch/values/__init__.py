# SPDX-License-Identifier: Apache-2.0
"""Values of sharded params: written, read unsharded, made real."""
