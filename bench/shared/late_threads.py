# SPDX-License-Identifier: Apache-2.0
"""For ranks of PyTorch over gloo, by being imported: a thread of gloo that is late would abort the
process while it ends (pytorch/pytorch#190489). Meron's own ranks wait for those by themselves."""

from __future__ import annotations

import atexit
import time

atexit.register(time.sleep, 0.1)
