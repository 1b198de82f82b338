# SPDX-License-Identifier: Apache-2.0
"""load_pretrained(): weights as Hugging Face publishes them, straight into shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import torch

from meron import errors
from meron._call_names import calling
from meron.checkpoint import Checkpoint
from meron.torch.checkpoint.agreement import LoadError, together
from meron.torch.checkpoint.compare import Differences
from meron.torch.checkpoint.deferred import fill_buffers, refuse_meta_buffers
from meron.torch.checkpoint.load import LEFT_ALONE, Loaded, put, trainers, units_of
from meron.torch.checkpoint.names import Models, Names, Place
from meron.torch.checkpoint.reading import Reader, open_together
from meron.torch.checkpoint.save import check_in_use
from meron.torch.optim.replacement import trained_by

Sources = Union[str, Sequence[str], None]
Mapped = Union[Mapping[str, Sources], Callable[[str], Sources], None]
Convert = Callable[..., torch.Tensor]


@calling("mt.load_pretrained")
def load_pretrained(
    model: Models,
    path: str | os.PathLike[str],
    *,
    strict: bool = True,
    mapping: Mapped = None,
    convert: Mapping[str, Convert] | None = None,
    rank0_only: bool = False,
) -> Loaded:
    """Loads safetensors files into a sharded model; each rank reads its part. Collective.

    No rank has more of the model than its shards, also of a model built on the device meta and
    sharded with init="defer". Values take the params' dtypes; f32 masters take those of the files.
    Optimizers keep their states. A prefix that all names lack or have, such as "model.", is found
    by itself; tied weights need one of their names only.

        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        mt.shard(model, units=LlamaDecoderLayer, init="defer")
        mt.load_pretrained(model, "Llama-3-8B")

    Args:
        path: a directory with model.safetensors or its index, or one file; or a checkpoint.
        strict: False leaves alone what the other side lacks.
        mapping: other names: {param: tensor}, {param: [tensors]} (one after the other along the
            first dimension), or a function from a param's name to either; None leaves it as found.
        convert: {param: function of its tensors} that returns the param, for changes that
            `mapping` cannot express, such as a transpose. Each rank reads those tensors whole.
        rank0_only: only rank 0 sees the files, and sends the others their parts.

    Raises, on all ranks, before anything has changed: NotFoundError, CorruptError, ParseError,
    LoadError (what is missing, unexpected and of another shape), StateError (a param is in use, or
    a buffer is on meta and nothing fills it). Later: InputOutputError, GroupError.
    """
    names = Names(model)
    context = names.sharding.context
    with together(context):
        check_in_use(names)
        refuse_meta_buffers(names)
    try:
        checkpoint, chosen = open_together(context, path, None, rank0_only)
    except errors.NotFoundError as error:
        error._add(
            "load_pretrained reads local files: for a model of the Hugging Face Hub pass what "
            "huggingface_hub.snapshot_download returns."
        )
        raise
    convert = dict(convert or {})
    found = Differences()
    sources: dict[str, list[str]] = {}
    with together(context):
        sources = sources_of(names, checkpoint, mapping)
        found = compare(names, checkpoint, sources, convert)
        wrong = found.text(strict)
        if wrong:
            raise LoadError(
                f"the files do not fit the model: {wrong}",
                subject=str(checkpoint.path),
                advice="Give a mapping, or strict=False." if strict else "",
            )
    reader = Reader(context, checkpoint, rank0_only)
    if reader.rank0_only:
        others, converted, masters = read(names, reader, sources, convert)
    else:
        with together(context):
            others, converted, masters = read(names, reader, sources, convert)
    apply(names, path, chosen, rank0_only, sources, others, converted, masters)
    return Loaded(
        path=str(checkpoint.path),
        step=checkpoint.step,
        world=checkpoint.world,
        extra=checkpoint.extra,
        missing=found.missing,
        unexpected=found.unexpected,
    )


# ---- Names --------------------------------------------------------------------------------------


def sources_of(names: Names, checkpoint: Checkpoint, mapping: Mapped) -> dict[str, list[str]]:
    """The tensors of each param and buffer, as far as there are any."""
    there = {name for kind, name in checkpoint.tensors if kind == "values"}
    wanted = [*names.params, *names.others]
    sources: dict[str, list[str]] = {}
    for name in wanted:
        given = asked(mapping, names.all_names(name))
        if given is not None:
            sources[name] = [given] if isinstance(given, str) else list(given)
            lacking = [each for each in sources[name] if each not in there]
            if lacking or not sources[name]:
                raise errors.argument(
                    f"mapping has {sources[name]} for '{name}', and the files have no {lacking}",
                    subject="mapping",
                )
    if mapping is not None and not callable(mapping):
        known = {each for name in wanted for each in names.all_names(name)}
        unknown = [name for name in mapping if name not in known]
        if unknown:
            raise errors.argument(
                f"mapping has '{unknown[0]}', which the model does not have", subject="mapping"
            )
    rest = [name for name in wanted if name not in sources]
    rename = renaming(names, rest, there)
    for name in rest:
        for each in names.all_names(name):
            other = each if each in there else rename(each)
            if other in there:
                sources[name] = [other]
                break
    return sources


def asked(mapping: Mapped, every: list[str]) -> Sources:
    for name in every:
        given = mapping(name) if callable(mapping) else (mapping or {}).get(name)
        if given is not None:
            return given
    return None


def renaming(names: Names, rest: list[str], there: set[str]) -> Callable[[str], str]:
    """A function that adds a prefix to names that the files do not have, or removes one.

    ArgumentError if several prefixes would do equally well.
    """
    lacking = [n for name in rest for n in names.all_names(name) if n not in there]
    added = {f"{name.split('.')[0]}." for name in there if "." in name}
    taken = {f"{name.split('.')[0]}." for name in lacking if "." in name}
    scores = {("+", prefix): sum(prefix + n in there for n in lacking) for prefix in added}
    scores.update(
        {("-", p): sum(n.startswith(p) and n[len(p) :] in there for n in lacking) for p in taken}
    )
    most = max(scores.values(), default=0)
    best = [way for way, score in scores.items() if score == most]
    if most == 0:
        return lambda name: name
    if len(best) > 1:
        raise errors.argument(
            "the files' names have other prefixes than the model's, and "
            + " and ".join(sorted(f"'{way}{prefix}'" for way, prefix in best))
            + " fit equally well",
            subject="mapping",
            advice="Give a mapping.",
        )
    way, prefix = best[0]
    return (lambda name: prefix + name) if way == "+" else (lambda n: n.removeprefix(prefix))


def compare(
    names: Names,
    checkpoint: Checkpoint,
    sources: dict[str, list[str]],
    convert: dict[str, Convert],
) -> Differences:
    found = Differences()
    used = {each for listed in sources.values() for each in listed}
    wanted = {name: tuple(u.handles[i].shape) for name, (u, i) in names.params.items()}
    wanted.update({name: tuple(tensor.shape) for name, tensor in names.others.items()})
    for name in convert:
        if name not in names.params:
            raise errors.argument(
                f"convert has '{name}', which is no sharded param", subject="convert"
            )
    for name, shape in wanted.items():
        if name not in sources:
            found.missing.append(name)
        elif name not in convert:
            shapes = [tuple(checkpoint.tensors["values", s]["shape"]) for s in sources[name]]
            joined = shapes[0]
            if len(shapes) > 1:
                joined = (sum(each[0] for each in shapes), *shapes[0][1:])
            if joined != shape or any(each[1:] != shape[1:] for each in shapes):
                found.mismatched.append(f"{name} ({list(joined)} in the files, {list(shape)} here)")
    known = used | names.aliases.keys() | names.temporary.keys()
    found.unexpected = sorted(
        name for kind, name in checkpoint.tensors if kind == "values" and name not in known
    )
    found.missing.sort()
    return found


# ---- Values -------------------------------------------------------------------------------------

Read = tuple[dict[str, torch.Tensor], dict[Place, torch.Tensor], list[tuple[Place, torch.Tensor]]]


def read(
    names: Names, reader: Reader, sources: dict[str, list[str]], convert: dict[str, Convert]
) -> Read:
    """Tensors that Python reads itself: buffers, ones to convert, f32 values of 16-bit params."""
    others = {name: reader.whole(sources[name][0]) for name in names.others if name in sources}
    converted: dict[Place, torch.Tensor] = {}
    for name, function in convert.items():
        if name not in sources:
            continue
        unit, i = names.params[name]
        value = function(*[reader.whole(each) for each in sources[name]])
        if tuple(value.shape) != tuple(unit.handles[i].shape):
            raise errors.argument(
                f"convert of '{name}' returned shape {tuple(value.shape)}; the param has "
                f"{tuple(unit.handles[i].shape)}",
                subject=name,
            )
        converted[unit, i] = value.contiguous()
    masters = []
    for unit in names.units():
        for i in sorted(unit.masters) if trained_by(unit) is None else ():
            name = names.of_place.get((unit, i), "")
            if name in sources and (unit, i) not in converted:
                masters.append(((unit, i), joined_part(reader, sources[name], unit.shard_range(i))))
    return others, converted, masters


def joined_part(reader: Reader, sources: list[str], own: range) -> torch.Tensor:
    """Elements of tensors that follow each other along the first dimension."""
    parts, at = [], 0
    for source in sources:
        size = 1
        for length in reader.checkpoint.tensors["values", source]["shape"]:
            size *= length
        low, high = max(own.start, at), min(own.stop, at + size)
        parts.append(reader.part(source, "values", range(low - at, max(high, low) - at)).float())
        at += size
    return torch.cat(parts) if parts else torch.empty(0)


def apply(
    names: Names,
    path: Any,
    chosen: str | None,
    rank0_only: bool,
    sources: dict[str, list[str]],
    others: dict[str, torch.Tensor],
    converted: dict[Place, torch.Tensor],
    masters: list[tuple[Place, torch.Tensor]],
) -> None:
    """Collective."""
    sharding = names.sharding
    sharding.wait_copied()
    sharding.reducer.discard(names.units())
    sharding.reducer.drop_empty()  # of other models
    mapping: dict[str, str | list[str]] = {}
    optimizers = trainers(names)
    touched = units_of(names.units(), optimizers)
    for handle, name in names.mapping(touched).items():
        listed = sources.get(name, [])
        if not listed or names.params[name] in converted:
            mapping[handle] = LEFT_ALONE + handle
        else:
            mapping[handle] = listed[0] if len(listed) == 1 else listed
    sharding.drop(touched)
    sharding.context.load(
        path,
        chosen,
        [each.engine for each in optimizers],
        lenient=True,
        values_only=True,
        rank0_only=rank0_only,
        mapping=mapping,
        claimed=[each for name in others for each in sources[name]],
        units=[unit.unit for unit in touched],
    ).release()
    for (unit, i), values in masters:
        unit.masters[i].copy_(values)
    for (unit, i), value in converted.items():
        sharding.write(unit, {i: value})
    with torch.no_grad():
        for name, value in others.items():
            put(names, name, value)
    for name in sources:
        if name in names.params:
            unit, i = names.params[name]
            unit.unmade.pop(i, None)
    fill_buffers(names)
    sharding.hold(touched)
