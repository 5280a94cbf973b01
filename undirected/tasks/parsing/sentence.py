"""Sentence: words, their tree, and every byte that the file had around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from undirected.errors import QueryError

COLUMNS = 10  # ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC
HEAD, DEPREL, MISC = 6, 7, 9
PROBABILITY = "ArcProbability"  # the key in MISC


@dataclass(frozen=True)
class Sentence:
    """Words with a dependency tree: word i (from 1) hangs from word `heads[i - 1]`, and 0 is the root.

    Without a tree, `heads` and `labels` are empty. `source` is the sentence as its file has it, with the blank lines
    that follow: comments, multiword tokens, empty nodes and all columns. Nothing of it is lost in `with_tree`.

    >>> sentence = Sentence.of(["Dogs", "bark"]).with_tree([2, 0], ["nsubj", "root"])
    >>> sentence.heads, sentence.labels
    ((2, 0), ('nsubj', 'root'))
    >>> print(sentence.source.replace("\\t", " "), end="")
    # text = Dogs bark
    1 Dogs _ _ _ _ 2 nsubj _ _
    2 bark _ _ _ _ 0 root _ _
    <BLANKLINE>
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    labels: tuple[str, ...]
    source: str = field(repr=False)

    def __len__(self) -> int:
        return len(self.words)

    @staticmethod
    def of(words: Sequence[str]) -> Sentence:
        """A sentence without a tree, from its words alone."""
        if not words:
            raise QueryError("a sentence needs at least one word.")
        for number, word in enumerate(words, 1):
            if not word or any(mark in word for mark in "\t\n\r"):
                raise QueryError(f"word {number} is {word!r}: a word is not empty and has no tab or line break.")
        blank = "\t".join("_" * (COLUMNS - 2))
        lines = [f"{number}\t{word}\t{blank}\n" for number, word in enumerate(words, 1)]
        return Sentence(tuple(words), (), (), "".join([f"# text = {' '.join(words)}\n", *lines, "\n"]))

    def with_tree(
        self, heads: Sequence[int], labels: Sequence[str], probabilities: Sequence[float] | None = None
    ) -> Sentence:
        """The same sentence with another HEAD and DEPREL; the probability of each arc, if given, goes into MISC.

        All other columns stay, DEPS too: it is an annotation of its own.
        """
        n = len(self)
        given = [len(heads), len(labels), n if probabilities is None else len(probabilities)]
        if given != [n, n, n]:
            raise QueryError(f"{n} words, but {given[0]} heads, {given[1]} labels and {given[2]} probabilities.")
        heads, labels = tuple(map(int, heads)), tuple(labels)
        if problem := fault(heads):
            raise QueryError(problem[1])
        lines = self.source.split("\n")
        rows = (row for row, line in enumerate(lines) if _is_word(line))
        for i, row in enumerate(rows):
            columns = lines[row].split("\t")
            columns[HEAD : DEPREL + 1] = str(heads[i]), labels[i]
            if probabilities is not None:
                last = columns[MISC].rstrip("\r")
                columns[MISC] = _set(last, PROBABILITY, f"{probabilities[i]:.4f}") + columns[MISC][len(last) :]
            lines[row] = "\t".join(columns)
        return replace(self, heads=heads, labels=labels, source="\n".join(lines))

    def with_comments(self, comments: Mapping[str, object]) -> Sentence:
        """The same sentence with these comments, `# key = value`, after those that it has; a key occurs once."""
        mark = "\ufeff" if self.source.startswith("\ufeff") else ""
        lines = self.source.removeprefix(mark).split("\n")
        lines = [line for line in lines if not line.startswith("#") or _key(line) not in comments]
        first = next(row for row, line in enumerate(lines) if line.rstrip("\r") and not line.startswith("#"))
        end = "\r" if lines[first].endswith("\r") else ""
        lines[first:first] = [f"# {key} = {value}{end}" for key, value in comments.items()]
        return replace(self, source=mark + "\n".join(lines))


def fault(heads: Sequence[int]) -> tuple[int, str] | None:
    """What keeps these heads from being a tree with one root: the number of a word, and a sentence. None: nothing.

    >>> fault([2, 0]), fault([0, 3, 2])
    (None, (2, 'words 2 -> 3 -> 2 form a cycle.'))
    """
    n = len(heads)
    for i, head in enumerate(heads, 1):
        if not 0 <= head <= n:
            return i, f"word {i} has head {head}, but the heads of {n} words are 0 to {n}."
    roots = [i for i, head in enumerate(heads, 1) if head == 0]
    if not roots:
        return 1, "no word has head 0; a sentence has one root."
    if len(roots) > 1:
        return roots[1], f"words {' and '.join(map(str, roots))} both have head 0; a sentence has one root."
    reached = [0] * (n + 1)  # by the walk up from which word
    for i in range(1, n + 1):
        at = i
        while at and not reached[at]:
            reached[at] = i
            at = heads[at - 1]
        if at and reached[at] == i:
            cycle = [at, heads[at - 1]]
            while cycle[-1] != at:
                cycle.append(heads[cycle[-1] - 1])
            return at, f"words {' -> '.join(map(str, cycle))} form a cycle."
    return None


def _is_word(line: str) -> bool:
    """Is this the line of a word, rather than a comment, a multiword token, an empty node or nothing?"""
    return line.lstrip("\ufeff").partition("\t")[0].isdecimal()


def _key(comment: str) -> str:
    return comment[1:].partition("=")[0].strip()


def _set(misc: str, key: str, value: str) -> str:
    """MISC with this key set, whether it was there or not; the others keep their order."""
    others = [] if misc == "_" else [part for part in misc.split("|") if part.partition("=")[0] != key]
    return "|".join([*others, f"{key}={value}"])
