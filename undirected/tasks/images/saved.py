"""Saved: a trained network for images, by its name, its file or the folder of its run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from undirected import packaged
from undirected.equilibrium import Tolerance
from undirected.errors import FileError
from undirected.files import load
from undirected.network import UNN
from undirected.tasks.folder import SETTINGS, read_settings
from undirected.tasks.images.model import equilibrium
from undirected.tasks.images.settings import MODEL, Settings

ITERATIONS = 5  #: of a network whose run is not known


@dataclass(frozen=True)
class Saved:
    """A network, and how it was trained if that is known."""

    net: UNN
    settings: Settings | None

    @property
    def iterations(self) -> int:
        return self.settings.iterations if self.settings else ITERATIONS

    @property
    def sweeps(self) -> int | Tolerance:
        """The iterations, or the tolerance of a run at equilibrium."""
        return equilibrium(self.settings.until) if self.settings and self.settings.until else self.iterations

    @property
    def init(self) -> str:
        """Where the class starts."""
        return self.settings.init if self.settings else "zeros"

    @property
    def data(self) -> str | None:
        return self.settings.data if self.settings else None


def open_model(model: str | Path) -> Saved:
    """A network by its name, from a file or a run's folder."""
    path = packaged.locate(model)
    path = path / MODEL if path.is_dir() else path
    if not path.is_file():
        raise FileError(f"{model}: no network there. Give a .safetensors file, or the folder of a run that is done.")
    net = load(path)
    if set(net.variables) != {"x", "h1", "h2", "y"}:
        raise FileError(f"{path}: a network of {', '.join(net.variables)}, not one for images (x, h1, h2, y).")
    return Saved(net.eval(), _settings(model, path))


def _settings(model: str | Path, path: Path) -> Settings | None:
    if packaged.find(model) is not None:
        return Settings(**yaml.safe_load(path.with_suffix(".yaml").read_text()))
    return read_settings(path.parent, Settings) if (path.parent / SETTINGS).is_file() else None
