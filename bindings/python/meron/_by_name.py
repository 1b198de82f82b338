# SPDX-License-Identifier: Apache-2.0
"""Params by name: units and gathers as mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from meron import errors
from meron.param import Param

T = TypeVar("T")


class HasParams(Protocol):
    """A unit."""

    params: tuple[Param, ...]


class NoParamError(errors.ArgumentError, KeyError):
    """There is no param of that name here."""


class ByName(Mapping[str, T], Generic[T]):
    """A mapping of params, or of what belongs to them, by param and by name. Its keys are names.

    It is equal to itself only, and always true.
    """

    __slots__ = ()

    def _params_by_name(self) -> Mapping[str, Param]:
        raise NotImplementedError

    def _find(self, key: Param | str) -> Param:
        """The param that is meant. NoParamError for a name that is not here; TypeError."""
        return find(key, self._params_by_name, self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._params_by_name())

    def __len__(self) -> int:
        return len(self._params_by_name())

    def __contains__(self, key: object) -> bool:
        params = self._params_by_name()
        if isinstance(key, Param):
            return params.get(key.name) is key
        return key in params

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            return default
        return self[key]

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def find(key: Param | str, named: Callable[[], Mapping[str, Param]], owner: object) -> Param:
    """`key`, or the param of that name among those of `owner`."""
    if isinstance(key, Param):
        return key
    if not isinstance(key, str):
        raise TypeError(f"expected a meron.Param or the name of one, not {key!r}")
    params = named()
    found = params.get(key)
    if found is None:
        names = ", ".join(map(repr, list(params)[:8])) + (", ..." if len(params) > 8 else "")
        raise NoParamError(
            f"{owner} has no param {key!r}", subject=key, advice=f"It has {names or 'none'}"
        )
    return found


def named_params(units: Iterable[HasParams]) -> dict[str, Param]:
    """The params of units by name."""
    return {param.name: param for unit in units for param in unit.params}
