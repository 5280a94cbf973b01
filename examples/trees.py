"""Find who governs whom in free word order: a spanning tree, where choosing each head alone goes in circles.

Sentences of a toy grammar: every word agrees with its head in most of its features, the order of words is free (so arcs
cross), and the root is marked. Agreement has no direction: alone, a word may well choose its own modifier. That there
is one tree settles the direction of every arc, starting from the root. Runs in seconds.
"""

from __future__ import annotations

import torch

import undirected as un

FEATURES = 48


def sentences(count: int, n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Words `(count, n + 1, FEATURES + 2)`, of which word 0 is the artificial root; and the head of each word."""
    rows = torch.arange(count)
    places = torch.rand(count, n, generator=generator).argsort(1) + 1  # of the words, in the order of the derivation
    words = torch.zeros(count, n + 1, FEATURES + 2)
    heads = torch.zeros(count, n, dtype=torch.long)
    words[:, 0, -1] = 1
    for k in range(n):
        if k == 0:
            features = torch.randint(2, (count, FEATURES), generator=generator) * 2.0 - 1
            words[rows, places[:, 0], -2] = 1
        else:
            head = places[rows, torch.randint(k, (count,), generator=generator)]
            flips = torch.rand(count, FEATURES, generator=generator) < 0.2
            features = words[rows, head, :FEATURES] * torch.where(flips, -1, 1)
            heads[rows, places[:, k] - 1] = head
        words[rows, places[:, k], :FEATURES] = features
    return words, heads


def network(tree: un.Regularizer) -> un.UNN:
    return un.UNN(
        un.Variable("h", ("n+1", FEATURES + 2), bias=False),
        un.Variable("m", ("n", FEATURES + 2), bias=False),
        un.Variable("own", ("n+1", "n"), bias=False),
        un.Variable("y", ("n+1", "n"), tree, bias=False),
        un.Einsum("y[i,j] h[i,d] V[d,e] m[j,e]"),
        un.Einsum("y[i,j] own[i,j]"),
    )


def solve(net: un.UNN, words: torch.Tensor) -> un.Solution:
    n = words.shape[1] - 1
    own = torch.cat([torch.zeros(1, n), -50 * torch.eye(n)])  # no word is its own head, which only trees know
    return net(observe={"h": words, "m": words[:, 1:], "own": own.expand(len(words), n + 1, n)}, want="y")


def main(steps: int = 150) -> dict[str, float]:
    results = {}
    for name, tree in (("each head alone", un.Softmax(axis=0)), ("trees", un.SpanningTree())):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0)
        net = network(tree)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        for _ in range(steps):
            words, heads = sentences(128, 8, generator)
            loss = un.fenchel_young(solve(net, words), "y", heads)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        words, heads = sentences(300, 12, generator)
        with torch.no_grad():
            scores = solve(net, words).preactivation["y"]
        found = scores if name == "each head alone" else tree.mode(scores)
        results[name] = float((found.argmax(1) == heads).float().mean())
        print(f"{name:16} {results[name]:.0%} of the heads are right")
    return results


if __name__ == "__main__":
    main()
