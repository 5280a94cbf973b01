"""Learn to sort from sorted lists, then sort longer ones.

An item has five numbers; which combination of them the lists are sorted by is not told. The variable `p` is a
permutation, `p[i, j]`: item i comes to place j. Trained on lists of 2 to 6 items, the network sorts lists of 20; and
asked the other way round, it makes items that come in a given order. Runs in seconds.
"""

from __future__ import annotations

import torch

import undirected as un

FEATURES = 5


def lists(key: torch.Tensor, count: int, n: int, low: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Items `(count, n, FEATURES)`, the place of each in the sorted list, and the lists' lengths, from `low` to n."""
    items = torch.randn(count, n, FEATURES)
    lengths = torch.randint(low, n + 1, (count,))
    exists = torch.arange(n) < lengths[:, None]
    rank = torch.where(exists, items @ key, torch.inf).argsort(1).argsort(1)
    return items, torch.where(exists, rank, 0), lengths


def places(lengths: torch.Tensor, n: int) -> torch.Tensor:
    """Where the places are: from -1, the first, to 1, the last of each list."""
    return (2 * torch.arange(n) / (lengths[:, None] - 1) - 1)[..., None]


def right(p: torch.Tensor, rank: torch.Tensor, lengths: torch.Tensor) -> float:
    """The share of lists that are sorted without a mistake."""
    exists = torch.arange(rank.shape[1]) < lengths[:, None]
    return float(((p.argmax(2) == rank) | ~exists).all(1).float().mean())


def main() -> dict[str, float]:
    torch.manual_seed(0)
    key = torch.randn(FEATURES)
    net = un.UNN(
        un.Variable("items", ("n", FEATURES), bias=False),
        un.Variable("places", ("n", 1), bias=False),
        un.Variable("p", ("n", "n"), un.Permutation(), bias=False),
        # By the rearrangement inequality the best permutation sorts the items by `items @ W`.
        un.Einsum("p[i,j] items[i,c] places[j,e] W[c,e]", name="order"),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=0.3)
    for _ in range(150):
        items, rank, lengths = lists(key, 64, 6, low=2)
        solution = net(observe={"items": items, "places": places(lengths, 6)}, want="p", lengths={"n": lengths})
        loss = un.fenchel_young(solution, "p", rank)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    results = {}
    learned = net.factors["order"].W.detach().flatten()
    results["cosine"] = float(torch.cosine_similarity(learned, key, dim=0))
    print(f"the key that was learned and the true one: cosine {results['cosine']:.4f}")
    for n in (6, 20):
        items, rank, lengths = lists(key, 200, n, low=n)
        with torch.no_grad():
            solution = net(observe={"items": items, "places": places(lengths, n)}, want="p")
        exact = right(un.Permutation().mode(solution.preactivation["p"]), rank, lengths)
        close = (un.Permutation().mode(solution.preactivation["p"]).argmax(2) - rank).abs().float().mean()
        results[f"sorted {n}"], results[f"off {n}"] = exact, float(close)
        print(f"lists of {n:2}: {exact:.1%} without a mistake, items {close:.2f} places off on average")

    order = torch.tensor([[3, 0, 4, 1, 2]])
    with torch.no_grad():
        made = net(observe={"p": order, "places": places(torch.tensor([5]), 5)}, want="items")["items"]
    print(f"items made for the order {order[0].tolist()} sort as {(made @ key).argsort(1).argsort(1)[0].tolist()}")
    results["made"] = float(((made @ key).argsort(1).argsort(1) == order).all())
    return results


if __name__ == "__main__":
    main()
