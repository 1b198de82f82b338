# SPDX-License-Identifier: Apache-2.0
"""deepspeed.runtime.pipe.topology: ranks as points of a grid with named axes.

The arithmetic works without a process group. A PipelineParallelGrid makes groups of
torch.distributed, and is an mpu for `initialize`. Pipelines themselves are refused.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from meron import errors
from meron.zero.compat import distributed


class TopologyError(errors.ArgumentError, AssertionError):
    """Coordinates that are not in the grid. AssertionError is what DeepSpeed raises."""


class ProcessTopology:
    """Ranks as points of a grid. The last axis varies fastest.

    Attributes: `axes` (names), `dims` (sizes), `ProcessCoord` (a namedtuple of a point), `mapping`
    (the rank of each point).
    """

    def __init__(self, axes: Sequence[str], dims: Sequence[int]) -> None:
        if len(axes) != len(dims):
            raise errors.argument(
                f"{len(axes)} axes have {len(dims)} sizes",
                subject="dims",
                advice="Give each axis a size.",
            )
        self.axes = axes
        self.dims = dims
        make: Any = collections.namedtuple  # not a constant, as mypy requires of its arguments
        self.ProcessCoord = make("ProcessCoord", axes)
        points = itertools.product(*(range(size) for size in dims))
        self.mapping: dict[Any, int] = {
            self.ProcessCoord(*point): rank for rank, point in enumerate(points)
        }

    def get_rank(self, **coord_kwargs: int) -> int:
        """The rank at a point, which has all axes as keywords."""
        if set(coord_kwargs) != set(self.axes):
            given = ", ".join(coord_kwargs) or "none"
            raise errors.argument(
                f"get_rank takes {', '.join(self.axes)}, and got {given}",
                subject="coord_kwargs",
                advice="Call filter_match for the ranks of a slice.",
            )
        point = self.ProcessCoord(**coord_kwargs)
        if point not in self.mapping:
            raise TopologyError(
                f"the grid has no point {point}: its sizes are {list(self.dims)}",
                subject="coord_kwargs",
            )
        return self.mapping[point]

    def get_axis_names(self) -> Sequence[str]:
        return self.axes

    def get_rank_repr(
        self,
        rank: int,
        omit_axes: Iterable[str] = ("data", "pipe"),
        inner_sep: str = "_",
        outer_sep: str = "-",
    ) -> str:
        """A rank's coordinates as text, such as "model_01", without some axes."""
        left_out = set(omit_axes)
        pairs = zip(self.axes, self.get_coord(rank))
        texts = [f"{axis}{inner_sep}{at:02d}" for axis, at in pairs if axis not in left_out]
        return outer_sep.join(texts)

    def get_dim(self, axis: str) -> int:
        """The size of an axis; 0 if there is no such axis."""
        return self.dims[self.axes.index(axis)] if axis in self.axes else 0

    def get_coord(self, rank: int) -> Any:
        """The point of a rank, a namedtuple."""
        for point, number in self.mapping.items():
            if number == rank:
                return point
        raise errors.argument(
            f"rank {rank} is not in the grid, which has {self.world_size()} ranks", subject="rank"
        )

    def get_axis_comm_lists(self, axis: str) -> list[list[int]]:
        """The ranks of each line along an axis; [] if there is no such axis."""
        if axis not in self.axes:
            return []
        lines: dict[Any, list[int]] = collections.defaultdict(list)
        for point, rank in self.mapping.items():
            lines[point._replace(**{axis: 0})].append(rank)
        return list(lines.values())

    def filter_match(self, **filter_kwargs: int) -> list[int]:
        """The ranks whose points have these coordinates."""
        for axis in filter_kwargs:
            self.require_axis(axis)
        return [
            rank
            for point, rank in self.mapping.items()
            if all(getattr(point, axis) == at for axis, at in filter_kwargs.items())
        ]

    def get_axis_list(self, axis: str, idx: int) -> list[int]:
        """The ranks whose coordinate of an axis is `idx`."""
        return self.filter_match(**{axis: idx})

    def require_axis(self, axis: str) -> None:
        if axis not in self.axes:
            raise errors.argument(
                f"the grid has no axis {axis!r}, but {', '.join(self.axes)}", subject="axis"
            )

    def world_size(self) -> int:
        """The number of ranks."""
        return len(self.mapping)

    def __str__(self) -> str:
        return str(self.mapping)


