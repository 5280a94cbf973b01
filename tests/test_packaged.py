"""Packaged: the networks in the box are what their cards say, and are never confused with the user's own."""

import re
from pathlib import Path

import pytest
import torch
import yaml

import undirected as un
from undirected import packaged
from undirected.errors import FileError
from undirected.tasks.images.data import load
from undirected.tasks.images.model import read
from undirected.tasks.parsing.evaluation import evaluate
from undirected.tasks.parsing.parser import load as load_parser


def card(name):
    return (packaged.FOLDER / f"{name}.md").read_text()


def test_every_network_loads_and_has_a_card_and_settings():
    assert {"digits", "mnist"} <= set(packaged.names())
    for name in packaged.names():
        net = load_parser(name).network if name == "toy-parser" else un.load(name)
        assert sum(1 for _ in net.parameters()) > 0
        settings = yaml.safe_load((packaged.FOLDER / f"{name}.yaml").read_text())
        assert f"seed {settings['seed']}" in card(name)
        for head in ("## Data", "## Settings", "## Results", "## Train it again", "icence"):
            assert head in card(name), f"{name}: {head}"


def test_together_they_are_small():
    assert sum(path.stat().st_size for path in packaged.FOLDER.iterdir()) < 3_000_000


def test_nothing_else_lies_beside_them():
    kinds = {".safetensors", ".yaml", ".md"}
    assert {path.name for path in packaged.FOLDER.iterdir()} == {
        f"{name}{kind}" for name in packaged.names() for kind in kinds
    }


def test_the_digits_network_reads_as_its_card_says():  # counted again, on the test images
    images = load("digits")
    settings = yaml.safe_load((packaged.FOLDER / "digits.yaml").read_text())
    with torch.no_grad():
        found = read(un.load("digits").eval(), images.test.images, settings["iterations"])["y"].argmax(1)
    accuracy = (found == images.test.labels).double().mean()
    (written,) = re.findall(r"test accuracy: ([\d.]+) %", card("digits"))
    assert float(written) == pytest.approx(100 * float(accuracy), abs=0.005)


def test_the_mnist_network_reads_as_its_card_says(data):
    images = load("mnist")
    settings = yaml.safe_load((packaged.FOLDER / "mnist.yaml").read_text())
    with torch.no_grad():
        found = read(un.load("mnist").eval(), images.test.images, settings["iterations"])["y"].argmax(1)
    accuracy = (found == images.test.labels).double().mean()
    (written,) = re.findall(r"test accuracy: ([\d.]+) %", card("mnist"))
    assert float(written) == pytest.approx(100 * float(accuracy), abs=0.02)


def test_the_toy_parser_parses_as_its_card_says():  # counted again, on the test sentences
    found = evaluate("toy-parser", data="toy").metrics
    for name, key in (("UAS", "uas"), ("LAS", "las"), ("whole trees", "exact_match")):
        (written,) = re.findall(rf"test {name}: ([\d.]+) %", card("toy-parser"))
        assert float(written) == pytest.approx(100 * found[key], abs=0.005)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(FileNotFoundError, match=r"nmist.*digits.*mnist"):
        un.load("nmist")
    with pytest.raises(FileNotFoundError, match=r"gone\.safetensors: there is no such file"):
        un.load("gone.safetensors")


def test_a_file_of_the_same_name_is_not_confused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = un.UNN(un.Variable("a", (2,)), un.Variable("b", (3,)), un.Linear("a", "b"))
    un.save(own, "digits")
    with pytest.raises(FileError, match=r"Write \./digits for your own"):
        un.load("digits")
    assert list(un.load("./digits").variables) == list(un.load(Path("digits")).variables) == ["a", "b"]
    assert list(un.load("mnist").variables) == ["x", "h1", "h2", "y"]


def test_a_folder_of_the_same_name_is_refused_only_if_it_holds_networks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("digits").mkdir()  # such as one of data
    assert packaged.find("digits") == packaged.FOLDER / "digits.safetensors"
    un.save(un.load("mnist"), "digits/model.safetensors")
    with pytest.raises(FileError, match="folder with networks"):
        packaged.find("digits")
    assert packaged.locate("./digits") == Path("digits")
