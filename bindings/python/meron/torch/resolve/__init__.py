# SPDX-License-Identifier: Apache-2.0
"""What shard was asked for: device, plan, context. Conflicts raise before anything changes."""
