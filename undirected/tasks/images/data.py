"""Data: scikit-learn's digits, MNIST and Fashion-MNIST as tensors, split into training, validation and test."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from undirected.errors import FileError
from undirected.tasks.images import idx

FILES = {
    "train-images-idx3-ubyte": (60_000, 28, 28),
    "train-labels-idx1-ubyte": (60_000,),
    "t10k-images-idx3-ubyte": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte": (10_000,),
}


@dataclass(frozen=True)
class Source:
    """Where a data set lives, and how its files are recognised."""

    name: str
    url: str
    gzipped: tuple[str, ...]  # MD5 of the published gzip files, in the order of FILES
    unpacked: tuple[str, ...]  # MD5 of what is inside
    classes: tuple[str, ...]


MNIST = Source(
    "mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    tuple("0123456789"),
)
FASHION = Source(
    "fashion-mnist",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
SOURCES = {source.name: source for source in (MNIST, FASHION)}
NAMES = ("digits", *SOURCES)


@dataclass(frozen=True)
class Split:
    """Images from -1 (paper) to 1 (ink), of shape (count, 1, height, width), and their classes."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Images:
    """A data set: what to learn from, what to choose by, what to be tested on."""

    name: str
    classes: tuple[str, ...]
    train: Split
    validation: Split
    test: Split

    @property
    def side(self) -> int:
        return self.train.images.shape[-1]


def load(data: str, validation: int = 10_000) -> Images:
    """A data set by its name, or from a folder with its IDX files.

    MNIST and Fashion-MNIST are looked for in `$UNDIRECTED_DATA` (or its subfolder of that name), then downloaded.
    The validation images are the last ones of the training files; digits, which has no test files, is cut in three.
    """
    if data == "digits":
        return _digits(min(validation, 300))
    if data in SOURCES:
        source = SOURCES[data]
        folder = _folder(source) or _download(source)
    else:
        folder = Path(data)
        if not folder.is_dir():
            raise FileError(f"--data {data}: neither a folder nor one of {', '.join(NAMES)}.")
        source = _recognise(folder)
    x, y, test_x, test_y = (_read(folder, source, i) for i in range(4))
    if not validation < len(y):
        raise FileError(f"validation: {validation} of {len(y)} training images leave none to learn from.")
    cut = len(y) - validation
    images, labels = _pixels(x, 255), torch.from_numpy(y.astype(np.int64))
    return Images(
        source.name,
        source.classes,
        Split(images[:cut], labels[:cut]),
        Split(images[cut:], labels[cut:]),
        Split(_pixels(test_x, 255), torch.from_numpy(test_y.astype(np.int64))),
    )


def _digits(held: int) -> Images:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x = _pixels(x.reshape(-1, 8, 8), 16)
    y = torch.from_numpy(y.astype(np.int64))
    rest, test = train_test_split(np.arange(len(y)), test_size=300, stratify=y, random_state=0)
    train, chosen = train_test_split(rest, test_size=held, stratify=y[rest], random_state=0)
    splits = (Split(x[rows], y[rows]) for rows in (train, chosen, test))
    return Images("digits", MNIST.classes, *splits)


def _pixels(array: np.ndarray, ink: int) -> Tensor:
    return torch.from_numpy(array.astype(np.float32) / (ink / 2) - 1).unsqueeze(1)


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _folder(source: Source) -> Path | None:
    """The folder in $UNDIRECTED_DATA that has the files, if there is one."""
    root = os.environ.get("UNDIRECTED_DATA")
    if not root:
        return None
    for folder in (Path(root) / source.name, Path(root)):
        if any(_find(folder, name) for name in FILES):
            return folder
    return None


def _recognise(folder: Path) -> Source:
    """Which data set a folder holds, by its test labels: Fashion-MNIST's classes are equally frequent, MNIST's not."""
    path = _find(folder, "t10k-labels-idx1-ubyte")
    if path is None:
        raise FileError(f"--data {folder}: has no t10k-labels-idx1-ubyte(.gz). It should hold {', '.join(FILES)}.")
    labels = idx.parse(idx.unpack(path), path, FILES["t10k-labels-idx1-ubyte"])
    balanced = np.bincount(labels, minlength=10).tolist() == [len(labels) // 10] * 10
    return FASHION if balanced else MNIST


def _read(folder: Path, source: Source, number: int) -> np.ndarray:
    """One of the four files, checked."""
    name, shape = list(FILES.items())[number]
    path = _find(folder, name)
    if path is None:
        raise FileError(f"{folder}: {name} (or {name}.gz) is missing. {_where(source)}")
    content = idx.unpack(path)
    array = idx.parse(content, path, shape)
    found = idx.md5(content)
    if found == source.unpacked[number]:
        return array
    for other in SOURCES.values():
        if found in other.unpacked:
            known = list(FILES)[other.unpacked.index(found)]
            raise FileError(f"{path}: this is {other.name}'s {known}, not {source.name}'s {name}.")
    raise FileError(
        f"{path}: not {source.name}'s {name}: its checksum is {found}, but {source.name}'s is "
        f"{source.unpacked[number]}. Copy or download it again."
    )


def _where(source: Source) -> str:
    return (
        f"Put {', '.join(f'{name}.gz' for name in FILES)} from {source.url} into a folder, and name it with --data, or "
        f"call it {source.name} and name the folder around it with $UNDIRECTED_DATA."
    )


def _download(source: Source, retries: int = 2) -> Path:
    """The files from their public home, kept in the user's cache."""
    import pooch

    folder = Path(pooch.os_cache("undirected")) / source.name
    hashes = {f"{name}.gz": f"md5:{md5}" for name, md5 in zip(FILES, source.gzipped, strict=True)}
    store = pooch.create(path=folder, base_url=source.url, registry=hashes, retry_if_failed=retries)
    for name in hashes:
        try:
            store.fetch(name, progressbar=True)
        except (OSError, ValueError) as error:
            raise FileError(
                f"{source.url}{name}: could not be downloaded ({type(error).__name__}). {_where(source)}"
            ) from error
    return folder
