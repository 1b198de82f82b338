# SPDX-License-Identifier: Apache-2.0
"""All module-level state of meron.torch: what lives as long as the process, or is of one thread.

No other module of the package has any; `tests/tidy` checks it. Constants and caches of pure
functions are no state. Classes are not named here, so that every module can import this one.
"""

from __future__ import annotations

import collections
import itertools
import threading
import types
import weakref
from typing import Any

import meron

# ---- Contexts (world.py) ------------------------------------------------------------------------

# Models of a process with equal ranks, plan and device share a context: by these and the transport.
# None: all ranks.
contexts: dict[tuple[tuple[int, ...] | None, str, str, str], meron.Context] = {}
# What context_for opened them with, as far as it was given.
options_of: weakref.WeakKeyDictionary[meron.Context, dict[str, Any]] = weakref.WeakKeyDictionary()
# The ranks that open_context opened a context for; none of those that others opened.
ranks_of_open: weakref.WeakKeyDictionary[meron.Context, tuple[int, ...] | None] = (
    weakref.WeakKeyDictionary()
)
# How often each set of ranks has met to open a context: a set opens its contexts in one order. What
# a rank gave up because others did not come does not count; it may try again.
meetings: collections.Counter[str] = collections.Counter()
# Contexts by a number: FlatShards that are copied or pickled keep the number only.
numbered: weakref.WeakValueDictionary[int, meron.Context] = weakref.WeakValueDictionary()
numbers: weakref.WeakKeyDictionary[meron.Context, int] = weakref.WeakKeyDictionary()
next_number = itertools.count(1)

# Threads that wait for a torch.distributed group, and transports without such, until the goodbyes
# are said (transport.py).
threads: set[threading.Thread] = set()
polled: set[Any] = set()

# ---- Models and optimizers ----------------------------------------------------------------------

# The Sharding of each open context (sharding.py).
shardings: weakref.WeakKeyDictionary[meron.Context, Any] = weakref.WeakKeyDictionary()
# The Shards of every optimizer of torch (optimizer.py). One engine operation takes the gradients of
# a whole unit: it cannot serve two optimizers.
shards: weakref.WeakSet[Any] = weakref.WeakSet()
# Of each class of modules the code that torch.compile compiles (hooks.py).
compiled_codes: weakref.WeakKeyDictionary[type, types.CodeType] = weakref.WeakKeyDictionary()
# Modules that DistributedDataParallel is around (data_parallel.py).
data_parallel: weakref.WeakSet[Any] = weakref.WeakSet()
# What a DeepSpeed config says of sharding: a function of it, which returns plan, dtypes and limits.
# meron.zero, which is above this package, sets it when it is imported.
config_reader: Any = None

# ---- For the time of a call ---------------------------------------------------------------------

# While there is one, what is copied to guarded params is noted, and nothing is changed (guard.py).
loading: Any = None


class OfThread(threading.local):
    """State of one thread."""

    without_values = 0  # how many state_dict.without_values it is in
    skips: Any = None  # whether writes to a param have no effect (guard.skip_writes)
    saves_dcp = False  # the ranks agree on chunks of FlatShards through Meron then (dcp_save)
    planned_by_load: Any = None  # the FlatShards that a load of DCP is going to fill, as a list


thread = OfThread()
