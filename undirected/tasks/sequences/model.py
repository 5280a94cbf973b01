"""Model: attention over embedded tokens, which finds the missing ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undirected import orders
from undirected.equilibrium import Tolerance
from undirected.factors import Linear
from undirected.gradients import Gradient
from undirected.models import attention
from undirected.network import UNN
from undirected.orders import Order
from undirected.regularizers import Tanh
from undirected.simplex import Softmax
from undirected.solution import Solution
from undirected.tasks.sequences.data import Batch
from undirected.variable import Partial, Variable

AROUND = "q k v s h s v k q x"  # forward to the contexts, and back to the missing rows
RANDOM = orders.random("q k v s h", last="x")  # drawn anew in every sweep
ORDERS: dict[str, str | Order] = {"forward-backward": AROUND, "random": RANDOM}


def network(vocabulary: Sequence[str], longest: int, size: int = 256, bounded: bool = False) -> UNN:
    """Attention over rows x, and a token y for each: `<y, E x>` joins them, where E are the embeddings.

    E, W_q, W_k and W_v are all that it learns. With `bounded`, q, k, v and h have Tanh, so that the energy has a lower
    bound and sweeps settle. The vocabulary is kept in `net.notes`, and saved with the network.

    >>> net = network(["a", "b", "c"], longest=10, size=8)
    >>> [tuple(weight.shape) for weight in net.parameters()]
    [(8, 8), (8, 8), (8, 8), (3, 8)]
    """
    rows = attention(size, positions=sinusoids(longest, size))
    of = {name: Tanh() if bounded and name in "qkvh" else v.regularizer for name, v in rows.variables.items()}
    unbiased = [Variable(v.name, v.shape, of[v.name], bias=False) for v in rows.variables.values()]
    tokens = Variable("y", ("n", len(vocabulary)), Softmax(), bias=False)
    net = UNN(*unbiased, tokens, *rows.factors.values(), Linear("x", "y"))
    nn.init.normal_(embeddings(net))  # as large as the positions' sines and cosines
    for name in "qkv":  # half as large as usual: further sweeps then do not blow up what the first one found
        _weight(net, f"x-{name}").data /= 2
    net.notes["vocabulary"] = list(vocabulary)
    return net


def embeddings(net: UNN) -> Tensor:
    """A row for each token."""
    return _weight(net, "x-y")


def _weight(net: UNN, factor: str) -> Tensor:
    return net.factors[factor].get_parameter("weight")


def sinusoids(longest: int, size: int) -> Tensor:
    """Position i as `sin(i w), cos(i w)` for wavelengths `2 pi / w` from 2 pi to 20,000 pi: (longest, size).

    >>> sinusoids(3, 2)[:, 0].tolist() == torch.arange(3).sin().tolist()
    True
    """
    speeds = torch.exp(-math.log(10_000) * torch.arange(0, size, 2) / size)
    angles = torch.arange(longest)[:, None] * speeds
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def solve(
    net: UNN,
    batch: Batch,
    iterations: int | tuple[int, int] | None = 1,
    order: str | Order = AROUND,
    trace: bool = False,
    until: Tolerance | None = None,
    gradient: Gradient | None = None,
) -> Solution:
    """The rows x with the missing ones found."""
    x = F.embedding(batch.tokens, embeddings(net))
    return net(
        observe={"x": Partial(x, known=batch.known[..., None])},
        want="x",
        order=order,
        iterations=iterations,
        lengths=None if batch.lengths is None else {"n": batch.lengths},
        trace=trace,
        until=until,
        gradient=gradient,
    )


def scores(net: UNN, batch: Batch, solution: Solution) -> Tensor:
    """The pre-activation of y, of the missing rows alone: (missing, vocabulary)."""
    return F.linear(solution["x"][~batch.known], embeddings(net))
