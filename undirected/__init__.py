"""Undirected neural networks: write down an energy over a factor graph, and ask it any question."""

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
from undirected.simplex import Entmax15, Softmax, Sparsemax
