"""Packaged: the trained networks that come with the library, by name. Each has a card: data, settings, accuracy."""

from __future__ import annotations

import os
from pathlib import Path

from undirected.errors import FileError

#: NAME.safetensors is a network, NAME.yaml the settings of its training, NAME.md its card.
FOLDER = Path(__file__).parent / "networks"
SUFFIX = ".safetensors"


def names() -> list[str]:
    """The networks in the package.

    >>> "digits" in names()
    True
    """
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def find(name: str | os.PathLike[str]) -> Path | None:
    """The file of a packaged network; None if this is not the name of one.

    A name is a `str` without a folder: `"mnist"` is a name, while `"./mnist"` and `Path("mnist")` are paths. A name
    that is also a file or a run's folder of the user's own, in the current folder, is refused: it could mean either.

    >>> find("digits").name, find("./digits")
    ('digits.safetensors', None)
    """
    if not isinstance(name, str) or name not in names():
        return None
    own = Path(name)
    if own.is_file() or any(own.glob(f"*{SUFFIX}")):
        raise FileError(
            f"{name}: a network in the package, and also a {'file' if own.is_file() else 'folder with networks'} here. "
            f"Write .{os.sep}{name} for your own, or rename it to use the package's."
        )
    return FOLDER / f"{name}{SUFFIX}"


def locate(model: str | os.PathLike[str]) -> Path:
    """The path of a model: a packaged network's file, or what is a path already."""
    path = find(model) or Path(model)
    if path.name == model and not path.suffix and not path.exists():
        raise FileNotFoundError(
            f"{model}: no file here, and no network in the package, which has {', '.join(names())}."
        )
    return path


def is_model(word: str) -> bool:
    """Whether a word on a command line means a model: a .safetensors file, a folder, or a name, even a misspelt one.

    >>> [is_model(word) for word in ("digits", "net.safetensors", "photo.png")]
    [True, True, False]
    """
    path = Path(word)
    is_name = path.name == word and not path.suffix and not path.is_file()
    return word in names() or is_name or path.suffix == SUFFIX or path.is_dir()
