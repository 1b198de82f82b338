# SPDX-License-Identifier: Apache-2.0
"""One module per target. Each has `emit(api) -> {path from the repository's root: text}`."""
