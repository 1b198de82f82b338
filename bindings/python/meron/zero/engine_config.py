# SPDX-License-Identifier: Apache-2.0
"""`engine.config`: the caller's config as a dict, with the attributes of the parsed one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from meron.zero.config import Config, Source


class EngineConfig(dict[str, Any]):
    """The config as it was given, keys as DeepSpeed's: `engine.config["zero_optimization"]`.

    Attributes are those of meron.zero.config.Config, such as `engine.config.stage`. A change of the
    dict has no effect on the engine.
    """

    def __init__(self, table: Mapping[str, Any], parsed: Config) -> None:
        super().__init__(table)
        self.__dict__["_parsed"] = parsed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_parsed" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["_parsed"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_parsed"], name, value)

    def __reduce__(self) -> Any:
        return EngineConfig, (dict(self), self.__dict__["_parsed"])


def as_engine_config(source: Source, parsed: Config) -> Config:
    """The `config` of an engine: a Config that is also a dict."""
    table = source if isinstance(source, Mapping) else parsed.table  # of a file, as it was read
    return cast(Config, EngineConfig(table, parsed))