class PipeDataParallelTopology(ProcessTopology):
    """A grid of pipeline stages and replicas. Replicas of a stage are neighbours."""

    def __init__(self, num_pp: int, num_dp: int) -> None:
        super().__init__(["pipe", "data"], [num_pp, num_dp])


class PipeModelDataParallelTopology(ProcessTopology):
    """A grid of pipeline stages, replicas, and ranks of tensor parallelism."""

    def __init__(self, num_pp: int, num_mp: int, num_dp: int) -> None:
        super().__init__(["pipe", "data", "model"], [num_pp, num_dp, num_mp])


def _prime_factors(N: int) -> list[int]:
    """The prime factors of a positive number, the smallest first."""
    if N < 1:
        raise errors.argument(f"{N} has no prime factors: it is below 1", subject="N")
    factors = []
    candidate = 2
    while N > 1:
        while N % candidate == 0:
            factors.append(candidate)
            N //= candidate
        candidate += 1
    return factors


def default_topology(world_size: int) -> ProcessTopology:
    """Stages and replicas, whose numbers are as near as the prime factors allow."""
    sizes = {"pipe": 1, "data": 1}
    for axis, factor in zip(itertools.cycle(sizes), _prime_factors(world_size)):
        sizes[axis] *= factor
    return PipeDataParallelTopology(sizes["pipe"], sizes["data"])


