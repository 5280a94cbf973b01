"""IDX: the file format of MNIST and Fashion-MNIST, read with all checks that the format allows."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np

from undirected.errors import FileError

GZIP = b"\x1f\x8b"


def unpack(path: Path) -> bytes:
    """A file's bytes, decompressed if it is gzip."""
    raw = path.read_bytes()
    if not raw.startswith(GZIP):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise FileError(
            f"{path}: the gzip file is truncated or damaged ({error}). Copy or download it again."
        ) from None


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def parse(content: bytes, path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The array of an IDX file of bytes, which must have this shape."""
    size = 4 + 4 * len(shape)
    if len(content) < size or content[:3] != b"\0\0\x08":
        raise FileError(f"{path}: no IDX file of bytes: it begins with {content[:4].hex(' ') or 'nothing'}.")
    if content[3] != len(shape):
        kinds = {1: "labels", 3: "images"}
        raise FileError(
            f"{path}: holds {kinds.get(content[3], f'{content[3]} dimensions')}, but should hold "
            f"{kinds[len(shape)]}. Were two files swapped?"
        )
    found = struct.unpack(f">{len(shape)}I", content[4:size])
    if found != shape:
        raise FileError(f"{path}: holds {found}, but should hold {shape}. Were two files swapped?")
    if len(content) - size != np.prod(shape):
        raise FileError(
            f"{path}: {len(content)} bytes where {size + int(np.prod(shape))} are due; it is truncated or damaged."
        )
    return np.frombuffer(content, np.uint8, offset=size).reshape(shape)
