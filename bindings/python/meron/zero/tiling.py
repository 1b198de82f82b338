# SPDX-License-Identifier: Apache-2.0
"""A linear layer as a grid of smaller ones (section 5.1.3 of arXiv 2104.07857).

At stage 3 each tile is a unit that is gathered alone: of a layer that is too large for a device one
tile is there at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from meron import errors
from meron.torch.sharding import unit_of
from meron.zero.gathered import GatheredParameters, is_open


class SplitError(errors.ArgumentError, RuntimeError):
    """A number of splits that the features do not allow. DeepSpeed raises RuntimeError."""


def check_splits(what: str, splits: Any, features: int) -> None:
    if (
        isinstance(splits, bool)
        or not isinstance(splits, int)
        or splits not in range(1, features + 1)
    ):
        raise SplitError(
            f"{what}_splits is {splits!r}: it must be in the range 1 to {features}, the "
            f"{what}_features",
            subject=f"{what}_splits",
        )


def bounds(features: int, splits: int) -> list[int]:
    """Where the tiles begin, and the end. The first are longer by one if splits does not divide."""
    length, longer = divmod(features, splits)
    return [i * length + min(i, longer) for i in range(splits + 1)]


class TiledLinear(torch.nn.Module):
    """y = x A^T + b, computed by out_splits * in_splits layers.

        linear = meron.zero.TiledLinear(8192, 65536, out_splits=16, init_linear=model.up)

    Each output feature is a sum over in_splits partial sums, in the order of inputs. With
    in_splits=1 it is one sum, as in the undivided layer; torch's kernels may still choose another
    order for a matrix of another size. Autograd saves `x`, and each output tile until they are
    joined.

    Args:
        in_features, out_features, bias: as of torch.nn.Linear.
        in_splits, out_splits: tiles along each; they need not divide the features.
        input_is_already_split: forward gets a sequence of in_splits tensors.
        combine_out_splits: return one tensor. False: a list of out_splits tensors.
        linear_cls: makes a tile: linear_cls(in_features, out_features, bias=, **kwargs). Only the
            last tile along the inputs has a bias.
        init_linear: a layer whose values are copied, as by copy_params_from. Without it each tile
            has the initial values of linear_cls; those of torch.nn.Linear scale with the tile's own
            in_features.
        kwargs: for linear_cls.

    Attributes:
        linears: a ModuleList by output of ModuleLists by input.

    Raises RuntimeError (a SplitError, also an ArgumentError): splits outside 1..features.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        in_splits: int = 1,
        out_splits: int = 1,
        input_is_already_split: bool = False,
        combine_out_splits: bool = True,
        linear_cls: Callable[..., torch.nn.Module] = torch.nn.Linear,
        init_linear: torch.nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        check_splits("in", in_splits, in_features)
        check_splits("out", out_splits, out_features)
        self.in_features = in_features
        self.out_features = out_features
        self.use_bias = bias
        self.in_splits = in_splits
        self.out_splits = out_splits
        self.input_is_already_split = input_is_already_split
        self.combine_out_splits = combine_out_splits
        self.in_parts = bounds(in_features, in_splits)
        self.out_parts = bounds(out_features, out_splits)
        self.linears = torch.nn.ModuleList()
        for rows in lengths(self.out_parts):
            row = torch.nn.ModuleList()
            for i, columns in enumerate(lengths(self.in_parts)):
                own_bias = bias and i == in_splits - 1
                row.append(linear_cls(columns, rows, bias=own_bias, **kwargs))
            self.linears.append(row)
        if init_linear is not None:
            self.copy_params_from(init_linear)

    def forward(self, input_: Any) -> Any:
        """The layer's output, as `combine_out_splits` says. Collective at stage 3."""
        inputs = self.split_input(input_)
        outputs: list[Any] = []
        for row in self.linears:
            total: Any = None
            for part, tile in zip(inputs, row.children()):
                total = self.add(total, tile(part))
            outputs.append(total)
        return self.combine(outputs) if self.combine_out_splits else outputs

    def split_input(self, input_: Any) -> Sequence[torch.Tensor]:
        if self.input_is_already_split:
            found = [part.shape[-1] for part in input_]
            if found != lengths(self.in_parts):
                raise errors.argument(
                    f"the input has parts of {found} features, and the tiles have "
                    f"{lengths(self.in_parts)}",
                    subject="input_",
                )
            return input_  # type: ignore[no-any-return]
        if input_.shape[-1] != self.in_features:
            raise errors.argument(
                f"the input has {input_.shape[-1]} features, and the layer {self.in_features}",
                subject="input_",
            )
        return torch.split(input_, lengths(self.in_parts), dim=-1)

    def add(self, total: Any, part: Any) -> Any:
        """The sum over tiles until now, with that of one more."""
        return part if total is None else total + part

    def combine(self, outputs: list[Any]) -> Any:
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)

    @torch.no_grad()
    def copy_params_from(self, other: Any) -> None:
        """Takes the values of an undivided layer, such as a torch.nn.Linear. Collective if either
        is sharded: rank 0's values count.

        Raises ArgumentError, before anything is changed, for another shape or one bias too many.
        """
        shape = (self.out_features, self.in_features)
        weight, bias = getattr(other, "weight", None), getattr(other, "bias", None)
        if weight is None or tuple(weight.shape) != shape:
            found = None if weight is None else tuple(weight.shape)
            raise errors.argument(
                f"copy_params_from: the weight has shape {found}, and the tiles {shape}",
                subject="weight",
            )
        if (bias is None) is self.use_bias:
            raise errors.argument(
                f"copy_params_from: the layer has {'no' if bias is None else 'a'} bias, and the "
                f"tiles have {'one' if self.use_bias else 'none'}",
                subject="bias",
                advice="Make the TiledLinear with the same bias=.",
            )
        sources = [weight] if bias is None else [weight, bias]
        places = [(param, unit_of(param)) for param in sources]
        closed = [param for param, place in places if place is None or not is_open(place)]
        with GatheredParameters(closed):
            for i, row in enumerate(self.linears):
                rows = slice(self.out_parts[i], self.out_parts[i + 1])
                tiles: list[Any] = list(row.children())
                for j, tile in enumerate(tiles):
                    columns = slice(self.in_parts[j], self.in_parts[j + 1])
                    with GatheredParameters(list(tile.parameters()), modifier_rank=0):
                        tile.weight.copy_(weight[rows, columns])
                        if bias is not None and getattr(tile, "bias", None) is not None:
                            tile.bias.copy_(bias[rows])

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.use_bias}, in_splits={self.in_splits}, out_splits={self.out_splits}"
        )


class TiledLinearReturnBias(TiledLinear):
    """TiledLinear of layers that return (output, bias) and leave it to the caller to add the bias,
    as Megatron-LM's do (skip_bias_add). Returns (output, bias or None); with
    combine_out_splits=False a list of such pairs."""

    def add(self, total: Any, part: Any) -> Any:
        output, bias = part
        if total is None:
            return output, bias
        return total[0] + output, total[1] if bias is None else bias

    def combine(self, outputs: list[Any]) -> Any:
        biases = [bias for _, bias in outputs]
        output = super().combine([output for output, _ in outputs])
        return output, None if biases[0] is None else super().combine(biases)


def lengths(parts: list[int]) -> list[int]:
    return [end - begin for begin, end in zip(parts, parts[1:])]


__all__ = ["TiledLinear", "TiledLinearReturnBias"]
