"""Structured variables: regularizers whose points are distributions over combinatorial structures."""

from undirected.structure.structure import Structure
