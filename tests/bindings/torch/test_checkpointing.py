# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing: the bits of a run without it, in less memory, with any flag."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import run_ranks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint as torchs_checkpoint
from twin import compare

import meron
from meron import checkpointing
from meron.checkpointing.layout import Layout, overlaps
from meron.torch.tensors import tensors_in

BLOCKS = 4
X = 5 * 5 * 16 * 4  # bytes of an activation of Model, which 3 does not divide
FLAGS: list[dict[str, Any]] = [
    {},
    {"contiguous_checkpointing": True},
    {"contiguous_checkpointing": True, "num_checkpoints": BLOCKS},
    {"partition_activations": True},
    {"checkpoint_in_cpu": True, "synchronize": True},
    {
        "partition_activations": True,
        "contiguous_checkpointing": True,
        "num_checkpoints": BLOCKS,
        "checkpoint_in_cpu": True,
        "synchronize": True,
        "profile": True,
    },
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test begins, and ends, with the default configuration."""
    checkpointing.state.__init__()  # type: ignore[misc]
    checkpointing.get_cuda_rng_tracker().reset()
    yield
    checkpointing.state.__init__()  # type: ignore[misc]
    checkpointing.get_cuda_rng_tracker().reset()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 64)
        self.down = torch.nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.up(self.norm(x)))
        return x + torch.nn.functional.dropout(self.down(hidden), 0.25)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(11, 16)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(BLOCKS))
        self.tokens = torch.randint(0, 11, (5, 5))

    def forward(self, call: Callable[..., Any]) -> Any:
        x = self.embedding(self.tokens)
        for block in self.blocks:
            x = call(block, x)
        return x


def plain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def torchs(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return torchs_checkpoint(function, *args, use_reentrant=False, **kwargs)


def gradients(model: Model, call: Callable[..., Any]) -> list[torch.Tensor]:
    """Of all params, with the random number that is drawn next."""
    torch.manual_seed(1)
    model.zero_grad()
    model(call).square().sum().backward()
    return [param.grad.clone() for param in model.parameters()] + [torch.rand(1)]  # type: ignore[union-attr]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


# ---- Bits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: "+".join(flags) or "none")
def test_gradients_have_the_bits_of_a_run_without(flags: dict[str, Any]) -> None:
    model = Model()
    expected = gradients(model, plain)
    assert equal(expected, gradients(model, torchs))
    checkpointing.configure(None, **flags)
    for _ in range(3):
        assert equal(expected, gradients(model, checkpointing.checkpoint))
    assert equal(expected, gradients(model, checkpointing.non_reentrant_checkpoint))


def test_checkpoints_beside_and_within_each_other() -> None:
    model = Model()
    expected = gradients(model, plain)
    ours = checkpointing.checkpoint
    checkpointing.configure(None, contiguous_checkpointing=True, profile=True)
    pairs = [(ours, ours), (ours, torchs), (torchs, ours)]
    for outer, inner in pairs:
        nested = lambda block, x, o=outer, i=inner: o(lambda y: i(block, y), x)  # noqa: E731
        assert equal(expected, gradients(model, nested))
    turns = iter([ours, torchs] * BLOCKS)
    assert equal(expected, gradients(model, lambda block, x: next(turns)(block, x)))
    with torch.autograd.graph.save_on_cpu():
        assert equal(expected, gradients(model, ours))


def test_arguments_of_any_kind() -> None:
    """Nested, by keyword, without gradients, no tensors, several outputs."""
    weight = torch.randn(4, 4, requires_grad=True)

    def function(pair: Any, *, scale: float, parts: dict[str, Any], mask: torch.Tensor) -> Any:
        (x, count), name = pair
        assert name == "name" and parts["none"] is None
        y = torch.where(mask, x @ weight, parts["y"][0]).exp() * scale
        return {"y": y, "rest": [y.sum(), count, x * parts["y"][0]]}

    def run(call: Callable[..., Any]) -> list[torch.Tensor]:
        x = torch.arange(16.0).view(4, 4).div(9).requires_grad_()
        y = torch.ones(4, 4, requires_grad=True)
        mask = torch.eye(4) > 0
        out = call(
            function, ((x * 2, 3), "name"), scale=0.5, parts={"y": [y], "none": None}, mask=mask
        )
        assert out["rest"][1] == 3
        (out["y"].sum() + out["rest"][0] * 3 + out["rest"][2].sum()).backward()
        found = [x.grad, y.grad, weight.grad]
        weight.grad = None
        return found  # type: ignore[return-value]

    expected = run(plain)
    for flags in FLAGS:
        checkpointing.configure(None, **flags)
        assert equal(expected, run(checkpointing.checkpoint))


def test_inputs_without_gradients_still_train_the_params() -> None:
    block, x = Block(), torch.randn(2, 16)
    checkpointing.checkpoint(block, x).sum().backward()
    assert all(param.grad is not None for param in block.parameters())


def test_autograd_grad_and_retained_graphs_and_second_derivatives() -> None:
    x = torch.randn(5, requires_grad=True)
    results = []
    for call in (plain, checkpointing.checkpoint):
        y = call(lambda v: (v.sin() * v.exp()).sum(), x * 1)
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
        (again,) = torch.autograd.grad(y, x, retain_graph=True)
        results.append([first.detach(), second, again])
    assert equal(*results)


def test_a_node_that_reads_its_tensors_twice() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, x * 2)
            return x * x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient * (ctx.saved_tensors[0] + ctx.saved_tensors[1] / 2) * 2

    x = torch.randn(3, requires_grad=True)
    calls = []
    checkpointing.checkpoint(lambda v: (calls.append(1), Twice.apply(v).sum())[1], x * 1).backward()
    torch.testing.assert_close(x.grad, x.detach() * 4)
    assert len(calls) == 3  # once more than usual


def test_autocast_is_as_it_was() -> None:
    model = Model()
    checkpointing.configure(None, contiguous_checkpointing=True)
    results = []
    for call in (plain, checkpointing.checkpoint):
        torch.manual_seed(1)
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(call).float().square().sum()
        loss.backward()  # outside of it
        results.append([param.grad.clone() for param in model.parameters()])  # type: ignore[union-attr]
    assert equal(*results)


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_compiled_models_and_blocks() -> None:
    """A model that is compiled breaks at each checkpoint; blocks that are compiled stay so."""
    model = Model()
    for block in model.blocks:
        block.eval()  # compiled dropout draws other numbers
    expected = gradients(model, plain)
    compiled: Any = torch.compile(model, backend="aot_eager")
    compiled(checkpointing.checkpoint)
    assert equal(expected, gradients(compiled, checkpointing.checkpoint))
    for block in model.blocks:
        block.compile(backend="aot_eager")
    assert equal(expected, gradients(model, checkpointing.checkpoint))


def test_strides_come_back() -> None:
    base = torch.randn(4, 6, 5)
    for tensor in (
        base,
        base.permute(2, 0, 1),
        base[:, ::2, 1:3],
        base[0].expand(3, 6, 5),
        base[:, :1].expand(4, 7, 5).transpose(0, 2),
        base.view(-1).unfold(0, 4, 2),
        base[:0],
        torch.tensor(3.0),
    ):
        layout = Layout(tensor)
        flat = layout.flatten(tensor).clone()
        assert flat.dim() == 1 and flat.numel() == layout.size
        again = layout.rebuild(flat)
        assert torch.equal(again, tensor)
        if not overlaps(layout.core, layout.strides):
            assert again.stride() == tensor.stride()


def test_without_gradients_it_only_calls() -> None:
    block, x = Block().eval(), torch.randn(2, 16)
    checkpointing.configure(None, contiguous_checkpointing=True, num_checkpoints=1, profile=True)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            outs = [checkpointing.checkpoint(block, x) for _ in range(3)]
        assert not outs[0].requires_grad
    assert checkpointing.profile_summary().forwards == 0


# ---- Random numbers -----------------------------------------------------------------------------


def test_the_tracker_draws_on_and_is_replayed() -> None:
    tracker = checkpointing.get_cuda_rng_tracker()
    checkpointing.model_parallel_cuda_manual_seed(7)
    with tracker.fork():
        first = torch.rand(3)
        with tracker.fork():  # in use already: it goes on
            second = torch.rand(3)
    outside = torch.rand(3)
    checkpointing.model_parallel_cuda_manual_seed(7)
    with tracker.fork():
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.rand(3), outside)
    states = tracker.get_states()
    with tracker.fork():
        assert torch.equal(torch.rand(3), second)
    tracker.set_states(states)
    with tracker.fork():
        assert torch.equal(torch.rand(3), second)
    checkpointing.model_parallel_reconfigure_tp_seed(7)
    with tracker.fork():
        assert torch.equal(torch.rand(3), first)

    def noisy(x: torch.Tensor) -> torch.Tensor:
        with tracker.fork():
            x = torch.nn.functional.dropout(x)
        return torch.nn.functional.dropout(x.sin())

    results = []
    for call in (plain, checkpointing.checkpoint):
        checkpointing.model_parallel_cuda_manual_seed(3)
        x = torch.ones(99, requires_grad=True)
        call(noisy, call(noisy, x)).sum().backward()
        with tracker.fork():
            results.append([x.grad, torch.rand(2)])
    assert equal(*results)  # type: ignore[arg-type]


def test_misuse_of_the_tracker() -> None:
    tracker = checkpointing.RNGStatesTracker("cpu")
    tracker.add("one", 1)
    tracker.add("two", 2)
    with pytest.raises(meron.ArgumentError, match="exists already"):
        tracker.add("one", 3)
    with pytest.raises(meron.ArgumentError, match="seed 1"):
        tracker.add("three", 1)
    with (
        pytest.raises(meron.ArgumentError, match="no random state named 'four'"),
        tracker.fork("four"),
    ):
        pass
    with tracker.fork("one"), pytest.raises(meron.StateError):
        tracker.reset()
    with tracker.fork("one"), tracker.fork("two"), pytest.raises(meron.StateError, match="within"):
        tracker.fork("one").__enter__()
    with pytest.raises(meron.ArgumentError, match="model_parallel_cuda_manual_seed"):
        checkpointing.model_parallel_reconfigure_tp_seed(3)


# ---- Memory -------------------------------------------------------------------------------------


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of storages that operators made within it and that still live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {tensor.untyped_storage()._cdata for tensor in tensors_in([args, kwargs])}
        for tensor in tensors_in(out):
            if tensor.untyped_storage()._cdata not in given:  # it is no view
                self.see(tensor.untyped_storage())
        return out

    def see(self, storage: Any) -> None:
        key = storage._cdata
        if key not in self.known:
            size = storage.nbytes()
            self.known[key] = weakref.ref(storage, lambda _: self.lose(key, size))
            self.now += size
            self.peak = max(self.peak, self.now)

    def lose(self, key: int, size: int) -> None:
        del self.known[key]
        self.now -= size


def kept_bytes(model: Model, call: Callable[..., Any]) -> tuple[int, int]:
    """Live bytes after a forward, its output left out, and the most in the backward."""
    model.zero_grad()
    for param in model.parameters():
        param.grad = torch.zeros_like(param)  # not made within
    with LiveBytes() as live:
        out = model(call)
        after = live.now - out.nbytes
        live.peak = 0
        out.sum().backward()
    return after, live.peak


def test_kept_bytes_fall_as_predicted() -> None:
    model = Model()
    full, full_peak = kept_bytes(model, plain)
    assert full > 10 * BLOCKS * X
    kept, peak = kept_bytes(model, checkpointing.checkpoint)
    assert kept == BLOCKS * X
    assert peak < full_peak / 2  # one block's recomputation beside what is kept

    checkpointing.configure(None, contiguous_checkpointing=True, num_checkpoints=2 * BLOCKS)
    for _ in range(2):
        kept, _ = kept_bytes(model, checkpointing.checkpoint)
    assert checkpointing.state.keeper.arenas.bytes == 2 * BLOCKS * X
    assert kept == 0  # the buffer is from the first time
    checkpointing.reset()
    assert checkpointing.state.keeper.arenas.bytes == 0

    checkpointing.configure(None, contiguous_checkpointing=False, checkpoint_in_cpu=True)
    assert kept_bytes(model, checkpointing.checkpoint)[0] == BLOCKS * X  # on the host


def test_kept_bytes_of_example_03(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a GPT, blocks keep their inputs only: width * 4 bytes per position."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "examples" / "03_gpt")
    from gpt.model import GPT

    layers, width, batch, length = 4, 64, 2, 32
    inputs = layers * batch * length * width * 4
    tokens = torch.randint(0, 256, (batch, length))

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = GPT(width, layers, 2, length)

        def forward(self, call: Callable[..., Any]) -> Any:
            self.gpt.run = call
            return self.gpt(tokens)

    model: Any = Wrapped()
    rest, _ = kept_bytes(model, lambda _block, x: x)  # embeddings, the last norm
    full, full_peak = kept_bytes(model, plain)
    for flags in FLAGS:
        checkpointing.configure(None, {}, **flags)
        for _ in range(2):  # a buffer is made in the second
            kept_bytes(model, checkpointing.checkpoint)
        kept, peak = kept_bytes(model, checkpointing.checkpoint)
        kept += checkpointing.state.keeper.arenas.bytes
        peak += checkpointing.state.keeper.arenas.bytes
        assert kept == inputs + rest
        # One block's saved tensors at a time, in place of those of all.
        assert peak <= full_peak - (full - rest) + inputs + (full - rest) // layers


def test_arguments_are_released_as_the_backward_goes() -> None:
    model = Model()
    alive: list[int] = []
    checkpointing.configure(None, profile=True)
    for block in model.blocks:
        block.register_forward_pre_hook(
            lambda *_: alive.append(checkpointing.profile_summary().kept_bytes)
        )
    model(checkpointing.checkpoint).sum().backward()
    assert alive == [n * X for n in (1, 2, 3, 4, 4, 3, 2, 1)]
    assert checkpointing.profile_summary().kept_bytes == 0


def test_a_buffer_that_counts_for_itself_and_grows() -> None:
    model = Model()
    checkpointing.configure(None, contiguous_checkpointing=True)
    arenas = checkpointing.state.keeper.arenas
    model(checkpointing.checkpoint).sum().backward()
    assert arenas.bytes == 0
    model(checkpointing.checkpoint).sum().backward()
    assert arenas.bytes == BLOCKS * X
    model.tokens = torch.randint(0, 11, (3, 9))
    expected = gradients(model, plain)
    assert equal(gradients(model, checkpointing.checkpoint), expected)
    assert arenas.bytes == BLOCKS * 3 * 9 * 16 * 4


class Copies:
    """In place of copies between a device and the host: what comes and goes."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.numbers: dict[int, int] = {}

    def to_host(self, flat: torch.Tensor, place: torch.Tensor) -> None:
        place.copy_(flat)
        assert flat.nbytes == X
        self.numbers[place.data_ptr()] = number = len(self.log)
        self.log.append(f"out {number}")

    def begin_back(self, place: torch.Tensor, device: torch.device) -> Any:
        number = self.numbers[place.data_ptr()]
        self.log.append(f"fetch {number}")
        return place.clone(), number

    def end_back(self, tensor: torch.Tensor, event: int) -> torch.Tensor:
        self.log.append(f"use {event}")
        return tensor


@pytest.mark.parametrize("flags", [{}, {"contiguous_checkpointing": True, "num_checkpoints": 4}])
def test_activations_of_a_device_go_to_the_host(
    flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the copies replaced: this host has no GPU."""
    monkeypatch.setattr(checkpointing.keeping, "is_on_host", lambda _: False)
    allocate = checkpointing.arena.allocate
    for module in (checkpointing.arena, checkpointing.keeping):
        unpinned = lambda size, kind: allocate(size, kind._replace(pinned=False))  # noqa: E731
        monkeypatch.setattr(module, "allocate", unpinned)
    model = Model()
    expected = gradients(model, plain)
    checkpointing.configure(checkpoint_in_cpu=True, **flags)
    copies: Any = Copies()
    checkpointing.state.keeper.copies = copies
    assert equal(expected, gradients(model, checkpointing.checkpoint))
    # Each is on its way while the one that is needed before it is used.
    backward = "fetch 3 fetch 2 use 3 fetch 1 use 2 fetch 0 use 1 use 0"
    assert " ".join(copies.log) == "out 0 out 1 out 2 out 3 " + backward
    copies.log.clear()
    loss = model(checkpointing.checkpoint).square().sum()
    for _ in range(2):
        loss.backward(retain_graph=True)
    uses = [line for line in copies.log if line.startswith("use")]
    assert uses == ["use 3", "use 2", "use 1", "use 0"] * 2
    kinds = list(checkpointing.state.keeper.arenas.by_kind)
    assert [kind.pinned for kind in kinds] == [True] * len(kinds) and len(kinds) == len(flags) // 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: "+".join(flags) or "none")
def test_on_a_gpu(flags: dict[str, Any]) -> None:
    model = Model().cuda()
    model.tokens = model.tokens.cuda()
    expected = gradients(model, plain)
    checkpointing.configure(None, **flags)
    for _ in range(3):
        assert equal(expected, gradients(model, checkpointing.checkpoint))


# ---- Misuse -------------------------------------------------------------------------------------


def test_two_backwards_are_refused_by_torch() -> None:
    out = checkpointing.checkpoint(Block(), torch.randn(2, 16, requires_grad=True)).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_an_exception_leaves_everything_usable() -> None:
    model = Model()
    expected = gradients(model, plain)
    fails: list[int] = []

    def failing(block: Any, x: torch.Tensor) -> torch.Tensor:
        if len(fails) and fails.pop():
            raise KeyError("in the function")
        return block(x)  # type: ignore[no-any-return]

    checkpointing.configure(None, contiguous_checkpointing=True, num_checkpoints=BLOCKS)
    call = lambda block, x: checkpointing.checkpoint(failing, block, x)  # noqa: E731
    for turn in (2, BLOCKS + 2):  # in the forward, and in a recomputation
        fails[:] = [0] * (BLOCKS * 2 - turn) + [1] + [0] * (turn - 1)
        with pytest.raises(KeyError):
            gradients(model, call)
        fails.clear()
        assert checkpointing.frame.active.depth == 0 and not torch.is_autocast_enabled("cpu")
        assert equal(expected, gradients(model, call))


def test_a_failed_backward_can_be_run_again() -> None:
    x = torch.randn(4, requires_grad=True)
    fail = [False]

    def function(v: torch.Tensor) -> torch.Tensor:
        if fail[0]:
            raise OSError("drive")
        return v.sin() * v.cos()

    loss = checkpointing.checkpoint(function, x * 1).sum()
    fail[0] = True
    with pytest.raises(OSError, match="drive"):
        loss.backward(retain_graph=True)
    fail[0] = False
    loss.backward()
    torch.testing.assert_close(x.grad, (2 * x.detach()).cos())


@pytest.mark.parametrize("change", ["shape", "fewer", "dtype"])
def test_a_function_that_does_something_else_the_second_time(change: str) -> None:
    again: list[int] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        if again:
            if change == "fewer":
                return x
            x = x.double() if change == "dtype" else x[:1]
        again.append(1)
        return x.exp().sin()

    out = checkpointing.checkpoint(function, torch.ones(3, requires_grad=True) * 1)
    with pytest.raises(meron.StateError, match="must do the same"):
        out.sum().backward()


def test_an_argument_that_is_changed_in_place() -> None:
    x = torch.ones(3, requires_grad=True) * 1
    out = checkpointing.checkpoint(lambda v: v.exp().sin(), x)
    x.add_(1)
    with pytest.raises(meron.StateError, match="changed in place"):
        out.sum().backward()


def test_more_checkpoints_than_said() -> None:
    model = Model()
    checkpointing.configure(None, contiguous_checkpointing=True, num_checkpoints=2)
    with pytest.raises(meron.StateError, match="number_checkpoints is 2"):
        model(checkpointing.checkpoint)
    checkpointing.configure(num_checkpoints=BLOCKS)
    outs = [model(checkpointing.checkpoint)]
    with pytest.raises(meron.StateError, match=r"reset\(\)"):
        model(checkpointing.checkpoint)
    checkpointing.reset()
    outs.append(model(checkpointing.checkpoint))
    for out in outs:
        out.sum().backward()


def test_configure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not checkpointing.is_configured()
    block = {
        "partition_activations": True,
        "cpu_checkpointing": True,
        "contiguous_memory_optimization": True,
        "number_checkpoints": 3,
        "synchronize_checkpoint_boundary": True,
        "profile": "auto",
    }
    config = {"train_batch_size": 3, "activation_checkpointing": block}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    attributes = type("Config", (), {"activation_checkpointing_config": type("Block", (), block)})
    for source in (config, path, str(path), attributes()):
        checkpointing.configure(None, source)
        settings = checkpointing.state.settings
        assert (settings.partition, settings.to_host, settings.contiguous) == (True, True, True)
        assert (settings.count, settings.synchronize, settings.profile) == (3, True, False)
    checkpointing.configure(None, config, partition_activations=False, profile=True)
    assert not checkpointing.state.settings.partition and checkpointing.state.settings.count == 3
    checkpointing.partition_activations_in_checkpoint(True)
    checkpointing.set_num_layers(5)
    settings = checkpointing.state.settings
    assert settings.partition and settings.count == 5 and settings.to_host
    assert checkpointing.is_configured()
    checkpointing.reset()
    assert "0 recomputations" in capsys.readouterr().out
    checkpointing.configure(None, {})  # all defaults again
    assert not checkpointing.state.settings.partition


def test_misuse_of_configure(tmp_path: Path) -> None:
    configure = checkpointing.configure
    with pytest.raises(TypeError):
        configure(None, partition_activation=True)  # type: ignore[call-arg]
    with pytest.raises(meron.ArgumentError, match="'partition_activations'"):
        configure(None, {"activation_checkpointing": {"partition_activation": True}})
    with pytest.raises(meron.ArgumentError, match="number_checkpoints is 0"):
        configure(None, num_checkpoints=0)
    with pytest.raises(meron.ArgumentError, match="profile is 'yes'"):
        configure(None, profile="yes")  # type: ignore[arg-type]
    with pytest.raises(meron.ArgumentError, match="without activation_checkpointing"):
        configure(None, 3)
    with pytest.raises(meron.ArgumentError, match="get_model_parallel_group"):
        configure(object(), partition_activations=True)
    with pytest.raises(FileNotFoundError):
        configure(None, tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(meron.ParseError, match=r"bad\.json"):
        configure(None, tmp_path / "bad.json")
    assert not checkpointing.is_configured()
    mpu = type("Mpu", (), {"get_model_parallel_group": lambda _: None})()
    configure(mpu, partition_activations=True)
    with pytest.raises(meron.StateError, match="init_process_group"):
        checkpointing.checkpoint(torch.sin, torch.ones(2, requires_grad=True) * 1)


def test_meron_alone_imports_no_torch() -> None:
    code = "import sys, meron; assert 'torch' not in sys.modules, 'torch'"
    done = run_ranks(1, source=code)
    assert done.returncode == 0, done.stderr


# ---- Several ranks ------------------------------------------------------------------------------

PARTITIONED = """
import os, sys
sys.path.insert(0, {here!r})
import torch, torch.distributed as dist
import meron, test_checkpointing as tests
from meron import checkpointing

rank, ranks = int(os.environ["MERON_RANK"]), int(os.environ["MERON_WORLD_SIZE"])
dist.init_process_group("gloo", init_method="file://{folder}/meet", rank=rank, world_size=ranks)

class Mpu:
    def get_model_parallel_group(self):
        return dist.group.WORLD
    def get_model_parallel_rank(self):
        return rank

model = tests.Model()
expected = tests.gradients(model, tests.plain)
part = -(-tests.X // 4 // ranks) * 4
for flags in tests.FLAGS[1], tests.FLAGS[3], tests.FLAGS[5]:
    flags = dict(flags, partition_activations=True)
    checkpointing.state.__init__()
    checkpointing.configure(Mpu(), **flags)
    for _ in range(2):
        assert tests.equal(expected, tests.gradients(model, checkpointing.checkpoint)), flags
    kept, _ = tests.kept_bytes(model, checkpointing.checkpoint)
    buffer = checkpointing.state.keeper.arenas.bytes
    assert kept + buffer == tests.BLOCKS * part, (flags, kept, buffer)

# Each rank draws its own numbers in a fork, and the same outside.
checkpointing.model_parallel_cuda_manual_seed(5)
with checkpointing.get_cuda_rng_tracker().fork():
    own = torch.rand(1)
found = [torch.zeros(2) for _ in range(ranks)]
dist.all_gather(found, torch.cat([own, torch.rand(1)]))
assert len({{float(each[0]) for each in found}}) == ranks
assert len({{float(each[1]) for each in found}}) == 1

# Params sharded over the ranks 0 and 1, which have parts of the same activations too.
pair = dist.new_group([0, 1])
if rank < 2:
    class Pair:
        def get_tensor_model_parallel_group(self):
            return pair
    import meron.torch as mt
    checkpointing.configure(Pair(), {{}}, partition_activations=True, contiguous_checkpointing=True)
    sharded = mt.shard(tests.Model(), units=tests.Block, plan="zero3", group=pair)
    optimizer = mt.shard_optimizer(sharded, torch.optim.SGD(sharded.parameters(), lr=0.1))
    for _ in range(2):
        torch.manual_seed(1)
        sharded(checkpointing.checkpoint).square().sum().backward()
        found = [mt.full_grad(param) for param in sharded.parameters()]
        assert tests.equal(found, expected[:-1])
        optimizer.zero_grad()
dist.barrier()

# Activations that differ are no parts of one.
checkpointing.configure(Mpu())
with torch.no_grad():
    model.embedding.weight.add_(rank)
try:
    model(checkpointing.checkpoint)
except meron.MismatchError as error:
    assert "partition_activations" in str(error) and error.peer == 1
else:
    raise AssertionError("no error")
dist.barrier()
dist.destroy_process_group()
"""


def test_partitioned_activations(tmp_path: Path) -> None:
    source = PARTITIONED.format(here=str(Path(__file__).parent), folder=tmp_path)
    done = run_ranks(3, source=source)
    assert done.returncode == 0, done.stdout + done.stderr


SHARDED = """
import torch
import meron.torch as mt
from meron import checkpointing

checkpointing.configure(None, contiguous_checkpointing=True, checkpoint_in_cpu=True)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.linear = torch.nn.Linear(16, 32)
        self.weight = torch.nn.Parameter(torch.randn(16, 32) / 8)
    def forward(self, x, scale):
        x = x + torch.relu(self.linear(self.norm(x))) @ self.weight.t() * scale
        return x, None

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 16)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
        self.head = torch.nn.Linear(16, 11, bias=False)
        self.head.weight = self.embedding.weight
    def forward(self, tokens):
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x, _ = checkpointing.checkpoint(block, x, scale=2) if i != 1 else block(x, 2)
            self.check(block)
        return self.head(x)
    def check(self, block):
        for param in block.parameters():
            if hasattr(param, "_meron"):
                assert param._meron[0].uses == 0

def build():
    return Model()

def batch(generator):
    return torch.randint(0, 11, (2, 9), generator=generator)

def loss(model, tokens):
    return torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1),
                                             tokens[:, 1:].flatten())

