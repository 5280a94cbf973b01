"""Undirected neural networks: write down an energy over a factor graph, and ask it any question."""

from undirected import models, orders
from undirected.draw import draw
from undirected.equilibrium import Tolerance
from undirected.factors import Conv1d, Conv2d, Conv3d, Directed, Einsum, Energy, Factor, Linear
from undirected.files import load, save
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
from undirected.structure import BudgetedChoice, LinearChain, Permutation, ProjectiveTree, SpanningTree
from undirected.variable import Partial, Variable

__all__ = [
    "SpanningTree",
    "ProjectiveTree",
    "Permutation",
    "LinearChain",
    "BudgetedChoice",
    "UNN",
    "CausalSoftmax",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Directed",
    "Einsum",
    "Elementwise",
    "Energy",
    "Entmax15",
    "Factor",
    "HardTanh",
    "Identity",
    "LeakyReLU",
    "Linear",
    "Partial",
    "ReLU",
    "Regularizer",
    "Sigmoid",
    "SoftThreshold",
    "Softmax",
    "Sparsemax",
    "Tanh",
    "Tolerance",
    "Variable",
    "draw",
    "fenchel_young",
    "load",
    "models",
    "orders",
    "save",
]
