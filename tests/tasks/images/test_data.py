"""Data: expectations come from the file format's definition, published facts about the data sets, and plain loops."""

import gzip
import struct
from dataclasses import replace

import numpy as np
import pytest
import requests
import torch

from undirected.errors import FileError
from undirected.tasks.images import data as module
from undirected.tasks.images import idx
from undirected.tasks.images.data import FASHION, FILES, MNIST, load


def packed(array: np.ndarray) -> bytes:
    """An IDX file, from the format's definition: two zeros, the type (8: bytes), the dimensions, big-endian sizes."""
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    """Files of the right shapes with the wrong contents."""
    for name, shape in FILES.items():
        (tmp_path / name).write_bytes(packed(np.zeros(shape, np.uint8)))
    return tmp_path


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx_files_are_read_packed_or_not(tmp_path, pack):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "images"
    path.write_bytes(pack(packed(array)))
    assert (idx.parse(idx.unpack(path), path, (2, 3, 4)) == array).all()


def test_a_truncated_gzip_file_is_refused_by_name(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(packed(np.arange(250, dtype=np.uint8)))[:-20])
    with pytest.raises(FileError, match=r"images\.gz.*truncated"):
        idx.unpack(path)


def test_a_truncated_file_is_refused_by_name(folder):
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FileError, match=r"train-images-idx3-ubyte.*truncated"):
        load(str(folder))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte"),
    ],
)
def test_swapped_files_are_refused_by_name(folder, a, b):
    (folder / a).rename(folder / "other")
    (folder / b).rename(folder / a)
    (folder / "other").rename(folder / b)
    with pytest.raises(FileError, match=rf"{a}.*swapped"):
        load(str(folder))


def test_files_with_other_contents_are_refused_by_name(folder):
    with pytest.raises(FileError, match=r"train-images-idx3-ubyte.*checksum"):
        load(str(folder))


def test_missing_files_are_named_with_the_place_to_get_them(folder):
    (folder / "train-labels-idx1-ubyte").unlink()
    (folder / "train-images-idx3-ubyte").unlink()
    with pytest.raises(FileError, match=r"train-images-idx3-ubyte.*is missing.*cvdf-datasets"):
        load(str(folder))


def test_fashion_is_recognised_by_its_class_counts_and_checked_by_its_sums(folder, monkeypatch):
    path = folder / "t10k-labels-idx1-ubyte"
    labels = np.repeat(np.arange(10, dtype=np.uint8), 1000)  # published: 1000 test images of each class
    path.write_bytes(packed(labels))
    assert module._recognise(folder) is FASHION
    with pytest.raises(FileError, match=r"t10k-labels.*not fashion-mnist's.*15d484375f8d"):
        module._read(folder, FASHION, 3)
    known = replace(FASHION, unpacked=(*FASHION.unpacked[:3], idx.md5(packed(labels))))
    monkeypatch.setitem(module.SOURCES, "fashion-mnist", known)
    assert (module._read(folder, known, 3) == labels).all()
    (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))  # packed anew, whatever the level
    path.unlink()
    assert (module._read(folder, known, 3) == labels).all()
    with pytest.raises(FileError, match="this is fashion-mnist's t10k-labels"):
        module._read(folder, MNIST, 3)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(FileError, match="digits, mnist, fashion-mnist"):
        load("no such data")


def test_without_network_the_message_says_which_files_to_put_where(monkeypatch, tmp_path):
    import pooch

    def offline(*_, **__):
        raise requests.exceptions.ConnectionError("no route")

    monkeypatch.setenv("UNDIRECTED_DATA", str(tmp_path))
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache")
    monkeypatch.setattr(requests, "get", offline)
    monkeypatch.setattr(pooch.core, "time", None, raising=False)
    monkeypatch.setattr(module, "_download", lambda source: DOWNLOAD(source, retries=0))
    with pytest.raises(FileError, match=r"ConnectionError.*train-images-idx3-ubyte\.gz.*--data.*\$UNDIRECTED_DATA"):
        load("fashion-mnist")


DOWNLOAD = module._download


def test_digits_are_cut_in_three():
    images = load("digits")
    assert [len(split) for split in (images.train, images.validation, images.test)] == [1197, 300, 300]  # 1797 in all
    every = torch.cat([split.images.flatten(1) for split in (images.train, images.validation, images.test)])
    assert every.shape == (1797, 64)
    assert every.min() == -1
    assert every.max() == 1
    assert images.test.labels.bincount().tolist() == pytest.approx([30] * 10, abs=1)


def test_mnist(data):
    images = load("mnist")
    assert [len(split) for split in (images.train, images.validation, images.test)] == [50_000, 10_000, 10_000]
    assert images.train.labels[:5].tolist() == [5, 0, 4, 1, 9]  # the well-known first digits
    assert images.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert (images.train.images.min(), images.train.images.max()) == (-1, 1)
    # Published counts of the digits among all 60,000 training images.
    counts = (images.train.labels.bincount() + images.validation.labels.bincount()).tolist()
    assert counts == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_mnist_from_a_folder_is_recognised_and_another_set_is_not(data):
    folder = data / "mnist"
    assert load(str(folder)).name == "mnist"
    with pytest.raises(FileError, match="this is mnist's train-images"):
        module._read(folder, FASHION, 0)
    assert module._recognise(folder) is MNIST
