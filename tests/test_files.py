"""Files: what is read back is what was written, and nothing else is read."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import safetensors.torch
import torch

import undirected as un
from undirected.errors import FileError


def rich_network() -> un.UNN:
    """Every kind of declaration that a file can hold."""
    positions = torch.nn.Parameter(torch.randn(12, 4))
    step = un.Linear("q", "k")
    return un.UNN(
        un.Variable("x", ("n", 4), un.HardTanh(-2.0, 2.0), bias=False),
        un.Variable("q", ("n", 5), un.LeakyReLU(0.1, scale=2.0), dropout=0.25),
        un.Variable("k", ("n", 5), un.SoftThreshold(0.3)),
        un.Variable("l", ("n", 5), un.Tanh()),
        un.Variable("s", ("n", "n"), un.Softmax(axis=0, temperature=2.0)),
        un.Variable("c", (5, "n"), un.Entmax15(axis=0), bias="channel"),
        un.Variable("d", (6, "n-2"), un.Sparsemax(axis=0)),
        un.Variable("t", ("n+1", "n"), un.Sigmoid()),
        un.Linear("x", "q", shift={"x": positions}),
        un.Linear("x", "k", shift={"x": positions}, name="to k"),
        step,
        step.tied("k", "l", name="again"),
        un.Einsum("s[i,j] q[i,d] U[d,r] k[j,r]", sizes={}),
        un.Einsum("t[i,j] k[j,d] A[d,r] B[r]", sizes={"r": 3}, name="rank"),
        un.Linear("q", "c", shift={"q": torch.ones(5)}),
        un.Conv1d("c", "d", 3, dilation=1),
    )


def solved(net: un.UNN, x: torch.Tensor) -> dict[str, torch.Tensor]:
    solution = net.eval()({"x": x}, iterations=2, lengths={"n": torch.tensor([6, 4])})
    return {**solution.values, "energy": solution.energy}


def test_a_network_comes_back_whole(tmp_path: Path) -> None:  # from the identity of what went in
    torch.manual_seed(0)
    net, x = rich_network(), torch.randn(2, 6, 4)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    un.save(net, tmp_path / "net.safetensors")
    again = un.load(tmp_path / "net.safetensors")
    assert repr(again) == repr(net)
    assert again.state_dict().keys() == net.state_dict().keys()
    for name, value in solved(net, x).items():
        assert torch.equal(solved(again, x)[name], value), name
    # A parameter that two factors share is still one parameter.
    assert again.factors["x-q"].shift_x is again.factors["to k"].shift_x
    assert len(list(again.parameters())) == len(list(net.parameters()))


def test_dtype_survives(tmp_path: Path) -> None:
    net = un.UNN(un.Variable("x", (2,)), un.Variable("h", (3,), un.ReLU()), un.Linear("x", "h")).double()
    un.save(net, tmp_path / "net")
    assert un.load(tmp_path / "net").bias_h.dtype == torch.float64


def test_structures_are_known(tmp_path: Path) -> None:
    from undirected.structure.spanning_tree import SpanningTree

    net = un.UNN(un.Variable("y", ("n+1", "n"), SpanningTree(single_root=False)))
    un.save(net, tmp_path / "net")
    assert repr(un.load(tmp_path / "net")) == repr(net)


class Doubled(un.Elementwise):
    """`Psi(h) = h^2`, a regularizer of one's own."""

    unit_curvature = 2.0

    def psi(self, h: torch.Tensor) -> torch.Tensor:
        return h.square()

    def psi_star(self, t: torch.Tensor) -> torch.Tensor:
        return t.square() / 4

    def link(self, t: torch.Tensor) -> torch.Tensor:
        return t / 2


class Agreement(un.Factor):
    def score(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b).flatten(1).sum(1)


def test_own_classes_are_given_to_load(tmp_path: Path) -> None:
    net = un.UNN(un.Variable("a", (2,), Doubled()), un.Variable("b", (2,)), Agreement("a", "b"))
    un.save(net, tmp_path / "net")
    with pytest.raises(FileError, match=r"uses Doubled.*classes=\[Doubled\]"):
        un.load(tmp_path / "net")
    assert repr(un.load(tmp_path / "net", classes=[Doubled, Agreement])) == repr(net)


