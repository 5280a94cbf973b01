"""Ready networks: each a short declaration on the engine, and at one sweep from zeros equal to its directed twin."""

from undirected.models.attention import attention
from undirected.models.conv import conv
from undirected.models.distances import distances
from undirected.models.hopfield import hopfield, modern_hopfield
from undirected.models.implicit import implicit
from undirected.models.mixture import mixture
from undirected.models.mlp import mlp
from undirected.models.pair import pair
from undirected.models.parser import parser
from undirected.models.recurrent import Recurrent

__all__ = [
    "Recurrent",
    "attention",
    "conv",
    "distances",
    "hopfield",
    "implicit",
    "mixture",
    "mlp",
    "modern_hopfield",
    "pair",
    "parser",
]
