"""Toy: a generated treebank, small enough to learn in a test, with what makes parsing hard in small doses.

Determiners and verbs agree with their nouns in number. A relative clause may stand at the end of the sentence, away
from its noun: its verb's number alone tells whether it belongs to the subject or to the object, and its arc crosses
others. An object may come first, and then agreement tells it from the subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from undirected.errors import QueryError, unknown
from undirected.tasks.parsing.sentence import Sentence

NOUNS = ["dog", "cat", "bird", "horse", "farmer", "painter", "doctor", "singer", "teacher", "robot", "lion", "duck"]
ADJECTIVES = ["old", "young", "quiet", "loud", "small", "big", "clever", "tired", "red", "blue"]
TRANSITIVE = ["see", "hear", "like", "follow", "greet", "draw", "help", "know"]
INTRANSITIVE = ["sing", "sleep", "laugh", "wait", "run", "shine", "dance", "shout"]
PREPOSITIONS = ["near", "behind", "beside", "under"]
ADVERBS = ["often", "today", "here", "rarely", "again"]
DETERMINERS = {"singular": ("this", "that", "every", "the"), "plural": ("these", "those", "many", "the")}
#: How many sentences each part has. All are different from each other.
PARTS = {"train": 480, "dev": 120, "test": 120}


@dataclass(eq=False)
class Node:
    """A word, and the node that it hangs from: None while that is open, and for the root."""

    form: str
    label: str
    head: Node | None = None


@dataclass
class Phrase:
    """Words in their order, the one that stands for all of them, and its number."""

    words: list[Node]
    top: Node
    number: str


def part(name: str) -> list[Sentence]:
    """The sentences of `train`, `dev` or `test`: always the same.

    >>> print(*part("test")[0].words)
    that farmer near those blue birds those ducks beside the blue dogs see .
    """
    if name not in PARTS:
        raise QueryError(unknown("part of the toy treebank", name, PARTS))
    names = list(PARTS)
    first = sum(PARTS[earlier] for earlier in names[: names.index(name)])
    return list(islice(sentences(0), first, first + PARTS[name]))


def sentences(seed: int) -> Iterator[Sentence]:
    """Sentences of the toy language, without end and without repetition."""
    random = Random(seed)
    seen = set()
    while True:
        nodes = _clause(random)
        words = tuple(node.form for node in nodes)
        if words in seen:
            continue
        seen.add(words)
        places = {id(node): place for place, node in enumerate(nodes, 1)}
        heads = [0 if node.head is None else places[id(node.head)] for node in nodes]
        yield Sentence.of(words).with_tree(heads, [node.label for node in nodes])


def _clause(random: Random) -> list[Node]:
    """A whole sentence."""
    subject = _noun_phrase(random, "nsubj")
    if random.random() < 0.3:
        verb = Node(_verb(random, INTRANSITIVE, subject.number), "root")
        words = [*subject.words, verb]
    else:
        verb = Node(_verb(random, TRANSITIVE, subject.number), "root")
        other = "plural" if subject.number == "singular" else "singular"
        thing = _noun_phrase(random, "obj", other if random.random() < 0.7 else None)
        thing.top.head = verb
        differ = subject.number != thing.number
        if differ and random.random() < 0.2:
            words = [*thing.words, *subject.words, verb]  # only agreement tells which of the two is the object
        else:
            words = [*subject.words, verb, *thing.words]
            if differ and random.random() < 0.5:
                owner = random.choice([subject, thing])
                words += [Node(random.choice(ADVERBS), "advmod", verb), *_relative(random, owner)]
    if len(words) < 12 and random.random() < 0.3:
        words.append(Node(random.choice(ADVERBS), "advmod", verb))
    subject.top.head = verb
    return [*words, Node(".", "punct", verb)]


def _noun_phrase(random: Random, label: str, number: str | None = None, depth: int = 0) -> Phrase:
    number = number or random.choice(list(DETERMINERS))
    noun = Node(random.choice(NOUNS) + ("s" if number == "plural" else ""), label)
    words = [Node(random.choice(DETERMINERS[number]), "det", noun)]
    if random.random() < 0.4:
        words.append(Node(random.choice(ADJECTIVES), "amod", noun))
    words.append(noun)
    phrase = Phrase(words, noun, number)
    if depth < 2 and random.random() < 0.25:
        inner = _noun_phrase(random, "nmod", depth=depth + 1)
        inner.top.head = noun
        words += [Node(random.choice(PREPOSITIONS), "case", inner.top), *inner.words]
    elif depth == 0 and random.random() < 0.15:
        words += _relative(random, phrase)
    return phrase


def _relative(random: Random, owner: Phrase) -> list[Node]:
    """A clause about a noun, whose verb agrees with that noun."""
    verb = Node(_verb(random, INTRANSITIVE, owner.number), "acl:relcl", owner.top)
    return [Node("who", "nsubj", verb), verb]


def _verb(random: Random, stems: list[str], number: str) -> str:
    return random.choice(stems) + ("s" if number == "singular" else "")