class PipelineParallelGrid:
    """The place of this rank in a grid, and torch's process groups along its axes. Collective.

    A grid with an axis `data` is an mpu: initialize(mpu=grid) shards over the ranks of
    get_data_parallel_group().

    Raises ArgumentError (an AssertionError too) if the numbers of ranks differ, ArgumentError if an
    axis `pipe` or `data` is missing, StateError if torch has no process group.
    """

    def __init__(self, topology: ProcessTopology | None = None, process_group: Any = None) -> None:
        distributed.require_group("PipelineParallelGrid")
        self.global_rank = distributed.get_rank()
        self.world_size = distributed.get_world_size()
        self._topo = default_topology(self.world_size) if topology is None else topology
        for axis in ("pipe", "data"):
            self._topo.require_axis(axis)
        if not self._is_grid_valid():
            raise TopologyError(
                f"Invalid Grid: it has {self._topo.world_size()} ranks, and there are "
                f"{self.world_size}",
                subject="topology",
            )
        self.data_parallel_size = max(self._topo.get_dim("data"), 1)
        self.pipe_parallel_size = max(self._topo.get_dim("pipe"), 1)
        self.model_parallel_size = max(self._topo.get_dim("model"), 1)
        self.slice_parallel_size = self.model_parallel_size
        self.stage_id = self.get_stage_id()
        self.data_parallel_id = self.get_data_parallel_id()
        self.is_first_stage = self.stage_id == 0
        self.is_last_stage = self.stage_id == self.pipe_parallel_size - 1
        self._make_groups()

    def _make_groups(self) -> None:
        """Groups of torch, which all ranks make in the same order. Collective."""
        topology = self._topo
        replicas = [
            topology.get_axis_list("data", index) for index in range(self.data_parallel_size)
        ]
        ranks, self.ds_model_proc_group = self._make_own_group(replicas)
        self.ds_model_world_size = len(ranks)
        self.ds_model_rank = ranks.index(self.global_rank)
        self.dp_groups = topology.get_axis_comm_lists("data")
        self.dp_group, self.dp_proc_group = self._make_own_group(self.dp_groups)
        self.pipe_groups = topology.get_axis_comm_lists("pipe")
        self.pp_group, self.pp_proc_group = self._make_own_group(self.pipe_groups)
        self.p2p_groups = self._build_p2p_groups()
        alone = [[rank] for rank in range(self.world_size)]
        self.model_groups = topology.get_axis_comm_lists("model") or alone
        self.slice_group, self.slice_proc_group = self._make_own_group(self.model_groups)

    def _make_own_group(self, groups: Iterable[list[int]]) -> tuple[list[int], Any]:
        """Makes groups, and returns the ranks and the group that this rank is in. Collective."""
        own: tuple[list[int], Any] = ([], None)
        for ranks in groups:
            group = distributed.new_group(ranks)
            if self.global_rank in ranks:
                own = ranks, group
        return own

    def _build_p2p_groups(self) -> list[list[int]]:
        """By rank: itself and its next stage; the last stage is followed by the first."""
        following = {
            rank: ranks[(place + 1) % len(ranks)]
            for ranks in self.pipe_groups
            for place, rank in enumerate(ranks)
        }
        return [[rank, following[rank]] for rank in range(self.world_size)]

    def _is_grid_valid(self) -> bool:
        """True if the grid has as many ranks as there are."""
        return self._topo.world_size() == self.world_size

    def stage_to_global(self, stage_id: int, **kwargs: int) -> int:
        """The rank of a stage at this rank's other coordinates, which `kwargs` may replace."""
        point = self._topo.get_coord(self.global_rank)._replace(pipe=stage_id, **kwargs)
        return self._topo.get_rank(**dict(zip(self._topo.axes, point)))

    def topology(self) -> ProcessTopology:
        return self._topo

    def get_global_rank(self) -> int:
        return self.global_rank

    def get_stage_id(self) -> int:
        """The stage of this rank."""
        return int(self._topo.get_coord(self.global_rank).pipe)

    def get_data_parallel_id(self) -> int:
        """The replica of this rank."""
        return int(self._topo.get_coord(self.global_rank).data)

    def get_pipe_parallel_world_size(self) -> int:
        """The number of stages."""
        return self.pipe_parallel_size

    def get_pipe_parallel_group(self) -> Any:
        """The group of the stages of this rank's replica."""
        return self.pp_proc_group

    def get_data_parallel_world_size(self) -> int:
        """The number of replicas."""
        return self.data_parallel_size

    def get_data_parallel_group(self) -> Any:
        """The group of the replicas of this rank's stage."""
        return self.dp_proc_group

    def get_data_parallel_group_ranks(self) -> list[int]:
        """The ranks of get_data_parallel_group()."""
        return self.dp_group

    def get_model_parallel_rank(self) -> int:
        """This rank's number among the ranks of its replica."""
        return self.ds_model_rank

    def get_model_parallel_world_size(self) -> int:
        """The number of ranks of a replica."""
        return self.ds_model_world_size

    def get_model_parallel_group(self) -> Any:
        """The group of the ranks of this rank's replica."""
        return self.ds_model_proc_group

    def get_slice_parallel_rank(self) -> int:
        """This rank's number in tensor parallelism; 0 without an axis `model`."""
        return int(getattr(self._topo.get_coord(self.global_rank), "model", 0))

    def get_slice_parallel_world_size(self) -> int:
        """The number of ranks of tensor parallelism."""
        return self.slice_parallel_size

    def get_slice_parallel_group(self) -> Any:
        """The group of tensor parallelism."""
        return self.slice_proc_group

    get_pipe_parallel_rank = get_pipeline_model_parallel_rank = get_stage_id
    get_pipeline_model_parallel_world_size = get_pipe_parallel_world_size
    get_pipeline_model_parallel_group = get_pipe_parallel_group
    get_data_parallel_rank = get_data_parallel_id
    get_tensor_model_parallel_rank = get_slice_parallel_rank
    get_tensor_model_parallel_world_size = get_slice_parallel_world_size
    get_tensor_model_parallel_group = get_slice_parallel_group


__all__ = [
    "PipeDataParallelTopology",
    "PipeModelDataParallelTopology",
    "PipelineParallelGrid",
    "ProcessTopology",
    "_prime_factors",
]
