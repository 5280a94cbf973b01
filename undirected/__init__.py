"""Undirected neural networks: write down an energy over a factor graph, and ask it any question."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from undirected import orders
from undirected.draw import draw
from undirected.equilibrium import Tolerance
from undirected.factors import Conv1d, Conv2d, Conv3d, Directed, Einsum, Energy, Factor, Linear
from undirected.gradients import EquilibriumPropagation, Implicit, OneStep, Truncated, Unroll
from undirected.losses import fenchel_young
from undirected.network import UNN
from undirected.regularizers import (
    Elementwise,
    HardTanh,
    Identity,
    LeakyReLU,
    Regularizer,
    ReLU,
    Sigmoid,
    SoftThreshold,
    Tanh,
)
from undirected.simplex import CausalSoftmax, Entmax15, Softmax, Sparsemax
from undirected.spectral import spectral
from undirected.variable import Partial, Variable

if TYPE_CHECKING:
    from undirected import models
    from undirected.files import load, save
    from undirected.structure import BudgetedChoice, LinearChain, Permutation, ProjectiveTree, SpanningTree

#: Parts that are imported when they are first used, so that `import undirected` stays quick.
_LATER = {
    "load": "undirected.files",
    "save": "undirected.files",
    "BudgetedChoice": "undirected.structure",
    "LinearChain": "undirected.structure",
    "Permutation": "undirected.structure",
    "ProjectiveTree": "undirected.structure",
    "SpanningTree": "undirected.structure",
}

__all__ = [
    "UNN",
    "BudgetedChoice",
    "CausalSoftmax",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Directed",
    "Einsum",
    "Elementwise",
    "Energy",
    "Entmax15",
    "EquilibriumPropagation",
    "Factor",
    "HardTanh",
    "Identity",
    "Implicit",
    "LeakyReLU",
    "Linear",
    "LinearChain",
    "OneStep",
    "Partial",
    "Permutation",
    "ProjectiveTree",
    "ReLU",
    "Regularizer",
    "Sigmoid",
    "SoftThreshold",
    "Softmax",
    "SpanningTree",
    "Sparsemax",
    "Tanh",
    "Tolerance",
    "Truncated",
    "Unroll",
    "Variable",
    "draw",
    "fenchel_young",
    "load",
    "models",
    "orders",
    "save",
    "spectral",
]


def __getattr__(name: str) -> Any:
    if name == "models":
        return import_module("undirected.models")
    if name in _LATER:
        value = getattr(import_module(_LATER[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'undirected' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
