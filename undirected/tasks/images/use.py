"""Use: classify pictures, draw classes, fill in what is hidden."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undirected.equilibrium import Tolerance
from undirected.errors import QueryError
from undirected.network import UNN
from undirected.solution import Solution
from undirected.tasks.images.data import FASHION
from undirected.tasks.images.model import DRAW, READ, draw, length, read
from undirected.tasks.images.picture import open_mask, open_picture, write_picture
from undirected.tasks.images.saved import open_model
from undirected.tasks.place import Place
from undirected.variable import Partial

SIDES = ("top", "bottom", "left", "right")


@dataclass(frozen=True)
class Label:
    """What a picture was taken for."""

    picture: Path
    name: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Completion:
    """A picture that was filled in, and what it was taken for."""

    path: Path
    name: str
    probability: float


class Session:
    """A network on a device in a precision, ready to be asked."""

    def __init__(self, model: str | Path, seed: int, device: str, precision: str) -> None:
        torch.manual_seed(seed)
        saved = open_model(model)
        net, self.sweeps, self.init = saved.net, saved.sweeps, saved.init
        self.place = Place.of(device, precision)
        self.device, self.dtype = self.place.device, self.place.dtype
        self.net: UNN = net.to(self.device, self.dtype)
        self.side = int(net.variables["x"].shape[-1])
        count = int(net.variables["y"].shape[0])
        self.names = FASHION.classes if saved.data == FASHION.name else tuple(map(str, range(count)))

    def __enter__(self) -> Session:
        self._asking = self.place.asking()
        self._asking.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._asking.__exit__(*reason)

    def picture(self, path: Path) -> Tensor:
        return open_picture(path, self.side).to(self.device, self.dtype)

    def label(self, label: int) -> Tensor:
        if not 0 <= label < len(self.names):
            raise QueryError(f"--class {label}: the network knows the classes 0 to {len(self.names) - 1}.")
        return torch.tensor([label], device=self.device)


def classify(
    model: str | Path,
    pictures: list[Path],
    iterations: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "32",
    out: Path | None = None,
) -> list[Label]:
    """What is on each picture. With `out`, the pictures as the network sees them are written there."""
    with Session(model, seed, device, precision) as session:
        images = torch.cat([session.picture(path) for path in pictures])
        found = read(session.net, images, iterations or session.sweeps, session.init)["y"].float().cpu()
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        for path, image in zip(pictures, images, strict=True):
            write_picture(image.float(), Path(out) / f"{path.stem}.png")
    labels = []
    for path, row in zip(pictures, found, strict=True):
        shares = dict(zip(session.names, row.tolist(), strict=True))
        name = max(shares, key=lambda key: shares[key])
        labels.append(Label(path, name, shares[name], shares))
    return labels


def generate(
    model: str | Path,
    label: int | None = None,
    iterations: int | None = None,
    out: Path | str = "out/images/generated",
    seed: int = 0,
    device: str = "cpu",
    precision: str = "32",
) -> list[Path]:
    """A prototype of a class, or of all, as PNG files."""
    with Session(model, seed, device, precision) as session:
        classes = torch.arange(len(session.names), device=session.device) if label is None else session.label(label)
        drawings = draw(session.net, classes, iterations or session.sweeps)["x"].float()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"class-{number}.png" for number in classes.tolist()]
    for path, drawing in zip(paths, drawings, strict=True):
        write_picture(drawing, path)
    return paths


def fill_in(net: UNN, images: Tensor, hidden: Tensor, labels: Tensor | None, sweeps: int | Tolerance) -> Solution:
    """The images with their hidden pixels found, and the class too unless labels give it.

    What is hidden starts as paper, and the class is read. Then the class is drawn, and from that drawing on, one sweep
    makes the hidden pixels fit the known ones.
    """
    known = Partial(images, known=~hidden)
    if labels is None:
        paper = torch.full_like(images, -1)
        y = net(observe={"x": known}, want="y", order=READ, init={"x": paper}, **length(sweeps))["y"]
    else:
        y = torch.nn.functional.one_hot(labels, int(net.variables["y"].shape[0])).to(images.dtype)
    drawing = draw(net, y, sweeps)["x"]
    return net(observe={"x": known, "y": y}, want="x", order=DRAW, iterations=1, init={"x": drawing})


def hidden_half(side: int, which: str) -> Tensor:
    """A mask of the top, bottom, left or right half."""
    mask = torch.zeros(side, side, dtype=torch.bool)
    half = side // 2
    rows = {"top": slice(half), "bottom": slice(half, None)}.get(which, slice(None))
    columns = {"left": slice(half), "right": slice(half, None)}.get(which, slice(None))
    mask[rows, columns] = True
    return mask


def complete(
    model: str | Path,
    picture: Path,
    hide: str = "bottom",
    label: int | None = None,
    iterations: int | None = None,
    out: Path | str = "out/images/completed",
    seed: int = 0,
    device: str = "cpu",
    precision: str = "32",
) -> Completion:
    """Hide a part of a picture and fill it in; the class, if given, guides it."""
    with Session(model, seed, device, precision) as session:
        image = session.picture(picture)
        mask = hidden_half(session.side, hide) if hide in SIDES else open_mask(Path(hide), session.side)
        if not mask.any():
            raise QueryError(f"--hide {hide}: hides nothing.")
        labels = None if label is None else session.label(label)
        found = fill_in(session.net, image, mask.to(session.device), labels, iterations or session.sweeps)
        shares = found["y"][0].float()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{picture.stem}-completed.png"
    write_picture(found["x"][0].float(), path)
    number = int(shares.argmax())
    return Completion(path, session.names[number], float(shares[number]))