def test_code_is_given_to_load_and_its_weights_are_read(tmp_path: Path) -> None:
    def declare(encoder: torch.nn.Module) -> un.UNN:
        return un.UNN(un.Variable("x", (2,)), un.Variable("h", (3,)), un.Directed(encoder, "x", "h"))

    net = declare(torch.nn.Linear(2, 3))
    un.save(net, tmp_path / "net")
    with pytest.raises(FileError, match=r"'x-h' is a Directed, which holds Python code"):
        un.load(tmp_path / "net")
    again = un.load(tmp_path / "net", factors=[un.Directed(torch.nn.Linear(2, 3), "x", "h")])
    assert torch.equal(again.factors["x-h"].module.weight, net.factors["x-h"].module.weight)


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net"
    un.save(rich_network(), path)
    whole = path.read_bytes()
    for size in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(FileError, match=r"not a safetensors file, or only part of one"):
            un.load(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"GIF89a" + bytes(200))
    with pytest.raises(FileError, match="not a safetensors file"):
        un.load(path)
    safetensors.torch.save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(FileError, match="not a network saved by this library"):
        un.load(path)
    torch.save({"w": torch.zeros(2)}, path)  # a pickle, which must not be opened
    with pytest.raises(FileError, match="not a safetensors file"):
        un.load(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        un.load(tmp_path / "missing")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"format": 99}, "has format 99; this version reads format 1"),
        ([], "has format None"),
        ({"format": 1}, "declaration in its header is broken"),
        ({"format": 1, "variables": [{"name": "x"}], "factors": [], "aliases": {}}, "header is broken"),
        (
            {
                "format": 1,
                "variables": [
                    {
                        "name": "x",
                        "shape": [2],
                        "regularizer": {"kind": "Popen", "settings": {"args": "true"}},
                        "bias": True,
                        "dropout": 0.0,
                    }
                ],
                "factors": [],
                "aliases": {},
            },
            "uses Popen, which is not part of this library",
        ),
    ],
)
def test_broken_headers_are_refused(tmp_path: Path, header: object, message: str) -> None:
    safetensors.torch.save_file({"w": torch.zeros(2)}, tmp_path / "net", metadata={"undirected": json.dumps(header)})
    with pytest.raises(FileError, match=message):
        un.load(tmp_path / "net")


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net"
    un.save(un.UNN(un.Variable("x", (2,)), un.Variable("h", (3,)), un.Linear("x", "h")), path)
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = data[8 : 8 + size].replace(b"bias_h", b"bias_g")
    path.write_bytes(data[:8] + header + data[8 + size :])
    with pytest.raises(FileError, match="weights do not fit its declaration"):
        un.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "net"
    un.save(un.UNN(un.Variable("x", (2,))), path)
    before = path.read_bytes()

    class Strange(un.Elementwise):
        def __init__(self, scale: object = None) -> None:
            super().__init__(1.0)
            self.scale = torch.ones(())

        psi = psi_star = link = torch.Tensor.abs

    with pytest.raises(FileError, match="cannot be written as JSON"):
        un.save(un.UNN(un.Variable("x", (2,), Strange())), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["net"]
    with pytest.raises(FileError, match="there is no folder"):
        un.save(un.UNN(un.Variable("x", (2,))), tmp_path / "missing" / "net")


def test_folders_and_impossible_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder"):
        un.load(tmp_path)
    path = tmp_path / "net"
    un.save(un.UNN(un.Variable("x", (2,))), path)
    for wrong in ("-5", "9" * 15):
        header = {"format": 1, "factors": [], "aliases": {}}
        kind = {"kind": "Identity", "settings": {"scale": 1.0}}
        header["variables"] = [{"name": "x", "shape": [int(wrong)], "regularizer": kind, "bias": True, "dropout": 0.0}]
        safetensors.torch.save_file({}, path, metadata={"undirected": json.dumps(header)})
        with pytest.raises(FileError, match="declaration in its header is broken"):
            un.load(path)
