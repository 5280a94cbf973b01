"""Picture: a user's own file as the network wants it, and what the network draws as a file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from undirected.errors import FileError

#: Where fewer grey levels than this lie between paper and ink, there is nothing to see.
CONTRAST = 8


def grey(path: Path) -> np.ndarray:
    """The grey levels of a file; what is transparent becomes white."""
    try:
        with Image.open(path) as file:
            picture = file.convert("RGBA")
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such file.") from None
    except (UnidentifiedImageError, OSError) as error:
        raise FileError(f"{path}: no picture, or a damaged one ({type(error).__name__}).") from None
    white = Image.new("RGBA", picture.size, "white")
    return np.asarray(Image.alpha_composite(white, picture).convert("L"), dtype=np.float32)


def ink(levels: np.ndarray, path: Path) -> np.ndarray:
    """From grey levels to ink: 0 on paper, 1 where it is darkest (or, on a dark ground, lightest).

    The ground is what the picture's border shows.
    """
    border = np.concatenate([levels[0], levels[-1], levels[:, 0], levels[:, -1]])
    away = levels - np.median(border)
    if np.abs(away).max() < CONTRAST:
        raise FileError(f"{path}: an empty picture: all of it has about the same grey.")
    away = away if away.max() > -away.min() else -away
    return np.clip(away / away.max(), 0, 1)


def framed(marks: np.ndarray, side: int) -> np.ndarray:
    """The ink in a square of this side, as MNIST's digits are: fitted into 20 of 28 pixels, its mass in the middle.

    A picture that has this size already is left as it is. Images of side 8 are filled.
    """
    if marks.shape == (side, side):
        return marks
    square = place(marks, frame(marks, side))
    return square / square.max()


class Frame(NamedTuple):
    """Where a picture's ink lies, the size that it gets, and where that is put in a square."""

    rows: slice
    columns: slice
    height: int
    width: int
    top: int
    left: int
    side: int


def frame(marks: np.ndarray, side: int) -> Frame:
    """Where the ink of a picture goes in a square of this side."""
    rows, columns = (np.flatnonzero((marks > 0.2).any(axis)) for axis in (1, 0))
    box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    shape = marks[box].shape
    room = side if side < 16 else round(side * 20 / 28)
    scale = room / max(shape)
    height, width = (max(round(size * scale), 1) for size in shape)
    small = place(marks, Frame(*box, height, width, 0, 0, side))
    middle = [float((small.sum(1 - axis) @ np.arange(side)) / small.sum()) for axis in (0, 1)]
    top, left = (
        min(max(round((side - 1) / 2 - m), 0), side - size) for m, size in zip(middle, (height, width), strict=True)
    )
    return Frame(*box, height, width, top, left, side)


def place(levels: np.ndarray, to: Frame) -> np.ndarray:
    """A picture's part in a frame; the rest of the square is zero."""
    part = Image.fromarray(levels[to.rows, to.columns])
    small = part.resize((to.width, to.height), Image.Resampling.BOX)
    square = np.zeros((to.side, to.side), np.float32)
    square[to.top : to.top + to.height, to.left : to.left + to.width] = np.asarray(small, dtype=np.float32)
    return square


def open_picture(path: Path, side: int) -> Tensor:
    """A file as one image, from -1 (paper) to 1 (ink), of shape (1, 1, side, side)."""
    return torch.from_numpy(2 * framed(ink(grey(path), path), side) - 1).view(1, 1, side, side)


def open_mask(path: Path, side: int) -> Tensor:
    """A picture that is white where something is hidden, as a mask of shape (side, side)."""
    small = Image.fromarray(grey(path)).resize((side, side), Image.Resampling.BOX)
    return torch.from_numpy(np.array(small) > 127)


def write_picture(image: Tensor, path: Path, side: int = 280) -> None:
    """An image of shape (1, height, width) as a PNG, dark ink on white, enlarged to `side`."""
    levels = ((1 - image[0].clamp(-1, 1)) * 127.5).round().to(torch.uint8).cpu().numpy()
    Image.fromarray(levels).resize((side, side), Image.Resampling.NEAREST).save(path)
