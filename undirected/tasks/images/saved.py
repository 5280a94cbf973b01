"""Saved: a trained network for images, by its name, its file or the folder of its run."""

from __future__ import annotations

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


def open_model(model: str | Path) -> tuple[UNN, int, str | None]:
    """A network by its name, from a file or a run's folder, with the iterations and the data of its run if known."""
    path = packaged.locate(model)
    path = path / MODEL if path.is_dir() else path
    if not path.is_file():
        raise FileError(f"{model}: no network there. Give a .safetensors file, or the folder of a run that is done.")
    net = load(path)
    if set(net.variables) != {"x", "h1", "h2", "y"}:
        raise FileError(f"{path}: a network of {', '.join(net.variables)}, not one for images (x, h1, h2, y).")
    settings = _settings(model, path)
    return net.eval(), settings.iterations if settings else ITERATIONS, settings.data if settings else None


def settled(model: str | Path) -> Tolerance | None:
    """The tolerance of a run that was trained at equilibrium; None for others."""
    path = packaged.locate(model)
    settings = _settings(model, path / MODEL if path.is_dir() else path)
    return equilibrium(settings.until) if settings and settings.until else None


def _settings(model: str | Path, path: Path) -> Settings | None:
    if packaged.find(model) is not None:
        return Settings(**yaml.safe_load(path.with_suffix(".yaml").read_text()))
    return read_settings(path.parent, Settings) if (path.parent / SETTINGS).is_file() else None
