"""Encoders: directed networks in front of the parser, from words to vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from undirected.tasks.parsing.encoders.encoder import Encoder, Words
from undirected.tasks.parsing.encoders.lstm import Lstm
from undirected.tasks.parsing.encoders.pretrained import Pretrained
from undirected.tasks.parsing.encoders.vocabulary import Vocabulary

__all__ = ["Encoder", "Lstm", "Pretrained", "Vocabulary", "Words", "described", "named"]


def named(name: str, sentences: Iterable[Words], size: int = 200, layers: int = 2, mix: bool = False) -> Encoder:
    """An encoder by its name: "lstm" learns from these sentences, any other is found with weights of its own.

    >>> named("lstm", [["a", "b"]], size=8).size
    16
    """
    if name != "lstm":
        return Pretrained.find(name, mix)
    return Lstm(Vocabulary.of(sentences), word=size // 2, spelling=size // 2, hidden=size, layers=layers)


def described(description: Mapping[str, Any]) -> Encoder:
    """An encoder as `description()` of another describes it; its weights are yet to be loaded."""
    settings = dict(description)
    if settings.pop("kind") == "pretrained":
        return Pretrained(**settings)
    vocabulary = Vocabulary(tuple(settings.pop("words")), tuple(settings.pop("characters")))
    return Lstm(vocabulary, **settings)
