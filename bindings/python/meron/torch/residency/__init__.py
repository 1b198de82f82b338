# SPDX-License-Identifier: Apache-2.0
"""Where the values of units are while they are used: in host memory, or on a device."""
