"""Factors: the multilinear scores that join variables."""

from undirected.factors.conv import Conv1d, Conv2d, Conv3d
from undirected.factors.directed import Directed
from undirected.factors.einsum import Einsum
from undirected.factors.energy import Energy, descend
from undirected.factors.factor import Factor, Tied, derivative
from undirected.factors.linear import Linear

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Directed",
    "Einsum",
    "Energy",
    "Factor",
    "Linear",
    "Tied",
    "derivative",
    "descend",
]
