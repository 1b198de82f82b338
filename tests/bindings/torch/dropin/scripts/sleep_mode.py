# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning in the way of OpenRLHF: engines that sleep while others work.

An actor, a critic and a frozen reference have an engine each. The states of an engine are
offloaded, except while it trains. Texts are sampled with a plain copy of the actor, which stands
for the inference server and gets the weights after each update.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deepspeed
import tiny
import torch
import torch.nn.functional as F
from deepspeed.ops.adam import FusedAdam
from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum, OffloadStateTypeEnum
from transformers import LlamaForCausalLM, LlamaModel

ROUNDS, ROWS, PROMPT, LENGTH = 4, 3, 4, 12
AUTO = (
    "sub_group_size",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_param_persistence_threshold",
    "stage3_prefetch_bucket_size",
    "reduce_bucket_size",
)


class Critic(torch.nn.Module):
    """The value of each token of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.body = LlamaModel(tiny.llama())
        self.score = torch.nn.Linear(16, 1, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.score(self.body(tokens, use_cache=False).last_hidden_state).squeeze(-1)


def config(stage: int, trains: bool) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": stage, "offload_param": {"device": "none"}}
    if trains:
        zero["offload_optimizer"] = {"device": "none", "pin_memory": True}
        zero.update({key: "auto" for key in AUTO}, zero_hpz_partition_size=1)
    return {
        "steps_per_print": 100,
        "zero_optimization": zero,
        "bf16": {"enabled": False},
        "gradient_clipping": 1.0,
        "prescale_gradients": False,
        "wall_clock_breakdown": False,
        "compile": {"deepcompile": False},
        "tensor_parallel": {"autotp_size": 1},
        "train_micro_batch_size_per_gpu": ROWS,
        "train_batch_size": ROWS * torch.distributed.get_world_size(),
    }


def engine(model: torch.nn.Module, stage: int, rate: float | None) -> Any:
    """Trains with FusedAdam, or evaluates if there is no rate."""
    optimizer = None
    if rate is not None:
        small = [param for param in model.parameters() if param.ndim == 1]
        large = [param for param in model.parameters() if param.ndim > 1]
        groups = [{"params": large, "weight_decay": 0.1}, {"params": small, "weight_decay": 0.0}]
        optimizer = FusedAdam(groups, lr=rate, betas=(0.9, 0.95))
    made = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        config=config(stage if rate or stage == 3 else 0, bool(rate)),
        args={"local_rank": tiny.RANK},
        dist_init_required=True,
    )[0]
    if rate is None:
        made.eval()
    return made


def sleep(engine: Any) -> None:
    kinds = OffloadStateTypeEnum
    engine.optimizer.offload_states(
        include=[kinds.optim_states, kinds.contiguous_grad_buffer, kinds.hp_params, kinds.lp_grads],
        device=OffloadDeviceEnum.cpu,
        pin_memory=True,
        non_blocking=True,
    )
    engine.empty_partition_cache()
    torch.distributed.barrier()


def wake(engine: Any) -> None:
    engine.reload_states(non_blocking=True)
    torch.distributed.barrier()


def publish(actor: Any, server: torch.nn.Module) -> None:
    """Copies the weights of the actor to the server, one by one."""
    for param, copy in zip(actor.module.parameters(), server.parameters()):
        with (
            deepspeed.zero.GatheredParameters([param], enabled=hasattr(param, "ds_id")),
            torch.no_grad(),
        ):
            copy.copy_(param)


@torch.no_grad()
def sample(server: LlamaForCausalLM, number: int) -> torch.Tensor:
    """Continues this rank's prompts."""
    generator = torch.Generator().manual_seed(100 * number + tiny.RANK)
    tokens = torch.randint(4, 24, (ROWS, PROMPT), generator=generator)
    while tokens.shape[1] < LENGTH:
        chances = server(tokens, use_cache=False).logits[:, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=generator)], 1)
    return tokens


def chosen(engine: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The logarithms of the probabilities of the tokens after the prompt."""
    logits = engine(input_ids=tokens[:, :-1], use_cache=False).logits
    of_all = F.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return of_all[:, PROMPT - 1 :]


def main(folder: Path, stage: int) -> dict[str, Any]:
    torch.manual_seed(0)
    actor_model, reference_model = (LlamaForCausalLM(tiny.llama()) for _ in range(2))
    reference_model.load_state_dict(actor_model.state_dict())
    server = LlamaForCausalLM(tiny.llama()).eval()
    actor = engine(actor_model, stage, 1e-2)
    critic = engine(Critic(), stage, 2e-2)
    reference = engine(reference_model, stage, None)
    found: dict[str, list[float]] = {"losses": [], "values": [], "rewards": []}
    publish(actor, server)
    for each in (actor, critic):
        sleep(each)
    for number in range(ROUNDS):
        tokens = sample(server, number)
        rewards = (tokens[:, PROMPT:] % 2 == 0).float()
        with torch.no_grad():  # also of engines that sleep
            before = chosen(actor, tokens)
            apart = before - chosen(reference, tokens)
            values = critic(tokens)[:, PROMPT:]
        returns = (rewards - 0.05 * apart).flip(1).cumsum(1).flip(1)

        wake(critic)
        loss = (critic(tokens)[:, PROMPT:] - returns).square().mean()
        critic.backward(loss)
        critic.step()
        found["values"].append(loss.item())
        sleep(critic)

        wake(actor)
        for _ in range(2):  # updates with the same texts
            ratio = (chosen(actor, tokens) - before).exp()
            gain = returns - values
            loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            actor.backward(loss)
            actor.step()
            found["losses"].append(loss.item())
        publish(actor, server)
        sleep(actor)
        found["rewards"].append(rewards.mean().item())
    for each in (actor, critic):  # a checkpoint is saved of engines that are awake
        wake(each)
        name = "critic" if each is critic else "actor"
        each.save_checkpoint(str(folder / f"sleep{stage}" / name))
        each.destroy()
    reference.destroy()
    return found
