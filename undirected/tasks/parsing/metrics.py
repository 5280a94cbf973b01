"""Metrics: how much of the trees was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torchmetrics import Metric

from undirected.structure.heads import pack, to_arcs
from undirected.tasks.parsing.sentence import Sentence

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

NAMES = ("uas", "las", "exact_match", "modifier_list_accuracy", "modifier_count_accuracy")


class TreeAccuracy(Metric):
    """Shares from 0 to 1, over all batches. Punctuation counts.

    - `uas`: words with the right head.
    - `las`: words with the right head and label. As in the official CoNLL evaluation, a label counts without its
      subtype: `acl:relcl` is `acl`.
    - `exact_match`: sentences in which every head is right.
    - `modifier_list_accuracy`: words with exactly the right set of modifiers, among those that have any in the right
      tree. Being the sentence's root counts as having one more.
    - `modifier_count_accuracy`: the same words, of which only the number of modifiers is compared, as the code that was
      published with the paper does. It is never smaller.

    Args:
        labels: the names of the labels, by number.

    >>> sentence = Sentence.of(["Dogs", "bark", "."]).with_tree([2, 0, 2], ["nsubj", "root", "punct"])
    >>> accuracy = TreeAccuracy(["nsubj", "root", "punct"])
    >>> accuracy.update(torch.tensor([[2, 0, 1]]), torch.tensor([[0, 1, 2]]), [sentence])
    >>> {name: round(value.item(), 2) for name, value in accuracy.compute().items()}
    {'uas': 0.67, 'las': 0.67, 'exact_match': 0.0, 'modifier_list_accuracy': 0.0, 'modifier_count_accuracy': 0.0}
    """

    full_state_update = False
    higher_is_better = True
    right: Tensor
    total: Tensor

    def __init__(self, labels: Sequence[str], **settings: Any) -> None:
        super().__init__(**settings)
        self._numbers: dict[str, int] = {}
        for label in labels:
            self._numbers.setdefault(_universal(label), len(self._numbers))
        self._kinds = [self._numbers[_universal(label)] for label in labels]
        for state in ("right", "total"):
            self.add_state(state, torch.zeros(len(NAMES), dtype=torch.long), dist_reduce_fx="sum")

    def update(
        self, heads: Int[Tensor, "batch n"], labels: Int[Tensor, "batch n"], sentences: Sequence[Sentence]
    ) -> None:
        """Compare heads and labels, of which those after the end of a sentence do not matter, with the right ones."""
        gold = self._padded(heads, [sentence.heads for sentence in sentences])
        kinds = [[self._numbers.get(_universal(label), -1) for label in sentence.labels] for sentence in sentences]
        words = gold >= 0
        heads = torch.where(words, heads, -1)
        right = (heads == gold) & words
        named = torch.tensor(self._kinds, device=labels.device)[labels.clamp_min(0)] == self._padded(heads, kinds)
        # Row i: the modifiers of word i, and on the diagonal, where nothing else can be, whether it is the root.
        modifiers, right_ones = pack(to_arcs(heads, torch.bool)), pack(to_arcs(gold, torch.bool))
        parents = right_ones.any(-1)
        rows = [
            (right, words),
            (right & named, words),
            ((right | ~words).all(-1), words.any(-1)),
            ((modifiers == right_ones).all(-1) & parents, parents),
            ((modifiers.sum(-1) == right_ones.sum(-1)) & parents, parents),
        ]
        self.right += torch.stack([each.sum() for each, _ in rows])
        self.total += torch.stack([each.sum() for _, each in rows])

    def compute(self) -> dict[str, Tensor]:
        return dict(zip(NAMES, self.right.double() / self.total, strict=True))

    @staticmethod
    def _padded(like: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of different lengths as one tensor, filled with -1."""
        n = like.shape[-1]
        return torch.tensor([[*row, *[-1] * (n - len(row))] for row in rows], device=like.device)


def _universal(label: str) -> str:
    """A label without its subtype."""
    return label.partition(":")[0]