def shard(model, plan):
    return mt.shard(model, units=Block, plan=plan)
"""


def test_sharded_units_are_gathered_again() -> None:
    """Losses and weights are those of one process without sharding, bit by bit."""
    runs = compare(SHARDED, 2, ("zero1", "zero3"), steps=3)
    for run in runs.values():
        run.check()


def test_a_sharded_model_after_a_recomputation_that_failed() -> None:
    import meron.torch as mt

    model = mt.shard(Model(), units=Block, plan="zero3")
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    twin = Model()
    expected = gradients(twin, plain)
    fails = [0, 1]

    def failing(block: Any, x: torch.Tensor) -> torch.Tensor:
        x = block(x)
        if torch._C._current_graph_task_id() != -1 and fails and fails.pop(0):
            raise KeyError("late in a recomputation")
        return x  # (whose block has saved what is needed: early stop would not come here)

    def never_stopped(block: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpointing.checkpoint(lambda y: failing(block, y).exp().log(), x)  # type: ignore[no-any-return]

    with pytest.raises(KeyError):
        model(never_stopped).sum().backward()
    torch.manual_seed(1)
    optimizer.zero_grad()  # also of blocks that came before the failure
    model(checkpointing.checkpoint).square().sum().backward()
    found = [mt.full_grad(param) for param in model.parameters()]
    assert equal(found, expected[:-1])  # type: ignore[arg-type]
