"""Learn why 3 of 8 are chosen, from the choices alone.

Teams of three are drawn from eight candidates, each with four numbers; how the numbers weigh is not told. A
`BudgetedChoice` knows that exactly three are chosen, so its likelihood is exact and recovers the weights; a sigmoid per
candidate, which does not know it, needs a bias to get the number right, and often chooses two or four.
Runs in seconds.
"""

from __future__ import annotations

import torch

import undirected as un

CANDIDATES, FEATURES, CHOSEN = 8, 4, 3


def network(regularizer: un.Regularizer) -> un.UNN:
    return un.UNN(
        un.Variable("candidates", (CANDIDATES, FEATURES), bias=False),
        un.Variable("team", (CANDIDATES,), regularizer),
        un.Einsum("team[i] candidates[i,d] w[d]", name="merit"),
    )


def main() -> dict[str, float]:
    torch.manual_seed(0)
    weights = 1.5 * torch.randn(FEATURES)
    choice = un.BudgetedChoice(CHOSEN)
    candidates = torch.randn(2000, CANDIDATES, FEATURES)
    teams = choice.sample(candidates @ weights)[0]  # exact samples: likelier with merit, but never certain

    results = {}
    new = torch.randn(500, CANDIDATES, FEATURES)
    for name, regularizer in (("choice", choice), ("sigmoids", un.Sigmoid())):
        net = network(regularizer)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        for _ in range(200):
            rows = torch.randint(len(teams), (128,))
            solution = net(observe={"candidates": candidates[rows]}, want="team")
            loss = un.fenchel_young(solution, "team", teams[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            found = net(observe={"candidates": new}, want="team")
        learned = net.factors["merit"].w.detach()
        team = choice.mode(found.preactivation["team"]) if name == "choice" else found["team"].round()
        results[f"{name} error"] = float((learned - weights).norm() / weights.norm())
        results[f"{name} of three"] = float((team.sum(1) == CHOSEN).float().mean())
        print(
            f"{name:8}: weights {[round(w, 2) for w in learned.tolist()]}, {results[f'{name} error']:.0%} off; "
            f"{results[f'{name} of three']:.0%} of its teams have three members"
        )
        if name == "choice":
            ours = net
    print(f"true    : weights {[round(w, 2) for w in weights.tolist()]}")

    # Candidate 0 is in, candidate 1 is not: who else?
    known = torch.arange(CANDIDATES) < 2
    told = torch.zeros(1, CANDIDATES, dtype=torch.long)
    told[0, 0] = 1
    with torch.no_grad():
        given = ours(observe={"candidates": new[:1], "team": un.Partial(told, known=known)}, want="team")["team"]
    print("chances, given that 0 is in and 1 is not:", [round(p, 2) for p in given[0].tolist()])
    results["sum"] = float(given.sum())
    return results


if __name__ == "__main__":
    main()
