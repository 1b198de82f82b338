# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's names over Meron.

    import meron.zero

    with meron.zero.Init(config_dict_or_path=config):
        model = GPT()                                # never whole
    engine, _, _, _ = meron.zero.initialize(model=model, config=config)
    for x, y in batches:
        loss = loss_function(engine(x), y)
        engine.backward(loss)
        engine.step()

`import meron.zero.compat as deepspeed` gives a script the module tree that it knows.
docs/torch_deepspeed.md goes through DeepSpeed name by name.
"""

from __future__ import annotations

from meron import _needs_torch  # noqa: F401 - says so if PyTorch is missing
from meron.zero import (
    dist_module,
    estimate,
    leaf,
    loading,
    offload_states,
    safe,
    zero_to_fp32,
)
from meron.zero.attributes import ZeroParameter, ZeroParamStatus
from meron.zero.consolidated import full_state_dict
from meron.zero.dist_module import (
    DistModule,
    broadcast_and_shard_state_dict,
    shard_broadcasted_state_dict,
)
from meron.zero.engine import Engine
from meron.zero.estimate import *  # noqa: F403
from meron.zero.external import register_external_parameter, unregister_external_parameter
from meron.zero.gathered import GatheredParameters
from meron.zero.generation import unwrap_model_for_generation
from meron.zero.init import Init, MiCS_Init
from meron.zero.initialize import initialize
from meron.zero.leaf import *  # noqa: F403
from meron.zero.offload_states import *  # noqa: F403
from meron.zero.safe import *  # noqa: F403
from meron.zero.tiling import TiledLinear, TiledLinearReturnBias

__all__ = [
    "DistModule",
    "Engine",
    "GatheredParameters",
    "Init",
    "MiCS_Init",
    "TiledLinear",
    "TiledLinearReturnBias",
    "ZeroParamStatus",
    "ZeroParameter",
    "broadcast_and_shard_state_dict",
    "dist_module",
    "full_state_dict",
    "initialize",
    "loading",
    "register_external_parameter",
    "shard_broadcasted_state_dict",
    "unregister_external_parameter",
    "unwrap_model_for_generation",
    "zero_to_fp32",
]
__all__ += estimate.__all__
__all__ += leaf.__all__
__all__ += offload_states.__all__
__all__ += safe.__all__
