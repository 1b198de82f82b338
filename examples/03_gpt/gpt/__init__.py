# SPDX-License-Identifier: Apache-2.0
"""A GPT on bytes, trained by PyTorch with its states partitioned over the ranks.

Start at functional.py: all that training with Meron takes. model.py knows nothing of Meron.
"""
