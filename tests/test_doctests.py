"""The examples in the documentation strings run as printed."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import undirected

MODULES = ["undirected", *[found.name for found in pkgutil.walk_packages(undirected.__path__, "undirected.")]]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    torch.manual_seed(0)
    globs = {**vars(module), "torch": torch, "un": undirected}
    failed, _ = doctest.testmod(module, extraglobs=globs, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
