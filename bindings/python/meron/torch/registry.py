# SPDX-License-Identifier: Apache-2.0
"""All module-level state of meron.torch: state of the process, and state of a thread.

No other module of the package has such state; `tests/tidy` checks it. Constants and caches of pure
functions are not state. This module names no classes, so that every module can import it.
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

# Models of a process with equal ranks, plan and device share a context. The key has these and the
# transport; None means all ranks.
contexts: dict[tuple[tuple[int, ...] | None, str, str, str], meron.Context] = {}
# The options that the caller of context_for has given.
options_of: weakref.WeakKeyDictionary[meron.Context, dict[str, Any]] = weakref.WeakKeyDictionary()
# Ranks of the contexts that open_context has opened.
ranks_of_open: weakref.WeakKeyDictionary[meron.Context, tuple[int, ...] | None] = (
    weakref.WeakKeyDictionary()
)
# Number of rendezvous of each set of ranks to open a context: a set opens its contexts in one
# order. A rendezvous that a rank left because others did not arrive does not count; the rank may
# try again.
meetings: collections.Counter[str] = collections.Counter()
# Contexts by number: FlatShards that are copied or pickled keep only the number.
numbered: weakref.WeakValueDictionary[int, meron.Context] = weakref.WeakValueDictionary()
numbers: weakref.WeakKeyDictionary[meron.Context, int] = weakref.WeakKeyDictionary()
next_number = itertools.count(1)

# Threads that wait for a torch.distributed group, and transports without such threads, until all
# close messages are sent (transport.py).
threads: set[threading.Thread] = set()
polled: set[Any] = set()

# ---- Models and optimizers ----------------------------------------------------------------------

# The Sharding of each open context (sharding.py).
shardings: weakref.WeakKeyDictionary[meron.Context, Any] = weakref.WeakKeyDictionary()
# The Shards of every optimizer of torch (optimizer.py). One engine operation takes the gradients of
# a whole unit: it cannot serve two optimizers.
shards: weakref.WeakSet[Any] = weakref.WeakSet()
# By GradScaler: the optimizers whose shards it has unscaled (grad_scaler.py).
scaled_optimizers: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = (
    weakref.WeakKeyDictionary()
)
# By class of modules: the code that torch.compile compiles (hooks.py).
compiled_codes: weakref.WeakKeyDictionary[type, types.CodeType] = weakref.WeakKeyDictionary()
# Modules that DistributedDataParallel is around (data_parallel.py).
data_parallel: weakref.WeakSet[Any] = weakref.WeakSet()
# Reads the settings for sharding of a DeepSpeed config: a function that returns plan, dtypes and
# limits. meron.zero, which is above this package, sets it when it is imported.
config_reader: Any = None

# ---- For the time of a call ---------------------------------------------------------------------

# If set, copies to guarded params are recorded, and change nothing (guard.py).
loading: Any = None


class OfThread(threading.local):
    """State of one thread."""

    # How state_dict() treats sharded params: None, or as state_dict.without_values and with_values.
    state_values: bool | None = None
    skips: Any = None  # true if writes to a param have no effect (guard.skip_writes)
    saves_dcp = False  # true in dcp_save: the ranks agree on chunks of FlatShards through Meron
    planned_by_load: Any = None  # list of the FlatShards that a load of DCP will fill


thread = OfThread()
