# SPDX-License-Identifier: Apache-2.0
"""A language model on bytes, trained with its states partitioned over the ranks.

Start at train.py: all that training with Meron takes. model.py knows nothing of Meron.
"""
