# SPDX-License-Identifier: Apache-2.0
"""The arguments of shard: device, plan, context. Conflicts raise before anything changes."""
