"""Folder: what lies in a run's folder. Light to import, for those who only want to know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml

from undirected.errors import FileError

SETTINGS, RESULT, METRICS = "settings.yaml", "result.json", "metrics.csv"


class RunSettings(Protocol):
    """What a run must know, whatever it trains; a task's own settings have more."""

    @property
    def epochs(self) -> int: ...
    @property
    def patience(self) -> int: ...
    @property
    def checkpoint_every(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def devices(self) -> int: ...
    @property
    def strategy(self) -> str: ...
    @property
    def precision(self) -> str: ...
    def as_dict(self) -> dict[str, Any]: ...


Kind = TypeVar("Kind", bound=RunSettings)


def read_settings(out: Path, kind: type[Kind]) -> Kind:
    """The settings of the run in a folder."""
    path = out / SETTINGS
    if not path.is_file():
        raise FileError(f"{out}: no run to resume, for it has no {SETTINGS}.")
    return kind(**yaml.safe_load(path.read_text()))


def read_result(out: Path) -> dict[str, Any]:
    """What the run in a folder gave."""
    if not (out / RESULT).is_file():
        raise FileError(f"{out}: its run is not done.")
    result: dict[str, Any] = json.loads((out / RESULT).read_text())
    return result


def write_result(out: Path, result: dict[str, Any]) -> None:
    """Say that the run in a folder is done, and what it gave."""
    (out / RESULT).write_text(json.dumps(result, indent=2) + "\n")
