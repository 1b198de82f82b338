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

from meron.zero.attributes import ZeroParameter, ZeroParamStatus
from meron.zero.engine import Engine
from meron.zero.estimate import (
    estimate_zero2_model_states_mem_needs,
    estimate_zero2_model_states_mem_needs_all_cold,
    estimate_zero2_model_states_mem_needs_all_live,
    estimate_zero3_model_states_mem_needs,
    estimate_zero3_model_states_mem_needs_all_cold,
    estimate_zero3_model_states_mem_needs_all_live,
)
from meron.zero.external import register_external_parameter, unregister_external_parameter
from meron.zero.gathered import GatheredParameters
from meron.zero.init import Init, MiCS_Init
from meron.zero.initialize import initialize
from meron.zero.leaf import (
    get_z3_leaf_modules,
    set_z3_leaf_module,
    set_z3_leaf_modules,
    set_z3_leaf_modules_by_name,
    set_z3_leaf_modules_by_suffix,
    unset_z3_leaf_modules,
    z3_leaf_module,
    z3_leaf_parameter,
)
from meron.zero.safe import (
    safe_get_full_fp32_param,
    safe_get_full_grad,
    safe_get_full_optimizer_state,
    safe_get_local_fp32_param,
    safe_get_local_grad,
    safe_get_local_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_grad,
    safe_set_full_optimizer_state,
    safe_set_local_fp32_param,
    safe_set_local_grad,
    safe_set_local_optimizer_state,
    safe_update_full_grad_vectorized,
)

__all__ = [
    "Engine",
    "GatheredParameters",
    "Init",
    "MiCS_Init",
    "ZeroParamStatus",
    "ZeroParameter",
    "estimate_zero2_model_states_mem_needs",
    "estimate_zero2_model_states_mem_needs_all_cold",
    "estimate_zero2_model_states_mem_needs_all_live",
    "estimate_zero3_model_states_mem_needs",
    "estimate_zero3_model_states_mem_needs_all_cold",
    "estimate_zero3_model_states_mem_needs_all_live",
    "get_z3_leaf_modules",
    "initialize",
    "register_external_parameter",
    "safe_get_full_fp32_param",
    "safe_get_full_grad",
    "safe_get_full_optimizer_state",
    "safe_get_local_fp32_param",
    "safe_get_local_grad",
    "safe_get_local_optimizer_state",
    "safe_set_full_fp32_param",
    "safe_set_full_grad",
    "safe_set_full_optimizer_state",
    "safe_set_local_fp32_param",
    "safe_set_local_grad",
    "safe_set_local_optimizer_state",
    "safe_update_full_grad_vectorized",
    "set_z3_leaf_module",
    "set_z3_leaf_modules",
    "set_z3_leaf_modules_by_name",
    "set_z3_leaf_modules_by_suffix",
    "unregister_external_parameter",
    "unset_z3_leaf_modules",
    "z3_leaf_module",
    "z3_leaf_parameter",
]
