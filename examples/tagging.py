"""Tag sentences whose words are ambiguous: a linear chain beats a tagger that looks at each word alone.

The sentences come from a small hidden Markov model, so that the best possible accuracy is known. The transitions of
the chain are the bias of its variable, the emissions a factor. Then the same network answers other questions: tags
given some of them, and the words that a sequence of tags calls for. Runs in seconds.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import undirected as un
from undirected.structure.chain import chain_scores, known_tags, node_marginals, tag_sequence

TAGS, WORDS = 5, 20


def language(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of the next tag, mostly a fixed one; and of the words of a tag, each shared with other tags."""
    generator = torch.Generator().manual_seed(seed)
    follow = 0.85 * torch.eye(TAGS)[torch.randperm(TAGS, generator=generator)] + 0.15 / TAGS
    words = torch.softmax(2 * torch.randn(TAGS, WORDS, generator=generator), 1)
    return follow, words


def sentences(follow: torch.Tensor, words: torch.Tensor, count: int, n: int, seed: int):
    """Tags and words `(count, n)`, with a length for each; what is beyond it means nothing."""
    generator = torch.Generator().manual_seed(seed)
    tags = [torch.randint(TAGS, (count,), generator=generator)]
    while len(tags) < n:
        tags.append(torch.multinomial(follow[tags[-1]], 1, generator=generator).squeeze(1))
    spoken = torch.stack(tags, 1)
    heard = torch.multinomial(words[spoken].flatten(0, 1), 1, generator=generator).view(count, n)
    return spoken, heard, torch.randint(n // 2, n + 1, (count,), generator=generator)


def chain_tagger() -> un.UNN:
    # Position 0 has no predecessor and uses row 0 of the table of transitions: tag 0 is kept for "start", and words
    # have the tags 1 to TAGS.
    return un.UNN(
        un.Variable("words", ("n", WORDS), bias=False),
        un.Variable("tags", ("n", TAGS + 1, TAGS + 1), un.LinearChain()),
        un.Einsum("tags[i,a,b] words[i,w] W[w,b]"),
    )


def word_tagger() -> un.UNN:
    return un.UNN(
        un.Variable("words", ("n", WORDS), bias=False),
        un.Variable("tags", ("n", TAGS + 1), un.Softmax()),
        un.Einsum("tags[i,b] words[i,w] W[w,b]"),
    )


def train(net: un.UNN, data, steps: int = 150) -> None:
    spoken, heard, lengths = data
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(steps):
        rows = torch.randint(len(spoken), (64,))
        solution = net(observe={"words": one_hot(heard[rows])}, want="tags", lengths={"n": lengths[rows]})
        loss = un.fenchel_young(solution, "tags", spoken[rows] + 1)  # for a chain: the exact CRF likelihood
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def one_hot(heard: torch.Tensor) -> torch.Tensor:
    return F.one_hot(heard, WORDS).float()


def accuracy(tags: torch.Tensor, spoken: torch.Tensor, lengths: torch.Tensor) -> float:
    exists = torch.arange(spoken.shape[1]) < lengths[:, None]
    return float((tags == spoken)[exists].float().mean())


def main() -> dict[str, float]:
    torch.manual_seed(0)
    follow, words = language(0)
    data = sentences(follow, words, 1000, 12, seed=1)
    spoken, heard, lengths = sentences(follow, words, 500, 12, seed=2)

    results = {}
    chain, alone = chain_tagger(), word_tagger()
    for name, net in (("word by word", alone), ("chain", chain)):
        train(net, data)
        with torch.no_grad():
            found = net(observe={"words": one_hot(heard)}, want="tags", lengths={"n": lengths})["tags"]
        tags = node_marginals(found).argmax(-1) if name == "chain" else found.argmax(-1)
        results[name] = accuracy(tags - 1, spoken, lengths)

    # What someone who knows the language can do at best: the same inference with its true probabilities.
    truth = chain_scores(words.log().T[heard], follow.log())
    exists = (torch.arange(12) < lengths[:, None])[:, :, None, None]
    informed = node_marginals(un.LinearChain().marginals(truth, exists))
    results["best possible"] = accuracy(informed.argmax(-1), spoken, lengths)
    for name, value in results.items():
        print(f"{name:15} {value:.1%} of the tags are right")

    one, its_tags = one_hot(heard[:1]), spoken[:1] + 1
    with torch.no_grad():
        solution = chain(observe={"words": one}, want="tags")
        best, scores = un.LinearChain().top(solution.preactivation["tags"], 3)
        print("spoken         ", its_tags[0].tolist())
        for sequence, score in zip(tag_sequence(best)[:, 0].tolist(), scores[:, 0].tolist(), strict=True):
            print(f"score {score:9.2f}", sequence)
        value, known = known_tags(torch.where(torch.arange(12) % 3 == 0, its_tags, -1), TAGS + 1)
        helped = chain(observe={"words": one, "tags": un.Partial(value, known=known)}, want="tags")["tags"]
        print("every third told", tag_sequence(helped)[0].tolist())
        typical = chain(observe={"tags": its_tags}, want="words")["words"]
        print("words for them ", typical[0].argmax(-1).tolist())
    return results


if __name__ == "__main__":
    main()
