"""Structured variables: regularizers whose points are distributions over combinatorial structures."""

from undirected.structure.chain import LinearChain
from undirected.structure.choice import BudgetedChoice
from undirected.structure.heads import pack, unpack
from undirected.structure.permutation import Permutation
from undirected.structure.projective_tree import ProjectiveTree
from undirected.structure.spanning_tree import SpanningTree
from undirected.structure.structure import Structure

__all__ = [
    "BudgetedChoice",
    "LinearChain",
    "Permutation",
    "ProjectiveTree",
    "SpanningTree",
    "Structure",
    "pack",
    "unpack",
]
